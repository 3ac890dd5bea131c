// SPDX-License-Identifier: Apache-2.0
// Everything that alters a file's content passes here: before the first change the block is
// verified (C5) and its record removed (C4); what arrives is summed (C6); what fails taints the
// block (C3).
#ifndef KVSEAL_FUSE_CHANGE_H
#define KVSEAL_FUSE_CHANGE_H

#include "core/digest.h"
#include "fuse/file.h"

struct kvs_change {
    struct kvs_fs *fs;
    struct kvs_file *file;
    struct kvs_digest_write write;
};

/* A write, fallocate or copy of [offset, offset+len) is about to be made. 0: make it, then call
 * kvs_change_end in every case. -errno: it must not be made (a backing error while verifying or
 * removing the record; nothing has changed). Holds file->content shared in between. */
int kvs_change_begin(struct kvs_fs *fs, struct kvs_file *file, uint64_t offset, uint64_t len,
                     struct kvs_change *change_ret);

/* `error`: 0 or -errno of the call that was made. `len_done`: bytes that are in the file now; fewer
 * than `len` with error 0 is a short write and taints as EIO does. `summed`: `crc` is the sum of
 * those bytes. */
void kvs_change_end(struct kvs_change *change, int error, uint64_t len_done, uint32_t crc,
                    bool summed);

/* truncate(2), ftruncate(2), O_TRUNC: to `size`, by ftruncate on `fd` (open for writing). A corrupt
 * block that is not emptied is refused like a read (corrupt_errno, C13 applied). `seal`: for
 * truncate(2) with no writer alive: sealed again before it returns (C9). 0 or -errno. */
int kvs_change_truncate(struct kvs_fs *fs, struct kvs_file *file, int fd, uint64_t size, bool seal);

#endif
