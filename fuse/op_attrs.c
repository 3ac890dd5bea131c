// SPDX-License-Identifier: Apache-2.0
// Attributes: getattr, setattr, statfs. Only a change of size concerns the block (C9).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/change.h"
#include "fuse/file.h"
#include "fuse/inode.h"
#include "fuse/ops.h"
#include "fuse/reach.h"

/* The kernel gives the handle with regular files only; directories have handles of another kind. */
static struct kvs_handle *handle_of(const struct kvs_node *node, const struct fuse_file_info *fi)
{
    return fi && S_ISREG(node->mode) ? (struct kvs_handle *)(uintptr_t)fi->fh : NULL;
}

/* A descriptor that says which inode is meant: the handle's (O_PATH's when there is none, which the
 * caller closes: *owned_ret). */
static int reach(struct kvs_fs *fs, struct kvs_node *node, const struct kvs_handle *handle,
                 int *owned_ret)
{
    if (handle)
        return handle->fd;
    *owned_ret = kvs_node_open(fs, node, O_PATH);
    return *owned_ret;
}

static void reply_attributes(fuse_req_t req, int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        kvs_reply_error(req, -errno);
    else
        fuse_reply_attr(req, &st, kvs_fs_of(req)->options.attr_timeout);
}

void kvs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_node *node = kvs_node_of(fs, ino);
    kvs_cleanup_fd int owned = -1;
    int fd = reach(fs, node, handle_of(node, fi), &owned);
    if (fd < 0)
        kvs_reply_error(req, fd);
    else
        reply_attributes(req, fd);
}

/* Truncating to the present size changes mtime and no content, so the record stays: done here,
 * while nobody writes. Sets *is_done_ret, or leaves the rest to kvs_change_truncate: emptying a
 * block, which ends what was wrong with it (C3) also when it is empty. But after a direct write to
 * an empty file failed, the kernel itself truncates it, and that heals nothing. */
static int truncate_in_place(struct kvs_file *file, int fd, off_t size, bool is_kernels_own,
                             bool *is_done_ret)
{
    struct stat st;
    if (size == 0 && !is_kernels_own)
        return 0;
    int error = 0;
    pthread_rwlock_wrlock(&file->content);
    if (fstat(fd, &st) || (st.st_size == size && ftruncate(fd, size)))
        error = -errno;
    else
        *is_done_ret = st.st_size == size;
    pthread_rwlock_unlock(&file->content);
    return error;
}

static int set_size(struct kvs_fs *fs, struct kvs_node *node, const struct kvs_handle *handle,
                    off_t size)
{
    bool by_handle = handle && handle->can_write;
    kvs_cleanup_fd int owned = by_handle ? -1 : kvs_node_open(fs, node, O_WRONLY);
    int fd = by_handle ? handle->fd : owned;
    if (fd < 0)
        return fd;
    struct kvs_file *file;
    int error = kvs_file_get(fs, node, &file);
    if (error)
        return error;
    bool is_done = false;
    error = truncate_in_place(file, fd, size, by_handle && handle->is_parallel, &is_done);
    if (!error && !is_done)
        error = kvs_change_truncate(fs, file, fd, (uint64_t)size, !by_handle);
    kvs_file_put(fs, file);
    return error;
}

/* A change of size clears set-id bits, but not root's; where the kernel tells who it was, as told.
 */
static int set_size_as_caller(fuse_req_t req, struct kvs_node *node,
                              const struct kvs_handle *handle, off_t size, int to_set)
{
    bool keeps_ids = fuse_req_ctx(req)->uid == 0 &&
                     !(to_set & (FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID));
    if (keeps_ids)
        kvs_caller_raise_fsetid();
    int error = set_size(kvs_fs_of(req), node, handle, size);
    if (keeps_ids)
        kvs_caller_lower_fsetid();
    return error;
}

static int set_owner(int fd, const struct stat *attr, int to_set)
{
    uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
    gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
    return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) ? -errno : 0;
}

/* fchmod refuses O_PATH descriptors; the link in /proc leads to the inode itself. */
static int set_mode(int fd, mode_t mode)
{
    char path[sizeof("/proc/self/fd/") + 11];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    kvs_caller_raise_fsetid();
    int error = chmod(path, mode & 07777) ? -errno : 0;
    kvs_caller_lower_fsetid();
    return error;
}

static struct timespec time_to_set(struct timespec given, int to_set, int flag, int now_flag)
{
    if (to_set & now_flag)
        return (struct timespec){.tv_nsec = UTIME_NOW};
    return to_set & flag ? given : (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(int fd, const struct stat *attr, int to_set)
{
    struct timespec times[2] = {
        time_to_set(attr->st_atim, to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW),
        time_to_set(attr->st_mtim, to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW),
    };
    return utimensat(fd, "", times, AT_EMPTY_PATH) ? -errno : 0;
}

/* The size first: nothing else has changed when it is refused. Then the owner, which clears set-id
 * bits, then the mode, which says what is to be left of them; times last, as the others move them.
 */
static int set_attributes(fuse_req_t req, struct kvs_node *node, const struct kvs_handle *handle,
                          int fd, const struct stat *attr, int to_set)
{
    int error = 0;
    if (to_set & FUSE_SET_ATTR_SIZE)
        error = set_size_as_caller(req, node, handle, attr->st_size, to_set);
    if (!error && to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        error = set_owner(fd, attr, to_set);
    if (!error && to_set & FUSE_SET_ATTR_MODE)
        error = set_mode(fd, attr->st_mode);
    if (!error && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME |
                            FUSE_SET_ATTR_MTIME_NOW))
        error = set_times(fd, attr, to_set);
    return error;
}

void kvs_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                    struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_node *node = kvs_node_of(fs, ino);
    const struct kvs_handle *handle = handle_of(node, fi);
    kvs_cleanup_fd int owned = -1;
    int fd = reach(fs, node, handle, &owned);
    int error = fd < 0 ? fd : set_attributes(req, node, handle, fd, attr, to_set);
    if (error)
        kvs_reply_error(req, error);
    else
        reply_attributes(req, fd);
}

void kvs_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    kvs_cleanup_fd int fd = kvs_node_open(fs, kvs_node_of(fs, ino), O_PATH);
    struct statvfs st;
    if (fd < 0)
        kvs_reply_error(req, fd);
    else if (fstatvfs(fd, &st))
        kvs_reply_error(req, -errno);
    else
        fuse_reply_statfs(req, &st);
}
