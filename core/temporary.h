// SPDX-License-Identifier: Apache-2.0
// Names that kvseal gives files for a moment: a prefix and sixteen hexadecimal digits at random.
#ifndef KVSEAL_CORE_TEMPORARY_H
#define KVSEAL_CORE_TEMPORARY_H

#include <stdbool.h>

#define KVS_ASIDE_PREFIX ".kvseal-"       /* a corrupt block on its way out (core/corrupt.c) */
#define KVS_PROBE_PREFIX ".kvseal-probe-" /* a file that a record is tried on (core/record.c) */

#define KVS_TEMPORARY_SIZE (sizeof(KVS_PROBE_PREFIX) + 16)

/* Makes a name. 0 or -errno of getrandom(). */
int kvs_temporary_make(char name_ret[KVS_TEMPORARY_SIZE], const char *prefix);

/* Whether it is such a name: the digits in lower case, and nothing behind them. */
bool kvs_temporary_is(const char *name, const char *prefix);

#endif
