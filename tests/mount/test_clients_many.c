// SPDX-License-Identifier: Apache-2.0
// C24: 400 clients that store and load at once get done what 16 do in about the same time, within
// the memory that the options allow.
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB             ((size_t)1 << 20)
#define MOST_CLIENTS    400
#define ROUNDS          (KVT_IS_SANITIZED ? 800 : 1600) /* of all clients together */
#define SHARED          64                              /* blocks that all load */
#define LOAD_SIZE       MIB
#define STORE_SIZE      (MIB / 4)
#define LEAST_SHARE     3  /* of the throughput of few clients: a third, on a machine with others */
#define SLACK_MIB       64 /* the program itself, its threads, the allocator */

struct crowd {
    struct kvt_env *env;
    unsigned char *shared[SHARED];
    unsigned char *own; /* what everybody stores */
    unsigned count;
    atomic_uint next_round;
    atomic_int error; /* -errno, or 1: wrong bytes, or fewer */
    atomic_bool is_over;
    atomic_size_t most_mib;
};

struct client {
    struct crowd *crowd;
    unsigned number;
};

static const char *path_in(const struct crowd *crowd, char path[PATH_MAX], const char *name,
                           unsigned number)
{
    snprintf(path, PATH_MAX, "%s/%s/%s%u", crowd->env->mnt, crowd->env->dir, name, number);
    return path;
}

static int store(const struct crowd *crowd, unsigned client)
{
    char temporary[PATH_MAX], path[PATH_MAX];
    path_in(crowd, temporary, "temporary", client);
    path_in(crowd, path, "own", client);
    int fd = open(temporary, KVT_CREATE | O_CLOEXEC, 0644);
    int error = fd < 0 ? -errno : kvt_write(fd, crowd->own, STORE_SIZE, 0, 0);
    if (fd >= 0 && kvt_close(fd) && !error)
        error = -EIO;
    return error ? error : rename(temporary, path) == 0 ? 0 : -errno;
}

static int load(const struct crowd *crowd, unsigned block, int flags, unsigned char *bytes)
{
    char path[PATH_MAX];
    int fd = open(path_in(crowd, path, "shared", block), O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0)
        return -errno;
    ssize_t length = read(fd, bytes, LOAD_SIZE);
    int error = length < 0 ? -errno : 0;
    close(fd);
    bool is_good = length == LOAD_SIZE && memcmp(bytes, crowd->shared[block], LOAD_SIZE) == 0;
    return error ? error : is_good ? 0 : 1;
}

static void *run_client(void *argument)
{
    struct client *client = argument;
    struct crowd *crowd = client->crowd;
    unsigned char *bytes = aligned_alloc(4096, LOAD_SIZE);
    int error = 0;
    for (;;) {
        unsigned round = atomic_fetch_add(&crowd->next_round, 1);
        if (error || round >= ROUNDS)
            break;
        error = store(crowd, client->number);
        if (!error)
            error = load(crowd, round % SHARED, round / SHARED % 2 ? O_DIRECT : 0, bytes);
    }
    if (error)
        atomic_store(&crowd->error, error);
    free(bytes);
    return NULL;
}

static void *watch_memory(void *argument)
{
    struct crowd *crowd = argument;
    while (!atomic_load(&crowd->is_over)) {
        size_t mib = kvt_resident_mib(crowd->env->daemon);
        if (mib > atomic_load(&crowd->most_mib))
            atomic_store(&crowd->most_mib, mib);
        usleep(5000);
    }
    return NULL;
}

static void fill(struct crowd *crowd)
{
    char name[32];
    for (unsigned i = 0; i < SHARED; i++) {
        snprintf(name, sizeof(name), "shared%u", i);
        assert_int_equal(kvt_store(crowd->env, name, LOAD_SIZE, i, 0), 0);
        crowd->shared[i] = kvt_block(LOAD_SIZE, i);
    }
    crowd->own = kvt_block(STORE_SIZE, SHARED);
}

static void empty(struct crowd *crowd)
{
    for (unsigned i = 0; i < SHARED; i++)
        free(crowd->shared[i]);
    free(crowd->own);
}

/* All rounds by so many clients: how long they take. */
static uint64_t run_clients(struct crowd *crowd, unsigned count)
{
    static struct client clients[MOST_CLIENTS];
    static pthread_t threads[MOST_CLIENTS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    atomic_store(&crowd->next_round, 0);
    uint64_t start = kvt_now_ms();
    for (unsigned i = 0; i < count; i++) {
        clients[i] = (struct client){crowd, i};
        assert_int_equal(pthread_create(&threads[i], &attributes, run_client, &clients[i]), 0);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    uint64_t took = kvt_now_ms() - start;
    pthread_attr_destroy(&attributes);
    if (atomic_load(&crowd->error))
        fail_msg("%u clients: %s", count,
                 crowd->error == 1 ? "wrong bytes, or fewer" : strerror(-crowd->error));
    print_message("%u clients: %u MiB/s, at most %zu MiB resident\n", count,
                  (unsigned)(ROUNDS * (LOAD_SIZE + STORE_SIZE) / MIB * 1000 / (took + 1)),
                  atomic_load(&crowd->most_mib));
    return took;
}

/* Few, then many, of whom some have had no chance to be first. */
static void check_crowd(struct kvt_env *env, const char *options, size_t most_mib)
{
    static struct crowd crowd;
    pthread_t watcher;
    crowd = (struct crowd){.env = env};
    kvt_start(env, options);
    fill(&crowd);
    assert_int_equal(pthread_create(&watcher, NULL, watch_memory, &crowd), 0);
    uint64_t few = run_clients(&crowd, 16);
    uint64_t many = run_clients(&crowd, MOST_CLIENTS);
    atomic_store(&crowd.is_over, true);
    pthread_join(watcher, NULL);
    for (unsigned i = 0; i < MOST_CLIENTS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "own%u", i);
        if (access(kvt_mnt(env, name), F_OK) == 0)
            kvt_assert_sealed_block(env, name, STORE_SIZE, SHARED);
    }
    empty(&crowd);
    if (many > LEAST_SHARE * few)
        fail_msg("16 clients took %u ms, %u took %u ms", (unsigned)few, MOST_CLIENTS,
                 (unsigned)many);
    if (!KVT_IS_SANITIZED) /* those have memory of their own */
        assert_in_range(atomic_load(&crowd.most_mib), 1, most_mib + SLACK_MIB);
}

static void c24_400_clients_are_about_as_fast_as_16(void **state)
{
    check_crowd(*state, NULL, 1024 + 256);
}

static void c24_400_clients_within_little_memory(void **state)
{
    check_crowd(*state, "buffer_memory=64M,pinned_memory=32M", 64 + 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c24_400_clients_are_about_as_fast_as_16),
        kvt_test(c24_400_clients_within_little_memory),
    };
    return kvt_main("clients_many", tests, COUNT_OF(tests), KVT_EXT4);
}
