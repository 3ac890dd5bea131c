// SPDX-License-Identifier: Apache-2.0
// CRC32C, the sum that every block carries: running sums, and sums of joined pieces.
#ifndef KVSEAL_CORE_CRC32C_H
#define KVSEAL_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * CRC32C reads the bytes as one long polynomial over GF(2), the lowest bit of each byte first, and
 * keeps the remainder of its division by the Castagnoli polynomial P = 0x1EDC6F41. In a register
 * that holds the highest power in its lowest bit ("reflected") P is 0x82F63B78. The register
 * starts with all bits set, so that leading zeros count, and is inverted at the end, so that
 * trailing ones count. RFC 3720, B.4 gives the vectors: 32 bytes of zeros are 8A9136AA, 32 bytes of
 * ones 62A8AB43; the usual check "123456789" is E3069283. All functions here take and give the
 * finished (inverted) sum, as zlib does: a sum starts with 0, and the sum of nothing is 0.
 *
 * Why two sums can be combined: appending n bytes multiplies the remainder so far by x^(8n) and
 * adds the remainder of the new bytes. That is linear, so the initial and final inversions cancel
 * out and
 *
 *     crc(a || b) = crc(a) * x^(8 * len(b)) mod P  xor  crc(b)
 *
 * without a look at the bytes. x^(8n) is a product of the squares x^8, x^16, x^32, ... that the
 * bits of n choose: at most 64 multiplications. So pieces of a file may be summed as they arrive,
 * in any order and by any thread, and joined later.
 */

/* The sum of what `crc` covers followed by data[0..len). The fastest code for this CPU. */
uint32_t kvs_crc32c(uint32_t crc, const void *data, size_t len);

/* The same in plain C: where there is no kernel for the CPU, and the reference for the tests. */
uint32_t kvs_crc32c_portable(uint32_t crc, const void *data, size_t len);

/* The sum of a || b, from crc(a), crc(b) and the length of b in bytes. */
uint32_t kvs_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* The sum of `len` zero bytes. */
uint32_t kvs_crc32c_zeros(uint64_t len);

/* Which code kvs_crc32c uses: "sse4.2" (large pieces; small ones by ISA-L), "isa-l" or "portable".
 * For logs. */
const char *kvs_crc32c_name(void);

#endif
