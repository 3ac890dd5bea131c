// SPDX-License-Identifier: Apache-2.0
// The digest: writes in every order and overlap, cuts, growth, restarts, its bound.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/digest.h"

#define CHUNK     ((size_t)512)
#define CHUNKS    ((size_t)256)
#define FILE_SIZE (CHUNK * CHUNKS)
#define THREADS   8

static unsigned char content[FILE_SIZE];
static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t random_below(size_t limit)
{
    return (size_t)((next_random() >> 16) % limit);
}

/* Every test has a digest that knows nothing, and content of its own. */
static int set_up(void **state)
{
    static struct kvs_digest digest;

    random_state = 88172645463325252u;
    for (size_t i = 0; i < FILE_SIZE; i++)
        content[i] = (unsigned char)(next_random() >> 32);
    kvs_digest_init(&digest);
    *state = &digest;
    return 0;
}

static int tear_down(void **state)
{
    kvs_digest_destroy(*state);
    return 0;
}

static void end_write(struct kvs_digest *d, struct kvs_digest_write *w, size_t len)
{
    kvs_digest_end(d, w, len, kvs_crc32c(0, content + w->offset, len), true);
}

static void write_range(struct kvs_digest *d, size_t offset, size_t len)
{
    struct kvs_digest_write w;

    kvs_digest_begin(d, offset, len, &w);
    end_write(d, &w, len);
}

static void learn_range(struct kvs_digest *d, size_t offset, size_t len)
{
    kvs_digest_learn(d, offset, len, kvs_crc32c(0, content + offset, len), kvs_digest_changes(d));
}

static void assert_sum_of(struct kvs_digest *d, size_t size)
{
    uint32_t crc = 1;

    assert_true(kvs_digest_sum(d, size, &crc));
    assert_int_equal(crc, kvs_crc32c(0, content, size));
}

static void assert_no_sum(struct kvs_digest *d, size_t size)
{
    uint32_t crc;

    assert_false(kvs_digest_sum(d, size, &crc));
}

static void assert_gap(struct kvs_digest *d, size_t from, size_t size, size_t offset, size_t len)
{
    uint64_t gap_offset = 0;
    uint64_t gap_len = 0;

    assert_true(kvs_digest_next_gap(d, from, size, &gap_offset, &gap_len));
    assert_int_equal(gap_offset, offset);
    assert_int_equal(gap_len, len);
}

static void assert_no_gap(struct kvs_digest *d, size_t from, size_t size)
{
    uint64_t offset;
    uint64_t len;

    assert_false(kvs_digest_next_gap(d, from, size, &offset, &len));
}

/* What seal does: reads back what has no sum. */
static void learn_gaps(struct kvs_digest *d, size_t size)
{
    uint64_t offset = 0;
    uint64_t len;

    while (kvs_digest_next_gap(d, offset, size, &offset, &len))
        learn_range(d, (size_t)offset, (size_t)len);
}

static void shuffle(size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t other = random_below(i);
        size_t swapped = order[i - 1];

        order[i - 1] = order[other];
        order[other] = swapped;
    }
}

static void c06_nothing_is_known_at_first(void **state)
{
    assert_sum_of(*state, 0);
    assert_true(kvs_digest_is_written(*state, 0));
    assert_no_sum(*state, 1);
    assert_false(kvs_digest_is_written(*state, 1));
    assert_gap(*state, 3, 10, 3, 7);
    assert_no_gap(*state, 10, 10);
}

static void c06_in_order_is_one_piece(void **state)
{
    struct kvs_digest *d = *state;

    for (size_t i = 0; i < CHUNKS; i++) {
        write_range(d, i * CHUNK, CHUNK);
        assert_sum_of(d, (i + 1) * CHUNK);
        assert_true(kvs_digest_is_written(d, (i + 1) * CHUNK));
        assert_int_equal(d->summed.count, 1);
    }
    assert_no_sum(d, FILE_SIZE - 1); /* a piece reaches beyond it */
    assert_no_sum(d, FILE_SIZE + 1);
    assert_false(kvs_digest_is_written(d, FILE_SIZE + 1));
}

static void c06_backwards_is_one_piece(void **state)
{
    struct kvs_digest *d = *state;

    for (size_t i = CHUNKS; i-- > 0;) {
        assert_no_sum(d, FILE_SIZE);
        write_range(d, i * CHUNK, CHUNK);
        assert_int_equal(d->summed.count, 1);
    }
    assert_sum_of(d, FILE_SIZE);
    assert_true(kvs_digest_is_written(d, FILE_SIZE));
}

static void c06_random_order(void **state)
{
    struct kvs_digest *d = *state;
    size_t order[CHUNKS];

    shuffle(order, CHUNKS);
    for (size_t i = 0; i < CHUNKS; i++) {
        assert_no_sum(d, FILE_SIZE);
        assert_false(kvs_digest_is_written(d, FILE_SIZE));
        write_range(d, order[i] * CHUNK, CHUNK);
    }
    assert_sum_of(d, FILE_SIZE);
    assert_true(kvs_digest_is_written(d, FILE_SIZE));
    assert_int_equal(d->summed.count, 1);
}

static void c06_many_in_flight_end_in_another_order(void **state)
{
    struct kvs_digest *d = *state;
    static struct kvs_digest_write writes[CHUNKS];
    size_t order[CHUNKS];

    for (size_t i = 0; i < CHUNKS; i++)
        kvs_digest_begin(d, i * CHUNK, CHUNK, &writes[i]);
    shuffle(order, CHUNKS);
    for (size_t i = 0; i < CHUNKS; i++)
        end_write(d, &writes[order[i]], CHUNK);
    assert_sum_of(d, FILE_SIZE);
}

struct thread_task {
    struct kvs_digest *digest;
    const size_t *order; /* of the chunks it writes */
    size_t count;
};

static void *write_chunks(void *argument)
{
    const struct thread_task *task = argument;

    for (size_t i = 0; i < task->count; i++)
        write_range(task->digest, task->order[i] * CHUNK, CHUNK);
    return NULL;
}

static void c06_parallel_threads(void **state)
{
    struct kvs_digest *d = *state;
    size_t order[CHUNKS];

    for (int round = 0; round < 50; round++) {
        pthread_t threads[THREADS];
        struct thread_task tasks[THREADS];

        shuffle(order, CHUNKS);
        kvs_digest_restart(d);
        for (size_t i = 0; i < THREADS; i++) {
            tasks[i] = (struct thread_task){d, order + i * (CHUNKS / THREADS), CHUNKS / THREADS};
            assert_int_equal(pthread_create(&threads[i], NULL, write_chunks, &tasks[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_sum_of(d, FILE_SIZE);
        assert_true(kvs_digest_is_written(d, FILE_SIZE));
    }
}

static void c06_overlapping_writes_in_flight_are_torn(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write a;
    struct kvs_digest_write b;
    struct kvs_digest_write c;

    kvs_digest_begin(d, 0, 100, &a);
    kvs_digest_begin(d, 99, 101, &b);
    kvs_digest_begin(d, 200, 100, &c); /* touches b, overlaps nothing */
    end_write(d, &b, 101);
    end_write(d, &a, 100);
    end_write(d, &c, 100);
    assert_true(kvs_digest_is_written(d, 300));
    assert_gap(d, 0, 300, 0, 200);
    assert_no_gap(d, 200, 300);
    learn_gaps(d, 300);
    assert_sum_of(d, 300);
}

static void c06_same_range_one_after_the_other_is_certain(void **state)
{
    struct kvs_digest *d = *state;

    for (int round = 0; round < 3; round++) {
        content[7] ^= 1;
        write_range(d, 0, 100);
        assert_sum_of(d, 100);
    }
}

static void c06_a_partial_rewrite_drops_the_piece(void **state)
{
    struct kvs_digest *d = *state;

    write_range(d, 0, 1000);
    content[500] ^= 1;
    write_range(d, 500, 10);
    assert_no_sum(d, 1000);
    assert_gap(d, 0, 1000, 0, 500);
    assert_gap(d, 500, 1000, 510, 490);
    learn_gaps(d, 1000);
    assert_sum_of(d, 1000);
}

static void c06_no_sum_while_a_write_is_in_flight(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;

    write_range(d, 0, 1000);
    kvs_digest_begin(d, 500, 10, &w);
    assert_no_sum(d, 1000);
    end_write(d, &w, 10);
    assert_no_sum(d, 1000);
}

static void c06_short_failed_and_unsummed_writes(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;

    kvs_digest_begin(d, 0, 100, &w);
    end_write(d, &w, 60);
    assert_sum_of(d, 60);
    assert_false(kvs_digest_is_written(d, 61));
    kvs_digest_begin(d, 60, 40, &w);
    kvs_digest_end(d, &w, 40, 0, false);
    assert_true(kvs_digest_is_written(d, 100));
    assert_gap(d, 0, 100, 60, 40);
    learn_gaps(d, 100);
    kvs_digest_begin(d, 50, 10, &w);
    kvs_digest_end(d, &w, 0, 0, false);
    assert_no_sum(d, 100); /* who knows what a failed write left */
}

static void c06_a_change_to_the_end_of_the_file(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;

    write_range(d, 0, 100);
    write_range(d, 200, 100);
    kvs_digest_begin(d, 150, UINT64_MAX, &w);
    kvs_digest_end(d, &w, UINT64_MAX, 0, false);
    assert_sum_of(d, 100);
    assert_false(kvs_digest_is_written(d, 300));
    write_range(d, 100, 50);
    assert_true(kvs_digest_is_written(d, UINT64_MAX));
}

static void c06_learned_only_if_nothing_changed(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;
    uint64_t before = kvs_digest_changes(d);

    kvs_digest_learn(d, 0, 100, kvs_crc32c(0, content, 100), before);
    assert_sum_of(d, 100);
    assert_false(kvs_digest_is_written(d, 1));

    /* begun and over while the reader read: what it has may be old */
    kvs_digest_begin(d, 0, 50, &w);
    kvs_digest_end(d, &w, 50, 0, false);
    kvs_digest_learn(d, 0, 100, kvs_crc32c(0, content, 100), before);
    assert_no_sum(d, 100);

    /* over while the reader read */
    kvs_digest_begin(d, 0, 50, &w);
    before = kvs_digest_changes(d);
    kvs_digest_end(d, &w, 50, 0, false);
    kvs_digest_learn(d, 0, 100, kvs_crc32c(0, content, 100), before);
    assert_no_sum(d, 100);

    /* still in flight */
    kvs_digest_begin(d, 99, 50, &w);
    before = kvs_digest_changes(d);
    kvs_digest_learn(d, 0, 100, kvs_crc32c(0, content, 100), before);
    assert_no_sum(d, 100);
    kvs_digest_learn(d, 0, 99, kvs_crc32c(0, content, 99), before);
    assert_sum_of(d, 99);
    kvs_digest_end(d, &w, 0, 0, false);
}

static void c03_restart_forgets_all_and_what_is_in_flight(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;

    write_range(d, 0, 1000);
    kvs_digest_begin(d, 1000, 100, &w);
    kvs_digest_restart(d);
    end_write(d, &w, 100);
    assert_gap(d, 0, 1100, 0, 1100);
    write_range(d, 0, 1000);
    assert_sum_of(d, 1000);
    assert_true(kvs_digest_is_written(d, 1000));
    assert_false(kvs_digest_is_written(d, 1001));
    write_range(d, 1000, 100);
    assert_true(kvs_digest_is_written(d, 1100));
}

static void c06_forgotten_sums_leave_written(void **state)
{
    struct kvs_digest *d = *state;
    struct kvs_digest_write w;

    write_range(d, 0, 1000);
    kvs_digest_begin(d, 1000, 100, &w);
    kvs_digest_forget_sums(d);
    end_write(d, &w, 100);
    assert_gap(d, 0, 1100, 0, 1100);
    assert_true(kvs_digest_is_written(d, 1100));
}

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

#define digest_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        digest_test(c06_nothing_is_known_at_first),
        digest_test(c06_in_order_is_one_piece),
        digest_test(c06_backwards_is_one_piece),
        digest_test(c06_random_order),
        digest_test(c06_many_in_flight_end_in_another_order),
        digest_test(c06_parallel_threads),
        digest_test(c06_overlapping_writes_in_flight_are_torn),
        digest_test(c06_same_range_one_after_the_other_is_certain),
        digest_test(c06_a_partial_rewrite_drops_the_piece),
        digest_test(c06_no_sum_while_a_write_is_in_flight),
        digest_test(c06_short_failed_and_unsummed_writes),
        digest_test(c06_a_change_to_the_end_of_the_file),
        digest_test(c06_learned_only_if_nothing_changed),
        digest_test(c03_restart_forgets_all_and_what_is_in_flight),
        digest_test(c06_forgotten_sums_leave_written),
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
