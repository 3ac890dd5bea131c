// SPDX-License-Identifier: Apache-2.0
// Joined writes: what arrives for the end of a file while another write to it is under way is
// written together, in one call.
//
// A client's large O_DIRECT write arrives in requests of at most 1 MiB, several at a time. Writes
// that extend a file are made one after another by the file system below, so each would pay the
// device's latency alone. Here the first one is made at once; those that arrive meanwhile wait, and
// whoever of them is woken next writes all that follow each other with one pwritev(2). Each request
// is answered when its own bytes are in the file: nothing is written behind anybody's back.
#ifndef KVSEAL_FUSE_JOIN_H
#define KVSEAL_FUSE_JOIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct kvs_join_write;

/* One per file. Zero-initialised but for kvs_join_init(). */
struct kvs_join {
    pthread_mutex_t lock;
    bool is_busy;                 /* somebody writes, and will wake the next */
    struct kvs_join_write *first; /* waiting, by offset */
};

void kvs_join_init(struct kvs_join *join);
void kvs_join_destroy(struct kvs_join *join);

/* Writes all of [offset, offset+len), alone or with others. True: it is in the file. False: it
 * could not be written in full; write it again alone, to learn why. */
bool kvs_join_write(struct kvs_join *join, int fd, const void *data, size_t len, off_t offset);

#endif
