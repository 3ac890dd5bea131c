// SPDX-License-Identifier: Apache-2.0
// faultfs: attributes, file system statistics and extended attributes.
#include "tests/faultfs/ops.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/faultfs/fault.h"

static void reply_attr(fuse_req_t req, fuse_ino_t ino, int err)
{
    struct stat attr = control_attr();
    if (!err && !is_control(ino))
        err = error_of(fstatat(node_fd(ino), "", &attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
    if (err)
        reply_error(req, err);
    else
        fuse_reply_attr(req, &attr, 0);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    reply_attr(req, ino, is_control(ino) ? 0 : fault_enter(FAULT_getattr, NULL));
}

static int set_owner(int fd, const struct stat *attr, int to_set)
{
    uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
    gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
    int err = fault_enter(FAULT_chown, NULL);
    return err ? err : error_of(fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
}

static struct timespec time_to_set(struct timespec time, int to_set, int if_set, int if_now)
{
    if (to_set & if_now)
        time.tv_nsec = UTIME_NOW;
    else if (!(to_set & if_set))
        time.tv_nsec = UTIME_OMIT;
    return time;
}

static int set_times(int fd, const struct stat *attr, int to_set)
{
    struct timespec times[2] = {
        time_to_set(attr->st_atim, to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW),
        time_to_set(attr->st_mtim, to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW)};
    int err = fault_enter(FAULT_utimens, NULL);
    return err ? err : error_of(utimensat(fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
}

static int set_size(int fd, off_t size, const struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_truncate, NULL);
    if (err)
        return err;
    return error_of(fi ? ftruncate((int)fi->fh, size) : truncate(proc_path(fd).text, size));
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi)
{
    int err = 0;
    if (is_control(ino))
        to_set = 0; // a shell's `>` truncates
    int fd = node_fd(ino);
    if (to_set & FUSE_SET_ATTR_MODE) {
        err = fault_enter(FAULT_chmod, NULL);
        if (!err)
            err = error_of(chmod(proc_path(fd).text, attr->st_mode));
    }
    if (!err && to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        err = set_owner(fd, attr, to_set);
    if (!err && to_set & FUSE_SET_ATTR_SIZE)
        err = set_size(fd, attr->st_size, fi);
    if (!err && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME |
                          FUSE_SET_ATTR_MTIME_NOW))
        err = set_times(fd, attr, to_set);
    reply_attr(req, ino, err);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs stats;
    int err = fault_enter(FAULT_statfs, NULL);
    if (!err)
        err = error_of(fstatvfs(node_fd(FUSE_ROOT_ID), &stats));
    if (err)
        reply_error(req, err);
    else
        fuse_reply_statfs(req, &stats);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                 int flags)
{
    int err = fault_enter(FAULT_setxattr, NULL);
    if (!err)
        err = error_of(setxattr(proc_path(node_fd(ino)).text, name, value, size, flags));
    reply_error(req, err);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    int err = fault_enter(FAULT_removexattr, NULL);
    reply_error(req, err ? err : error_of(removexattr(proc_path(node_fd(ino)).text, name)));
}

/* Replies with an attribute, or with the list of their names when `name` is NULL. */
static void reply_xattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size, int err)
{
    struct proc_path path = proc_path(node_fd(ino));
    char *value = size ? malloc(size) : NULL;
    ssize_t length = 0;
    if (!err && size && !value)
        err = -ENOMEM;
    if (!err) {
        length = name ? getxattr(path.text, name, value, size) : listxattr(path.text, value, size);
        err = error_of(length);
    }
    if (err)
        reply_error(req, err);
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)length);
    else
        fuse_reply_buf(req, value, (size_t)length);
    free(value);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    // The kernel asks for the capabilities of a file that is written, the control file too.
    reply_xattr(req, ino, name, size,
                is_control(ino) ? -ENODATA : fault_enter(FAULT_getxattr, NULL));
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    reply_xattr(req, ino, NULL, size, fault_enter(FAULT_listxattr, NULL));
}
