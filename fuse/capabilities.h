// SPDX-License-Identifier: Apache-2.0
// Privileges: the daemon keeps what the contract needs and drops the rest.
#ifndef KVSEAL_FUSE_CAPABILITIES_H
#define KVSEAL_FUSE_CAPABILITIES_H

#include <stdbool.h>
#include <sys/capability.h>

/* Drops every capability that is not needed from this process, and logs one line on what those that
 * are missing turn off. Call it before any thread is made. Never fails: what cannot be dropped
 * stays. */
void kvs_capabilities_reduce(void);

/* Whether this process has it in effect. */
bool kvs_capabilities_have(cap_value_t capability);

#endif
