// SPDX-License-Identifier: Apache-2.0
// What a scrubber remembers between its runs: how far it is, what it suspects, what was checked
// when.
//
// One file a shard, `.kvseal/scrub-I-of-N` in the source: a snapshot that ends with its own CRC32C,
// and behind it one line for each block that was looked at since, appended with one write(2) and no
// fsync. A snapshot replaces the file atomically. So a kill at any point loses nothing but the
// block that was being checked, and a power cut what was appended since the last snapshot. A lock
// file beside it keeps a second scrubber of the shard out, on other nodes too where the file system
// has flock.
#ifndef KVSEAL_CORE_CURSOR_H
#define KVSEAL_CORE_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "core/coverage.h"

#define KVS_SUSPECTS   1024 /* more than that is a broken device, not a list */
#define KVS_OWNER_SIZE 128

struct kvs_cursor {
    char *position; /* the last path that was looked at; "": at the start */
    int64_t began;  /* the first run, CLOCK_REALTIME seconds */
    uint64_t passes;
    uint64_t min_age; /* seconds: what was younger when its turn came may not have been checked */
    int64_t grain;    /* of the coverage, seconds */
    struct kvs_coverage coverage;
    size_t suspect_count;
    char *suspects[KVS_SUSPECTS]; /* paths to be looked at again */

    /* The rest is cursor.c's own. */
    int state_fd; /* -1: nothing is kept */
    int file_fd;  /* takes the appended lines; -1: no snapshot yet */
    int lock_fd;
    char name[64];
};

enum kvs_cursor_state {
    KVS_CURSOR_NEW,     /* there was none */
    KVS_CURSOR_GOOD,    /* goes on where the last run stopped */
    KVS_CURSOR_DAMAGED, /* it was there but is not one, or of another version: begins anew */
};

/* Takes the lock of shard `shard` of `shards` (from 1) and reads what is remembered. 0; -EBUSY:
 * another scrubber has the lock, and `owner_ret` says who ("HOST PID", or ""); or -errno: of the
 * directory, the lock, or reading. kvs_cursor_close() in every case. */
int kvs_cursor_open(struct kvs_cursor *cursor, int source_fd, unsigned shard, unsigned shards,
                    int64_t now, int64_t grain, enum kvs_cursor_state *state_ret,
                    char owner_ret[KVS_OWNER_SIZE]);

/* The same without a file: nothing is kept, and nobody is kept out. 0 or -ENOMEM. */
int kvs_cursor_open_nowhere(struct kvs_cursor *cursor, int64_t now, int64_t grain);

/* All up to `position` was checked (NULL: the end was reached, and the position is the start
 * again). Appended to the file. 0 or -errno: of memory, or of the file, which then lags behind. */
int kvs_cursor_advance(struct kvs_cursor *cursor, const char *position, int64_t now);

/* The same where not all of it was: what lies between stays as old as it was. */
int kvs_cursor_skip(struct kvs_cursor *cursor, const char *position);

/* Adds a path unless it is there or there is no room; and takes one out. In memory until the next
 * snapshot. 0 or -ENOMEM. */
int kvs_cursor_suspect(struct kvs_cursor *cursor, const char *path);
void kvs_cursor_clear(struct kvs_cursor *cursor, const char *path);

/* Writes a snapshot, and has it on the device. 0 or -errno; the old file is good then. */
int kvs_cursor_save(struct kvs_cursor *cursor);

/* Frees, closes, unlocks; saves nothing. */
void kvs_cursor_close(struct kvs_cursor *cursor);

#endif
