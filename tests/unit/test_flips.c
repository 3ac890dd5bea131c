// SPDX-License-Identifier: Apache-2.0
// No flipped bit and no burst gets past the sum; the counts are printed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "tests/unit/random.h"

#define LARGE_BLOCK  ((size_t)4 << 20)
#define PIECE        ((size_t)4096)
#define PIECES       (LARGE_BLOCK / PIECE)
#define RANDOM_FLIPS 100000
#define FULL_CHECKS  100 /* every so many-th random change is summed in full, too */

static unsigned char *new_random_block(size_t len)
{
    unsigned char *block = malloc(len);

    assert_non_null(block);
    for (size_t i = 0; i < len; i++)
        block[i] = (unsigned char)(next_random() >> 32);
    return block;
}

/* Every bit of the block flipped once, each time with a sum of the whole block. */
static void flip_every_bit(size_t len)
{
    unsigned char *block = new_random_block(len);
    const uint32_t good = kvs_crc32c(0, block, len);
    size_t missed = 0;

    for (size_t bit = 0; bit < len * 8; bit++) {
        block[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (kvs_crc32c(0, block, len) == good)
            missed++;
        block[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    print_message("%zu bytes: %zu single bits flipped, %zu missed\n", len, len * 8, missed);
    assert_int_equal(missed, 0);
    assert_int_equal(kvs_crc32c(0, block, len), good);
    free(block);
}

static void c10_every_single_bit_in_1_byte(void **state)
{
    flip_every_bit(1);
}

static void c10_every_single_bit_in_511_bytes(void **state)
{
    flip_every_bit(511);
}

static void c10_every_single_bit_in_4095_bytes(void **state)
{
    flip_every_bit(4095);
}

static void c10_every_single_bit_in_4096_bytes(void **state)
{
    flip_every_bit(4096);
}

static void c10_every_single_bit_in_65536_bytes(void **state)
{
    flip_every_bit(65536);
}

/* A large block whose pieces are summed one by one: a change costs the sum of the pieces it hit. */
struct large_block {
    unsigned char *data;
    uint32_t before[PIECES + 1]; /* sum of all pieces before this one */
    uint32_t after[PIECES + 1];  /* sum of this piece and all that follow */
    uint32_t good;
};

static void set_up_large_block(struct large_block *block)
{
    block->data = new_random_block(LARGE_BLOCK);
    block->good = kvs_crc32c(0, block->data, LARGE_BLOCK);
    block->before[0] = 0;
    for (size_t i = 0; i < PIECES; i++)
        block->before[i + 1] = kvs_crc32c(block->before[i], block->data + i * PIECE, PIECE);
    block->after[PIECES] = 0;
    for (size_t i = PIECES; i-- > 0;) {
        uint32_t own = kvs_crc32c(0, block->data + i * PIECE, PIECE);

        block->after[i] = kvs_crc32c_combine(own, block->after[i + 1],
                                             LARGE_BLOCK - (i + 1) * PIECE);
    }
    assert_int_equal(block->before[PIECES], block->good);
    assert_int_equal(block->after[0], block->good);
}

/* The sum of the whole when nothing but pieces[first..past) changed. */
static uint32_t sum_changed(const struct large_block *block, size_t first, size_t past)
{
    uint32_t crc = kvs_crc32c(block->before[first], block->data + first * PIECE,
                              (past - first) * PIECE);

    return kvs_crc32c_combine(crc, block->after[past], LARGE_BLOCK - past * PIECE);
}

/* Flips some of the `bits` bits from `start` on: the outermost for certain, as a burst has it. */
static void flip_burst(unsigned char *data, size_t start, unsigned bits, uint64_t pattern)
{
    for (unsigned i = 0; i < bits; i++) {
        if (i == 0 || i == bits - 1 || (pattern >> i & 1))
            data[(start + i) / 8] ^= (unsigned char)(1u << (start + i) % 8);
    }
}

/* CRC32C finds every burst of up to 32 bits, and a longer one but for one chance in 2^32. */
static void flip_at_random(const char *what, unsigned max_bits)
{
    static struct large_block block;
    size_t missed = 0;

    set_up_large_block(&block);
    for (int round = 0; round < RANDOM_FLIPS; round++) {
        unsigned bits = 1 + (unsigned)(next_random() % max_bits);
        size_t start = next_random() % (LARGE_BLOCK * 8 - bits + 1);
        uint64_t pattern = next_random();
        size_t first = start / 8 / PIECE;
        size_t past = (start + bits - 1) / 8 / PIECE + 1;

        flip_burst(block.data, start, bits, pattern);
        uint32_t crc = sum_changed(&block, first, past);
        if (round % (RANDOM_FLIPS / FULL_CHECKS) == 0)
            assert_int_equal(crc, kvs_crc32c(0, block.data, LARGE_BLOCK));
        if (crc == block.good)
            missed++;
        flip_burst(block.data, start, bits, pattern);
    }
    print_message("%zu bytes: %d random %s, %zu missed\n", LARGE_BLOCK, RANDOM_FLIPS, what, missed);
    assert_int_equal(missed, 0);
    assert_int_equal(kvs_crc32c(0, block.data, LARGE_BLOCK), block.good);
    free(block.data);
}

static void c10_random_bits_in_a_large_block(void **state)
{
    flip_at_random("single bits flipped", 1);
}

static void c10_random_bursts_in_a_large_block(void **state)
{
    flip_at_random("bursts of up to 32 bits", 32);
}

static void c10_random_long_bursts_in_a_large_block(void **state)
{
    flip_at_random("bursts of up to 64 bits", 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c10_every_single_bit_in_1_byte),
        cmocka_unit_test(c10_every_single_bit_in_511_bytes),
        cmocka_unit_test(c10_every_single_bit_in_4095_bytes),
        cmocka_unit_test(c10_every_single_bit_in_4096_bytes),
        cmocka_unit_test(c10_every_single_bit_in_65536_bytes),
        cmocka_unit_test(c10_random_bits_in_a_large_block),
        cmocka_unit_test(c10_random_bursts_in_a_large_block),
        cmocka_unit_test(c10_random_long_bursts_in_a_large_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
