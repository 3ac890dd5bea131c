// SPDX-License-Identifier: Apache-2.0
// Opening, creating, flushing and releasing regular files.
#include <fcntl.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/change.h"
#include "fuse/file.h"
#include "fuse/ids.h"
#include "fuse/ops.h"
#include "fuse/reach.h"
#include "fuse/seal.h"
#include "fuse/serve.h"
#include "fuse/serve_passthrough.h"

/* What the descriptor below is opened with. Appending is done by offset, so that the digest knows
 * it. */
static int flags_below(int flags)
{
    flags &= ~(O_APPEND | O_TRUNC | O_CREAT | O_EXCL | O_NOCTTY);
    return (flags & O_ACCMODE) == O_WRONLY ? flags : flags | O_NOATIME;
}

/* Direct I/O below where the client asked for it and the file system has it (C20). */
static int open_below(struct kvs_fs *fs, struct kvs_node *node, int flags)
{
    int fd = kvs_node_open(fs, node, flags);
    if (fd == -EINVAL && (flags & O_DIRECT) != 0)
        fd = kvs_node_open(fs, node, flags & ~O_DIRECT);
    return fd;
}

/* How the kernel should treat the handle. Readers have no page cache of their own: the daemon
 * serves verified bytes. O_DIRECT stores go without FOPEN_DIRECT_IO, so that the pieces of a large
 * write arrive side by side; but not those that append, which depend on their order. The file's
 * mode has the last word. 0 or -errno. */
static int describe_handle(struct kvs_fs *fs, struct kvs_handle *handle, struct fuse_file_info *fi)
{
    fi->fh = kvs_id_of(fs, handle);
    fi->direct_io = !handle->is_parallel;
    fi->parallel_direct_writes = 1;
    fi->noflush = !handle->can_write;
    fi->keep_cache = 0;
    return kvs_passthrough_settle(fs, handle, fi);
}

/* O_TRUNC; Linux truncates with O_RDONLY too. */
static int truncate_opened(struct kvs_fs *fs, struct kvs_handle *handle)
{
    kvs_cleanup_fd int own_fd = -1;
    int fd = handle->fd;

    if (!handle->can_write) {
        own_fd = kvs_node_open(fs, handle->file->node, O_WRONLY);
        fd = own_fd;
    }
    return fd < 0 ? fd : kvs_change_truncate(fs, handle->file, fd, 0, !handle->can_write);
}

/* What is verified, and counted. */
static bool is_load(const struct kvs_handle *handle, int flags)
{
    return handle->can_read && (flags & O_TRUNC) == 0;
}

static int prepare_handle(fuse_req_t req, struct kvs_handle *handle, int flags)
{
    struct kvs_fs *fs = kvs_fs_of(req);

    if ((flags & O_TRUNC) == 0)
        return is_load(handle, flags) ? kvs_serve_open(fs, handle) : 0;
    kvs_caller_change_begins(req);
    int error = truncate_opened(fs, handle);
    kvs_caller_change_ends(req);
    return error;
}

static void release(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file *file = NULL;

    if (handle->can_write) {
        kvs_seal_at_release(fs, handle);
        file = kvs_file_find(fs, handle->file->node);
    }
    kvs_serve_close(fs, handle);
    kvs_handle_destroy(fs, handle);
    if (file != NULL) {
        kvs_seal_unseen(fs, file, true);
        kvs_file_put(fs, file);
    }
}

static int describe_opened(struct kvs_fs *fs, struct kvs_handle *handle, struct fuse_file_info *fi)
{
    int error = describe_handle(fs, handle, fi);

    if (error != 0)
        handle->load = KVS_STAT_loads_failed;
    return error;
}

void kvs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_node *node = kvs_node_of(fs, ino);
    struct kvs_file *file = NULL;
    uint64_t since = kvs_clock_ns();
    int fd = open_below(fs, node, flags_below(fi->flags));
    int error = fd < 0 ? fd : kvs_file_get(fs, node, &file);

    if (error != 0) {
        if (fd >= 0)
            close(fd);
        kvs_reply_error(req, error);
        return;
    }
    struct kvs_handle *handle = kvs_handle_create(fs, file, fd, fi->flags);
    kvs_file_put(fs, file);
    if (handle != NULL)
        handle->user = fuse_req_ctx(req)->uid;
    error = handle == NULL ? -ENOMEM : kvs_passthrough_admit(fs, handle);
    if (error == 0)
        error = prepare_handle(req, handle, fi->flags);
    if (error == 0)
        error = describe_opened(fs, handle, fi);
    if (handle != NULL && is_load(handle, fi->flags)) {
        kvs_stats_add(handle->load, 1);
        kvs_stats_time(KVS_TIMING_OPEN, since);
    }
    if (error != 0) {
        if (handle != NULL)
            release(fs, handle);
        kvs_reply_error(req, error);
        return;
    }
    if (fuse_reply_open(req, fi) == -ENOENT)
        release(fs, handle); /* the client was interrupted: no RELEASE will come */
}

/* A file that was just made below: what the daemon knows of it. Owns `fd`. */
static int adopt_created(struct kvs_fs *fs, struct kvs_node *parent, const char *name, int fd,
                         const struct fuse_file_info *fi, struct fuse_entry_param *entry_ret,
                         struct kvs_handle **handle_ret)
{
    struct stat st;
    struct kvs_node *node = NULL;
    struct kvs_file *file = NULL;

    if ((fi->flags & O_DIRECT) != 0) { /* refused where there is none, and then buffered (C20) */
        int flags = fcntl(fd, F_GETFL);
        fcntl(fd, F_SETFL, flags | O_DIRECT);
    }
    int error = fstat(fd, &st) < 0 ? -errno : kvs_node_adopt(fs, parent, name, fd, &st, &node);
    if (error == 0)
        error = kvs_file_get(fs, node, &file);
    if (error != 0) {
        if (node != NULL)
            kvs_node_forget(fs, node, 1);
        close(fd);
        return error;
    }
    *handle_ret = kvs_handle_create(fs, file, fd, fi->flags);
    if (*handle_ret != NULL) { /* from now on a seal is owed */
        pthread_rwlock_wrlock(&file->content);
        kvs_block_created(&file->block);
        kvs_digest_restart(&file->digest);
        pthread_rwlock_unlock(&file->content);
    }
    kvs_file_put(fs, file);
    if (*handle_ret == NULL) {
        kvs_node_forget(fs, node, 1);
        return -ENOMEM;
    }
    kvs_fill_entry(fs, node, &st, entry_ret);
    return 0;
}

/* As if it had not been made, or it would be in the client's way when it tries again. */
static void unmake(struct kvs_fs *fs, struct kvs_node *parent, const char *name)
{
    kvs_cleanup_fd int parent_fd = kvs_node_open(fs, parent, O_PATH);

    if (parent_fd >= 0)
        unlinkat(parent_fd, name, 0);
}

static void reply_created(fuse_req_t req, struct kvs_node *parent, const char *name, int fd,
                          struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct fuse_entry_param entry = {0};
    struct kvs_handle *handle = NULL;
    int error = fd < 0 ? fd : adopt_created(fs, parent, name, fd, fi, &entry, &handle);

    if (error != 0) {
        if (fd >= 0 && parent != NULL)
            unmake(fs, parent, name);
        kvs_reply_error(req, error);
        return;
    }
    struct kvs_node *node = handle->file->node;
    error = describe_handle(fs, handle, fi);
    bool is_taken = error == 0 && fuse_reply_create(req, &entry, fi) != -ENOENT;
    if (!is_taken) {
        release(fs, handle);
        kvs_node_forget(fs, node, 1);
    }
    if (error != 0) {
        if (parent != NULL)
            unmake(fs, parent, name);
        kvs_reply_error(req, error);
    }
}

/* Created as the caller, without O_DIRECT: where that is refused the file would be left behind. */
static int create_below(fuse_req_t req, struct kvs_node *parent, const char *name, int flags,
                        mode_t mode)
{
    struct kvs_caller saved;
    kvs_cleanup_fd int parent_fd = kvs_node_open(kvs_fs_of(req), parent, O_PATH);

    if (parent_fd < 0)
        return parent_fd;
    kvs_caller_become(req, &saved);
    int fd = openat(parent_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 && errno == EPERM && (flags & O_NOATIME) != 0)
        fd = openat(parent_fd, name, (flags & ~O_NOATIME) | O_CLOEXEC | O_NOFOLLOW, mode);
    int error = fd < 0 ? -errno : 0;
    kvs_caller_restore(&saved);
    return fd < 0 ? error : fd;
}

void kvs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                   struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    int flags = (flags_below(fi->flags) & ~O_DIRECT) | O_CREAT | O_EXCL;

    int fd = create_below(req, kvs_node_of(fs, parent), name, flags, mode);
    /* Somebody else made it since the look-up: the kernel looks again, and opens it. */
    if (fd == -EEXIST && (fi->flags & O_EXCL) == 0)
        fd = -ESTALE;
    reply_created(req, kvs_node_of(fs, parent), name, fd, fi);
}

void kvs_op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    int flags = (flags_below(fi->flags) & ~O_DIRECT) | (fi->flags & O_EXCL) | O_TMPFILE;
    int fd = create_below(req, kvs_node_of(fs, parent), ".", flags, mode);

    reply_created(req, NULL, NULL, fd, fi);
}

/* What close(2) would say below: network file systems report lost writes there. */
static int flush_below(int fd)
{
    int copy = dup(fd);
    if (copy < 0)
        return 0; /* EMFILE is nobody's lost write */
    return close(copy) < 0 && errno != EINTR ? -errno : 0;
}

void kvs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_handle *handle = kvs_handle_of(fi);

    if (!handle->can_write) {
        kvs_reply_error(req, 0);
        return;
    }
    int lost = flush_below(handle->fd);
    if (lost != 0)
        kvs_change_lost(handle->file, lost);
    int error = kvs_seal_at_flush(fs, handle, fi->lock_owner);
    kvs_reply_error(req, error != 0 ? error : lost);
}

void kvs_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    release(kvs_fs_of(req), kvs_handle_of(fi));
    kvs_reply_error(req, 0);
}
