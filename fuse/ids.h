// SPDX-License-Identifier: Apache-2.0
// The kernel's numbers for nodes and handles, over several daemons of one mount (takeover.h).
//
// A number is the address of the object, as it is cheap to find by, with the epoch of the daemon
// that gave it in the upper 16 bits. The first daemon's epoch is 0: its numbers are addresses, and
// nothing has to be translated. A daemon that took the mount over is asked about objects by the
// numbers of earlier daemons too: those are looked up here, and put into the request in place of
// the number before libfuse sees it. So no operation knows of it.
//
// A number that nobody knows belongs to an object whose daemon was killed: ESTALE. The kernel then
// walks the path again, from the top, where the call came by a path.
#ifndef KVSEAL_FUSE_IDS_H
#define KVSEAL_FUSE_IDS_H

#include "fuse/fs.h"

#define KVS_EPOCH_SHIFT 48
#define KVS_EPOCH_MAX   0xffffU

struct kvs_ids;

enum kvs_id_kind { KVS_ID_NODE, KVS_ID_HANDLE };

/* NULL: no memory. */
struct kvs_ids *kvs_ids_create(void);
void kvs_ids_destroy(struct kvs_ids *ids);

/* The number of an object that this daemon made. */
static inline uint64_t kvs_id_of(const struct kvs_fs *fs, const void *object)
{
    return (uint64_t)fs->epoch << KVS_EPOCH_SHIFT | (uintptr_t)object;
}

/* An object that has a number of an earlier daemon, until it goes. 0 or -ENOMEM. */
int kvs_ids_add(struct kvs_ids *ids, enum kvs_id_kind kind, uint64_t id, void *object);
/* `id` 0: it has none. */
void kvs_ids_remove(struct kvs_ids *ids, enum kvs_id_kind kind, uint64_t id);

/* NULL: there is none. */
void *kvs_ids_find(struct kvs_ids *ids, enum kvs_id_kind kind, uint64_t id);

/* Puts addresses in place of the numbers in a request, which is in one piece. 0; or -errno that is
 * its answer: -ESTALE; -EIO, for what is sent again and must not be done twice. A FORGET or RELEASE
 * of what is not known is about nothing any more: *is_moot_ret. */
int kvs_ids_resolve(struct kvs_fs *fs, void *request, bool *is_moot_ret);

#endif
