// SPDX-License-Identifier: Apache-2.0
// The operations, by file. Each resolves, does, and replies exactly once.
#ifndef KVSEAL_FUSE_OPS_H
#define KVSEAL_FUSE_OPS_H

#include "fuse/fs.h"
#include "fuse/inode.h"

extern const struct fuse_lowlevel_ops kvs_operations; /* operations.c */

/* op_names.c: replies with an entry; shared by what makes or finds a name. `st` as of the node. */
void kvs_fill_entry(struct kvs_fs *fs, struct kvs_node *node, const struct stat *st,
                    struct fuse_entry_param *entry_ret);

/* op_names.c */
void kvs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void kvs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void kvs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void kvs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void kvs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void kvs_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void kvs_op_readlink(fuse_req_t req, fuse_ino_t ino);
void kvs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void kvs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void kvs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                   const char *new_name, unsigned flags);
void kvs_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);

/* op_attrs.c */
void kvs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                    struct fuse_file_info *fi);
void kvs_op_statfs(fuse_req_t req, fuse_ino_t ino);

/* op_xattr.c */
void kvs_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                     size_t size, int flags);
void kvs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void kvs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void kvs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* op_dir.c */
void kvs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi);
void kvs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
int kvs_dir_fd(const struct fuse_file_info *fi); /* the open directory's descriptor */
/* Those that are open, for a daemon that takes over: while no operation is under way. What `take`
 * returns other than 0 ends it. */
int kvs_dirs_each(struct kvs_fs *fs, int (*take)(void *context, uint64_t number, int fd),
                  void *context);
/* One of them there; owns `fd`. 0 or -errno. */
int kvs_dirs_restore(struct kvs_fs *fs, uint64_t number, int fd);

/* op_open.c */
void kvs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                   struct fuse_file_info *fi);
void kvs_op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
void kvs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void kvs_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* op_io.c */
void kvs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                 struct fuse_file_info *fi);
void kvs_op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                  struct fuse_file_info *fi);
void kvs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void kvs_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t len,
                      struct fuse_file_info *fi);
void kvs_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                  struct fuse_file_info *fi);
/* No copy_file_range: without it the kernel copies by READ and WRITE, so what is copied is verified
 * and summed like everything else. */

#endif
