// SPDX-License-Identifier: Apache-2.0
// Changing blocks in place: no stale record (C4), no laundering (C5), and sums of what arrives in
// any order and by any way (C6).
#include "tests/mount/fixture.h"

#include <linux/aio_abi.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define KIB    ((size_t)1 << 10)
#define MIB    ((size_t)1 << 20)
#define SIZE   (256 * KIB + 77) /* of most blocks here: no multiple of anything */
#define CREATE (O_CREAT | O_EXCL | O_WRONLY | O_TRUNC)

static void write_at(int fd, size_t size, unsigned seed, off_t offset)
{
    unsigned char *block = kvt_block(size, seed);
    assert_int_equal(kvt_write(fd, block, size, offset, 0), 0);
    free(block);
}

/* The source's content is kvt_block(size, seed) with kvt_block(len, other) at `offset`, sealed. */
static void assert_patched(struct kvt_env *env, const char *name, size_t size, unsigned seed,
                           size_t len, unsigned other, size_t offset)
{
    unsigned char *block = kvt_block(size > offset + len ? size : offset + len, seed);
    if (offset + len > size)
        memset(block + size, 0, offset + len - size);
    kvt_fill(block + offset, len, other);
    kvt_assert_content(kvt_src(env, name), block, size > offset + len ? size : offset + len);
    kvt_assert_sealed(kvt_src(env, name));
    free(block);
}

static void assert_block(struct kvt_env *env, const char *name, size_t size, unsigned seed)
{
    assert_patched(env, name, size, seed, 0, 0, 0);
}

/* ---- ways to change content ---- */

static int change_by_write(struct kvt_env *env, int fd)
{
    return pwrite(fd, "change", 6, 1000) == 6 ? 0 : -errno;
}

static int change_by_truncate(struct kvt_env *env, int fd)
{
    return ftruncate(fd, 100000) == 0 ? 0 : -errno;
}

static int change_by_growing(struct kvt_env *env, int fd)
{
    return ftruncate(fd, 1000000) == 0 ? 0 : -errno;
}

static int change_by_fallocate(struct kvt_env *env, int fd)
{
    return fallocate(fd, 0, 0, 1000000) == 0 ? 0 : -errno;
}

static int change_by_punching(struct kvt_env *env, int fd)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 50000) == 0 ? 0 : -errno;
}

static int change_by_zeroing(struct kvt_env *env, int fd)
{
    return fallocate(fd, FALLOC_FL_ZERO_RANGE, 5000, 50000) == 0 ? 0 : -errno;
}

static int change_by_copy(struct kvt_env *env, int fd)
{
    int from = kvt_open(kvt_mnt(env, "other"), O_RDONLY);
    off_t in = 0, out = 8192;
    ssize_t n = copy_file_range(from, &in, fd, &out, 16384, 0);
    int error = n < 0 ? -errno : n == 16384 ? 0 : -EIO;
    close(from);
    return error;
}

static int change_by_mapping(struct kvt_env *env, int fd)
{
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    memcpy(map + 70000, "change", 6);
    int error = msync(map, SIZE, MS_SYNC) == 0 ? 0 : -errno;
    munmap(map, SIZE);
    return error;
}

static const struct way {
    const char *name;
    int (*change)(struct kvt_env *env, int fd); /* 0 or -errno */
} ways[] = {
    {"pwrite", change_by_write},
    {"ftruncate to less", change_by_truncate},
    {"ftruncate to more", change_by_growing},
    {"fallocate beyond the end", change_by_fallocate},
    {"a punched hole", change_by_punching},
    {"a zeroed range", change_by_zeroing},
    {"copy_file_range", change_by_copy},
    {"a shared mapping", change_by_mapping},
};

#define for_each_way(way)                                                                          \
    for (const struct way *way = ways; way < ways + sizeof(ways) / sizeof(ways[0]); way++)

/* ---- C4 ---- */

static void c04_the_record_is_gone_after_the_first_change(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "other", SIZE, 9, 0), 0);
    for_each_way(way)
    {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        uint32_t before = kvt_sum_of(kvt_src(env, "a"));
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDWR);
        int error = way->change(env, fd);
        if (error == -EOPNOTSUPP) { // tmpfs cannot zero a range
            assert_int_equal(kvt_close(fd), 0);
            assert_block(env, "a", SIZE, 1);
            continue;
        }
        if (error || kvt_record_of(kvt_src(env, "a")).kind != KVS_RECORD_NONE)
            fail_msg("%s: %s", way->name, error ? strerror(-error) : "the record is still there");
        assert_int_not_equal(kvt_sum_of(kvt_src(env, "a")), before);
        assert_int_equal(kvt_close(fd), 0);
        kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind ==
                     KVS_RECORD_SUM); // a mapping's RELEASE
        kvt_assert_sealed(kvt_src(env, "a"));
    }
}

static void c04_truncation_at_open_drops_the_record(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_TRUNC);
    struct kvs_record record = kvt_record_of(kvt_src(env, "a"));
    assert_true(record.kind == KVS_RECORD_NONE || record.crc == 0); // it is empty now
    write_at(fd, 4096, 2, 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(fd), 0);
    assert_block(env, "a", 4096, 2);
}

static void c04_a_kill_leaves_a_changed_block_unsealed(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 100, 2, 5000);
    kvt_kill(env);
    kvt_assert_unsealed(kvt_src(env, "a"));
    close(fd);
    kvt_start(env, NULL);
    int read_fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    close(read_fd);
}

/* ---- C5 ---- */

/* A sealed block of `size` bytes, corrupt at `at`. */
static void store_corrupt(struct kvt_env *env, size_t size, off_t at)
{
    assert_int_equal(kvt_store(env, "a", size, 1, 0), 0);
    kvt_flip(kvt_src(env, "a"), at);
}

static void c05_a_partial_change_of_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    static const off_t offsets[] = {0, 40000, SIZE - 100}; /* of a write of 100 bytes */
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        store_corrupt(env, SIZE, 40050); // the second one writes over the wrong bit
        assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        write_at(fd, 100, 2, offsets[i]);
        assert_int_equal(kvt_close(fd), -EBADMSG);
        kvt_assert_gone(env, "a");
        kvt_assert_gone(env, "b");
    }
}

static void c05_every_other_way_to_change_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "other", SIZE, 9, 0), 0);
    for_each_way(way)
    {
        if (way->change == change_by_mapping)
            continue; // needs O_RDWR, which is refused
        store_corrupt(env, SIZE, 40050);
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        int error = way->change(env, fd);
        int close_error = kvt_close(fd);
        if (error == -EOPNOTSUPP) {
            unlink(kvt_src(env, "a"));
            continue;
        }
        if (error != -EBADMSG && close_error != -EBADMSG)
            fail_msg("%s: %d, close: %d", way->name, error, close_error);
        kvt_assert_gone(env, "a");
    }
}

static void c05_appending_to_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "more", 4), 4);
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c05_a_publish_of_a_corrupt_block_changed_in_part_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 100, 2, 0);
    kvt_assert_errno(EBADMSG, rename(kvt_mnt(env, "a"), kvt_mnt(env, "b")));
    assert_true(kvt_is_gone(kvt_src(env, "b")));
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c05_opening_a_corrupt_block_for_both_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDWR));
    kvt_assert_gone(env, "a");
}

static void c05_a_full_rewrite_of_a_corrupt_block_is_sealed(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {1, 4096, SIZE, 4 * MIB + 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t chunk = 64 * KIB; chunk; chunk = chunk == MIB ? 0 : MIB) {
            store_corrupt(env, sizes[i], (off_t)sizes[i] / 2);
            assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, sizes[i], 2, chunk), 0);
            assert_block(env, "a", sizes[i], 2);
            assert_int_equal(kvt_load(env, "a", sizes[i], 2, 0), 0);
        }
    }
}

static void c05_a_rewrite_that_leaves_one_old_byte_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, SIZE - 1, 2, 0), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c05_truncation_at_open_heals_a_corrupt_block(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY | O_TRUNC, 4096, 2, 0), 0);
    assert_block(env, "a", 4096, 2);
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_RDWR | O_TRUNC, SIZE, 3, 0), 0);
    assert_block(env, "a", SIZE, 3);
}

static void c05_truncation_to_another_size_fails_like_a_read(void **state)
{
    struct kvt_env *env = *state;
    static const off_t to[] = {1, 40000, 100000, 1000000};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        store_corrupt(env, SIZE, 40050);
        kvt_assert_errno(EBADMSG, truncate(kvt_mnt(env, "a"), to[i]));
        kvt_assert_gone(env, "a");
    }
}

static void c05_truncation_to_zero_heals_a_corrupt_block(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(truncate(kvt_mnt(env, "a"), 0), 0);
    assert_block(env, "a", 0, 0);
}

static void c05_a_kill_does_not_launder(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 100, 2, 0);
    kvt_kill(env);
    close(fd);
    assert_int_equal(kvt_record_of(kvt_src(env, "a")).kind, KVS_RECORD_SUM);
    kvt_start(env, NULL);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), -EBADMSG);
    kvt_assert_gone(env, "a");
}

/* ---- C6 ---- */

#define CHUNK  (64 * KIB)
#define CHUNKS 65 /* the last one of one byte */
#define LARGE  (64 * CHUNK + 1)

enum order { IN_ORDER, BACKWARDS, SHUFFLED, TWICE };

/* The number of the chunk that comes as the i-th of CHUNKS. */
static size_t nth_chunk(enum order order, size_t i)
{
    switch (order) {
    case BACKWARDS:
        return CHUNKS - 1 - i;
    case SHUFFLED:
        return i * 29 % CHUNKS; // 29 and 65 have no common divisor
    default:
        return i;
    }
}

static int write_chunk(int fd, const unsigned char *block, size_t number)
{
    size_t offset = number * CHUNK;
    size_t len = LARGE - offset < CHUNK ? LARGE - offset : CHUNK;
    return kvt_write(fd, block + offset, len, (off_t)offset, 0);
}

static void write_in_every_order(struct kvt_env *env, int flags)
{
    for (enum order order = IN_ORDER; order <= TWICE; order++) {
        unsigned char *block = kvt_block(LARGE, order);
        int fd = kvt_open(kvt_mnt(env, "tmp"), CREATE | flags);
        for (size_t i = 0; i < CHUNKS; i++) {
            assert_int_equal(write_chunk(fd, block, nth_chunk(order, i)), 0);
            if (order == TWICE)
                assert_int_equal(write_chunk(fd, block, i / 2), 0);
        }
        assert_int_equal(kvt_close(fd), 0);
        assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
        assert_block(env, "a", LARGE, order);
        free(block);
    }
}

static void c06_any_order(void **state)
{
    write_in_every_order(*state, 0);
}

static void c06_any_order_by_direct_io(void **state)
{
    write_in_every_order(*state, O_DIRECT);
}

#define THREADS 4

struct writer {
    pthread_t thread;
    int fd;
    const unsigned char *block;
    size_t first, step;
    int error;
};

static void *write_chunks(void *argument)
{
    struct writer *writer = argument;
    for (size_t i = writer->first; i < CHUNKS && !writer->error; i += writer->step)
        writer->error = write_chunk(writer->fd, writer->block, i);
    return NULL;
}

/* Each thread writes its own chunks of its block, through its descriptor. */
static void write_by_threads(struct writer writers[THREADS])
{
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_chunks, &writers[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(writers[i].thread, NULL);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(writers[i].error, 0);
}

static void c06_threads_write_parts(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(LARGE, 1);
    for (int direct = 0; direct <= 1; direct++) {
        struct writer writers[THREADS] = {0};
        int fd = kvt_open(kvt_mnt(env, "tmp"), CREATE | (direct ? O_DIRECT : 0));
        for (size_t i = 0; i < THREADS; i++)
            writers[i] = (struct writer){.fd = fd, .block = block, .first = i, .step = THREADS};
        if (direct) // its end comes without O_DIRECT, and the flag is shared
            assert_int_equal(write_chunk(fd, block, CHUNKS - 1), 0);
        for (size_t i = 0; direct && i < THREADS; i++)
            writers[i].first = i + (i == 0 ? THREADS : 0);
        if (direct)
            assert_int_equal(write_chunk(fd, block, 0), 0);
        write_by_threads(writers);
        assert_int_equal(kvt_close(fd), 0);
        assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
        assert_block(env, "a", LARGE, 1);
    }
    free(block);
}

/* Four writers want other bytes in the same place: whoever wins, that is what is sealed. */
static void c06_racing_writes_of_the_same_range(void **state)
{
    struct kvt_env *env = *state;
    for (unsigned round = 0; round < 4; round++) {
        struct writer writers[THREADS] = {0};
        unsigned char *blocks[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            blocks[i] = kvt_block(LARGE, round * THREADS + i);
            writers[i] = (struct writer){.block = blocks[i], .step = 1};
            writers[i].fd = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_WRONLY);
        }
        write_by_threads(writers);
        for (unsigned i = 0; i < THREADS; i++) {
            assert_int_equal(kvt_close(writers[i].fd), 0);
            free(blocks[i]);
        }
        kvt_assert_sealed(kvt_src(env, "a"));
    }
}

static void c06_direct_and_buffered_writers_of_one_block(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(LARGE, 1);
    int direct = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_RDWR | O_DIRECT);
    int buffered = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    for (size_t i = 0; i < CHUNKS; i++)
        assert_int_equal(write_chunk(i % 2 ? direct : buffered, block, i), 0);
    assert_int_equal(kvt_close(direct), 0);
    assert_int_equal(kvt_close(buffered), 0);
    assert_block(env, "a", LARGE, 1);
    free(block);
}

/* libaio by its system calls: all chunks at once. */
static void c06_asynchronous_direct_writes(void **state)
{
    struct kvt_env *env = *state;
    enum { COUNT = 16 };
    const size_t chunk = 256 * KIB;
    unsigned char *block = kvt_block(COUNT * chunk, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), CREATE | O_DIRECT);
    aio_context_t context = 0;
    struct iocb requests[COUNT] = {0}, *list[COUNT];
    struct io_event events[COUNT];
    assert_int_equal(syscall(SYS_io_setup, COUNT, &context), 0);
    for (size_t i = 0; i < COUNT; i++) {
        requests[i].aio_fildes = (unsigned)fd;
        requests[i].aio_lio_opcode = IOCB_CMD_PWRITE;
        requests[i].aio_buf = (uintptr_t)(block + i * chunk);
        requests[i].aio_nbytes = chunk;
        requests[i].aio_offset = (int64_t)(i * chunk);
        list[COUNT - 1 - i] = &requests[i];
    }
    assert_int_equal(syscall(SYS_io_submit, context, COUNT, list), COUNT);
    assert_int_equal(syscall(SYS_io_getevents, context, COUNT, COUNT, events, NULL), COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(events[i].res, chunk);
    syscall(SYS_io_destroy, context);
    assert_int_equal(kvt_close(fd), 0);
    assert_block(env, "a", COUNT * chunk, 1);
    free(block);
}

static void c06_holes_are_summed(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), CREATE);
    write_at(fd, 1000, 1, MIB + 3);
    assert_int_equal(kvt_close(dup(fd)), 0);
    assert_patched(env, "a", 0, 0, 1000, 1, MIB + 3);
    assert_int_equal(ftruncate(fd, 3 * MIB + 5), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
}

static void c06_preallocated_files_are_summed(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), CREATE);
    assert_int_equal(fallocate(fd, 0, 0, MIB), 0);
    write_at(fd, 100000, 1, 50000);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
    fd = kvt_open(kvt_mnt(env, "b"), CREATE);
    assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MIB), 0);
    write_at(fd, SIZE, 1, 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_block(env, "b", SIZE, 1);
}

static void c06_a_partial_overwrite_of_an_intact_block_is_sealed(void **state)
{
    struct kvt_env *env = *state;
    static const struct {
        off_t offset;
        size_t len;
    } parts[] = {{0, 1},        {0, SIZE - 1}, {4096, 4096},      {65537, 1000}, {SIZE - 1, 1},
                 {SIZE - 1, 9}, {SIZE, 10},    {SIZE + 5000, 10}, {1, SIZE}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), i % 2 ? O_RDWR : O_WRONLY);
        write_at(fd, parts[i].len, 2, parts[i].offset);
        assert_int_equal(kvt_close(fd), 0);
        assert_patched(env, "a", SIZE, 1, parts[i].len, 2, (size_t)parts[i].offset);
    }
}

static void c06_appended_bytes_are_summed(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(SIZE, 1);
    for (size_t done = 0; done < SIZE; done += 33333) {
        int fd = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_WRONLY | O_APPEND);
        size_t len = SIZE - done < 33333 ? SIZE - done : 33333;
        assert_int_equal(write(fd, block + done, len), len);
        assert_int_equal(kvt_close(fd), 0);
        assert_block(env, "a", done + len, 1);
    }
    free(block);
}

static void c06_what_was_stored_by_others_is_summed_when_it_grows(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), CREATE, SIZE, 1, 0), 0); // unsealed
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 5000, 2, SIZE);
    assert_int_equal(kvt_close(fd), 0);
    assert_patched(env, "a", SIZE, 1, 5000, 2, SIZE);
}

/* ---- C6: max_reread ---- */

static void c06_a_slot_file_above_max_reread_goes_unsealed_without_errors(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    assert_int_equal(kvt_store(env, "a", LARGE, 1, 0), 0);
    assert_block(env, "a", LARGE, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    write_at(fd, 4096, 2, MIB);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(dup(fd)), 0);
    assert_int_equal(rename(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "b"));
    fd = kvt_open(kvt_mnt(env, "b"), O_RDONLY);
    close(fd);
}

static void c06_a_corrupt_slot_file_above_max_reread_is_not_looked_at(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    store_corrupt(env, LARGE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 4096, 2, MIB);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
}

static void c06_a_file_above_max_reread_that_arrives_in_full_is_sealed(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    assert_int_equal(kvt_store(env, "a", LARGE, 1, KVT_DIRECT), 0);
    assert_block(env, "a", LARGE, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 4096, 2, MIB);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, LARGE, 3, MIB), 0);
    assert_block(env, "a", LARGE, 3);
}

static void c06_a_file_within_max_reread_is_sealed_after_a_change(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    write_at(fd, 4096, 2, 5000);
    assert_int_equal(kvt_close(fd), 0);
    assert_patched(env, "a", MIB, 1, 4096, 2, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c04_the_record_is_gone_after_the_first_change),
        kvt_test(c04_truncation_at_open_drops_the_record),
        kvt_test(c04_a_kill_leaves_a_changed_block_unsealed),
        kvt_test(c05_a_partial_change_of_a_corrupt_block_is_refused),
        kvt_test(c05_every_other_way_to_change_a_corrupt_block_is_refused),
        kvt_test(c05_appending_to_a_corrupt_block_is_refused),
        kvt_test(c05_a_publish_of_a_corrupt_block_changed_in_part_is_refused),
        kvt_test(c05_opening_a_corrupt_block_for_both_is_refused),
        kvt_test(c05_a_full_rewrite_of_a_corrupt_block_is_sealed),
        kvt_test(c05_a_rewrite_that_leaves_one_old_byte_is_refused),
        kvt_test(c05_truncation_at_open_heals_a_corrupt_block),
        kvt_test(c05_truncation_to_another_size_fails_like_a_read),
        kvt_test(c05_truncation_to_zero_heals_a_corrupt_block),
        kvt_test(c05_a_kill_does_not_launder),
        kvt_test(c06_any_order),
        kvt_test(c06_any_order_by_direct_io),
        kvt_test(c06_threads_write_parts),
        kvt_test(c06_racing_writes_of_the_same_range),
        kvt_test(c06_direct_and_buffered_writers_of_one_block),
        kvt_test(c06_asynchronous_direct_writes),
        kvt_test(c06_holes_are_summed),
        kvt_test(c06_preallocated_files_are_summed),
        kvt_test(c06_a_partial_overwrite_of_an_intact_block_is_sealed),
        kvt_test(c06_appended_bytes_are_summed),
        kvt_test(c06_what_was_stored_by_others_is_summed_when_it_grows),
        kvt_test(c06_a_slot_file_above_max_reread_goes_unsealed_without_errors),
        kvt_test(c06_a_corrupt_slot_file_above_max_reread_is_not_looked_at),
        kvt_test(c06_a_file_above_max_reread_that_arrives_in_full_is_sealed),
        kvt_test(c06_a_file_within_max_reread_is_sealed_after_a_change),
    };
    return kvt_main("store_in_place", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS);
}
