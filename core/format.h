// SPDX-License-Identifier: Apache-2.0
// Sizes and durations as people read them.
#ifndef KVSEAL_CORE_FORMAT_H
#define KVSEAL_CORE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* The two largest units: "6 d 3 h", "2 h 0 min", "59 s". Returns `text`; 32 bytes suffice. */
char *kvs_format_duration(uint64_t seconds, char *text, size_t size);

/* Three digits and a unit, powers of 1024: "512 B", "1.50 GiB". Returns `text`. */
#define KVS_FORMAT_SIZE 16 /* bytes that suffice */
char *kvs_format_size(uint64_t bytes, char *text, size_t size);

#endif
