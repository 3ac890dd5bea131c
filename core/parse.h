// SPDX-License-Identifier: Apache-2.0
// Sizes, counts and durations as people write them on a command line.
#ifndef KVSEAL_CORE_PARSE_H
#define KVSEAL_CORE_PARSE_H

#include <stdint.h>

/* Each takes the whole text or nothing: -EINVAL when it is malformed, -ERANGE when the value does
 * not fit; then *..._ret is not set. */

/* "4096", "1.5G", "256m": K, M, G and T are powers of 1024; a fraction needs one of them. */
int kvs_parse_size(const char *text, uint64_t *size_ret);

/* Digits alone. */
int kvs_parse_count(const char *text, uint64_t *count_ret);

/* "90" and "90s" are seconds; m, h, d and w are minutes, hours, days and weeks: "36h", "7d". */
int kvs_parse_duration(const char *text, uint64_t *seconds_ret);

#endif
