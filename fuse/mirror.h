// SPDX-License-Identifier: Apache-2.0
// Lent memory follows its file.
//
// Whoever opened a block while it was intact may hold it open for hours, and the kernel reads the
// memory that was lent for it (serve_passthrough.h) until the last handle is released. When the
// file is changed through the mount meanwhile, its readers have to see what was written (C11): each
// change is copied from the file, before it is answered.
//
// Where the memory cannot follow (no room, an error of the file below), it ends: readers find a
// short file there, and never old bytes. It does not follow changes beside the mount, as verified
// bytes never do.
#ifndef KVSEAL_FUSE_MIRROR_H
#define KVSEAL_FUSE_MIRROR_H

#include "fuse/file.h"

/* [offset, offset+len) of the file may have changed, and its size. Uses the worker's scratch. */
void kvs_mirror_follow(struct kvs_fs *fs, struct kvs_file *file, uint64_t offset, uint64_t len);

#endif
