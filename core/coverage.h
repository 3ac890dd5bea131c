// SPDX-License-Identifier: Apache-2.0
// When each part of a tree was last checked: a line of paths in the order of the walk, cut into
// stretches.
//
// A scrubber goes along the line, round and round, and notes how far it has come. What it passes
// without checking it stays as old as it was. So "when was this block last checked?" needs no mark
// on the block, which would move its times. Pure: no I/O, the clock is the caller's
// (CLOCK_REALTIME, seconds). What it says is never better than the truth: a stretch counts as
// checked when its first block was.
#ifndef KVSEAL_CORE_COVERAGE_H
#define KVSEAL_CORE_COVERAGE_H

#include <stddef.h>
#include <stdint.h>

/* A round at an even pace makes 64; each block that is left out cuts one in two. With some 2000 of
 * those in a window it says less than the truth: neighbours become one, as old as the older. */
#define KVS_STRETCHES 4096

struct kvs_coverage {
    size_t count;
    /* Behind the end of the stretch before, up to `end`: checked at `since` or later; 0: never. */
    struct kvs_stretch {
        char *end; /* malloc()ed; ascending by kvs_walk_compare() */
        int64_t since;
    } stretches[KVS_STRETCHES];
    int64_t tail_since; /* what lies behind the last one */
};

void kvs_coverage_destroy(struct kvs_coverage *coverage);

/* When the block was last checked; 0: never. */
int64_t kvs_coverage_when(const struct kvs_coverage *coverage, const char *path);

/* All blocks behind `from` ("": from the start), up to `to` (NULL: to the end), were checked now.
 * Stretches are about `grain` seconds long. 0; -ENOMEM: then they count as checked at some earlier
 * time. */
int kvs_coverage_advance(struct kvs_coverage *coverage, const char *from, const char *to,
                         int64_t now, int64_t grain);

/* Adds a stretch behind the others, to read a saved coverage. 0, -ENOMEM, or -EINVAL: not behind
 * the last one, or too many. */
int kvs_coverage_append(struct kvs_coverage *coverage, const char *end, int64_t since);

#endif
