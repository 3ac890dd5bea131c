// SPDX-License-Identifier: Apache-2.0
// Verdicts on real files: intact, unsealed, changed underneath, cut, grown, malformed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/verify.h"
#include "tests/unit/block_files.h"

static void check_intact(const struct ground *ground)
{
    for (size_t i = 0; i < SIZES * 2; i++) {
        size_t size = sizes[i / 2];
        bool is_whole = i % 2 == 0 || size <= KVS_PIECE_SIZE;
        uint32_t *sums = NULL;
        uint32_t joined = 0;
        struct kvs_reading reading = {.memory = memory,
                                      .capacity = i % 2 == 0 ? MAX_SIZE : KVS_PIECE_SIZE,
                                      .piece_sums_ret = &sums};
        struct kvs_verification verification;
        int fd = make_block(ground, size);

        memset(memory, 0, MAX_SIZE);
        assert_int_equal(kvs_verify(fd, &reading, &verification), 0);
        assert_int_equal(verification.verdict, KVS_INTACT);
        assert_false(verification.is_transient);
        assert_int_equal(verification.size, size);
        assert_int_equal(verification.stat.st_size, size);
        assert_int_equal(verification.computed, kvs_crc32c(0, content, size));
        assert_int_equal(verification.record.crc, verification.computed);
        assert_int_equal(reading.whole_ret, is_whole);
        if (is_whole)
            assert_memory_equal(memory, content, size);
        assert_non_null(sums);
        for (size_t at = 0; at < size; at += KVS_PIECE_SIZE) {
            size_t len = size - at < KVS_PIECE_SIZE ? size - at : KVS_PIECE_SIZE;

            assert_int_equal(sums[at / KVS_PIECE_SIZE], kvs_crc32c(0, content + at, len));
            joined = kvs_crc32c_combine(joined, sums[at / KVS_PIECE_SIZE], len);
        }
        assert_int_equal(joined, verification.computed);
        free(sums);
        drop_block(fd);
    }
}

static void c10_intact_blocks_of_all_sizes(void **state)
{
    on_every_ground(check_intact);
}

static void check_corrupt(const struct ground *ground)
{
    for (size_t i = 0; i < SIZES; i++) {
        size_t size = sizes[i];
        const off_t places[] = {0, (off_t)size / 2, (off_t)size - 1};

        for (size_t j = 0; size > 0 && j < 3; j++) {
            uint32_t *sums = (uint32_t *)content;
            struct kvs_reading reading = {
                .memory = memory, .capacity = MAX_SIZE, .piece_sums_ret = &sums};
            struct kvs_verification verification;
            int fd = make_block(ground, size);

            flip_byte(places[j]);
            assert_int_equal(kvs_verify(fd, &reading, &verification), 0);
            assert_int_equal(verification.verdict, KVS_CORRUPT);
            assert_int_equal(verification.record.crc, kvs_crc32c(0, content, size));
            assert_int_not_equal(verification.computed, verification.record.crc);
            assert_null(sums);
            drop_block(fd);
        }
    }
}

static void c10_one_wrong_byte_is_corrupt(void **state)
{
    on_every_ground(check_corrupt);
}

static void check_malformed(const struct ground *ground)
{
    static const size_t lengths[] = {0, 3, 5, 100};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct kvs_verification verification;
        int fd = make_block(ground, 10000);

        assert_int_equal(fsetxattr(fd, KVS_RECORD_NAME, content, lengths[i], 0), 0);
        assert_int_equal(verify(fd, MAX_SIZE, &verification), 0);
        assert_int_equal(verification.verdict, KVS_CORRUPT);
        assert_int_equal(verification.record.kind, KVS_RECORD_MALFORMED);
        assert_int_equal(verification.computed, kvs_crc32c(0, content, 10000));
        drop_block(fd);
    }
}

static void c10_a_malformed_record_is_corrupt(void **state)
{
    on_every_ground(check_malformed);
}

static void check_unsealed(const struct ground *ground)
{
    struct kvs_verification verification;
    int fd = make_block(ground, 10000);

    assert_int_equal(kvs_record_remove(fd), 0);
    memset(memory, 0x55, 10000);
    assert_int_equal(verify(fd, MAX_SIZE, &verification), 0);
    assert_int_equal(verification.verdict, KVS_UNSEALED);
    assert_int_equal(verification.size, 10000);
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(((unsigned char *)memory)[i], 0x55);
    drop_block(fd);
}

static void c12_an_unsealed_block_is_not_read(void **state)
{
    on_every_ground(check_unsealed);
}

static void check_resized(const struct ground *ground)
{
    static const off_t new_sizes[] = {0, 1, 4096, 9999, 10001, 20000, 2 * KVS_PIECE_SIZE};

    for (size_t i = 0; i < sizeof(new_sizes) / sizeof(new_sizes[0]); i++) {
        int fd = make_block(ground, 10000);

        assert_int_equal(truncate(path, new_sizes[i]), 0);
        assert_verdict(fd, KVS_CORRUPT, false);
        drop_block(fd);
    }
}

static void c18_cut_grown_and_empty_blocks_are_corrupt(void **state)
{
    on_every_ground(check_resized);
}

static void check_times(const struct ground *ground)
{
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    int fd = make_block(ground, 10000);
    struct stat st;
    uint32_t crc = 0;

    flip_byte(0); /* so that both readings happen */
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_verdict(fd, KVS_CORRUPT, false);
    assert_int_equal(kvs_sum_agreed(fd, 0, 10000, memory, MAX_SIZE, &crc), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_atim.tv_sec, 1000);
    assert_int_equal(st.st_mtim.tv_sec, 2000);
    drop_block(fd);
}

static void c17_neither_atime_nor_mtime_moves(void **state)
{
    on_every_ground(check_times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c10_intact_blocks_of_all_sizes),
        cmocka_unit_test(c10_one_wrong_byte_is_corrupt),
        cmocka_unit_test(c10_a_malformed_record_is_corrupt),
        cmocka_unit_test(c12_an_unsealed_block_is_not_read),
        cmocka_unit_test(c18_cut_grown_and_empty_blocks_are_corrupt),
        cmocka_unit_test(c17_neither_atime_nor_mtime_moves),
    };

    return cmocka_run_group_tests_name("verify", tests, set_up, tear_down);
}
