// SPDX-License-Identifier: Apache-2.0
// Loading: verified before open() answers (C10), blocks without a record (C12), whole reads (C16),
// cut and grown blocks (C18).
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define KIB             ((size_t)1 << 10)
#define MIB             ((size_t)1 << 20)
#define SIZE            (3 * MIB + 12345) /* of most blocks here: no multiple of anything */

/* 0 or -errno of open(2) and close(2). */
static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : kvt_close(fd);
}

/* ---- C10 ---- */

static void c10_blocks_of_all_sizes_load(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {0, 1, 511, 4096, 65537, MIB, 4 * MIB + 1, 16 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(kvt_store(env, "a", sizes[i], (unsigned)i, 0), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(kvt_load(env, "a", sizes[i], (unsigned)i, 0), 0);
        assert_int_equal(kvt_load(env, "a", sizes[i], (unsigned)i, KVT_DIRECT), 0);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDWR), 0);
        kvt_drop_cache(kvt_src(env, "a"));
        assert_int_equal(kvt_load(env, "a", sizes[i], (unsigned)i, 0), 0);
    }
}

static void c10_one_wrong_bit_anywhere_is_refused(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {1, 511, 4096, 65537, 4 * MIB + 1};
    static const int accesses[] = {O_RDONLY, O_RDWR};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const off_t places[] = {0, (off_t)sizes[i] / 2, (off_t)sizes[i] - 1};
        for (size_t turn = 0; turn < 2 * COUNT_OF(places); turn++) {
            int flags = accesses[turn % 2] | (turn / 2 % 2 ? O_DIRECT : 0);
            assert_int_equal(kvt_store(env, "a", sizes[i], 1, 0), 0);
            kvt_flip(kvt_src(env, "a"), places[turn / 2]);
            int error = try_open(kvt_mnt(env, "a"), flags);
            if (error != -EBADMSG)
                fail_msg("byte %jd of %zu, flags %#x: %s", (intmax_t)places[turn / 2], sizes[i],
                         (unsigned)flags, strerror(-error));
            kvt_assert_gone(env, "a");
        }
    }
}

/* Changed by a program that bypasses the mount and knows nothing of records. */
static void c10_other_content_of_the_same_size_is_refused(void **state)
{
    struct kvt_env *env = *state;
    for (int flags = 0; flags <= KVT_DIRECT; flags++) {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        assert_int_equal(kvt_write_file(kvt_src(env, "a"), O_WRONLY, SIZE, 2, 0), 0);
        assert_int_equal(kvt_load(env, "a", SIZE, 1, flags), -EBADMSG);
        kvt_assert_gone(env, "a");
    }
}

static void c10_a_record_that_is_not_the_sum_is_refused(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {0, 4096, SIZE};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(kvt_store(env, "a", sizes[i], 1, 0), 0);
        uint32_t sum = kvt_sum_of(kvt_src(env, "a"));
        const uint32_t wrong[] = {~sum, sum ^ 1, sum ^ 0x80000000, __builtin_bswap32(sum ^ 0xFF)};
        for (size_t j = 0; j < COUNT_OF(wrong); j++) {
            assert_int_equal(kvt_store(env, "a", sizes[i], 1, 0), 0);
            assert_int_equal(kvt_set_record(kvt_src(env, "a"), wrong[j]), 0);
            assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
            kvt_assert_gone(env, "a");
        }
    }
}

static void c10_a_record_of_another_length_is_refused(void **state)
{
    struct kvt_env *env = *state;
    static const size_t lengths[] = {0, 3, 5, 100};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        unsigned char bytes[100] = {0};
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        uint32_t sum = kvt_sum_of(kvt_src(env, "a"));
        for (int j = 0; j < 4; j++)
            bytes[j] = (unsigned char)(sum >> (24 - 8 * j));
        assert_int_equal(kvt_set_record_bytes(kvt_src(env, "a"), bytes, lengths[i]), 0);
        assert_int_equal(try_open(kvt_mnt(env, "a"), i % 2 ? O_RDWR : O_RDONLY), -EBADMSG);
        kvt_assert_gone(env, "a");
    }
}

/* A record that another program wrote is as good as ours. */
static void c10_a_right_record_from_elsewhere_is_accepted(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), O_WRONLY | O_CREAT | O_EXCL, SIZE, 1, MIB),
                     0);
    assert_int_equal(kvt_set_record(kvt_src(env, "a"), kvt_sum_of(kvt_src(env, "a"))), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, KVT_DIRECT), 0);
}

static void c10_the_errno_can_be_chosen(void **state)
{
    struct kvt_env *env = *state;
    static const struct {
        const char *option;
        int error;
    } choices[] = {{"corrupt_errno=EBADMSG,on_corrupt=keep", EBADMSG},
                   {"corrupt_errno=EIO,on_corrupt=keep", EIO},
                   {"corrupt_errno=ENOENT,on_corrupt=keep", ENOENT}};
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    kvt_flip(kvt_src(env, "a"), 5);
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        kvt_start(env, choices[i].option);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -choices[i].error);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDWR), -choices[i].error);
        kvt_assert_errno(choices[i].error, truncate(kvt_mnt(env, "a"), 10));
    }
}

static void c10_opens_that_do_not_read_are_not_verified(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    kvt_flip(kvt_src(env, "a"), 5);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_WRONLY), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_PATH), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDWR | O_TRUNC), 0);
    kvt_assert_sealed_block(env, "a", 0, 0);
}

/* One reading of [offset, offset+len) with this memory alignment, compared with `block`. */
static void check_read(int fd, const unsigned char *block, size_t size, size_t offset, size_t len,
                       size_t misaligned)
{
    unsigned char *memory = aligned_alloc(4096, (len + 2 * 4096) / 4096 * 4096);
    ssize_t expected = offset >= size ? 0 : (ssize_t)(size - offset < len ? size - offset : len);
    ssize_t n = pread(fd, memory + misaligned, len, (off_t)offset);
    bool is_same = n == expected &&
                   (n == 0 || memcmp(memory + misaligned, block + offset, (size_t)n) == 0);
    free(memory);
    if (!is_same)
        fail_msg("%zu bytes at %zu into memory at %zu: %zd%s", len, offset, misaligned, n,
                 n == expected ? ", wrong ones" : "");
}

static void c10_reads_at_any_offset_and_length(void **state)
{
    struct kvt_env *env = *state;
    static const size_t offsets[] = {0, 1, 511, 4096, 65535, MIB - 1, MIB, 2 * MIB + 77, SIZE - 1};
    static const size_t lengths[] = {1, 3, 512, 4096, 4097, MIB, MIB + 1, SIZE};
    unsigned char *block = kvt_block(SIZE, 1);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY | direct);
        for (size_t i = 0; i < COUNT_OF(offsets); i++) {
            for (size_t j = 0; j < COUNT_OF(lengths); j++) {
                check_read(fd, block, SIZE, offsets[i], lengths[j], 0);
                check_read(fd, block, SIZE, offsets[i], lengths[j], 13);
            }
        }
        close(fd);
    }
    free(block);
}

static void c10_reads_past_the_end_give_nothing(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(SIZE, 1);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY | direct);
        check_read(fd, block, SIZE, SIZE, 4096, 0);
        check_read(fd, block, SIZE, SIZE + 1, 1, 0);
        check_read(fd, block, SIZE, 4 * MIB, 4096, 0);
        check_read(fd, block, SIZE, (size_t)1 << 40, 2 * MIB, 0);
        check_read(fd, block, SIZE, SIZE - 10, 4096, 0);
        close(fd);
    }
    free(block);
}

static void c10_readv_gives_the_block(void **state)
{
    struct kvt_env *env = *state;
    unsigned char *block = kvt_block(SIZE, 1), *bytes = kvt_block(SIZE, 2);
    const struct iovec parts[] = {{bytes, 4096},
                                  {bytes + 4096, 1},
                                  {bytes + 4097, MIB},
                                  {bytes + 4097 + MIB, SIZE - 4097 - MIB}};
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(readv(fd, parts, COUNT_OF(parts)), SIZE);
    assert_memory_equal(bytes, block, SIZE);
    close(fd);
    free(block);
    free(bytes);
}

static void c10_a_mapping_shows_the_block(void **state)
{
    struct kvt_env *env = *state;
    static const int kinds[] = {MAP_PRIVATE, MAP_PRIVATE | MAP_POPULATE};
    unsigned char *block = kvt_block(SIZE, 1);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        unsigned char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, kinds[i], fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        close(fd);
        assert_memory_equal(map, block, SIZE);
        map[0] ^= 1; // the client's own copy
        munmap(map, SIZE);
        assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    }
    free(block);
    kvt_flip(kvt_src(env, "a"), 100);
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDONLY)); // nothing left to map
}

/* ---- C12 ---- */

static void store_unsealed(struct kvt_env *env, const char *name, size_t size, unsigned seed)
{
    assert_int_equal(kvt_write_file(kvt_src(env, name), O_WRONLY | O_CREAT | O_EXCL, size, seed, 0),
                     0);
}

static void c12_a_block_without_a_record_loads(void **state)
{
    struct kvt_env *env = *state;
    store_unsealed(env, "a", SIZE, 1);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, KVT_DIRECT), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDWR), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
}

static void c12_deny_refuses_it(void **state)
{
    struct kvt_env *env = *state;
    store_unsealed(env, "a", SIZE, 1);
    kvt_start(env, "unsealed=deny");
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EACCES);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDWR), -EACCES);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_WRONLY), 0);
    kvt_assert_block(kvt_src(env, "a"), SIZE, 1);
    assert_int_equal(kvt_store(env, "b", SIZE, 2, 0), 0);
    assert_int_equal(kvt_load(env, "b", SIZE, 2, 0), 0);
    assert_int_equal(kvt_store(env, "a", SIZE, 3, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 3, 0), 0);
}

static void c12_deny_does_not_hinder_who_reads_what_is_being_written(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "unsealed=deny");
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_CREAT);
    kvt_put(fd, 70000, 1, 0);
    assert_int_equal(kvt_load(env, "a", 70000, 1, 0), 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(kvt_load(env, "a", 70000, 1, 0), 0);
}

static void c12_seal_seals_it_with_its_first_load(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {0, 1, 4096, SIZE};
    kvt_start(env, "unsealed=seal");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char name[16];
        snprintf(name, sizeof(name), "a%zu", i);
        store_unsealed(env, name, sizes[i], 1);
        assert_int_equal(kvt_load(env, name, sizes[i], 1, i % 2 ? KVT_DIRECT : 0), 0);
        kvt_wait_for(kvt_record_of(kvt_src(env, name)).kind == KVS_RECORD_SUM);
        kvt_assert_sealed_block(env, name, sizes[i], 1);
        assert_int_equal(kvt_load(env, name, sizes[i], 1, 0), 0);
    }
    kvt_flip(kvt_src(env, "a3"), 5);
    assert_int_equal(try_open(kvt_mnt(env, "a3"), O_RDONLY), -EBADMSG);
}

static void c12_seal_waits_until_the_writer_is_gone(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "unsealed=seal");
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_CREAT);
    kvt_put(fd, 70000, 1, 0);
    assert_int_equal(kvt_load(env, "a", 70000, 1, 0), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    kvt_put(fd, 70000, 2, 0);
    assert_int_equal(kvt_load(env, "a", 70000, 2, 0), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 70000, 2);
}

/* A record between two writes would be wrong from the second one on. */
static void c15_seal_leaves_out_what_is_written_beside_the_mount(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "unsealed=seal");
    int fd = kvt_open(kvt_src(env, "a"), O_WRONLY | O_CREAT);
    kvt_put(fd, 70000, 1, 0);
    assert_int_equal(kvt_load(env, "a", 70000, 1, 0), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    kvt_put(fd, 70000, 2, 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(kvt_load(env, "a", 70000, 2, 0), 0);
    kvt_assert_sealed_block(env, "a", 70000, 2);
}

/* ---- C16 ---- */

struct reader {
    pthread_t thread;
    const char *path;
    const unsigned char *block;
    size_t size;
    int flags;
    bool failed;
};

/* Whole blocks by one read(2) each, as vLLM does. */
static void *read_whole(void *argument)
{
    struct reader *reader = argument;
    unsigned char *bytes = aligned_alloc(4096, reader->size);
    for (int i = 0; i < 2 && !reader->failed; i++) {
        int fd = open(reader->path, reader->flags | O_CLOEXEC);
        ssize_t n = read(fd, bytes, reader->size);
        reader->failed = n != (ssize_t)reader->size ||
                         memcmp(bytes, reader->block, reader->size) != 0;
        close(fd);
    }
    free(bytes);
    return NULL;
}

static void check_whole_reads(struct kvt_env *env, const char *name, size_t size)
{
    char path[PATH_MAX];
    struct reader readers[4];
    unsigned char *block = kvt_block(size, 1);
    bool failed = false;
    snprintf(path, sizeof(path), "%s", kvt_mnt(env, name));
    for (size_t i = 0; i < COUNT_OF(readers); i++) {
        readers[i] = (struct reader){.path = path,
                                     .block = block,
                                     .size = size,
                                     .flags = i % 2 ? O_RDONLY | O_DIRECT : O_RDONLY};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_whole, &readers[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(readers); i++) {
        pthread_join(readers[i].thread, NULL);
        failed |= readers[i].failed;
    }
    free(block);
    assert_false(failed);
}

static void c16_one_read_gives_the_whole_block(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 16 * MIB, 1, KVT_DIRECT), 0);
    check_whole_reads(env, "a", 16 * MIB);
}

/* Too little memory for the second block as a whole, and for all readers of the first at once. */
static void c16_one_read_gives_the_whole_block_by_pieces(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "buffer_memory=32M,passthrough=off");
    assert_int_equal(kvt_store(env, "a", 16 * MIB, 1, 0), 0);
    check_whole_reads(env, "a", 16 * MIB);
    assert_int_equal(kvt_store(env, "b", 25 * MIB, 1, 0), 0);
    check_whole_reads(env, "b", 25 * MIB);
}

/* ---- C18 ---- */

static void c18_cut_and_grown_blocks_are_corrupt(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {0, 1, 4096, SIZE / 2, SIZE - 1, SIZE + 1, SIZE + MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
            assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
            assert_int_equal(truncate(kvt_src(env, "a"), (off_t)sizes[i]), 0);
            int error = try_open(kvt_mnt(env, "a"), O_RDONLY | direct);
            if (error != -EBADMSG)
                fail_msg("%zu bytes instead of %zu: %s", sizes[i], SIZE, strerror(-error));
            kvt_assert_gone(env, "a");
        }
    }
}

static void c18_a_block_cut_while_nobody_looked_is_corrupt(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "attr_timeout=3600,entry_timeout=3600");
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(truncate(kvt_src(env, "a"), 0), 0); // the kernel still has the old size
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c10_blocks_of_all_sizes_load),
        kvt_test(c10_one_wrong_bit_anywhere_is_refused),
        kvt_test(c10_other_content_of_the_same_size_is_refused),
        kvt_test(c10_a_record_that_is_not_the_sum_is_refused),
        kvt_test(c10_a_record_of_another_length_is_refused),
        kvt_test(c10_a_right_record_from_elsewhere_is_accepted),
        kvt_test(c10_the_errno_can_be_chosen),
        kvt_test(c10_opens_that_do_not_read_are_not_verified),
        kvt_test(c10_reads_at_any_offset_and_length),
        kvt_test(c10_reads_past_the_end_give_nothing),
        kvt_test(c10_readv_gives_the_block),
        kvt_test(c10_a_mapping_shows_the_block),
        kvt_test(c12_a_block_without_a_record_loads),
        kvt_test(c12_deny_refuses_it),
        kvt_test(c12_deny_does_not_hinder_who_reads_what_is_being_written),
        kvt_test(c12_seal_seals_it_with_its_first_load),
        kvt_test(c12_seal_waits_until_the_writer_is_gone),
        kvt_test(c15_seal_leaves_out_what_is_written_beside_the_mount),
        kvt_test(c16_one_read_gives_the_whole_block),
        kvt_test(c16_one_read_gives_the_whole_block_by_pieces),
        kvt_test(c18_cut_and_grown_blocks_are_corrupt),
        kvt_test(c18_a_block_cut_while_nobody_looked_is_corrupt),
    };
    return kvt_main("load", tests, COUNT_OF(tests), KVT_DISKS);
}
