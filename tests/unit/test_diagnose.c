// SPDX-License-Identifier: Apache-2.0
// Hints: every single flip is found, the other kinds of damage are told, and nothing is claimed
// that does not hold.
#include "core/diagnose.h"

#include <byteswap.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/record.h"
#include "core/util.h"
#include "core/verify.h"
#include "tests/unit/random.h"
#include "tests/unit/scratch.h"

static unsigned char *make_block(size_t size)
{
    unsigned char *block = malloc(size + 1);

    assert_non_null(block);
    for (size_t i = 0; i < size; i++)
        block[i] = (unsigned char)(next_random() >> 24);
    if (size > 0)
        block[size - 1] = 0x55; /* no zeros of its own at the end */
    return block;
}

static struct kvs_diagnosis diagnose(uint32_t recorded, const unsigned char *block, size_t size)
{
    struct kvs_mismatch mismatch = {
        .recorded = recorded, .computed = kvs_crc32c(0, block, size), .size = size};
    struct kvs_diagnosis diagnosis;

    while (mismatch.zeros < size && block[size - 1 - mismatch.zeros] == 0)
        mismatch.zeros++;
    kvs_diagnose(&mismatch, &diagnosis);
    return diagnosis;
}

static void assert_flip(const struct kvs_diagnosis *diagnosis, size_t byte, unsigned bit)
{
    assert_true(diagnosis->is_one_bit);
    assert_int_equal(diagnosis->byte, byte);
    assert_int_equal(diagnosis->bit, bit);
}

static void every_flip_in_small_blocks_is_found(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 8, 63, 64, 65, 257};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        unsigned char *block = make_block(sizes[i]);
        uint32_t recorded = kvs_crc32c(0, block, sizes[i]);
        for (size_t bit = 0; bit < 8 * sizes[i]; bit++) {
            block[bit / 8] ^= (unsigned char)(1u << bit % 8);
            struct kvs_diagnosis diagnosis = diagnose(recorded, block, sizes[i]);
            assert_flip(&diagnosis, bit / 8, (unsigned)(bit % 8));
            block[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        free(block);
    }
}

static void flips_in_large_blocks_are_found_fast(void **state)
{
    size_t size = (size_t)16 << 20;
    unsigned char *block = make_block(size);
    uint32_t recorded = kvs_crc32c(0, block, size);
    struct timespec start, end;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (int i = 0; i < 20; i++) {
        size_t byte = i == 0 ? 0 : i == 1 ? size - 1 : next_random() % size;
        unsigned bit = (unsigned)(next_random() % 8);
        block[byte] ^= (unsigned char)(1u << bit);
        struct kvs_diagnosis diagnosis = diagnose(recorded, block, size);
        assert_flip(&diagnosis, byte, bit);
        assert_true(diagnosis.chance > 0.03 && diagnosis.chance < 0.04);
        block[byte] ^= (unsigned char)(1u << bit);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    print_message("  %.1f ms for 16 MiB\n", ((double)(end.tv_sec - start.tv_sec) * 1e3 +
                                             (double)(end.tv_nsec - start.tv_nsec) / 1e6) /
                                                20);
    free(block);
}

static void two_flips_are_never_one(void **state)
{
    size_t size = 300;
    unsigned char *block = make_block(size);
    uint32_t recorded = kvs_crc32c(0, block, size);

    for (size_t a = 0; a < 8 * size; a += 7) {
        for (size_t b = 0; b < 8 * size; b++) {
            if (a == b)
                continue;
            block[a / 8] ^= (unsigned char)(1u << a % 8);
            block[b / 8] ^= (unsigned char)(1u << b % 8);
            assert_false(diagnose(recorded, block, size).is_one_bit);
            block[b / 8] ^= (unsigned char)(1u << b % 8);
            block[a / 8] ^= (unsigned char)(1u << a % 8);
        }
    }
    free(block);
}

static void two_flips_in_large_blocks_are_never_one(void **state)
{
    size_t size = (size_t)4 << 20;
    unsigned char *block = make_block(size);
    uint32_t recorded = kvs_crc32c(0, block, size);

    for (int i = 0; i < 50; i++) {
        size_t a = next_random() % size, b = next_random() % size;
        if (a == b)
            continue;
        block[a] ^= 1;
        block[b] ^= 0x80;
        assert_false(diagnose(recorded, block, size).is_one_bit);
        block[a] ^= 1;
        block[b] ^= 0x80;
    }
    free(block);
}

/* What one may claim of random damage is bounded by `chance`. */
static void random_damage_is_told_about_as_often_as_said(void **state)
{
    size_t size = (size_t)1 << 20;
    unsigned char *block = make_block(size);
    int claims = 0;

    for (int i = 0; i < 400; i++) {
        struct kvs_diagnosis diagnosis = diagnose((uint32_t)(next_random() >> 32), block, size);
        claims += diagnosis.is_one_bit;
        assert_false(diagnosis.is_record_swapped || diagnosis.is_extended ||
                     diagnosis.is_tail_zero || diagnosis.is_empty || diagnosis.is_record_inverted);
    }
    assert_true(claims <= 8); /* 0.8 are expected; more than 8: once in 10^7 runs */
    free(block);
}

static void records_that_are_turned_round(void **state)
{
    unsigned char *block = make_block(1000);
    uint32_t crc = kvs_crc32c(0, block, 1000);
    struct kvs_diagnosis diagnosis = diagnose(bswap_32(crc), block, 1000);

    assert_true(diagnosis.is_record_swapped);
    assert_false(diagnosis.is_one_bit || diagnosis.is_record_inverted);
    diagnosis = diagnose(~crc, block, 1000);
    assert_true(diagnosis.is_record_inverted);
    assert_false(diagnosis.is_one_bit || diagnosis.is_record_swapped);
    free(block);
}

static void zeroed_tails(void **state)
{
    static const struct {
        size_t size, from;
        bool is_told, is_page;
    } cases[] = {
        {65536, 8192, true, true},     {65536, 8191, true, true}, /* the content's own zero */
        {65536, 8000, true, false},    {65536, 5000, true, false},
        {65536, 65536 - 63, false, 0}, {65536, 65536 - 64, true, false},
        {65536, 0, true, true},        {10, 0, true, true},
        {10, 5, false, false},         {65537, 65536, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t from = cases[i].from, size = cases[i].size;
        unsigned char *block = make_block(size);
        uint32_t recorded = kvs_crc32c(0, block, size);
        if (from > 0)
            block[from - 1] = 0x55;
        memset(block + from, 0, size - from);
        struct kvs_diagnosis diagnosis = diagnose(recorded, block, size);
        if (diagnosis.is_tail_zero != cases[i].is_told)
            fail_msg("%zu bytes, zero from %zu", size, from);
        if (cases[i].is_told) {
            assert_int_equal(diagnosis.is_page_granular, cases[i].is_page);
            assert_int_equal(diagnosis.zeros_from,
                             cases[i].is_page ? KVS_ALIGN_UP(from, (size_t)4096) : from);
        }
        free(block);
    }
}

static void appended_zeros_and_nothing(void **state)
{
    unsigned char *block = make_block(10000);
    uint32_t recorded = kvs_crc32c(0, block, 5000);
    struct kvs_diagnosis diagnosis;

    block[4999] |= 1;
    recorded = kvs_crc32c(0, block, 5000);
    memset(block + 5000, 0, 5000);
    diagnosis = diagnose(recorded, block, 10000);
    assert_true(diagnosis.is_extended);
    assert_int_equal(diagnosis.true_size, 5000);
    diagnosis = diagnose(recorded, block, 0);
    assert_true(diagnosis.is_empty);
    assert_false(diagnosis.is_one_bit || diagnosis.is_tail_zero || diagnosis.is_extended);
    free(block);
}

static void put_file(const char *name, const void *bytes, size_t size, uint32_t crc)
{
    kvs_cleanup_fd int fd = openat(dir_fd, name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(kvs_record_write(fd, crc), 0);
}

static void zeros_are_counted_from_the_end(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, KVS_PIECE_SIZE, KVS_PIECE_SIZE + 1, 3000000};
    kvs_cleanup_free void *scratch = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (size_t zeros = 0; zeros <= sizes[i]; zeros = zeros * 3 + 1) {
            unsigned char *block = make_block(sizes[i]);
            uint64_t found = 77;
            memset(block + sizes[i] - zeros, 0, zeros);
            if (zeros < sizes[i])
                block[sizes[i] - zeros - 1] = 1;
            put_file("block", block, sizes[i], 0);
            kvs_cleanup_fd int fd = openat(dir_fd, "block", O_RDONLY | O_CLOEXEC);
            assert_int_equal(kvs_diagnose_zeros(fd, sizes[i], scratch, &found), 0);
            assert_int_equal(found, zeros);
            free(block);
        }
    }
    unlinkat(dir_fd, "block", 0);
}

static void neighbours_are_looked_at(void **state)
{
    struct kvs_mismatch mismatch = {.recorded = 0x11111111, .computed = 0x22222222, .size = 3};
    struct kvs_neighbours neighbours;

    put_file("this", "123", 3, 0x11111111);
    put_file("other", "1234", 4, 0x33333333);
    assert_int_equal(symlinkat("this", dir_fd, "link"), 0);
    assert_int_equal(kvs_diagnose_neighbours(dir_fd, "this", &mismatch, 100, &neighbours), 0);
    assert_string_equal(neighbours.same_record, "");
    assert_string_equal(neighbours.same_content, "");
    assert_int_equal(neighbours.larger_size, 0); /* one alone tells nothing */
    put_file("first", "1234", 4, 0x11111111);
    put_file("second", "321", 3, 0x22222222);
    put_file("third", "5678", 4, 0x44444444);
    put_file("fourth", "5678", 4, 0x44444444);
    assert_int_equal(kvs_diagnose_neighbours(dir_fd, "this", &mismatch, 100, &neighbours), 0);
    assert_string_equal(neighbours.same_record, "first");
    assert_string_equal(neighbours.same_content, "second");
    assert_int_equal(neighbours.larger_size, 4);
    assert_int_equal(kvs_diagnose_neighbours(dir_fd, "this", &mismatch, 0, &neighbours), 0);
    assert_string_equal(neighbours.same_record, "");
}

static int set_up(void **state)
{
    return make_scratch();
}

static int tear_down(void **state)
{
    return remove_scratch();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flip_in_small_blocks_is_found),
        cmocka_unit_test(flips_in_large_blocks_are_found_fast),
        cmocka_unit_test(two_flips_are_never_one),
        cmocka_unit_test(two_flips_in_large_blocks_are_never_one),
        cmocka_unit_test(random_damage_is_told_about_as_often_as_said),
        cmocka_unit_test(records_that_are_turned_round),
        cmocka_unit_test(zeroed_tails),
        cmocka_unit_test(appended_zeros_and_nothing),
        cmocka_unit_test_setup_teardown(zeros_are_counted_from_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(neighbours_are_looked_at, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("diagnose", tests, NULL, NULL);
}
