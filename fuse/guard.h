// SPDX-License-Identifier: Apache-2.0
// The directory under the mount: an empty one is made immutable while a mount covers it, so that
// nobody writes below a mount that is missing.
//
// A daemon that is killed leaves the directory immutable, which is the point. So that a later one
// knows it for ours and gives it back, it carries an attribute as well, KVS_GUARD_MARK: whatever is
// immutable and marked is ours, whatever is immutable and not marked is somebody else's and stays
// as it is. All of it is best effort: it takes CAP_LINUX_IMMUTABLE and a file system that has both.
#ifndef KVSEAL_FUSE_GUARD_H
#define KVSEAL_FUSE_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>

#define KVS_GUARD_MARK "trusted.kvseal.mountpoint"

struct kvs_guard {
    atomic_int directory_fd; /* from before the mount; -1: nothing is guarded */
};

/* Call it before the mount. Guards the directory `path` if it is empty, not immutable, and not the
 * directory of `source_fd` (-1: none); takes over one that is ours already. `may_set` false: does
 * the latter only. kvs_guard_give_back() at the end. */
void kvs_guard_take(const char *path, int source_fd, bool may_set, struct kvs_guard *guard_ret);

/* As it was before. Call it when the mount is gone. Does nothing the second time, on whatever
 * thread. */
void kvs_guard_give_back(struct kvs_guard *guard);

#endif
