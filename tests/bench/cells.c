// SPDX-License-Identifier: Apache-2.0
// Stores and loads: every cell in several rounds, every side in each.
#include "tests/bench/measure.h"

#include <stdio.h>
#include <unistd.h>

#include "core/util.h"
#include "tests/bench/goals.h"
#include "tests/bench/parallel.h"
#include "tests/bench/tier.h"

#define MIB ((size_t)1 << 20)

/* Numbers of blocks: those to load, those that are stored again for each cold load, new ones. */
#define SET_FIRST   0
#define COLD_FIRST  ((uint64_t)1 << 20)
#define HOT_FIRST   ((uint64_t)1 << 21)
#define STORE_FIRST ((uint64_t)1 << 30)

/* Blocks that are loaded again and again stay below the mount's budget for pages in memory. */
#define HOT_BYTES (128 * MIB)

static bool is_in(const struct settings *settings, enum kind kind, size_t size, unsigned threads)
{
    bool is_cold_sample = kind == LOAD_COLD && size == 4 * MIB && threads == 1;
    return settings->all_cells || is_cold_sample || goals_need(kind, size, threads);
}

void cells_plan(struct results *results)
{
    const struct settings *settings = &results->settings;

    for (unsigned s = 0; s < settings->size_count; s++) {
        for (unsigned k = 0; k < KINDS; k++) {
            for (unsigned t = 0; t < settings->thread_count; t++) {
                if (is_in(settings, k, settings->sizes[s], settings->threads[t]))
                    results->cells[results->cell_count++] = (struct cell){
                        .kind = k,
                        .size = settings->sizes[s],
                        .threads = settings->threads[t],
                    };
            }
        }
    }
}

/* How many blocks of a size are laid out to be loaded. */
static uint64_t count_set(const struct settings *settings, size_t size)
{
    uint64_t count = KVS_MIN(128 * MIB / size, 256);
    for (unsigned t = 0; t < settings->thread_count; t++)
        count = KVS_MAX(count, 2 * settings->threads[t]); /* no two threads load the same */
    return count;
}

/* Runs one job and adds it to what a slice measured. */
static void run_job(const struct tier_job *job, struct outcome *outcome, double *seconds,
                    uint64_t *bytes, uint64_t *numbers_ret)
{
    struct parallel_result result;
    double daemon_cpu = side_daemon_cpu(job->side);

    tier_run(job, &result);
    outcome->daemon_cpu += side_daemon_cpu(job->side) - daemon_cpu;
    outcome->client_cpu += result.cpu;
    outcome->bytes += result.ops * job->size;
    samples_append(&outcome->latencies, &result.latencies);
    samples_free(&result.latencies);
    *bytes += result.ops * job->size;
    *seconds += result.seconds;
    *numbers_ret = result.numbers;
}

/* Blocks that were stored a moment ago, buffered, are what a tier loads from the page cache. */
static void lay_out_hot(struct tier_job *job, uint64_t count)
{
    job->first = HOT_FIRST;
    job->blocks = count;
    tier_fill(job->side, job->size, HOT_FIRST, count, false);
    side_sync(job->side);
}

/* One side's turn in one round of a cell. */
static void run_slice(const struct settings *settings, struct cell *cell, const struct side *side,
                      struct outcome *outcome)
{
    uint64_t set = count_set(settings, cell->size);
    uint64_t bytes = 0, numbers = 0;
    double seconds = 0;
    struct tier_job job = {
        .side = side,
        .is_store = cell->kind == STORE_DIRECT || cell->kind == STORE_BUFFERED,
        .direct = cell->kind == STORE_DIRECT || cell->kind == LOAD_DIRECT,
        .size = cell->size,
        .threads = cell->threads,
        .first = SET_FIRST,
        .blocks = set,
        .seconds = settings->seconds,
        .least_ops = 2ul * cell->threads,
    };

    switch (cell->kind) {
    case STORE_DIRECT:
    case STORE_BUFFERED:
        job.first = STORE_FIRST;
        job.blocks = 0;
        run_job(&job, outcome, &seconds, &bytes, &numbers);
        side_remove(side, STORE_FIRST, numbers);
        side_sync(side);
        break;
    case LOAD_DIRECT:
        side_cool(side, SET_FIRST, set);
        run_job(&job, outcome, &seconds, &bytes, &numbers);
        break;
    case LOAD_COLD:
        /* New files: what a daemon has locked in memory cannot be dropped from the page cache. */
        job.first = COLD_FIRST;
        job.blocks = job.least_ops = job.most_ops = KVS_MAX(set / 2, cell->threads);
        tier_fill(side, cell->size, COLD_FIRST, job.blocks, true);
        side_sync(side);
        side_cool(side, COLD_FIRST, job.blocks);
        run_job(&job, outcome, &seconds, &bytes, &numbers);
        break;
    case LOAD_FIRST:
        lay_out_hot(&job, set);
        job.least_ops = job.most_ops = set;
        while (seconds < settings->seconds) {
            side_touch(side, HOT_FIRST, set);
            run_job(&job, outcome, &seconds, &bytes, &numbers);
        }
        break;
    default: /* LOAD_REOPEN */
        lay_out_hot(&job, KVS_MIN(set, HOT_BYTES / cell->size));
        struct tier_job first = job;
        struct parallel_result ignored;
        first.least_ops = first.most_ops = job.blocks;
        tier_run(&first, &ignored);
        samples_free(&ignored.latencies);
        run_job(&job, outcome, &seconds, &bytes, &numbers);
        break;
    }
    samples_add(&outcome->rates, (double)bytes / 1e9 / seconds);
}

static void show_progress(const struct results *results, const struct cell *cell)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%u of %u: %s, %s, %u threads",
                (unsigned)(cell - results->cells) + 1, results->cell_count, kind_names[cell->kind],
                size_text(cell->size).text, cell->threads);
}

static void measure_cell(struct results *results, struct cell *cell)
{
    show_progress(results, cell);
    for (unsigned round = 0; round < results->settings.rounds; round++) {
        for (unsigned i = 0; i < results->side_count; i++) {
            unsigned side = (i + round) % results->side_count; /* nobody is always the first */
            run_slice(&results->settings, cell, &results->sides[side], &cell->outcomes[side]);
        }
    }
}

/* The blocks of one size at a time, to need less of the disk. */
void cells_measure(struct results *results)
{
    struct cell *cell = results->cells, *end = results->cells + results->cell_count;

    while (cell < end) {
        size_t size = cell->size;
        uint64_t set = count_set(&results->settings, size);

        for (unsigned i = 0; i < results->side_count; i++)
            tier_fill(&results->sides[i], size, SET_FIRST, set, true);
        side_sync(&results->sides[0]);
        for (; cell < end && cell->size == size; cell++)
            measure_cell(results, cell);
        for (unsigned i = 0; i < results->side_count; i++) {
            side_remove(&results->sides[i], SET_FIRST, set);
            side_remove(&results->sides[i], COLD_FIRST, set);
            side_remove(&results->sides[i], HOT_FIRST, set);
        }
        side_sync(&results->sides[0]);
    }
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}
