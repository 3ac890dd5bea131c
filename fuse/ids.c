// SPDX-License-Identifier: Apache-2.0
// Finds the numbers in a request, and what they stand for.
#include "fuse/ids.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/util.h"
#include "fuse/control.h"

/* Of a request that is sent again (Linux 6.9; headers before have no name for it). */
#define UNIQUE_RESEND ((uint64_t)1 << 63)

struct known {
    uint64_t id;
    enum kvs_id_kind kind;
    void *object;
};

struct kvs_ids {
    pthread_rwlock_t lock;
    void *tree; /* of those; protected by the lock */
};

static int compare(const void *left, const void *right)
{
    const struct known *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

struct kvs_ids *kvs_ids_create(void)
{
    struct kvs_ids *ids = calloc(1, sizeof(*ids));
    if (ids)
        pthread_rwlock_init(&ids->lock, NULL);
    return ids;
}

void kvs_ids_destroy(struct kvs_ids *ids)
{
    tdestroy(ids->tree, free);
    pthread_rwlock_destroy(&ids->lock);
    free(ids);
}

int kvs_ids_add(struct kvs_ids *ids, enum kvs_id_kind kind, uint64_t id, void *object)
{
    struct known *entry = malloc(sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    *entry = (struct known){.id = id, .kind = kind, .object = object};
    pthread_rwlock_wrlock(&ids->lock);
    struct known **at = tsearch(entry, &ids->tree, compare);
    bool is_added = at && *at == entry;
    pthread_rwlock_unlock(&ids->lock);
    if (!is_added)
        free(entry);
    return is_added ? 0 : at ? -EEXIST : -ENOMEM;
}

void kvs_ids_remove(struct kvs_ids *ids, enum kvs_id_kind kind, uint64_t id)
{
    if (id == 0)
        return;
    struct known key = {.id = id, .kind = kind};
    pthread_rwlock_wrlock(&ids->lock);
    struct known **at = tfind(&key, &ids->tree, compare);
    struct known *entry = at ? *at : NULL;
    if (entry)
        tdelete(&key, &ids->tree, compare);
    pthread_rwlock_unlock(&ids->lock);
    free(entry);
}

void *kvs_ids_find(struct kvs_ids *ids, enum kvs_id_kind kind, uint64_t id)
{
    struct known key = {.id = id, .kind = kind};
    pthread_rwlock_rdlock(&ids->lock);
    struct known *const *at = tfind(&key, &ids->tree, compare);
    void *object = at ? (*at)->object : NULL;
    pthread_rwlock_unlock(&ids->lock);
    return object;
}

/* 0 with the address in place of the number, or -ESTALE. */
static int resolve(struct kvs_fs *fs, enum kvs_id_kind kind, uint64_t *id)
{
    if (*id >> KVS_EPOCH_SHIFT == fs->epoch) {
        *id &= ((uint64_t)1 << KVS_EPOCH_SHIFT) - 1;
        return 0;
    }
    void *object = kvs_ids_find(fs->ids, kind, *id);
    if (!object)
        return -ESTALE;
    *id = (uintptr_t)object;
    return 0;
}

/* The top, the control nodes and "none" have the same number always. */
static int resolve_node(struct kvs_fs *fs, uint64_t *id)
{
    return *id < KVS_CONTROL_END ? 0 : resolve(fs, KVS_ID_NODE, id);
}

/* What was rendered is gone with its daemon, and is not worth handing over (control.c). */
static int resolve_handle(struct kvs_fs *fs, uint64_t node, uint64_t *id)
{
    int error = resolve(fs, KVS_ID_HANDLE, id);
    if (error && kvs_is_control(node)) {
        *id = KVS_CONTROL_NO_HANDLE;
        return 0;
    }
    return error;
}

/* Where the request has the number of a handle, or NULL. */
static uint64_t *find_handle(struct fuse_in_header *header)
{
    void *body = header + 1;
    struct fuse_getattr_in *getattr = body;
    struct fuse_setattr_in *setattr = body;
    switch (header->opcode) {
    case FUSE_GETATTR:
        return getattr->getattr_flags & FUSE_GETATTR_FH ? &getattr->fh : NULL;
    case FUSE_SETATTR:
        return setattr->valid & FATTR_FH ? &setattr->fh : NULL;
    case FUSE_READ:
    case FUSE_READDIR:
        return &((struct fuse_read_in *)body)->fh;
    case FUSE_WRITE:
        return &((struct fuse_write_in *)body)->fh;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        return &((struct fuse_release_in *)body)->fh;
    case FUSE_FLUSH:
        return &((struct fuse_flush_in *)body)->fh;
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
        return &((struct fuse_fsync_in *)body)->fh;
    case FUSE_FALLOCATE:
        return &((struct fuse_fallocate_in *)body)->fh;
    case FUSE_LSEEK:
        return &((struct fuse_lseek_in *)body)->fh;
    default:
        return NULL;
    }
}

/* Where it has the number of a second node, or NULL. */
static uint64_t *find_second_node(struct fuse_in_header *header)
{
    void *body = header + 1;
    switch (header->opcode) {
    case FUSE_RENAME:
    case FUSE_RENAME2: /* begins as the other */
        return &((struct fuse_rename_in *)body)->newdir;
    case FUSE_LINK:
        return &((struct fuse_link_in *)body)->oldnodeid;
    default:
        return NULL;
    }
}

/* Those that nobody knows become a FORGET that takes nothing from the top. */
static void resolve_forgets(struct kvs_fs *fs, struct fuse_batch_forget_in *batch)
{
    struct fuse_forget_one *forgets = (void *)(batch + 1);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (resolve_node(fs, &forgets[i].nodeid))
            forgets[i] = (struct fuse_forget_one){.nodeid = FUSE_ROOT_ID};
    }
}

/* An exchange of two names that a killed daemon may have made already: once more would undo it. */
static bool may_be_undone(const struct fuse_in_header *header)
{
    const struct fuse_rename2_in *rename = (const void *)(header + 1);
    return header->unique & UNIQUE_RESEND && header->opcode == FUSE_RENAME2 &&
           rename->flags & RENAME_EXCHANGE;
}

int kvs_ids_resolve(struct kvs_fs *fs, void *request, bool *is_moot_ret)
{
    struct fuse_in_header *header = request;
    uint64_t *handle = find_handle(header), *second = find_second_node(header);
    int error = may_be_undone(header) ? -EIO : resolve_node(fs, &header->nodeid);
    if (!error && second)
        error = resolve_node(fs, second);
    if (!error && handle)
        error = resolve_handle(fs, header->nodeid, handle);
    if (header->opcode == FUSE_BATCH_FORGET)
        resolve_forgets(fs, (void *)(header + 1));
    *is_moot_ret = error && (header->opcode == FUSE_FORGET || header->opcode == FUSE_RELEASE ||
                             header->opcode == FUSE_RELEASEDIR);
    return error;
}
