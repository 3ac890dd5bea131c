// SPDX-License-Identifier: Apache-2.0
// Sealing: the block's sum goes into its record, or close() and the publish fail (C1-C3, C5, C8).
#ifndef KVSEAL_FUSE_SEAL_H
#define KVSEAL_FUSE_SEAL_H

#include "fuse/file.h"

/* close() by `owner` (libfuse's lock_owner): seals what is owed. 0 or -errno for the client;
 * applies C13 where a corrupt block was changed in part. But while somebody else is in the midst of
 * rewriting such a block, the verdict is left to the last one's close(): 0. */
int kvs_seal_at_flush(struct kvs_fs *fs, struct kvs_handle *handle, uint64_t owner);

/* A publish of `node`: seals what is owed, also while it is still open. 0 or -errno: the publish
 * must not happen. 0 at once for directories and what owes nothing. */
int kvs_seal_at_publish(struct kvs_fs *fs, struct kvs_node *node);

/* What all seals come down to: seals what is owed, with file->content held exclusively. `fd`: open
 * on the file, not O_PATH; or -1. 0 or -errno. */
int kvs_seal_locked(struct kvs_fs *fs, struct kvs_file *file, int fd);

/* The last writing handle is gone; nobody hears of errors here, so they are logged and counted. */
void kvs_seal_at_release(struct kvs_fs *fs, struct kvs_handle *handle);

/* Mapped writes may have passed unseen (file->has_unseen_changes), and no handle can write any
 * more: reads the block back and seals it, unless a mapping is still there; then it stays unsealed
 * until the next open. `be_patient`: the last handle was closed just now. */
void kvs_seal_unseen(struct kvs_fs *fs, struct kvs_file *file, bool be_patient);

/* Shut-down (C23): seals every block that is owed one and has no writer. */
void kvs_seal_all(struct kvs_fs *fs);

/* Seals a block that has no record and that nobody writes, through the mount or beside it, as
 * kvs_seal_beside() knows (`unsealed=seal`); `fd` readable. 0, also of a block that has one or is
 * written through the mount; -EBUSY: it is written beside it, or -errno. */
int kvs_seal_unsealed(struct kvs_fs *fs, struct kvs_file *file, int fd);

/* setxattr / removexattr of the record by the client (C8). 0 or -errno (-EBADMSG: not the content's
 * sum, or not four bytes). */
int kvs_seal_client_set(struct kvs_fs *fs, struct kvs_node *node, const void *value, size_t size,
                        int flags);
int kvs_seal_client_remove(struct kvs_fs *fs, struct kvs_node *node);

#endif
