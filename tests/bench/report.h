// SPDX-License-Identifier: Apache-2.0
// The results as text, as JSON, and as a picture.
#ifndef KVSEAL_BENCH_REPORT_H
#define KVSEAL_BENCH_REPORT_H

#include <stdio.h>

#include "tests/bench/results.h"

void report_text(const struct results *results, FILE *file);
void report_json(const struct results *results, FILE *file);

/* An SVG of bars: every side's rate as a ratio to native's. */
void report_plot(const struct results *results, FILE *file);

#endif
