// SPDX-License-Identifier: Apache-2.0
// Asks cachestat(2).
#include "core/page_cache.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/util.h"

#ifdef SYS_cachestat
#define SYS_CACHESTAT SYS_cachestat
#else
#define SYS_CACHESTAT 451 /* Linux 6.5; the same everywhere */
#endif

bool kvs_page_cache_is_local(int fd)
{
    struct statfs st;

    if (fstatfs(fd, &st) < 0)
        return false;
    switch ((unsigned long)st.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
        return true;
    default:
        return false;
    }
}

enum kvs_cached kvs_page_cache_look(int fd, uint64_t offset, uint64_t len)
{
    struct {
        uint64_t offset, len;
    } range = {offset, len};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } pages;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (syscall(SYS_CACHESTAT, fd, &range, &pages, 0) != 0)
        return KVS_CACHED_UNKNOWN;
    if (pages.cached == 0)
        return KVS_CACHED_NONE;
    return pages.cached >= (len + page - 1) / page ? KVS_CACHED_ALL : KVS_CACHED_SOME;
}

struct kvs_page_cache_view {
    uint64_t size;
    size_t part, count;
    bool was_empty[];
};

struct kvs_page_cache_view *kvs_page_cache_view(int fd, uint64_t size, size_t part)
{
    size_t count = (size_t)((size + part - 1) / part);
    struct kvs_page_cache_view *view = malloc(sizeof(*view) + count);

    if (view == NULL)
        return NULL;
    *view = (struct kvs_page_cache_view){.size = size, .part = part, .count = count};
    for (size_t i = 0; i < count; i++) {
        enum kvs_cached cached = kvs_page_cache_look(fd, (uint64_t)i * part, part);
        if (cached == KVS_CACHED_UNKNOWN) {
            free(view);
            return NULL;
        }
        view->was_empty[i] = cached == KVS_CACHED_NONE;
    }
    return view;
}

void kvs_page_cache_restore(int fd, struct kvs_page_cache_view *view)
{
    if (view == NULL)
        return;
    for (size_t i = 0; i < view->count; i++) {
        if (view->was_empty[i])
            posix_fadvise(fd, (off_t)(i * view->part), (off_t)view->part, POSIX_FADV_DONTNEED);
    }
    free(view);
}
