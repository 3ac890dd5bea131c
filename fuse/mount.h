// SPDX-License-Identifier: Apache-2.0
// The mount point: a dead FUSE mount there is replaced, a live kvsealfs refused (C21).
#ifndef KVSEAL_FUSE_MOUNT_H
#define KVSEAL_FUSE_MOUNT_H

#include <stdbool.h>

/* Makes `mountpoint` ready: detaches every dead FUSE mount on it, and checks that what remains is a
 * directory that no kvsealfs serves. No request is ever sent to a file system on it by this
 * process: a dead one would fail it, a hung one would keep it for ever.
 *
 * 0 with *path_ret, its absolute path without symbolic links (the caller frees it); or -errno after
 * one clear line in the log: -EBUSY (served), -ETIMEDOUT (something there does not answer),
 * -ENOENT, -ENOTDIR ... */
int kvs_mount_prepare(const char *mountpoint, char **path_ret);

/* Whether what is mounted at `path` (from kvs_mount_prepare) will be seen outside of this mount
 * namespace (-o require_shared). 0; or -errno after one clear line in the log: -EINVAL (it is not
 * shared) ... */
int kvs_mount_check_shared(const char *path);

/* Detaches the mount at `path`, unless it is no longer the one with this number (or that is < 0):
 * something else covers or replaced it. `must_cut`: its daemon is gone, and whoever still waits for
 * it gets an error. */
void kvs_mount_detach(const char *path, int mount_id, bool must_cut);

#endif
