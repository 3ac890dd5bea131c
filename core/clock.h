// SPDX-License-Identifier: Apache-2.0
// Time as it passes, and the moments until which threads wait.
#ifndef KVSEAL_CORE_CLOCK_H
#define KVSEAL_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Of CLOCK_MONOTONIC: only differences mean something. */
uint64_t kvs_clock_ns(void);
int64_t kvs_clock_ms(void);

/* The moment `ms` from now, of CLOCK_REALTIME: for pthread_cond_timedwait() on a condition variable
 * with default attributes, and for pthread_timedjoin_np(). */
struct timespec kvs_clock_deadline(uint64_t ms);

/* Sleeps all of that, whatever signals come meanwhile. */
void kvs_clock_sleep(uint64_t ns);

#endif
