// SPDX-License-Identifier: Apache-2.0
// The work queue: every item once, by the workers that were asked for, bounded.
#include "core/queue.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ITEMS   20000
#define WORKERS 4

struct tally {
    atomic_uint seen[ITEMS];
    atomic_uint by_worker[WORKERS];
    atomic_uint last; /* of one worker: the order */
    atomic_bool is_ordered;
    pthread_barrier_t *barrier;
};

static void count(void *context, unsigned worker, void *item)
{
    struct tally *tally = context;
    unsigned number = *(unsigned *)item;

    tally->seen[number]++;
    tally->by_worker[worker]++;
    if (number != 0 && number <= atomic_exchange(&tally->last, number))
        tally->is_ordered = false;
}

static void run(struct tally *tally, unsigned workers, unsigned capacity, unsigned items)
{
    struct kvs_queue_work work = {.work = count,
                                  .context = tally,
                                  .item_size = sizeof(unsigned),
                                  .workers = workers,
                                  .capacity = capacity};
    struct kvs_queue *queue = NULL;

    tally->is_ordered = true;
    assert_int_equal(kvs_queue_create(&work, &queue), 0);
    for (unsigned i = 0; i < items; i++)
        kvs_queue_put(queue, &i);
    kvs_queue_destroy(queue);
    for (unsigned i = 0; i < items; i++)
        assert_int_equal(tally->seen[i], 1);
}

static void each_item_once(void **state)
{
    static const unsigned capacities[] = {1, 2, 3, 64};

    for (size_t i = 0; i < sizeof(capacities) / sizeof(*capacities); i++) {
        for (unsigned workers = 1; workers <= WORKERS; workers++) {
            struct tally *tally = calloc(1, sizeof(*tally));
            assert_non_null(tally);
            run(tally, workers, capacities[i], ITEMS);
            assert_true(workers > 1 || tally->is_ordered);
            free(tally);
        }
    }
}

static void an_empty_queue_ends(void **state)
{
    struct tally *tally = calloc(1, sizeof(*tally));

    assert_non_null(tally);
    run(tally, WORKERS, 8, 0);
    free(tally);
}

static void meet(void *context, unsigned worker, void *item)
{
    struct tally *tally = context;

    pthread_barrier_wait(tally->barrier);
    tally->by_worker[worker]++;
}

/* The barrier opens only when all of them work at once. */
static void workers_work_at_once(void **state)
{
    pthread_barrier_t barrier;
    struct tally *tally = calloc(1, sizeof(*tally));
    struct kvs_queue_work work = {
        .work = meet, .context = tally, .item_size = 1, .workers = WORKERS, .capacity = 1};
    struct kvs_queue *queue = NULL;

    assert_non_null(tally);
    pthread_barrier_init(&barrier, NULL, WORKERS);
    tally->barrier = &barrier;
    assert_int_equal(kvs_queue_create(&work, &queue), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        kvs_queue_put(queue, "");
    kvs_queue_destroy(queue);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(tally->by_worker[i], 1);
    pthread_barrier_destroy(&barrier);
    free(tally);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_once),
        cmocka_unit_test(an_empty_queue_ends),
        cmocka_unit_test(workers_work_at_once),
    };

    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
