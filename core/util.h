// SPDX-License-Identifier: Apache-2.0
// Small helpers: clean-up of descriptors and memory at the end of a scope, and hand-over.
#ifndef KVSEAL_CORE_UTIL_H
#define KVSEAL_CORE_UTIL_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void kvs_close_fd(const int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
}

static inline void kvs_free_memory(void *memory)
{
    free(*(void **)memory);
}

/* Declares a descriptor (or -1) that is closed, or memory that is freed, when its scope ends. */
#define kvs_cleanup_fd   __attribute__((cleanup(kvs_close_fd)))
#define kvs_cleanup_free __attribute__((cleanup(kvs_free_memory)))

/* Takes the descriptor out of a kvs_cleanup_fd variable: the caller owns it from here on. */
static inline int kvs_steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

/* The smaller and the larger of two values; each argument is looked at once. The variables have
 * names of their own, so that one can stand in another; what never runs is for the compiler, which
 * warns of mixed signs there. */
#define KVS_MIN(a, b)           KVS_PICK(a, <, b, __COUNTER__)
#define KVS_MAX(a, b)           KVS_PICK(a, >, b, __COUNTER__)
#define KVS_PICK(a, than, b, n) KVS_PICK_N(a, than, b, n)
#define KVS_PICK_N(a, than, b, n)                                                                  \
    ({                                                                                             \
        __typeof__(1 ? (a) : (b)) kvs_a##n = (a);                                                  \
        __typeof__(1 ? (a) : (b)) kvs_b##n = (b);                                                  \
        if (0)                                                                                     \
            (void)((a)than(b));                                                                    \
        kvs_a##n than kvs_b##n ? kvs_a##n : kvs_b##n;                                              \
    })

#define KVS_ALIGN_DOWN(value, unit) ((value) / (unit) * (unit))
#define KVS_ALIGN_UP(value, unit)   KVS_ALIGN_DOWN((value) + (unit)-1, unit)

#endif
