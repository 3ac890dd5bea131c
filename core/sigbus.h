// SPDX-License-Identifier: Apache-2.0
// Reads of mapped files that survive a file that is cut, or a page that cannot be read (SIGBUS).
#ifndef KVSEAL_CORE_SIGBUS_H
#define KVSEAL_CORE_SIGBUS_H

#include <stdbool.h>
#include <stddef.h>

/* Handles SIGBUS from here on, for the whole process: one that is not ours still ends it. Once,
 * before kvs_sigbus_guard(); again does no harm. */
void kvs_sigbus_handle(void);

/* Runs `work`, which may read memory[0..len) of a mapped file, and must be able to end at each such
 * read: it holds no lock and owns nothing then. False: a page was not there. Threads that call this
 * must not block SIGBUS. Not nested. */
bool kvs_sigbus_guard(const void *memory, size_t len, void (*work)(void *argument), void *argument);

#endif
