// SPDX-License-Identifier: Apache-2.0
// Keeps each file's mode, its backing file in the kernel, and whether passthrough works here.
#include "fuse/serve_passthrough.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/stats.h"
#include "core/util.h"
#include "fuse/capabilities.h"
#include "fuse/change.h"
#include "fuse/pinned.h"

#ifndef FUSE_DEV_IOC_MAGIC
#define FUSE_DEV_IOC_MAGIC 229
#endif

#define RELEASE_PATIENCE_MS 250

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
    atomic_bool is_on;
    atomic_bool is_announced;
};

static void announce(struct kvs_passthrough *passthrough, const char *why_not)
{
    if (atomic_exchange(&passthrough->is_announced, true))
        return;
    if (why_not == NULL)
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO,
                "buffered loads: by kernel passthrough over verified, locked pages");
    else
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO,
                "buffered loads: from verified buffers, no passthrough: %s", why_not);
}

static void turn_off(struct kvs_passthrough *passthrough, const char *why_not)
{
    atomic_store(&passthrough->is_on, false);
    announce(passthrough, why_not);
}

static const char *find_obstacle(struct kvs_fs *fs)
{
    if (fs->options.passthrough == KVS_PASSTHROUGH_OFF)
        return "switched off";
    if (!kvs_capabilities_have_passthrough())
        return "it takes CAP_SYS_ADMIN and CAP_IPC_LOCK";
    if (!kvs_pins_suit(fs->source_fd))
        return "the source is not on a local ext4, XFS, Btrfs, F2FS or tmpfs";
    return NULL;
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
    fs->passthrough = passthrough;
    const char *obstacle = find_obstacle(fs);
    if (obstacle != NULL)
        turn_off(passthrough, obstacle);
    else
        atomic_store(&passthrough->is_on, true);
    return 0;
}

bool kvs_passthrough_is_on(const struct kvs_fs *fs)
{
    return atomic_load(&fs->passthrough->is_on);
}

void kvs_passthrough_negotiate(struct kvs_fs *fs, struct fuse_conn_info *conn)
{
    if (!atomic_load(&fs->passthrough->is_on))
        return;
    if (fs->is_held) {
        turn_off(fs->passthrough,
                 "the next daemon of a held mount could not lock its pages in time");
        return;
    }
    /* A backing depth of 0 will do: what kvs_pins_suit() takes is stacked on nothing. */
    if (!fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH))
        turn_off(fs->passthrough, "the kernel has none (before Linux 6.9)");
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

    if (!atomic_load(&passthrough->is_on) || handle->can_write || handle->is_direct ||
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

    if (id > 0) {
        announce(fs->passthrough, NULL);
        return id;
    }
    turn_off(fs->passthrough, strerror(errno));
    return 0;
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

/* A client that loaded the block and closed it may be here before its RELEASE: no reason to take
 * the record away. mode_lock is held. */
static void wait_for_releases(struct kvs_file *file)
{
    struct timespec until = kvs_clock_deadline(RELEASE_PATIENCE_MS);

    while (file->mode.passthrough > 0 &&
           pthread_cond_timedwait(&file->mode_ended, &file->mode_lock, &until) == 0)
        ;
}

/* Begins passthrough where that may be, joins it where it is; else the handle is an ordinary one.
 */
static void enter_mode(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file_mode *mode = &handle->file->mode;

    pthread_mutex_lock(&handle->file->mode_lock);
    if (can_write_unseen(handle))
        wait_for_releases(handle->file);
    if (handle->pin != NULL && mode->ordinary == 0 && mode->backing_id == 0) {
        mode->backing_id = open_backing(fs, handle->fd);
        mode->pin = mode->backing_id != 0 ? handle->pin : NULL;
        if (mode->pin != NULL)
            kvs_pins_share(fs->pins, mode->pin);
    }
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

    pthread_mutex_lock(&handle->file->mode_lock);
    if (handle->mode == KVS_MODE_ORDINARY)
        mode->ordinary--;
    if (handle->mode == KVS_MODE_PASSTHROUGH && --mode->passthrough == 0) {
        close_backing(fs, mode->backing_id);
        mode->backing_id = 0;
        pin = mode->pin;
        mode->pin = NULL;
        pthread_cond_broadcast(&handle->file->mode_ended);
    }
    handle->mode = KVS_MODE_NONE;
    pthread_mutex_unlock(&handle->file->mode_lock);
    if (pin != NULL)
        kvs_pins_put(fs->pins, pin);
}

int kvs_passthrough_settle(struct kvs_fs *fs, struct kvs_handle *handle, struct fuse_file_info *fi)
{
    enter_mode(fs, handle);
    if (handle->mode == KVS_MODE_ORDINARY)
        return 0;
    fi->backing_id = handle->file->mode.backing_id; /* stays while the handle has its mode */
    handle->is_parallel = false;
    if (handle->pin == NULL && handle->can_read && !handle->can_write && handle->is_verified) {
        bool is_known = false; /* for its own reads, where there is room */
        handle->pin = kvs_pins_get(fs->pins, handle->fd, &is_known);
    }
    fi->direct_io = handle->pin == NULL || handle->is_direct;
    if (!fi->direct_io)
        handle->load = KVS_STAT_loads_passthrough;
    return can_write_unseen(handle) ? kvs_change_expect_unseen(fs, handle->file) : 0;
}

void kvs_passthrough_release(struct kvs_fs *fs, struct kvs_handle *handle)
{
    leave_mode(fs, handle);
    if (handle->pin != NULL)
        kvs_pins_put(fs->pins, handle->pin);
    handle->pin = NULL;
}
