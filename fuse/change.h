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
    uint64_t offset, len;
    struct kvs_digest_write write;
};

/* A write, fallocate ... of [offset, offset+len) is about to be made. 0: make it, then call one of
 * the three below. -errno: it must not be made (a backing error while verifying or removing the
 * record; nothing has changed). Holds file->content shared in between. */
int kvs_change_begin(struct kvs_fs *fs, struct kvs_file *file, uint64_t offset, uint64_t len,
                     struct kvs_change *change_ret);

/* The first `len_done` bytes of the range are in the file and have the sum `crc`. */
void kvs_change_done(struct kvs_change *change, uint64_t len_done, uint32_t crc);

/* Whatever was made of it, nobody saw the bytes: they are read back when the block is sealed. */
void kvs_change_unseen(struct kvs_change *change);

/* Bytes back to read at most: max_reread; none without checksums. */
uint64_t kvs_change_max_reread(const struct kvs_fs *fs);

/* A write failed with `error` (-errno): the block is tainted (C3), unless the call was refused
 * before it could touch anything (EINVAL, EFBIG, EBADF, EPERM, EOPNOTSUPP). */
void kvs_change_failed(struct kvs_change *change, int error);

/* A handle for both is about to be opened, and mapped writes through it will not be seen
 * (serve_passthrough.h): what a first change does is done now, and until kvs_seal_unseen() finds
 * its mappings gone, nothing that is known of the content holds. 0 or -errno: it must not be
 * opened. */
int kvs_change_expect_unseen(struct kvs_fs *fs, struct kvs_file *file);

/* An error of the file system below that means lost bytes (fsync, flush): taints what is owed. */
void kvs_change_lost(struct kvs_file *file, int error);

/* truncate(2), ftruncate(2), O_TRUNC: to `size`, by ftruncate on `fd` (open for writing). A corrupt
 * block that is not emptied is refused like a read (corrupt_errno, C13 applied). `seal`: for
 * truncate(2) with no writer alive: sealed again before it returns (C9). 0 or -errno. */
int kvs_change_truncate(struct kvs_fs *fs, struct kvs_file *file, int fd, uint64_t size, bool seal);

#endif
