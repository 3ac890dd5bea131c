// SPDX-License-Identifier: Apache-2.0
// O_DIRECT loads by kernel passthrough over verified buffers (C11): the bytes that were verified,
// and what is written through the mount while a reader stays.
#include "tests/mount/fixture_metrics.h"

#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define MIB ((size_t)1 << 20)

/* A daemon that lends its buffers to the kernel; skips where it says that it cannot. */
static void start(struct kvt_env *env, const char *options)
{
    kvt_not_with("buffers=off", "there is nothing to lend");
    kvt_start(env, options);
    if (kvt_log_has(env, "opens blocks for both")) { // in an earlier test
        kvt_stop(env);
        kvt_start(env, options);
    }
    assert_int_equal(kvt_store(env, "probe", MIB, 1, 0), 0);
    for (int i = 0; i < 1000 && !kvt_log_has(env, "O_DIRECT loads: "); i++) {
        assert_int_equal(kvt_load(env, "probe", MIB, 1, KVT_DIRECT), 0);
        usleep(5000); // until the handle that wrote it is released
    }
    assert_true(kvt_log_has(env, "O_DIRECT loads: "));
    if (!kvt_log_has(env, "O_DIRECT loads: by kernel passthrough")) {
        print_message("no passthrough here\n");
        skip();
    }
}

static int open_direct(struct kvt_env *env, const char *name)
{
    return kvt_open(kvt_mnt(env, name), O_RDONLY | O_DIRECT);
}

static double lent_loads(struct kvt_env *env)
{
    return kvt_metric(env, LOADS("passthrough", "verified"));
}

/* Stores a block and opens it: the kernel reads it by itself, once the handle that wrote it is
 * released, some time after close(2). */
static int store_and_open(struct kvt_env *env, size_t size)
{
    assert_int_equal(kvt_store(env, "a", size, 1, 0), 0);
    for (int i = 0; i < 1000; i++) {
        double before = lent_loads(env);
        int fd = open_direct(env, "a");
        if (lent_loads(env) > before)
            return fd;
        close(fd);
        usleep(5000);
    }
    fail_msg("no load by passthrough");
    return -1;
}

static double bytes_by_daemon(struct kvt_env *env)
{
    return kvt_metric(env, READ_BYTES);
}

static void check_bytes(int fd, size_t size, unsigned seed)
{
    unsigned char *block = kvt_block(size, seed), *bytes = kvt_block(size + 1, seed + 1);
    assert_int_equal(pread(fd, bytes, size + 1, 0), size); // and there it ends
    assert_memory_equal(bytes, block, size);
    free(block);
    free(bytes);
}

/* ---- loads ---- */

static void c11_the_kernel_reads_what_was_verified(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int fd = store_and_open(env, 3 * MIB);
    double bytes = bytes_by_daemon(env);
    kvt_flip(kvt_src(env, "a"), 2 * MIB + 5);
    check_bytes(fd, 3 * MIB, 1);
    assert_true(bytes_by_daemon(env) - bytes < 65536); // metrics are read too
    close(fd);
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT));
    kvt_assert_gone(env, "a");
}

static ssize_t read_by_aio(int fd, void *to, size_t size, off_t offset)
{
    aio_context_t queue = 0;
    struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD,
                           .aio_fildes = (uint32_t)fd,
                           .aio_buf = (uintptr_t)to,
                           .aio_nbytes = size,
                           .aio_offset = offset};
    struct iocb *requests[] = {&request};
    struct io_event event;
    assert_int_equal(syscall(SYS_io_setup, 1L, &queue), 0);
    assert_int_equal(syscall(SYS_io_submit, queue, 1L, requests), 1);
    assert_int_equal(syscall(SYS_io_getevents, queue, 1L, 1L, &event, NULL), 1);
    syscall(SYS_io_destroy, queue);
    return event.res;
}

static void check_every_way(int fd, size_t size)
{
    unsigned char *block = kvt_block(size, 1), *bytes = kvt_block(size + 4096, 2);
    struct iovec parts[] = {{bytes, size / 3}, {bytes + size / 3, size + 4096 - size / 3}};
    assert_int_equal(preadv(fd, parts, 2, 0), size);
    assert_memory_equal(bytes, block, size);
    memset(bytes, 0, size);
    assert_int_equal(read_by_aio(fd, bytes, size + 4096, 0), size);
    assert_memory_equal(bytes, block, size);
    assert_int_equal(pread(fd, bytes + 1, size, (off_t)size / 2), size - size / 2); // C20
    assert_memory_equal(bytes + 1, block + size / 2, size - size / 2);
    assert_int_equal(pread(fd, bytes, 4096, (off_t)size), 0);
    readahead(fd, 0, size);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_memory_equal(map, block, size);
    munmap(map, size);
    free(block);
    free(bytes);
}

static void c11_every_way_to_read_gives_the_bytes(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {1,       4095,        4096,    4097,        65536 + 1,
                                   MIB - 1, MIB,         MIB + 1, 2 * MIB,     2 * MIB + 1,
                                   4 * MIB, 5 * MIB + 7, 1,       4 * MIB - 1, 8 * MIB};
    start(env, NULL);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) { // buffers are used again, at other sizes
        int fd = store_and_open(env, sizes[i]);
        check_every_way(fd, sizes[i]);
        close(fd);
    }
}

static void c16_bytes_past_the_end_of_a_mapping_are_zero(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (size_t size = 2 * MIB; size > MIB; size -= 300001) { // what was there before was longer
        assert_int_equal(kvt_store(env, "a", size, 7, 0), 0);
        int fd = open_direct(env, "a");
        size_t mapped = (size + 4095) / 4096 * 4096;
        const char *map = mmap(NULL, mapped, PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        for (size_t at = size; at < mapped; at++)
            assert_int_equal(map[at], 0);
        munmap((void *)map, mapped);
        close(fd);
    }
}

/* Many loads of other blocks of the same size: a free buffer would be used. */
static void use_buffers(struct kvt_env *env, size_t size)
{
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(kvt_store(env, "other", size, 50 + i, 0), 0);
        assert_int_equal(kvt_load(env, "other", size, 50 + i, KVT_DIRECT), 0);
    }
}

static void c11_a_mapping_outlives_its_handle(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int fd = store_and_open(env, 2 * MIB);
    void *map = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    close(fd);
    unsigned char *block = kvt_block(2 * MIB, 1);
    use_buffers(env, 2 * MIB);
    assert_memory_equal(map, block, 2 * MIB);
    munmap(map, 2 * MIB);
    free(block);
}

static void c11_what_was_spliced_outlives_its_handle(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (int is_cleared = 0; is_cleared < 2; is_cleared++) {
        int ends[2];
        int fd = store_and_open(env, MIB);
        if (is_cleared)
            assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_int_equal(sendfile(ends[1], fd, NULL, 65536), 65536);
        close(fd);
        use_buffers(env, MIB);
        unsigned char *block = kvt_block(65536, 1), *bytes = kvt_block(65536, 2);
        assert_int_equal(read(ends[0], bytes, 65536), 65536);
        assert_memory_equal(bytes, block, 65536);
        free(block);
        free(bytes);
        close(ends[0]);
        close(ends[1]);
    }
}

static void c24_many_handles_do_not_take_all_memory(void **state)
{
    struct kvt_env *env = *state;
    enum { COUNT = 40 };
    int fds[COUNT];
    char name[16];
    start(env, "buffer_memory=64M");
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        assert_int_equal(kvt_store(env, name, 2 * MIB, i, 0), 0);
        fds[i] = open_direct(env, name);
    }
    for (unsigned i = 0; i < COUNT; i++)
        check_bytes(fds[i], 2 * MIB, i);
    assert_true(kvt_metric(env, "kvseal_buffer_memory_bytes") <= (double)(64 * MIB));
    double dropped = kvt_metric(env, LOADS("pieces", "verified"));
    assert_int_equal(kvt_load(env, "b0", 2 * MIB, 0, 0), 0);
    use_buffers(env, 2 * MIB); // there is room left for loads in full
    assert_true(kvt_metric(env, LOADS("pieces", "verified")) == dropped);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
}

static void c11_switched_off_nothing_is_lent(void **state)
{
    struct kvt_env *env = *state;
    kvt_not_with("buffers=off", "there is nothing to lend");
    kvt_start(env, "passthrough=off");
    assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
    double bytes = bytes_by_daemon(env);
    assert_int_equal(kvt_load(env, "a", MIB, 1, KVT_DIRECT), 0);
    assert_true(bytes_by_daemon(env) - bytes >= (double)MIB);
    assert_true(kvt_log_contains(env, "O_DIRECT loads: from verified buffers, no passthrough: "));
}

/* ---- changes while a reader stays ---- */

#define SIZE (3 * MIB - 65536)

/* The reader finds the file as it is. */
static void assert_same(struct kvt_env *env, int reader)
{
    struct stat st;
    assert_int_equal(stat(kvt_src(env, "a"), &st), 0);
    size_t size = (size_t)st.st_size;
    unsigned char *bytes = kvt_block(size + 4096, 77), *file = kvt_block(size + 4096, 78);
    int fd = kvt_open(kvt_src(env, "a"), O_RDONLY);
    assert_int_equal(pread(fd, file, size + 4096, 0), size);
    assert_int_equal(pread(reader, bytes, size + 4096, 0), size);
    assert_memory_equal(bytes, file, size);
    close(fd);
    free(bytes);
    free(file);
}

static const int writers[] = {O_WRONLY, O_WRONLY | O_DIRECT, O_WRONLY | O_SYNC,
                              O_WRONLY | O_APPEND};

static void c11_a_reader_sees_what_is_written(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (size_t i = 0; i < COUNT_OF(writers); i++) {
        int reader = store_and_open(env, SIZE);
        int writer = kvt_open(kvt_mnt(env, "a"), writers[i]);
        check_bytes(reader, SIZE, 1);
        if (writers[i] & O_APPEND) {
            kvt_put(writer, 8192, 2, 0);
        } else {
            kvt_put(writer, 65536, 2, 8192);
            assert_same(env, reader);
            kvt_put(writer, MIB + 4096, 3, MIB);
        }
        assert_same(env, reader);
        assert_int_equal(kvt_close(writer), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_same(env, reader);
        close(reader);
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
}

static void c11_a_reader_sees_cuts_and_growth(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int reader = store_and_open(env, SIZE);
    static const off_t sizes[] = {SIZE - 5, MIB + 1, MIB + 4000, 2 * MIB, 100, 0, SIZE + 4096, 1};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(truncate(kvt_mnt(env, "a"), sizes[i]), 0);
        assert_same(env, reader);
    }
    int writer = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(writer, 5000, 4, 70000); // a hole before it
    assert_same(env, reader);
    assert_int_equal(fallocate(writer, 0, 0, 200000), 0);
    assert_same(env, reader);
    assert_int_equal(fallocate(writer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 70000, 3000), 0);
    assert_same(env, reader);
    assert_int_equal(kvt_close(writer), 0);
    close(reader);
}

static void c11_a_reader_sees_a_block_stored_anew_in_place(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int reader = store_and_open(env, SIZE);
    for (unsigned seed = 2; seed < 6; seed++) {
        const char *path = kvt_mnt(env, "a");
        int flags = O_WRONLY | O_TRUNC | (seed % 2 ? O_DIRECT : 0);
        assert_int_equal(kvt_write_file(path, flags, SIZE, seed, 0), 0);
        check_bytes(reader, SIZE, seed);
        assert_int_equal(kvt_load(env, "a", SIZE, seed, KVT_DIRECT), 0);
    }
    close(reader);
}

/* Beyond its room lent memory cannot follow: the reader finds a short file, and nothing else. */
static void c11_a_reader_never_sees_old_bytes_where_a_file_grew(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int reader = store_and_open(env, MIB);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, 9 * MIB, 2, 0), 0);
    unsigned char *bytes = kvt_block(9 * MIB, 3), *block = kvt_block(9 * MIB, 2);
    ssize_t n = pread(reader, bytes, 9 * MIB, 0);
    assert_true(n >= (ssize_t)MIB);
    assert_memory_equal(bytes, block, n);
    assert_int_equal(truncate(kvt_mnt(env, "a"), 0), 0);
    assert_int_equal(pread(reader, bytes, 9 * MIB, 0), 0);
    close(reader);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, 9 * MIB, 2, 0), 0);
    assert_int_equal(kvt_load(env, "a", 9 * MIB, 2, KVT_DIRECT), 0);
    free(bytes);
    free(block);
}

/* Memory that is lent is not the file: what a mapping wrote to it would be lost. */
static void c11_what_is_lent_is_not_opened_for_both(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int reader = store_and_open(env, SIZE);
    static const int flags[] = {O_RDWR, O_RDWR | O_DIRECT, O_RDWR | O_TRUNC, O_RDWR | O_CREAT};
    for (size_t i = 0; i < COUNT_OF(flags); i++)
        kvt_assert_errno(EBUSY, open(kvt_mnt(env, "a"), flags[i], 0644));
    check_bytes(reader, SIZE, 1); // it was not even cut
    kvt_assert_sealed(kvt_src(env, "a"));
    close(reader);
    int both = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    unsigned char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    map[5] ^= 1;
    munmap(map, SIZE);
    assert_int_equal(kvt_close(both), 0);
    kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_SUM);
    kvt_assert_sealed(kvt_src(env, "a"));
}

/* A load that is over does not count, whenever its RELEASE comes. */
static void c11_a_load_that_is_over_bars_nobody(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    close(store_and_open(env, SIZE));
    close(kvt_open(kvt_mnt(env, "a"), O_RDWR));
}

static void c11_nothing_is_lent_where_blocks_are_opened_for_both(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    close(store_and_open(env, SIZE));
    int both = kvt_open(kvt_mnt(env, "lock"), O_RDWR | O_CREAT | O_EXCL);
    assert_int_equal(write(both, "1234", 4), 4);
    close(both);
    close(store_and_open(env, SIZE)); // that was no block
    both = kvt_open(kvt_mnt(env, "slots"), O_RDWR | O_CREAT | O_EXCL);
    kvt_put(both, 8192, 1, 0);
    close(both);
    assert_true(kvt_log_contains(env,
                                 "O_DIRECT loads: from verified buffers, no passthrough: a "
                                 "client opens blocks for both"));
    double loads = lent_loads(env);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, KVT_DIRECT), 0);
    assert_true(lent_loads(env) == loads);
    both = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    assert_int_equal(kvt_close(both), 0);
}

/* A change cannot be read back: the memory ends there. */
static void c14_where_a_change_cannot_be_read_a_reader_finds_the_end(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int reader = store_and_open(env, SIZE);
    int writer = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(writer, 4096, 2, 0); // the block is verified before the first change
    assert_same(env, reader);
    kvt_fault(env, "clear\nread 1 errno 5\n");
    kvt_put(writer, 4096, 3, MIB);
    assert_true(kvt_fault_report_has(env, "hit 1"));
    kvt_fault(env, "clear\n");
    unsigned char *bytes = kvt_block(SIZE, 4), *block = kvt_block(SIZE, 1);
    kvt_fill(block, 4096, 2);
    assert_int_equal(pread(reader, bytes, SIZE, 0), MIB);
    assert_memory_equal(bytes, block, MIB);
    kvt_put(writer, 4096, 4, MIB);
    assert_int_equal(pread(reader, bytes, SIZE, 0), MIB); // and there it stays
    assert_int_equal(kvt_close(writer), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
    close(reader);
    free(bytes);
    free(block);
}

static void *put_page(void *writer)
{
    kvt_put(*(int *)writer, 4096, 3, MIB);
    return NULL;
}

static void c24_a_change_that_hangs_holds_up_no_reader(void **state)
{
    struct kvt_env *env = *state;
    pthread_t thread;
    start(env, NULL);
    int reader = store_and_open(env, SIZE);
    int writer = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(writer, 4096, 2, 0);
    kvt_fault(env, "clear\nread 1 hang\n");
    assert_int_equal(pthread_create(&thread, NULL, put_page, &writer), 0);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    unsigned char *bytes = kvt_block(SIZE, 4);
    assert_int_equal(pread(reader, bytes, SIZE, 0), SIZE);
    close(reader);
    assert_int_equal(kvt_store(env, "other", MIB, 5, 0), 0);
    assert_int_equal(kvt_load(env, "other", MIB, 5, KVT_DIRECT), 0);
    kvt_fault(env, "release\n");
    pthread_join(thread, NULL);
    kvt_fault(env, "clear\n");
    assert_int_equal(kvt_close(writer), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
    free(bytes);
}

/* The last thing that a load leaves below is its access time. */
static void c24_an_access_time_that_hangs_keeps_nothing_lent(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    int reader = store_and_open(env, SIZE);
    check_bytes(reader, SIZE, 1);
    kvt_fault(env, "clear\nread 1 hang\n");
    close(reader);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    int both = open(kvt_mnt(env, "a"), O_RDWR | O_TRUNC | O_CLOEXEC);
    int error = both < 0 ? errno : 0;
    kvt_fault(env, "release\n");
    kvt_fault(env, "clear\n");
    assert_int_equal(error, 0);
    assert_int_equal(kvt_close(both), 0);
}

/* ---- all at once ---- */

struct storm {
    struct kvt_env *env;
    atomic_uint written; /* the seed of the last write that was answered */
    atomic_bool is_over, is_wrong;
    atomic_uint loads;
    char path[PATH_MAX];
};

/* What one read gives, of this write or a later one. */
static bool is_of_one_of(const unsigned char *bytes, unsigned least, unsigned most)
{
    unsigned char block[4096];
    for (unsigned seed = least; seed <= most; seed++) {
        kvt_fill(block, sizeof(block), seed);
        if (memcmp(bytes, block, sizeof(block)) == 0)
            return true;
    }
    return false;
}

/* Opens and reads: never bytes that were written over before the read began. */
static void *load_on(void *argument)
{
    struct storm *storm = argument;
    unsigned char *bytes = kvt_block(MIB, 0);
    while (!atomic_load(&storm->is_over)) {
        int fd = open(storm->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        for (int i = 0; i < 10; i++) {
            unsigned least = atomic_load(&storm->written);
            ssize_t n = pread(fd, bytes, MIB, 0);
            unsigned most = atomic_load(&storm->written) + 1;
            if (n != (ssize_t)MIB || !is_of_one_of(bytes, least, most))
                atomic_store(&storm->is_wrong, true);
            usleep(2000);
        }
        close(fd);
        atomic_fetch_add(&storm->loads, 1);
    }
    free(bytes);
    return NULL;
}

static void c11_a_reader_keeps_up_with_a_writer(void **state)
{
    struct kvt_env *env = *state;
    struct storm storm = {.env = env};
    pthread_t loader;
    start(env, NULL);
    assert_int_equal(kvt_store(env, "a", MIB, 0, 0), 0);
    snprintf(storm.path, sizeof(storm.path), "%s", kvt_mnt(env, "a"));
    assert_int_equal(pthread_create(&loader, NULL, load_on, &storm), 0);
    uint64_t end = kvt_now_ms() + 4000;
    for (unsigned seed = 1; kvt_now_ms() < end; seed++) {
        int flags = O_WRONLY | (seed % 2 ? O_DIRECT : 0);
        assert_int_equal(kvt_write_file(storm.path, flags, MIB, seed, 0), 0);
        atomic_store(&storm.written, seed);
        usleep(seed % 8 * 3000);
    }
    atomic_store(&storm.is_over, true);
    pthread_join(loader, NULL);
    print_message("%u loads, %u writes\n", atomic_load(&storm.loads), atomic_load(&storm.written));
    assert_false(atomic_load(&storm.is_wrong));
    assert_true(atomic_load(&storm.loads) > 20 && atomic_load(&storm.written) > 20);
    kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_SUM);
    kvt_assert_sealed(kvt_src(env, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c11_the_kernel_reads_what_was_verified),
        kvt_test(c11_every_way_to_read_gives_the_bytes),
        kvt_test(c16_bytes_past_the_end_of_a_mapping_are_zero),
        kvt_test(c11_a_mapping_outlives_its_handle),
        kvt_test(c11_what_was_spliced_outlives_its_handle),
        kvt_test(c24_many_handles_do_not_take_all_memory),
        kvt_test(c11_switched_off_nothing_is_lent),
        kvt_test(c11_a_reader_sees_what_is_written),
        kvt_test(c11_a_reader_sees_cuts_and_growth),
        kvt_test(c11_a_reader_sees_a_block_stored_anew_in_place),
        kvt_test(c11_a_reader_never_sees_old_bytes_where_a_file_grew),
        kvt_test(c11_what_is_lent_is_not_opened_for_both),
        kvt_test(c11_a_load_that_is_over_bars_nobody),
        kvt_test(c11_nothing_is_lent_where_blocks_are_opened_for_both),
        kvt_test(c11_a_reader_keeps_up_with_a_writer),
    };
    const struct CMUnitTest faults[] = {
        kvt_test(c14_where_a_change_cannot_be_read_a_reader_finds_the_end),
        kvt_test(c24_a_change_that_hangs_holds_up_no_reader),
        kvt_test(c24_an_access_time_that_hangs_keeps_nothing_lent),
    };
    int failed = kvt_main("load_lent", tests, COUNT_OF(tests), KVT_DISKS);
    return failed + kvt_main("load_lent_faults", faults, COUNT_OF(faults), KVT_FAULTFS);
}
