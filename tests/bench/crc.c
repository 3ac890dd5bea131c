// SPDX-License-Identifier: Apache-2.0
// CRC32C of blocks that are in the CPU's caches and of blocks that are not, against reading them.
#include "tests/bench/measure.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/crc32c.h"
#include "core/util.h"
#include "tests/bench/sums.h"

#define COLD_BYTES  ((size_t)256 << 20) /* far more than caches hold */
#define SLICE_BYTES ((size_t)64 << 20)  /* of what is slow */

static uint64_t sum_once(enum summer summer, const void *block, size_t size)
{
    switch (summer) {
    case SUM_READ:
        return read_memory(block, size);
    case SUM_FAST:
        return kvs_crc32c(0, block, size);
    case SUM_STREAM:
        return stream_crc32c(block, size);
    default:
        return kvs_crc32c_portable(0, block, size);
    }
}

/* GB/s over `total` bytes: block after block of the memory, or always the first. */
static double time_sums(enum summer summer, const unsigned char *memory, size_t size, bool cold,
                        size_t total)
{
    uint64_t sum = 0;

    if (!cold)
        sum += sum_once(summer, memory, size);
    double start = seconds_now();
    for (size_t at = 0; at + size <= total; at += size)
        sum += sum_once(summer, memory + (cold ? at : 0), size);
    __asm__ volatile("" : : "r"(sum)); /* or the compiler finds that nobody needs it */
    double seconds = seconds_now() - start;
    return (double)total / 1e9 / seconds;
}

static void measure_row(struct crc_row *row, const unsigned char *memory, unsigned rounds)
{
    struct samples rates[SUMMERS] = {{0}};

    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned summer = 0; summer < SUMMERS; summer++) {
            size_t total = summer == SUM_PORTABLE ? SLICE_BYTES : COLD_BYTES;
            samples_add(&rates[summer], time_sums(summer, memory, row->size, row->cold, total));
        }
    }
    for (unsigned summer = 0; summer < SUMMERS; summer++) {
        row->rates[summer] = samples_median(&rates[summer]);
        samples_free(&rates[summer]);
    }
}

void crc_measure(struct results *results)
{
    static const size_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
    unsigned char *memory = mmap(NULL, COLD_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        die("no memory to sum: %s", strerror(errno));
    madvise(memory, COLD_BYTES, MADV_HUGEPAGE);
    memset(memory, 0x5a, COLD_BYTES);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int hot = 0; hot < 2; hot++) {
            struct crc_row *row = &results->crc[results->crc_count++];
            *row = (struct crc_row){.size = sizes[i], .cold = !hot};
            measure_row(row, memory, KVS_MAX(results->settings.rounds, 5));
        }
    }
    munmap(memory, COLD_BYTES);
}
