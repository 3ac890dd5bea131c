// SPDX-License-Identifier: Apache-2.0
// Opens, verifies and judges a single block.
#include "core/scrub_check.h"

#include <fcntl.h>
#include <time.h>

#include "core/examine.h"
#include "core/page_cache.h"
#include "core/util.h"

const char *kvs_scrub_word(enum kvs_scrub_outcome outcome)
{
    static const char *const words[KVS_SCRUB_OUTCOMES] = {
        [KVS_SCRUB_INTACT] = "intact",     [KVS_SCRUB_UNSEALED] = "unsealed",
        [KVS_SCRUB_CORRUPT] = "corrupt",   [KVS_SCRUB_TRANSIENT] = "transient",
        [KVS_SCRUB_UNSTABLE] = "unstable", [KVS_SCRUB_ERROR] = "error",
        [KVS_SCRUB_FRESH] = "fresh",       [KVS_SCRUB_BUSY] = "busy",
        [KVS_SCRUB_GONE] = "gone",
    };

    return words[outcome];
}

/* Reads from the device, moves no access time, waits for nobody and follows no link, as far as each
 * of these can be had. */
static int open_block(int dir_fd, const char *name)
{
    int flags = O_RDONLY | O_DIRECT | O_NOATIME | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = openat(dir_fd, name, flags);

    if (fd < 0 && errno == EINVAL) {
        flags &= ~O_DIRECT;
        fd = openat(dir_fd, name, flags);
    }
    if (fd < 0 && errno == EPERM)
        fd = openat(dir_fd, name, flags & ~O_NOATIME);
    return fd < 0 ? -errno : fd;
}

/* A time in the future is some clock's mistake, unless it is near. */
static bool is_recent(const struct timespec *then, uint64_t min_age)
{
    int64_t age = (int64_t)time(NULL) - then->tv_sec;

    return age < (int64_t)min_age && -age < (int64_t)min_age;
}

static bool is_fresh(const struct stat *st, uint64_t min_age)
{
    return is_recent(&st->st_mtim, min_age) || is_recent(&st->st_ctim, min_age);
}

/* Whether the name has led to another file, or to none, since it was opened. */
static bool is_gone(const struct kvs_scrub_block *block, const struct stat *st)
{
    struct stat now;

    return fstatat(block->dir_fd, block->name, &now, AT_SYMLINK_NOFOLLOW) < 0
               ? errno == ENOENT || errno == ESTALE
               : now.st_dev != st->st_dev || now.st_ino != st->st_ino;
}

/* As far as the host knows, of its own clients. */
static bool is_being_written(const struct kvs_scrub_block *block, const struct stat *st,
                             const struct kvs_scrub_host *host)
{
    return host->is_being_written != NULL && host->is_being_written(host->context, block->fd, st);
}

static void treat(struct kvs_scrub_block *block, const struct kvs_scrub_host *host)
{
    int r = 0;

    if (is_being_written(block, &block->verification->stat, host))
        r = -EAGAIN;
    else if (host->treat != NULL)
        r = host->treat(host->context, block);
    if (r == -EAGAIN)
        block->outcome = KVS_SCRUB_BUSY;
    else
        block->error = r;
}

static enum kvs_scrub_outcome outcome_of(enum kvs_finding finding)
{
    static const enum kvs_scrub_outcome outcomes[KVS_FINDINGS] = {
        [KVS_FOUND_INTACT] = KVS_SCRUB_INTACT,     [KVS_FOUND_TRANSIENT] = KVS_SCRUB_TRANSIENT,
        [KVS_FOUND_UNSEALED] = KVS_SCRUB_UNSEALED, [KVS_FOUND_CORRUPT] = KVS_SCRUB_CORRUPT,
        [KVS_FOUND_BUSY] = KVS_SCRUB_BUSY,         [KVS_FOUND_GONE] = KVS_SCRUB_GONE,
        [KVS_FOUND_UNSTABLE] = KVS_SCRUB_UNSTABLE, [KVS_FOUND_ERROR] = KVS_SCRUB_ERROR,
    };

    return outcomes[finding];
}

static bool is_good(enum kvs_scrub_outcome outcome)
{
    return outcome == KVS_SCRUB_INTACT || outcome == KVS_SCRUB_TRANSIENT ||
           outcome == KVS_SCRUB_UNSEALED;
}

static int verify(struct kvs_scrub_block *block, struct kvs_reading *reading,
                  const struct kvs_snapshot *before, struct kvs_examination *examination,
                  const struct kvs_scrub_host *host)
{
    struct kvs_page_cache_view *view = NULL;
    int r = 0;

    if ((fcntl(block->fd, F_GETFL) & O_DIRECT) == 0)
        view = kvs_page_cache_view(block->fd, (uint64_t)before->stat.st_size);
    r = kvs_examine_judge(block->fd, before, reading, examination);
    kvs_page_cache_restore(block->fd, view);
    if (r == -ECANCELED)
        return r;
    block->verification = &examination->verification;
    block->outcome = r < 0 ? KVS_SCRUB_ERROR : outcome_of(examination->finding);
    if (!is_good(block->outcome) && is_gone(block, &before->stat))
        block->outcome = KVS_SCRUB_GONE;
    else if (block->outcome == KVS_SCRUB_CORRUPT)
        treat(block, host);
    else
        block->error = r;
    return 0;
}

/* Everything but the report. */
static int look(struct kvs_scrub_block *block, struct kvs_reading *reading, uint64_t min_age,
                struct kvs_examination *examination, const struct kvs_scrub_host *host)
{
    struct kvs_snapshot before;
    int r = 0;

    if (block->fd < 0) {
        bool is_missing = block->fd == -ENOENT || block->fd == -ELOOP || block->fd == -ESTALE;

        block->error = is_missing ? 0 : block->fd;
        block->outcome = is_missing ? KVS_SCRUB_GONE : KVS_SCRUB_ERROR;
        return 0;
    }
    r = kvs_snapshot_take(block->fd, &before);
    if (r < 0) {
        block->outcome = KVS_SCRUB_ERROR;
        block->error = r;
    } else if (!S_ISREG(before.stat.st_mode)) {
        block->outcome = KVS_SCRUB_GONE;
    } else if (is_fresh(&before.stat, min_age)) {
        block->outcome = KVS_SCRUB_FRESH;
    } else if (is_being_written(block, &before.stat, host)) {
        block->outcome = KVS_SCRUB_BUSY;
    } else {
        return verify(block, reading, &before, examination, host);
    }
    return 0;
}

int kvs_scrub_check(struct kvs_scrub_block *block, struct kvs_reading *reading, uint64_t min_age,
                    const struct kvs_scrub_host *host)
{
    struct kvs_examination examination = {0};
    int r = 0;

    block->fd = open_block(block->dir_fd, block->name);
    block->error = 0;
    block->verification = NULL;
    r = look(block, reading, min_age, &examination, host);
    if (r == 0 && host->report != NULL)
        host->report(host->context, block);
    kvs_close_fd(&block->fd);
    block->fd = -1;
    block->verification = NULL;
    return r;
}

int kvs_scrub_treat(int source_fd, enum kvs_on_corrupt on_corrupt,
                    const struct kvs_scrub_block *block)
{
    const struct kvs_verification *found = block->verification;
    const struct kvs_snapshot then = {.stat = found->stat, .record = found->record};
    struct kvs_snapshot now;
    int r = 0;

    if (on_corrupt == KVS_ON_CORRUPT_KEEP)
        return 0;
    /* Between this look and the rename somebody might write the block in place; it would be lost
     * then, and stored again: never shown wrong. */
    if (kvs_snapshot_take(block->fd, &now) < 0 || !kvs_snapshot_equal(&then, &now))
        return -EAGAIN;
    if (on_corrupt == KVS_ON_CORRUPT_QUARANTINE)
        r = kvs_corrupt_quarantine(source_fd, block->dir_fd, block->name, found->stat.st_dev,
                                   found->stat.st_ino, block->path, found);
    else
        r = kvs_corrupt_remove(block->dir_fd, block->name, found->stat.st_dev, found->stat.st_ino);
    return r == -ENOENT ? -EAGAIN : r;
}
