// SPDX-License-Identifier: Apache-2.0
// A side of the comparison: a directory that a tier can work in, and what is below it.
#ifndef KVSEAL_BENCH_SIDE_H
#define KVSEAL_BENCH_SIDE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct side {
    const char *name;
    const char *dir; /* where the tier works */
    const char
        *below; /* the same files on the file system itself: equal to dir where not mounted */
    int daemon; /* its process, 0 where there is none */
    bool sums;  /* the client sums the blocks itself, as in vLLM's pull request 57912 */
};

/* The side whose client sums for itself has this name. */
#define SIDE_CLIENT_CRC "client CRC"
#define SIDE_NATIVE     "native"
#define SIDE_MOUNT      "mount"

/* The path of block `number` below `dir`: side->dir or side->below. Fanned out, as tiers do. */
void side_path(char path_ret[PATH_MAX], const char *dir, uint64_t number);

void side_make_directories(const struct side *side);

/* Removes blocks first .. first + count - 1; those that are not there are no fault. */
void side_remove(const struct side *side, uint64_t first, uint64_t count);

/* Writes everything of the file system to its device. */
void side_sync(const struct side *side);

/* Takes blocks out of the page cache, below, where no daemon notices. */
void side_cool(const struct side *side, uint64_t first, uint64_t count);

/* Makes the blocks look changed (ctime), so that what was verified has to be verified again. */
void side_touch(const struct side *side, uint64_t first, uint64_t count);

/* The CPU seconds that the side's daemon has used. */
double side_daemon_cpu(const struct side *side);

#endif
