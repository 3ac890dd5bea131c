// SPDX-License-Identifier: Apache-2.0
// Serving: a load is verified when it is opened, and reads get the bytes that were verified
// (C10-C12, C15-C17).
//
//   passthrough       the kernel reads verified, locked pages itself (serve_passthrough.h)
//   verified buffer   the whole block in memory, read and summed at open
//   pieces            the buffer was dropped, or there was no room for one: each piece is read
//   again and
//                     checked against its sum of the open
//   raw               being written, or unsealed: what the file below says
//
// The first change through the mount makes verified bytes old (file->generation): raw from then on.
#ifndef KVSEAL_FUSE_SERVE_H
#define KVSEAL_FUSE_SERVE_H

#include "fuse/file.h"

/* Verifies an open for read. 0; or -errno for the client, corrupt_errno after C13 was applied. */
int kvs_serve_open(struct kvs_fs *fs, struct kvs_handle *handle);

/* Answers a READ. Never short before the end of the file. */
void kvs_serve_read(fuse_req_t req, struct kvs_fs *fs, struct kvs_handle *handle, size_t size,
                    uint64_t offset);

/* Gives up the handle's buffer, sums, pages and mode. */
void kvs_serve_close(struct kvs_fs *fs, struct kvs_handle *handle);

#endif
