// SPDX-License-Identifier: Apache-2.0
// Which calls of faultfs fail, and how. Knows nothing of FUSE.
#ifndef KVSEAL_TESTS_FAULTFS_FAULT_H
#define KVSEAL_TESTS_FAULTFS_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The commands, one a line. N counts calls of KIND from the moment the line is taken, from 1:
 *
 *   KIND N errno E          the N-th call does nothing and fails with errno E
 *   KIND N hang             the N-th call waits for `release`, then goes on
 *   KIND N hang-always      the same for the N-th call and all later ones
 *   read N short SIZE       at most SIZE bytes are read, and the call succeeds
 *   write N short SIZE      the same for a write
 *   read N flip OFFSET      one bit of the byte at OFFSET of the file is wrong in what the N-th
 *                           read *that covers OFFSET* returns; the file itself stays good
 *   read N flip-always OFFSET  the same for the N-th such read and all later ones: rot
 *   release                 lets every hung call go on
 *   clear                   drops all faults, and counts from 0 again
 *
 * KIND `any` stands for every kind. Faults add up; each hits once (but for those that say always).
 * Where several are due at one call, the one set first is taken and the others are lost.
 *
 * The report has a line `KIND COUNT` for each kind, of the calls since `clear`, and `hit 1` when
 * any fault was hit since then, else `hit 0`.
 */

#define FAULT_KINDS(X)                                                                             \
    X(lookup)                                                                                      \
    X(getattr)                                                                                     \
    X(chmod)                                                                                       \
    X(chown)                                                                                       \
    X(truncate)                                                                                    \
    X(utimens)                                                                                     \
    X(readlink)                                                                                    \
    X(mknod)                                                                                       \
    X(mkdir)                                                                                       \
    X(symlink)                                                                                     \
    X(unlink)                                                                                      \
    X(rmdir)                                                                                       \
    X(rename)                                                                                      \
    X(link)                                                                                        \
    X(create)                                                                                      \
    X(tmpfile)                                                                                     \
    X(open)                                                                                        \
    X(read)                                                                                        \
    X(write)                                                                                       \
    X(flush)                                                                                       \
    X(release)                                                                                     \
    X(fsync)                                                                                       \
    X(fallocate)                                                                                   \
    X(lseek)                                                                                       \
    X(copy_file_range)                                                                             \
    X(opendir)                                                                                     \
    X(readdir)                                                                                     \
    X(releasedir)                                                                                  \
    X(fsyncdir)                                                                                    \
    X(statfs)                                                                                      \
    X(setxattr)                                                                                    \
    X(getxattr)                                                                                    \
    X(listxattr)                                                                                   \
    X(removexattr)

enum fault_kind {
#define X(name) FAULT_##name,
    FAULT_KINDS(X)
#undef X
        FAULT_any
};

/* Hung calls give up with -ENOTCONN once `is_stopping` says true. */
void fault_init(bool (*is_stopping)(void));

/*
 * Called first in every operation: counts it, and waits where it is to hang. `size` may be NULL; it
 * is lowered for a short read or write. 0, or the -errno that the operation has to fail with.
 */
int fault_enter(enum fault_kind kind, size_t *size);

/* Damages what a read at `offset` is about to return, when it covers the offset of a flip. */
void fault_flip(char *data, off_t offset, size_t size);

/* Takes command lines. 0, or -EINVAL at the first bad line; the lines before it count. */
int fault_command(const char *text, size_t size);

/* The report, or NULL when memory is out. The caller frees it. */
char *fault_report(size_t *size_ret);

#endif
