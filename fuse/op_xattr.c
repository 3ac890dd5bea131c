// SPDX-License-Identifier: Apache-2.0
// Extended attributes pass through, by the inode's link in /proc, which needs no open file. Only
// the record's name on a regular file has rules of its own (C8).
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/record.h"
#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/inode.h"
#include "fuse/ops.h"
#include "fuse/reach.h"
#include "fuse/seal.h"
#include "fuse/worker.h"

/* Names the inode of `node` while `fd` is open. A symbolic link's own inode, too: the link in /proc
 * has been followed by then. */
struct inode_path {
    int fd;
    char text[sizeof("/proc/self/fd/") + 11];
};

static void close_path(struct inode_path *path)
{
    kvs_close_fd(&path->fd);
}

#define cleanup_path __attribute__((cleanup(close_path)))

static int open_path(struct kvs_fs *fs, struct kvs_node *node, struct inode_path *path)
{
    path->fd = kvs_node_open(fs, node, O_PATH);
    if (path->fd < 0)
        return path->fd;
    snprintf(path->text, sizeof(path->text), "/proc/self/fd/%d", path->fd);
    return 0;
}

static bool is_record(const struct kvs_node *node, const char *name)
{
    return S_ISREG(node->mode) && strcmp(name, KVS_RECORD_NAME) == 0;
}

/* An access ACL sets mode bits as well: whether S_ISGID stays is decided by who sets it. */
static int set_acl_as_caller(fuse_req_t req, const char *path, const char *name, const char *value,
                             size_t size, int flags)
{
    struct kvs_caller saved;
    kvs_caller_become(req, &saved);
    int error = setxattr(path, name, value, size, flags) ? -errno : 0;
    kvs_caller_restore(&saved);
    return error;
}

static int set_attribute(fuse_req_t req, struct kvs_node *node, const char *name, const char *value,
                         size_t size, int flags)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    if (is_record(node, name))
        return kvs_seal_client_set(fs, node, value, size, flags);
    cleanup_path struct inode_path path = {.fd = -1};
    int error = open_path(fs, node, &path);
    if (error)
        return error;
    if (strcmp(name, "system.posix_acl_access") == 0)
        return set_acl_as_caller(req, path.text, name, value, size, flags);
    return setxattr(path.text, name, value, size, flags) ? -errno : 0;
}

void kvs_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                     size_t size, int flags)
{
    struct kvs_node *node = kvs_node_of(kvs_fs_of(req), ino);
    kvs_reply_error(req, set_attribute(req, node, name, value, size, flags));
}

/* `len`: the length of a value or list, or -1 with errno. `size` 0 asks for the length alone. */
static void reply_value(fuse_req_t req, const char *value, ssize_t len, size_t size)
{
    if (len < 0)
        kvs_reply_error(req, -errno);
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)len);
    else
        fuse_reply_buf(req, value, (size_t)len);
}

void kvs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    cleanup_path struct inode_path path = {.fd = -1};
    int error = open_path(fs, kvs_node_of(fs, ino), &path);
    if (error) {
        kvs_reply_error(req, error);
        return;
    }
    char *value = kvs_worker_scratch();
    ssize_t len = getxattr(path.text, name, value, KVS_MIN(size, (size_t)XATTR_SIZE_MAX));
    reply_value(req, value, len, size);
}

/* Most file systems show names in trusted. only to who may read them. */
static ssize_t list_as_caller(fuse_req_t req, const char *path, char *list, size_t size)
{
    struct kvs_caller saved;
    kvs_caller_become(req, &saved);
    ssize_t len = listxattr(path, list, size);
    int error = errno;
    kvs_caller_restore(&saved);
    errno = error;
    return len;
}

void kvs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    cleanup_path struct inode_path path = {.fd = -1};
    int error = open_path(fs, kvs_node_of(fs, ino), &path);
    if (error) {
        kvs_reply_error(req, error);
        return;
    }
    char *list = kvs_worker_scratch();
    ssize_t len = list_as_caller(req, path.text, list, KVS_MIN(size, (size_t)XATTR_LIST_MAX));
    reply_value(req, list, len, size);
}

static int remove_attribute(struct kvs_fs *fs, struct kvs_node *node, const char *name)
{
    if (is_record(node, name))
        return kvs_seal_client_remove(fs, node);
    cleanup_path struct inode_path path = {.fd = -1};
    int error = open_path(fs, node, &path);
    if (error)
        return error;
    return removexattr(path.text, name) ? -errno : 0;
}

void kvs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    kvs_reply_error(req, remove_attribute(fs, kvs_node_of(fs, ino), name));
}
