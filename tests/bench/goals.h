// SPDX-License-Identifier: Apache-2.0
// What must hold: the goals, their floors, and whether they were reached.
#ifndef KVSEAL_BENCH_GOALS_H
#define KVSEAL_BENCH_GOALS_H

#include "tests/bench/results.h"

enum verdict { NOT_MEASURED, MISSED, FLOOR_MET, GOAL_MET };

struct judgement {
    const char *text;
    double goal;
    double floor;
    bool is_limit;   /* the lower the better */
    double measured; /* the worst of all that the goal covers */
    enum verdict verdict;
    char where[128]; /* where that was, and what the peer in the client measured there */
};

#define MOST_GOALS 24

extern const char *const verdict_names[];

/* How many there are. */
unsigned goals_judge(const struct results *results, struct judgement judgements_ret[MOST_GOALS]);

/* A goal is about cells of this kind. */
bool goals_need(enum kind kind, size_t size, unsigned threads);

#endif
