// SPDX-License-Identifier: Apache-2.0
// The counters and histograms.
#include "core/stats.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/clock.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND (1000 * MICROSECOND)
#define SECOND      (1000 * MILLISECOND)

static _Atomic uint64_t counters[KVS_STAT_COUNT];

#define DESCRIBE(counter, family, value1, value2) {KVS_FAMILY_##family, {value1, value2}},
static const struct kvs_stat_description descriptions[] = {KVS_COUNTERS(DESCRIBE)};

void kvs_stats_add(enum kvs_stat stat, uint64_t amount)
{
    atomic_fetch_add_explicit(&counters[stat], amount, memory_order_relaxed);
}

uint64_t kvs_stats_get(enum kvs_stat stat)
{
    return atomic_load_explicit(&counters[stat], memory_order_relaxed);
}

const struct kvs_stat_description *kvs_stats_describe(enum kvs_stat stat)
{
    return &descriptions[stat];
}

/* ---- corrupt blocks ---- */

/* What was refused before, by identity: a later one may take a slot over. */
#define REMEMBERED 16384
static _Atomic uint64_t remembered[REMEMBERED];

static_assert(KVS_STAT_corrupt_empty_failed - KVS_STAT_corrupt_mismatch_removed ==
                  4 * KVS_CAUSE_EMPTY + KVS_ACTION_FAILED,
              "the counters stand in the order of the causes and actions");
static_assert(KVS_STAT_corrupt_blocks_empty - KVS_STAT_corrupt_blocks_mismatch == KVS_CAUSE_EMPTY,
              "the counters stand in the order of the causes");

enum kvs_stat kvs_stat_corruption(enum kvs_corrupt_cause cause, enum kvs_corrupt_action action)
{
    return KVS_STAT_corrupt_mismatch_removed + 4 * cause + action;
}

void kvs_stats_corrupt(enum kvs_corrupt_cause cause, enum kvs_corrupt_action action,
                       uint64_t identity)
{
    identity |= 1; /* 0 is a free slot */
    kvs_stats_add(kvs_stat_corruption(cause, action), 1);
    if (atomic_exchange(&remembered[(identity >> 1) % REMEMBERED], identity) != identity)
        kvs_stats_add(KVS_STAT_corrupt_blocks_mismatch + cause, 1);
}

/* ---- errors ---- */

static _Atomic uint64_t errors[KVS_BACKING_COUNT][KVS_ERRNO_END];

void kvs_stats_backing_error(enum kvs_backing backing, int error)
{
    bool is_known = error < 0 && error > -KVS_ERRNO_END;

    atomic_fetch_add_explicit(&errors[backing][is_known ? -error : 0], 1, memory_order_relaxed);
}

uint64_t kvs_stats_backing_errors(enum kvs_backing backing, int number)
{
    return atomic_load_explicit(&errors[backing][number], memory_order_relaxed);
}

/* ---- times ---- */

const uint64_t kvs_time_bounds[KVS_TIME_BOUNDS] = {
    10 * MICROSECOND,  25 * MICROSECOND,   50 * MICROSECOND,   100 * MICROSECOND, 250 * MICROSECOND,
    500 * MICROSECOND, 1 * MILLISECOND,    2500 * MICROSECOND, 5 * MILLISECOND,   10 * MILLISECOND,
    25 * MILLISECOND,  50 * MILLISECOND,   100 * MILLISECOND,  250 * MILLISECOND, 500 * MILLISECOND,
    1 * SECOND,        2500 * MILLISECOND, 5 * SECOND,         10 * SECOND,       60 * SECOND,
};

static struct {
    _Atomic uint64_t counts[KVS_TIME_BOUNDS + 1];
    _Atomic uint64_t sum_ns;
} timings[KVS_TIMING_COUNT];

void kvs_stats_time(enum kvs_timing timing, uint64_t since)
{
    uint64_t ns = kvs_clock_ns() - since;
    size_t bucket = 0;

    while (bucket < KVS_TIME_BOUNDS && ns > kvs_time_bounds[bucket])
        bucket++;
    atomic_fetch_add_explicit(&timings[timing].counts[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&timings[timing].sum_ns, ns, memory_order_relaxed);
}

void kvs_stats_histogram(enum kvs_timing timing, struct kvs_histogram *histogram_ret)
{
    for (size_t i = 0; i <= KVS_TIME_BOUNDS; i++)
        histogram_ret->counts[i] = atomic_load_explicit(&timings[timing].counts[i],
                                                        memory_order_relaxed);
    histogram_ret->sum_ns = atomic_load_explicit(&timings[timing].sum_ns, memory_order_relaxed);
}
