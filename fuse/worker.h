// SPDX-License-Identifier: Apache-2.0
// The loop: worker threads that each receive a request into their own buffer and run it to its
// reply.
//
// A request may hang in the file system below for ever (C24), so a worker that is busy is never
// counted on: whenever the last idle worker takes a request, another one is started, up to
// `threads` and as far as the budget has room for its memory. Where there is no room, requests wait
// for workers that finish; when none has for a moment, they hang, and workers are started beyond
// the budget, which then take what a request touches: some pages, or the megabyte of a WRITE. Idle
// workers beyond a few end after some seconds.
#ifndef KVSEAL_FUSE_WORKER_H
#define KVSEAL_FUSE_WORKER_H

#include <stdbool.h>
#include <stddef.h>

#include "fuse/fs.h"

/* The largest WRITE and READ that is negotiated with the kernel (fs.fuse.max_pages_limit's
 * default). */
#define KVS_MAX_REQUEST ((size_t)1 << 20)

/* The calling worker's own scratch memory, KVS_IO_ALIGN-aligned: for reads that go nowhere else.
 * Valid until the operation returns. */
#define KVS_SCRATCH_SIZE (2 * KVS_MAX_REQUEST)
void *kvs_worker_scratch(void);

/* Serves fs->session until it is unmounted or a signal asked for the end (fuse_session_exit). The
 * kernel having ended the connection, `on_unmount` is called at once, on a worker, if at all.
 * Requests in flight finish first, those that hang are given `grace_ms`; *left_ms_ret of it is
 * left then. 0, or -errno that ended the loop; -ETIMEDOUT: some hang, and their threads go on using
 * `fs`, which must stay. */
int kvs_workers_run(struct kvs_fs *fs, void (*on_unmount)(void *), void *argument,
                    unsigned grace_ms, unsigned *left_ms_ret);

/* How many workers there are, and how many of them wait for a request. */
struct kvs_workers_count {
    unsigned all, idle;
};
struct kvs_workers_count kvs_workers_count(void);

/* Whether a request that names this directory, or is about the directory itself, is being served.
 */
bool kvs_workers_serve(fuse_ino_t directory);

/* Runs `work` on a thread that has what a worker has, scratch memory above all, and waits for it,
 * at most `limit_ms`. 0 or -errno; -ETIMEDOUT: it hangs, and goes on using `fs`. */
int kvs_worker_run_once(struct kvs_fs *fs, void (*work)(struct kvs_fs *), unsigned limit_ms);

#endif
