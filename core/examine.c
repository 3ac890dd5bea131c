// SPDX-License-Identifier: Apache-2.0
// A quick reading that settles most blocks, and a careful second look at those it does not.
#include "core/examine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/lease.h"
#include "core/page_cache.h"
#include "core/sigbus.h"
#include "core/util.h"

#define WINDOW ((size_t)64 << 20) /* of address space, for mapped blocks */

/* ---- the window ---- */

/* Takes the addresses, and whatever is mapped there away. NULL: there are none, and no window. */
static char *reserve(char *window, int flags)
{
    void *memory = mmap(window, WINDOW, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static void empty_window(struct kvs_examiner *examiner)
{
    if (examiner->window_used > 0)
        examiner->window = reserve(examiner->window, MAP_FIXED);
    examiner->window_used = 0;
}

/* How far into the window the next block goes: large folios are mapped as huge pages there. */
static size_t next_place(const struct kvs_examiner *examiner)
{
    uintptr_t end = (uintptr_t)examiner->window + examiner->window_used;

    return KVS_ALIGN_UP(end, KVS_HUGE_PAGE) - (uintptr_t)examiner->window;
}

static char *map_in_window(struct kvs_examiner *examiner, int fd, size_t size)
{
    size_t place = next_place(examiner);
    char *memory = mmap(examiner->window + place, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);

    examiner->window_used = place + size;
    if (memory == MAP_FAILED) {
        /* The addresses may be free now, or another thread's: they are given up. */
        examiner->window = NULL;
        examiner->window_used = 0;
    }
    return memory;
}

/* Maps a block behind the last one; what is too large for the window elsewhere. */
static char *map_block(struct kvs_examiner *examiner, int fd, size_t size)
{
    if (examiner->window != NULL && size <= WINDOW && next_place(examiner) > WINDOW - size)
        empty_window(examiner);
    if (examiner->window != NULL && size <= WINDOW && next_place(examiner) <= WINDOW - size)
        return map_in_window(examiner, fd, size);
    return mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
}

static void unmap_block(const struct kvs_examiner *examiner, char *memory, size_t size)
{
    if (examiner->window == NULL || memory < examiner->window ||
        memory >= examiner->window + WINDOW)
        munmap(memory, size);
}

/* ---- the examiner ---- */

int kvs_examiner_init(struct kvs_examiner *examiner)
{
    /* Huge pages: a device is given few long pieces instead of many short ones. */
    examiner->memory = aligned_alloc(KVS_HUGE_PAGE, KVS_EXAMINER_MEMORY);
    if (examiner->memory == NULL)
        return -ENOMEM;
    madvise(examiner->memory, KVS_EXAMINER_MEMORY, MADV_HUGEPAGE);
    examiner->window = reserve(NULL, 0);
    examiner->window_used = 0;
    kvs_sigbus_handle();
    return 0;
}

void kvs_examiner_destroy(struct kvs_examiner *examiner)
{
    free(examiner->memory);
    examiner->memory = NULL;
    if (examiner->window != NULL)
        munmap(examiner->window, WINDOW);
    examiner->window = NULL;
}

/* ---- opening ---- */

static int open_block(int dir_fd, const char *name, int flags)
{
    kvs_cleanup_fd int fd = -1;
    struct stat st;

    /* O_NONBLOCK: neither a FIFO nor somebody's lease holds us up. */
    flags |= O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    fd = openat(dir_fd, name, flags | O_NOATIME);
    if (fd < 0 && errno == EPERM)
        fd = openat(dir_fd, name, flags);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? kvs_steal_fd(&fd) : -EINVAL;
}

int kvs_examine_open(int dir_fd, const char *name)
{
    return open_block(dir_fd, name, O_NOFOLLOW);
}

int kvs_examine_open_again(int path_fd)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
    return open_block(AT_FDCWD, path, 0);
}

/* ---- the quick reading ---- */

struct mapped_block {
    const char *at;
    size_t len;
    uint32_t crc;
};

static void sum_block(void *argument)
{
    struct mapped_block *block = argument;

    block->crc = kvs_crc32c(0, block->at, block->len);
}

/* Sums the pages where they are in the cache. -EAGAIN: one was not there after all. */
static int sum_mapped(struct kvs_examiner *examiner, int fd, size_t size, uint32_t *crc_ret)
{
    char *memory = map_block(examiner, fd, size);
    struct mapped_block block = {.at = memory, .len = size};
    int r = 0;

    if (memory == MAP_FAILED)
        return -EAGAIN;
    if (!kvs_sigbus_guard(memory, size, sum_block, &block))
        r = -EAGAIN;
    unmap_block(examiner, memory, size);
    *crc_ret = block.crc;
    return r;
}

/* Sums what the descriptor reads. -EAGAIN: the file ended early. */
static int sum_read(const struct kvs_examiner *examiner, int fd, uint64_t size, uint32_t *crc_ret)
{
    *crc_ret = 0;
    for (uint64_t offset = 0; offset < size;) {
        size_t len = KVS_MIN(size - offset, KVS_EXAMINER_MEMORY);
        size_t got = 0;
        int r = kvs_read_range(fd, examiner->memory, offset, len, &got);

        if (r == 0 && got < len)
            r = -EAGAIN;
        if (r < 0)
            return r;
        *crc_ret = kvs_crc32c(*crc_ret, examiner->memory, len);
        offset += len;
    }
    return 0;
}

/* The file once more, for direct reads; -1 where there are none. */
static int open_direct(int fd)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
    int flags = fcntl(fd, F_GETFL) & O_NOATIME;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | flags);
}

static bool is_cached(int fd, uint64_t size)
{
    return size <= SIZE_MAX / 2 && kvs_page_cache_look(fd, 0, size) == KVS_CACHED_ALL;
}

/* One reading, from the cache where all of it is there. */
static int sum_quickly(struct kvs_examiner *examiner, int fd, uint64_t size, uint32_t *crc_ret)
{
    kvs_cleanup_fd int direct_fd = -1;

    *crc_ret = 0;
    if (size == 0)
        return 0;
    if (is_cached(fd, size)) {
        int r = sum_mapped(examiner, fd, (size_t)size, crc_ret);
        if (r != -EAGAIN)
            return r;
    }
    empty_window(examiner);
    direct_fd = open_direct(fd);
    return sum_read(examiner, direct_fd >= 0 ? direct_fd : fd, size, crc_ret);
}

enum quick_look {
    SETTLED,
    NOT_SETTLED, /* the careful look decides, */
    MISMATCH,    /* also of a block that held still and has another sum */
};

/* Finds most blocks intact. */
static enum quick_look look_quickly(struct kvs_examiner *examiner, int fd,
                                    struct kvs_examination *examination)
{
    struct kvs_verification *verification = &examination->verification;
    struct kvs_snapshot before, after;
    int r = kvs_snapshot_take(fd, &before);

    if (r < 0)
        return NOT_SETTLED;
    *verification = (struct kvs_verification){
        .verdict = before.record.kind == KVS_RECORD_NONE ? KVS_UNSEALED : KVS_INTACT,
        .size = (uint64_t)before.stat.st_size,
        .record = before.record,
        .stat = before.stat,
    };
    if (before.stat.st_nlink == 0 || before.record.kind == KVS_RECORD_MALFORMED)
        return NOT_SETTLED;
    if (before.record.kind == KVS_RECORD_NONE) {
        examination->finding = KVS_FOUND_UNSEALED;
        return SETTLED;
    }
    r = sum_quickly(examiner, fd, verification->size, &verification->computed);
    examination->finding = KVS_FOUND_INTACT;
    if (r < 0 || kvs_snapshot_take(fd, &after) < 0 || !kvs_snapshot_equal(&before, &after))
        return NOT_SETTLED;
    return verification->computed == before.record.crc ? SETTLED : MISMATCH;
}

/* ---- the careful look ---- */

/* Since the last change, by this machine's clock; not below 0: clocks differ. */
static int64_t age_ms(const struct stat *st)
{
    const struct timespec *m = &st->st_mtim, *c = &st->st_ctim;
    const struct timespec *last = m->tv_sec > c->tv_sec ? m : c;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return KVS_MAX(
        (now.tv_sec - last->tv_sec) * INT64_C(1000) + (now.tv_nsec - last->tv_nsec) / 1000000, 0);
}

static enum kvs_finding finding_of(const struct kvs_verification *verification)
{
    if (verification->is_unstable)
        return KVS_FOUND_UNSTABLE;
    if (verification->is_transient)
        return KVS_FOUND_TRANSIENT;
    switch (verification->verdict) {
    case KVS_UNSEALED:
        return KVS_FOUND_UNSEALED;
    case KVS_CORRUPT:
        return KVS_FOUND_CORRUPT;
    default:
        return KVS_FOUND_INTACT;
    }
}

int kvs_examine_judge(int fd, const struct kvs_snapshot *before, struct kvs_reading *reading,
                      struct kvs_examination *examination_ret)
{
    struct kvs_verification *verification = &examination_ret->verification;
    struct kvs_snapshot after;
    int r = kvs_verify(fd, reading, verification);

    if (r < 0 && !verification->is_unstable)
        return r;
    examination_ret->finding = finding_of(verification);
    if (examination_ret->finding != KVS_FOUND_CORRUPT &&
        examination_ret->finding != KVS_FOUND_UNSTABLE)
        return 0;
    r = kvs_snapshot_take(fd, &after);
    if (r == 0 && after.stat.st_nlink == 0)
        examination_ret->finding = KVS_FOUND_GONE;
    else if (r == 0 && (!kvs_snapshot_equal(before, &after) || kvs_lease_is_open_for_writing(fd)))
        examination_ret->finding = KVS_FOUND_BUSY;
    return r;
}

static int judge(const struct kvs_examiner *examiner, int fd, const struct kvs_snapshot *before,
                 struct kvs_examination *examination)
{
    struct kvs_reading reading = {.memory = examiner->memory, .capacity = KVS_EXAMINER_MEMORY};
    bool is_hot = is_cached(fd, (uint64_t)before->stat.st_size);
    kvs_cleanup_fd int direct_fd = is_hot ? -1 : open_direct(fd);

    return kvs_examine_judge(direct_fd >= 0 ? direct_fd : fd, before, &reading, examination);
}

static int look_carefully(const struct kvs_examiner *examiner, int fd,
                          struct kvs_examination *examination)
{
    struct kvs_snapshot before;
    int r = kvs_snapshot_take(fd, &before);

    if (r == 0 && before.stat.st_nlink == 0) {
        examination->finding = KVS_FOUND_GONE;
        return 0;
    }
    if (r == 0)
        r = judge(examiner, fd, &before, examination);
    int64_t age = r == 0 ? age_ms(&before.stat) : 0;
    if (r < 0 || age >= KVS_SETTLE_MS ||
        (examination->finding != KVS_FOUND_CORRUPT && examination->finding != KVS_FOUND_UNSTABLE))
        return r;
    kvs_clock_sleep((uint64_t)(KVS_SETTLE_MS - age) * 1000000);
    return judge(examiner, fd, &before, examination);
}

/* Whether both are of the same state of the block. */
static bool is_same_state(const struct kvs_verification *a, const struct kvs_verification *b)
{
    const struct kvs_snapshot one = {.stat = a->stat, .record = a->record};
    const struct kvs_snapshot other = {.stat = b->stat, .record = b->record};

    return kvs_snapshot_equal(&one, &other);
}

/* What the quick look did not settle. A mismatch that it saw was a bad reading, if the same state
 * of the block is found intact now. */
static void settle(struct kvs_examiner *examiner, int fd, bool was_mismatch,
                   struct kvs_examination *examination)
{
    const struct kvs_verification first = examination->verification;
    int r = 0;

    empty_window(examiner); /* or the second reading could not drop the pages of the first */
    r = look_carefully(examiner, fd, examination);
    if (r == -ESTALE) {
        examination->finding = KVS_FOUND_GONE;
    } else if (r < 0) {
        examination->finding = KVS_FOUND_ERROR;
        examination->error = r;
    } else if (was_mismatch && examination->finding == KVS_FOUND_INTACT &&
               is_same_state(&first, &examination->verification)) {
        examination->finding = KVS_FOUND_TRANSIENT;
        examination->verification.is_transient = true;
    }
}

void kvs_examine(struct kvs_examiner *examiner, int fd, struct kvs_examination *examination_ret)
{
    struct kvs_page_cache_view *view = NULL;
    enum quick_look quick = SETTLED;
    struct stat st;

    *examination_ret = (struct kvs_examination){0};
    if (fstat(fd, &st) == 0 && st.st_size > 0 &&
        kvs_page_cache_look(fd, 0, (uint64_t)st.st_size) != KVS_CACHED_ALL)
        view = kvs_page_cache_view(fd, (uint64_t)st.st_size);
    quick = look_quickly(examiner, fd, examination_ret);
    if (quick != SETTLED)
        settle(examiner, fd, quick == MISMATCH, examination_ret);
    kvs_page_cache_restore(fd, view);
}
