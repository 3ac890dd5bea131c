// SPDX-License-Identifier: Apache-2.0
// What is lent for O_DIRECT loads is memory that the daemon uses again: who had it sees the block
// that he opened, and nobody else's, whatever others do (C11), and it stays within its budget.
#include "tests/mount/fixture_metrics.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* A daemon that lends its buffers to the kernel; skips where it says that it cannot. */
static void start(struct kvt_env *env, const char *options)
{
    kvt_not_with("buffers=off", "there is nothing to lend");
    kvt_start(env, options);
    assert_int_equal(kvt_store(env, "probe", MIB, 1, 0), 0);
    for (int i = 0; i < 1000 && !kvt_log_has(env, "O_DIRECT loads: "); i++) {
        assert_int_equal(kvt_load(env, "probe", MIB, 1, KVT_DIRECT), 0);
        usleep(5000); // until the handle that wrote it is released
    }
    if (!kvt_log_has(env, "O_DIRECT loads: by kernel passthrough")) {
        print_message("no passthrough here\n");
        skip();
    }
}

static double lent_loads(struct kvt_env *env)
{
    return kvt_metric(env, LOADS("passthrough", "verified"));
}

static int open_as(uid_t user, struct kvt_env *env, const char *name)
{
    int dir = kvt_open(kvt_mnt(env, ""), O_PATH | O_DIRECTORY); // root alone may come that far
    setfsuid(user);
    int fd = openat(dir, name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    setfsuid(0);
    close(dir);
    assert_true(fd >= 0);
    return fd;
}

/* Opens a block that the kernel reads by itself: once the handle that wrote it is released. */
static int open_lent_as(uid_t user, struct kvt_env *env, const char *name)
{
    for (int i = 0; i < 1000; i++) {
        double before = lent_loads(env);
        int fd = open_as(user, env, name);
        if (lent_loads(env) > before)
            return fd;
        close(fd);
        usleep(5000);
    }
    fail_msg("no load by passthrough");
    return -1;
}

/* A page of what is lent, in a pipe: no descriptor and no mapping tells of it. */
static int splice_page_of(int fd, size_t size)
{
    int ends[2];
    char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    struct iovec page = {map, 4096};
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(vmsplice(ends[1], &page, 1, 0), 4096);
    munmap(map, size);
    close(ends[1]);
    return ends[0];
}

static void check_page(int pipe, unsigned seed)
{
    unsigned char *block = kvt_block(4096, seed), *bytes = kvt_block(4096, seed + 1);
    assert_int_equal(read(pipe, bytes, 4096), 4096);
    assert_memory_equal(bytes, block, 4096);
    free(block);
    free(bytes);
    close(pipe);
}

/* Somebody else's loads, more at a time than there are free buffers. */
static void use_free_buffers(struct kvt_env *env, size_t size)
{
    int fds[6];
    assert_int_equal(kvt_store(env, "other", size, 2, 0), 0);
    usleep(100000); // what was closed is released
    for (unsigned i = 0; i < COUNT_OF(fds); i++)
        fds[i] = open_as(0, env, "other");
    for (unsigned i = 0; i < COUNT_OF(fds); i++)
        close(fds[i]);
}

static void c11_pages_of_a_mapping_show_nobody_elses_block(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (int is_joined = 0; is_joined < 2; is_joined++) {
        assert_int_equal(kvt_store(env, "a", 2 * MIB, 1, 0), 0);
        int first = open_lent_as(is_joined ? 0 : 1000, env, "a");
        int fd = is_joined ? open_as(1000, env, "a") : dup(first);
        int page = splice_page_of(fd, 2 * MIB);
        close(fd);
        close(first);
        use_free_buffers(env, 2 * MIB);
        check_page(page, 1);
    }
}

static void c24_what_clients_have_mapped_counts(void **state)
{
    struct kvt_env *env = *state;
    enum { COUNT = 16 };
    void *maps[COUNT];
    char name[16];
    start(env, "buffer_memory=64M");
    double before = lent_loads(env);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        assert_int_equal(kvt_store(env, name, 4 * MIB, i, 0), 0);
        usleep(100000); // released
        int fd = open_as(0, env, name);
        maps[i] = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(maps[i], MAP_FAILED);
        close(fd);
        if (i == COUNT / 2)
            sleep(3); // unused buffers go back to the system
    }
    double lent = lent_loads(env) - before;
    assert_true(lent >= 1 && lent <= 24 / 4); // three eighths
    double used = kvt_metric(env, "kvseal_buffer_memory_bytes");
    assert_true(used >= lent * (double)(4 * MIB) && used <= (double)(64 * MIB));
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned char *block = kvt_block(4 * MIB, i);
        assert_memory_equal(maps[i], block, 4 * MIB);
        munmap(maps[i], 4 * MIB);
        free(block);
    }
    close(open_lent_as(0, env, "b0")); // there is room again
}

/* The buffers' descriptors are not at the expense of what clients have open. */
static void c19_buffers_leave_descriptors_to_clients(void **state)
{
    struct kvt_env *env = *state;
    const struct rlimit few = {256, 256}; // of the daemon alone: nobody may raise it again
    enum { COUNT = 180 };
    char name[32];
    int fds[COUNT];
    start(env, "buffer_memory=256M");
    assert_int_equal(prlimit(env->daemon, RLIMIT_NOFILE, &few, NULL), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        assert_int_equal(kvt_store(env, name, 5000, i, 0), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        fds[i] = kvt_open(kvt_mnt(env, name), O_RDONLY | O_DIRECT);
    }
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    kvt_stop(env); // the next test has its own
}

/* Who writes waits for loads that are over, but not again and again for one that is not. */
static void c24_a_reader_that_stays_slows_no_writer(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
    int reader = open_lent_as(0, env, "a");
    uint64_t before = kvt_now_ms();
    for (unsigned i = 0; i < 400; i++)
        assert_int_equal(kvt_close(kvt_open(kvt_mnt(env, "a"), O_WRONLY)), 0);
    assert_true(kvt_now_ms() - before < 400 * 5); // ms that each would wait
    int writer = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(writer, 4096, 2, 0);
    unsigned char *block = kvt_block(4096, 2), *bytes = kvt_block(4096, 3);
    assert_int_equal(pread(reader, bytes, 4096, 0), 4096);
    assert_memory_equal(bytes, block, 4096);
    free(block);
    free(bytes);
    assert_int_equal(kvt_close(writer), 0);
    close(reader);
}

/* A block that was unlinked, or replaced, has no name by which to read what is written to it. */
static void c11_a_reader_sees_writes_to_what_has_no_name(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
        assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
        int reader = open_lent_as(0, env, "a");
        int writer = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        if (is_replaced)
            assert_int_equal(kvt_store(env, "a", MIB, 5, 0), 0);
        else
            assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
        kvt_put(writer, MIB + 4096, 2, 0);
        unsigned char *block = kvt_block(MIB + 4096, 2), *bytes = kvt_block(2 * MIB, 3);
        ssize_t n = pread(reader, bytes, 2 * MIB, 0);
        assert_true(n >= (ssize_t)MIB);
        assert_memory_equal(bytes, block, n);
        assert_int_equal(ftruncate(writer, 5), 0);
        assert_int_equal(pread(reader, bytes, MIB, 0), 5);
        free(block);
        free(bytes);
        close(writer);
        close(reader);
    }
    assert_int_equal(kvt_load(env, "a", MIB, 5, KVT_DIRECT), 0);
}

static void load_until_killed(struct kvt_env *env)
{
    unsigned char *bytes = kvt_block(2 * MIB, 0);
    for (unsigned i = 0;; i++) {
        int fd = open(kvt_mnt(env, i % 2 ? "a" : "b"), O_RDONLY | O_DIRECT | O_CLOEXEC);
        (void)!pread(fd, bytes, 2 * MIB, 0);
        (void)!mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        if (i % 8 != 0)
            close(fd);
    }
}

/* Whoever is killed while he opens, reads or has it mapped leaves nothing behind. */
static void c24_killed_clients_leave_nothing(void **state)
{
    struct kvt_env *env = *state;
    start(env, "buffer_memory=64M");
    assert_int_equal(kvt_store(env, "a", 2 * MIB, 1, 0), 0);
    assert_int_equal(kvt_store(env, "b", MIB + 5, 2, 0), 0);
    usleep(100000); // released
    unsigned fds = kvt_count_fds(env->daemon);
    for (unsigned i = 0; i < 60; i++) {
        pid_t children[3];
        for (unsigned j = 0; j < COUNT_OF(children); j++) {
            children[j] = fork();
            if (children[j] == 0)
                load_until_killed(env);
        }
        usleep(i * 500);
        for (unsigned j = 0; j < COUNT_OF(children); j++) {
            kill(children[j], SIGKILL);
            assert_int_equal(waitpid(children[j], NULL, 0), children[j]);
        }
    }
    kvt_wait_for(kvt_count_fds(env->daemon) <= fds);
    int held[5]; // had it left anything, there would be no room to lend these
    for (unsigned i = 0; i < COUNT_OF(held); i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%u", i);
        assert_int_equal(kvt_store(env, name, 2 * MIB, 10 + i, 0), 0);
        held[i] = open_lent_as(0, env, name);
    }
    for (unsigned i = 0; i < COUNT_OF(held); i++)
        close(held[i]);
}

/* ---- all at once ---- */

#define SEEDS 24
#define NAMES 3

struct storm {
    struct kvt_env *env;
    char paths[NAMES][PATH_MAX];
    atomic_bool is_over;
    atomic_uint loads, stores, wrong;
    unsigned char *blocks[SEEDS];
};

static size_t size_of(unsigned seed)
{
    static const size_t sizes[] = {1, 4096, 65537, MIB - 1, MIB, MIB + 4097, 2 * MIB, 3 * MIB + 5};
    return sizes[seed % COUNT_OF(sizes)];
}

static bool is_one_of_them(const struct storm *storm, const unsigned char *bytes, size_t size)
{
    for (unsigned seed = 0; seed < SEEDS; seed++)
        if (size_of(seed) == size && memcmp(bytes, storm->blocks[seed], size) == 0)
            return true;
    return false;
}

/* What is published is never changed: the same through the handle and its mapping, which stays for
 * a while, as long as it is there. */
static void load_once(struct storm *storm, const char *path, unsigned char *bytes, bool stays)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT)
            atomic_fetch_add(&storm->wrong, 1);
        return;
    }
    ssize_t n = pread(fd, bytes, 4 * MIB, 0);
    if (n <= 0 || !is_one_of_them(storm, bytes, (size_t)n)) {
        atomic_fetch_add(&storm->wrong, 1);
    } else if (stays) {
        void *map = mmap(NULL, (size_t)n, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        fd = -1;
        usleep(30000);
        if (map == MAP_FAILED || memcmp(map, bytes, (size_t)n) != 0)
            atomic_fetch_add(&storm->wrong, 1);
        munmap(map, (size_t)n);
    }
    if (fd >= 0)
        close(fd);
    atomic_fetch_add(&storm->loads, 1);
}

static void *load_on(void *argument)
{
    struct storm *storm = argument;
    unsigned char *bytes = kvt_block(4 * MIB, 0);
    for (unsigned i = 0; !atomic_load(&storm->is_over); i++)
        load_once(storm, storm->paths[i % NAMES], bytes, i % 5 == 0);
    free(bytes);
    return NULL;
}

/* New blocks by rename over the old ones, which are opened, and unlinked at times. */
static void *store_on(void *argument)
{
    struct storm *storm = argument;
    char temp[PATH_MAX + 32];
    unsigned state = (unsigned)gettid();
    snprintf(temp, sizeof(temp), "%s.%u", storm->paths[0], state);
    while (!atomic_load(&storm->is_over)) {
        unsigned seed = (unsigned)rand_r(&state) % SEEDS;
        const char *path = storm->paths[rand_r(&state) % NAMES];
        int flags = KVT_CREATE | (seed % 3 == 0 ? O_DIRECT : 0);
        if (flags & O_DIRECT && size_of(seed) % 4096 != 0)
            flags &= ~O_DIRECT;
        if (kvt_write_file(temp, flags, size_of(seed), seed, 0) != 0 || rename(temp, path) != 0)
            atomic_fetch_add(&storm->wrong, 1);
        if (seed % 7 == 0)
            unlink(path);
        atomic_fetch_add(&storm->stores, 1);
    }
    return NULL;
}

static void c11_readers_have_the_block_that_they_opened(void **state)
{
    struct kvt_env *env = *state;
    struct storm storm = {.env = env};
    pthread_t threads[6];
    start(env, "buffer_memory=64M");
    for (unsigned i = 0; i < NAMES; i++)
        snprintf(storm.paths[i], PATH_MAX, "%s%u", kvt_mnt(env, "a"), i);
    for (unsigned seed = 0; seed < SEEDS; seed++)
        storm.blocks[seed] = kvt_block(size_of(seed), seed);
    for (unsigned i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? store_on : load_on, &storm), 0);
    sleep(4);
    atomic_store(&storm.is_over, true);
    for (unsigned i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    print_message("%u loads, %.0f of them lent, %u stores\n", atomic_load(&storm.loads),
                  lent_loads(env), atomic_load(&storm.stores));
    assert_int_equal(atomic_load(&storm.wrong), 0);
    assert_true(atomic_load(&storm.loads) > 20 && atomic_load(&storm.stores) > 20);
    for (unsigned seed = 0; seed < SEEDS; seed++)
        free(storm.blocks[seed]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c11_pages_of_a_mapping_show_nobody_elses_block),
        kvt_test(c24_what_clients_have_mapped_counts),
        kvt_test(c19_buffers_leave_descriptors_to_clients),
        kvt_test(c24_a_reader_that_stays_slows_no_writer),
        kvt_test(c11_a_reader_sees_writes_to_what_has_no_name),
        kvt_test(c24_killed_clients_leave_nothing),
        kvt_test(c11_readers_have_the_block_that_they_opened),
    };
    return kvt_main("load_lent_shared", tests, COUNT_OF(tests), KVT_DISKS);
}
