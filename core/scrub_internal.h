// SPDX-License-Identifier: Apache-2.0
// What the two halves of the scrubber share: scrub.c goes round, scrub_census.c counts.
#ifndef KVSEAL_CORE_SCRUB_INTERNAL_H
#define KVSEAL_CORE_SCRUB_INTERNAL_H

#include <pthread.h>

#include "core/pace.h"
#include "core/scrub.h"
#include "core/walk.h"

#define KVS_SCRUB_SECOND        UINT64_C(1000000000) /* in nanoseconds */
#define KVS_SCRUB_GRAINS        64                   /* stretches of the coverage in a window */
#define KVS_SCRUB_LOOKS_AT_ONCE 64                   /* names, between two rests */

struct kvs_scrub {
    int source_fd;
    int stop_fd; /* an eventfd */
    struct kvs_scrub_options options;
    struct kvs_scrub_host host;
    uint64_t window;
    struct kvs_cursor cursor;
    struct kvs_pace pace;
    void *memory;

    /* This round. */
    char *start; /* where the cursor was */
    bool has_wrapped;
    uint64_t round_began, deadline; /* CLOCK_MONOTONIC nanoseconds, as are all that follow */
    uint64_t counted_at, saved_at, resumed_at;
    unsigned looks;
    bool is_behind_gap;  /* a directory that could not be read lies behind the position */
    bool is_cursor_lost; /* said already */

    pthread_mutex_t lock; /* protects all that follows; changed by the scrubber's thread alone */
    struct kvs_scrub_progress progress; /* pass_bytes, pass_ahead: without the block in hand */
    struct {
        uint64_t size, read; /* bytes; read twice, it may be more; 0: there is none */
    } in_hand;
    struct {
        uint64_t passed, unsealed; /* bytes */
    } this_round, last_round;
    int64_t oldest;   /* as of the last census */
    uint64_t checked; /* bytes within the window, then, and what was added since */
};

/* ---- scrub.c ---- */

/* Called before each read of `len` bytes (0: before names are looked at), to keep the pace.
 * `context` is the scrub. 0, or -ECANCELED when it was stopped. */
int kvs_scrub_keep_pace(void *context, size_t len);

/* ---- scrub_census.c ---- */

/* Whether the path is one of the shard's. */
bool kvs_scrub_is_ours(const struct kvs_scrub *scrub, const char *path);

/* Nanoseconds between two counts of the tree. */
uint64_t kvs_scrub_census_interval(const struct kvs_scrub *scrub);

/* Counts what is in the tree, how much of it was checked within the window, and what is still
 * ahead; the second one only when the last count is an interval old. 0 or as kvs_walk(). */
int kvs_scrub_count(struct kvs_scrub *scrub);
int kvs_scrub_count_when_due(struct kvs_scrub *scrub);

/* The block that is checked next, of `size` bytes (0: none), counts as it is read, until it is
 * passed. */
void kvs_scrub_note_begun(struct kvs_scrub *scrub, uint64_t size);

/* Adds a block that was passed, before the position moves, to what was counted. `st`: as it was
 * listed. */
void kvs_scrub_note_passed(struct kvs_scrub *scrub, const char *path, const struct stat *st,
                           enum kvs_scrub_outcome outcome);

/* Whether the coverage would take a block that was passed at `began` for checked, though it has not
 * been verified: then its part of the tree has to be left as old as it is. What is fresh by its
 * ctime, or came to its name meanwhile, is told from what was checked by that ctime. */
bool kvs_scrub_is_gap(const struct kvs_scrub *scrub, const struct stat *st,
                      enum kvs_scrub_outcome outcome, int64_t began);

#endif
