// SPDX-License-Identifier: Apache-2.0
// Scrubbing in the daemon (scrub_within) and beside a mount (kvseal scrub): corrupt blocks go, and
// whatever clients do meanwhile, no good one does.
//
// The load runs for KVT_SCRUB_SECONDS (20): rounds that take days in life take less than a second
// here.
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "tests/clients/client.h"

#define SIZE ((size_t)300000)

/* ---- corrupt blocks ---- */

static void store_corrupt(struct kvt_env *env, const char *name)
{
    struct stat st;

    assert_int_equal(kvt_store(env, name, SIZE, 1, 0), 0);
    assert_int_equal(stat(kvt_mnt(env, name), &st), 0); /* the kernel has it in its caches */
    kvt_flip(kvt_src(env, name), 70000);
}

static void c13_a_corrupt_block_goes_unasked(void **state)
{
    struct kvt_env *env = *state;

    assert_int_equal(kvt_store(env, "good", SIZE, 2, 0), 0);
    kvt_start(env, "scrub_within=2,entry_timeout=3600,attr_timeout=3600");
    assert_int_equal(mkdir(kvt_mnt(env, "d"), 0755), 0);
    store_corrupt(env, "d/a");
    kvt_wait_for(access(kvt_mnt(env, "d/a"), F_OK) < 0 && errno == ENOENT);
    kvt_wait_for(kvt_is_gone(kvt_src(env, "d/a")));
    assert_true(kvt_log_contains(env, "corrupt block"));
    assert_int_equal(kvt_store(env, "d/a", SIZE, 3, 0), 0);
    assert_int_equal(kvt_load(env, "d/a", SIZE, 3, 0), 0);
    assert_int_equal(kvt_load(env, "good", SIZE, 2, 0), 0);
}

static void c13_all_names_go_and_the_block_into_quarantine(void **state)
{
    struct kvt_env *env = *state;
    char quarantine[PATH_MAX];

    snprintf(quarantine, sizeof(quarantine), "%s/.kvseal/quarantine", env->source);
    kvt_start(env, "on_corrupt=keep");
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    kvt_flip(kvt_src(env, "a"), 5);
    kvt_start(env, "on_corrupt=quarantine,scrub_within=2");
    kvt_wait_for(kvt_is_gone(kvt_src(env, "a")) && kvt_is_gone(kvt_src(env, "b")));
    assert_true(kvt_count_names(quarantine) >= 2);
    kvt_stop(env);
    assert_int_equal(kvt_run(NULL, kvt_program("../../core/cli/kvseal"), "quarantine", "purge",
                             env->source, NULL),
                     0);
    assert_int_equal(kvt_count_names(quarantine), 0);
}

static void c13_kept_where_it_is_to_be_kept(void **state)
{
    struct kvt_env *env = *state;

    kvt_start(env, "on_corrupt=keep,scrub_within=1");
    store_corrupt(env, "a");
    assert_true(kvt_log_contains(env, "kept"));
    assert_false(kvt_is_gone(kvt_src(env, "a")));
}

static void c13_a_read_only_mount_tells_and_takes_nothing(void **state)
{
    struct kvt_env *env = *state;
    char cursor[PATH_MAX];

    snprintf(cursor, sizeof(cursor), "%s/.kvseal/scrub-1-of-1", env->source);
    unlink(cursor);
    kvt_start(env, NULL);
    store_corrupt(env, "a");
    kvt_start(env, "ro,scrub_within=1");
    assert_true(kvt_log_contains(env, "kept (mounted read-only)"));
    assert_false(kvt_is_gone(kvt_src(env, "a")));
    assert_true(kvt_is_gone(cursor));
}

/* ---- the end, and others ---- */

static void c23_a_slow_scrub_does_not_hold_up_the_end(void **state)
{
    struct kvt_env *env = *state;
    uint64_t began = 0;

    kvt_start(env, "scrub_within=3650d");
    for (unsigned i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "a%u", i);
        assert_int_equal(kvt_store(env, name, SIZE, i, 0), 0);
    }
    began = kvt_now_ms();
    kvt_stop(env);
    assert_true(kvt_now_ms() - began < 1900); /* LAST_READ_MS would be 2000 */
}

static void only_one_scrubs_a_shard(void **state)
{
    struct kvt_env *env = *state;
    char output[PATH_MAX], cursor[PATH_MAX];

    snprintf(output, sizeof(output), "%s/output", env->work);
    snprintf(cursor, sizeof(cursor), "%s/.kvseal/scrub-1-of-1", env->source);
    unlink(output);
    unlink(cursor);
    kvt_start(env, "scrub_within=3650d");
    kvt_wait_for(access(cursor, F_OK) == 0);
    assert_int_equal(
        kvt_run(output, kvt_program("../../core/cli/kvseal"), "scrub", env->source, NULL), 2);
    assert_int_equal(kvt_run(output, kvt_program("../../core/cli/kvseal"), "scrub", env->mnt, NULL),
                     2);
    kvt_stop(env);
    assert_int_equal(
        kvt_run(output, kvt_program("../../core/cli/kvseal"), "scrub", env->source, NULL), 0);
}

/* ---- load ---- */

#define CLIENTS 4
#define KEYS    12

static atomic_bool is_over;
static atomic_uint steps;

struct client {
    pthread_t thread;
    const char *root;
    unsigned number;
    unsigned random;
    bool is_beside; /* not through the mount: then the client sets the records itself */
    int error;      /* the first that was wrong */
    char what[128];
};

static unsigned draw(struct client *client, unsigned below)
{
    client->random = client->random * 1664525u + 1013904223u;
    return (client->random >> 8) % below;
}

/* The ways to store and load that keep their bytes alone, or remove what is there before. */
static const struct way {
    const char *name, *suffix;
    client_sequence *store, *load;
    bool is_in_place, is_fanned;
} ways[] = {
    {"vllm", ".bin", client_vllm_store, client_vllm_load, .is_fanned = true},
    {"llmd", ".bin", client_llmd_store, client_llmd_load, .is_fanned = true},
    {"link", ".bin", client_link_store, client_vllm_load, .is_fanned = true},
    {"nixl", ".bin", client_nixl_store, client_nixl_load, .is_in_place = true, .is_fanned = true},
    {"sglang", ".bin", client_sglang_store, client_sglang_load, .is_fanned = false},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* What a key's block is now; the client is alone with its keys. */
struct slot {
    size_t size; /* 0: not stored */
    uint64_t seed;
};

static int expect(struct client *client, const struct way *way, const char *what, const char *key,
                  int result)
{
    if (result != 0 && client->error == 0) {
        client->error = result;
        snprintf(client->what, sizeof(client->what), "%s: %s of %s: %s", way->name, what, key,
                 strerror(-result));
    }
    return result;
}

static void path_of(char path[PATH_MAX], const struct way *way, const char *root, const char *key)
{
    int r = way->is_fanned ? client_fanned_path(path, root, key, way->suffix)
                           : client_flat_path(path, root, key, way->suffix);
    assert_int_equal(r, 0);
}

/* Stores, loads, renames there and back, or removes one of the client's own blocks. */
static void step(struct client *client, const struct way *way, const char *key, struct slot *slot)
{
    unsigned flags = client->is_beside ? CLIENT_CRC : draw(client, 2) ? CLIENT_DIRECT : 0;
    char path[PATH_MAX], moved[PATH_MAX + 8];

    path_of(path, way, client->root, key);
    if (slot->size == 0 || (way->is_in_place && draw(client, 3) == 0)) {
        size_t size = slot->size != 0 ? slot->size : 4096 * (1 + (size_t)draw(client, 100));
        uint64_t seed = slot->seed + 1;
        if (expect(client, way, "store", key, way->store(client->root, key, size, seed, flags)) ==
            0)
            *slot = (struct slot){size, seed};
        return;
    }
    expect(client, way, "load", key, way->load(client->root, key, slot->size, slot->seed, flags));
    switch (draw(client, 4)) {
    case 0:
        expect(client, way, "unlink", key, unlink(path) < 0 ? -errno : 0);
        slot->size = 0;
        break;
    case 1:
        snprintf(moved, sizeof(moved), "%s.moved", path);
        expect(client, way, "rename", key, rename(path, moved) < 0 ? -errno : 0);
        expect(client, way, "rename back", key, rename(moved, path) < 0 ? -errno : 0);
        break;
    default:
        break;
    }
}

static void *run_client(void *argument)
{
    struct client *client = argument;
    struct slot slots[WAYS][KEYS] = {0};

    while (!atomic_load(&is_over) && client->error == 0) {
        /* Beside the mount only who keeps records does so without false alarms of his own. */
        unsigned way = client->is_beside ? 0 : draw(client, WAYS);
        unsigned number = draw(client, KEYS);
        char key[32];

        snprintf(key, sizeof(key), "%02u%02u%u%s", number, client->number, way, ways[way].name);
        step(client, &ways[way], key, &slots[way][number]);
        atomic_fetch_add(&steps, 1);
    }
    return NULL;
}

static pid_t start_tool(struct kvt_env *env, const char *shard, const char *output)
{
    pid_t child = fork();

    if (child == 0) {
        int fd = open(output, O_CREAT | O_APPEND | O_WRONLY, 0600);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execl(kvt_program("../../core/cli/kvseal"), "kvseal", "scrub", "--continuous", "--within",
              "1s", "--min-age", "0", "--on-corrupt", "remove", "--shard", shard, env->source,
              NULL);
        _exit(127);
    }
    return child;
}

static void end_tool(pid_t child)
{
    int status = 0;

    assert_int_equal(kill(child, SIGTERM), 0);
    kvt_wait_for(waitpid(child, &status, WNOHANG) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0); /* no corrupt block, and nothing that failed */
}

static void report_rounds(const char *output)
{
    char command[2 * PATH_MAX + 64];

    snprintf(command, sizeof(command), "tail -n 1 %s; grep -c '^scrubbed' %s", output, output);
    assert_true(system(command) >= 0);
}

static void c15_no_false_alarm_in_a_day_of_load(void **state)
{
    struct kvt_env *env = *state;
    const char *seconds = getenv("KVT_SCRUB_SECONDS");
    struct client clients[CLIENTS + 1] = {0};
    char output[PATH_MAX], roots[2][PATH_MAX];
    pid_t tools[2];
    uint64_t end = 0;

    snprintf(output, sizeof(output), "%s/tool", env->work);
    unlink(output);
    snprintf(roots[0], PATH_MAX, "%s", kvt_mnt(env, "through"));
    snprintf(roots[1], PATH_MAX, "%s", kvt_src(env, "beside"));
    kvt_start(env, "scrub_within=1");
    assert_int_equal(mkdir(roots[0], 0755), 0);
    assert_int_equal(mkdir(roots[1], 0755), 0);
    tools[0] = start_tool(env, "1/2", output);
    tools[1] = start_tool(env, "2/2", output);
    atomic_store(&is_over, false);
    atomic_store(&steps, 0);
    for (unsigned i = 0; i <= CLIENTS; i++) {
        clients[i] = (struct client){
            .root = roots[i == CLIENTS], .number = i, .random = i, .is_beside = i == CLIENTS};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    end = kvt_now_ms() + 1000 * (seconds != NULL ? strtoul(seconds, NULL, 10) : 20);
    while (kvt_now_ms() < end)
        usleep(50000);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i <= CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
    for (unsigned i = 0; i <= CLIENTS; i++) {
        if (clients[i].error != 0)
            print_message("client %u: %s\n", i, clients[i].what);
    }
    end_tool(tools[0]);
    end_tool(tools[1]);
    print_message("%u steps; the tool:\n", atomic_load(&steps));
    report_rounds(output);
    for (unsigned i = 0; i <= CLIENTS; i++)
        assert_int_equal(clients[i].error, 0);
    assert_false(kvt_log_has(env, "corrupt"));
    assert_false(kvt_log_has(env, "scrub:"));

    /* And it would have been seen. */
    store_corrupt(env, "control");
    kvt_wait_for(kvt_is_gone(kvt_src(env, "control")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c13_a_corrupt_block_goes_unasked),
        kvt_test(c13_all_names_go_and_the_block_into_quarantine),
        kvt_test(c13_kept_where_it_is_to_be_kept),
        kvt_test(c13_a_read_only_mount_tells_and_takes_nothing),
        kvt_test(c23_a_slow_scrub_does_not_hold_up_the_end),
        kvt_test(only_one_scrubs_a_shard),
        kvt_test(c15_no_false_alarm_in_a_day_of_load),
    };

    return kvt_main("scrubber", tests, sizeof(tests) / sizeof(tests[0]), KVT_TMPFS | KVT_EXT4);
}
