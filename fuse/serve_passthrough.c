// SPDX-License-Identifier: Apache-2.0
// Keeps each file's mode, its backing file in the kernel, and whether passthrough works here.
#include "fuse/serve_passthrough.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/stats.h"
#include "core/util.h"
#include "core/verify.h"
#include "fuse/capabilities.h"
#include "fuse/change.h"
#include "fuse/memfd.h"
#include "fuse/pinned.h"

#ifndef FUSE_DEV_IOC_MAGIC
#define FUSE_DEV_IOC_MAGIC 229
#endif

/* How long an open waits for loads that are over to be released. */
#define RELEASE_PATIENCE_MS       250 /* or the record would have to go */
#define WRITE_RELEASE_PATIENCE_MS 5   /* or each write would be copied (mirror.h) */

/* libfuse's own calls need a request, which is gone when a reply comes too late, and log what is no
 * error here. */
#ifndef FUSE_DEV_IOC_BACKING_OPEN /* headers before Linux 6.9 */
struct fuse_backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
#define FUSE_DEV_IOC_BACKING_OPEN  _IOW(FUSE_DEV_IOC_MAGIC, 1, struct fuse_backing_map)
#define FUSE_DEV_IOC_BACKING_CLOSE _IOW(FUSE_DEV_IOC_MAGIC, 2, uint32_t)
#endif

struct kvs_passthrough {
    atomic_bool can_pin;  /* buffered loads */
    atomic_bool can_lend; /* O_DIRECT loads */
    atomic_bool is_pin_announced, is_lend_announced;
};

static void announce_pin(struct kvs_passthrough *passthrough, const char *why_not)
{
    if (atomic_exchange(&passthrough->is_pin_announced, true))
        return;
    if (why_not == NULL)
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO,
                "buffered loads: by kernel passthrough over verified, locked pages");
    else
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO,
                "buffered loads: from verified buffers, no passthrough: %s", why_not);
}

static void announce_lend(struct kvs_passthrough *passthrough, const char *why_not)
{
    if (atomic_exchange(&passthrough->is_lend_announced, true))
        return;
    if (why_not == NULL)
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO,
                "O_DIRECT loads: by kernel passthrough over verified buffers");
    else
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO,
                "O_DIRECT loads: from verified buffers, no passthrough: %s", why_not);
}

static void stop_pinning(struct kvs_passthrough *passthrough, const char *why_not)
{
    atomic_store(&passthrough->can_pin, false);
    announce_pin(passthrough, why_not);
}

static void stop_lending(struct kvs_passthrough *passthrough, const char *why_not)
{
    atomic_store(&passthrough->can_lend, false);
    announce_lend(passthrough, why_not);
}

static void turn_off(struct kvs_passthrough *passthrough, const char *why_not)
{
    stop_pinning(passthrough, why_not);
    stop_lending(passthrough, why_not);
}

static void find_obstacles(struct kvs_fs *fs)
{
    struct kvs_passthrough *passthrough = fs->passthrough;

    if (fs->options.passthrough == KVS_PASSTHROUGH_OFF)
        turn_off(passthrough, "switched off");
    else if (!kvs_capabilities_have(CAP_SYS_ADMIN))
        turn_off(passthrough, "it takes CAP_SYS_ADMIN");
    else if (!kvs_capabilities_have(CAP_IPC_LOCK))
        stop_pinning(passthrough, "it takes CAP_IPC_LOCK");
    else if (!kvs_pins_suit(fs->source_fd))
        stop_pinning(passthrough, "the source is not on a local ext4, XFS, Btrfs, F2FS or tmpfs");
}

int kvs_passthrough_create(struct kvs_fs *fs)
{
    struct kvs_passthrough *passthrough = calloc(1, sizeof(*passthrough));

    if (passthrough == NULL)
        return -ENOMEM;
    /* Some blocks at a time; and none that could not be read back after a writer joined. */
    uint64_t budget = fs->options.pinned_memory;
    uint64_t most = KVS_MIN(budget / 4, fs->options.max_reread);
    int error = kvs_pins_create(budget, most, &fs->pins);
    if (error != 0) {
        free(passthrough);
        return error;
    }
    atomic_store(&passthrough->can_pin, true);
    atomic_store(&passthrough->can_lend, true);
    fs->passthrough = passthrough;
    find_obstacles(fs);
    return 0;
}

bool kvs_passthrough_is_on(const struct kvs_fs *fs)
{
    return atomic_load(&fs->passthrough->can_pin);
}

void kvs_passthrough_negotiate(struct kvs_fs *fs, struct fuse_conn_info *conn)
{
    struct kvs_passthrough *passthrough = fs->passthrough;

    if (!atomic_load(&passthrough->can_pin) && !atomic_load(&passthrough->can_lend))
        return;
    /* A backing depth of 0 will do: neither memory nor what kvs_pins_suit() takes is stacked. */
    if (fs->is_held)
        turn_off(passthrough, "the next daemon of a held mount could not take it over in time");
    else if (!fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH))
        turn_off(passthrough, "the kernel has none (before Linux 6.9)");
    else if (atomic_load(&passthrough->can_lend))
        kvs_buffers_make_lendable(fs->buffers);
}

void kvs_passthrough_destroy(struct kvs_fs *fs)
{
    kvs_pins_destroy(fs->pins);
    free(fs->passthrough);
    fs->passthrough = NULL;
}

static bool is_clean(struct kvs_file *file)
{
    pthread_mutex_lock(&file->block_lock);
    bool is_clean = file->block.state == KVS_BLOCK_CLEAN;
    pthread_mutex_unlock(&file->block_lock);
    return is_clean;
}

/* Whether a load that is being opened would become one by passthrough, as things stand. */
static bool is_possible(struct kvs_file *file)
{
    pthread_mutex_lock(&file->mode_lock);
    bool is_possible = file->mode.ordinary == 0;
    pthread_mutex_unlock(&file->mode_lock);
    return is_possible;
}

bool kvs_passthrough_pin(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_passthrough *passthrough = fs->passthrough;
    bool is_known = false;

    if (!atomic_load(&passthrough->can_pin) || handle->can_write || handle->is_direct ||
        !is_possible(handle->file) || !is_clean(handle->file))
        return false;
    uint64_t since = kvs_clock_ns();
    handle->pin = kvs_pins_get(fs->pins, handle->fd, &is_known);
    if (handle->pin == NULL)
        return false;
    if (!is_known) {
        kvs_stats_time(KVS_TIMING_VERIFY, since);
        kvs_stats_add(KVS_STAT_verified_bytes, kvs_pin_size(handle->pin));
    }
    return true;
}

/* Gives the kernel the file that it is to read itself. Its number, or 0. */
static int open_backing(struct kvs_fs *fs, int fd)
{
    struct fuse_backing_map map = {.fd = fd};
    int id = ioctl(fuse_session_fd(fs->session), FUSE_DEV_IOC_BACKING_OPEN, &map);

    return id > 0 ? id : 0;
}

static void close_backing(struct kvs_fs *fs, int id)
{
    uint32_t number = (uint32_t)id;

    ioctl(fuse_session_fd(fs->session), FUSE_DEV_IOC_BACKING_CLOSE, &number);
}

/* Only what is open for both can be mapped to write. */
static bool can_write_unseen(const struct kvs_handle *handle)
{
    return handle->can_read && handle->can_write;
}

/* A client that loaded the block and closed it may be here before its RELEASE. mode_lock is held.
 */
static void wait_for_releases(struct kvs_file *file, unsigned patience_ms)
{
    struct timespec until = kvs_clock_deadline(patience_ms);

    while (file->mode.passthrough > 0 &&
           pthread_cond_timedwait(&file->mode_ended, &file->mode_lock, &until) == 0)
        ;
}

/* A verified O_DIRECT load that has all of its block in a buffer. */
static bool can_be_lent(const struct kvs_fs *fs, const struct kvs_handle *handle)
{
    return atomic_load(&fs->passthrough->can_lend) && handle->is_direct && !handle->can_write &&
           handle->is_verified && handle->size > 0;
}

int kvs_passthrough_admit(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file *file = handle->file;
    bool is_unseen = can_write_unseen(handle);

    if (!handle->can_write)
        return 0;
    pthread_mutex_lock(&file->mode_lock);
    if (file->mode.lent != NULL && is_unseen)
        wait_for_releases(file, RELEASE_PATIENCE_MS);
    else if (file->mode.lent != NULL && !file->mode.stays)
        wait_for_releases(file, WRITE_RELEASE_PATIENCE_MS);
    file->mode.stays = file->mode.passthrough > 0;
    bool is_refused = is_unseen && file->mode.lent != NULL;
    pthread_mutex_unlock(&file->mode_lock);
    if (is_refused)
        handle->load = KVS_STAT_loads_failed;
    return is_refused ? -EBUSY : 0;
}

/* Who maps blocks to write makes them through handles for both, before anybody loads them. */
static void notice_mapper(struct kvs_fs *fs, const struct kvs_handle *handle)
{
    struct stat st;

    if (can_write_unseen(handle) && atomic_load(&fs->passthrough->can_lend) &&
        fstat(handle->fd, &st) == 0 && st.st_size > KVS_IO_ALIGN &&
        atomic_exchange(&fs->passthrough->can_lend, false)) {
        atomic_store(&fs->passthrough->is_lend_announced, false);
        announce_lend(fs->passthrough, "a client opens blocks for both, and may map them to write");
    }
}

static void begin_pinned(struct kvs_fs *fs, struct kvs_handle *handle, struct kvs_file_mode *mode)
{
    mode->backing_id = open_backing(fs, handle->fd);
    if (mode->backing_id == 0) {
        stop_pinning(fs->passthrough, strerror(errno));
        return;
    }
    announce_pin(fs->passthrough, NULL);
    mode->pin = handle->pin;
    kvs_pins_share(fs->pins, mode->pin);
}

/* The kernel may read the handle's buffer by itself. Nobody has the file open, but truncate(2) can
 * come by name: a change either is seen here, or sees that there is memory to follow it. */
static void begin_lent(struct kvs_fs *fs, struct kvs_handle *handle, struct kvs_file_mode *mode)
{
    struct kvs_file *file = handle->file;
    struct kvs_buffer *buffer = kvs_buffer_lend(fs->buffers, &handle->buffer, handle->size,
                                                handle->user);

    if (buffer == NULL)
        return;
    atomic_store(&file->is_lent, true);
    if (atomic_load(&file->writers) == 0 && handle->generation == atomic_load(&file->generation)) {
        mode->backing_id = open_backing(fs, buffer->fd);
        if (mode->backing_id == 0)
            stop_lending(fs->passthrough, strerror(errno));
    }
    handle->is_lender = mode->backing_id != 0;
    if (!handle->is_lender) {
        atomic_store(&file->is_lent, false);
        kvs_buffer_unpin(fs->buffers, buffer);
        return;
    }
    announce_lend(fs->passthrough, NULL);
    mode->lent = buffer;
    kvs_memfd_watch_reads(buffer->fd);
}

/* Begins passthrough where that may be, joins it where it is; else the handle is an ordinary one.
 */
static void enter_mode(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file_mode *mode = &handle->file->mode;

    pthread_mutex_lock(&handle->file->mode_lock);
    if (can_write_unseen(handle))
        wait_for_releases(handle->file, RELEASE_PATIENCE_MS);
    if (mode->ordinary == 0 && mode->backing_id == 0) {
        if (handle->pin != NULL)
            begin_pinned(fs, handle, mode);
        else if (can_be_lent(fs, handle))
            begin_lent(fs, handle, mode);
    }
    if (mode->lent != NULL && handle->can_read)
        kvs_buffer_lend_also(fs->buffers, mode->lent, handle->user);
    handle->mode = mode->backing_id != 0 ? KVS_MODE_PASSTHROUGH : KVS_MODE_ORDINARY;
    if (handle->mode == KVS_MODE_PASSTHROUGH)
        mode->passthrough++;
    else
        mode->ordinary++;
    pthread_mutex_unlock(&handle->file->mode_lock);
}

static void leave_mode(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file_mode *mode = &handle->file->mode;
    struct kvs_pin *pin = NULL;
    struct kvs_buffer *lent = NULL;

    pthread_mutex_lock(&handle->file->mode_lock);
    if (handle->mode == KVS_MODE_ORDINARY)
        mode->ordinary--;
    if (handle->mode == KVS_MODE_PASSTHROUGH && --mode->passthrough == 0) {
        close_backing(fs, mode->backing_id);
        mode->backing_id = 0;
        pin = mode->pin;
        mode->pin = NULL;
        lent = mode->lent;
        mode->lent = NULL;
        mode->stays = false;
        atomic_store(&handle->file->is_lent, false);
        pthread_cond_broadcast(&handle->file->mode_ended);
    }
    handle->mode = KVS_MODE_NONE;
    pthread_mutex_unlock(&handle->file->mode_lock);
    if (pin != NULL)
        kvs_pins_put(fs->pins, pin);
    if (lent != NULL)
        kvs_buffer_unpin(fs->buffers, lent);
}

/* Its reads and writes come to the daemon, but a load that has its block pinned goes past it. */
static int join_pinned(struct kvs_fs *fs, struct kvs_handle *handle, struct fuse_file_info *fi)
{
    if (handle->pin == NULL && handle->can_read && !handle->can_write && handle->is_verified) {
        bool is_known = false; /* for its own reads, where there is room */
        handle->pin = kvs_pins_get(fs->pins, handle->fd, &is_known);
    }
    fi->direct_io = handle->pin == NULL || handle->is_direct;
    if (!fi->direct_io)
        handle->load = KVS_STAT_loads_passthrough;
    return can_write_unseen(handle) ? kvs_change_expect_unseen(fs, handle->file) : 0;
}

int kvs_passthrough_settle(struct kvs_fs *fs, struct kvs_handle *handle, struct fuse_file_info *fi)
{
    enter_mode(fs, handle);
    if (handle->mode == KVS_MODE_ORDINARY)
        return 0;
    const struct kvs_file_mode *mode = &handle->file->mode; /* stays while the handle is in it */
    fi->backing_id = mode->backing_id;
    handle->is_parallel = false;
    if (mode->pin != NULL)
        return join_pinned(fs, handle, fi);
    fi->direct_io = !handle->is_lender;
    if (handle->is_lender)
        handle->load = KVS_STAT_loads_passthrough;
    return 0;
}

void kvs_passthrough_release(struct kvs_fs *fs, struct kvs_handle *handle)
{
    notice_mapper(fs, handle);
    leave_mode(fs, handle);
    if (handle->pin != NULL)
        kvs_pins_put(fs->pins, handle->pin);
    handle->pin = NULL;
}
