// SPDX-License-Identifier: Apache-2.0
// Counts what a reader owes.
#include "core/pace.h"

#include "core/util.h"

#define SECOND    1e9
#define CATCH_UP  0.25 /* seconds */
#define MOST_WAIT 3600 /* seconds; keeps the arithmetic in range */

static void settle(struct kvs_pace *pace, uint64_t now)
{
    double elapsed = (double)(now - pace->settled_at) / SECOND;

    pace->debt -= elapsed * (double)pace->rate;
    pace->debt = KVS_MAX(pace->debt, -CATCH_UP * (double)pace->rate);
    pace->settled_at = now;
}

void kvs_pace_set_rate(struct kvs_pace *pace, uint64_t rate, uint64_t now)
{
    settle(pace, now);
    pace->rate = rate;
}

uint64_t kvs_pace_wait(struct kvs_pace *pace, uint64_t now)
{
    if (pace->rate == 0)
        return 0;
    settle(pace, now);
    if (pace->debt <= 0)
        return 0;
    return (uint64_t)(KVS_MIN(pace->debt / (double)pace->rate, MOST_WAIT) * SECOND);
}

void kvs_pace_spend(struct kvs_pace *pace, uint64_t bytes)
{
    if (pace->rate > 0)
        pace->debt += (double)bytes;
}
