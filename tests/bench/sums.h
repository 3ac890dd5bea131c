// SPDX-License-Identifier: Apache-2.0
// What kvseal's sum is compared with: vLLM's way to sum, and a plain read of memory.
#ifndef KVSEAL_BENCH_SUMS_H
#define KVSEAL_BENCH_SUMS_H

#include <stddef.h>
#include <stdint.h>

/* CRC32C with one stream of the CPU's own instruction; in plain C where the CPU has none. */
uint32_t stream_crc32c(const void *data, size_t len);

/* Adds up all words, as fast as memory can be read. `data` at a multiple of 64, as is `len`. */
uint64_t read_memory(const void *data, size_t len);

#endif
