// SPDX-License-Identifier: Apache-2.0
// The bound of the table of names (`max_names`): when there are more, the kernel is asked to forget
// those that were looked up longest ago. It then says so (FORGET), and the node goes.
//
// Which: a clock. A hand moves over the nodes; one that was looked up since the hand came by is
// passed over once, and a look-up sets no more than a mark. What is open, owes a seal or has known
// names below is passed over; what the kernel needs (a working directory) it keeps, and is not
// asked for again before the hand has come by twice.
//
// How: Linux 6.18 takes one message for many nodes, and no lock (FUSE_NOTIFY_PRUNE). Older kernels
// take one name at a time, under its directory's lock. A request that is under way in that
// directory holds the same lock until it is answered: the message would wait for it, and every
// later request for the message. So only names in directories where no request is under way are
// asked for, and never those of directories, which might be somebody's working directory: it would
// lose its path.
#ifndef KVSEAL_FUSE_FORGET_H
#define KVSEAL_FUSE_FORGET_H

#include <limits.h>
#include <stddef.h>

#include "fuse/fs.h"

/* Watches the table from now on, on a thread of its own, unless max_names is 0. Once the session is
 * mounted. 0 or -errno. */
int kvs_forget_start(struct kvs_fs *fs);

/* Ends that. 0; -ETIMEDOUT: a message hangs in the kernel, and its thread goes on using `fs`, and
 * fs->forgetter stays; to be called again once the mount is gone. */
int kvs_forget_stop(struct kvs_fs *fs);

/* The rest is for forget.c and its tests. */

/* A name of a node that may go. */
struct kvs_old_name {
    fuse_ino_t ino;
    fuse_ino_t parent;
    char text[NAME_MAX + 1];
};

#define KVS_OLD_NAMES_MAX 128
struct kvs_old_names {
    size_t count;
    struct kvs_old_name entries[KVS_OLD_NAMES_MAX]; /* those of one node follow each other */
};

/* Moves the hand over `buckets` buckets of the table, or until `names` is full, and adds what may
 * go. `by_name`: no directories. Returns how many buckets it passed. Takes the table's lock. */
size_t kvs_forget_pick(struct kvs_fs *fs, size_t buckets, bool by_name,
                       struct kvs_old_names *names);

#endif
