// SPDX-License-Identifier: Apache-2.0
// Calls one operation from several threads for a while, and takes the time of each call.
#ifndef KVSEAL_BENCH_PARALLEL_H
#define KVSEAL_BENCH_PARALLEL_H

#include <stdint.h>

#include "tests/bench/samples.h"

struct parallel {
    unsigned threads;
    double seconds;     /* the end, but not before ... */
    uint64_t least_ops; /* ... so many calls were begun ... */
    uint64_t most_ops;  /* ... and at the latest after these; 0: no limit */
    /* Called with numbers from 0; after the end a few may have been left out. */
    void (*op)(void *context, unsigned thread, uint64_t number);
    void *context;
};

struct parallel_result {
    uint64_t ops;             /* calls made */
    uint64_t numbers;         /* all numbers used are below */
    double seconds;           /* from the start to the end of the last call */
    double cpu;               /* CPU seconds of this process meanwhile */
    struct samples latencies; /* seconds of each call, of the first 65536 a thread */
};

/* The caller frees result_ret->latencies. */
void parallel_run(const struct parallel *work, struct parallel_result *result_ret);

#endif
