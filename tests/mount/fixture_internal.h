// SPDX-License-Identifier: Apache-2.0
// What the parts of the fixture share with each other, and not with tests.
#ifndef KVSEAL_TESTS_MOUNT_FIXTURE_INTERNAL_H
#define KVSEAL_TESTS_MOUNT_FIXTURE_INTERNAL_H

#include "tests/mount/fixture.h"

/* fixture_source.c: makes env->source of env->kind below env->work. NULL, or why this machine
 * cannot (static text). Fails the program when it should have worked. */
const char *kvt_source_make(struct kvt_env *env);
void kvt_source_remove(struct kvt_env *env);

/* Unmounts everything at or below a directory, what was mounted last first. */
void kvt_unmount_below(const char *directory);

/* Removes a directory and all that is in it. */
void kvt_remove_tree(const char *directory);

/* fixture_daemon.c: starts a program in this process group, both outputs to `output` (a
 * descriptor); it dies with us. Its pid. */
pid_t kvt_spawn(char *const argv[], int output);

/* waitpid(2) with a limit. False: it still runs. */
bool kvt_wait_exit(pid_t pid, unsigned seconds, int *status_ret);

/* Shows the daemon's log, before a test fails. */
void kvt_show_log(struct kvt_env *env);

/* The daemon has ended, and nobody asked it to. */
bool kvt_daemon_died(struct kvt_env *env);

#endif
