// SPDX-License-Identifier: Apache-2.0
// Reading, writing, syncing and allocating in open regular files.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/change.h"
#include "fuse/file.h"
#include "fuse/ops.h"
#include "fuse/serve.h"

#define APPEND_PATIENCE_MS 1000

void kvs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                 struct fuse_file_info *fi)
{
    kvs_serve_read(req, kvs_fs_of(req), kvs_handle_of(fi), size, (uint64_t)offset);
}

/* Writes until all is written or an error stops it: the bytes that are in the file, or -errno if
 * none. */
static ssize_t write_fully(int fd, const char *data, size_t size, off_t offset)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pwrite(fd, data + done, size - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return done > 0 ? (ssize_t)done : n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Writes within a file go side by side; those that extend it would wait for each other (join.h). */
static bool write_joined(struct kvs_handle *handle, const char *data, size_t size, off_t offset)
{
    struct stat st;

    return handle->is_direct && fstat(handle->fd, &st) == 0 && offset + (off_t)size > st.st_size &&
           kvs_join_write(&handle->file->join, handle->fd, data, size, offset);
}

/* O_DIRECT below refuses what is not aligned; through the mount it is accepted (C20). */
static ssize_t write_below(struct kvs_fs *fs, struct kvs_handle *handle, const char *data,
                           size_t size, off_t offset)
{
    ssize_t written = write_fully(handle->fd, data, size, offset);

    if (written >= 0 && (size_t)written < size && handle->is_direct) {
        /* A direct write may stop at an unaligned rest. */
        ssize_t rest = write_below(fs, handle, data + written, size - (size_t)written,
                                   offset + written);
        return rest > 0 ? written + rest : written;
    }
    if (written != -EINVAL || !handle->is_direct)
        return written;
    int fd = kvs_handle_plain_fd(fs, handle);
    return fd < 0 ? fd : write_fully(fd, data, size, offset);
}

/* All or an error: nobody looks at the count of pages that are written back from a mapping. */
static ssize_t write_whole(struct kvs_fs *fs, struct kvs_handle *handle, const char *data,
                           size_t size, off_t offset)
{
    ssize_t written = write_below(fs, handle, data, size, offset);

    if (written < 0 || (size_t)written == size)
        return written;
    ssize_t rest = write_below(fs, handle, data + written, size - (size_t)written,
                               offset + written);
    return rest == (ssize_t)size - written ? (ssize_t)size : rest < 0 ? rest : -EIO;
}

static ssize_t write_at(struct kvs_fs *fs, struct kvs_handle *handle, const char *data, size_t size,
                        off_t offset, bool is_writeback)
{
    struct kvs_change change;
    int error = kvs_change_begin(fs, handle->file, (uint64_t)offset, size, &change);

    if (error != 0)
        return error;
    bool is_summed = fs->options.checksums == KVS_CHECKSUMS_ON;
    uint32_t crc = is_summed ? kvs_crc32c(0, data, size) : 0;
    ssize_t written = 0;
    if (is_writeback)
        written = write_whole(fs, handle, data, size, offset);
    else if (write_joined(handle, data, size, offset))
        written = (ssize_t)size;
    else
        written = write_below(fs, handle, data, size, offset);
    if (written < 0)
        kvs_change_failed(&change, (int)written);
    else if (!is_summed)
        kvs_change_unseen(&change);
    else
        kvs_change_done(&change, (uint64_t)written,
                        (size_t)written == size ? crc : kvs_crc32c(0, data, (size_t)written));
    return written;
}

/* Finds the end of the file, with append_lock held. The pieces of one asynchronous direct write
 * come side by side: one that is for beyond the end waits for those before it, which other workers
 * have received already. But not for long, as one of them may fail, or somebody may have cut the
 * file underneath. */
static int find_end(struct kvs_handle *handle, off_t offset, off_t *end_ret)
{
    struct timespec until = kvs_clock_deadline(APPEND_PATIENCE_MS);
    struct stat st;
    int error = 0;

    for (;;) {
        if (fstat(handle->fd, &st) < 0)
            return -errno;
        *end_ret = st.st_size;
        if (!handle->is_direct || offset <= st.st_size || error != 0)
            return 0;
        error = pthread_cond_timedwait(&handle->file->appended, &handle->file->append_lock, &until);
    }
}

/* The kernel's idea of where the file ends may be old; ours is not. */
static ssize_t append(struct kvs_fs *fs, struct kvs_handle *handle, const char *data, size_t size,
                      off_t offset)
{
    struct kvs_file *file = handle->file;
    off_t end = 0;

    pthread_mutex_lock(&file->append_lock);
    ssize_t written = find_end(handle, offset, &end);
    if (written == 0)
        written = write_at(fs, handle, data, size, end, false);
    pthread_cond_broadcast(&file->appended);
    pthread_mutex_unlock(&file->append_lock);
    return written;
}

void kvs_op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                  struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_handle *handle = kvs_handle_of(fi);
    /* Pages of a mapping have their place, whatever the handle says; so have the pieces of one
     * write that come in any order. */
    bool is_append = (fi->flags & O_APPEND) != 0 && !fi->writepage && !handle->is_parallel;

    kvs_handle_writes(handle, fi->lock_owner);
    kvs_caller_change_begins(req);
    ssize_t written = is_append ? append(fs, handle, data, size, offset)
                                : write_at(fs, handle, data, size, offset, fi->writepage);
    kvs_caller_change_ends(req);

    if (written < 0) {
        kvs_reply_error(req, (int)written);
        return;
    }
    kvs_stats_add(KVS_STAT_written_bytes, (uint64_t)written);
    fuse_reply_write(req, (size_t)written);
}

void kvs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct kvs_handle *handle = kvs_handle_of(fi);
    int error = (datasync ? fdatasync(handle->fd) : fsync(handle->fd)) < 0 ? -errno : 0;

    if (error != 0 && handle->can_write)
        kvs_change_lost(handle->file, error);
    kvs_reply_error(req, error);
}

/* What was zeroed of [offset, offset+len), as far as it is certain: all of it when it begins where
 * the file ended, or, for punched and zeroed ranges, up to the end of the file. */
static void note_zeros(struct kvs_change *change, uint64_t offset, uint64_t len, int mode,
                       uint64_t old_size)
{
    bool is_zeroing = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
    uint64_t zeros = len;

    if ((mode & FALLOC_FL_KEEP_SIZE) != 0)
        zeros = offset < old_size ? KVS_MIN(len, old_size - offset) : 0;
    if (is_zeroing || offset >= old_size)
        kvs_change_done(change, zeros, kvs_crc32c_zeros(zeros));
    else
        kvs_change_unseen(change);
}

static int allocate(struct kvs_fs *fs, struct kvs_handle *handle, int mode, uint64_t offset,
                    uint64_t len)
{
    struct kvs_change change;
    struct stat st;
    int error = kvs_change_begin(fs, handle->file, offset, len, &change);

    if (error != 0)
        return error;
    /* Looked at after the change began: whoever writes here meanwhile leaves no sum. */
    if (fstat(handle->fd, &st) < 0 || fallocate(handle->fd, mode, (off_t)offset, (off_t)len) < 0) {
        error = -errno;
        kvs_change_unseen(&change);
        return error;
    }
    note_zeros(&change, offset, len, mode, (uint64_t)st.st_size);
    return 0;
}

/* Whether the call can alter bytes that a reader sees (C4, C7). */
static bool alters_content(struct kvs_handle *handle, int mode, uint64_t offset, uint64_t len)
{
    struct stat st;

    if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0)
        return true;
    return (mode & FALLOC_FL_KEEP_SIZE) == 0 &&
           (fstat(handle->fd, &st) < 0 || offset + len > (uint64_t)st.st_size);
}

void kvs_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t len,
                      struct fuse_file_info *fi)
{
    struct kvs_handle *handle = kvs_handle_of(fi);
    int error = 0;

    kvs_caller_change_begins(req);
    if (alters_content(handle, mode, (uint64_t)offset, (uint64_t)len))
        error = allocate(kvs_fs_of(req), handle, mode, (uint64_t)offset, (uint64_t)len);
    else if (fallocate(handle->fd, mode, offset, len) < 0)
        error = -errno;
    kvs_caller_change_ends(req);
    kvs_reply_error(req, error);
}

void kvs_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                  struct fuse_file_info *fi)
{
    off_t found = lseek(kvs_handle_of(fi)->fd, offset, whence);

    if (found < 0)
        kvs_reply_error(req, -errno);
    else
        fuse_reply_lseek(req, found);
}
