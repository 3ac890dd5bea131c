// SPDX-License-Identifier: Apache-2.0
// The mounted file system: what all operations share, the map of this folder and the lock order.
//
//   kvsealfs.c      main: start-up checks, mount, background, shut-down
//   options         the command line; options_switches.c: switches, options.c: what stands after -o
//   attach  mount   getting the mount and leaving it; dead ones replaced, live ones refused
//   fd_socket  mounter  ... or its descriptor comes from a process that may mount
//   holder          ... which keeps it for the next daemon when one is gone (--hold)
//   takeover  handover  how that one goes on: the connection; what the last one knew
//   ids             the kernel's numbers for nodes and handles, also of earlier daemons
//   guard           the directory under the mount, immutable meanwhile
//   source  memory  what the start looks at: the directory, and how much memory there is
//   ready  healthcheck  whether it serves, for those outside; ask: questions that may hang
//   service         what the service manager is told (systemd)
//   worker          the loop: threads that receive requests and call the operations
//   operations.c    the table of operations; op_*.c hold them: resolve, do, reply once
//   inode  names    (dev, ino) -> node, with life-times; the names a node is known by
//   forget          the bound of that table: the kernel is asked to forget
//   reach           node -> descriptor: by file handle, by name, by another open handle
//   caller          creation as the caller: uid, gid, groups, umask
//   file            one inode's content: block state, digest, who has it open
//   change          what may alter content passes here (C4-C6)
//   join            writes that extend a file, made together
//   seal            state + record + descriptor -> sealed, or an errno (C1-C3, C8)
//   serve           who may read what: verified buffer, checked pieces, raw (C10-C12)
//   serve_passthrough  ... or by the kernel itself, from the locked pages of `pinned` or a buffer
//   mirror          what such a buffer has to follow: changes of its file
//   refuse          a corrupt block: its names go, the kernel forgets them (C13)
//   scrubber        goes round the source behind the mount and verifies it
//   buffers         memory for verified blocks and requests, within one budget; memfd: as files
//   control         .kvseal at the top of the mount: status and metrics to read
//   metrics         what the daemon says of itself, metrics_scrub the scrubber's part;
//                   metrics_http: the same by HTTP
//
// Lock order, outer first: file->append_lock, file->content, then one of table->lock, buffers'
// lock, digest's lock, pins' lock; file->mode_lock outside of the last and buffers' lock only. None
// but file->content and, inside it, file->mirror_lock is held over a system call that may hang.
// Nothing is held over fuse_reply_*.
#ifndef KVSEAL_FUSE_FS_H
#define KVSEAL_FUSE_FS_H

#include <fuse_lowlevel.h>
#include <stdatomic.h>
#include <time.h>

#include "fuse/options.h"

struct kvs_buffers;
struct kvs_file;
struct kvs_forgetter;
struct kvs_http;
struct kvs_ids;
struct kvs_passthrough;
struct kvs_pins;
struct kvs_scrubber;
struct kvs_table;

struct kvs_fs {
    struct kvs_options options;
    int source_fd; /* O_PATH would not do for fsync; opened O_RDONLY|O_DIRECTORY before the mount
                      (C22) */
    struct kvs_table *table;
    struct kvs_file *files; /* all that are open or owe a seal; protected by the table's lock */
    struct kvs_forgetter *forgetter; /* NULL: the table of names has no bound */
    struct kvs_buffers *buffers;
    struct kvs_passthrough *passthrough;
    struct kvs_pins *pins;
    _Atomic(struct kvs_scrubber *) scrubber; /* NULL: there is none */
    atomic_bool has_served; /* a request; taken back by the scrubber, which gives way then */
    struct fuse_session *session;
    bool is_held;            /* by a holder, when this daemon is gone (takeover.h) */
    uint32_t epoch;          /* how many daemons of this mount were before (ids.h) */
    struct kvs_ids *ids;     /* what they numbered; NULL: nothing has to be translated */
    const char *mountpoint;  /* absolute; set before `is_serving` */
    struct timespec started; /* CLOCK_REALTIME */
    int metrics_fd;          /* listens until `http` has it; -1: none */
    struct kvs_http *http;   /* NULL: none */
    atomic_bool is_serving;  /* the kernel's first request was answered */
};

static inline struct kvs_fs *kvs_fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* The sign flips here: `error` is 0 or -errno. */
static inline void kvs_reply_error(fuse_req_t req, int error)
{
    fuse_reply_err(req, -error);
}

#endif
