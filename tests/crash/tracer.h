// SPDX-License-Identifier: Apache-2.0
// Kills a process just before a system call of one's choice.
#ifndef KVSEAL_TESTS_CRASH_TRACER_H
#define KVSEAL_TESTS_CRASH_TRACER_H

#include <stdbool.h>
#include <sys/types.h>

enum kvt_calls {
    KVT_CHANGING_CALLS, /* that change files, or answer a client */
    KVT_ALL_CALLS,      /* but those that cannot matter: futex, mmap ... */
};

/* Attaches to every thread of `pid`, a child, and runs `client(argument)` in a process of its own.
 * SIGKILL comes before the `nth` (from 1) of these calls that a thread of `pid` makes from then on.
 * A client that ends earlier is followed by the kill. Returns when both have ended, with the number
 * of calls that were counted.
 *
 * *done_ret: the client had ended before the kill; it gave 0, or the test fails. */
unsigned kvt_kill_at(pid_t pid, enum kvt_calls calls, unsigned nth, int (*client)(void *),
                     void *argument, bool *done_ret);

#endif
