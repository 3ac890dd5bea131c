// SPDX-License-Identifier: Apache-2.0
// Every call that a client causes below fails once: no false alarm, no lost block, nothing unsealed
// under a final name, no invented errno, nothing leaked (C3, C14-C16).
#include "tests/mount/fixture_internal.h"

#include "core/util.h"
#include "tests/clients/client.h"

/*
 * A sweep is one client sequence and one kind of fault. The sequence runs with the first call below
 * failing, then with the second, and so on, until a run has met no fault. After each run the fault
 * is cleared, what is in the source is judged, and the client tries again, which has to succeed.
 */

#define KIB             ((size_t)1 << 10)
#define SMALL           (64 * KIB)
#define TWO_PIECES      (320 * KIB)  /* of NIXL's */
#define LARGE           (1536 * KIB) /* more than one request */
#define MAX_RUNS        500          /* of one sweep; a longer one would never end */
#define MAX_LEFT_BEHIND 3
#define MAX_RSS_KIB     (30 * 1024) /* more than this is a leak */
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct client {
    client_sequence *store, *load;
    client_sequence *check; /* of content that is not as client_check() wants it */
    bool is_flat;           /* how the key becomes a path */
    const char *suffix;
    size_t size;
    unsigned flags;
    bool is_deep;     /* each run makes the directories, too */
    bool is_in_place; /* works on the final name, so that half a block can be there */
    bool is_racing;   /* a second writer changes what the first has published, and nobody looks at
                       * what close() says */
    bool is_mapped;   /* writes through a shared mapping */
};

struct fault {
    const char *kind;   /* of call, as faultfs names it */
    const char *action; /* "errno", "short", "flip" */
    long argument;
};

/* The errno that the client may see; 0: it must see nothing at all. */
static int error_of(const struct fault *fault)
{
    return strcmp(fault->action, "errno") == 0 ? (int)fault->argument : 0;
}

static const struct fault store_faults[] = {
    {"any", "errno", EIO},          {"any", "errno", ESTALE},
    {"write", "errno", ENOSPC},     {"write", "errno", EDQUOT},
    {"setxattr", "errno", ENOSPC},  {"setxattr", "errno", EDQUOT},
    {"setxattr", "errno", ENOTSUP}, {"getxattr", "errno", EDQUOT},
    {"read", "errno", EDQUOT},      {"rename", "errno", EDQUOT},
    {"open", "errno", EDQUOT},      {"create", "errno", EDQUOT},
    {"flush", "errno", EDQUOT},     {"fsync", "errno", EDQUOT},
    {"truncate", "errno", EDQUOT},  {"removexattr", "errno", EDQUOT},
    {"write", "short", 1},          {"write", "short", 4096},
    {"write", "short", 5000},
};

static const struct fault load_faults[] = {
    {"any", "errno", EIO},      {"any", "errno", ESTALE},      {"read", "errno", EDQUOT},
    {"open", "errno", EDQUOT},  {"getxattr", "errno", EDQUOT}, {"flush", "errno", EDQUOT},
    {"fsync", "errno", EDQUOT}, {"read", "short", 1},          {"read", "short", 4096},
    {"read", "short", 5000},    {"read", "flip", 5000},
};

/* One run of a sequence, and the key that it is about. */
struct run {
    struct kvt_env *env;
    const struct client *client;
    const struct fault *fault;
    unsigned nth;
    char root[PATH_MAX], key[32];
    uint64_t seed;
};

static struct {
    unsigned made, runs;
    unsigned left_behind; /* files by failed creates, in this sweep */
    pid_t daemon;         /* that the two are of */
    unsigned fds;
    long rss_kib;
} total;

/* ---- the daemon's state ---- */

static long read_rss_kib(pid_t pid)
{
    char path[64];
    long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1)
        fail_msg("%s: %s", path, strerror(errno));
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE) / 1024;
}

static void note_base(struct kvt_env *env)
{
    if (total.daemon == env->daemon)
        return;
    total.daemon = env->daemon;
    total.fds = kvt_count_fds(env->daemon);
    total.rss_kib = read_rss_kib(env->daemon);
}

static void check_for_false_alarms(struct kvt_env *env, const struct fault *fault)
{
    if (!kvt_log_has(env, "corrupt block") && !kvt_log_has(env, "the client's own CRC32C"))
        return;
    kvt_show_log(env);
    fail_msg("a false alarm by %s %s %ld", fault->kind, fault->action, fault->argument);
}

/* ---- judging a run ---- */

#define fail_run(run, ...)                                                                         \
    do {                                                                                           \
        print_error("%s %u %s %ld: ", (run)->fault->kind, (run)->nth, (run)->fault->action,        \
                    (run)->fault->argument);                                                       \
        kvt_show_log((run)->env);                                                                  \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

static const char *path_of(const struct run *run, const char *root)
{
    static char path[PATH_MAX];
    const struct client *client = run->client;
    int error = client->is_flat ? client_flat_path(path, root, run->key, client->suffix)
                                : client_fanned_path(path, root, run->key, client->suffix);
    assert_int_equal(error, 0);
    return path;
}

static int call(const struct run *run, client_sequence *sequence)
{
    static int has_uring = -1;
    unsigned flags = run->client->flags;

    if (has_uring < 0)
        has_uring = client_has_uring();
    if (!has_uring)
        flags &= ~(unsigned)CLIENT_URING;
    return sequence(run->root, run->key, run->client->size, run->seed, flags);
}

/* The injected error, or none. What else can come, and who makes it: */
static bool is_allowed(const struct run *run, int result)
{
    int error = error_of(run->fault);
    const struct client *client = run->client;

    if (result == 0 || (error && result == -error))
        return true;
    /* A write of two requests whose second one fails is short, which our clients call EIO. */
    if (error && result == -EIO && client->size > 1024 * KIB)
        return true;
    /* The kernel tries again what gave ESTALE, and finds what the first try has created. */
    if (error == ESTALE && result == -EEXIST)
        return true;
    /* The kernel remembers of a failed write-back of pages only whether it was ENOSPC. */
    return error && result == -EIO && client->is_mapped;
}

struct found {
    bool exists, is_content, is_sealed, is_unsealed;
};

/* What is at the final name in the source, below faultfs: nothing is counted. */
static struct found look_below(const struct run *run)
{
    const struct client *client = run->client;
    const char *root = kvt_under(run->env, ""), *path = path_of(run, root);
    struct found found = {0};
    struct stat st;

    if (stat(path, &st) != 0)
        return found;
    size_t size = (size_t)st.st_size;
    kvs_cleanup_free unsigned char *data = malloc(size + 1);
    kvs_cleanup_fd int fd = kvt_open(path, O_RDONLY);
    assert_int_equal(pread(fd, data, size, 0), size);
    struct kvs_record record = kvt_record_of(path);
    if (client->check)
        found.is_content = client->check(root, run->key, client->size, run->seed, 0) == 0;
    else
        found.is_content = size == client->size && client_check(data, size, 0, run->seed) == 0;
    found.exists = true;
    found.is_unsealed = record.kind == KVS_RECORD_NONE;
    found.is_sealed = record.kind == KVS_RECORD_SUM && record.crc == kvt_crc32c(data, size);
    return found;
}

static void judge_store(const struct run *run, int result)
{
    bool can_be_cut = run->client->is_in_place || run->client->is_racing;
    struct found found = look_below(run);

    if (!is_allowed(run, result))
        fail_run(run, "the store gave: %s", strerror(-result));
    if (found.exists && !found.is_sealed && !(can_be_cut && found.is_unsealed))
        fail_run(run, "%s under its final name after: %s",
                 found.is_unsealed ? "unsealed" : "sealed with a wrong sum", strerror(-result));
    if (found.exists && !found.is_content && !(can_be_cut && result != 0) &&
        !run->client->is_racing)
        fail_run(run, "other bytes under the final name after: %s", strerror(-result));
    if (result == 0 && !found.exists)
        fail_run(run, "stored, and not there");
    if (result == 0 && !found.is_sealed && !run->client->is_racing)
        fail_run(run, "stored, and not sealed");
}

static void judge_load(const struct run *run, int result)
{
    struct found found = look_below(run);

    if (!is_allowed(run, result))
        fail_run(run, "the load gave: %s", strerror(-result));
    if (!found.exists || !found.is_content || !found.is_sealed)
        fail_run(run, "the block is %s after: %s", found.exists ? "changed" : "gone",
                 strerror(-result));
}

/* ---- sweeps ---- */

static void set_fault(const struct run *run)
{
    char command[128];
    snprintf(command, sizeof(command), "clear\n%s %u %s %ld\n", run->fault->kind, run->nth,
             run->fault->action, run->fault->argument);
    kvt_fault(run->env, command);
}

/* Ends the faults of a run: whether there was one. */
static bool clear_fault(const struct run *run)
{
    bool was_hit = kvt_fault_report_has(run->env, "hit 1");
    kvt_fault(run->env, "clear\n");
    total.runs++;
    total.made += was_hit;
    return was_hit;
}

static struct run begin(struct kvt_env *env, const struct client *client, const struct fault *fault,
                        unsigned nth)
{
    static unsigned count;
    struct run run = {.env = env, .client = client, .fault = fault, .nth = nth, .seed = ++count};
    snprintf(run.root, sizeof(run.root), "%s", kvt_mnt(env, ""));
    snprintf(run.key, sizeof(run.key), "%03x00-%u", client->is_deep ? count % 4096 : 0, count);
    return run;
}

static void expect_ok(const struct run *run, client_sequence *sequence, const char *what)
{
    int result = call(run, sequence);
    if (result != 0)
        fail_run(run, "%s: %s", what, strerror(-result));
}

/* The second try finds nothing in its way, and gives a good block. */
static void try_again(const struct run *run)
{
    struct found found = look_below(run);
    bool is_good = found.is_content && found.is_sealed;

    // Damaged by the second writer: this client never stores again what is there.
    if (run->client->is_racing && found.exists && !is_good)
        return;
    int result = call(run, run->client->store);
    /* One call below is the kernel's own, made by open(2) after it has created the file: what is
     * left then is in the way of O_EXCL, as it would be without the mount. A RELEASE of the run
     * before moves the count by one, so that two or three runs may meet that same call. */
    if (result == -EEXIST && ++total.left_behind <= MAX_LEFT_BEHIND)
        return;
    if (result != 0)
        fail_run(run, "the second store gave: %s", strerror(-result));
    expect_ok(run, run->client->load, "the load after it");
    found = look_below(run);
    if (!found.is_content || !found.is_sealed)
        fail_run(run, "the second store left no good block");
}

static bool run_store(struct kvt_env *env, const struct client *client, const struct fault *fault,
                      unsigned nth)
{
    struct run run = begin(env, client, fault, nth);
    set_fault(&run);
    int result = call(&run, client->store);
    bool was_hit = clear_fault(&run);
    judge_store(&run, result);
    try_again(&run);
    unlink(path_of(&run, run.root));
    return was_hit;
}

/* The same over a good block, which is lost at most to an error that the client saw. */
static bool run_overwrite(struct kvt_env *env, const struct client *client,
                          const struct fault *fault, unsigned nth)
{
    struct run run = begin(env, client, fault, nth);
    run.seed += 1u << 30;
    expect_ok(&run, client->store, "the first store");
    run.seed -= 1u << 30;
    set_fault(&run);
    int result = call(&run, client->store);
    bool was_hit = clear_fault(&run);
    judge_store(&run, result);
    try_again(&run);
    unlink(path_of(&run, run.root));
    return was_hit;
}

typedef bool run_once(struct kvt_env *env, const struct client *client, const struct fault *fault,
                      unsigned nth);

static void sweep(struct kvt_env *env, const struct client *client, const struct fault *faults,
                  size_t count, run_once *run)
{
    unsigned made = total.made, runs = total.runs;
    uint64_t start = kvt_now_ms();

    note_base(env);
    for (const struct fault *fault = faults; fault < faults + count; fault++) {
        if (fault->argument == ESTALE && run == run_store && !client->is_deep)
            continue;
        unsigned nth = 1;
        total.left_behind = 0;
        while (nth <= MAX_RUNS && run(env, client, fault, nth))
            nth++;
        if (nth > MAX_RUNS)
            fail_msg("%s: there is no end", fault->kind);
        check_for_false_alarms(env, fault);
    }
    kvt_wait_for(kvt_count_fds(env->daemon) <= total.fds);
    print_message("%u faults in %u runs and %u ms, %u so far\n", total.made - made,
                  total.runs - runs, (unsigned)(kvt_now_ms() - start), total.made);
}

static void sweep_store(struct kvt_env *env, const struct client *client)
{
    sweep(env, client, store_faults, COUNT_OF(store_faults), run_store);
}

static void sweep_overwrite(struct kvt_env *env, const struct client *client)
{
    sweep(env, client, store_faults, COUNT_OF(store_faults), run_overwrite);
    sweep(env, client, load_faults, COUNT_OF(load_faults), run_overwrite);
}

/* All loads of a sweep are of this one block, which nothing may harm. */
static struct run target;

static bool run_load(struct kvt_env *env, const struct client *client, const struct fault *fault,
                     unsigned nth)
{
    target.fault = fault;
    target.nth = nth;
    set_fault(&target);
    int result = call(&target, client->load);
    bool was_hit = clear_fault(&target);
    judge_load(&target, result);
    expect_ok(&target, client->load, "the second load");
    return was_hit;
}

static void sweep_load(struct kvt_env *env, const struct client *client)
{
    target = begin(env, client, load_faults, 0);
    expect_ok(&target, client->store, "the store");
    sweep(env, client, load_faults, COUNT_OF(load_faults), run_load);
}

/* ---- the clients ---- */

#define VLLM .store = client_vllm_store, .load = client_vllm_load, .suffix = ".bin"
#define NIXL .store = client_nixl_store, .load = client_nixl_load, .suffix = ".bin"

static const struct client vllm = {VLLM, .size = SMALL, .is_deep = true};
static const struct client vllm_large = {VLLM, .size = LARGE};
static const struct client vllm_direct = {VLLM, .size = SMALL, .flags = CLIENT_DIRECT};
static const struct client vllm_crc = {VLLM, .size = SMALL, .flags = CLIENT_CRC};
static const struct client vllm_lookup = {
    .store = client_vllm_store, .load = client_vllm_lookup, .suffix = ".bin", .size = SMALL};
static const struct client llmd = {
    .store = client_llmd_store, .load = client_llmd_load, .suffix = ".bin", .size = LARGE};
static const struct client lmcache_fs = {.store = client_lmcache_fs_store,
                                         .load = client_lmcache_fs_load,
                                         .is_flat = true,
                                         .suffix = ".data",
                                         .size = SMALL,
                                         .is_racing = true};
static const struct client lmcache_disk = {.store = client_lmcache_disk_store,
                                           .load = client_lmcache_disk_load,
                                           .is_flat = true,
                                           .suffix = ".pt",
                                           .size = LARGE,
                                           .is_in_place = true};
static const struct client lmcache_disk_small = {.store = client_lmcache_disk_store,
                                                 .load = client_lmcache_disk_load,
                                                 .is_flat = true,
                                                 .suffix = ".pt",
                                                 .size = SMALL,
                                                 .is_in_place = true};
static const struct client lmcache_gds = {.store = client_lmcache_gds_store,
                                          .load = client_lmcache_gds_load,
                                          .suffix = ".kvcache.safetensors",
                                          .size = 20 * KIB,
                                          .is_mapped = true};
static const struct client sglang = {.store = client_sglang_store,
                                     .load = client_sglang_load,
                                     .is_flat = true,
                                     .suffix = ".bin",
                                     .size = SMALL};
static const struct client nixl = {NIXL, .size = TWO_PIECES, .flags = CLIENT_URING,
                                   .is_in_place = true};
static const struct client nixl_direct = {
    NIXL, .size = TWO_PIECES, .flags = CLIENT_DIRECT | CLIENT_URING, .is_in_place = true};
static const struct client linked = {
    .store = client_link_store, .load = client_vllm_load, .suffix = ".bin", .size = SMALL};
static const struct client unnamed = {
    .store = client_link_tmpfile_store, .load = client_vllm_load, .suffix = ".bin", .size = SMALL};
static const struct client slots_vllm = {.store = client_slots_vllm_run,
                                         .load = client_slots_check,
                                         .check = client_slots_check,
                                         .is_flat = true,
                                         .suffix = ".slots",
                                         .size = 4 * CLIENT_SLOT,
                                         .flags = CLIENT_DIRECT,
                                         .is_in_place = true};
static const struct client slots_kvbm = {.store = client_slots_kvbm_run,
                                         .load = client_slots_check,
                                         .check = client_slots_check,
                                         .is_flat = true,
                                         .suffix = ".slots",
                                         .size = 4 * CLIENT_SLOT,
                                         .flags = CLIENT_DIRECT,
                                         .is_in_place = true};

/* ---- the tests ---- */

#define SWEEP(name, how, client)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        how(*state, &(client));                                                                    \
    }

SWEEP(c03_vllm_store, sweep_store, vllm)
SWEEP(c03_vllm_store_direct, sweep_store, vllm_direct)
SWEEP(c03_vllm_store_with_its_own_sums, sweep_store, vllm_crc)
SWEEP(c03_llmd_store, sweep_store, llmd)
SWEEP(c03_lmcache_fs_store, sweep_store, lmcache_fs)
SWEEP(c03_lmcache_disk_store, sweep_store, lmcache_disk)
SWEEP(c03_lmcache_disk_overwrite, sweep_overwrite, lmcache_disk_small)
SWEEP(c03_lmcache_gds_store, sweep_store, lmcache_gds)
SWEEP(c03_sglang_store, sweep_store, sglang)
SWEEP(c03_nixl_store, sweep_store, nixl)
SWEEP(c03_nixl_overwrite, sweep_overwrite, nixl_direct)
SWEEP(c03_publish_by_link, sweep_store, linked)
SWEEP(c03_publish_of_a_nameless_file, sweep_store, unnamed)
SWEEP(c03_slots_vllm, sweep_store, slots_vllm)
SWEEP(c03_slots_kvbm, sweep_store, slots_kvbm)
SWEEP(c14_vllm_load, sweep_load, vllm_large)
SWEEP(c14_vllm_load_direct, sweep_load, vllm_direct)
SWEEP(c14_vllm_load_with_its_own_sums, sweep_load, vllm_crc)
SWEEP(c14_vllm_lookup, sweep_load, vllm_lookup)
SWEEP(c14_llmd_load, sweep_load, llmd)
SWEEP(c14_lmcache_fs_load, sweep_load, lmcache_fs)
SWEEP(c14_lmcache_gds_load, sweep_load, lmcache_gds)
SWEEP(c14_sglang_load, sweep_load, sglang)
SWEEP(c14_nixl_load, sweep_load, nixl)
SWEEP(c14_slots_check, sweep_load, slots_vllm)

/* Idle workers, and the memory that they use, go after some seconds. */
static void c24_no_memory_is_leaked(void **state)
{
    struct kvt_env *env = *state;
    if (KVT_IS_SANITIZED) /* what one keeps back would count as well; it finds leaks by itself */
        skip();
    note_base(env);
    kvt_wait_for(read_rss_kib(env->daemon) <= total.rss_kib + MAX_RSS_KIB);
    print_message("%u faults in all, the daemon grew by %ld KiB\n", total.made,
                  read_rss_kib(env->daemon) - total.rss_kib);
}

/* So that every name that a client uses is looked up in the source, in each run. */
static void turn_off_name_cache(void)
{
    const char *more = getenv("KVSEAL_TEST_OPTIONS");
    char options[512];
    snprintf(options, sizeof(options), "%s%sentry_timeout=0", more ? more : "",
             more && *more ? "," : "");
    setenv("KVSEAL_TEST_OPTIONS", options, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c03_vllm_store),
        kvt_test(c03_vllm_store_direct),
        kvt_test(c03_vllm_store_with_its_own_sums),
        kvt_test(c03_llmd_store),
        kvt_test(c03_lmcache_fs_store),
        kvt_test(c03_lmcache_disk_store),
        kvt_test(c03_lmcache_disk_overwrite),
        kvt_test(c03_lmcache_gds_store),
        kvt_test(c03_sglang_store),
        kvt_test(c03_nixl_store),
        kvt_test(c03_nixl_overwrite),
        kvt_test(c03_publish_by_link),
        kvt_test(c03_publish_of_a_nameless_file),
        kvt_test(c03_slots_vllm),
        kvt_test(c03_slots_kvbm),
        kvt_test(c14_vllm_load),
        kvt_test(c14_vllm_load_direct),
        kvt_test(c14_vllm_load_with_its_own_sums),
        kvt_test(c14_vllm_lookup),
        kvt_test(c14_llmd_load),
        kvt_test(c14_lmcache_fs_load),
        kvt_test(c14_lmcache_gds_load),
        kvt_test(c14_sglang_load),
        kvt_test(c14_nixl_load),
        kvt_test(c14_slots_check),
        kvt_test(c24_no_memory_is_leaked),
    };
    turn_off_name_cache();
    return kvt_main("faults", tests, COUNT_OF(tests), KVT_FAULTFS);
}
