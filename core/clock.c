// SPDX-License-Identifier: Apache-2.0
// Reads the clocks, and sleeps by them.
#include "core/clock.h"

#include <errno.h>

#define SECOND_NS 1000000000
#define MS_NS     1000000

uint64_t kvs_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

int64_t kvs_clock_ms(void)
{
    return (int64_t)(kvs_clock_ns() / MS_NS);
}

struct timespec kvs_clock_deadline(uint64_t ms)
{
    struct timespec moment;

    clock_gettime(CLOCK_REALTIME, &moment);
    moment.tv_sec += (time_t)(ms / 1000);
    moment.tv_nsec += (long)(ms % 1000) * MS_NS;
    moment.tv_sec += moment.tv_nsec / SECOND_NS;
    moment.tv_nsec %= SECOND_NS;
    return moment;
}

void kvs_clock_sleep(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}
