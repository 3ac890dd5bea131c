// SPDX-License-Identifier: Apache-2.0
// CRC32C: the choice of the code for this CPU.
#include "core/crc32c.h"

#include <stdbool.h>

#include <isa-l/crc.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "core/crc32c_lanes.h"

/* The largest piece for ISA-L, which counts in int. */
#define MAX_PIECE ((size_t)1 << 30)

/* How far ahead of the sum memory is asked for, and how much at a time. */
#define PREFETCH_AHEAD ((size_t)4 << 10)
#define PREFETCH_STEP  ((size_t)2 << 10)
#define CACHE_LINE     64

static bool use_isal, use_wide_isal, use_lanes;

/* Elsewhere ISA-L falls back to one table look-up a byte, which the portable code beats. */
static bool has_isal_kernel(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return false;
#endif
}

/* ISA-L's code for AVX-512, with prefetching, reads as fast as memory gives; its older ones are
 * slower than our lanes wherever the data is not in a cache. */
static bool has_wide_isal_kernel(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
#else
    return false;
#endif
}

/* Before main(), so that no thread can see it half done. */
__attribute__((constructor)) static void prepare(void)
{
    use_isal = has_isal_kernel();
    use_wide_isal = use_isal && has_wide_isal_kernel();
    use_lanes = kvs_crc32c_lanes_work() && !use_wide_isal;
}

static uint32_t sum_by_isal(uint32_t crc, const void *data, size_t len)
{
    /* ISA-L takes a pointer to non-const, but does not write. */
    unsigned char *p = (unsigned char *)data;

    while (len > 0) {
        size_t piece = len < MAX_PIECE ? len : MAX_PIECE;

        /* It works on the bare register; the inversions are ours. */
        crc = ~crc32_iscsi(p, (int)piece, ~crc);
        p += piece;
        len -= piece;
    }
    return crc;
}

/* Asks for data[0..len), which will be read soon. */
static void prefetch(const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i += CACHE_LINE)
        __builtin_prefetch(data + i);
}

/* The CPU's own prefetching stops at the end of every page and lags behind: on a Xeon of the fourth
 * generation cold memory is summed at 12 GB/s without this, and at 15 with it. */
static uint32_t sum_by_wide_isal(uint32_t crc, const unsigned char *data, size_t len)
{
    while (len > PREFETCH_AHEAD + PREFETCH_STEP) {
        prefetch(data + PREFETCH_AHEAD, PREFETCH_STEP);
        crc = sum_by_isal(crc, data, PREFETCH_STEP);
        data += PREFETCH_STEP;
        len -= PREFETCH_STEP;
    }
    return sum_by_isal(crc, data, len);
}

uint32_t kvs_crc32c(uint32_t crc, const void *data, size_t len)
{
    if (use_wide_isal)
        return sum_by_wide_isal(crc, data, len);

    size_t done = use_lanes ? kvs_crc32c_lanes(&crc, data, len) : 0;
    const unsigned char *rest = (const unsigned char *)data + done;

    return use_isal ? sum_by_isal(crc, rest, len - done)
                    : kvs_crc32c_portable(crc, rest, len - done);
}

const char *kvs_crc32c_name(void)
{
    return use_lanes ? "sse4.2" : use_isal ? "isa-l" : "portable";
}
