// SPDX-License-Identifier: Apache-2.0
// --hold: what a mounter keeps while no daemon serves its mount, so that the clients' calls wait
// for the next one instead of failing. It keeps descriptors, and looks into none of them.
//
//   EMPTY   there is no mount
//   SERVED  a daemon has it, and is connected
//   HELD    the daemon is gone, the mount is there, and whoever uses it waits
//
//   EMPTY  -- a daemon connects: mounted; it gets [device, empty state] ---> SERVED
//   SERVED -- "state" with a descriptor: kept, in place of all before ------> SERVED
//   SERVED -- "more" with descriptors: kept with it ------------------------> SERVED
//   SERVED -- "drop": nothing is kept any more -----------------------------> SERVED
//   SERVED -- the daemon goes, nothing is kept, or the mount is gone: ------> EMPTY
//   SERVED -- the daemon goes ----------------------------------------------> HELD
//   HELD   -- a daemon connects: it gets [device, state], then "more" ------> SERVED
//   HELD   -- the time is over: the mount is cut and taken away ------------> EMPTY
//
// The time goes on until that daemon sends a state, which says that it serves: daemons that come
// and fail do not prolong it, and one that has not sent it by then keeps out nobody else.
//
// While a daemon serves, another one that connects waits until it goes.
#ifndef KVSEAL_FUSE_HOLDER_H
#define KVSEAL_FUSE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* What the messages are called. */
#define KVS_HOLDER_STATE "state"
#define KVS_HOLDER_MORE  "more"
#define KVS_HOLDER_DROP  "drop"

/* How long one side waits for the other to take or send the next message. */
#define KVS_HOLDER_PATIENCE_MS 5000

struct kvs_holder {
    int device_fd; /* the mount's /dev/fuse; -1: none is held */
    int state_fd;  /* what the daemon sent; -1: nothing, so that nobody could go on */
    int *fds;      /* ... with it */
    size_t count, room;
};

#define KVS_HOLDER_INIT                                                                            \
    {                                                                                              \
        .device_fd = -1, .state_fd = -1                                                            \
    }

/* A new mount: a copy of its device is kept, and sent with an empty state. 0 or -errno. */
int kvs_holder_begin(struct kvs_holder *holder, int connection, const char *path, int device_fd);

/* Takes one message of the daemon, which is there. What makes no sense is as "drop". 1: a state, 0:
 * something else; or -errno: the daemon is gone. */
int kvs_holder_receive(struct kvs_holder *holder, int connection);

/* Whether the next daemon could go on. */
bool kvs_holder_is_ready(const struct kvs_holder *holder);

/* Sends all that is kept, and keeps it: the daemon may be gone before it serves. 0, also where it
 * does not take all of "more", for it has the mount then; or -errno: it does not. */
int kvs_holder_send(const struct kvs_holder *holder, int connection, const char *path);

void kvs_holder_drop(struct kvs_holder *holder);

#endif
