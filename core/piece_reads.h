// SPDX-License-Identifier: Apache-2.0
// Direct reads of one file, several under way at a time.
#ifndef KVSEAL_CORE_PIECE_READS_H
#define KVSEAL_CORE_PIECE_READS_H

#include <stdbool.h>
#include <stddef.h>

/* One request. Devices answer what is asked for together at about the same time, so half of a
 * block, and at most eight requests, are under way: the rest arrives while they are summed. */
#define KVS_READ_SIZE ((size_t)512 << 10)

/* `len` bytes at `offset` have arrived in the buffer. */
typedef void kvs_piece_arrived(void *context, size_t offset, size_t len);

/* Reads the first `len` bytes of `fd` (O_DIRECT) into `buffer` (KVS_IO_ALIGN-aligned, room for
 * `len` rounded up to it), KVS_READ_SIZE bytes a request. `arrived` is called, by this thread, for
 * each piece when it is there, in whatever order: the others go on meanwhile.
 *
 * 0: every piece arrived, or *ended_early_ret: the file is shorter. -ENOTSUP: this can not be done
 * here (the file system is not a local one, or the kernel or a seccomp profile gives no requests):
 * nothing was read, nothing is counted. Otherwise the -errno that a read(2) of a piece would give.
 * Nothing is under way any more when it returns. */
int kvs_read_pieces(int fd, void *buffer, size_t len, kvs_piece_arrived *arrived, void *context,
                    bool *ended_early_ret);

#endif
