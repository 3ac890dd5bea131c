// SPDX-License-Identifier: Apache-2.0
// The priority of a thread that works in the background.
#ifndef KVSEAL_CORE_PRIORITY_H
#define KVSEAL_CORE_PRIORITY_H

/* Puts the calling thread behind others for CPU and I/O, as far as it may. */
void kvs_priority_lower(void);

#endif
