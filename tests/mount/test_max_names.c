// SPDX-License-Identifier: Apache-2.0
// `max_names`: the kernel forgets what was looked up longest ago, the daemon's memory stays, and
// nobody who works on the mount notices.
#include "tests/mount/fixture_metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define NAMES      60000
#define WARM_NAMES 4000
#define NAME_LEN   240 /* long ones, so that they weigh */
#define MIB        ((size_t)1 << 20)
/* What NAMES would cost is 28 MiB; a worker's memory alone is 4. */
#define GROWTH_MIB 14
#define CLIENTS    4
#define BLOCK_SIZE ((size_t)8192)
#define LIMIT      2000
#define BY_NODE    "max_names=2000,threads=4"
#define BY_NAME    "max_names=2000,threads=4,invalidate=names"

static void name_of(char *name, const char *prefix, unsigned number)
{
    int len = snprintf(name, NAME_LEN + 1, "%s%08u-", prefix, number);
    memset(name + len, 'x', (size_t)(NAME_LEN - len));
    name[NAME_LEN] = 0;
}

static void make_names(struct kvt_env *env, const char *prefix, unsigned count)
{
    char name[NAME_LEN + 1];
    int dir_fd = kvt_open(kvt_src(env, "."), O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < count; i++) {
        name_of(name, prefix, i);
        assert_int_equal(mknodat(dir_fd, name, S_IFREG | 0644, 0), 0);
    }
    close(dir_fd);
}

static void look_up(struct kvt_env *env, const char *prefix, unsigned count)
{
    char name[NAME_LEN + 1];
    struct stat st;
    int dir_fd = kvt_open(kvt_mnt(env, "."), O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < count; i++) {
        name_of(name, prefix, i);
        if (fstatat(dir_fd, name, &st, 0) != 0)
            fail_msg("name %u of %u: %s", i, count, strerror(errno));
    }
    close(dir_fd);
}

static size_t resident(pid_t pid)
{
    char path[64];
    unsigned long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *statm = fopen(path, "re");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%*u %lu", &pages), 1);
    fclose(statm);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

struct client {
    struct kvt_env *env;
    char dir[PATH_MAX];
    unsigned number;
    atomic_bool *is_over;
    unsigned rounds;
    const char *what; /* failed */
    int error;
};

#define MUST(client, expression)                                                                   \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            (client)->what = #expression;                                                          \
            (client)->error = errno;                                                               \
            return NULL;                                                                           \
        }                                                                                          \
    } while (0)

/* Stores, renames, links, loads and removes, as many clients in one directory do. */
static void *work(void *argument)
{
    struct client *client = argument;
    char fresh[PATH_MAX + 64], block[PATH_MAX + 64], other[PATH_MAX + 64];

    for (; !atomic_load(client->is_over); client->rounds++) {
        snprintf(fresh, sizeof(fresh), "%s/%u-%u.tmp", client->dir, client->number, client->rounds);
        snprintf(block, sizeof(block), "%s/%u-%u", client->dir, client->number, client->rounds);
        snprintf(other, sizeof(other), "%s/%u-%u.link", client->dir, client->number,
                 client->rounds);
        unsigned seed = client->number * 1000 + client->rounds;
        MUST(client, kvt_write_file(fresh, KVT_CREATE, BLOCK_SIZE, seed, 0) == 0);
        MUST(client, rename(fresh, block) == 0);
        MUST(client, access(fresh, F_OK) != 0 && errno == ENOENT);
        MUST(client, link(block, other) == 0);
        MUST(client, kvt_load_path(other, BLOCK_SIZE, seed, 0) == 0);
        MUST(client, unlink(block) == 0);
        MUST(client, access(block, F_OK) != 0 && errno == ENOENT);
        MUST(client, access(other, F_OK) == 0);
        MUST(client, unlink(other) == 0);
    }
    return NULL;
}

/* Who works beside NAMES look-ups sees nothing of it, and the table comes back to its limit.
 * Returns by how many bytes the daemon grew. */
static size_t crowd(struct kvt_env *env, const char *options)
{
    struct client clients[CLIENTS] = {0};
    pthread_t threads[CLIENTS];
    atomic_bool is_over = false;

    kvt_start(env, options);
    make_names(env, "w", WARM_NAMES);
    make_names(env, "n", NAMES);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].env = env;
        clients[i].number = i;
        clients[i].is_over = &is_over;
        snprintf(clients[i].dir, sizeof(clients[i].dir), "%s", kvt_mnt(env, "."));
        assert_int_equal(pthread_create(&threads[i], NULL, work, &clients[i]), 0);
    }
    look_up(env, "w", WARM_NAMES);
    size_t before = resident(env->daemon);
    look_up(env, "n", NAMES);
    size_t after = resident(env->daemon);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        if (clients[i].what)
            fail_msg("client %u, round %u: %s: %s", i, clients[i].rounds, clients[i].what,
                     strerror(clients[i].error));
        assert_in_range(clients[i].rounds, 1, UINT_MAX);
    }
    print_message("%s: %u names: from %zu to %zu KiB\n", options, NAMES, before / 1024,
                  after / 1024);
    kvt_wait_for(kvt_metric(env, "kvseal_known_names") <= LIMIT);
    look_up(env, "n", WARM_NAMES);
    return after > before ? after - before : 0;
}

static void the_table_is_bounded(void **state)
{
    kvt_only_on((struct kvt_env *)*state, KVT_TMPFS);
    size_t growth = crowd(*state, BY_NODE);
    if (!KVT_IS_SANITIZED) /* those keep back what was freed */
        assert_in_range(growth, 0, GROWTH_MIB * MIB);
}

static void the_table_is_bounded_on_older_kernels(void **state)
{
    kvt_only_on((struct kvt_env *)*state, KVT_TMPFS);
    crowd(*state, BY_NAME); /* how many there are at times depends on how busy the directory is */
}

static uint64_t cpu_ticks(pid_t pid)
{
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *stat = fopen(path, "re");
    assert_non_null(stat);
    assert_int_equal(fscanf(stat,
                            "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                            &user, &system),
                     2);
    fclose(stat);
    return user + system;
}

#define HELD 300

/* A client's working directory, and files that it holds by O_PATH, cannot be forgotten: they stay
 * right, and the daemon does not try all the time. */
static void what_is_in_use_stays(struct kvt_env *env, const char *options)
{
    char name[32], before[PATH_MAX], after[PATH_MAX];
    int fds[HELD];
    struct stat st;

    kvt_start(env, options);
    assert_int_equal(mkdir(kvt_mnt(env, "cwd"), 0755), 0);
    int home_fd = kvt_open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(kvt_mnt(env, "cwd")), 0);
    assert_non_null(getcwd(before, sizeof(before)));
    for (unsigned i = 0; i < HELD; i++) {
        snprintf(name, sizeof(name), "held%u", i);
        assert_int_equal(kvt_write_file(name, KVT_CREATE, BLOCK_SIZE, i, 0), 0);
        fds[i] = open(name, O_PATH | O_CLOEXEC);
        assert_true(fds[i] >= 0);
    }
    uint64_t ticks = cpu_ticks(env->daemon), start = kvt_now_ms();
    kvt_wait_for(kvt_now_ms() - start > 3000); /* a span to measure, not a hope */
    ticks = cpu_ticks(env->daemon) - ticks;
    assert_in_range(ticks, 0, 3 * (uint64_t)sysconf(_SC_CLK_TCK) / 5);

    assert_non_null(getcwd(after, sizeof(after)));
    assert_string_equal(before, after);
    for (unsigned i = 0; i < HELD; i++) {
        snprintf(name, sizeof(name), "held%u", i);
        assert_int_equal(fstat(fds[i], &st), 0);
        assert_int_equal(st.st_nlink, 1);
        assert_int_equal(kvt_load_path(name, BLOCK_SIZE, i, 0), 0);
        close(fds[i]);
    }
    assert_int_equal(fchdir(home_fd), 0);
    close(home_fd);
}

static void a_working_directory_stays(void **state)
{
    what_is_in_use_stays(*state, "max_names=100");
}

static void a_working_directory_stays_on_older_kernels(void **state)
{
    what_is_in_use_stays(*state, "max_names=100,invalidate=names");
}

/* The messages of older kernels wait for the lock that a look-up holds while it hangs below. The
 * others in the directory must not have to wait for that. */
static void c24_a_look_up_that_hangs_is_not_joined(void **state)
{
    struct kvt_env *env = *state;
    char name[32];
    struct stat st;

    kvt_only_on(env, KVT_FAULTFS);
    kvt_start(env, "max_names=100,invalidate=names");
    for (unsigned i = 0; i < 400; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(mknod(kvt_under(env, name), S_IFREG | 0644, 0), 0);
    }
    int dir_fd = kvt_open(kvt_mnt(env, "."), O_RDONLY | O_DIRECTORY);
    kvt_fault(env, "lookup 1 hang\n");
    pid_t hanging = fork();
    if (hanging == 0)
        _exit(fstatat(dir_fd, "absent", &st, 0) == 0);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    uint64_t start = kvt_now_ms();
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "f%u", i % 400);
        assert_int_equal(fstatat(dir_fd, name, &st, 0), 0);
    }
    assert_in_range(kvt_now_ms() - start, 0, 20000);
    int status;
    assert_int_equal(waitpid(hanging, &status, WNOHANG), 0); /* it still hangs */
    kvt_fault(env, "release\n");
    assert_int_equal(waitpid(hanging, &status, 0), hanging);
    assert_int_equal(status, 0);
    close(dir_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(the_table_is_bounded),
        kvt_test(the_table_is_bounded_on_older_kernels),
        kvt_test(a_working_directory_stays),
        kvt_test(a_working_directory_stays_on_older_kernels),
        kvt_test(c24_a_look_up_that_hangs_is_not_joined),
    };
    return kvt_main("max_names", tests, sizeof(tests) / sizeof(tests[0]), KVT_TMPFS | KVT_FAULTFS);
}
