// SPDX-License-Identifier: Apache-2.0
// The table of nodes and names as inode.c, names.c, reach.c and forget.c share it; nobody else
// looks inside.
//
// Two hashes under one lock. Nodes by (device, inode number, file type, file handle): the type is
// in the key because where there are no file handles a reused inode number shows only by it, or by
// the end of the node (kvs_node_end). Names by (parent, text). The root is in neither: it is found
// by FUSE_ROOT_ID.
//
// A directory has one name only, the last that was seen, and the names of directories never form a
// circle: so the way up from any node ends, and references along names cannot keep themselves
// alive.
#ifndef KVSEAL_FUSE_TABLE_H
#define KVSEAL_FUSE_TABLE_H

#include "fuse/inode.h"
#include "fuse/names.h"

/* What the file handles of the source's device are good for. */
enum kvs_handles {
    KVS_HANDLES_NONE,
    KVS_HANDLES_COMPARE, /* telling files apart; opening them takes CAP_DAC_READ_SEARCH */
    KVS_HANDLES_OPEN,    /* and leading to them */
};

struct kvs_table {
    pthread_mutex_t lock; /* of all that follows but max_names, root, source_dev, handles */
    struct kvs_node **nodes;
    struct kvs_name **names;
    size_t node_buckets, name_buckets; /* powers of two */
    uint64_t node_count, name_count;
    unsigned kept_count;   /* nodes with a kept_fd */
    struct kvs_node *dead; /* freed when the lock is given back, by hash_next */
    uint64_t reaped_count; /* nodes that came to their end */
    size_t hand;           /* the bucket of nodes that forget.c looked at last */
    bool is_ending;        /* forget.c has to end */
    pthread_cond_t crowded, ending;
    uint64_t max_names; /* UINT64_MAX: no limit */
    struct kvs_node *root;
    struct kvs_ids *ids; /* those of the file system */
    dev_t source_dev;
    enum kvs_handles handles;
};

/* For tests: the nodes that are made from now on are told apart and reached so. */
void kvs_table_use_handles(struct kvs_table *table, enum kvs_handles use);

/* Of a file system that is known to give good ones. */
enum kvs_handles kvs_reach_probe_handles(int source_fd);

/* The rest: with the lock held. Who may have reaped a node, or dropped a name, gives the lock back
 * by this: closing what a dead node kept may take long. */
void kvs_table_unlock(struct kvs_table *table);

/* The end of the node if nothing needs it any more, and in turn of the parents of its names. */
void kvs_table_reap(struct kvs_table *table, struct kvs_node *node);

/* What (parent, text) is known to name, or NULL. */
struct kvs_node *kvs_table_find_name(const struct kvs_table *table, const struct kvs_node *parent,
                                     const char *text);

/* A node that an earlier daemon had: what it is found by, nlookup, number and is_ended are as
 * of `saved`, its handle has KVS_HANDLE_MAX bytes at most. 0 or -errno. */
int kvs_table_restore(struct kvs_table *table, const struct kvs_node *saved,
                      const unsigned char *handle, struct kvs_node **node_ret);

/* As kvs_names_add. */
int kvs_table_add_name(struct kvs_table *table, struct kvs_node *parent, const char *text,
                       struct kvs_node *node);

/* Frees a name. Returns its parent, whose reference is given back; the caller reaps it. */
struct kvs_node *kvs_table_drop_name(struct kvs_table *table, struct kvs_name *name);

#endif
