// SPDX-License-Identifier: Apache-2.0
// How the daemon gets its mount and leaves it: it mounts by itself, or is given the descriptor of a
// mount that it may not take away.
#ifndef KVSEAL_FUSE_ATTACH_H
#define KVSEAL_FUSE_ATTACH_H

#include <fuse_lowlevel.h>

#include "fuse/guard.h"
#include "fuse/options.h"

struct kvs_attachment {
    const struct kvs_options *options;
    char *mountpoint;  /* canonical; of a given descriptor, what is known of it */
    int mount_id;      /* -1: not ours to take away */
    int connection_fd; /* to the mounter, who sees our end by it; or -1 */
    int device_fd;     /* of a mount that is held, with its state (takeover.h); or -1 */
    int state_fd;
    struct kvs_guard guard;
};

#define KVS_ATTACHMENT_INIT                                                                        \
    {                                                                                              \
        .mount_id = -1, .connection_fd = -1, .device_fd = -1, .state_fd = -1,                      \
        .guard.directory_fd = -1                                                                   \
    }

/* All give 0, or -errno after one clear line in the log. kvs_attach_end() in every case. */

/* Before the source is opened: a dead mount goes, which may hide it (C21). `options` lives on. */
int kvs_attach_prepare(const struct kvs_options *options, struct kvs_attachment *attachment);

/* Whether this source can be shown there. */
int kvs_attach_check_source(struct kvs_attachment *attachment, int source_fd);

/* Mounts, or waits for the mount: at most options->timeout seconds, or until a signal ends the
 * session. A mount that is held is left for kvs_takeover_begin(). */
int kvs_attach_mount(struct kvs_attachment *attachment, struct fuse_session *session,
                     int source_fd);

/* The session serves this descriptor, and closes it with itself. */
int kvs_attach_use_device(struct fuse_session *session, int device_fd);

/* If somebody has unmounted it: the directory is given back now, for whoever removes it next. */
void kvs_attach_notice_unmount(struct kvs_attachment *attachment);

/* Takes our mount away, unless something else covers or replaced it, and gives the directory back.
 * `must_cut`: the connection is cut first, which fails what clients wait for. `session`: NULL where
 * it never came to be. */
void kvs_attach_unmount(struct kvs_attachment *attachment, struct fuse_session *session,
                        bool must_cut);

/* Frees what is left. The session's descriptor has to be closed before: then the mounter sees the
 * end. */
void kvs_attach_end(struct kvs_attachment *attachment);

#endif
