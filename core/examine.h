// SPDX-License-Identifier: Apache-2.0
// Judges a block beside whoever uses it: for the tool and the scrubber, on a live cache, whether or
// not a mount serves it (C15, C17).
//
// A verdict is kvs_verify()'s, with its two agreeing readings. But here nobody tells who is
// writing, so before a mismatch counts
//   - nobody may have the file open for writing: the kernel grants a read lease only then. (Through
//     the mount a block has no record from its first change to its seal; who writes beside the
//     mount need not take it away.) Where there are no leases, or they are not allowed, the next
//     one has to do;
//   - the block must have been left alone for a while, because there is a moment between the last
//     write of a program and its new record. The tool waits for a fresh mismatch until it is
//     KVS_SETTLE_MS old, and judges again; the scrubber leaves out what is fresh.
// What does not hold still is busy: neither intact nor corrupt.
//
// kvs_examine() leaves the page cache as it was. What is cached as a whole is summed where it is;
// other blocks are read with direct I/O, or buffered where that cannot be had, and what was not
// cached before is dropped again. What was found intact in the cache stays mapped until 64 MiB are,
// or something else was found, or the next block is not cached: to unmap interrupts every CPU that
// the process runs on. Meanwhile nobody can drop those pages.
#ifndef KVSEAL_CORE_EXAMINE_H
#define KVSEAL_CORE_EXAMINE_H

#include "core/verify.h"

#define KVS_SETTLE_MS 2000

enum kvs_finding {
    KVS_FOUND_INTACT,
    KVS_FOUND_TRANSIENT, /* intact, but a first reading was not */
    KVS_FOUND_UNSEALED,  /* not read */
    KVS_FOUND_CORRUPT,
    KVS_FOUND_BUSY,     /* being written, or changed under the readings: not judged */
    KVS_FOUND_GONE,     /* has no name any more: not judged */
    KVS_FOUND_UNSTABLE, /* reads differently each time, and nobody writes: no verdict */
    KVS_FOUND_ERROR,    /* of the file system below: `error` */
    KVS_FINDINGS,
};

struct kvs_examination {
    enum kvs_finding finding;
    int error;                            /* -errno with KVS_FOUND_ERROR, else 0 */
    struct kvs_verification verification; /* of INTACT, TRANSIENT, UNSEALED and CORRUPT */
};

/* What one thread examines with. */
struct kvs_examiner {
    void *memory;
    char *window;       /* addresses that cached blocks are mapped to; may be NULL */
    size_t window_used; /* bytes of it */
};

/* 0 or -ENOMEM. Handles SIGBUS from here on (core/sigbus.h). */
int kvs_examiner_init(struct kvs_examiner *examiner);
void kvs_examiner_destroy(struct kvs_examiner *examiner);

/* Examines the regular file that `fd` is open on, for reading, buffered; O_NOATIME where that is
 * allowed. A lease is tried on it only after a mismatch: SIGIO must be ignored or handled. */
void kvs_examine(struct kvs_examiner *examiner, int fd, struct kvs_examination *examination_ret);

/* The verdict itself: one kvs_verify(), and whether what is not intact held still since `before`,
 * by which the caller knows that the block is not fresh. `fd`: open for reading, buffered or
 * direct. A lease as above. 0; or -errno of the file system below or of before_piece: there is no
 * finding. */
int kvs_examine_judge(int fd, const struct kvs_snapshot *before, struct kvs_reading *reading,
                      struct kvs_examination *examination_ret);

/* Opens `name` in `dir_fd` for kvs_examine(): a regular file, not through a symbolic link, without
 * waiting for anybody. >= 0 the descriptor (the caller closes it), -EINVAL: is no regular file, or
 * -errno. */
int kvs_examine_open(int dir_fd, const char *name);

/* The same of a file that is open with O_PATH, which stays the caller's. */
int kvs_examine_open_again(int path_fd);

/* The scratch memory of an examiner, for kvs_seal_beside() and the like. */
#define KVS_EXAMINER_MEMORY ((size_t)4 << 20)

#endif
