// SPDX-License-Identifier: Apache-2.0
// The scrubber inside the daemon (`scrub_within`): a thread that goes round the source behind the
// mount.
//
// It takes no lock while it reads. What is changed through the mount loses its record first, and so
// cannot look corrupt; what is being written is left out; and a corrupt block is refused as at open
// (refuse.h): under its `content`, after one more look. While requests come in it rests most of the
// time.
#ifndef KVSEAL_FUSE_SCRUBBER_H
#define KVSEAL_FUSE_SCRUBBER_H

#include "core/scrub.h"
#include "fuse/fs.h"

/* Starts the thread; nothing where scrub_within is not given. 0 or -errno. */
int kvs_scrubber_start(struct kvs_fs *fs);

/* Ends the thread, within one read of the device. True: it is over, also when there was none.
 * False: after `limit_ms` it still hangs in the file system below, and goes on using `fs`. */
bool kvs_scrubber_end(struct kvs_fs *fs, unsigned limit_ms);

/* After kvs_scrubber_end() was true, when nobody asks for its progress any more. */
void kvs_scrubber_destroy(struct kvs_fs *fs);

/* False: there is no scrubber, or it waits for another one to finish, or was ended. From any
 * thread. */
bool kvs_scrubber_progress(struct kvs_fs *fs, struct kvs_scrub_progress *progress_ret);

#endif
