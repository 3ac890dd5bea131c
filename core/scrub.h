// SPDX-License-Identifier: Apache-2.0
// The scrubber: goes round a tree and verifies its blocks, at a pace, from where it stopped last.
//
// It follows the order of the walk (walk.h), round and round. So what comes next is always what was
// checked longest ago, and a path is all that has to be remembered (cursor.h). Blocks that read
// badly but are not known to be corrupt come first in the next round. With shards, each scrubber
// checks the blocks whose path's CRC32C falls to it.
//
// It reads with O_DIRECT, the device and not the cache, and leaves the page cache and all times as
// they were (C17). It never judges what is being written: fresh files are left out, what changes
// under its reading, and what is bad while somebody has it open for writing (C15). That is known
// by a read lease (lease.h): SIGIO must be ignored or handled.
#ifndef KVSEAL_CORE_SCRUB_H
#define KVSEAL_CORE_SCRUB_H

#include <stdbool.h>
#include <stdint.h>

#include "core/corrupt.h"
#include "core/cursor.h"
#include "core/verify.h"

struct kvs_scrub;

struct kvs_scrub_options {
    uint64_t rate;   /* bytes a second; 0: as `within` asks, or without limit */
    uint64_t within; /* seconds in which to get round; 0: as `rate` allows */
    unsigned shard;  /* 1 to `shards` */
    unsigned shards;
    uint64_t min_age; /* seconds since the last change of what is not fresh any more */
    bool keeps_no_cursor;
    bool sweeps; /* ends what a killed kvseal left: kvs_corrupt_sweep() */
};

/* `within` where none is asked for: coverage is reported for this time. */
#define KVS_SCRUB_WINDOW  ((uint64_t)7 * 24 * 3600)
#define KVS_SCRUB_MIN_AGE 30

/* What came of a block. */
enum kvs_scrub_outcome {
    KVS_SCRUB_INTACT,
    KVS_SCRUB_UNSEALED,
    KVS_SCRUB_CORRUPT,
    KVS_SCRUB_TRANSIENT, /* intact, but a first reading was bad (C15): suspect */
    KVS_SCRUB_UNSTABLE,  /* readings differ: suspect */
    KVS_SCRUB_ERROR,     /* cannot be opened or read, `error`: suspect. Or a directory */
    KVS_SCRUB_FRESH,     /* changed a moment ago: left out */
    KVS_SCRUB_BUSY,      /* is being written, or changed while it was read: left out */
    KVS_SCRUB_GONE,      /* removed or replaced meanwhile: left out */
    KVS_SCRUB_OUTCOMES,
};

/* One block, during a call alone. */
struct kvs_scrub_block {
    enum kvs_scrub_outcome outcome;
    int dir_fd; /* where `name` is */
    const char *name;
    const char *path;                            /* below the source */
    int fd;                                      /* -1 where it could not be opened */
    int error;                                   /* -errno of KVS_SCRUB_ERROR */
    const struct kvs_verification *verification; /* of what was read, else NULL */
};

/* Who runs it. All are called by the thread that is in kvs_scrub_pass(); all may be NULL. */
struct kvs_scrub_host {
    void *context;
    /* Whether the block is being written, as far as the host knows. */
    bool (*is_being_written)(void *context, int fd, const struct stat *stat);
    /* Treats a corrupt block (C13). -EAGAIN: it is not that block any more, and counts as busy. */
    int (*treat)(void *context, const struct kvs_scrub_block *block);
    /* Hears of every block, after it was treated. */
    void (*report)(void *context, const struct kvs_scrub_block *block);
    /* Whether others want the device now: then it rests most of the time. */
    bool (*is_loaded)(void *context);
};

struct kvs_scrub_progress {
    uint64_t window;         /* seconds that coverage is about */
    uint64_t bytes_total;    /* of the files in the tree (of the shard), as last counted */
    uint64_t bytes_verified; /* ... checked within the window, and not stored anew since */
    uint64_t bytes_unsealed; /* ... without a record, about, as it was in the last rounds */
    /* Seconds for which the one block that was waiting longest has not been checked: since its
     * last check, or since it was stored when that is later. What was there before the first run
     * counts from then. */
    uint64_t oldest_age;
    uint64_t rate;       /* bytes a second that it aims at now; 0: no limit */
    uint64_t passes;     /* rounds completed since the cursor was made */
    uint64_t pass_bytes; /* passed in this round, also of a block that is being read ... */
    uint64_t pass_ahead; /* ... and still ahead, about */
    uint64_t bytes_read; /* to verify, since the start, as are the following */
    uint64_t blocks[KVS_SCRUB_OUTCOMES];
    uint64_t stale_removed; /* temporary names of a killed kvseal that are gone */
    uint64_t suspects;      /* waiting to be checked again */
    char position[256];     /* escaped; the end may be "..." */
};

/* Prepares a scrub of the tree below `source_fd` (a directory open for reading, stays the
 * caller's). 0; -EBUSY: another scrubber has the shard (`owner_ret` as of kvs_cursor_open()); or
 * -errno. *state_ret: whether an earlier run is continued. */
int kvs_scrub_open(int source_fd, const struct kvs_scrub_options *options,
                   const struct kvs_scrub_host *host, enum kvs_cursor_state *state_ret,
                   char owner_ret[KVS_OWNER_SIZE], struct kvs_scrub **scrub_ret);

/* One round, from the cursor to the cursor: every block is checked once. 0; -ECANCELED: stopped;
 * or -errno: memory, or the cursor could not be saved. The cursor is saved in every case. */
int kvs_scrub_pass(struct kvs_scrub *scrub);

/* Between two rounds: waits until the last one has taken a minute, or the window where that is
 * less: going round a tree with nothing to read takes no time. 0 or -ECANCELED. */
int kvs_scrub_rest(struct kvs_scrub *scrub);

/* Ends kvs_scrub_pass() and kvs_scrub_rest() soon, within one read. From any thread, or a signal
 * handler. */
void kvs_scrub_stop(struct kvs_scrub *scrub);

/* From any thread. */
void kvs_scrub_progress(struct kvs_scrub *scrub, struct kvs_scrub_progress *progress_ret);

void kvs_scrub_close(struct kvs_scrub *scrub);

#endif
