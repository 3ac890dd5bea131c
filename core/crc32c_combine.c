// SPDX-License-Identifier: Apache-2.0
// The arithmetic that joins sums; crc32c.h says why it works.
#include "core/crc32c.h"

#define POLYNOMIAL 0x82F63B78u

/* powers[k] is x^(8 * 2^k) mod P, the factor for 2^k bytes. */
static uint32_t powers[64];

/* a * b mod P. Reflected: bit 31 is x^0. Masks instead of branches, which nobody could predict. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (int bit = 31; bit >= 0; bit--) {
        product ^= b & -(a >> bit & 1);
        b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
    }
    return product;
}

/* crc * x^(8 * len) mod P */
static uint32_t shift_bytes(uint32_t crc, uint64_t len)
{
    for (int k = 0; len != 0; k++, len >>= 1) {
        if (len & 1)
            crc = multiply(crc, powers[k]);
    }
    return crc;
}

/* Before main(), so that no thread can see it half done. */
__attribute__((constructor)) static void prepare(void)
{
    powers[0] = 0x80000000u >> 8;
    for (int k = 1; k < 64; k++)
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
}

uint32_t kvs_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
    return shift_bytes(crc_a, len_b) ^ crc_b;
}

uint32_t kvs_crc32c_zeros(uint64_t len)
{
    return ~shift_bytes(~0u, len);
}
