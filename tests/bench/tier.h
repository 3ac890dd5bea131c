// SPDX-License-Identifier: Apache-2.0
// Plays a tier of an LLM server: stores and loads whole blocks, as vLLM's fs tier does.
#ifndef KVSEAL_BENCH_TIER_H
#define KVSEAL_BENCH_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/parallel.h"
#include "tests/bench/side.h"

struct tier_job {
    const struct side *side;
    bool is_store;
    bool direct; /* O_DIRECT */
    size_t size;
    unsigned threads;
    uint64_t first;  /* the number of the first block */
    uint64_t blocks; /* after so many it begins again at the first; 0: a new one each time */
    double seconds;  /* as in struct parallel */
    uint64_t least_ops;
    uint64_t most_ops;
};

/* Memory for the largest job: plain 4 KiB pages, as the tensors that tiers move lie in. */
void tier_prepare(size_t most_size, unsigned most_threads);

/* The caller frees result_ret->latencies. Dies where an operation fails or a block is wrong. */
void tier_run(const struct tier_job *job, struct parallel_result *result_ret);

/* Stores blocks first .. first + count - 1, not measured: past the page cache, or into it. */
void tier_fill(const struct side *side, size_t size, uint64_t first, uint64_t count, bool direct);

#endif
