// SPDX-License-Identifier: Apache-2.0
// Every operation: count it, fail where told to, else do the same to the source.
#include "tests/faultfs/ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/faultfs/fault.h"
#include "tests/faultfs/node.h"

#define CONTROL_NAME ".faultfs"

static int find_entry(fuse_ino_t parent, const char *name, struct fuse_entry_param *entry_ret)
{
    return node_enter(openat(node_fd(parent), name, O_PATH | O_NOFOLLOW), entry_ret);
}

static void reply_entry(fuse_req_t req, int err, const struct fuse_entry_param *entry)
{
    if (err)
        reply_error(req, err);
    else if (fuse_reply_entry(req, entry) == -ENOENT)
        node_forget(entry->ino, 1);
}

/* ---- names ---- */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {.ino = NODE_CONTROL, .attr = control_attr()};
    int err = 0;
    if (parent != FUSE_ROOT_ID || strcmp(name, CONTROL_NAME) != 0) {
        err = fault_enter(FAULT_lookup, NULL);
        if (!err)
            err = find_entry(parent, name, &entry);
    }
    reply_entry(req, err, &entry);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
    node_forget(ino, lookups);
    fuse_reply_none(req);
}

/* A new inode belongs to the caller; in a setgid directory its group is the directory's. */
static int give_to_caller(fuse_req_t req, fuse_ino_t parent, int fd, const char *name)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    struct stat dir;
    if (fstatat(node_fd(parent), "", &dir, AT_EMPTY_PATH) < 0)
        return -errno;
    gid_t group = dir.st_mode & S_ISGID ? (gid_t)-1 : caller->gid;
    return error_of(fchownat(fd, name, caller->uid, group, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
}

static void finish_new_name(fuse_req_t req, fuse_ino_t parent, const char *name, int err)
{
    struct fuse_entry_param entry;
    if (!err)
        err = give_to_caller(req, parent, node_fd(parent), name);
    if (!err)
        err = find_entry(parent, name, &entry);
    reply_entry(req, err, &entry);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
    int err = fault_enter(FAULT_mknod, NULL);
    if (!err)
        err = error_of(mknodat(node_fd(parent), name, mode, dev));
    finish_new_name(req, parent, name, err);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    int err = fault_enter(FAULT_mkdir, NULL);
    if (!err)
        err = error_of(mkdirat(node_fd(parent), name, mode));
    finish_new_name(req, parent, name, err);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    int err = fault_enter(FAULT_symlink, NULL);
    if (!err)
        err = error_of(symlinkat(target, node_fd(parent), name));
    finish_new_name(req, parent, name, err);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry;
    int err = fault_enter(FAULT_link, NULL);
    if (!err)
        err = error_of(linkat(AT_FDCWD, proc_path(node_fd(ino)).text, node_fd(parent), name,
                              AT_SYMLINK_FOLLOW));
    if (!err)
        err = find_entry(parent, name, &entry);
    reply_entry(req, err, &entry);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    int err = fault_enter(FAULT_unlink, NULL);
    reply_error(req, err ? err : error_of(unlinkat(node_fd(parent), name, 0)));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    int err = fault_enter(FAULT_rmdir, NULL);
    reply_error(req, err ? err : error_of(unlinkat(node_fd(parent), name, AT_REMOVEDIR)));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    int err = fault_enter(FAULT_rename, NULL);
    if (!err)
        err = error_of(renameat2(node_fd(parent), name, node_fd(new_parent), new_name, flags));
    reply_error(req, err);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[PATH_MAX + 1];
    int err = fault_enter(FAULT_readlink, NULL);
    ssize_t length = err ? 0 : readlinkat(node_fd(ino), "", target, PATH_MAX);
    if (!err)
        err = error_of(length);
    if (err) {
        reply_error(req, err);
        return;
    }
    target[length] = '\0';
    fuse_reply_readlink(req, target);
}

/* ---- files ---- */

/* O_DIRECT is for the kernel above only: its alignment rule must not decide which call fails. */
static int source_flags(int flags)
{
    return (flags & ~(O_DIRECT | O_NOFOLLOW | O_CREAT | O_EXCL)) | O_CLOEXEC;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    fi->direct_io = 1;
    if (is_control(ino)) {
        fi->fh = (uint64_t)-1;
        fuse_reply_open(req, fi);
        return;
    }
    int err = fault_enter(FAULT_open, NULL);
    int fd = err ? -1 : open(proc_path(node_fd(ino)).text, source_flags(fi->flags));
    if (fd < 0) {
        reply_error(req, err ? err : -errno);
        return;
    }
    fi->fh = (uint64_t)fd;
    if (fuse_reply_open(req, fi) == -ENOENT)
        close(fd);
}

/* `fd` is the new file, open; or -1 with errno set. */
static void reply_create(fuse_req_t req, fuse_ino_t parent, int fd, struct fuse_file_info *fi)
{
    struct fuse_entry_param entry;
    int err = error_of(fd);
    if (!err)
        err = give_to_caller(req, parent, fd, "");
    if (!err)
        err = node_enter(open(proc_path(fd).text, O_PATH), &entry);
    if (err) {
        if (fd >= 0)
            close(fd);
        reply_error(req, err);
        return;
    }
    fi->direct_io = 1;
    fi->fh = (uint64_t)fd;
    if (fuse_reply_create(req, &entry, fi) == -ENOENT) {
        close(fd);
        node_forget(entry.ino, 1);
    }
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_create, NULL);
    if (err) {
        reply_error(req, err);
        return;
    }
    int flags = source_flags(fi->flags) | O_CREAT | O_NOFOLLOW | (fi->flags & O_EXCL);
    reply_create(req, parent, openat(node_fd(parent), name, flags, mode), fi);
}

static void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_tmpfile, NULL);
    if (err) {
        reply_error(req, err);
        return;
    }
    int flags = source_flags(fi->flags) | O_TMPFILE | (fi->flags & O_EXCL);
    reply_create(req, parent, open(proc_path(node_fd(parent)).text, flags, mode), fi);
}

static void read_control(fuse_req_t req, size_t size, off_t offset)
{
    size_t length = 0;
    char *report = fault_report(&length);
    size_t from = (size_t)offset < length ? (size_t)offset : length;
    if (report)
        fuse_reply_buf(req, report + from, length - from < size ? length - from : size);
    else
        reply_error(req, -ENOMEM);
    free(report);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    if (is_control(ino)) {
        read_control(req, size, offset);
        return;
    }
    int err = fault_enter(FAULT_read, &size);
    char *data = malloc(size ? size : 1);
    ssize_t length = 0;
    if (!err && !data)
        err = -ENOMEM;
    if (!err) {
        length = pread((int)fi->fh, data, size, offset);
        err = error_of(length);
    }
    if (err) {
        reply_error(req, err);
    } else {
        fault_flip(data, offset, (size_t)length);
        fuse_reply_buf(req, data, (size_t)length);
    }
    free(data);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    ssize_t length = (ssize_t)size;
    int err = is_control(ino) ? fault_command(data, size) : fault_enter(FAULT_write, &size);
    if (!err && !is_control(ino)) {
        length = pwrite((int)fi->fh, data, size, offset);
        err = error_of(length);
    }
    if (err)
        reply_error(req, err);
    else
        fuse_reply_write(req, (size_t)length);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int err = is_control(ino) ? 0 : fault_enter(FAULT_flush, NULL);
    if (!err && !is_control(ino))
        err = error_of(close(dup((int)fi->fh)));
    reply_error(req, err);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int err = 0;
    if (!is_control(ino)) {
        err = fault_enter(FAULT_release, NULL);
        close((int)fi->fh);
    }
    reply_error(req, err);
}

static int sync_fd(int fd, int only_data)
{
    return error_of(only_data ? fdatasync(fd) : fsync(fd));
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int only_data, struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_fsync, NULL);
    reply_error(req, err ? err : sync_fd((int)fi->fh, only_data));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                         struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_fallocate, NULL);
    reply_error(req, err ? err : error_of(fallocate((int)fi->fh, mode, offset, length)));
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                     struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_lseek, NULL);
    off_t found = err ? 0 : lseek((int)fi->fh, offset, whence);
    if (!err)
        err = error_of(found);
    if (err)
        reply_error(req, err);
    else
        fuse_reply_lseek(req, found);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t from_ino, off_t from_offset,
                               struct fuse_file_info *from, fuse_ino_t to_ino, off_t to_offset,
                               struct fuse_file_info *to, size_t size, int flags)
{
    int err = fault_enter(FAULT_copy_file_range, NULL);
    ssize_t copied = err ? 0
                         : copy_file_range((int)from->fh, &from_offset, (int)to->fh, &to_offset,
                                           size, (unsigned)flags);
    if (!err)
        err = error_of(copied);
    if (err)
        reply_error(req, err);
    else
        fuse_reply_write(req, (size_t)copied);
}

/* ---- directories ---- */

static DIR *dir_of(const struct fuse_file_info *fi)
{
    return (DIR *)(uintptr_t)fi->fh;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_opendir, NULL);
    DIR *dir = err ? NULL : opendir(proc_path(node_fd(ino)).text);
    if (!dir) {
        reply_error(req, err ? err : -errno);
        return;
    }
    fi->fh = (uintptr_t)dir;
    if (fuse_reply_open(req, fi) == -ENOENT)
        closedir(dir);
}

static size_t fill_entries(fuse_req_t req, DIR *dir, char *buffer, size_t size)
{
    size_t used = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        struct stat attr = {.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)};
        size_t need = fuse_add_direntry(req, buffer + used, size - used, entry->d_name, &attr,
                                        telldir(dir));
        if (need > size - used)
            break;
        used += need;
    }
    return used;
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_readdir, NULL);
    char *buffer = malloc(size);
    if (!err && !buffer)
        err = -ENOMEM;
    if (err) {
        reply_error(req, err);
    } else {
        seekdir(dir_of(fi), offset);
        fuse_reply_buf(req, buffer, fill_entries(req, dir_of(fi), buffer, size));
    }
    free(buffer);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_releasedir, NULL);
    closedir(dir_of(fi));
    reply_error(req, err);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int only_data, struct fuse_file_info *fi)
{
    int err = fault_enter(FAULT_fsyncdir, NULL);
    reply_error(req, err ? err : sync_fd(dirfd(dir_of(fi)), only_data));
}

static void op_init(void *data, struct fuse_conn_info *conn)
{
    fuse_set_feature_flag(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
}

const struct fuse_lowlevel_ops ops_table = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .release = op_release,
    .fsync = op_fsync,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .create = op_create,
    .fallocate = op_fallocate,
    .copy_file_range = op_copy_file_range,
    .lseek = op_lseek,
    .tmpfile = op_tmpfile,
};
