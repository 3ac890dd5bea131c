// SPDX-License-Identifier: Apache-2.0
// Memory within one budget: free buffers cached for reuse, kept ones dropped oldest first.
#include "fuse/buffers.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/stats.h"
#include "core/util.h"
#include "core/verify.h"
#include "fuse/memfd.h"

#define MOST_FILES    1024 /* buffers with a descriptor of their own; at most an eighth of all */
#define SMALL_PAGE    ((size_t)4096)
#define CACHE_TIME_MS 10000 /* unused for so long: back to the system, but for KEPT_BYTES: */
#define KEPT_BYTES    ((uint64_t)16 << 20) /* new pages can cost more than a load */
#define MOST_LOOKS    16                   /* at what is out, by who takes a buffer */
#define OUT_TICK_MS   1000                 /* ... and at all of it, by the helper */

/* Oldest first. */
struct list {
    struct kvs_buffer *first, *last;
};

/*
 * Each buffer is in one of four places: pinned (in no list), `kept` (a slot points to it), `out`
 * (it was lent, and a client may have it mapped still), or `cached` (free). All of it counts in
 * `block_bytes` until it is unmapped, which happens outside the lock: whoever needs room collects
 * its victims in a list of its own first.
 */
struct kvs_buffers {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the helper has something to do, or `is_ending` */
    bool is_resting;        /* it waits for that, and not for some time to pass */
    pthread_t helper;
    bool is_ending;
    uint64_t budget;
    uint64_t block_bytes;
    uint64_t reserved_bytes;
    uint64_t lent_bytes; /* until nobody else has them */
    bool is_lendable;    /* new buffers are files too */
    unsigned files;      /* that are */
    struct list kept;
    struct list out;
    struct list cached;
    uint64_t cached_bytes;
};

static void list_append(struct list *list, struct kvs_buffer *buffer)
{
    buffer->next = NULL;
    buffer->previous = list->last;
    if (list->last)
        list->last->next = buffer;
    else
        list->first = buffer;
    list->last = buffer;
}

static void list_remove(struct list *list, struct kvs_buffer *buffer)
{
    if (buffer->previous)
        buffer->previous->next = buffer->next;
    else
        list->first = buffer->next;
    if (buffer->next)
        buffer->next->previous = buffer->previous;
    else
        list->last = buffer->previous;
    buffer->previous = buffer->next = NULL;
}

/* Half a huge page is worth one: the device reads into fewer, larger segments. A file can be cut
 * out of huge pages, and gives the rest back. */
static size_t capacity_for(const struct kvs_buffers *buffers, size_t size)
{
    size_t large = buffers->is_lendable ? KVS_HUGE_PAGE / 2 : KVS_HUGE_PAGE;
    size_t unit = size >= KVS_HUGE_PAGE / 2 ? large : SMALL_PAGE;
    return KVS_ALIGN_UP(KVS_MAX(size, (size_t)1), unit);
}

/* Maps more than is wanted and cuts off both ends: mmap aligns to small pages only. */
void *kvs_buffers_map(size_t size)
{
    size_t mapped = size + KVS_HUGE_PAGE;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    char *memory = start + (KVS_ALIGN_UP((uintptr_t)start, KVS_HUGE_PAGE) - (uintptr_t)start);
    char *end = start + mapped;
    if (memory > start)
        munmap(start, (size_t)(memory - start));
    if (end > memory + size)
        munmap(memory + size, (size_t)(end - (memory + size)));
    if (size >= KVS_HUGE_PAGE)
        madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

static struct kvs_buffer *map_buffer(size_t capacity, bool is_file)
{
    struct kvs_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer)
        return NULL;
    size_t mapped = kvs_memfd_room(capacity);
    buffer->fd = -1;
    buffer->memory = kvs_buffers_map(mapped);
    if (buffer->memory && is_file) {
        buffer->fd = kvs_memfd_create(buffer->memory, capacity);
        if (buffer->fd < 0) {
            munmap(buffer->memory, mapped);
            buffer->memory = kvs_buffers_map(mapped);
        }
    }
    if (!buffer->memory) {
        free(buffer);
        return NULL;
    }
    buffer->capacity = capacity;
    buffer->pins = 1;
    return buffer;
}

/* At the end of all also what clients have mapped: that lives on with them. */
static void unmap(struct kvs_buffer *buffer)
{
    munmap(buffer->memory, kvs_memfd_room(buffer->capacity));
    if (buffer->fd >= 0)
        close(buffer->fd);
    free(buffer);
}

static void unmap_all(struct list *victims)
{
    while (victims->first) {
        struct kvs_buffer *buffer = victims->first;
        list_remove(victims, buffer);
        unmap(buffer);
    }
}

/* It goes out of the budget, to be unmapped. */
static void count_out(struct kvs_buffers *buffers, const struct kvs_buffer *buffer)
{
    buffers->block_bytes -= buffer->capacity;
    buffers->files -= buffer->fd >= 0;
}

static void wake_helper(struct kvs_buffers *buffers)
{
    if (buffers->is_resting)
        pthread_cond_signal(&buffers->changed);
}

static void cache_buffer(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    buffer->freed_at_ms = kvs_clock_ms();
    list_append(&buffers->cached, buffer);
    buffers->cached_bytes += buffer->capacity;
    if (buffers->cached_bytes > KEPT_BYTES)
        wake_helper(buffers);
}

static void uncache_buffer(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    list_remove(&buffers->cached, buffer);
    buffers->cached_bytes -= buffer->capacity;
}

/* What was lent can hold another block when nobody else has it open or mapped. The kernel closes a
 * little later than it says, and mappings stay as long as clients like. */
static bool reclaim(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    if (!kvs_memfd_is_unshared(buffer->fd) || ftruncate(buffer->fd, (off_t)buffer->capacity) < 0)
        return false;
    buffer->was_lent = false;
    buffers->lent_bytes -= buffer->capacity;
    return true;
}

/* Looks at what is out, the longest first, and at `most` of it. */
static void collect(struct kvs_buffers *buffers, unsigned most)
{
    struct kvs_buffer *buffer = buffers->out.first, *last = buffers->out.last, *next = NULL;

    for (unsigned i = 0; buffer && i < most; i++, buffer = next) {
        next = buffer == last ? NULL : buffer->next;
        list_remove(&buffers->out, buffer);
        if (reclaim(buffers, buffer))
            cache_buffer(buffers, buffer);
        else
            list_append(&buffers->out, buffer);
    }
}

static void free_buffer(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    if (!buffer->was_lent) {
        cache_buffer(buffers, buffer);
        return;
    }
    list_append(&buffers->out, buffer);
    wake_helper(buffers);
}

static void *run_helper(void *argument)
{
    struct kvs_buffers *buffers = argument;

    pthread_mutex_lock(&buffers->lock);
    while (!buffers->is_ending) {
        collect(buffers, UINT_MAX);
        struct kvs_buffer *oldest = buffers->cached_bytes > KEPT_BYTES ? buffers->cached.first
                                                                       : NULL;
        if (!oldest && !buffers->out.first) {
            buffers->is_resting = true;
            pthread_cond_wait(&buffers->changed, &buffers->lock);
            buffers->is_resting = false;
            continue;
        }
        int64_t now_ms = kvs_clock_ms();
        int64_t due_ms = oldest ? oldest->freed_at_ms + CACHE_TIME_MS : now_ms + OUT_TICK_MS;
        if (buffers->out.first)
            due_ms = KVS_MIN(due_ms, now_ms + OUT_TICK_MS);
        if (!oldest || now_ms < oldest->freed_at_ms + CACHE_TIME_MS) {
            struct timespec due = {.tv_sec = (time_t)(due_ms / 1000),
                                   .tv_nsec = (long)(due_ms % 1000) * 1000000};
            pthread_cond_timedwait(&buffers->changed, &buffers->lock, &due);
            continue;
        }
        struct list victims = {0};
        uncache_buffer(buffers, oldest);
        list_append(&victims, oldest);
        count_out(buffers, oldest);
        pthread_mutex_unlock(&buffers->lock);
        unmap_all(&victims);
        pthread_mutex_lock(&buffers->lock);
    }
    pthread_mutex_unlock(&buffers->lock);
    return NULL;
}

/* Signals are the main thread's. */
static int start_helper(struct kvs_buffers *buffers)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&buffers->helper, NULL, run_helper, buffers);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error ? -ENOMEM : 0;
}

int kvs_buffers_create(uint64_t budget, struct kvs_buffers **buffers_ret)
{
    struct kvs_buffers *buffers = calloc(1, sizeof(*buffers));
    if (!buffers)
        return -ENOMEM;
    buffers->budget = budget;
    pthread_mutex_init(&buffers->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&buffers->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    int error = start_helper(buffers);
    if (error) {
        pthread_cond_destroy(&buffers->changed);
        pthread_mutex_destroy(&buffers->lock);
        free(buffers);
        return error;
    }
    *buffers_ret = buffers;
    return 0;
}

void kvs_buffers_destroy(struct kvs_buffers *buffers)
{
    if (!buffers)
        return;
    pthread_mutex_lock(&buffers->lock);
    buffers->is_ending = true;
    pthread_cond_signal(&buffers->changed);
    pthread_mutex_unlock(&buffers->lock);
    pthread_join(buffers->helper, NULL);
    unmap_all(&buffers->cached);
    unmap_all(&buffers->out);
    unmap_all(&buffers->kept);
    pthread_cond_destroy(&buffers->changed);
    pthread_mutex_destroy(&buffers->lock);
    free(buffers);
}

static bool has_room(const struct kvs_buffers *buffers, size_t size, uint64_t block_limit)
{
    return buffers->block_bytes + size <= block_limit &&
           buffers->block_bytes + buffers->reserved_bytes + size <= buffers->budget;
}

/* What fits without wasting half of it, and shows the block to nobody else. */
static bool suits(const struct kvs_buffer *buffer, size_t capacity, uid_t user)
{
    return buffer->capacity >= capacity && buffer->capacity <= 2 * capacity &&
           (buffer->borrowers == KVS_BORROWED_BY_NOBODY ||
            (buffer->borrowers == KVS_BORROWED_BY_ONE && buffer->borrower == user));
}

/* The smallest that suits, of these the one used last. */
static struct kvs_buffer *find_cached(struct kvs_buffers *buffers, size_t capacity, uid_t user)
{
    struct kvs_buffer *best = NULL;
    for (struct kvs_buffer *b = buffers->cached.last; b; b = b->previous)
        if (suits(b, capacity, user) && (!best || b->capacity < best->capacity)) {
            best = b;
            if (b->capacity == capacity)
                break;
        }
    return best;
}

static void clear_slot(struct kvs_buffer *buffer)
{
    if (buffer->slot)
        *buffer->slot = NULL;
    buffer->slot = NULL;
}

/* Takes the buffer that is missed least out of its list; NULL when all are pinned. */
static struct kvs_buffer *pop_victim(struct kvs_buffers *buffers)
{
    struct kvs_buffer *victim = buffers->cached.first;
    if (victim) {
        uncache_buffer(buffers, victim);
        return victim;
    }
    victim = buffers->kept.first;
    if (victim) {
        list_remove(&buffers->kept, victim);
        clear_slot(victim);
        kvs_stats_add(KVS_STAT_buffers_dropped, 1);
    }
    return victim;
}

/* Drops unpinned buffers until `size` fits, or none is left. Of the dropped ones, one that suits
 * *user, unless that is NULL, is returned instead: its pages are there already, new ones must be
 * cleared. */
static struct kvs_buffer *make_room(struct kvs_buffers *buffers, size_t size, uint64_t block_limit,
                                    const uid_t *user, struct list *victims)
{
    while (!has_room(buffers, size, block_limit)) {
        struct kvs_buffer *victim = pop_victim(buffers);
        if (!victim)
            break;
        if (victim->was_lent && !reclaim(buffers, victim)) {
            free_buffer(buffers, victim);
            continue;
        }
        if (user && suits(victim, size, *user))
            return victim;
        count_out(buffers, victim);
        list_append(victims, victim);
    }
    return NULL;
}

/* Descriptors are for what clients open. */
static bool may_have_file(const struct kvs_buffers *buffers)
{
    struct rlimit limit;

    return buffers->files < MOST_FILES && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           buffers->files < limit.rlim_cur / 8;
}

struct kvs_buffer *kvs_buffer_take(struct kvs_buffers *buffers, size_t size, uid_t user)
{
    if (size > buffers->budget)
        return NULL;
    uint64_t limit = buffers->budget / 4 * 3;
    struct list victims = {0};

    pthread_mutex_lock(&buffers->lock);
    size_t capacity = capacity_for(buffers, size);
    if (capacity > limit) { /* no reason to drop anything */
        pthread_mutex_unlock(&buffers->lock);
        return NULL;
    }
    collect(buffers, MOST_LOOKS);
    struct kvs_buffer *buffer = find_cached(buffers, capacity, user);
    if (buffer)
        uncache_buffer(buffers, buffer);
    else
        buffer = make_room(buffers, capacity, limit, &user, &victims);
    bool is_counted = !buffer && has_room(buffers, capacity, limit);
    bool is_file = is_counted && buffers->is_lendable && may_have_file(buffers);
    if (is_counted)
        buffers->block_bytes += capacity;
    if (is_file)
        buffers->files++;
    if (buffer)
        buffer->pins = 1;
    pthread_mutex_unlock(&buffers->lock);

    unmap_all(&victims);
    if (!is_counted)
        return buffer;
    buffer = map_buffer(capacity, is_file);
    pthread_mutex_lock(&buffers->lock);
    if (is_file && (!buffer || buffer->fd < 0))
        buffers->files--;
    if (!buffer)
        buffers->block_bytes -= capacity;
    pthread_mutex_unlock(&buffers->lock);
    return buffer;
}

static void drop_pin(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    if (--buffer->pins > 0)
        return;
    if (buffer->slot)
        list_append(&buffers->kept, buffer);
    else
        free_buffer(buffers, buffer);
}

void kvs_buffer_keep(struct kvs_buffers *buffers, struct kvs_buffer *buffer,
                     struct kvs_buffer **slot)
{
    pthread_mutex_lock(&buffers->lock);
    buffer->slot = slot;
    *slot = buffer;
    drop_pin(buffers, buffer);
    pthread_mutex_unlock(&buffers->lock);
}

void kvs_buffer_share(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    pthread_mutex_lock(&buffers->lock);
    buffer->pins++;
    pthread_mutex_unlock(&buffers->lock);
}

struct kvs_buffer *kvs_buffer_pin(struct kvs_buffers *buffers, struct kvs_buffer **slot)
{
    pthread_mutex_lock(&buffers->lock);
    struct kvs_buffer *buffer = *slot;
    if (buffer && buffer->pins++ == 0)
        list_remove(&buffers->kept, buffer);
    pthread_mutex_unlock(&buffers->lock);
    return buffer;
}

void kvs_buffer_unpin(struct kvs_buffers *buffers, struct kvs_buffer *buffer)
{
    pthread_mutex_lock(&buffers->lock);
    drop_pin(buffers, buffer);
    pthread_mutex_unlock(&buffers->lock);
}

void kvs_buffers_make_lendable(struct kvs_buffers *buffers)
{
    pthread_mutex_lock(&buffers->lock);
    buffers->is_lendable = true;
    pthread_mutex_unlock(&buffers->lock);
}

static void note_borrower(struct kvs_buffer *buffer, uid_t user)
{
    if (buffer->borrowers == KVS_BORROWED_BY_NOBODY) {
        buffer->borrowers = KVS_BORROWED_BY_ONE;
        buffer->borrower = user;
    } else if (buffer->borrower != user) {
        buffer->borrowers = KVS_BORROWED_BY_MANY;
    }
}

struct kvs_buffer *kvs_buffer_lend(struct kvs_buffers *buffers, struct kvs_buffer **slot,
                                   size_t size, uid_t user)
{
    pthread_mutex_lock(&buffers->lock);
    struct kvs_buffer *buffer = *slot;
    if (buffer && (buffer->fd < 0 || buffer->was_lent ||
                   buffers->lent_bytes + buffer->capacity > buffers->budget / 8 * 3))
        buffer = NULL;
    if (buffer) {
        if (buffer->pins++ == 0)
            list_remove(&buffers->kept, buffer);
        buffers->lent_bytes += buffer->capacity;
        buffer->was_lent = true;
        note_borrower(buffer, user);
        buffer->lent_size = size;
        buffer->has_ended = false;
    }
    pthread_mutex_unlock(&buffers->lock);
    if (buffer && ftruncate(buffer->fd, (off_t)size) < 0) {
        kvs_buffer_unpin(buffers, buffer);
        return NULL;
    }
    return buffer;
}

void kvs_buffer_lend_also(struct kvs_buffers *buffers, struct kvs_buffer *buffer, uid_t user)
{
    pthread_mutex_lock(&buffers->lock);
    note_borrower(buffer, user);
    pthread_mutex_unlock(&buffers->lock);
}

void kvs_buffer_give_up(struct kvs_buffers *buffers, struct kvs_buffer **slot)
{
    pthread_mutex_lock(&buffers->lock);
    struct kvs_buffer *buffer = *slot;
    if (buffer) {
        clear_slot(buffer);
        if (buffer->pins == 0) {
            list_remove(&buffers->kept, buffer);
            free_buffer(buffers, buffer);
        }
    }
    pthread_mutex_unlock(&buffers->lock);
}

bool kvs_buffers_reserve(struct kvs_buffers *buffers, size_t size)
{
    struct list victims = {0};
    pthread_mutex_lock(&buffers->lock);
    bool has = size <= buffers->budget / 2 - KVS_MIN(buffers->reserved_bytes, buffers->budget / 2);
    if (has) {
        collect(buffers, MOST_LOOKS);
        make_room(buffers, size, UINT64_MAX, NULL, &victims);
        has = has_room(buffers, size, UINT64_MAX);
    }
    if (has)
        buffers->reserved_bytes += size;
    pthread_mutex_unlock(&buffers->lock);
    unmap_all(&victims);
    return has;
}

void kvs_buffers_unreserve(struct kvs_buffers *buffers, size_t size)
{
    pthread_mutex_lock(&buffers->lock);
    buffers->reserved_bytes -= size;
    pthread_mutex_unlock(&buffers->lock);
}

uint64_t kvs_buffers_used(struct kvs_buffers *buffers)
{
    pthread_mutex_lock(&buffers->lock);
    uint64_t used = buffers->block_bytes + buffers->reserved_bytes;
    pthread_mutex_unlock(&buffers->lock);
    return used;
}
