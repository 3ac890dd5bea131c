// SPDX-License-Identifier: Apache-2.0
// How much memory there is for us: the limits of our control groups and the machine's total; and
// defaults that fit it.
#ifndef KVSEAL_FUSE_MEMORY_H
#define KVSEAL_FUSE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "fuse/options.h"

/* The least limit, in bytes, that /proc and /sys/fs/cgroup below `root` ("" for the real ones) tell
 * of: memory.max and memory.high of our group and those above it (cgroup v2),
 * memory.limit_in_bytes (v1), MemTotal. What cannot be read or understood is no limit; none at all:
 * UINT64_MAX. */
uint64_t kvs_memory_limit(const char *root);

/* Fills in what was not given: buffer_memory, 1 GiB or a quarter of the limit; pinned_memory, 256
 * MiB or an eighth; neither below what the option takes. One line in the log when that is less than
 * usual, and a warning when what was given cannot fit. */
void kvs_memory_choose(struct kvs_options *options, uint64_t limit);

/* ---- for tests: the parsers; they take any text ---- */

/* The path of our group in the text of /proc/self/cgroup: that of the hierarchy with this
 * controller, of cgroup v2's with "". 0 with a path that begins with '/' and has no ".."; -ENOENT:
 * there is none; -ENAMETOOLONG. */
int kvs_memory_parse_group(const char *text, const char *controller, char *path_ret, size_t size);

/* "max\n", or a number of bytes; anything else is UINT64_MAX too. */
uint64_t kvs_memory_parse_limit(const char *text);

/* Bytes of MemTotal in the text of /proc/meminfo, or UINT64_MAX. */
uint64_t kvs_memory_parse_total(const char *text);

#endif
