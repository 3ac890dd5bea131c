// SPDX-License-Identifier: Apache-2.0
// CRC32C by the CPU's own instruction, four places of the data at a time.
#ifndef KVSEAL_CORE_CRC32C_LANES_H
#define KVSEAL_CORE_CRC32C_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this CPU has the instruction (SSE4.2). */
bool kvs_crc32c_lanes_work(void);

/* How much of data[0..len) the lanes can take; the rest, less than KVS_CRC32C_LANES_LEAST, is for
 * another code. */
#define KVS_CRC32C_LANES_LEAST ((size_t)64 << 10)

/* Sums what it can take from the front: *crc_inout covers data[0..returned) afterwards. */
size_t kvs_crc32c_lanes(uint32_t *crc_inout, const void *data, size_t len);

#endif
