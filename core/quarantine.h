// SPDX-License-Identifier: Apache-2.0
// The quarantine of a source: which blocks are in it and why, back to where they were, or for good
// away.
#ifndef KVSEAL_CORE_QUARANTINE_H
#define KVSEAL_CORE_QUARANTINE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/record.h"

/* A block in quarantine, with what its NAME.cause says. */
struct kvs_quarantined {
    char *name;     /* in the quarantine: what it is called by */
    char *path;     /* where it was, below the source; NULL: not known */
    uint64_t size;  /* of the file now */
    int64_t time;   /* when it was moved here, CLOCK_REALTIME seconds; of its last change where the
                       cause does not say */
    bool has_cause; /* false: the cause is missing or damaged, and the three below are not known */
    struct kvs_record expected; /* MALFORMED or SUM */
    uint32_t computed;
};

void kvs_quarantined_destroy(struct kvs_quarantined *block);

/* Opens the quarantine, which is not made. >= 0, or -errno: -ENOENT: nothing was ever quarantined.
 */
int kvs_quarantine_open_existing(int source_fd);

/* Reads them all, sorted by time, then name. 0, or -errno. */
int kvs_quarantine_list(int quarantine_fd, struct kvs_quarantined **blocks_ret, size_t *count_ret);
/* The same of causes whose block is gone: somebody removed it, or was killed in between. `name` and
 * `size` are of the cause's own file, the rest is what it says. */
int kvs_quarantine_list_orphans(int quarantine_fd, struct kvs_quarantined **causes_ret,
                                size_t *count_ret);
void kvs_quarantine_free(struct kvs_quarantined *blocks, size_t count);

/* Moves the block back to its path, if there is no other file by now, and removes its cause. Makes
 * no directories and follows no links. 0; -EEXIST: the path is in use; -ENOENT: its directory is
 * gone (or the block); -EINVAL: its path is not known; or -errno. */
int kvs_quarantine_restore(int source_fd, int quarantine_fd, const struct kvs_quarantined *block);

/* Removes the block and its cause. 0 or -errno. */
int kvs_quarantine_remove(int quarantine_fd, const struct kvs_quarantined *block);

#endif
