// SPDX-License-Identifier: Apache-2.0
// Running kvsealfs in its other roles, and as somebody without privileges.
#ifndef KVSEAL_TESTS_MOUNT_FIXTURE_PROCESS_H
#define KVSEAL_TESTS_MOUNT_FIXTURE_PROCESS_H

#include "tests/mount/fixture.h"

#define KVT_NOBODY 65534

/* Starts kvsealfs with these arguments (NULL-terminated), its output appended to `log`; it dies
 * with us. Another user than 0 has no capability, not even within reach, and no groups. The
 * descriptor `inherited` (-1: none) is 3 for it. Its pid. */
pid_t kvt_launch(const char *log, uid_t user, int inherited, ...) __attribute__((sentinel));

/* Waits for the end of a process (-1: of any child): its exit status, or 128 + signal. */
int kvt_end_of(pid_t pid);

/* SIGTERM, and the exit status. */
int kvt_terminate(pid_t pid);

/* Whether a live FUSE file system answers at this path. */
bool kvt_is_fuse(const char *path);

/* Whether a file has the text now. */
bool kvt_file_has(const char *path, const char *text);

/* A directory of this name and mode in env->work; its path (the last 16 stay valid). */
const char *kvt_work_dir(struct kvt_env *env, const char *name, mode_t mode);
const char *kvt_work_path(struct kvt_env *env, const char *name);

#endif
