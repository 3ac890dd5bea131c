// SPDX-License-Identifier: Apache-2.0
// The digest: what arrives in any order, torn, short or twice is known, or known to be unknown.
#include "core/digest.h"

#include "tests/unit/digests.h"

#define THREADS 8

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

static void c06_another_digest_goes_on(void **state)
{
    struct kvs_digest *d = *state, next;
    struct kvs_digest_list written, summed;

    for (size_t i = 0; i < CHUNKS; i += 2)
        write_range(d, i * CHUNK, CHUNK);
    kvs_digest_init(&next);
    kvs_digest_save(d, &written, &summed);
    kvs_digest_restore(&next, &written, &summed);
    assert_gap(&next, 0, FILE_SIZE, CHUNK, CHUNK);
    for (size_t i = 1; i < CHUNKS; i += 2)
        write_range(&next, i * CHUNK, CHUNK);
    assert_sum_of(&next, FILE_SIZE);
    assert_true(kvs_digest_is_written(&next, FILE_SIZE));

    struct kvs_digest_range overlapping[] = {{.end = 10}, {.offset = 5, .end = 20}};
    struct kvs_digest_list bad = {.ranges = overlapping, .count = 2};
    kvs_digest_restore(&next, &bad, &bad);
    assert_gap(&next, 0, 20, 0, 20);
    assert_false(kvs_digest_is_written(&next, 1));
    kvs_digest_destroy(&next);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        digest_test(c06_nothing_is_known_at_first),
        digest_test(c06_in_order_is_one_piece),
        digest_test(c06_another_digest_goes_on),
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
