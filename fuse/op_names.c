// SPDX-License-Identifier: Apache-2.0
// Operations on names: look-ups and their counts, making, removing, renaming and linking.
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/file.h"
#include "fuse/names.h"
#include "fuse/ops.h"
#include "fuse/reach.h"
#include "fuse/seal.h"

void kvs_fill_entry(struct kvs_fs *fs, struct kvs_node *node, const struct stat *st,
                    struct fuse_entry_param *entry_ret)
{
    *entry_ret = (struct fuse_entry_param){
        .ino = kvs_node_ino(fs, node),
        .attr = *st,
        .attr_timeout = fs->options.attr_timeout,
        .entry_timeout = fs->options.entry_timeout,
    };
}

/* Hands the caller's one look-up of `node` over to the kernel. */
static void reply_entry(fuse_req_t req, struct kvs_fs *fs, struct kvs_node *node,
                        const struct stat *st)
{
    struct fuse_entry_param entry;

    kvs_fill_entry(fs, node, st, &entry);
    if (fuse_reply_entry(req, &entry) != 0) /* interrupted: the kernel did not take it */
        kvs_node_forget(fs, node, 1);
}

static int open_parent(struct kvs_fs *fs, fuse_ino_t parent)
{
    return kvs_node_open(fs, kvs_node_of(fs, parent), O_PATH | O_DIRECTORY);
}

/* (parent, name) is not on disk any more; it was known to name `known` (NULL: nothing), whose
 * reference is given back. */
static void forget_known(struct kvs_fs *fs, fuse_ino_t parent, const char *name,
                         struct kvs_node *known)
{
    if (!known)
        return;
    if (kvs_names_remove(fs, kvs_node_of(fs, parent), name, known))
        kvs_file_forgive(fs, known);
    kvs_node_unref(fs, known);
}

/* The same for whoever removed it, while the kernel lets nobody make it again. */
static void forget_name(struct kvs_fs *fs, fuse_ino_t parent, const char *name)
{
    forget_known(fs, parent, name, kvs_names_find(fs, kvs_node_of(fs, parent), name));
}

void kvs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_node *parent_node = kvs_node_of(fs, parent);
    struct kvs_node *known = kvs_names_find(fs, parent_node, name); /* it may be made meanwhile */
    struct kvs_node *node;
    struct stat st;

    int error = kvs_node_lookup(fs, parent_node, name, &node, &st);
    if (error == -ENOENT)
        forget_known(fs, parent, name, known);
    else if (known)
        kvs_node_unref(fs, known);
    if (error == 0) {
        reply_entry(req, fs, node, &st);
        return;
    }
    if (error == -ENOENT && fs->options.negative_timeout > 0)
        fuse_reply_entry(req,
                         &(struct fuse_entry_param){.entry_timeout = fs->options.negative_timeout});
    else
        kvs_reply_error(req, error);
}

void kvs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    struct kvs_fs *fs = kvs_fs_of(req);

    kvs_node_forget(fs, kvs_node_of(fs, ino), nlookup);
    fuse_reply_none(req);
}

void kvs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct kvs_fs *fs = kvs_fs_of(req);

    for (size_t i = 0; i < count; i++)
        kvs_node_forget(fs, kvs_node_of(fs, forgets[i].ino), forgets[i].nlookup);
    fuse_reply_none(req);
}

/* What MKNOD, MKDIR and SYMLINK make. */
struct making {
    mode_t mode; /* with the file type */
    dev_t rdev;
    const char *link; /* a symbolic link's text, else NULL */
};

static int make_as_caller(fuse_req_t req, int parent_fd, const char *name,
                          const struct making *making)
{
    struct kvs_caller saved;
    int result;

    kvs_caller_become(req, &saved);
    if (S_ISDIR(making->mode))
        result = mkdirat(parent_fd, name, making->mode & ~(mode_t)S_IFMT);
    else if (making->link)
        result = symlinkat(making->link, parent_fd, name);
    else
        result = mknodat(parent_fd, name, making->mode, making->rdev);
    int error = result < 0 ? -errno : 0;
    kvs_caller_restore(&saved);
    return error;
}

/* A regular file from mknod(2) is created and never closed: this is when it is sealed. */
static int seal_made(struct kvs_fs *fs, struct kvs_node *node)
{
    struct kvs_file *file;
    int error = kvs_file_get(fs, node, &file);

    if (error != 0)
        return error;
    pthread_rwlock_wrlock(&file->content);
    kvs_block_created(&file->block);
    pthread_rwlock_unlock(&file->content);
    error = kvs_seal_at_publish(fs, node);
    kvs_file_put(fs, file);
    return error;
}

static int make(fuse_req_t req, fuse_ino_t parent, const char *name, const struct making *making,
                struct kvs_node **node_ret, struct stat *st_ret)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    kvs_cleanup_fd int parent_fd = -1;

    parent_fd = open_parent(fs, parent);
    if (parent_fd < 0)
        return parent_fd;

    int error = make_as_caller(req, parent_fd, name, making);
    if (error == 0)
        error = kvs_node_lookup(fs, kvs_node_of(fs, parent), name, node_ret, st_ret);
    else
        return error;
    if (error != 0) { /* as if it had not been made */
        unlinkat(parent_fd, name, S_ISDIR(making->mode) ? AT_REMOVEDIR : 0);
        return error;
    }
    if (!S_ISREG(making->mode))
        return 0;

    error = seal_made(fs, *node_ret);
    if (error == 0 && fstatat(parent_fd, name, st_ret, AT_SYMLINK_NOFOLLOW) < 0)
        error = -errno;
    if (error != 0) { /* as if it had not been made: it is empty */
        unlinkat(parent_fd, name, 0);
        forget_name(fs, parent, name);
        kvs_node_forget(fs, *node_ret, 1);
    }
    return error;
}

static void make_and_reply(fuse_req_t req, fuse_ino_t parent, const char *name,
                           const struct making *making)
{
    struct kvs_node *node;
    struct stat st;
    int error = make(req, parent, name, making, &node, &st);

    if (error != 0)
        kvs_reply_error(req, error);
    else
        reply_entry(req, kvs_fs_of(req), node, &st);
}

void kvs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    make_and_reply(req, parent, name, &(struct making){.mode = mode, .rdev = rdev});
}

void kvs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    make_and_reply(req, parent, name, &(struct making){.mode = mode | S_IFDIR});
}

void kvs_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
    make_and_reply(req, parent, name, &(struct making){.mode = S_IFLNK, .link = link});
}

void kvs_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    kvs_cleanup_fd int fd = kvs_node_open(fs, kvs_node_of(fs, ino), O_PATH);
    char text[PATH_MAX + 1];

    if (fd < 0) {
        kvs_reply_error(req, fd);
        return;
    }
    ssize_t len = readlinkat(fd, "", text, sizeof(text) - 1);
    if (len < 0) {
        kvs_reply_error(req, -errno);
        return;
    }
    text[len] = '\0';
    fuse_reply_readlink(req, text);
}

/* What is about to lose a name. */
struct doomed {
    int fd;                /* -1: there is nothing */
    struct kvs_node *node; /* kept, and referenced; NULL: it is not known */
};

static struct doomed keep_doomed(struct kvs_fs *fs, int parent_fd, const char *name)
{
    struct doomed doomed = {.fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    struct stat st;

    if (doomed.fd >= 0 && fstat(doomed.fd, &st) == 0)
        doomed.node = kvs_node_find(fs, doomed.fd, &st);
    int kept_fd = doomed.node ? fcntl(doomed.fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (kept_fd >= 0)
        kvs_node_keep(fs, doomed.node, kept_fd);
    return doomed;
}

/* It has lost it, or not. */
static void end_doomed(struct kvs_fs *fs, struct doomed *doomed, bool is_removed)
{
    struct kvs_node *node = doomed->node;
    struct stat st;

    if (node) {
        if (is_removed &&
            (S_ISDIR(node->mode) || (fstat(doomed->fd, &st) == 0 && st.st_nlink == 0)))
            kvs_node_end(fs, node);
        else
            kvs_node_let_go(fs, node);
        kvs_node_unref(fs, node);
    }
    kvs_close_fd(&doomed->fd);
}

static int remove_name(struct kvs_fs *fs, fuse_ino_t parent, const char *name, int flags)
{
    kvs_cleanup_fd int parent_fd = -1;
    struct doomed doomed = {.fd = -1};

    parent_fd = open_parent(fs, parent);
    if (parent_fd < 0)
        return parent_fd;
    if (flags & AT_REMOVEDIR)
        doomed = keep_doomed(fs, parent_fd, name);
    int error = unlinkat(parent_fd, name, flags) < 0 ? -errno : 0;
    end_doomed(fs, &doomed, error == 0);
    if (error == 0 || error == -ENOENT)
        forget_name(fs, parent, name);
    return error;
}

void kvs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    kvs_reply_error(req, remove_name(kvs_fs_of(req), parent, name, 0));
}

void kvs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    kvs_reply_error(req, remove_name(kvs_fs_of(req), parent, name, AT_REMOVEDIR));
}

/* Seals what is at this name on disk before it is published under another one (C2). That there is
 * nothing is for the rename itself to say. */
static int seal_at_name(struct kvs_fs *fs, int parent_fd, const char *name)
{
    kvs_cleanup_fd int fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : -errno;

    struct kvs_node *node = S_ISREG(st.st_mode) ? kvs_node_find(fs, fd, &st) : NULL;
    if (!node) /* not changed through the mount */
        return 0;
    int error = kvs_seal_at_publish(fs, node);
    kvs_node_unref(fs, node);
    return error;
}

/* After the rename on disk. */
static void rename_known(struct kvs_fs *fs, fuse_ino_t parent, const char *name,
                         fuse_ino_t new_parent, const char *new_name, bool exchange)
{
    struct kvs_node *new_parent_node = kvs_node_of(fs, new_parent);
    struct kvs_node *replaced = kvs_names_find(fs, new_parent_node, new_name);

    /* Without memory for it a name is not known: it will be when it is looked up again. */
    (void)kvs_names_move(fs, kvs_node_of(fs, parent), name, new_parent_node, new_name, exchange);
    if (!replaced)
        return;
    if (!exchange)
        kvs_file_forgive(fs, replaced);
    kvs_node_unref(fs, replaced);
}

static int rename_name(struct kvs_fs *fs, fuse_ino_t parent, const char *name,
                       fuse_ino_t new_parent, const char *new_name, unsigned flags)
{
    kvs_cleanup_fd int fd = -1;
    kvs_cleanup_fd int new_fd = -1;
    struct doomed replaced = {.fd = -1};

    fd = open_parent(fs, parent);
    if (fd < 0)
        return fd;
    new_fd = open_parent(fs, new_parent);
    if (new_fd < 0)
        return new_fd;

    int error = seal_at_name(fs, fd, name);
    if (error == 0 && flags & RENAME_EXCHANGE)
        error = seal_at_name(fs, new_fd, new_name);
    if (error != 0)
        return error;
    if ((flags & (RENAME_NOREPLACE | RENAME_EXCHANGE)) == 0)
        replaced = keep_doomed(fs, new_fd, new_name);
    error = renameat2(fd, name, new_fd, new_name, flags) < 0 ? -errno : 0;
    end_doomed(fs, &replaced, error == 0);
    if (error == 0)
        rename_known(fs, parent, name, new_parent, new_name, flags & RENAME_EXCHANGE);
    return error;
}

void kvs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                   const char *new_name, unsigned flags)
{
    kvs_reply_error(req, rename_name(kvs_fs_of(req), parent, name, new_parent, new_name, flags));
}

/* AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH, and says ENOENT without it. */
static int link_fd(int fd, int parent_fd, const char *name)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

    if (linkat(fd, "", parent_fd, name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, parent_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int link_node(struct kvs_fs *fs, struct kvs_node *node, fuse_ino_t parent, const char *name,
                     struct kvs_node **node_ret, struct stat *st_ret)
{
    kvs_cleanup_fd int fd = -1;
    kvs_cleanup_fd int parent_fd = -1;

    fd = kvs_node_open(fs, node, O_PATH);
    if (fd < 0)
        return fd;
    parent_fd = open_parent(fs, parent);
    if (parent_fd < 0)
        return parent_fd;

    int error = kvs_seal_at_publish(fs, node);
    if (error == 0)
        error = link_fd(fd, parent_fd, name);
    if (error != 0)
        return error;
    error = fstat(fd, st_ret) < 0 ? -errno : 0;
    if (error == 0)
        error = kvs_node_adopt(fs, kvs_node_of(fs, parent), name, fd, st_ret, node_ret);
    if (error != 0) /* as if it had not been made */
        unlinkat(parent_fd, name, 0);
    return error;
}

void kvs_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_node *node = NULL;
    struct stat st;
    int error = link_node(fs, kvs_node_of(fs, ino), new_parent, new_name, &node, &st);

    if (error != 0)
        kvs_reply_error(req, error);
    else
        reply_entry(req, fs, node, &st);
}
