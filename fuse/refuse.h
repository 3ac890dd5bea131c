// SPDX-License-Identifier: Apache-2.0
// A corrupt block (C13): every known name of the inode goes before open() answers, and the kernel
// forgets the entries and attributes that it has cached.
#ifndef KVSEAL_FUSE_REFUSE_H
#define KVSEAL_FUSE_REFUSE_H

#include "core/verify.h"
#include "fuse/file.h"

/* Counts, logs, removes or quarantines as `on_corrupt` says, and makes the kernel's caches forget.
 * No lock may be held: `content` is taken, and the block looked at again, since somebody may have
 * stored it anew after it was found corrupt. Returns -corrupt_errno, for the client; or -EAGAIN: it
 * is not the block any more that was found corrupt, and nothing was done. */
int kvs_refuse(struct kvs_fs *fs, struct kvs_file *file, const struct kvs_verification *cause);

/* At the end, when nothing is refused any more: whether all notifications of the kernel are over,
 * after `limit_ms` at most. False: one waits for the lock of a directory, and uses the session. */
bool kvs_refuse_await_end(unsigned limit_ms);

#endif
