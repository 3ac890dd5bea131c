// SPDX-License-Identifier: Apache-2.0
// Asks cachestat(2) how much is there, and mincore(2) which pages.
#include "core/page_cache.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
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
    size_t page, count;
    unsigned char pages[]; /* as of mincore(2): the lowest bit counts */
};

struct kvs_page_cache_view *kvs_page_cache_view(int fd, uint64_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t count = (size_t)(KVS_ALIGN_UP(size, page) / page);
    struct kvs_page_cache_view *view = malloc(sizeof(*view) + count);
    void *mapping = MAP_FAILED;
    int r = -1;

    if (view == NULL)
        return NULL;
    *view = (struct kvs_page_cache_view){.page = page, .count = count};
    if (size > 0)
        mapping = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping != MAP_FAILED) {
        r = mincore(mapping, size, view->pages);
        munmap(mapping, size);
    }
    if (r == 0)
        return view;
    free(view);
    return NULL;
}

static bool was_there(const struct kvs_page_cache_view *view, size_t page)
{
    return (view->pages[page] & 1) != 0;
}

/* The end of the run of pages that begins at `first` and was there, or was not, like that one. */
static size_t end_of_run(const struct kvs_page_cache_view *view, size_t first)
{
    size_t end = first + 1;

    while (end < view->count && was_there(view, end) == was_there(view, first))
        end++;
    return end;
}

void kvs_page_cache_restore(int fd, struct kvs_page_cache_view *view)
{
    if (view == NULL)
        return;
    for (size_t first = 0, end = 0; first < view->count; first = end) {
        end = end_of_run(view, first);
        if (!was_there(view, first))
            posix_fadvise(fd, (off_t)(first * view->page), (off_t)((end - first) * view->page),
                          POSIX_FADV_DONTNEED);
    }
    free(view);
}
