// SPDX-License-Identifier: Apache-2.0
// From a node to a descriptor: by its file handle where the file system's handles can be trusted
// (ext4, xfs, btrfs, tmpfs) and may be opened, by its known names elsewhere, or through a handle
// that has it open already (an unlinked file, O_TMPFILE). The descriptor is always of the node's
// own inode, never followed through a symbolic link, never above the source (C22).
#ifndef KVSEAL_FUSE_REACH_H
#define KVSEAL_FUSE_REACH_H

#include "fuse/inode.h"

/* Opens the node with `flags` (O_PATH, or an access mode with O_DIRECT, O_APPEND, O_NOATIME ...;
 * O_CLOEXEC is added; O_CREAT, O_EXCL, O_TRUNC are not allowed). O_NOATIME is left out where it is
 * refused (EPERM). >= 0 a new descriptor that the caller closes; or -errno: -ESTALE when no known
 * way leads to the inode any more, else as open(2) gave it. */
int kvs_node_open(struct kvs_fs *fs, struct kvs_node *node, int flags);

/* What name_to_handle_at says, where that may be relied on (file system type), to tell files apart.
 * Decided once by the table; here for inode.c. Writes at most *len_inout bytes; *len_inout 0: no
 * handle. */
void kvs_reach_handle_of(struct kvs_fs *fs, int fd, dev_t dev, uint32_t *type_ret,
                         unsigned char *handle, uint32_t *len_inout);
#define KVS_HANDLE_MAX 40

#endif
