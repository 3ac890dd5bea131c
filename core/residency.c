// SPDX-License-Identifier: Apache-2.0
// Asks mincore(2) before, and drops by runs of pages after.
#include "core/residency.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/util.h"

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void kvs_residency_note(struct kvs_residency *residency, int fd, uint64_t size)
{
    size_t count = (size_t)(KVS_ALIGN_UP(size, page_size()) / page_size());
    void *mapping = MAP_FAILED;

    *residency = (struct kvs_residency){0};
    if (size == 0)
        return;
    mapping = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping == MAP_FAILED)
        return;
    residency->pages = malloc(count);
    residency->count = count;
    if (residency->pages != NULL && mincore(mapping, size, residency->pages) < 0) {
        free(residency->pages);
        residency->pages = NULL;
    }
    munmap(mapping, size);
}

/* The end of the run of pages that begins at `first` and is there, or is not, like that one. */
static size_t end_of_run(const struct kvs_residency *residency, size_t first)
{
    size_t end = first + 1;

    while (end < residency->count && (residency->pages[end] & 1) == (residency->pages[first] & 1))
        end++;
    return end;
}

void kvs_residency_restore(struct kvs_residency *residency, int fd)
{
    size_t page = page_size();

    for (size_t first = 0, end = 0; residency->pages != NULL && first < residency->count;
         first = end) {
        end = end_of_run(residency, first);
        if ((residency->pages[first] & 1) == 0)
            posix_fadvise(fd, (off_t)(first * page), (off_t)((end - first) * page),
                          POSIX_FADV_DONTNEED);
    }
    free(residency->pages);
    *residency = (struct kvs_residency){0};
}
