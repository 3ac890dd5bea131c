// SPDX-License-Identifier: Apache-2.0
// Sums of what arrives in any order, by any way, and of what has to be read back (C6).
#include "tests/mount/fixture.h"

#include <linux/aio_abi.h>
#include <pthread.h>
#include <sys/syscall.h>

#define KIB  ((size_t)1 << 10)
#define MIB  ((size_t)1 << 20)
#define SIZE (256 * KIB + 77) /* of most blocks here: no multiple of anything */

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
        int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE | flags);
        for (size_t i = 0; i < CHUNKS; i++) {
            assert_int_equal(write_chunk(fd, block, nth_chunk(order, i)), 0);
            if (order == TWICE)
                assert_int_equal(write_chunk(fd, block, i / 2), 0);
        }
        assert_int_equal(kvt_close(fd), 0);
        assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
        kvt_assert_sealed_block(env, "a", LARGE, order);
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
        int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE | (direct ? O_DIRECT : 0));
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
        kvt_assert_sealed_block(env, "a", LARGE, 1);
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
    kvt_assert_sealed_block(env, "a", LARGE, 1);
    free(block);
}

/* libaio by its system calls: all chunks at once. */
static void c06_asynchronous_direct_writes(void **state)
{
    struct kvt_env *env = *state;
    enum { COUNT = 16 };
    const size_t chunk = 256 * KIB;
    unsigned char *block = kvt_block(COUNT * chunk, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE | O_DIRECT);
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
    kvt_assert_sealed_block(env, "a", COUNT * chunk, 1);
    free(block);
}

static void c06_holes_are_summed(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    kvt_put(fd, 1000, 1, MIB + 3);
    assert_int_equal(kvt_close(dup(fd)), 0);
    assert_patched(env, "a", 0, 0, 1000, 1, MIB + 3);
    assert_int_equal(ftruncate(fd, 3 * MIB + 5), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
}

static void c06_preallocated_files_are_summed(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    assert_int_equal(fallocate(fd, 0, 0, MIB), 0);
    kvt_put(fd, 100000, 1, 50000);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
    fd = kvt_open(kvt_mnt(env, "b"), KVT_CREATE);
    assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MIB), 0);
    kvt_put(fd, SIZE, 1, 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "b", SIZE, 1);
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
        kvt_put(fd, parts[i].len, 2, parts[i].offset);
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
        kvt_assert_sealed_block(env, "a", done + len, 1);
    }
    free(block);
}

static void c06_what_was_stored_by_others_is_summed_when_it_grows(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), KVT_CREATE, SIZE, 1, 0), 0); // unsealed
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 5000, 2, SIZE);
    assert_int_equal(kvt_close(fd), 0);
    assert_patched(env, "a", SIZE, 1, 5000, 2, SIZE);
}

/* ---- everything at once ---- */

/* What the file has to hold. */
struct model {
    unsigned char *bytes;
    size_t size;
};

#define MODEL_ROOM (512 * KIB)

static void resize_model(struct model *model, size_t size)
{
    if (size > model->size)
        memset(model->bytes + model->size, 0, size - model->size);
    model->size = size;
}

/* One random change of file and model. */
static void change_randomly(int fd, struct model *model, unsigned seed)
{
    size_t offset = (size_t)rand() % (MODEL_ROOM / 2);
    size_t len = 1 + (size_t)rand() % (rand() % 2 ? 1000 : MODEL_ROOM / 2);
    switch (rand() % 8) {
    case 0:
        assert_int_equal(ftruncate(fd, (off_t)offset), 0);
        resize_model(model, offset);
        break;
    case 1:
        assert_int_equal(fallocate(fd, 0, (off_t)offset, (off_t)len), 0);
        if (offset + len > model->size)
            resize_model(model, offset + len);
        break;
    case 2:
        assert_int_equal(
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len),
            0);
        memset(model->bytes + offset, 0, len);
        break;
    default:
        if (rand() % 3 == 0)
            offset = model->size < MODEL_ROOM / 2 ? model->size : 0; // append
        if (offset + len > model->size)
            resize_model(model, offset + len);
        kvt_fill(model->bytes + offset, len, seed);
        kvt_put(fd, len, seed, (off_t)offset);
    }
}

static void c06_random_changes(void **state)
{
    struct kvt_env *env = *state;
    struct model model = {.bytes = kvt_block(MODEL_ROOM, 0)};
    int fd = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_RDWR);
    srand(20);
    for (unsigned step = 1; step <= 300; step++) {
        change_randomly(fd, &model, step);
        if (rand() % 4)
            continue;
        if (rand() % 2) {
            assert_int_equal(kvt_close(dup(fd)), 0);
        } else {
            assert_int_equal(kvt_close(fd), 0);
            fd = kvt_open(kvt_mnt(env, "a"), rand() % 2 ? O_WRONLY : O_RDWR);
        }
        kvt_assert_content(kvt_src(env, "a"), model.bytes, model.size);
        kvt_assert_sealed(kvt_src(env, "a"));
    }
    assert_int_equal(kvt_close(fd), 0);
    free(model.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        kvt_test(c06_random_changes),
    };
    return kvt_main("store_arrival", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS);
}
