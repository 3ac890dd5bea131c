// SPDX-License-Identifier: Apache-2.0
// Verifies what is opened for reading, and answers reads from what was verified.
#include "fuse/serve.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/crc32c.h"
#include "core/log.h"
#include "core/stats.h"
#include "core/util.h"
#include "fuse/memfd.h"
#include "fuse/names.h"
#include "fuse/pinned.h"
#include "fuse/refuse.h"
#include "fuse/seal.h"
#include "fuse/serve_passthrough.h"
#include "fuse/worker.h"

/* From here on reads move the access time as the file system's own policy says (C17). */
static void let_atime_move(struct kvs_handle *handle)
{
    int flags = fcntl(handle->fd, F_GETFL);
    if (flags >= 0 && (flags & O_NOATIME) != 0)
        fcntl(handle->fd, F_SETFL, flags & ~O_NOATIME);
}

/* A read that was answered from memory counts as one: a read at the end of the file moves the
 * access time and nothing else. */
static void touch_atime(struct kvs_handle *handle)
{
    if (!atomic_exchange(&handle->is_atime_due, false))
        return;
    let_atime_move(handle);
    _Alignas(KVS_IO_ALIGN) char nowhere[KVS_IO_ALIGN]; /* the scratch may hold the reply */
    off_t end = (off_t)KVS_ALIGN_UP(handle->size, KVS_IO_ALIGN);
    ssize_t ignored = pread(handle->fd, nowhere, sizeof(nowhere), end);
    (void)ignored;
}

static void serve_raw(struct kvs_handle *handle, enum kvs_stat load)
{
    handle->is_verified = false;
    handle->load = load;
    if (!handle->is_noatime)
        let_atime_move(handle);
}

/* How one look at the file went. */
enum outcome { DONE, SEAL_AND_LOOK_AGAIN, IS_CORRUPT };

/* `content` is held shared since before the verification. */
static void note_verified(struct kvs_handle *handle, uint64_t size)
{
    handle->is_verified = true;
    handle->generation = atomic_load(&handle->file->generation);
    handle->size = size;
    atomic_store(&handle->is_atime_due, !handle->is_noatime);
}

static void keep_verified(struct kvs_fs *fs, struct kvs_handle *handle,
                          const struct kvs_verification *found, struct kvs_buffer **buffer,
                          bool is_whole, uint32_t **sums)
{
    note_verified(handle, found->size);
    handle->piece_sums = *sums;
    *sums = NULL;
    if (is_whole) {
        kvs_buffer_keep(fs->buffers, *buffer, &handle->buffer);
        *buffer = NULL;
    }
    handle->load = is_whole ? KVS_STAT_loads_buffer : KVS_STAT_loads_pieces;
    kvs_stats_add(KVS_STAT_verified_bytes, found->size);
    if (found->is_transient) {
        kvs_file_log(fs, handle->file, KVS_LOG_TRANSIENT, LOG_WARNING,
                     "read wrong once, right the second time: served");
    }
}

static int judge(struct kvs_fs *fs, struct kvs_handle *handle, const struct kvs_verification *found,
                 struct kvs_buffer **buffer, bool is_whole, uint32_t **sums,
                 enum outcome *outcome_ret)
{
    switch (found->verdict) {
    case KVS_INTACT:
        keep_verified(fs, handle, found, buffer, is_whole, sums);
        return 0;
    case KVS_CORRUPT:
        *outcome_ret = IS_CORRUPT;
        return 0;
    case KVS_UNSEALED:
        break;
    }
    if (fs->options.unsealed == KVS_UNSEALED_DENY) {
        handle->load = KVS_STAT_loads_denied;
        return -EACCES;
    }
    if (fs->options.unsealed == KVS_UNSEALED_SEAL && *outcome_ret != SEAL_AND_LOOK_AGAIN) {
        *outcome_ret = SEAL_AND_LOOK_AGAIN;
        return 0;
    }
    *outcome_ret = DONE;
    serve_raw(handle, KVS_STAT_loads_unsealed);
    return 0;
}

/* With `content` shared: no change can begin while the block is CLEAN. */
static int verify(struct kvs_fs *fs, struct kvs_handle *handle, struct kvs_verification *found_ret,
                  enum outcome *outcome_ret)
{
    kvs_cleanup_free uint32_t *sums = NULL;
    struct stat st;

    if (fstat(handle->fd, &st) < 0)
        return -errno;
    size_t wanted = KVS_MAX(KVS_ALIGN_UP((size_t)st.st_size, KVS_IO_ALIGN), KVS_PIECE_SIZE);
    struct kvs_buffer *buffer = NULL;
    if (fs->options.buffers != KVS_BUFFERS_OFF)
        buffer = kvs_buffer_take(fs->buffers, wanted, handle->user);
    struct kvs_reading reading = {
        .memory = buffer != NULL ? buffer->memory : kvs_worker_scratch(),
        .capacity = buffer != NULL ? buffer->capacity : KVS_SCRATCH_SIZE,
        .piece_sums_ret = &sums,
    };
    int error = kvs_verify_counted(handle->fd, &reading, found_ret);
    if (error != 0) {
        char what[128];
        snprintf(what, sizeof(what), "could not be verified: %s; the file is kept",
                 strerror(-error));
        kvs_file_log(fs, handle->file, KVS_LOG_BACKING_ERROR, LOG_ERR, what);
    } else {
        error = judge(fs, handle, found_ret, &buffer, buffer != NULL && reading.whole_ret, &sums,
                      outcome_ret);
    }
    if (buffer != NULL)
        kvs_buffer_unpin(fs->buffers, buffer);
    return error;
}

/* By somebody else than whoever is opening it. */
static bool is_being_written(const struct kvs_handle *handle)
{
    struct kvs_file *file = handle->file;
    unsigned own = handle->can_write ? 1 : 0;

    pthread_mutex_lock(&file->block_lock);
    bool is_changed = file->block.state != KVS_BLOCK_CLEAN;
    pthread_mutex_unlock(&file->block_lock);
    return is_changed &&
           (atomic_load(&file->writers) > own || atomic_load(&file->has_unseen_changes));
}

static int look(struct kvs_fs *fs, struct kvs_handle *handle, struct kvs_verification *found_ret,
                enum outcome *outcome_ret)
{
    struct kvs_file *file = handle->file;
    int error = 0;

    pthread_rwlock_rdlock(&file->content);
    if (fs->options.checksums == KVS_CHECKSUMS_OFF) {
        *outcome_ret = DONE;
        serve_raw(handle, KVS_STAT_loads_unchecked);
    } else if (is_being_written(handle)) {
        *outcome_ret = DONE;
        serve_raw(handle, KVS_STAT_loads_being_written);
    } else if (kvs_passthrough_pin(fs, handle)) {
        *outcome_ret = DONE;
        note_verified(handle, kvs_pin_size(handle->pin));
        handle->load = KVS_STAT_loads_pinned;
    } else {
        error = verify(fs, handle, found_ret, outcome_ret);
    }
    pthread_rwlock_unlock(&file->content);
    return error;
}

#define MAX_LOOKS 3

static int open_once(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_verification found;
    enum outcome outcome = DONE;
    int error = look(fs, handle, &found, &outcome);

    if (error == 0 && outcome == SEAL_AND_LOOK_AGAIN) {
        error = kvs_seal_unsealed(fs, handle->file, handle->fd);
        if (error != 0)
            kvs_file_log(fs, handle->file, KVS_LOG_SEAL_FAILED, LOG_WARNING,
                         "could not be sealed on its first load: served unsealed");
        error = look(fs, handle, &found, &outcome);
    }
    if (error == 0 && outcome == IS_CORRUPT) {
        error = kvs_refuse(fs, handle->file, &found);
        if (error != -EAGAIN) {
            handle->load = KVS_STAT_loads_corrupt;
            kvs_stats_add(KVS_STAT_checksum_failures, 1);
        }
    }
    return error;
}

int kvs_serve_open(struct kvs_fs *fs, struct kvs_handle *handle)
{
    int error = -EAGAIN;

    handle->load = KVS_STAT_loads_failed;
    kvs_seal_unseen(fs, handle->file, false);
    for (int i = 0; error == -EAGAIN && i < MAX_LOOKS; i++)
        error = open_once(fs, handle);
    return error == -EAGAIN ? -EIO : error;
}

static bool is_still_verified(const struct kvs_handle *handle)
{
    return handle->is_verified && handle->generation == atomic_load(&handle->file->generation);
}

/* Reads an aligned window around [offset, offset+size) of the file; what was asked for is at
 * *data_ret. */
static int read_window(struct kvs_fs *fs, struct kvs_handle *handle, uint64_t offset, size_t size,
                       const char **data_ret, size_t *len_ret)
{
    char *scratch = kvs_worker_scratch();
    uint64_t start = KVS_ALIGN_DOWN(offset, KVS_IO_ALIGN);
    size_t lead = (size_t)(offset - start), got = 0;
    size_t window = KVS_ALIGN_UP(lead + size, KVS_IO_ALIGN);
    int error = kvs_read_range(handle->fd, scratch, start, window, &got);

    if (error == -EINVAL) {
        int fd = kvs_handle_plain_fd(fs, handle);
        error = fd < 0 ? fd : kvs_read_range(fd, scratch, start, window, &got);
    }
    if (error != 0)
        return error;
    *data_ret = scratch + lead;
    *len_ret = got > lead ? KVS_MIN(got - lead, size) : 0;
    return 0;
}

static void reply_data(fuse_req_t req, const void *data, size_t len)
{
    kvs_stats_add(KVS_STAT_read_bytes, len);
    fuse_reply_buf(req, data, len);
}

static void reply_raw(fuse_req_t req, struct kvs_fs *fs, struct kvs_handle *handle, size_t size,
                      uint64_t offset)
{
    const char *data = NULL;
    size_t len = 0;
    int error = read_window(fs, handle, offset, size, &data, &len);

    if (!handle->is_noatime)
        let_atime_move(handle);
    if (error != 0) {
        kvs_stats_backing_error(KVS_BACKING_READ, error);
        kvs_reply_error(req, error);
    } else {
        reply_data(req, data, len);
    }
}

/* Reads whole pieces [first, end) again, from `fd`, and checks each against its sum. */
static int read_pieces(struct kvs_handle *handle, int fd, uint64_t first, uint64_t end)
{
    char *scratch = kvs_worker_scratch();
    size_t got = 0, len = (size_t)(end - first);
    int error = kvs_read_range(fd, scratch, first, KVS_ALIGN_UP(len, KVS_IO_ALIGN), &got);

    if (error != 0)
        return error;
    if (got < len)
        return -EIO;
    for (size_t done = 0; done < len; done += KVS_PIECE_SIZE) {
        size_t piece = KVS_MIN(KVS_PIECE_SIZE, len - done);
        if (kvs_crc32c(0, scratch + done, piece) !=
            handle->piece_sums[(first + done) / KVS_PIECE_SIZE])
            return -EIO;
    }
    return 0;
}

static void reply_unreadable(fuse_req_t req, struct kvs_fs *fs, struct kvs_handle *handle,
                             int error)
{
    kvs_stats_add(KVS_STAT_unstable, 1);
    kvs_file_log(fs, handle->file, KVS_LOG_BACKING_ERROR, LOG_ERR,
                 "no longer reads as it did when it was verified: EIO");
    kvs_reply_error(req, error);
}

static void reply_pieces(fuse_req_t req, struct kvs_fs *fs, struct kvs_handle *handle, size_t size,
                         uint64_t offset)
{
    uint64_t first = KVS_ALIGN_DOWN(offset, KVS_PIECE_SIZE);
    uint64_t end = KVS_MIN(KVS_ALIGN_UP(offset + size, KVS_PIECE_SIZE), handle->size);
    size_t len = (size_t)(KVS_MIN(offset + size, handle->size) - offset);
    int error = read_pieces(handle, handle->fd, first, end);

    if (error != 0) {
        kvs_cleanup_fd int device = kvs_open_device_reader(handle->fd);
        error = device < 0 ? device : read_pieces(handle, device, first, end);
    }
    if (!is_still_verified(handle)) {
        reply_raw(req, fs, handle, size, offset);
    } else if (error != 0) {
        reply_unreadable(req, fs, handle, error);
    } else {
        touch_atime(handle);
        reply_data(req, (const char *)kvs_worker_scratch() + (offset - first), len);
    }
}

/* A load by passthrough has some of its reads come here: readahead(2), and all of them where it met
 * handles of another mode. */
static void reply_pinned(fuse_req_t req, struct kvs_fs *fs, struct kvs_handle *handle, size_t size,
                         uint64_t offset)
{
    void *scratch = kvs_worker_scratch();
    size_t len = (size_t)KVS_MIN((uint64_t)size, handle->size - offset);
    int error = kvs_pin_read(handle->pin, scratch, (size_t)offset, len);

    if (!is_still_verified(handle)) {
        reply_raw(req, fs, handle, size, offset);
    } else if (error != 0) {
        reply_unreadable(req, fs, handle, error);
    } else {
        touch_atime(handle);
        reply_data(req, scratch, len);
    }
}

void kvs_serve_read(fuse_req_t req, struct kvs_fs *fs, struct kvs_handle *handle, size_t size,
                    uint64_t offset)
{
    size = KVS_MIN(size, KVS_MAX_REQUEST);
    if (!is_still_verified(handle)) {
        reply_raw(req, fs, handle, size, offset);
        return;
    }
    if (offset >= handle->size) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    if (handle->pin != NULL) {
        reply_pinned(req, fs, handle, size, offset);
        return;
    }
    struct kvs_buffer *buffer = kvs_buffer_pin(fs->buffers, &handle->buffer);
    if (buffer == NULL) {
        reply_pieces(req, fs, handle, size, offset);
        return;
    }
    size_t len = (size_t)KVS_MIN((uint64_t)size, handle->size - offset);
    touch_atime(handle); /* the handle may be gone as soon as the client has its reply */
    reply_data(req, (const char *)buffer->memory + offset, len);
    kvs_buffer_unpin(fs->buffers, buffer);
}

void kvs_serve_close(struct kvs_fs *fs, struct kvs_handle *handle)
{
    bool was_read = handle->is_lender && kvs_memfd_was_read(handle->buffer->fd);

    kvs_passthrough_release(fs, handle);
    kvs_buffer_give_up(fs->buffers, &handle->buffer);
    if (was_read) /* last: the file system below may hang */
        touch_atime(handle);
    free(handle->piece_sums);
    handle->piece_sums = NULL;
}
