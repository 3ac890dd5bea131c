// SPDX-License-Identifier: Apache-2.0
// The digest of files that are cut, grow, have holes, or are larger than it can remember.
#include "core/digest.h"

#include "tests/unit/digests.h"

static void c06_truncate_cuts(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write inside;
    struct kvs_digest_write crossing;

    write_range(d, 0, 100);
    write_range(d, 200, 100);
    kvs_digest_truncate(d, 250);
    assert_sum_of(d, 100);
    write_range(d, 100, 100);
    assert_true(kvs_digest_is_written(d, 250));
    assert_false(kvs_digest_is_written(d, 251));
    assert_gap(d, 0, 250, 200, 50);

    kvs_digest_begin(d, 0, 100, &inside);
    kvs_digest_begin(d, 100, 100, &crossing);
    kvs_digest_truncate(d, 150);
    end_write(d, &inside, 100);
    end_write(d, &crossing, 100);
    assert_sum_of(d, 100);
    assert_gap(d, 0, 150, 100, 50);
}

static void c03_truncate_to_zero_starts_anew(void **state)
{
    struct kvs_digest *d = *state;

    write_range(d, 0, 1000);
    kvs_digest_truncate(d, 0);
    assert_sum_of(d, 0);
    assert_true(kvs_digest_is_written(d, 0));
    assert_false(kvs_digest_is_written(d, 1));
    write_range(d, 0, 10);
    assert_sum_of(d, 10);
    assert_true(kvs_digest_is_written(d, 10));
}

static void c06_holes_are_known_zeros(void **state)
{
    struct kvs_digest *d = *state;

    memset(content + 100, 0, 900);
    write_range(d, 0, 100);
    kvs_digest_extend(d, 100, 1000);
    assert_sum_of(d, 1000);
    assert_true(kvs_digest_is_written(d, 1000));
    kvs_digest_truncate(d, 400); /* a hole can be cut */
    assert_sum_of(d, 400);
    kvs_digest_extend(d, 400, 1000);
    assert_sum_of(d, 1000);
    content[500] = 1;
    write_range(d, 500, 10);
    assert_sum_of(d, 1000);
    kvs_digest_extend(d, 1000, 1000);
    assert_sum_of(d, 1000);
}

/* io_uring writers fill a file from anywhere: each write beyond the end makes a hole. */
static void c06_random_order_with_holes(void **state)
{
    struct kvs_digest *d = *state;
    size_t order[CHUNKS];
    size_t size = 0;

    shuffle(order, CHUNKS);
    for (size_t i = 0; i < CHUNKS; i++) {
        size_t offset = order[i] * CHUNK;

        if (offset > size)
            kvs_digest_extend(d, size, offset);
        size = offset + CHUNK > size ? offset + CHUNK : size;
        write_range(d, offset, CHUNK);
        assert_true(kvs_digest_is_written(d, size));
        assert_no_gap(d, 0, size);
    }
    assert_sum_of(d, FILE_SIZE);
}

static void c06_growth_claims_nothing_that_was_written(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write a;
    struct kvs_digest_write b;

    kvs_digest_begin(d, 0, 50, &a);
    kvs_digest_begin(d, 40, 20, &b); /* tears a */
    kvs_digest_end(d, &a, 50, 0, true);
    kvs_digest_extend(d, 0, 100);
    assert_gap(d, 0, 100, 0, 60);
    end_write(d, &b, 20);
    assert_gap(d, 0, 100, 0, 60);
    assert_no_gap(d, 60, 100);
}

static void c06_gaps_are_found_in_turn(void **state)
{
    struct kvs_digest *d = *state;

    write_range(d, 100, 100);
    write_range(d, 300, 100);
    assert_gap(d, 0, 500, 0, 100);
    assert_gap(d, 50, 500, 50, 50);
    assert_gap(d, 100, 500, 200, 100);
    assert_gap(d, 150, 250, 200, 50);
    assert_gap(d, 300, 500, 400, 100);
    assert_no_gap(d, 300, 400);
    learn_gaps(d, 500);
    assert_sum_of(d, 500);
    assert_int_equal(d->summed.count, 1);
}

static void write_zeros(struct kvs_digest *d, uint64_t offset, uint64_t len)
{
    struct kvs_digest_write w;

    kvs_digest_begin(d, offset, len, &w);
    kvs_digest_end(d, &w, len, kvs_crc32c_zeros(len), true);
}

/* The neighbours of what is cut were joined with it once, and had to be read back. */
static void c06_a_change_forgets_only_the_piece_that_it_cuts(void **state)
{
    struct kvs_digest *d = *state;
    const uint64_t unit = KVS_DIGEST_UNIT;
    uint32_t crc = 0;

    write_zeros(d, unit, 4096);
    write_zeros(d, 0, unit);
    write_zeros(d, unit, unit);
    assert_true(kvs_digest_sum(d, 2 * unit, &crc));
    assert_int_equal(crc, kvs_crc32c_zeros(2 * unit));
    write_zeros(d, unit + 5, 10);
    assert_gap(d, 0, 2 * unit, unit, 5);
    assert_gap(d, unit + 5, 2 * unit, unit + 15, unit - 15);
}

/* A file of more units than there may be pieces. */
static void c06_a_large_file_in_order_is_known(void **state)
{
    struct kvs_digest *d = *state;
    const uint64_t units = 3 * KVS_DIGEST_MAX;
    uint32_t crc = 0;

    for (uint64_t i = 0; i < units; i++)
        write_zeros(d, i * KVS_DIGEST_UNIT, KVS_DIGEST_UNIT);
    assert_true(d->summed.count <= KVS_DIGEST_MAX);
    assert_true(kvs_digest_sum(d, units * KVS_DIGEST_UNIT, &crc));
    assert_int_equal(crc, kvs_crc32c_zeros(units * KVS_DIGEST_UNIT));
}

/* One byte in two: no two ranges join. */
static void c06_memory_is_bounded(void **state)
{
    struct kvs_digest *d = *state;

    write_range(d, 0, 1);
    for (size_t i = 1; i < KVS_DIGEST_MAX; i++)
        write_range(d, 2 * i, 1);
    assert_int_equal(d->summed.count, KVS_DIGEST_MAX);
    assert_true(kvs_digest_is_written(d, 1));
    write_range(d, 2 * KVS_DIGEST_MAX, 1);
    assert_true(d->summed.count <= KVS_DIGEST_MAX && d->written.count <= KVS_DIGEST_MAX);
    assert_false(kvs_digest_is_written(d, 1));
    learn_gaps(d, FILE_SIZE);
    assert_sum_of(d, FILE_SIZE);
    write_range(d, 0, FILE_SIZE);
    assert_true(kvs_digest_is_written(d, FILE_SIZE));
}

/* Cutting a hole in two needs room as well. */
static void c06_memory_is_bounded_in_a_hole(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;

    memset(content, 0, sizeof(content));
    kvs_digest_extend(d, 0, FILE_SIZE);
    for (size_t i = 0; i < 2 * KVS_DIGEST_MAX; i++) {
        kvs_digest_begin(d, 4 * i + 1, 1, &w);
        kvs_digest_end(d, &w, 0, 0, false);
        assert_true(d->summed.count <= KVS_DIGEST_MAX);
    }
    learn_gaps(d, FILE_SIZE);
    assert_sum_of(d, FILE_SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        digest_test(c06_truncate_cuts),
        digest_test(c03_truncate_to_zero_starts_anew),
        digest_test(c06_holes_are_known_zeros),
        digest_test(c06_random_order_with_holes),
        digest_test(c06_growth_claims_nothing_that_was_written),
        digest_test(c06_gaps_are_found_in_turn),
        digest_test(c06_a_change_forgets_only_the_piece_that_it_cuts),
        digest_test(c06_a_large_file_in_order_is_known),
        digest_test(c06_memory_is_bounded),
        digest_test(c06_memory_is_bounded_in_a_hole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
