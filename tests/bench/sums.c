// SPDX-License-Identifier: Apache-2.0
// What kvseal's sum is compared with: vLLM's way to sum, and a plain read of memory.
#include "tests/bench/sums.h"

#include <string.h>

#include "core/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("sse4.2"))) static uint32_t sum_by_instruction(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t crc = 0xFFFFFFFFu;

    for (; len >= 8; len -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        crc = _mm_crc32_u64(crc, word);
    }
    for (; len > 0; len--, p++)
        crc = _mm_crc32_u8((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}
#endif

uint32_t stream_crc32c(const void *data, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return sum_by_instruction(data, len);
#endif
    return kvs_crc32c_portable(0, data, len);
}

typedef uint64_t words __attribute__((vector_size(32)));

/* Four sums that do not wait for each other. */
__attribute__((always_inline)) static inline uint64_t add_words(const void *data, size_t len)
{
    const words *p = data;
    words a = {0}, b = {0}, c = {0}, d = {0};

    for (size_t i = 0; i + 4 <= len / sizeof(words); i += 4) {
        a += p[i];
        b += p[i + 1];
        c += p[i + 2];
        d += p[i + 3];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t add_words_avx2(const void *data, size_t len)
{
    return add_words(data, len);
}
#endif

uint64_t read_memory(const void *data, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return add_words_avx2(data, len);
#endif
    return add_words(data, len);
}
