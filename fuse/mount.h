// SPDX-License-Identifier: Apache-2.0
// The mount point: a dead FUSE mount there is replaced, a live kvsealfs refused (C21).
#ifndef KVSEAL_FUSE_MOUNT_H
#define KVSEAL_FUSE_MOUNT_H

/* Makes `mountpoint` ready: detaches every dead FUSE mount on it, and checks that what remains is a
 * directory that no kvsealfs serves. No request is ever sent to a file system on it by this
 * process: a dead one would fail it, a hung one would keep it for ever.
 *
 * 0 with *path_ret, its absolute path without symbolic links (the caller frees it); or -errno after
 * one clear line in the log: -EBUSY (served), -ETIMEDOUT (something there does not answer),
 * -ENOENT, -ENOTDIR ... */
int kvs_mount_prepare(const char *mountpoint, char **path_ret);

/* The kernel's number of the mount that `path` leads into now, or -errno. Asks no file system. */
int kvs_mount_id(const char *path);

#endif
