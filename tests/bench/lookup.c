// SPDX-License-Identifier: Apache-2.0
// Storms of access(): tiers ask for many names in a row, and most of them do not exist.
#include "tests/bench/measure.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/parallel.h"
#include "tests/bench/tier.h"

#define NAMES        256 /* of those that are asked for again and again */
#define BLOCK_SIZE   4096
#define PRESENT      0
#define ABSENT_AGAIN ((uint64_t)1 << 40)
#define ABSENT_NEW   ((uint64_t)1 << 41)

struct storm {
    const struct side *side;
    enum look look;
    uint64_t first; /* of the new names */
};

static void look_up(void *context, unsigned thread, uint64_t number)
{
    const struct storm *storm = context;
    char path[PATH_MAX];
    uint64_t name = number % NAMES;

    if (storm->look == LOOK_AGAIN)
        name += ABSENT_AGAIN;
    else if (storm->look == LOOK_NEW)
        name = storm->first + number;
    side_path(path, storm->side->dir, name);
    bool is_there = access(path, F_OK) == 0;
    if (is_there != (storm->look == LOOK_PRESENT) || (!is_there && errno != ENOENT))
        die("side \"%s\": access(%s): %s", storm->side->name, path,
            is_there ? "it is there" : strerror(errno));
}

static void measure_storm(const struct settings *settings, struct lookup *lookup,
                          const struct side *side, struct samples *rates)
{
    static uint64_t next_new = ABSENT_NEW;
    struct storm storm = {.side = side, .look = lookup->look, .first = next_new};
    const struct parallel work = {
        .threads = lookup->threads,
        .seconds = settings->seconds / 2,
        .least_ops = NAMES,
        .op = look_up,
        .context = &storm,
    };
    struct parallel_result result;

    parallel_run(&work, &result);
    next_new += result.numbers;
    samples_add(rates, (double)result.ops / result.seconds);
    samples_free(&result.latencies);
}

void lookup_measure(struct results *results)
{
    const struct settings *settings = &results->settings;

    for (unsigned i = 0; i < results->side_count; i++)
        tier_fill(&results->sides[i], BLOCK_SIZE, PRESENT, NAMES, true);
    for (unsigned look = 0; look < LOOKS; look++) {
        for (unsigned t = 0; t < settings->thread_count; t++) {
            struct lookup *lookup = &results->lookups[results->lookup_count++];
            *lookup = (struct lookup){.look = look, .threads = settings->threads[t]};
            for (unsigned turn = 0; turn < settings->rounds * results->side_count; turn++) {
                unsigned side = (turn + turn / results->side_count) % results->side_count;
                measure_storm(settings, lookup, &results->sides[side], &lookup->rates[side]);
            }
        }
    }
    for (unsigned i = 0; i < results->side_count; i++)
        side_remove(&results->sides[i], PRESENT, NAMES);
}
