// SPDX-License-Identifier: Apache-2.0
// O_DIRECT is accepted at any offset, length and address, whatever the file system below demands,
// and gives the same content (C20).
#include "tests/mount/fixture.h"

#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define SIZE ((size_t)3 << 20)

/* Reads of `length` at `offset` into memory that begins `shift` bytes after a page. */
static void assert_read(int fd, const unsigned char *block, size_t size, off_t offset,
                        size_t length, size_t shift)
{
    static _Alignas(4096) unsigned char room[SIZE + 8192];
    size_t wanted = (size_t)offset >= size           ? 0
                    : size - (size_t)offset < length ? size - (size_t)offset
                                                     : length;
    ssize_t got = pread(fd, room + shift, length, offset);
    if (got != (ssize_t)wanted || memcmp(room + shift, block + offset, wanted) != 0)
        fail_msg("%zd bytes (%s) of %zu at %jd to +%zu, or other ones", got,
                 got < 0 ? strerror(errno) : "", wanted, (intmax_t)offset, shift);
}

static const struct piece {
    off_t offset;
    size_t length, shift;
} pieces[] = {
    {0, 4096, 0},           {0, 512, 0},
    {512, 512, 512},        {1, 1, 0},
    {0, 4096, 1},           {3, 4096, 0},
    {4096, 100, 0},         {100, 8192, 7},
    {0, SIZE, 0},           {0, SIZE, 77},
    {12345, 1234567, 3},    {1048575, 3, 1},
    {1048576, 1048577, 0},  {SIZE - 5000, 9000, 0},
    {SIZE - 1, 4096, 4095}, {SIZE, 4096, 0},
    {2097151, 2, 513},
};

#define for_each_piece(piece)                                                                      \
    for (const struct piece *piece = pieces; piece < pieces + sizeof(pieces) / sizeof(pieces[0]);  \
         piece++)

static void assert_reads(int fd, const unsigned char *block, size_t size)
{
    for_each_piece(piece)
    {
        if ((size_t)piece->offset <= size)
            assert_read(fd, block, size, piece->offset, piece->length, piece->shift);
    }
}

static void c20_direct_reads_of_any_alignment(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {SIZE, SIZE - 1, 1000001, 4096, 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *block = kvt_block(SIZE, 1);
        const char *path = kvt_mnt(env, "a");
        assert_int_equal(kvt_store(env, "a", sizes[i], 1, 0), 0);
        int fd = kvt_open(path, O_RDONLY | O_DIRECT); // served from verified bytes
        assert_reads(fd, block, sizes[i]);
        close(fd);
        fd = kvt_open(path, O_RDWR | O_DIRECT);
        kvt_put(fd, 1, 1, 0); // and from the file, as it changes
        assert_reads(fd, block, sizes[i]);
        assert_int_equal(kvt_close(fd), 0);
        kvt_remove_record(kvt_src(env, "a"));
        fd = kvt_open(path, O_RDONLY | O_DIRECT); // there is nothing to verify
        assert_reads(fd, block, sizes[i]);
        close(fd);
        free(block);
    }
}

static void c20_direct_writes_of_any_alignment(void **state)
{
    struct kvt_env *env = *state;
    static const int flags[] = {O_WRONLY, O_RDWR};
    static unsigned char image[SIZE + 16384];
    static _Alignas(4096) unsigned char room[SIZE + 8192];
    for (size_t i = 0; i < 2; i++) {
        size_t size = 0;
        memset(image, 0, sizeof(image));
        int fd = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_TRUNC | O_DIRECT | flags[i]);
        unsigned seed = 0;
        for_each_piece(piece)
        {
            kvt_fill(room + piece->shift, piece->length, ++seed);
            assert_int_equal(pwrite(fd, room + piece->shift, piece->length, piece->offset),
                             piece->length);
            memcpy(image + piece->offset, room + piece->shift, piece->length);
            if ((size_t)piece->offset + piece->length > size)
                size = (size_t)piece->offset + piece->length;
            if (seed % 5 == 0)
                kvt_assert_content(kvt_src(env, "a"), image, size);
        }
        assert_int_equal(kvt_close(fd), 0);
        kvt_assert_content(kvt_src(env, "a"), image, size);
        kvt_assert_content(kvt_mnt(env, "a"), image, size);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
}

/* As a client that streams: read(2) and write(2), whose position goes on unaligned. */
static void c20_direct_streams_of_odd_pieces(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(SIZE, 2), *room = kvt_block(SIZE, 3);
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE | O_DIRECT);
    for (size_t at = 0, length = 1; at < SIZE; at += length, length = (length * 3 + 1) % 300007) {
        if (length > SIZE - at)
            length = SIZE - at;
        assert_int_equal(write(fd, block + at, length), length);
    }
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 2);
    fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT);
    size_t at = 0;
    ssize_t got = 1;
    for (size_t length = 1; got > 0; at += (size_t)got, length = (length * 3 + 1) % 300007)
        got = read(fd, room + at, length < SIZE - at ? length : SIZE - at);
    assert_int_equal(at, SIZE);
    assert_memory_equal(room, block, SIZE);
    close(fd);
    free(block);
    free(room);
}

static void c20_direct_can_be_switched(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(SIZE, 4);
    int fd = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_RDWR);
    assert_int_equal(pwrite(fd, block, 5000, 0), 5000);
    assert_int_equal(fcntl(fd, F_SETFL, O_DIRECT), 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_DIRECT, O_DIRECT);
    assert_int_equal(pwrite(fd, block + 5000, 10001, 5000), 10001);
    assert_int_equal(pwrite(fd, block + 16384, SIZE - 16384, 16384), SIZE - 16384);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    assert_int_equal(pwrite(fd, block + 15001, 1383, 15001), 1383);
    assert_reads(fd, block, SIZE);
    assert_int_equal(fcntl(fd, F_SETFL, O_DIRECT), 0);
    assert_reads(fd, block, SIZE);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 4);
    free(block);
}

static void c20_direct_and_buffered_handles_agree(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(SIZE, 5), *image = kvt_block(SIZE, 6);
    assert_int_equal(kvt_store(env, "a", SIZE, 6, 0), 0);
    int direct = kvt_open(kvt_mnt(env, "a"), O_RDWR | O_DIRECT);
    int buffered = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    for_each_piece(piece)
    {
        int writer = piece->length % 2 ? direct : buffered;
        size_t length = (size_t)piece->offset + piece->length > SIZE ? SIZE - (size_t)piece->offset
                                                                     : piece->length;
        assert_int_equal(pwrite(writer, block + piece->offset, length, piece->offset), length);
        memcpy(image + piece->offset, block + piece->offset, length);
        assert_read(direct, image, SIZE, piece->offset, length, piece->shift);
        assert_read(buffered, image, SIZE, piece->offset, length, piece->shift);
    }
    close(direct);
    assert_int_equal(kvt_close(buffered), 0);
    kvt_assert_content(kvt_src(env, "a"), image, SIZE);
    kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_SUM);
    kvt_assert_sealed(kvt_src(env, "a"));
    free(block);
    free(image);
}

/* The memory of a direct write may be a mapping of the mount itself. */
static void c20_direct_writes_from_a_mapping_of_the_mount(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 7, 0), 0);
    int from = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    void *map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, from, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    int to = kvt_open(kvt_mnt(env, "b"), KVT_CREATE | O_DIRECT);
    assert_int_equal(write(to, map, SIZE), SIZE);
    assert_int_equal(kvt_close(to), 0);
    kvt_assert_sealed_block(env, "b", SIZE, 7);
    munmap(map, SIZE);
    close(from);
}

/* The kernel sends the pieces of one asynchronous write side by side. */
static void c19_asynchronous_appends_keep_their_order(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(4 * SIZE, 8);
    aio_context_t context = 0;
    assert_int_equal(syscall(SYS_io_setup, 1, &context), 0);
    for (int round = 0; round < 20; round++) {
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_CREAT | O_APPEND | O_DIRECT);
        for (size_t done = 0; done < 4 * SIZE; done += 2 * SIZE) {
            struct iocb write = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                                 .aio_fildes = (uint32_t)fd,
                                 .aio_buf = (uintptr_t)block + done,
                                 .aio_nbytes = 2 * SIZE};
            struct iocb *writes[] = {&write};
            struct io_event event = {0};
            assert_int_equal(syscall(SYS_io_submit, context, 1, writes), 1);
            assert_int_equal(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
            assert_int_equal(event.res, 2 * SIZE);
        }
        assert_int_equal(kvt_close(fd), 0);
        kvt_assert_content(kvt_src(env, "a"), block, 4 * SIZE);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
    syscall(SYS_io_destroy, context);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c20_direct_reads_of_any_alignment),
        kvt_test(c20_direct_writes_of_any_alignment),
        kvt_test(c20_direct_streams_of_odd_pieces),
        kvt_test(c20_direct_can_be_switched),
        kvt_test(c20_direct_and_buffered_handles_agree),
        kvt_test(c20_direct_writes_from_a_mapping_of_the_mount),
        kvt_test(c19_asynchronous_appends_keep_their_order),
    };
    // faultfs has no O_DIRECT of its own rule; a directory may be on overlayfs.
    return kvt_main("posix direct", tests, sizeof(tests) / sizeof(tests[0]),
                    KVT_DISKS | KVT_DIR | KVT_FAULTFS);
}
