// SPDX-License-Identifier: Apache-2.0
// Which pages of a file are in the page cache, so that a reader can leave the cache as it was.
#ifndef KVSEAL_CORE_RESIDENCY_H
#define KVSEAL_CORE_RESIDENCY_H

#include <stddef.h>
#include <stdint.h>

struct kvs_residency {
    unsigned char *pages; /* malloc()ed, as of mincore(2); NULL: not known */
    size_t count;
};

/* Notes what is cached of the first `size` bytes. Where that cannot be known (no memory, no
 * mapping; the kernel tells only owners and who may write) nothing will be dropped. */
void kvs_residency_note(struct kvs_residency *residency, int fd, uint64_t size);

/* Drops the pages that were not there when it was noted, and frees the note. Dirty pages stay. */
void kvs_residency_restore(struct kvs_residency *residency, int fd);

#endif
