// SPDX-License-Identifier: Apache-2.0
// The pace of a reader: so many bytes a second on average, whatever single reads take.
//
// A token bucket, seen as a debt: what was read is owed, and paid off at `rate`. Who owes waits.
// What was not used in a stall may be caught up, but no more than a quarter of a second's worth.
// The clock is the caller's (CLOCK_MONOTONIC), in nanoseconds.
#ifndef KVSEAL_CORE_PACE_H
#define KVSEAL_CORE_PACE_H

#include <stdint.h>

struct kvs_pace {
    uint64_t rate; /* bytes a second; 0: no limit */
    double debt;   /* bytes, as of `settled_at`; negative: credit */
    uint64_t settled_at;
};

/* May be called at any time: what is owed until now was paid off at the old rate. */
void kvs_pace_set_rate(struct kvs_pace *pace, uint64_t rate, uint64_t now);

/* How long to wait before the next read, 0: not at all. Ask again after a long wait: the rate may
 * have changed. */
uint64_t kvs_pace_wait(struct kvs_pace *pace, uint64_t now);

void kvs_pace_spend(struct kvs_pace *pace, uint64_t bytes);

#endif
