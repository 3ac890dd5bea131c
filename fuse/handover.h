// SPDX-License-Identifier: Apache-2.0
// What a daemon knows of its mount, written down for the one that goes on with it: nodes with
// their look-up counts, their names, open files and directories, and blocks that are being written.
//
// Not handed over: verified content (the sums of its pieces are, and what is read is checked
// against them), counters, and what the source says anew. Locks are the kernel's.
//
// It is written by one program and read by another, maybe of another version. Whatever is not
// known for certain to mean the same is not read at all: then it is as if the daemon had been
// killed (takeover.h).
#ifndef KVSEAL_FUSE_HANDOVER_H
#define KVSEAL_FUSE_HANDOVER_H

#include <stddef.h>
#include <stdio.h>

#include "fuse/fs.h"

/* Descriptors that go with it, by index; those of the writer stay the file system's. */
struct kvs_handover_fds {
    int *fds; /* malloc()ed */
    size_t count, room;
};

/* Writes it at the position of `out`, while nobody changes it. 0 or -errno. */
int kvs_handover_write(struct kvs_fs *fs, FILE *out, struct kvs_handover_fds *fds_ret);

/* How many descriptors go with it; or -1: there is nothing, or nothing that can be read for this
 * source. */
long kvs_handover_count_fds(const struct kvs_fs *fs, const void *data, size_t size);

/* What was handed over becomes known to a file system that knows nothing yet, by the numbers of
 * fs->ids. Owns the descriptors from then on, and takes them out of `fds` (-1). 0 or -errno: then
 * `fs` is of no use. */
int kvs_handover_read(struct kvs_fs *fs, const void *data, size_t size,
                      const struct kvs_handover_fds *fds);

#endif
