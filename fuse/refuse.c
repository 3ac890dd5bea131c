// SPDX-License-Identifier: Apache-2.0
// Takes a corrupt block's names away and makes the kernel forget them.
//
// The kernel may still answer look-ups of a removed name from its caches. Since 6.16 one
// notification makes it ask again for everything (the epoch), and takes no lock. On older kernels
// each entry is invalidated by name; that takes the directory's lock, which a CREATE or RENAME in
// flight holds while it waits for a worker. So a thread of its own does it, and the answer waits
// for that thread only for a short time: one stuck notification holds up nobody.
#include "fuse/refuse.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/stats.h"
#include "core/util.h"
#include "fuse/file.h"
#include "fuse/names.h"
#include "fuse/reach.h"

#define NOTIFY_PATIENCE_MS 500

static const char *const action_words[] = {
    [KVS_ON_CORRUPT_REMOVE] = "removed",
    [KVS_ON_CORRUPT_QUARANTINE] = "quarantined",
    [KVS_ON_CORRUPT_KEEP] = "kept",
};

static const enum kvs_corrupt_action done_actions[] = {
    [KVS_ON_CORRUPT_REMOVE] = KVS_ACTION_REMOVED,
    [KVS_ON_CORRUPT_QUARANTINE] = KVS_ACTION_QUARANTINED,
    [KVS_ON_CORRUPT_KEEP] = KVS_ACTION_KEPT,
};

static void log_corrupt(const char *path, const struct kvs_verification *cause, const char *action)
{
    char escaped[4096], expected[16] = "malformed";

    if (cause->record.kind == KVS_RECORD_SUM)
        snprintf(expected, sizeof(expected), "%08x", cause->record.crc);
    kvs_log(KVS_LOG_CORRUPT, LOG_ERR,
            "corrupt block: \"%s\", %llu bytes, expected %s, computed %08x: %s",
            kvs_log_escape(path, escaped, sizeof(escaped)), (unsigned long long)cause->size,
            expected, cause->computed, action);
}

/* Only the first name is worth keeping: the others are the same inode. */
static int take_name_away(struct kvs_fs *fs, struct kvs_node *node,
                          const struct kvs_names_copy_entry *entry, bool is_first, const char *path,
                          const struct kvs_verification *cause)
{
    kvs_cleanup_fd int dir_fd = kvs_node_open(fs, entry->parent, O_RDONLY | O_DIRECTORY);

    if (dir_fd < 0)
        return dir_fd;
    if (is_first && fs->options.on_corrupt == KVS_ON_CORRUPT_QUARANTINE)
        return kvs_corrupt_quarantine(fs->source_fd, dir_fd, entry->text, node->dev, node->ino,
                                      path, cause);
    return kvs_corrupt_remove(dir_fd, entry->text, node->dev, node->ino);
}

/* Threads that notify, of all mounts of this process. The session must outlive them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    unsigned count;
} notifying = {.lock = PTHREAD_MUTEX_INITIALIZER, .fewer = PTHREAD_COND_INITIALIZER};

static void count_notifying(int change)
{
    pthread_mutex_lock(&notifying.lock);
    notifying.count += (unsigned)change;
    pthread_cond_broadcast(&notifying.fewer);
    pthread_mutex_unlock(&notifying.lock);
}

bool kvs_refuse_await_end(unsigned limit_ms)
{
    struct timespec until = kvs_clock_deadline(limit_ms);

    pthread_mutex_lock(&notifying.lock);
    while (notifying.count > 0 &&
           pthread_cond_timedwait(&notifying.fewer, &notifying.lock, &until) == 0)
        ;
    bool has_ended = notifying.count == 0;
    pthread_mutex_unlock(&notifying.lock);
    return has_ended;
}

/* One invalidation by name, on a thread of its own; whoever comes last frees it. */
struct notification {
    struct fuse_session *session;
    fuse_ino_t parent;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool is_over;
    atomic_int refs;
    char name[];
};

static void drop_notification(struct notification *notification)
{
    if (atomic_fetch_sub(&notification->refs, 1) != 1)
        return;
    pthread_cond_destroy(&notification->over);
    pthread_mutex_destroy(&notification->lock);
    free(notification);
}

static void *notify(void *argument)
{
    struct notification *notification = argument;

    fuse_lowlevel_notify_inval_entry(notification->session, notification->parent,
                                     notification->name, strlen(notification->name));
    pthread_mutex_lock(&notification->lock);
    notification->is_over = true;
    pthread_cond_signal(&notification->over);
    pthread_mutex_unlock(&notification->lock);
    drop_notification(notification);
    count_notifying(-1);
    return NULL;
}

static void wait_until(struct notification *notification, const struct timespec *until)
{
    pthread_mutex_lock(&notification->lock);
    while (!notification->is_over &&
           pthread_cond_timedwait(&notification->over, &notification->lock, until) == 0)
        ;
    pthread_mutex_unlock(&notification->lock);
}

static void invalidate_entry(struct kvs_fs *fs, fuse_ino_t parent, const char *name,
                             const struct timespec *until)
{
    size_t len = strlen(name) + 1;
    struct notification *notification = calloc(1, sizeof(*notification) + len);
    pthread_t thread;

    if (notification == NULL)
        return;
    notification->session = fs->session;
    notification->parent = parent;
    memcpy(notification->name, name, len);
    pthread_mutex_init(&notification->lock, NULL);
    pthread_cond_init(&notification->over, NULL);
    atomic_init(&notification->refs, 2);
    count_notifying(+1);
    if (pthread_create(&thread, NULL, notify, notification) == 0) {
        pthread_detach(thread);
        wait_until(notification, until);
    } else {
        drop_notification(notification);
        count_notifying(-1);
    }
    drop_notification(notification);
}

/* Whether the kernel was told to ask again for all it knows. */
static bool forget_all(struct kvs_fs *fs)
{
#ifdef HAVE_FUSE_NOTIFY_EPOCH
    return fs->options.invalidate == KVS_INVALIDATE_AUTO &&
           fuse_lowlevel_notify_increment_epoch(fs->session) == 0;
#else
    (void)fs;
    return false;
#endif
}

static void make_kernel_forget(struct kvs_fs *fs, const struct kvs_names_copy *names)
{
    if (forget_all(fs))
        return;
    struct timespec until = kvs_clock_deadline(NOTIFY_PATIENCE_MS); /* for all of them */
    for (size_t i = 0; i < names->count; i++)
        invalidate_entry(fs, kvs_node_ino(fs, names->entries[i].parent), names->entries[i].text,
                         &until);
}

/* Returns the last error, or 0: no known name is left that is this inode. */
static int take_names_away(struct kvs_fs *fs, struct kvs_node *node,
                           const struct kvs_names_copy *names, const char *path,
                           const struct kvs_verification *cause)
{
    bool is_first = true;
    int last_error = 0;

    for (size_t i = 0; i < names->count; i++) {
        const struct kvs_names_copy_entry *entry = &names->entries[i];
        int error = take_name_away(fs, node, entry, is_first, path, cause);
        if (error == 0) {
            is_first = false;
            kvs_stats_add(KVS_STAT_names_removed, 1);
        }
        if (error == 0 || error == -ENOENT)
            kvs_names_remove(fs, entry->parent, entry->text, node);
        else
            last_error = error;
    }
    return last_error;
}

/* `content` is held exclusively. What is being rewritten over corrupt bytes is known by its state.
 */
static bool is_corrupt_still(struct kvs_fs *fs, struct kvs_file *file,
                             const struct kvs_verification *cause)
{
    struct kvs_snapshot now, then = {.stat = cause->stat, .record = cause->record};

    if (file->block.state != KVS_BLOCK_CLEAN)
        return file->block.state == KVS_BLOCK_TAINTED &&
               file->block.taint == KVS_TAINT_CORRUPT_BASE;
    kvs_cleanup_fd int fd = kvs_node_open(fs, file->node, O_RDONLY | O_NOATIME);
    return fd >= 0 && kvs_snapshot_take(fd, &now) == 0 && kvs_snapshot_equal(&now, &then);
}

/* Takes the names away as the options say, and says what was done, *action_ret for the log. */
static enum kvs_corrupt_action act(struct kvs_fs *fs, struct kvs_node *node,
                                   const struct kvs_verification *cause, const char *path,
                                   struct kvs_names_copy **names_ret, char *action_ret, size_t size)
{
    const char *action = action_words[fs->options.on_corrupt];
    enum kvs_corrupt_action done = done_actions[fs->options.on_corrupt];

    if (fs->options.read_only) {
        action = "kept (mounted read-only)";
        done = KVS_ACTION_KEPT;
    } else if (fs->options.on_corrupt != KVS_ON_CORRUPT_KEEP) {
        int error = kvs_names_copy(fs, node, names_ret);
        if (error == 0)
            error = take_names_away(fs, node, *names_ret, path, cause);
        if (error != 0) {
            snprintf(action_ret, size, "kept: could not be %s: %s", action, strerror(-error));
            return KVS_ACTION_FAILED;
        }
    }
    snprintf(action_ret, size, "%s", action);
    return done;
}

static enum kvs_corrupt_cause cause_of(const struct kvs_verification *found)
{
    if (found->record.kind != KVS_RECORD_SUM)
        return KVS_CAUSE_MALFORMED;
    return found->size == 0 ? KVS_CAUSE_EMPTY : KVS_CAUSE_MISMATCH;
}

/* Of the block with this content: what is stored anew is another one. */
static uint64_t identify(const struct kvs_verification *found)
{
    const struct stat *st = &found->stat;
    const uint64_t parts[] = {
        st->st_dev,      st->st_ino, (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
        found->computed, found->size};
    uint64_t hash = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        hash = (hash ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

int kvs_refuse(struct kvs_fs *fs, struct kvs_file *file, const struct kvs_verification *cause)
{
    struct kvs_node *node = file->node;
    kvs_cleanup_free char *known_path = kvs_names_path(fs, node);
    const char *path = known_path != NULL ? known_path : "?";
    struct kvs_names_copy *names = NULL;
    enum kvs_corrupt_action done = KVS_ACTION_KEPT;
    char action[128];

    pthread_rwlock_wrlock(&file->content);
    bool is_corrupt = is_corrupt_still(fs, file, cause);
    if (is_corrupt)
        done = act(fs, node, cause, path, &names, action, sizeof(action));
    pthread_rwlock_unlock(&file->content);
    if (!is_corrupt)
        return -EAGAIN;

    kvs_stats_corrupt(cause_of(cause), done, identify(cause));
    log_corrupt(path, cause, action);
    if (names != NULL) {
        make_kernel_forget(fs, names);
        kvs_names_copy_free(fs, names);
        kvs_file_forgive(fs, node);
    }
    return -fs->options.corrupt_errno;
}
