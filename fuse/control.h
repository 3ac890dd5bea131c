// SPDX-License-Identifier: Apache-2.0
// The control directory: `.kvseal` at the top of the mount, read-only and not listed there, with
// the files `status` (JSON) and `metrics` (Prometheus text), for whoever sees the mount.
//
// It has no part of the source's own `.kvseal`, which cannot be seen through the mount (C13). Its
// nodes are not in the table of inodes: the kernel knows them by small numbers, which no node's
// address is. A file's content is made when it is opened, and has no size before, as in /proc.
#ifndef KVSEAL_FUSE_CONTROL_H
#define KVSEAL_FUSE_CONTROL_H

#include "fuse/fs.h"

enum kvs_control_node {
    KVS_CONTROL_DIR = FUSE_ROOT_ID + 1,
    KVS_CONTROL_STATUS,
    KVS_CONTROL_METRICS,
    KVS_CONTROL_END,
};

/* A file that was opened under an earlier daemon (ids.h): read from the start it is made anew,
 * farther on it has ended. */
#define KVS_CONTROL_NO_HANDLE UINT64_MAX

static inline bool kvs_is_control(fuse_ino_t ino)
{
    return ino >= KVS_CONTROL_DIR && ino < KVS_CONTROL_END;
}

/* (parent, name) is the control directory. */
bool kvs_is_control_name(fuse_ino_t parent, const char *name);

/* The operations on its nodes, and the look-up of itself. What is not among them changes something,
 * and gives EPERM. */
void kvs_control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void kvs_control_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_control_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *fi);
void kvs_control_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_control_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_control_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void kvs_control_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                       struct fuse_file_info *fi);
void kvs_control_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_control_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                         struct fuse_file_info *fi);
void kvs_control_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_control_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void kvs_control_statfs(fuse_req_t req, fuse_ino_t ino);
void kvs_control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void kvs_control_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
