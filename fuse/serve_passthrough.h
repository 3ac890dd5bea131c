// SPDX-License-Identifier: Apache-2.0
// Loads by kernel passthrough: the kernel reads by itself what was verified. Buffered loads read
// the file below, from pages that are locked (pinned.h); O_DIRECT loads would read the device
// again, so they read the buffer that was verified, which is lent to the kernel as a file
// (buffers.h).
//
// The kernel has rules. While an inode is open in passthrough, every further open of it has to name
// the same backing file, or open(2) fails with EIO; and a mapping through a handle of another mode
// shuts passthrough out. So a file is in one of two modes, kept in its `mode`:
//
//   ordinary      READ and WRITE come to the daemon. As long as such a handle is open, all are.
//   passthrough   begins with a load while no other handle is open: one that is buffered and has
//                 its block pinned, or one with O_DIRECT that has it in a buffer. It goes past the
//                 daemon; pages and buffer stay to the end of the mode, for whoever maps them
//                 meanwhile. Whoever else opens the file joins: its reads and writes come to the
//                 daemon (those of more buffered loads over pages need not), but its mappings do
//                 not.
//
// A handle for both could be mapped to write, unseen. Over pages such changes reach the file, so
// the block loses its record at once (C11). Over a buffer they would be lost, so it is not opened:
// EBUSY. Both wait a little first, for loads that are over. It does not come to that with
// clients that map blocks to write: they do so when they make them, and from the first such handle
// on nothing is lent any more.
//
// The daemon's view of a handle begins before the kernel's (before the reply) and ends after it
// (RELEASE is sent when the mode has ended), so the two cannot disagree.
//
// It is an optimisation: whatever refuses it, the ordinary way is taken.
#ifndef KVSEAL_FUSE_SERVE_PASSTHROUGH_H
#define KVSEAL_FUSE_SERVE_PASSTHROUGH_H

#include "fuse/file.h"

/* Finds out whether it can be used here: options, privileges, the source's file system. 0 or
 * -ENOMEM. */
int kvs_passthrough_create(struct kvs_fs *fs);
/* Whether buffered loads go by the kernel, as far as it is known by now. */
bool kvs_passthrough_is_on(const struct kvs_fs *fs);
/* Asks the kernel for it. */
void kvs_passthrough_negotiate(struct kvs_fs *fs, struct fuse_conn_info *conn);
void kvs_passthrough_destroy(struct kvs_fs *fs);

/* A load is being opened, `content` is held shared: pins the block in handle->pin, if it is one to
 * be read by passthrough. False: to be verified the ordinary way. */
bool kvs_passthrough_pin(struct kvs_fs *fs, struct kvs_handle *handle);

/* The first step of opening an existing file, before anything of it is changed. 0, or -EBUSY. */
int kvs_passthrough_admit(struct kvs_fs *fs, struct kvs_handle *handle);

/* The last step of every open and creation: gives the handle its mode, and says so in `fi`. No lock
 * is held. 0; or -errno of taking the record away: it must not be opened. */
int kvs_passthrough_settle(struct kvs_fs *fs, struct kvs_handle *handle, struct fuse_file_info *fi);

/* The handle is released, or was never opened. */
void kvs_passthrough_release(struct kvs_fs *fs, struct kvs_handle *handle);

#endif
