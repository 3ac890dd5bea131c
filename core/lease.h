// SPDX-License-Identifier: Apache-2.0
// Read leases: does anybody have a file open for writing, and keeping it so for a moment.
//
// The kernel grants a read lease on a file only while nobody has it open, or mapped, for writing;
// and as long as it is held, who opens or truncates it has to wait. So it is held for moments only.
#ifndef KVSEAL_CORE_LEASE_H
#define KVSEAL_CORE_LEASE_H

#include <stdbool.h>

/* `fd`: open for reading alone. 0: taken; -EAGAIN: somebody has the file open for writing;
 * -EOPNOTSUPP: not on this file system (network file systems answer for the server, or not at all);
 * -EACCES: neither its owner nor CAP_LEASE. Who waits for it sends SIGIO: ignore or handle it. */
int kvs_lease_take(int fd);
void kvs_lease_drop(int fd);

/* Whether somebody has the file open for writing, by a lease that is given back at once. Where that
 * cannot be known, nobody has. */
bool kvs_lease_is_open_for_writing(int fd);

#endif
