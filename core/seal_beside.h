// SPDX-License-Identifier: Apache-2.0
// Gives a record to a block that has none, beside whoever uses it, on a live cache: for the tool,
// and for a daemon (`unsealed=seal`), which knows of its own clients alone.
#ifndef KVSEAL_CORE_SEAL_BESIDE_H
#define KVSEAL_CORE_SEAL_BESIDE_H

#include <stddef.h>
#include <stdint.h>

/* Where leases do not tell who writes (core/lease.h), a block must have been left alone so long. */
#define KVS_SEAL_AGE_SECONDS 60

/* May the block that `fd` is open on (for reading, buffered) be sealed now? 0; -EEXIST: it has a
 * record, whatever that says; -EBUSY: somebody has it open for writing, or changed it just now; or
 * -errno of the file system. */
int kvs_seal_beside_check(int fd);

/* Seals it: two agreeing readings, and then the record, while a lease keeps writers out. Waits for
 * the end of the clock's tick that the last change was in: until that is 40 ms ago, or 2 s where
 * ctimes are whole seconds. As kvs_seal_beside_check(), and -EBUSY when it changed meanwhile, -EIO
 * when no readings agree. An existing record is never touched. `scratch`: as for kvs_sum_agreed().
 */
int kvs_seal_beside(int fd, void *scratch, size_t scratch_len, uint32_t *crc_ret);

#endif
