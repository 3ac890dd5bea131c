// SPDX-License-Identifier: Apache-2.0
// A mount that is held (--mount-for --stay --hold), and the daemons that serve it in turn.
#ifndef KVSEAL_TESTS_MOUNT_FIXTURE_HELD_H
#define KVSEAL_TESTS_MOUNT_FIXTURE_HELD_H

#include "tests/mount/fixture_process.h"

/* `keeper`: the process that starts daemons and ends them. We have files open on the mount: our
 * own children would close theirs at their start, and wait for the daemon that they are to be. */
struct kvt_held {
    const char *source, *mnt, *socket, *log, *ready, *seconds;
    const char *options; /* of the next daemon; NULL: defaults */
    uid_t user;
    int keeper;
    pid_t mounter, daemon;
};

/* Mounter and first daemon, the latter as `user`, in a fresh directory (on faultfs, if that is the
 * test's); the hold is of so many seconds. The end takes both away, and looks for reports of
 * sanitizers. */
void kvt_held_make(struct kvt_env *env, struct kvt_held *held, uid_t user, const char *seconds);
void kvt_held_end(struct kvt_held *held);

/* The next daemon, as held->user, becomes held->daemon, and is waited for until it serves. */
void kvt_held_start(struct kvt_held *held);
void kvt_held_await_ready(const struct kvt_held *held);
pid_t kvt_held_start_mounter(const struct kvt_held *held);

/* The exit status, or 128 + signal; with SIGTERM before. */
int kvt_held_await_end(const struct kvt_held *held, pid_t pid);
int kvt_held_terminate(const struct kvt_held *held, pid_t pid);

/* The old daemon hands over, and the next one goes on; or it is killed. */
void kvt_held_upgrade(struct kvt_held *held);
void kvt_held_kill(const struct kvt_held *held);
void kvt_held_kill_and_replace(struct kvt_held *held);

/* DIR/NAME; the last 8 of a thread stay valid. */
const char *kvt_in(const char *dir, const char *name);

#endif
