// SPDX-License-Identifier: Apache-2.0
// Names: (parent, name) -> node, as far as the daemon has seen them. Hints for reaching a node by
// name, for finding what a publish publishes, and for taking the names of a corrupt block away
// (C13): whoever uses one compares the inode again. Each name holds a reference on its parent.
#ifndef KVSEAL_FUSE_NAMES_H
#define KVSEAL_FUSE_NAMES_H

#include <stddef.h>

#include "fuse/inode.h"

struct kvs_name {
    struct kvs_name *hash_next; /* all protected by the table's lock */
    struct kvs_name *node_next;
    struct kvs_node *parent;
    struct kvs_node *node;
    char text[];
};

/* The node that is known as (parent, name), with a reference that the caller gives back; or NULL.
 */
struct kvs_node *kvs_names_find(struct kvs_fs *fs, struct kvs_node *parent, const char *name);

/* (parent, name) names `node` from now on; what it named before loses the name. 0 or -ENOMEM. */
int kvs_names_add(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                  struct kvs_node *node);
/* Forgets the name (UNLINK, RMDIR, a look-up that found nothing) unless it names another node than
 * `node`, to which the caller has a reference. Returns true when it did, and the node has no known
 * name left. */
bool kvs_names_remove(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                      struct kvs_node *node);
/* RENAME; with `exchange` both sides swap. */
int kvs_names_move(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                   struct kvs_node *new_parent, const char *new_name, bool exchange);

/* Copies of a node's names: each parent is referenced, each text malloc()ed. Freed together. */
struct kvs_names_copy {
    size_t count;
    struct kvs_names_copy_entry {
        struct kvs_node *parent;
        char *text;
    } entries[];
};
/* 0 or -ENOMEM. */
int kvs_names_copy(struct kvs_fs *fs, struct kvs_node *node, struct kvs_names_copy **copy_ret);
void kvs_names_copy_free(struct kvs_fs *fs, struct kvs_names_copy *copy);

/* The node's path relative to the source by its first known names ("model/ab/cd.bin"), "?" in place
 * of what is not known; for logs. malloc()ed, NULL only when memory ran out. */
char *kvs_names_path(struct kvs_fs *fs, struct kvs_node *node);

#endif
