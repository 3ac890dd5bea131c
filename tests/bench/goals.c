// SPDX-License-Identifier: Apache-2.0
// What must hold: the goals, their floors, and whether they were reached.
#include "tests/bench/goals.h"

#include <stdio.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* The mount's rate as a ratio to native's, in the worst of some cells. */
static const struct rate_goal {
    const char *text;
    enum kind kind;
    size_t least_size;
    size_t most_size;
    unsigned threads[2]; /* either */
    double goal;
    double floor;
} rate_goals[] = {
    {"load, O_DIRECT, 4-16 MiB, 1 thread", LOAD_DIRECT, 4 * MIB, 16 * MIB, {1}, 1.10, 1.00},
    {"load, O_DIRECT, 1 MiB, 1 thread", LOAD_DIRECT, MIB, MIB, {1}, 1.00, 0.85},
    {"load, O_DIRECT, 1-16 MiB, 16 threads", LOAD_DIRECT, MIB, 16 * MIB, {16}, 1.20, 1.00},
    {"load, O_DIRECT, 256 KiB, 16 threads", LOAD_DIRECT, 256 * KIB, 256 * KIB, {16}, 1.00, 0.85},
    {"store, O_DIRECT, 4-16 MiB, 1 thread", STORE_DIRECT, 4 * MIB, 16 * MIB, {1}, 1.00, 0.80},
    {"store, O_DIRECT, 1 MiB, 1 thread", STORE_DIRECT, MIB, MIB, {1}, 0.80, 0.55},
    {"store, O_DIRECT, 1-16 MiB, 16 threads", STORE_DIRECT, MIB, 16 * MIB, {16}, 1.00, 0.90},
    {"store, O_DIRECT, 256 KiB, 16 threads", STORE_DIRECT, 256 * KIB, 256 * KIB, {16}, 0.90, 0.60},
    {"load, buffered, hot, first open, 4 MiB, 1 and 4 threads",
     LOAD_FIRST,
     4 * MIB,
     4 * MIB,
     {1, 4},
     0.80,
     0.55},
    {"load, buffered, hot, re-open, 4 MiB", LOAD_REOPEN, 4 * MIB, 4 * MIB, {1, 4}, 0.95, 0.80},
    {"store, buffered, 4 MiB, 4 threads", STORE_BUFFERED, 4 * MIB, 4 * MIB, {4}, 0.80, 0.55},
};
#define RATE_GOALS (sizeof(rate_goals) / sizeof(*rate_goals))

const char *const verdict_names[] = {
    [NOT_MEASURED] = "not measured",
    [MISSED] = "MISSED",
    [FLOOR_MET] = "floor met",
    [GOAL_MET] = "goal met",
};

static bool covers(const struct rate_goal *goal, enum kind kind, size_t size, unsigned threads)
{
    return kind == goal->kind && size >= goal->least_size && size <= goal->most_size &&
           (threads == goal->threads[0] || threads == goal->threads[1]);
}

bool goals_need(enum kind kind, size_t size, unsigned threads)
{
    for (size_t i = 0; i < RATE_GOALS; i++) {
        if (covers(&rate_goals[i], kind, size, threads))
            return true;
    }
    return false;
}

/* Keeps the worst; true where `value` is it. */
static bool take_worst(struct judgement *judgement, double value)
{
    bool is_worse = judgement->is_limit ? value > judgement->measured : value < judgement->measured;
    if (judgement->verdict != NOT_MEASURED && !is_worse)
        return false;
    judgement->measured = value;
    judgement->verdict = MISSED; /* until all of it is known */
    return true;
}

static void conclude(struct judgement *judgement)
{
    double sign = judgement->is_limit ? -1 : 1;
    double measured = sign * judgement->measured;

    if (judgement->verdict == NOT_MEASURED)
        return;
    if (measured >= sign * judgement->goal)
        judgement->verdict = GOAL_MET;
    else if (measured >= sign * judgement->floor)
        judgement->verdict = FLOOR_MET;
}

static struct judgement judge_rate(const struct results *results, const struct rate_goal *goal,
                                   int mount, int peer)
{
    struct judgement judgement = {.text = goal->text, .goal = goal->goal, .floor = goal->floor};

    for (unsigned i = 0; i < results->cell_count; i++) {
        const struct cell *cell = &results->cells[i];
        if (!covers(goal, cell->kind, cell->size, cell->threads) ||
            !take_worst(&judgement, cell_ratio(cell, (unsigned)mount)))
            continue;
        int length = snprintf(judgement.where, sizeof(judgement.where), "%s, %u thread%s",
                              size_text(cell->size).text, cell->threads,
                              cell->threads == 1 ? "" : "s");
        if (peer >= 0)
            snprintf(judgement.where + length, sizeof(judgement.where) - (size_t)length,
                     "; CRC in the client: %.2f", cell_ratio(cell, (unsigned)peer));
    }
    conclude(&judgement);
    return judgement;
}

static double added_time(const struct cell *cell, int side)
{
    return (samples_median(&cell->outcomes[side].latencies) -
            samples_median(&cell->outcomes[0].latencies)) *
           1e6;
}

static struct judgement judge_added_time(const struct results *results, int mount, int peer)
{
    struct judgement judgement = {
        .text = "one-job added time, O_DIRECT, 1-16 MiB, us",
        .goal = 150,
        .floor = 300,
        .is_limit = true,
    };

    for (unsigned i = 0; i < results->cell_count; i++) {
        const struct cell *cell = &results->cells[i];
        if ((cell->kind != LOAD_DIRECT && cell->kind != STORE_DIRECT) || cell->threads != 1 ||
            cell->size < MIB || cell->size > 16 * MIB ||
            !take_worst(&judgement, added_time(cell, mount)))
            continue;
        int length = snprintf(judgement.where, sizeof(judgement.where), "%s, %s",
                              kind_names[cell->kind], size_text(cell->size).text);
        if (peer >= 0)
            snprintf(judgement.where + length, sizeof(judgement.where) - (size_t)length,
                     "; CRC in the client: %.0f", added_time(cell, peer));
    }
    conclude(&judgement);
    return judgement;
}

/* What others wrote meanwhile is in the counters too: for a load only reads count. */
static double traffic_ratio(const struct device_row *row, bool is_store, int mount)
{
    if (!is_store)
        return row->load[mount].read / row->load[0].read;
    return (row->store[mount].read + row->store[mount].written) /
           (row->store[0].read + row->store[0].written);
}

static struct judgement judge_device(const struct results *results, bool is_store, int mount)
{
    struct judgement judgement = {
        .text = is_store ? "device reads and writes, a block's store"
                         : "device reads, a block's load",
        .goal = 1.0005, /* equal, as far as three digits tell */
        .floor = 1.01,
        .is_limit = true,
    };

    for (unsigned i = 0; i < results->device_count; i++) {
        const struct device_row *row = &results->device[i];
        if (take_worst(&judgement, traffic_ratio(row, is_store, mount)))
            snprintf(judgement.where, sizeof(judgement.where), "%s", size_text(row->size).text);
    }
    conclude(&judgement);
    return judgement;
}

static struct judgement judge_crc(const struct results *results)
{
    struct judgement judgement = {
        .text = "CRC32C of cold memory / reading it",
        .goal = 0.98,
        .floor = 0.90,
    };

    for (unsigned i = 0; i < results->crc_count; i++) {
        const struct crc_row *row = &results->crc[i];
        if (row->cold && take_worst(&judgement, row->rates[SUM_FAST] / row->rates[SUM_READ]))
            snprintf(judgement.where, sizeof(judgement.where), "%s; one stream: %.2f",
                     size_text(row->size).text, row->rates[SUM_STREAM] / row->rates[SUM_READ]);
    }
    conclude(&judgement);
    return judgement;
}

unsigned goals_judge(const struct results *results, struct judgement judgements_ret[MOST_GOALS])
{
    int mount = results_find_side(results, SIDE_MOUNT);
    int peer = results_find_side(results, SIDE_CLIENT_CRC);
    unsigned count = 0;

    if (mount < 0)
        return 0;
    for (size_t i = 0; i < RATE_GOALS; i++)
        judgements_ret[count++] = judge_rate(results, &rate_goals[i], mount, peer);
    judgements_ret[count++] = judge_device(results, false, mount);
    judgements_ret[count++] = judge_device(results, true, mount);
    judgements_ret[count++] = judge_added_time(results, mount, peer);
    judgements_ret[count++] = judge_crc(results);
    return count;
}
