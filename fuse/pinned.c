// SPDX-License-Identifier: Apache-2.0
// The set of pins: found by inode, bounded, given up when unused.
#include "fuse/pinned.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/page_cache.h"
#include "core/sigbus.h"
#include "core/util.h"
#include "core/verify.h"

#define BUCKETS      4096
#define MOST_PINS    16384 /* the kernel limits a process to some 65,000 mappings */
#define WAIT_TIME_MS 10000 /* unused for so long: unlocked */

/* Two changes within one tick of the file system's clock have the same time, so a block that
 * changed just now can change again without a trace. */
#define SETTLE_TIME_NS 20000000

struct kvs_pin {
    struct kvs_snapshot verified;
    char *memory;
    size_t size;
    unsigned users;
    struct kvs_pin *bucket_next;     /* while it is known */
    struct kvs_pin *previous, *next; /* while it waits */
    int64_t waits_since_ms;
    bool is_known;
};

/*
 * A pin is used by handles, or waits (known, in `first` ... `last`, oldest first). One that is not
 * known any more goes with its last user. `used` and `count` hold all that are mapped, also those
 * that are being unmapped, which happens outside the lock.
 */
struct kvs_pins {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a pin waits, or `is_ending` */
    pthread_t helper;
    bool is_ending;
    uint64_t budget, used;
    uint64_t most; /* the largest block */
    size_t count;
    struct kvs_pin *buckets[BUCKETS];
    struct kvs_pin *first, *last;
};

/* What it takes of the budget: whole pages. */
static size_t room_of(const struct kvs_pin *pin)
{
    return KVS_ALIGN_UP(pin->size, (size_t)KVS_IO_ALIGN);
}

/* ---- one pin ---- */

struct copy {
    void *to;
    const char *from;
    size_t len;
};

static void copy_out(void *argument)
{
    const struct copy *copy = argument;

    memcpy(copy->to, copy->from, copy->len);
}

int kvs_pin_read(const struct kvs_pin *pin, void *to, size_t offset, size_t len)
{
    struct copy copy = {to, pin->memory + offset, len};

    return kvs_sigbus_guard(pin->memory, room_of(pin), copy_out, &copy) ? 0 : -EIO;
}

size_t kvs_pin_size(const struct kvs_pin *pin)
{
    return pin->size;
}

bool kvs_pins_suit(int fd)
{
    return kvs_page_cache_is_local(fd);
}

struct sum {
    const struct kvs_pin *pin;
    uint32_t crc;
};

/* What is not in the page cache is read at the first touch of each huge page: the kernel reads
 * ahead that much, into pages of that size, where a mapping asks for huge ones. */
static void sum(void *argument)
{
    struct sum *sum = argument;
    const struct kvs_pin *pin = sum->pin;

    for (size_t at = 0; at < pin->size; at += KVS_HUGE_PAGE)
        (void)*(volatile const char *)(pin->memory + at);
    sum->crc = kvs_crc32c(0, pin->memory, pin->size);
}

/* Maps, locks and sums: each page is locked when it is first touched, and all are. (Locked by the
 * mapping call, they would be looked up one by one.) Blocks that are not in memory yet come by this
 * way too: huge pages make fewer and larger segments for the device than read(2) does, and are
 * locked, mapped and later read by the client in a fraction of the time. False: no clean match. */
static bool verify(struct kvs_pin *pin, int fd)
{
    struct kvs_snapshot after;
    struct sum whole = {.pin = pin};

    pin->memory = mmap(NULL, pin->size, PROT_READ, MAP_SHARED, fd, 0);
    if (pin->memory == MAP_FAILED) {
        pin->memory = NULL;
        return false;
    }
    madvise(pin->memory, pin->size, MADV_HUGEPAGE);
    return mlock2(pin->memory, pin->size, MLOCK_ONFAULT) == 0 &&
           kvs_sigbus_guard(pin->memory, room_of(pin), sum, &whole) &&
           whole.crc == pin->verified.record.crc && kvs_snapshot_take(fd, &after) == 0 &&
           kvs_snapshot_equal(&pin->verified, &after);
}

static bool is_settled(const struct kvs_snapshot *snapshot)
{
    const struct timespec *changed = &snapshot->stat.st_ctim;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (now.tv_sec - changed->tv_sec) * INT64_C(1000000000) + now.tv_nsec - changed->tv_nsec >
           SETTLE_TIME_NS;
}

/* ---- the set; its lock is held for these ---- */

static struct kvs_pin **find(struct kvs_pins *pins, dev_t dev, ino_t ino)
{
    struct kvs_pin **at = &pins->buckets[(ino ^ dev) % BUCKETS];

    while (*at != NULL &&
           ((*at)->verified.stat.st_dev != dev || (*at)->verified.stat.st_ino != ino))
        at = &(*at)->bucket_next;
    return at;
}

static void stop_waiting(struct kvs_pins *pins, struct kvs_pin *pin)
{
    *(pin->previous != NULL ? &pin->previous->next : &pins->first) = pin->next;
    *(pin->next != NULL ? &pin->next->previous : &pins->last) = pin->previous;
}

static void start_waiting(struct kvs_pins *pins, struct kvs_pin *pin)
{
    pin->waits_since_ms = kvs_clock_ms();
    pin->previous = pins->last;
    pin->next = NULL;
    if (pins->first == NULL) /* else the helper looks again when the first one's time is over */
        pthread_cond_signal(&pins->changed);
    *(pins->last != NULL ? &pins->last->next : &pins->first) = pin;
    pins->last = pin;
}

/* Nobody finds the inode's pin any more. Gives it when nobody uses it: to be destroyed. */
static struct kvs_pin *take_out(struct kvs_pins *pins, dev_t dev, ino_t ino)
{
    struct kvs_pin **at = find(pins, dev, ino), *pin = *at;

    if (pin == NULL)
        return NULL;
    *at = pin->bucket_next;
    pin->is_known = false;
    if (pin->users > 0)
        return NULL;
    stop_waiting(pins, pin);
    return pin;
}

static struct kvs_pin *take_out_oldest(struct kvs_pins *pins)
{
    const struct stat *oldest = &pins->first->verified.stat;

    return take_out(pins, oldest->st_dev, oldest->st_ino);
}

/* ---- its lock is not held for these ---- */

static void destroy_pin(struct kvs_pins *pins, struct kvs_pin *pin)
{
    if (pin == NULL)
        return;
    if (pin->memory != NULL)
        munmap(pin->memory, pin->size);
    pthread_mutex_lock(&pins->lock);
    pins->used -= room_of(pin);
    pins->count--;
    pthread_mutex_unlock(&pins->lock);
    free(pin);
}

/* Counts `room` in, after as many of those that wait went as it takes. */
static bool reserve(struct kvs_pins *pins, size_t room)
{
    pthread_mutex_lock(&pins->lock);
    while ((pins->used + room > pins->budget || pins->count >= MOST_PINS) && pins->first != NULL) {
        struct kvs_pin *victim = take_out_oldest(pins);
        pthread_mutex_unlock(&pins->lock);
        destroy_pin(pins, victim);
        pthread_mutex_lock(&pins->lock);
    }
    bool has_room = pins->used + room <= pins->budget && pins->count < MOST_PINS;
    if (has_room) {
        pins->used += room;
        pins->count++;
    }
    pthread_mutex_unlock(&pins->lock);
    return has_room;
}

/* The known pin of the block, if it is as it was verified. */
static struct kvs_pin *get_known(struct kvs_pins *pins, const struct kvs_snapshot *now)
{
    struct kvs_pin *old = NULL;

    pthread_mutex_lock(&pins->lock);
    struct kvs_pin *pin = *find(pins, now->stat.st_dev, now->stat.st_ino);
    if (pin != NULL && !kvs_snapshot_equal(&pin->verified, now)) {
        old = take_out(pins, now->stat.st_dev, now->stat.st_ino);
        pin = NULL;
    }
    if (pin != NULL && pin->users++ == 0)
        stop_waiting(pins, pin);
    pthread_mutex_unlock(&pins->lock);
    destroy_pin(pins, old);
    return pin;
}

static void make_known(struct kvs_pins *pins, struct kvs_pin *pin)
{
    const struct stat *st = &pin->verified.stat;

    pthread_mutex_lock(&pins->lock);
    struct kvs_pin *old = take_out(pins, st->st_dev, st->st_ino);
    struct kvs_pin **at = find(pins, st->st_dev, st->st_ino);
    *at = pin;
    pin->bucket_next = NULL; /* find() ended at the end of the chain */
    pin->is_known = true;
    pthread_mutex_unlock(&pins->lock);
    destroy_pin(pins, old);
}

/* NULL: no clean match, or no room. */
static struct kvs_pin *pin_anew(struct kvs_pins *pins, int fd, const struct kvs_snapshot *now)
{
    struct kvs_pin *pin = calloc(1, sizeof(*pin));

    if (pin == NULL)
        return NULL;
    pin->verified = *now;
    pin->size = (size_t)now->stat.st_size;
    pin->users = 1;
    if (!reserve(pins, room_of(pin))) {
        free(pin);
        return NULL;
    }
    bool is_settled_now = is_settled(now);
    if (!verify(pin, fd)) {
        destroy_pin(pins, pin);
        return NULL;
    }
    if (is_settled_now)
        make_known(pins, pin);
    return pin;
}

struct kvs_pin *kvs_pins_get(struct kvs_pins *pins, int fd, bool *is_known_ret)
{
    struct kvs_snapshot now;

    if (kvs_snapshot_take(fd, &now) < 0 || now.record.kind != KVS_RECORD_SUM ||
        now.stat.st_size == 0 || (uint64_t)now.stat.st_size > pins->most)
        return NULL;
    struct kvs_pin *pin = get_known(pins, &now);
    *is_known_ret = pin != NULL;
    if (pin == NULL && kvs_pins_suit(fd))
        pin = pin_anew(pins, fd, &now);
    return pin;
}

void kvs_pins_share(struct kvs_pins *pins, struct kvs_pin *pin)
{
    pthread_mutex_lock(&pins->lock);
    pin->users++;
    pthread_mutex_unlock(&pins->lock);
}

void kvs_pins_put(struct kvs_pins *pins, struct kvs_pin *pin)
{
    pthread_mutex_lock(&pins->lock);
    bool is_unused = --pin->users == 0;
    if (is_unused && pin->is_known)
        start_waiting(pins, pin);
    bool is_over = is_unused && !pin->is_known;
    pthread_mutex_unlock(&pins->lock);
    if (is_over)
        destroy_pin(pins, pin);
}

void kvs_pins_forget(struct kvs_pins *pins, dev_t dev, ino_t ino)
{
    pthread_mutex_lock(&pins->lock);
    struct kvs_pin *pin = take_out(pins, dev, ino);
    pthread_mutex_unlock(&pins->lock);
    destroy_pin(pins, pin);
}

uint64_t kvs_pins_used(struct kvs_pins *pins)
{
    pthread_mutex_lock(&pins->lock);
    uint64_t used = pins->used;
    pthread_mutex_unlock(&pins->lock);
    return used;
}

/* Gives up what waits for too long. */
static void *run_helper(void *argument)
{
    struct kvs_pins *pins = argument;

    pthread_mutex_lock(&pins->lock);
    while (!pins->is_ending) {
        if (pins->first == NULL) {
            pthread_cond_wait(&pins->changed, &pins->lock);
            continue;
        }
        int64_t due_ms = pins->first->waits_since_ms + WAIT_TIME_MS;
        if (kvs_clock_ms() < due_ms) {
            struct timespec until = {.tv_sec = (time_t)(due_ms / 1000),
                                     .tv_nsec = (long)(due_ms % 1000) * 1000000};
            pthread_cond_timedwait(&pins->changed, &pins->lock, &until);
            continue;
        }
        struct kvs_pin *pin = take_out_oldest(pins);
        pthread_mutex_unlock(&pins->lock);
        destroy_pin(pins, pin);
        pthread_mutex_lock(&pins->lock);
    }
    pthread_mutex_unlock(&pins->lock);
    return NULL;
}

static int start_helper(struct kvs_pins *pins)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&pins->helper, NULL, run_helper, pins);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error != 0 ? -ENOMEM : 0;
}

int kvs_pins_create(uint64_t budget, uint64_t most, struct kvs_pins **pins_ret)
{
    struct kvs_pins *pins = calloc(1, sizeof(*pins));
    pthread_condattr_t monotonic;

    if (pins == NULL)
        return -ENOMEM;
    pins->budget = budget;
    pins->most = most;
    pthread_mutex_init(&pins->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pins->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    kvs_sigbus_handle();
    int error = start_helper(pins);
    if (error != 0) {
        pthread_cond_destroy(&pins->changed);
        pthread_mutex_destroy(&pins->lock);
        free(pins);
        return error;
    }
    *pins_ret = pins;
    return 0;
}

/* Handles that were never released may still use pins: those end with the process. */
void kvs_pins_destroy(struct kvs_pins *pins)
{
    pthread_mutex_lock(&pins->lock);
    pins->is_ending = true;
    pthread_cond_signal(&pins->changed);
    pthread_mutex_unlock(&pins->lock);
    pthread_join(pins->helper, NULL);
    while (pins->first != NULL)
        destroy_pin(pins, take_out_oldest(pins));
    pthread_cond_destroy(&pins->changed);
    pthread_mutex_destroy(&pins->lock);
    free(pins);
}
