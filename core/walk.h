// SPDX-License-Identifier: Apache-2.0
// Walks the block files below a directory, through descriptors, always in the same order.
//
// The names of each directory are sorted by their bytes, and a directory is entered where its name
// stands. So whatever comes after a path is the rest of the walk, also when that path is gone: a
// path is all that a walk needs to be taken up again (`after`). kvs_walk_compare() is that order.
//
// A walk follows no symbolic link and enters no other mount (a btrfs subvolume is none). It leaves
// out what belongs to kvseal: directories named ".kvseal", at any depth, with all that is in them.
// The tree may change meanwhile: what vanishes is told as gone, what comes may be found or not, and
// nothing is visited twice (but a file that is renamed from one place to a later one is, under both
// names).
//
// Memory: the names of one directory a level. Descriptors: one a level.
#ifndef KVSEAL_CORE_WALK_H
#define KVSEAL_CORE_WALK_H

#include <stdbool.h>
#include <sys/stat.h>

enum kvs_walk_kind {
    KVS_WALK_FILE,      /* a regular file */
    KVS_WALK_TEMPORARY, /* a regular file with a name that kvseal gives for a moment
                           (core/temporary.h) */
    KVS_WALK_OTHER,     /* symbolic link, FIFO, socket, device */
    KVS_WALK_MOUNT,     /* another mount begins here; not entered */
    KVS_WALK_GONE,      /* listed, and gone or replaced when it was looked at */
    KVS_WALK_ERROR,     /* cannot be looked at or entered: `error` */
};

/* Valid during the call alone. */
struct kvs_walk_entry {
    enum kvs_walk_kind kind;
    int dir_fd;              /* where `name` is. -1 when the walk's root cannot be read */
    const char *name;        /* in that directory */
    const char *path;        /* from the root of the walk: "ab/cd/x.bin"; "" is the root */
    const struct stat *stat; /* of KVS_WALK_FILE, _TEMPORARY, _OTHER; else NULL */
    int error;               /* -errno of KVS_WALK_ERROR; else 0 */
};

struct kvs_walk {
    const char *after; /* begin behind this path, as of an earlier walk; NULL or "": at the start */
    /* Called for each entry in turn, by the thread that walks. Other than 0 ends the walk. */
    int (*visit)(void *context, const struct kvs_walk_entry *entry);
    void *context;
};

/* Walks the tree below `root_fd` (a directory open for reading; stays the caller's). 0 at the end,
 * -ENOMEM, or what `visit` ended it with. What cannot be read is not an end: KVS_WALK_ERROR. */
int kvs_walk(int root_fd, const struct kvs_walk *walk);

/* Which of two paths of a walk comes first: < 0, 0 (the same), > 0. Paths are compared by
 * component, so a directory's content stands before its longer-named neighbours ("a/z" < "a-b"). */
int kvs_walk_compare(const char *a, const char *b);

#endif
