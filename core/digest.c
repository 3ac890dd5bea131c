// SPDX-License-Identifier: Apache-2.0
// Two sorted lists of ranges, written and summed, and the writes in flight over them.
#include "core/digest.h"

#include <stdlib.h>
#include <string.h>

#include "core/crc32c.h"

/* Index of the first range that ends after `offset`; `count` if none does. */
static size_t find_range(const struct kvs_digest_list *list, uint64_t offset)
{
    size_t low = 0;
    size_t high = list->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (list->ranges[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The first part of [from, to) that no range covers. */
static bool find_gap(const struct kvs_digest_list *list, uint64_t from, uint64_t to,
                     uint64_t *from_ret, uint64_t *to_ret)
{
    size_t i = find_range(list, from);

    for (; i < list->count && list->ranges[i].offset <= from; i++)
        from = list->ranges[i].end;
    if (from >= to)
        return false;
    *from_ret = from;
    *to_ret = i < list->count && list->ranges[i].offset < to ? list->ranges[i].offset : to;
    return true;
}

/* A new range at `index`. Where there is no room the whole list is forgotten, which is safe. */
static bool add_range(struct kvs_digest_list *list, size_t index, struct kvs_digest_range range)
{
    if (list->count == list->capacity && list->capacity < KVS_DIGEST_MAX) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct kvs_digest_range *ranges = realloc(list->ranges, capacity * sizeof(*ranges));

        if (ranges != NULL) {
            list->ranges = ranges;
            list->capacity = capacity;
        }
    }
    if (list->count == list->capacity) {
        list->count = 0;
        return false;
    }
    memmove(&list->ranges[index + 1], &list->ranges[index],
            (list->count - index) * sizeof(list->ranges[0]));
    list->ranges[index] = range;
    list->count++;
    return true;
}

static void remove_ranges(struct kvs_digest_list *list, size_t first, size_t past)
{
    memmove(&list->ranges[first], &list->ranges[past],
            (list->count - past) * sizeof(list->ranges[0]));
    list->count -= past - first;
}

/* Nothing in the list overlaps [from, to) any more. Sums that do are lost as a whole. */
static void cut_ranges(struct kvs_digest_list *list, uint64_t from, uint64_t to)
{
    size_t first = find_range(list, from);
    size_t past;

    if (from >= to || first == list->count)
        return;
    if (list->ranges[first].offset < from && list->ranges[first].cuttable) {
        struct kvs_digest_range tail = list->ranges[first];

        list->ranges[first].end = from;
        first++;
        tail.offset = to;
        if (tail.end > to) {
            add_range(list, first, tail);
            return;
        }
    }
    for (past = first; past < list->count && list->ranges[past].offset < to; past++) {
        if (list->ranges[past].end > to && list->ranges[past].cuttable) {
            list->ranges[past].offset = to;
            break;
        }
    }
    remove_ranges(list, first, past);
}

/* If `right` continues `left`, and both are of one kind, `left` becomes both. */
static bool join_ranges(struct kvs_digest_range *left, const struct kvs_digest_range *right)
{
    if (left->end != right->offset || left->cuttable != right->cuttable)
        return false;
    if (!left->cuttable)
        left->crc = kvs_crc32c_combine(left->crc, right->crc, right->end - right->offset);
    left->end = right->end;
    return true;
}

/* Whether a later change that cuts one of the two would better find the other by itself. */
static bool is_worth_joining(const struct kvs_digest_range *left,
                             const struct kvs_digest_range *right)
{
    return left->cuttable || left->offset / KVS_DIGEST_UNIT == (right->end - 1) / KVS_DIGEST_UNIT;
}

/* Makes room: joins whatever can be joined. */
static void join_all(struct kvs_digest_list *list)
{
    size_t last = 0;

    for (size_t i = 1; i < list->count; i++) {
        if (!join_ranges(&list->ranges[last], &list->ranges[i]))
            list->ranges[++last] = list->ranges[i];
    }
    list->count = last + 1;
}

/* Puts the range in the place of what it overlaps, and joins it with its neighbours. */
static void put_range(struct kvs_digest_list *list, struct kvs_digest_range range)
{
    size_t index;

    if (range.offset >= range.end)
        return;
    cut_ranges(list, range.offset, range.end);
    if (list->count == KVS_DIGEST_MAX)
        join_all(list);
    index = find_range(list, range.offset);
    if (index > 0 && is_worth_joining(&list->ranges[index - 1], &range) &&
        join_ranges(&list->ranges[index - 1], &range))
        index--;
    else if (!add_range(list, index, range))
        return;
    if (index + 1 < list->count &&
        is_worth_joining(&list->ranges[index], &list->ranges[index + 1]) &&
        join_ranges(&list->ranges[index], &list->ranges[index + 1]))
        remove_ranges(list, index + 1, index + 2);
}

static void put_cuttable(struct kvs_digest_list *list, uint64_t from, uint64_t to)
{
    put_range(list, (struct kvs_digest_range){.offset = from, .end = to, .cuttable = true});
}

static uint64_t end_of(uint64_t offset, uint64_t len)
{
    return len < UINT64_MAX - offset ? offset + len : UINT64_MAX;
}

/* Locks for a change; content that is being read back right now cannot be learned any more. */
static void lock_for_change(struct kvs_digest *d)
{
    pthread_mutex_lock(&d->lock);
    d->changes++;
}

static bool overlaps(const struct kvs_digest_write *w, uint64_t from, uint64_t to)
{
    return w->offset < to && from < w->end;
}

void kvs_digest_init(struct kvs_digest *d)
{
    *d = (struct kvs_digest){0};
    pthread_mutex_init(&d->lock, NULL);
}

void kvs_digest_destroy(struct kvs_digest *d)
{
    free(d->written.ranges);
    free(d->summed.ranges);
    pthread_mutex_destroy(&d->lock);
}

void kvs_digest_begin(struct kvs_digest *d, uint64_t offset, uint64_t len,
                      struct kvs_digest_write *w)
{
    lock_for_change(d);
    *w = (struct kvs_digest_write){
        .next = d->in_flight, .offset = offset, .end = end_of(offset, len)};
    for (struct kvs_digest_write *other = d->in_flight; other != NULL; other = other->next) {
        if (overlaps(other, w->offset, w->end))
            other->torn = w->torn = true;
    }
    if (w->next != NULL)
        w->next->previous = w;
    d->in_flight = w;
    cut_ranges(&d->summed, w->offset, w->end);
    pthread_mutex_unlock(&d->lock);
}

void kvs_digest_end(struct kvs_digest *d, struct kvs_digest_write *w, uint64_t len_written,
                    uint32_t crc, bool summed)
{
    uint64_t end = end_of(w->offset, len_written);

    lock_for_change(d);
    if (w->next != NULL)
        w->next->previous = w->previous;
    if (w->previous != NULL)
        w->previous->next = w->next;
    else
        d->in_flight = w->next;
    if (!w->stale)
        put_cuttable(&d->written, w->offset, end);
    if (summed && !w->torn)
        put_range(&d->summed,
                  (struct kvs_digest_range){.offset = w->offset, .end = end, .crc = crc});
    pthread_mutex_unlock(&d->lock);
}

uint64_t kvs_digest_changes(struct kvs_digest *d)
{
    pthread_mutex_lock(&d->lock);
    uint64_t changes = d->changes;
    pthread_mutex_unlock(&d->lock);
    return changes;
}

void kvs_digest_learn(struct kvs_digest *d, uint64_t offset, uint64_t len, uint32_t crc,
                      uint64_t changes)
{
    uint64_t end = end_of(offset, len);

    pthread_mutex_lock(&d->lock);
    bool certain = changes == d->changes;
    for (const struct kvs_digest_write *w = d->in_flight; w != NULL; w = w->next)
        certain = certain && !overlaps(w, offset, end);
    if (certain)
        put_range(&d->summed, (struct kvs_digest_range){.offset = offset, .end = end, .crc = crc});
    pthread_mutex_unlock(&d->lock);
}

void kvs_digest_restart(struct kvs_digest *d)
{
    lock_for_change(d);
    d->written.count = 0;
    d->summed.count = 0;
    for (struct kvs_digest_write *w = d->in_flight; w != NULL; w = w->next)
        w->torn = w->stale = true;
    pthread_mutex_unlock(&d->lock);
}

void kvs_digest_forget_sums(struct kvs_digest *d)
{
    lock_for_change(d);
    d->summed.count = 0;
    for (struct kvs_digest_write *w = d->in_flight; w != NULL; w = w->next)
        w->torn = true;
    pthread_mutex_unlock(&d->lock);
}

void kvs_digest_truncate(struct kvs_digest *d, uint64_t size)
{
    lock_for_change(d);
    cut_ranges(&d->written, size, UINT64_MAX);
    cut_ranges(&d->summed, size, UINT64_MAX);
    /* A write that is cut may have come before or after the cut. */
    for (struct kvs_digest_write *w = d->in_flight; w != NULL; w = w->next) {
        if (w->end > size)
            w->torn = true;
    }
    pthread_mutex_unlock(&d->lock);
}

void kvs_digest_extend(struct kvs_digest *d, uint64_t from, uint64_t to)
{
    uint64_t gap_from;
    uint64_t gap_to;

    lock_for_change(d);
    for (uint64_t at = from; find_gap(&d->written, at, to, &gap_from, &gap_to); at = gap_to)
        put_cuttable(&d->summed, gap_from, gap_to);
    for (const struct kvs_digest_write *w = d->in_flight; w != NULL; w = w->next)
        cut_ranges(&d->summed, w->offset, w->end);
    put_cuttable(&d->written, from, to);
    pthread_mutex_unlock(&d->lock);
}

void kvs_digest_save(struct kvs_digest *d, struct kvs_digest_list *written_ret,
                     struct kvs_digest_list *summed_ret)
{
    pthread_mutex_lock(&d->lock);
    *written_ret = d->written;
    *summed_ret = d->summed;
    pthread_mutex_unlock(&d->lock);
}

static void restore_list(struct kvs_digest_list *list, const struct kvs_digest_list *saved)
{
    uint64_t end = 0;

    list->count = 0;
    for (size_t i = 0; i < saved->count; i++) {
        struct kvs_digest_range range = saved->ranges[i];
        if (range.offset < end || range.offset >= range.end ||
            !add_range(list, list->count, range)) {
            list->count = 0;
            return;
        }
        end = range.end;
    }
}

void kvs_digest_restore(struct kvs_digest *d, const struct kvs_digest_list *written,
                        const struct kvs_digest_list *summed)
{
    lock_for_change(d);
    restore_list(&d->written, written);
    restore_list(&d->summed, summed);
    pthread_mutex_unlock(&d->lock);
}

bool kvs_digest_is_written(struct kvs_digest *d, uint64_t size)
{
    uint64_t gap_from;
    uint64_t gap_to;

    pthread_mutex_lock(&d->lock);
    bool written = !find_gap(&d->written, 0, size, &gap_from, &gap_to);
    pthread_mutex_unlock(&d->lock);
    return written;
}

/* The list covers [0, size) without a gap, and nothing more. */
static bool covers_exactly(const struct kvs_digest_list *list, uint64_t size)
{
    uint64_t gap_from;
    uint64_t gap_to;

    if (list->count > 0 && list->ranges[list->count - 1].end > size)
        return false;
    return !find_gap(list, 0, size, &gap_from, &gap_to);
}

bool kvs_digest_sum(struct kvs_digest *d, uint64_t size, uint32_t *crc_ret)
{
    uint32_t crc = 0;

    pthread_mutex_lock(&d->lock);
    bool known = covers_exactly(&d->summed, size);
    for (size_t i = 0; known && i < d->summed.count; i++) {
        const struct kvs_digest_range *piece = &d->summed.ranges[i];
        uint64_t len = piece->end - piece->offset;

        crc = kvs_crc32c_combine(crc, piece->cuttable ? kvs_crc32c_zeros(len) : piece->crc, len);
    }
    pthread_mutex_unlock(&d->lock);
    if (known)
        *crc_ret = crc;
    return known;
}

bool kvs_digest_next_gap(struct kvs_digest *d, uint64_t from, uint64_t size, uint64_t *offset_ret,
                         uint64_t *len_ret)
{
    uint64_t end;

    pthread_mutex_lock(&d->lock);
    bool found = find_gap(&d->summed, from, size, offset_ret, &end);
    pthread_mutex_unlock(&d->lock);
    if (found)
        *len_ret = end - *offset_ret;
    return found;
}
