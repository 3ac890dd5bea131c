// SPDX-License-Identifier: Apache-2.0
// From a node to a descriptor: by file handle, by name, or through an open handle.
#include "fuse/reach.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "core/util.h"
#include "fuse/file.h"
#include "fuse/names.h"
#include "fuse/table.h"

#define XFS_MAGIC 0x58465342

/* A struct file_handle with room for the largest handle that we keep. */
union any_handle {
    struct file_handle handle;
    unsigned char room[sizeof(struct file_handle) + KVS_HANDLE_MAX];
};

static int take_handle(int fd, union any_handle *any_ret)
{
    int mount_id;

    memset(any_ret, 0, sizeof(*any_ret));
    any_ret->handle.handle_bytes = KVS_HANDLE_MAX;
    return name_to_handle_at(fd, "", &any_ret->handle, &mount_id, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

enum kvs_handles kvs_reach_probe_handles(int source_fd)
{
    kvs_cleanup_fd int fd = -1;
    union any_handle any;
    struct statfs fs;

    if (fstatfs(source_fd, &fs) < 0 || (fs.f_type != EXT4_SUPER_MAGIC && fs.f_type != XFS_MAGIC &&
                                        fs.f_type != BTRFS_SUPER_MAGIC && fs.f_type != TMPFS_MAGIC))
        return KVS_HANDLES_NONE;
    if (take_handle(source_fd, &any) < 0)
        return KVS_HANDLES_NONE;
    fd = open_by_handle_at(source_fd, &any.handle, O_PATH | O_CLOEXEC);
    return fd >= 0 ? KVS_HANDLES_OPEN : KVS_HANDLES_COMPARE;
}

void kvs_reach_handle_of(struct kvs_fs *fs, int fd, dev_t dev, uint32_t *type_ret,
                         unsigned char *handle, uint32_t *len_inout)
{
    union any_handle any;

    *type_ret = 0;
    if (fs->table->handles == KVS_HANDLES_NONE || dev != fs->table->source_dev ||
        take_handle(fd, &any) < 0 || any.handle.handle_bytes > *len_inout) {
        *len_inout = 0;
        return;
    }
    *type_ret = (uint32_t)any.handle.handle_type;
    *len_inout = any.handle.handle_bytes;
    memcpy(handle, any.handle.f_handle, *len_inout);
}

static int open_by_handle(struct kvs_fs *fs, const struct kvs_node *node, int flags)
{
    union any_handle any = {.handle.handle_bytes = node->handle_len};

    if (node->handle_len == 0 || fs->table->handles != KVS_HANDLES_OPEN)
        return -ESTALE;
    any.handle.handle_type = (int)node->handle_type;
    memcpy(any.handle.f_handle, node->handle, node->handle_len);

    int fd = open_by_handle_at(fs->source_fd, &any.handle, flags);
    if (fd < 0 && errno == ENOMEM) /* also ext4's answer while the inode number is used again */
        return -ESTALE;
    return fd < 0 ? -errno : fd;
}

/* Opens what an O_PATH descriptor stands for: the inode itself, wherever its names are now. */
static int reopen(int fd, int flags)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int opened = open(path, flags & ~O_NOFOLLOW);
    return opened < 0 ? -errno : opened;
}

/* O_PATH on `path` below the source: no symbolic link on the way, and never out of it. Longer paths
 * than the kernel takes are walked in several steps. */
static int walk(int source_fd, char *path)
{
    static const struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                                        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    kvs_cleanup_fd int fd = -1;

    for (;;) {
        char *cut = NULL;
        if (strlen(path) >= PATH_MAX) {
            cut = memrchr(path, '/', PATH_MAX - 1);
            *cut = '\0';
        }
        int next = (int)syscall(SYS_openat2, fd < 0 ? source_fd : fd, path, &how, sizeof(how));
        if (next < 0)
            return -errno;
        if (!cut)
            return next;
        kvs_close_fd(&fd);
        fd = next;
        path = cut + 1;
    }
}

/* 0 when `fd` is the node's inode; -ESTALE when another one has its name, or its number, now; or
 * -errno when the file system does not say (C14). */
static int check_node(struct kvs_fs *fs, const struct kvs_node *node, int fd)
{
    unsigned char handle[KVS_HANDLE_MAX];
    uint32_t type, len = sizeof(handle);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_dev != node->dev || st.st_ino != node->ino || (st.st_mode & S_IFMT) != node->mode)
        return -ESTALE;
    kvs_reach_handle_of(fs, fd, st.st_dev, &type, handle, &len);
    bool is_same = len == 0 || node->handle_len == 0 ||
                   (len == node->handle_len && type == node->handle_type &&
                    memcmp(handle, node->handle, len) == 0);
    return is_same ? 0 : -ESTALE;
}

static int open_by_name(struct kvs_fs *fs, const struct kvs_node *node,
                        const struct kvs_names_copy_entry *name, int flags)
{
    kvs_cleanup_free char *parent = kvs_names_path(fs, name->parent);
    kvs_cleanup_free char *path = NULL;
    kvs_cleanup_fd int fd = -1;

    if (!parent || asprintf(&path, "%s/%s", parent, name->text) < 0)
        return -ENOMEM;
    fd = walk(fs->source_fd, path);
    if (fd < 0)
        return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? -ESTALE : fd;
    int error = check_node(fs, node, fd);
    if (error < 0)
        return error;
    return flags & O_PATH ? kvs_steal_fd(&fd) : reopen(fd, flags);
}

static int open_by_names(struct kvs_fs *fs, struct kvs_node *node, int flags)
{
    struct kvs_names_copy *names;
    int fd = kvs_names_copy(fs, node, &names);

    if (fd < 0)
        return fd;
    fd = -ESTALE;
    for (size_t i = 0; i < names->count && fd < 0; i++) {
        int result = open_by_name(fs, node, &names->entries[i], flags);
        if (result != -ESTALE)
            fd = result;
    }
    kvs_names_copy_free(fs, names);
    return fd;
}

/* What has no name any more is reached through whoever has it open. */
static int open_by_open(struct kvs_fs *fs, const struct kvs_node *node, int flags)
{
    kvs_cleanup_fd int fd = -1;

    pthread_mutex_lock(kvs_table_lock(fs->table));
    if (node->kept_fd >= 0)
        fd = fcntl(node->kept_fd, F_DUPFD_CLOEXEC, 0);
    else if (node->file && node->file->handles)
        fd = fcntl(node->file->handles->fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(kvs_table_lock(fs->table));
    return fd < 0 ? -ESTALE : reopen(fd, flags);
}

static int open_node(struct kvs_fs *fs, struct kvs_node *node, int flags)
{
    if (node == fs->table->root) {
        int fd = openat(fs->source_fd, ".", flags);
        return fd < 0 ? -errno : fd;
    }

    int fd = open_by_handle(fs, node, flags);
    if (fd == -ESTALE)
        fd = open_by_names(fs, node, flags);
    if (fd == -ESTALE)
        fd = open_by_open(fs, node, flags);
    return fd;
}

int kvs_node_open(struct kvs_fs *fs, struct kvs_node *node, int flags)
{
    /* Opening a FIFO or a device would block, or do something. */
    if (!(flags & O_PATH) && !S_ISREG(node->mode) && !S_ISDIR(node->mode))
        return -EINVAL;

    flags |= O_CLOEXEC | O_NOFOLLOW;
    int fd = open_node(fs, node, flags);
    if (fd == -EPERM && flags & O_NOATIME)
        fd = open_node(fs, node, flags & ~O_NOATIME);
    return fd;
}
