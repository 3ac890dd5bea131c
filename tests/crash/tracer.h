// SPDX-License-Identifier: Apache-2.0
// Kills a process just before a system call of one's choice.
#ifndef KVSEAL_TESTS_CRASH_TRACER_H
#define KVSEAL_TESTS_CRASH_TRACER_H

#include <stdbool.h>
#include <sys/types.h>

/* Attaches to every thread of `pid`, a child, and runs `client(argument)` in a process of its own.
 * SIGKILL comes before the `nth` (from 1) system call that a thread of `pid` makes from then on;
 * calls that touch no file (futex, mmap ...) do not count. A client that ends earlier is followed
 * by the kill. Returns when both have ended, with the number of calls that were counted.
 *
 * *done_ret: the client had ended before the kill; it gave 0, or the test fails. */
unsigned kvt_kill_at(pid_t pid, unsigned nth, int (*client)(void *), void *argument,
                     bool *done_ret);

#endif
