// SPDX-License-Identifier: Apache-2.0
// One inode's content: the state of the block, what is known of its bytes, and who has it open.
//
// A kvs_file exists while a handle is open on a regular file, or while a seal is owed (its state is
// not CLEAN); then it holds a reference on its node, so that the debt cannot be forgotten with the
// look-up.
#ifndef KVSEAL_FUSE_FILE_H
#define KVSEAL_FUSE_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/block.h"
#include "core/digest.h"
#include "core/log.h"
#include "core/stats.h"
#include "fuse/buffers.h"
#include "fuse/inode.h"
#include "fuse/join.h"

struct kvs_handle;
struct kvs_pin;

/* How its open handles do their I/O (serve_passthrough.h). */
struct kvs_file_mode {
    unsigned ordinary, passthrough; /* handles */
    int backing_id;                 /* the kernel's number while there are any of the latter */
    bool stays;                     /* somebody waited in vain for these to be released */
    /* What the kernel reads, one of these: others may be mapping it. */
    struct kvs_pin *pin;     /* the pages that the mode began with */
    struct kvs_buffer *lent; /* or memory of ours */
};

enum kvs_handle_mode {
    KVS_MODE_NONE, /* still being opened */
    KVS_MODE_ORDINARY,
    KVS_MODE_PASSTHROUGH,
};

struct kvs_file {
    struct kvs_node *node; /* holds a reference */
    unsigned refs;         /* protected by the table's lock: handles, and operations under way */
    struct kvs_handle *handles; /* protected by the table's lock */

    /* Shared while content is changed, read raw or verified for a load; exclusive for a seal, a
     * first change (verify, remove the record) and a truncation. Prefers whoever wants it
     * exclusively. */
    pthread_rwlock_t content;
    /* Changed under `content` exclusive; a write that fails under shared takes block_lock as well,
     * and so does whoever reads it under shared. */
    struct kvs_block block;
    pthread_mutex_t block_lock;
    struct kvs_digest digest;
    struct kvs_verification cause; /* TAINTED by a corrupt base: what was found, for C13 */

    struct kvs_join join; /* direct writes that extend the file */

    /* A handle for both was opened beside passthrough: writes through its mappings are not seen,
     * and they outlive the handle. Changed under `content`, exclusive. */
    atomic_bool has_unseen_changes;

    struct kvs_file_mode mode;
    pthread_mutex_t mode_lock;   /* protects `mode`, and each handle's */
    pthread_cond_t mode_ended;   /* no handle is in passthrough any more */
    atomic_bool is_lent;         /* mode.lent is not NULL, or just was */
    pthread_mutex_t mirror_lock; /* held while lent memory follows a change (mirror.h) */

    pthread_mutex_t append_lock;     /* held from finding the end of the file to writing there */
    pthread_cond_t appended;         /* it has grown so */
    atomic_uint writers;             /* handles that can write */
    atomic_uint_fast64_t generation; /* grows before each change: what was verified before is old */
    bool is_forgiven;                /* no name is left: nothing is owed. Table's lock. */
    struct kvs_file *previous, *following; /* in fs->files. Table's lock. */
};

/* An open regular file: fi->fh. */
struct kvs_handle {
    struct kvs_handle *previous, *next; /* in file->handles, protected by the table's lock */
    struct kvs_file *file;
    uint64_t number;     /* that an earlier daemon gave it (ids.h); 0: its own */
    int fd;              /* opened with the client's flags, O_APPEND and O_TRUNC left out */
    atomic_int plain_fd; /* the same without O_DIRECT, opened when alignment asks for it; or -1 */
    bool can_read, can_write, is_direct, is_noatime;
    uid_t user;         /* who opened it, where it is a load */
    bool is_parallel;   /* the kernel sends the pieces of one write side by side */
    enum kvs_stat load; /* what its open for reading came to, counted when that is answered */

    /* Written through, and whoever wrote (libfuse's lock_owner; 0: not known) has not closed it
     * since. Others may: a descriptor that was inherited, say. */
    atomic_bool is_writing;
    atomic_uint_fast64_t writer;

    /* What this handle may be served from (serve.h). */
    enum kvs_handle_mode mode;
    struct kvs_pin *pin; /* verified and locked pages, or NULL */
    bool is_lender;      /* its buffer is lent to the kernel, which reads for it */
    bool is_verified;
    atomic_bool is_atime_due;  /* the first read moves atime (C17) */
    uint64_t generation;       /* file->generation that was verified */
    uint64_t size;             /* of the verified content */
    struct kvs_buffer *buffer; /* slot, see buffers.h */
    uint32_t *piece_sums;      /* one per KVS_PIECE_SIZE; owned; NULL when not verified */
};

/* The file of a regular node, made when there is none, with one reference. 0 or -ENOMEM. */
int kvs_file_get(struct kvs_fs *fs, struct kvs_node *node, struct kvs_file **file_ret);
/* The same, but NULL when there is none: nothing is open and nothing owed. */
struct kvs_file *kvs_file_find(struct kvs_fs *fs, struct kvs_node *node);
/* Frees the file when nobody refers to it and its block is CLEAN. */
void kvs_file_put(struct kvs_fs *fs, struct kvs_file *file);

/* Makes a handle that owns `fd` (also when it fails) and a reference on the file. NULL: no memory.
 */
struct kvs_handle *kvs_handle_create(struct kvs_fs *fs, struct kvs_file *file, int fd, int flags);
/* The handle that an operation is about. */
static inline struct kvs_handle *kvs_handle_of(const struct fuse_file_info *fi)
{
    return (struct kvs_handle *)(uintptr_t)fi->fh;
}

/* Closes it; the file may go with it. What is owed must have been sealed, and what it was served
 * from given up, before. */
void kvs_handle_destroy(struct kvs_fs *fs, struct kvs_handle *handle);

/* A write through it begins. */
void kvs_handle_writes(struct kvs_handle *handle, uint64_t owner);
/* close(2) by `owner`. */
void kvs_handle_flushes(struct kvs_handle *handle, uint64_t owner);
/* Whether somebody is in the midst of writing, through whatever handle. */
bool kvs_file_is_being_written(struct kvs_fs *fs, struct kvs_file *file);

/* A descriptor without O_DIRECT on the handle's file, for unaligned I/O (C20). Stays the handle's.
 */
int kvs_handle_plain_fd(struct kvs_fs *fs, struct kvs_handle *handle);

/* One log line about the file: "PATH: what". */
void kvs_file_log(struct kvs_fs *fs, struct kvs_file *file, enum kvs_log_kind kind, int priority,
                  const char *what);

/* A descriptor that reads the file and moves no access time. >= 0, or -errno as of kvs_node_open.
 */
int kvs_file_open_to_read(struct kvs_fs *fs, struct kvs_file *file);

/* The last known name of the node is gone: when no name at all is left, whatever seal is owed will
 * never be published, and is forgotten, and the node has ended. May open and stat the file. */
void kvs_file_forgive(struct kvs_fs *fs, struct kvs_node *node);

#endif
