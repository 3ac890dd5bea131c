// SPDX-License-Identifier: Apache-2.0
// Nodes: one for each inode of the source that the kernel or an open handle knows.
//
// A node is found by (device, inode number, and the file handle where there is one). A reused inode
// number is another node: its file handle is another one, or the node has ended, when its last name
// was removed through the mount. The kernel's name for it (fuse_ino_t) is the node's address; after
// a takeover more than that (ids.h), but only outside of the operations.
//
// Life: a node lives while the kernel counts look-ups of it (nlookup: +1 for each reply that
// carries an entry, minus what FORGET says) or somebody holds a reference: an open handle's file, a
// name below it, a seal that is still owed. Counting, finding and freeing are done under the one
// table lock. No descriptor is kept for a node that has a name: 2,000,000 of them cost memory only
// (see reach.h).
#ifndef KVSEAL_FUSE_INODE_H
#define KVSEAL_FUSE_INODE_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fuse/fs.h"

struct kvs_file;
struct kvs_name;

/* For the bound of the table (forget.h). */
enum kvs_node_age {
    KVS_NODE_NEW, /* looked up since the hand came by */
    KVS_NODE_OLD,
    KVS_NODE_ASKED, /* the kernel was asked to forget it */
};

struct kvs_node {
    struct kvs_node *hash_next; /* protected by the table's lock, as are all but dev, ino, handle */
    dev_t dev;
    ino_t ino;
    uint64_t nlookup;
    uint64_t number; /* that an earlier daemon gave it (ids.h); 0: its own */
    uint32_t refs;
    uint32_t mode;          /* the file type bits, fixed at creation */
    struct kvs_file *file;  /* NULL while it is a directory, or not open and owing nothing */
    struct kvs_name *names; /* what it is known by (names.h) */
    int kept_fd;            /* kvs_node_keep(); -1: none */
    uint32_t handle_type;
    uint32_t handle_len;    /* 0: no file handle */
    uint8_t age;            /* enum kvs_node_age */
    bool is_ended;          /* kvs_node_end() */
    unsigned char handle[]; /* as name_to_handle_at gave it */
};

/* Makes the table with the root node (the source directory itself, FUSE_ROOT_ID). 0 or -errno. */
int kvs_table_create(int source_fd, struct kvs_table **table_ret);
void kvs_table_destroy(struct kvs_table *table);

/* More names than this are too many: forget.h. 0: none are. */
void kvs_table_limit(struct kvs_table *table, uint64_t max_names);

/* The one lock of nodes, names and the `file` pointers. Never held over a system call that can
 * hang. */
pthread_mutex_t *kvs_table_lock(struct kvs_table *table);

/* How many nodes and names there are, for tests and status. */
void kvs_table_count(struct kvs_table *table, uint64_t *nodes_ret, uint64_t *names_ret);

/* The node that an operation is about; no new reference. */
struct kvs_node *kvs_node_of(struct kvs_fs *fs, fuse_ino_t ino);
/* The kernel's name for it. */
fuse_ino_t kvs_node_ino(struct kvs_fs *fs, const struct kvs_node *node);

/* Finds or makes the node of `fd` (O_PATH suffices), whose stat is `st`, notes that it is called
 * (parent, name) (parent NULL: nameless, O_TMPFILE), and counts one look-up. What LOOKUP, CREATE,
 * MKNOD, MKDIR, SYMLINK and LINK share. 0 or -ENOMEM. */
int kvs_node_adopt(struct kvs_fs *fs, struct kvs_node *parent, const char *name, int fd,
                   const struct stat *st, struct kvs_node **node_ret);

/* The node of `fd` if there is one, with a reference that the caller gives back; else NULL. */
struct kvs_node *kvs_node_find(struct kvs_fs *fs, int fd, const struct stat *st);

/* LOOKUP: opens `name` below `parent` with O_PATH|O_NOFOLLOW, then as above. 0, -ENOENT, -errno. */
int kvs_node_lookup(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                    struct kvs_node **node_ret, struct stat *st_ret);

void kvs_node_forget(struct kvs_fs *fs, struct kvs_node *node, uint64_t nlookup);

/* References that are not the kernel's. unref may free the node. */
void kvs_node_ref(struct kvs_fs *fs, struct kvs_node *node);
void kvs_node_unref(struct kvs_fs *fs, struct kvs_node *node);

/* The inode has no name left: whoever finds its number again finds another file. The node lives on
 * until it is forgotten and given back. */
void kvs_node_end(struct kvs_fs *fs, struct kvs_node *node);

/* RENAME or RMDIR is about to take the node's last name. Holds the inode by `fd` (O_PATH, handed
 * over) until the kernel forgets the node, which it soon does: a client that has resolved the name
 * before, or works in the directory, then finds the old one, as it would without the mount, and not
 * ESTALE. Not for UNLINK, where the kernel itself asks again and finds nothing: space has to be
 * free when unlink(2) returns. */
void kvs_node_keep(struct kvs_fs *fs, struct kvs_node *node, int fd);
/* It was not its last name. */
void kvs_node_let_go(struct kvs_fs *fs, struct kvs_node *node);

#endif
