// SPDX-License-Identifier: Apache-2.0
// Loading within `buffer_memory`: right bytes for all, memory and descriptors given back.
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB             ((size_t)1 << 20)
#define BLOCKS          48
#define BLOCK_SIZE      (4 * MIB)
#define HANDLES         200
#define THREADS         16
#define BUDGET_MIB      (64 + 32)
#define SLACK_MIB       64 /* the program itself, its threads, the allocator */
#define IDLE_MIB        40

/* What all threads share. */
struct load {
    char paths[BLOCKS][PATH_MAX];
    unsigned char *blocks[BLOCKS];
    int fds[HANDLES];
    pthread_barrier_t all_open;
    atomic_int error; /* -errno, or 1: wrong bytes or fewer */
    atomic_bool is_over;
    pid_t daemon;
    atomic_size_t most_mib;
};

struct loader {
    struct load *load;
    unsigned first;
};

static int check_handle(struct load *load, unsigned i, unsigned char *bytes)
{
    ssize_t n = pread(load->fds[i], bytes, BLOCK_SIZE, 0);
    if (n < 0)
        return -errno;
    return n == BLOCK_SIZE && memcmp(bytes, load->blocks[i % BLOCKS], BLOCK_SIZE) == 0 ? 0 : 1;
}

/* Opens its share of all handles; when everybody has, reads each of them twice. */
static void *run_loader(void *argument)
{
    struct loader *loader = argument;
    struct load *load = loader->load;
    unsigned char *bytes = aligned_alloc(4096, BLOCK_SIZE);
    int error = 0;
    for (unsigned i = loader->first; i < HANDLES; i += THREADS) {
        int flags = i % 2 ? O_RDONLY : O_RDONLY | O_DIRECT;
        load->fds[i] = open(load->paths[i % BLOCKS], flags | O_CLOEXEC);
        error = load->fds[i] < 0 && !error ? -errno : error;
    }
    pthread_barrier_wait(&load->all_open);
    for (int round = 0; round < 2; round++)
        for (unsigned i = loader->first; i < HANDLES && !error; i += THREADS)
            error = check_handle(load, i, bytes);
    if (error)
        atomic_store(&load->error, error);
    for (unsigned i = loader->first; i < HANDLES; i += THREADS)
        if (load->fds[i] >= 0)
            close(load->fds[i]);
    free(bytes);
    return NULL;
}

static void *watch_memory(void *argument)
{
    struct load *load = argument;
    while (!atomic_load(&load->is_over)) {
        size_t mib = kvt_resident_mib(load->daemon);
        if (mib > atomic_load(&load->most_mib))
            atomic_store(&load->most_mib, mib);
        usleep(2000);
    }
    return NULL;
}

static void run_load(struct load *load)
{
    struct loader loaders[THREADS];
    pthread_t threads[THREADS], watcher;
    pthread_barrier_init(&load->all_open, NULL, THREADS);
    pthread_create(&watcher, NULL, watch_memory, load);
    for (unsigned i = 0; i < THREADS; i++) {
        loaders[i] = (struct loader){load, i};
        pthread_create(&threads[i], NULL, run_loader, &loaders[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&load->is_over, true);
    pthread_join(watcher, NULL);
    pthread_barrier_destroy(&load->all_open);
}

static void store_blocks(struct kvt_env *env, struct load *load)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        snprintf(load->paths[i], sizeof(load->paths[i]), "%s", kvt_mnt(env, name));
        load->blocks[i] = kvt_block(BLOCK_SIZE, i);
        assert_int_equal(kvt_store(env, name, BLOCK_SIZE, i, KVT_DIRECT), 0);
    }
}

static void c11_many_handles_within_little_memory(void **state)
{
    struct kvt_env *env = *state;
    static struct load load;
    load = (struct load){0};
    kvt_start(env, "buffer_memory=64M,pinned_memory=32M");
    unsigned fds_before = kvt_count_fds(env->daemon);
    store_blocks(env, &load);
    load.daemon = env->daemon;
    run_load(&load);
    for (unsigned i = 0; i < BLOCKS; i++)
        free(load.blocks[i]);
    int error = atomic_load(&load.error);
    if (error)
        fail_msg("%s", error == 1 ? "wrong bytes, or fewer" : strerror(-error));
    kvt_wait_for(kvt_count_fds(env->daemon) <= fds_before);
    if (KVT_IS_SANITIZED)
        return; // has memory of its own
    print_message("at most %zu MiB resident\n", atomic_load(&load.most_mib));
    assert_in_range(atomic_load(&load.most_mib), 1, BUDGET_MIB + SLACK_MIB);
    kvt_wait_for(kvt_resident_mib(env->daemon) < IDLE_MIB);
}

/* Opens and stores, over and over, whatever becomes of them. */
static void c11_no_descriptor_is_left_behind(void **state)
{
    struct kvt_env *env = *state;
    /* Beside passthrough a change below may count as a mapped write that was not seen. */
    kvt_start(env, "buffer_memory=32M,passthrough=off");
    unsigned fds_before = kvt_count_fds(env->daemon);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(kvt_store(env, "a", 100001, i, i % 2 ? KVT_DIRECT : 0), 0);
        assert_int_equal(kvt_load(env, "a", 100001, i, i % 3 ? KVT_DIRECT : 0), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDWR | O_DIRECT);
        kvt_put(fd, 77, i, 1); // needs another descriptor below
        assert_int_equal(kvt_close(fd), 0);
        kvt_flip(kvt_src(env, "a"), i);
        kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDONLY));
        kvt_assert_errno(ENOENT, open(kvt_mnt(env, "a"), O_RDONLY));
    }
    kvt_wait_for(kvt_count_fds(env->daemon) <= fds_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c11_many_handles_within_little_memory),
        kvt_test(c11_no_descriptor_is_left_behind),
    };
    return kvt_main("load_memory", tests, COUNT_OF(tests), KVT_DISKS);
}
