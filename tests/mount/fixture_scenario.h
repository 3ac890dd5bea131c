// SPDX-License-Identifier: Apache-2.0
// Scenarios: functions that run once in a directory of the source and once in one of the mount, and
// have to see the same. What is right is what the file system below does (C19).
//
// A scenario runs in a child, with the empty directory (mode 0777) as its working directory and
// umask 022, and writes down what it sees with the functions below. It may become anybody, change
// limits, or die of a signal, which is written down too.
#ifndef KVSEAL_TESTS_MOUNT_FIXTURE_SCENARIO_H
#define KVSEAL_TESTS_MOUNT_FIXTURE_SCENARIO_H

#include "tests/mount/fixture.h"

/* Runs it on both sides. Fails the test when they differ, showing the lines before the first
 * difference, and when a kvt_holds() did not hold. */
void kvt_same_as_below(struct kvt_env *env, void (*scenario)(void));
/* Where the two run: SOURCE/DIR/below and MNT/DIR/mounted. For looking at what is left. */
#define KVT_BELOW   "below"
#define KVT_MOUNTED "mounted"

/* Writes down the call, its result, and errno when that is -1. Gives the result. */
#define kvt_try(call) kvt_note_result(#call, (long)(call))
long kvt_note_result(const char *call, long result);

/* Writes down a line. */
void kvt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Must be true on both sides; for what a scenario prepares and what has only one right answer. */
#define kvt_holds(expression)                                                                      \
    do {                                                                                           \
        if (!(expression))                                                                         \
            kvt_note("DOES NOT HOLD: %s:%d: %s (errno %d)", __FILE__, __LINE__, #expression,       \
                     errno);                                                                       \
    } while (0)

/* Type, mode, links, owner, size, device number: of a name (not followed), and of a descriptor. */
void kvt_note_stat(const char *path);
void kvt_note_fstat(int fd);
/* Length and sum of the content, read with read(2). */
void kvt_note_content(const char *path);

/* Who scenarios are about. */
#define KVT_OWNER  1000
#define KVT_OTHER  1001
#define KVT_GROUP  2000
#define KVT_SECOND 2001

/* Runs `act` in a child of this user, group and supplementary groups. */
void kvt_as_whom(uid_t uid, gid_t gid, size_t count, const gid_t *groups, void (*act)(void));
void kvt_as(uid_t uid, gid_t gid, void (*act)(void));
void kvt_as_owner(void (*act)(void));    /* KVT_OWNER in KVT_GROUP */
void kvt_as_member(void (*act)(void));   /* KVT_OTHER in KVT_GROUP, and in KVT_SECOND as well */
void kvt_as_stranger(void (*act)(void)); /* another user in another group */

/* Makes a file with this text, mode 0644. */
void kvt_make(const char *path, const char *text);
/* Mode and owner; and the same for what is made. */
void kvt_give(const char *path, mode_t mode, uid_t uid, gid_t gid);
void kvt_make_file(const char *path, mode_t mode, uid_t uid, gid_t gid);
void kvt_make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid);

#endif
