// SPDX-License-Identifier: Apache-2.0
// What of a file is in the page cache, and leaving it as it was.
#ifndef KVSEAL_CORE_PAGE_CACHE_H
#define KVSEAL_CORE_PAGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the file system that `fd` is on is one whose files change by this machine's own calls
 * alone: pages stay as they are, and leases tell of all writers. False for any other and when it is
 * not known. */
bool kvs_page_cache_is_local(int fd);

/* Of a range of a file. */
enum kvs_cached {
    KVS_CACHED_UNKNOWN, /* kernels before 6.5 do not say */
    KVS_CACHED_NONE,
    KVS_CACHED_SOME,
    KVS_CACHED_ALL,
};

/* `fd`: open for reading or writing. len > 0. Reads and moves nothing. */
enum kvs_cached kvs_page_cache_look(int fd, uint64_t offset, uint64_t len);

/* Which pages of a file were in the cache, before it was read. */
struct kvs_page_cache_view;

/* Looks at the first `size` bytes. NULL: that is none, it cannot be known (no mapping), or there is
 * no memory; then nothing is dropped. (To others than its owner and who may write it the kernel
 * says that all pages are there.) */
struct kvs_page_cache_view *kvs_page_cache_view(int fd, uint64_t size);

/* Drops from the cache the pages that were not there before. Dirty ones stay. Frees the view, which
 * may be NULL. */
void kvs_page_cache_restore(int fd, struct kvs_page_cache_view *view);

#endif
