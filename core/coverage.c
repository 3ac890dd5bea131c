// SPDX-License-Identifier: Apache-2.0
// Keeps the stretches sorted, apart and few.
#include "core/coverage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"
#include "core/walk.h"

void kvs_coverage_destroy(struct kvs_coverage *coverage)
{
    for (size_t i = 0; i < coverage->count; i++)
        free(coverage->stretches[i].end);
    *coverage = (struct kvs_coverage){0};
}

/* The stretch that the path lies in; `count` is the tail. */
static size_t find_stretch(const struct kvs_coverage *coverage, const char *path)
{
    size_t low = 0;
    size_t high = coverage->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (kvs_walk_compare(coverage->stretches[middle].end, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int64_t since_of(const struct kvs_coverage *coverage, size_t index)
{
    return index < coverage->count ? coverage->stretches[index].since : coverage->tail_since;
}

int64_t kvs_coverage_when(const struct kvs_coverage *coverage, const char *path)
{
    return since_of(coverage, find_stretch(coverage, path));
}

static void remove_stretches(struct kvs_coverage *coverage, size_t from, size_t to)
{
    struct kvs_stretch *stretches = coverage->stretches;

    for (size_t i = from; i < to; i++)
        free(stretches[i].end);
    memmove(&stretches[from], &stretches[to], (coverage->count - to) * sizeof(*stretches));
    coverage->count -= to - from;
}

/* Makes one of the two neighbours that differ least: the older time holds for both. */
static void merge_alike(struct kvs_coverage *coverage)
{
    size_t best = 0;
    int64_t least = INT64_MAX;

    for (size_t i = 0; i + 1 < coverage->count; i++) {
        int64_t difference = llabs(coverage->stretches[i].since - coverage->stretches[i + 1].since);

        if (difference < least) {
            least = difference;
            best = i;
        }
    }
    coverage->stretches[best + 1].since = KVS_MIN(coverage->stretches[best].since,
                                                  coverage->stretches[best + 1].since);
    remove_stretches(coverage, best, best + 1);
}

/* Makes `path` the end of a stretch, and finds out which. There must be room. */
static int cut_at(struct kvs_coverage *coverage, const char *path, size_t *index_ret)
{
    size_t index = find_stretch(coverage, path);
    struct kvs_stretch *at = &coverage->stretches[index];
    char *end = NULL;

    *index_ret = index;
    if (index < coverage->count && strcmp(at->end, path) == 0)
        return 0;
    end = strdup(path);
    if (end == NULL)
        return -ENOMEM;
    memmove(at + 1, at, (coverage->count - index) * sizeof(*at));
    coverage->count++;
    *at = (struct kvs_stretch){.end = end, .since = since_of(coverage, index + 1)};
    return 0;
}

/* Cuts behind `from`; what follows begins at *first_ret. */
static int cut_behind(struct kvs_coverage *coverage, const char *from, size_t *first_ret)
{
    size_t index = 0;
    int r = 0;

    while (coverage->count + 2 > KVS_STRETCHES)
        merge_alike(coverage);
    *first_ret = 0;
    if (*from == '\0')
        return 0;
    r = cut_at(coverage, from, &index);
    *first_ret = index + 1;
    return r;
}

/* As kvs_coverage_advance(), where nothing lies behind. */
static void advance_to_end(struct kvs_coverage *coverage, size_t first, int64_t now)
{
    remove_stretches(coverage, first, coverage->count);
    coverage->tail_since = now;
}

int kvs_coverage_advance(struct kvs_coverage *coverage, const char *from, const char *to,
                         int64_t now, int64_t grain)
{
    struct kvs_stretch *stretches = coverage->stretches;
    size_t first = 0;
    size_t last = 0;
    int r = cut_behind(coverage, from, &first);

    if (r < 0)
        return r;
    if (to == NULL) {
        advance_to_end(coverage, first, now);
        return 0;
    }
    r = cut_at(coverage, to, &last);
    if (r < 0 || last < first)
        return r;
    stretches[last].since = now;
    remove_stretches(coverage, first, last);
    /* The stretch before grows instead, as long as it is not much older. */
    if (first > 0 && now >= stretches[first - 1].since &&
        now - stretches[first - 1].since < grain) {
        stretches[first].since = stretches[first - 1].since;
        remove_stretches(coverage, first - 1, first);
    }
    return 0;
}

int kvs_coverage_append(struct kvs_coverage *coverage, const char *end, int64_t since)
{
    struct kvs_stretch *last = &coverage->stretches[coverage->count];
    char *copy = NULL;

    if (coverage->count == KVS_STRETCHES ||
        (coverage->count > 0 && kvs_walk_compare(last[-1].end, end) >= 0))
        return -EINVAL;
    copy = strdup(end);
    if (copy == NULL)
        return -ENOMEM;
    *last = (struct kvs_stretch){.end = copy, .since = since};
    coverage->count++;
    return 0;
}
