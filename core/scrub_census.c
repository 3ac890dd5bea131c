// SPDX-License-Identifier: Apache-2.0
// What there is in the tree, and how much of it was checked how long ago.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "core/scrub_internal.h"
#include "core/util.h"

/* ---- counting ---- */

uint64_t kvs_scrub_census_interval(const struct kvs_scrub *scrub)
{
    return KVS_MAX(scrub->window / KVS_SCRUB_GRAINS, 1) * KVS_SCRUB_SECOND;
}

bool kvs_scrub_is_ours(const struct kvs_scrub *scrub, const char *path)
{
    return kvs_crc32c(0, path, strlen(path)) % scrub->options.shards == scrub->options.shard - 1;
}

/* Whether this round has still to come to it. */
static bool is_ahead(const struct kvs_scrub *scrub, const char *path)
{
    bool is_behind_start = kvs_walk_compare(path, scrub->start) > 0;
    bool is_behind_cursor = kvs_walk_compare(path, scrub->cursor.position) > 0;

    return scrub->has_wrapped ? is_behind_cursor && !is_behind_start
                              : is_behind_cursor || !is_behind_start;
}

/* Whether a look at `when`, or later, found it old enough to be verified, and as it is now. */
static bool is_settled(const struct kvs_scrub *scrub, const struct stat *st, int64_t when)
{
    return st->st_ctim.tv_sec < when && when - st->st_ctim.tv_sec >= (int64_t)scrub->cursor.min_age;
}

/* When the block was checked as it is now; 0: not since it was stored, or renamed, or at a time
 * that is still to come: a clock was wrong then, and nothing can be compared with that. */
static int64_t checked_at(const struct kvs_scrub *scrub, const char *path, const struct stat *st)
{
    int64_t when = kvs_coverage_when(&scrub->cursor.coverage, path);

    return when <= time(NULL) && is_settled(scrub, st, when) ? when : 0;
}

static bool is_within_window(const struct kvs_scrub *scrub, int64_t when)
{
    return when != 0 && (int64_t)time(NULL) - when <= (int64_t)scrub->window;
}

/* What a walk finds that only looks. */
struct census {
    struct kvs_scrub *scrub;
    uint64_t total, checked, ahead; /* bytes */
    int64_t oldest; /* since when the one that waits longest has been waiting; CLOCK_REALTIME */
    unsigned looks;
};

static int count_block(void *context, const struct kvs_walk_entry *entry)
{
    struct census *census = context;
    struct kvs_scrub *scrub = census->scrub;
    int64_t when = 0;
    uint64_t size = 0;

    if (++census->looks % KVS_SCRUB_LOOKS_AT_ONCE == 0 && kvs_scrub_keep_pace(scrub, 0) < 0)
        return -ECANCELED;
    if (entry->kind != KVS_WALK_FILE || !kvs_scrub_is_ours(scrub, entry->path))
        return 0;
    size = (uint64_t)entry->stat->st_size;
    when = checked_at(scrub, entry->path, entry->stat);
    census->total += size;
    if (is_within_window(scrub, when))
        census->checked += size;
    if (is_ahead(scrub, entry->path))
        census->ahead += size;
    if (when == 0)
        when = KVS_MAX(entry->stat->st_ctim.tv_sec, scrub->cursor.began);
    census->oldest = KVS_MIN(census->oldest, when);
    return 0;
}

int kvs_scrub_count(struct kvs_scrub *scrub)
{
    struct census census = {.scrub = scrub, .oldest = INT64_MAX};
    const struct kvs_walk walk = {.visit = count_block, .context = &census};
    int r = kvs_walk(scrub->source_fd, &walk);

    if (r < 0)
        return r;
    scrub->counted_at = kvs_clock_ns();
    pthread_mutex_lock(&scrub->lock);
    scrub->oldest = census.oldest;
    scrub->checked = census.checked;
    scrub->progress.bytes_total = census.total;
    scrub->progress.pass_ahead = census.ahead;
    pthread_mutex_unlock(&scrub->lock);
    return 0;
}

int kvs_scrub_count_when_due(struct kvs_scrub *scrub)
{
    return kvs_clock_ns() - scrub->counted_at < kvs_scrub_census_interval(scrub)
               ? 0
               : kvs_scrub_count(scrub);
}

/* ---- while it goes round ---- */

static bool is_verdict(enum kvs_scrub_outcome outcome)
{
    return outcome == KVS_SCRUB_INTACT || outcome == KVS_SCRUB_UNSEALED ||
           outcome == KVS_SCRUB_CORRUPT || outcome == KVS_SCRUB_TRANSIENT;
}

void kvs_scrub_note_begun(struct kvs_scrub *scrub, uint64_t size)
{
    pthread_mutex_lock(&scrub->lock);
    scrub->in_hand.size = size;
    scrub->in_hand.read = 0;
    pthread_mutex_unlock(&scrub->lock);
}

void kvs_scrub_note_passed(struct kvs_scrub *scrub, const char *path, const struct stat *st,
                           enum kvs_scrub_outcome outcome)
{
    struct kvs_scrub_progress *progress = &scrub->progress;
    uint64_t size = (uint64_t)st->st_size;
    bool is_new = is_verdict(outcome) && !is_within_window(scrub, checked_at(scrub, path, st));

    pthread_mutex_lock(&scrub->lock);
    scrub->checked += is_new ? size : 0;
    scrub->this_round.passed += size;
    scrub->this_round.unsealed += outcome == KVS_SCRUB_UNSEALED ? size : 0;
    scrub->in_hand.size = scrub->in_hand.read = 0;
    progress->pass_bytes += size;
    progress->pass_ahead -= KVS_MIN(progress->pass_ahead, size);
    progress->bytes_total = KVS_MAX(progress->bytes_total, progress->pass_bytes);
    kvs_log_escape(path, progress->position, sizeof(progress->position));
    pthread_mutex_unlock(&scrub->lock);
}

bool kvs_scrub_is_gap(const struct kvs_scrub *scrub, const struct stat *st,
                      enum kvs_scrub_outcome outcome, int64_t began)
{
    switch (outcome) {
    case KVS_SCRUB_BUSY:
    case KVS_SCRUB_UNSTABLE:
    case KVS_SCRUB_ERROR:
        return true;
    case KVS_SCRUB_FRESH:
        return is_settled(scrub, st, began); /* by its mtime alone */
    default:
        return false;
    }
}

/* ---- from outside ---- */

/* What has no record was passed but not verified: as much of it as there was in the last rounds. */
static void report_coverage(const struct kvs_scrub *scrub, struct kvs_scrub_progress *progress)
{
    uint64_t passed = scrub->this_round.passed + scrub->last_round.passed;
    uint64_t unsealed = scrub->this_round.unsealed + scrub->last_round.unsealed;
    double share = passed > 0 ? (double)unsealed / (double)passed : 0;
    uint64_t checked = KVS_MIN(scrub->checked, progress->bytes_total);

    progress->bytes_unsealed = (uint64_t)(share * (double)progress->bytes_total);
    progress->bytes_verified = (uint64_t)((1 - share) * (double)checked);
}

void kvs_scrub_progress(struct kvs_scrub *scrub, struct kvs_scrub_progress *progress_ret)
{
    int64_t now = time(NULL);
    uint64_t in_hand = 0;

    pthread_mutex_lock(&scrub->lock);
    *progress_ret = scrub->progress;
    in_hand = KVS_MIN(scrub->in_hand.read, scrub->in_hand.size);
    in_hand = KVS_MIN(in_hand, progress_ret->pass_ahead);
    progress_ret->pass_bytes += in_hand;
    progress_ret->pass_ahead -= in_hand;
    progress_ret->oldest_age = scrub->oldest < now ? (uint64_t)(now - scrub->oldest) : 0;
    report_coverage(scrub, progress_ret);
    pthread_mutex_unlock(&scrub->lock);
}
