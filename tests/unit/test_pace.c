// SPDX-License-Identifier: Apache-2.0
// The pace, with a clock of our own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/pace.h"

#define SECOND UINT64_C(1000000000)
#define MIB    ((uint64_t)1 << 20)

/* Reads pieces for `seconds`, each of which takes `cost` nanoseconds by itself. Bytes a second. */
static double read_for(struct kvs_pace *pace, uint64_t *now, uint64_t seconds, uint64_t piece,
                       uint64_t cost)
{
    uint64_t began = *now;
    uint64_t bytes = 0;

    while (*now - began < seconds * SECOND) {
        *now += kvs_pace_wait(pace, *now);
        kvs_pace_spend(pace, piece);
        bytes += piece;
        *now += cost;
    }
    return (double)bytes * SECOND / (double)(*now - began);
}

static void assert_near(double value, double expected)
{
    if (value < 0.99 * expected || value > 1.01 * expected)
        fail_msg("%f is not about %f", value, expected);
}

static void a_rate_is_kept_whatever_reads_cost(void **state)
{
    static const uint64_t rates[] = {MIB, 7 * MIB, 200 * MIB, 3000 * MIB};

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        struct kvs_pace pace = {0};
        uint64_t now = 12345;
        uint64_t own = SECOND * MIB / rates[i]; /* of a piece at this rate */

        kvs_pace_set_rate(&pace, rates[i], now);
        assert_near(read_for(&pace, &now, 600, MIB, 0), (double)rates[i]);
        assert_near(read_for(&pace, &now, 600, MIB, own / 2), (double)rates[i]);
        assert_near(read_for(&pace, &now, 600, MIB, own * 99 / 100), (double)rates[i]);
        assert_near(read_for(&pace, &now, 600, MIB / 256, 0), (double)rates[i]);
        assert_near(read_for(&pace, &now, 600, MIB, own * 2), (double)rates[i] / 2); /* device */
    }
}

static void a_short_stall_is_caught_up_and_a_long_one_is_not(void **state)
{
    struct kvs_pace pace = {0};
    uint64_t now = SECOND;

    kvs_pace_set_rate(&pace, 100 * MIB, now);
    read_for(&pace, &now, 10, MIB, 0);
    now += SECOND / 10;
    assert_near(read_for(&pace, &now, 1, MIB, 0), 110.0 * MIB);
    now += 3600 * SECOND;
    assert_near(read_for(&pace, &now, 1, MIB, 0), 126.0 * MIB);
}

static void a_new_rate_counts_at_once(void **state)
{
    struct kvs_pace pace = {0};
    uint64_t now = 0;

    kvs_pace_set_rate(&pace, 1, now);
    kvs_pace_spend(&pace, MIB); /* twelve days at this rate */
    assert_int_equal(kvs_pace_wait(&pace, now), 3600 * SECOND);
    kvs_pace_set_rate(&pace, 2 * MIB, now);
    assert_int_equal(kvs_pace_wait(&pace, now), SECOND / 2);
}

static void without_a_rate_nobody_waits(void **state)
{
    struct kvs_pace pace = {0};

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(kvs_pace_wait(&pace, SECOND), 0);
        kvs_pace_spend(&pace, MIB);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_kept_whatever_reads_cost),
        cmocka_unit_test(a_short_stall_is_caught_up_and_a_long_one_is_not),
        cmocka_unit_test(a_new_rate_counts_at_once),
        cmocka_unit_test(without_a_rate_nobody_waits),
    };

    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
