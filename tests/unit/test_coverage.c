// SPDX-License-Identifier: Apache-2.0
// Coverage against a model that notes the time of each block.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/coverage.h"
#include "core/walk.h"

#define BLOCKS 10000 /* with every second one skipped, more than there is room for */
#define GRAIN  50

static char paths[BLOCKS][32];

static int compare(const void *a, const void *b)
{
    return kvs_walk_compare(a, b);
}

static int set_up(void **state)
{
    for (int i = 0; i < BLOCKS; i++)
        snprintf(paths[i], sizeof(paths[i]), "d%d/%s%d", i % 7, i % 3 ? "x" : "x/", i);
    qsort(paths, BLOCKS, sizeof(paths[0]), compare);
    return 0;
}

static void assert_sorted(const struct kvs_coverage *coverage)
{
    assert_true(coverage->count <= KVS_STRETCHES);
    for (size_t i = 1; i < coverage->count; i++)
        assert_true(kvs_walk_compare(coverage->stretches[i - 1].end, coverage->stretches[i].end) <
                    0);
}

/* Scrubs `steps` blocks from block `from` on, round and round; each takes `pause` seconds. One in
 * `skips` is passed and not checked; 0: none. */
static void scrub_some(struct kvs_coverage *coverage, int64_t *model, int from, int steps,
                       int64_t *now, int64_t pause, int skips)
{
    const char *position = from == 0 ? "" : paths[from - 1];

    for (int i = from; steps > 0; steps--, i = (i + 1) % BLOCKS) {
        if (i == 0 && position[0] != '\0') {
            assert_int_equal(kvs_coverage_advance(coverage, position, NULL, *now, GRAIN), 0);
            position = "";
        }
        *now += pause;
        if (skips == 0 || rand() % skips != 0) {
            model[i] = *now;
            assert_int_equal(kvs_coverage_advance(coverage, position, paths[i], *now, GRAIN), 0);
        }
        position = paths[i];
    }
}

static void scrub(struct kvs_coverage *coverage, int64_t *model, int from, int steps, int64_t *now,
                  int64_t pause)
{
    scrub_some(coverage, model, from, steps, now, pause, 0);
}

/* Never better than the truth; with `slack` >= 0 no more than that worse. */
static void assert_like(const struct kvs_coverage *coverage, const int64_t *model, int64_t slack)
{
    assert_sorted(coverage);
    for (int i = 0; i < BLOCKS; i++) {
        int64_t when = kvs_coverage_when(coverage, paths[i]);

        assert_true(when <= model[i]);
        if (slack >= 0 && model[i] - when > slack)
            fail_msg("%s: %lld, but it was %lld", paths[i], (long long)when, (long long)model[i]);
    }
}

static void a_new_one_covers_nothing(void **state)
{
    struct kvs_coverage coverage = {0};

    assert_int_equal(kvs_coverage_when(&coverage, "a"), 0);
    assert_int_equal(kvs_coverage_when(&coverage, ""), 0);
}

static void round_and_round_it_knows_each_block_to_a_grain(void **state)
{
    struct kvs_coverage coverage = {0};
    int64_t model[BLOCKS] = {0};
    int64_t now = 1000;

    scrub(&coverage, model, 0, BLOCKS / 2, &now, 3);
    assert_like(&coverage, model, GRAIN);
    assert_int_equal(kvs_coverage_when(&coverage, paths[BLOCKS / 2]), 0);
    scrub(&coverage, model, BLOCKS / 2, BLOCKS, &now, 3);
    assert_like(&coverage, model, GRAIN);
    for (int i = 0; i < 7; i++) {
        scrub(&coverage, model, BLOCKS / 2, BLOCKS + 1, &now, 2);
        scrub(&coverage, model, BLOCKS / 2 + 1, BLOCKS - 1, &now, 2);
        assert_like(&coverage, model, GRAIN);
    }
    kvs_coverage_destroy(&coverage);
}

static void at_random_it_never_claims_more_than_the_truth(void **state)
{
    struct kvs_coverage coverage = {0};
    int64_t model[BLOCKS] = {0};
    int64_t now = 1000;

    srand(7);
    for (int i = 0; i < 3000; i++) {
        scrub(&coverage, model, rand() % BLOCKS, rand() % 40 + 1, &now, rand() % 60);
        if (i % 10 == 0)
            assert_like(&coverage, model, -1);
    }
    kvs_coverage_destroy(&coverage);
}

static void what_is_skipped_stays_as_old_as_it_was(void **state)
{
    struct kvs_coverage coverage = {0};
    int64_t model[BLOCKS] = {0};
    int64_t now = 1000;

    srand(8);
    for (int i = 0; i < 4; i++) {
        scrub_some(&coverage, model, 0, BLOCKS, &now, 1, 20);
        assert_like(&coverage, model, GRAIN);
    }
    scrub_some(&coverage, model, 0, BLOCKS, &now, 1, 2); /* more than there is room for */
    assert_like(&coverage, model, -1);
    kvs_coverage_destroy(&coverage);
}

static void much_may_be_skipped(void **state)
{
    struct kvs_coverage coverage = {0};
    int64_t model[BLOCKS] = {0};
    int64_t now = 1000;

    for (int i = 0; i < 3000; i++) {
        now++;
        if (i % 2 != 0)
            continue;
        model[i] = now;
        assert_int_equal(
            kvs_coverage_advance(&coverage, i > 0 ? paths[i - 1] : "", paths[i], now, GRAIN), 0);
    }
    assert_like(&coverage, model, GRAIN);
    kvs_coverage_destroy(&coverage);
}

static void a_pause_makes_no_block_look_fresher(void **state)
{
    struct kvs_coverage coverage = {0};
    int64_t model[BLOCKS] = {0};
    int64_t now = 1000;

    scrub(&coverage, model, 0, 10, &now, 1);
    now += 100000;
    scrub(&coverage, model, 10, 10, &now, 1);
    assert_like(&coverage, model, GRAIN);
    kvs_coverage_destroy(&coverage);
}

static void a_saved_one_is_read_in_order_only(void **state)
{
    struct kvs_coverage coverage = {0};

    assert_int_equal(kvs_coverage_append(&coverage, "a/z", 5), 0);
    assert_int_equal(kvs_coverage_append(&coverage, "a-b", 6), 0); /* behind it in a walk */
    assert_int_equal(kvs_coverage_append(&coverage, "a-b", 7), -EINVAL);
    assert_int_equal(kvs_coverage_append(&coverage, "a", 7), -EINVAL);
    assert_int_equal(kvs_coverage_when(&coverage, "a/zz"), 6);
    for (int i = 2; i < KVS_STRETCHES; i++) {
        char path[16];
        snprintf(path, sizeof(path), "b%04d", i);
        assert_int_equal(kvs_coverage_append(&coverage, path, 1), 0);
    }
    assert_int_equal(kvs_coverage_append(&coverage, "c", 1), -EINVAL);
    kvs_coverage_destroy(&coverage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_one_covers_nothing),
        cmocka_unit_test(round_and_round_it_knows_each_block_to_a_grain),
        cmocka_unit_test(at_random_it_never_claims_more_than_the_truth),
        cmocka_unit_test(what_is_skipped_stays_as_old_as_it_was),
        cmocka_unit_test(much_may_be_skipped),
        cmocka_unit_test(a_pause_makes_no_block_look_fresher),
        cmocka_unit_test(a_saved_one_is_read_in_order_only),
    };

    return cmocka_run_group_tests_name("coverage", tests, set_up, NULL);
}
