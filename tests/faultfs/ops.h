// SPDX-License-Identifier: Apache-2.0
// What faultfs answers to the kernel.
#ifndef KVSEAL_TESTS_FAULTFS_OPS_H
#define KVSEAL_TESTS_FAULTFS_OPS_H

#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/faultfs/node.h"

extern const struct fuse_lowlevel_ops ops_table;

/* What all operations share. */

struct proc_path {
    char text[32];
};

static inline struct proc_path proc_path(int fd)
{
    struct proc_path path;
    snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
    return path;
}

static inline bool is_control(fuse_ino_t ino)
{
    return ino == NODE_CONTROL;
}

static inline int error_of(long result)
{
    return result < 0 ? -errno : 0;
}

/* The one place where the sign flips. */
static inline void reply_error(fuse_req_t req, int err)
{
    fuse_reply_err(req, -err);
}

static inline struct stat control_attr(void)
{
    return (struct stat){.st_mode = S_IFREG | 0600, .st_nlink = 1};
}

/* ops_attrs.c */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                 int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
