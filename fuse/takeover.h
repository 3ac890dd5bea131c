// SPDX-License-Identifier: Apache-2.0
// Going on with a mount whose last daemon was ended or killed: its clients' calls have waited.
//
// The kernel talks to whoever has the connection, /dev/fuse. As long as somebody has a descriptor
// of it, and be it only the mounter (holder.h), the connection lives, and requests wait. A daemon
// that takes it over has to know what the last one did:
//
//   the connection  Its first request, INIT, is answered once in its life. The request and the
//                   answer are kept as state, and the new daemon is asked the same again; it takes
//                   over only if it gives the same answer. Meanwhile libfuse's session has a pipe
//                   for a device.
//   the numbers     of nodes and handles: each daemon's have an epoch (ids.h).
//   the rest        (handover.h), if the last daemon had the time to hand it over.
//
//   daemon                                        sends the holder
//   FIRST    INIT comes from the kernel           state: INIT, answer, epoch 0
//   NEXT     INIT comes from the state            state: INIT, answer, epoch + 1
//            + all that was handed over, or nothing: the last one was killed
//   ENDING   all requests are answered            state: INIT, answer, epoch, handover; descriptors
//
// Killed: blocks that were being written stay unsealed, as after any kill (C23); whoever has one of
// them open, or any other, is told ESTALE by each call. Calls by path are walked again by the
// kernel, and succeed. Requests that the dead daemon took and did not answer are sent again
// (FUSE_NOTIFY_RESEND, Linux 6.9): where they were carried out already, whoever asks learns what is
// true now: EEXIST, say, of a name that was made.
#ifndef KVSEAL_FUSE_TAKEOVER_H
#define KVSEAL_FUSE_TAKEOVER_H

#include <stddef.h>

#include "fuse/fs.h"

struct kvs_takeover {
    int connection; /* to the holder; the attachment's */
    char *init, *answer;
    size_t init_len, answer_len;
};

/* Makes fs->session, which is not mounted yet, serve `device_fd`, from its first request or from
 * what `state_fd` says. Both are the caller's. 0; or -errno after one line in the log. */
int kvs_takeover_begin(struct kvs_fs *fs, struct kvs_takeover *takeover, int device_fd,
                       int state_fd);

/* At the end, when nothing uses `fs` but for notifications: hands it over, if the mount is still
 * there. What fails is said in the log; the next daemon then goes on as after a kill. */
void kvs_takeover_hand_over(struct kvs_fs *fs, const struct kvs_takeover *takeover);

/* Instead: nobody can go on, and the mount ends with the connection to its holder. */
void kvs_takeover_give_up(const struct kvs_takeover *takeover);

void kvs_takeover_destroy(struct kvs_takeover *takeover);

#endif
