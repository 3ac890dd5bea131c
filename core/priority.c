// SPDX-License-Identifier: Apache-2.0
// Asks for the idle class of I/O and the lowest weight on the CPU.
#include "core/priority.h"

#include <linux/ioprio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void kvs_priority_lower(void)
{
    /* Best effort where the scheduler below knows no idle class. */
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 7));
    setpriority(PRIO_PROCESS, 0, 19); /* of the thread, on Linux */
}
