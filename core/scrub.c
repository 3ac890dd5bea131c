// SPDX-License-Identifier: Apache-2.0
// Goes round the tree: suspects first, then from the cursor to the end, then from the start to it.
#include "core/scrub.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "core/beneath.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/scrub_check.h"
#include "core/scrub_internal.h"
#include "core/util.h"

#define SECOND        KVS_SCRUB_SECOND
#define SAVE_AFTER    (30 * SECOND) /* how much of a round a power cut may cost */
#define LONGEST_NAP   (60 * SECOND) /* then the rate is looked at again */
#define LEAST_ROUND   (60 * SECOND)
#define REST_PER_WORK 31 /* under load: works 1/32 of the time */
#define LONGEST_REST  (5 * SECOND)
#define MOST_CATCH_UP 16 /* times the rate that would have done from the start */

/* Of the window is planned for; the rest is for what comes in between. */
#define MARGIN_PERCENT 90

/* ---- the pace ---- */

/* 0, or -ECANCELED when it was stopped. */
static int rest(struct kvs_scrub *scrub, uint64_t ns)
{
    struct pollfd stop = {.fd = scrub->stop_fd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};

    return ppoll(&stop, 1, &timeout, NULL) > 0 ? -ECANCELED : 0;
}

/* Of a block that is read a second time, all of it was. */
static uint64_t bytes_ahead(const struct kvs_scrub *scrub)
{
    uint64_t ahead = scrub->progress.pass_ahead;
    uint64_t done = scrub->in_hand.size > 0 ? scrub->in_hand.read % scrub->in_hand.size : 0;

    return ahead - KVS_MIN(done, ahead);
}

/* What is ahead, in the time that is left; but no storm at the end of a round that was held up. */
static uint64_t rate_to_get_round(const struct kvs_scrub *scrub, uint64_t now)
{
    double span = (double)scrub->options.within * MARGIN_PERCENT / 100;
    double left = scrub->deadline > now ? (double)(scrub->deadline - now) / SECOND : 0;
    double most = MOST_CATCH_UP * (double)scrub->progress.bytes_total / span;
    double rate = (double)bytes_ahead(scrub) / KVS_MAX(left, 1e-3);

    return (uint64_t)KVS_MIN(rate, most) + 1;
}

static void derive_rate(struct kvs_scrub *scrub, uint64_t now)
{
    uint64_t rate = scrub->options.rate;

    if (scrub->options.within > 0)
        rate = rate_to_get_round(scrub, now);
    kvs_pace_set_rate(&scrub->pace, rate, now);
    pthread_mutex_lock(&scrub->lock);
    scrub->progress.rate = rate;
    pthread_mutex_unlock(&scrub->lock);
}

/* While clients want the device, most of the time is theirs: however slow the device is just now,
 * it is ours for one part in REST_PER_WORK + 1. */
static int give_way(struct kvs_scrub *scrub, uint64_t worked, uint64_t rested)
{
    uint64_t due = KVS_MIN(worked * REST_PER_WORK, LONGEST_REST);

    if (scrub->host.is_loaded == NULL || rested >= due ||
        !scrub->host.is_loaded(scrub->host.context))
        return rest(scrub, 0);
    return rest(scrub, due - rested);
}

/* The tree may grow while it waits: a rate that was right for an empty one would last for ever. */
static int wait_for_turn(struct kvs_scrub *scrub)
{
    uint64_t nap = KVS_MIN(LONGEST_NAP, kvs_scrub_census_interval(scrub));
    uint64_t wait = 0;
    int r = 0;

    derive_rate(scrub, kvs_clock_ns());
    while (r == 0 && (wait = kvs_pace_wait(&scrub->pace, kvs_clock_ns())) > 0) {
        r = rest(scrub, KVS_MIN(wait, nap));
        if (r == 0 && scrub->options.within > 0)
            r = kvs_scrub_count_when_due(scrub);
        derive_rate(scrub, kvs_clock_ns());
    }
    return r;
}

int kvs_scrub_keep_pace(void *context, size_t len)
{
    struct kvs_scrub *scrub = context;
    uint64_t began = kvs_clock_ns();
    int r = len > 0 ? wait_for_turn(scrub) : 0;

    if (r == 0)
        r = give_way(scrub, began - scrub->resumed_at, kvs_clock_ns() - began);
    kvs_pace_spend(&scrub->pace, len);
    pthread_mutex_lock(&scrub->lock);
    scrub->progress.bytes_read += len;
    scrub->in_hand.read += len;
    pthread_mutex_unlock(&scrub->lock);
    scrub->resumed_at = kvs_clock_ns();
    return r;
}

/* ---- one block ---- */

static bool is_suspect(enum kvs_scrub_outcome outcome)
{
    return outcome == KVS_SCRUB_TRANSIENT || outcome == KVS_SCRUB_UNSTABLE ||
           outcome == KVS_SCRUB_ERROR;
}

/* Says it once: the scrub goes on, but would begin at an old place when it is killed. */
static void note_cursor_error(struct kvs_scrub *scrub, int error)
{
    if (error < 0 && !scrub->is_cursor_lost) {
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING,
                "the position of the scrub cannot be saved in %s: %s; the scrub goes on",
                KVS_STATE_DIR, strerror(-error));
        scrub->is_cursor_lost = true;
    }
}

static void save_cursor(struct kvs_scrub *scrub)
{
    note_cursor_error(scrub, kvs_cursor_save(&scrub->cursor));
    scrub->saved_at = kvs_clock_ns();
}

static void count_outcome(struct kvs_scrub *scrub, enum kvs_scrub_outcome outcome)
{
    pthread_mutex_lock(&scrub->lock);
    scrub->progress.blocks[outcome]++;
    scrub->progress.suspects = scrub->cursor.suspect_count;
    pthread_mutex_unlock(&scrub->lock);
}

static struct kvs_reading read_at_pace(struct kvs_scrub *scrub)
{
    return (struct kvs_reading){
        .memory = scrub->memory,
        .capacity = KVS_PIECE_SIZE,
        .before_piece = kvs_scrub_keep_pace,
        .context = scrub,
    };
}

static int check_block(struct kvs_scrub *scrub, struct kvs_scrub_block *block)
{
    struct kvs_reading reading = read_at_pace(scrub);
    size_t suspects = scrub->cursor.suspect_count;
    int r = kvs_scrub_check(block, &reading, scrub->options.min_age, &scrub->host);

    if (r < 0)
        return r;
    if (is_suspect(block->outcome))
        r = kvs_cursor_suspect(&scrub->cursor, block->path);
    else if (block->outcome != KVS_SCRUB_FRESH && block->outcome != KVS_SCRUB_BUSY)
        kvs_cursor_clear(&scrub->cursor, block->path);
    count_outcome(scrub, block->outcome);
    if (scrub->cursor.suspect_count != suspects)
        save_cursor(scrub);
    return r;
}

/* Moves the position. What lies between was checked at `began` or later, unless there is a gap. */
static int advance(struct kvs_scrub *scrub, const char *path, int64_t began, bool is_gap)
{
    int r = is_gap || scrub->is_behind_gap ? kvs_cursor_skip(&scrub->cursor, path)
                                           : kvs_cursor_advance(&scrub->cursor, path, began);

    scrub->is_behind_gap = false;
    if (r == -ENOMEM)
        return r;
    note_cursor_error(scrub, r);
    if (kvs_clock_ns() - scrub->saved_at >= SAVE_AFTER)
        save_cursor(scrub);
    return 0;
}

/* In a window, a block that is not read takes the time of one that is: so the scrubber comes to
 * each place in the tree at the same interval, and what is stored there meanwhile waits no longer.
 */
static int pass_unread(struct kvs_scrub *scrub, uint64_t size)
{
    int r = wait_for_turn(scrub);

    kvs_pace_spend(&scrub->pace, size);
    return r;
}

static bool is_unread(enum kvs_scrub_outcome outcome)
{
    return outcome == KVS_SCRUB_UNSEALED || outcome == KVS_SCRUB_FRESH || outcome == KVS_SCRUB_BUSY;
}

static int check_next(struct kvs_scrub *scrub, const struct kvs_walk_entry *entry)
{
    struct kvs_scrub_block block = {
        .dir_fd = entry->dir_fd, .name = entry->name, .path = entry->path};
    int64_t began = 0;
    int r = kvs_scrub_count_when_due(scrub);

    began = time(NULL); /* what is stored from here on is not what is checked */
    kvs_scrub_note_begun(scrub, (uint64_t)entry->stat->st_size);
    if (r == 0)
        r = check_block(scrub, &block);
    if (r == 0 && scrub->options.within > 0 && is_unread(block.outcome))
        r = pass_unread(scrub, (uint64_t)entry->stat->st_size);
    if (r < 0)
        return r;
    kvs_scrub_note_passed(scrub, entry->path, entry->stat, block.outcome);
    return advance(scrub, entry->path, began,
                   kvs_scrub_is_gap(scrub, entry->stat, block.outcome, began));
}

/* What cannot be looked at or entered. */
static void report_error(struct kvs_scrub *scrub, const struct kvs_walk_entry *entry)
{
    const struct kvs_scrub_block block = {
        .outcome = KVS_SCRUB_ERROR,
        .dir_fd = entry->dir_fd,
        .name = entry->name,
        .path = entry->path,
        .fd = -1,
        .error = entry->error,
    };

    scrub->is_behind_gap = true;
    count_outcome(scrub, KVS_SCRUB_ERROR);
    if (scrub->host.report != NULL)
        scrub->host.report(scrub->host.context, &block);
}

static int sweep(struct kvs_scrub *scrub, const struct kvs_walk_entry *entry)
{
    struct kvs_reading reading = read_at_pace(scrub);
    int r = kvs_corrupt_sweep(scrub->source_fd, entry->dir_fd, entry->name, &reading);

    if (r == 0) {
        pthread_mutex_lock(&scrub->lock);
        scrub->progress.stale_removed++;
        pthread_mutex_unlock(&scrub->lock);
    }
    return r == -ECANCELED ? r : 0;
}

#define ROUND_IS_OVER 1

static int visit(void *context, const struct kvs_walk_entry *entry)
{
    struct kvs_scrub *scrub = context;

    if (scrub->has_wrapped && kvs_walk_compare(entry->path, scrub->start) > 0)
        return ROUND_IS_OVER;
    if (++scrub->looks % KVS_SCRUB_LOOKS_AT_ONCE == 0 && kvs_scrub_keep_pace(scrub, 0) < 0)
        return -ECANCELED;
    if (entry->kind == KVS_WALK_ERROR)
        report_error(scrub, entry);
    if (!kvs_scrub_is_ours(scrub, entry->path))
        return 0;
    if (entry->kind == KVS_WALK_TEMPORARY && scrub->options.sweeps)
        return sweep(scrub, entry);
    return entry->kind == KVS_WALK_FILE ? check_next(scrub, entry) : 0;
}

/* ---- the round ---- */

static int check_suspect(struct kvs_scrub *scrub, const char *path)
{
    struct kvs_scrub_block block = {.path = path};
    kvs_cleanup_fd int dir_fd = kvs_beneath_open_parent(scrub->source_fd, path, &block.name);

    block.dir_fd = dir_fd;
    if (dir_fd == -ENOENT || dir_fd == -ENOTDIR || dir_fd == -ELOOP || dir_fd == -EXDEV)
        kvs_cursor_clear(&scrub->cursor, path); /* there is no such block any more */
    if (dir_fd < 0)
        return dir_fd == -ENOMEM ? dir_fd : 0;
    return check_block(scrub, &block);
}

static int check_suspects(struct kvs_scrub *scrub)
{
    size_t count = scrub->cursor.suspect_count;
    size_t next = 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        kvs_cleanup_free char *path = strdup(scrub->cursor.suspects[next]);
        size_t before = scrub->cursor.suspect_count;

        if (path == NULL)
            return -ENOMEM;
        r = check_suspect(scrub, path);
        if (scrub->cursor.suspect_count == before)
            next++; /* it stays one */
    }
    return r;
}

static int begin_round(struct kvs_scrub *scrub)
{
    free(scrub->start);
    scrub->start = strdup(scrub->cursor.position);
    if (scrub->start == NULL)
        return -ENOMEM;
    scrub->has_wrapped = false;
    scrub->is_behind_gap = false;
    scrub->cursor.min_age = KVS_MAX(scrub->cursor.min_age, scrub->options.min_age);
    scrub->round_began = scrub->resumed_at = kvs_clock_ns();
    scrub->deadline = scrub->round_began + scrub->options.within * SECOND / 100 * MARGIN_PERCENT;
    pthread_mutex_lock(&scrub->lock);
    if (scrub->this_round.passed > 0)
        scrub->last_round = scrub->this_round;
    scrub->this_round.passed = scrub->this_round.unsealed = 0;
    scrub->progress.pass_bytes = 0;
    pthread_mutex_unlock(&scrub->lock);
    kvs_scrub_note_begun(scrub, 0);
    save_cursor(scrub);
    return kvs_scrub_count(scrub);
}

static int walk_tree(struct kvs_scrub *scrub, const char *after)
{
    const struct kvs_walk walk = {.after = after, .visit = visit, .context = scrub};

    return kvs_walk(scrub->source_fd, &walk);
}

/* From the cursor to the end, and from the start to where the cursor was. */
static int go_round(struct kvs_scrub *scrub)
{
    int r = walk_tree(scrub, scrub->start);

    if (r < 0)
        return r;
    r = advance(scrub, NULL, time(NULL), false);
    if (r < 0 || *scrub->start == '\0')
        return r;
    scrub->has_wrapped = true;
    r = walk_tree(scrub, "");
    return r < 0 ? r : 0;
}

int kvs_scrub_pass(struct kvs_scrub *scrub)
{
    int r = begin_round(scrub);

    if (r == 0)
        r = check_suspects(scrub);
    if (r == 0)
        r = go_round(scrub);
    if (r == 0) {
        pthread_mutex_lock(&scrub->lock);
        scrub->progress.passes = ++scrub->cursor.passes;
        scrub->cursor.min_age = scrub->options.min_age;
        scrub->progress.pass_ahead = 0;
        pthread_mutex_unlock(&scrub->lock);
    }
    save_cursor(scrub);
    return r;
}

int kvs_scrub_rest(struct kvs_scrub *scrub)
{
    uint64_t least = KVS_MIN(LEAST_ROUND, scrub->window * SECOND);
    uint64_t took = kvs_clock_ns() - scrub->round_began;

    return rest(scrub, took < least ? least - took : 0);
}

/* ---- from outside ---- */

static int open_cursor(struct kvs_scrub *scrub, enum kvs_cursor_state *state_ret,
                       char owner_ret[KVS_OWNER_SIZE])
{
    int64_t grain = (int64_t)KVS_MAX(scrub->window / KVS_SCRUB_GRAINS, 1);

    *state_ret = KVS_CURSOR_NEW;
    owner_ret[0] = '\0';
    if (scrub->options.keeps_no_cursor)
        return kvs_cursor_open_nowhere(&scrub->cursor, time(NULL), grain);
    return kvs_cursor_open(&scrub->cursor, scrub->source_fd, scrub->options.shard,
                           scrub->options.shards, time(NULL), grain, state_ret, owner_ret);
}

int kvs_scrub_open(int source_fd, const struct kvs_scrub_options *options,
                   const struct kvs_scrub_host *host, enum kvs_cursor_state *state_ret,
                   char owner_ret[KVS_OWNER_SIZE], struct kvs_scrub **scrub_ret)
{
    struct kvs_scrub *scrub = calloc(1, sizeof(*scrub));
    int r = 0;

    if (scrub == NULL)
        return -ENOMEM;
    scrub->source_fd = source_fd;
    scrub->options = *options;
    scrub->host = *host;
    scrub->window = options->within > 0 ? options->within : KVS_SCRUB_WINDOW;
    scrub->oldest = INT64_MAX;
    pthread_mutex_init(&scrub->lock, NULL);
    scrub->memory = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);
    scrub->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (scrub->stop_fd < 0)
        r = -errno;
    else if (scrub->memory == NULL)
        r = -ENOMEM;
    if (r == 0)
        r = open_cursor(scrub, state_ret, owner_ret);
    else
        kvs_cursor_open_nowhere(&scrub->cursor, 0, 1);
    if (r < 0) {
        kvs_scrub_close(scrub);
        return r;
    }
    scrub->progress.window = scrub->window;
    scrub->progress.passes = scrub->cursor.passes;
    scrub->progress.suspects = scrub->cursor.suspect_count;
    kvs_log_escape(scrub->cursor.position, scrub->progress.position,
                   sizeof(scrub->progress.position));
    *scrub_ret = scrub;
    return 0;
}

void kvs_scrub_stop(struct kvs_scrub *scrub)
{
    eventfd_write(scrub->stop_fd, 1);
}

void kvs_scrub_close(struct kvs_scrub *scrub)
{
    if (scrub == NULL)
        return;
    kvs_cursor_close(&scrub->cursor);
    kvs_close_fd(&scrub->stop_fd);
    pthread_mutex_destroy(&scrub->lock);
    free(scrub->start);
    free(scrub->memory);
    free(scrub);
}
