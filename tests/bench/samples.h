// SPDX-License-Identifier: Apache-2.0
// A growing list of measurements, its median and minimum; the clock; and the way out.
#ifndef KVSEAL_BENCH_SAMPLES_H
#define KVSEAL_BENCH_SAMPLES_H

#include <stddef.h>

struct samples {
    double *values;
    size_t count;
    size_t room;
};

void samples_add(struct samples *samples, double value);
void samples_append(struct samples *samples, const struct samples *more);
double samples_median(const struct samples *samples); /* 0 without any */
double samples_min(const struct samples *samples);    /* 0 without any */
void samples_free(struct samples *samples);

double seconds_now(void);

/* Prints one line and ends the program: no measurement is worth more than a right one. */
__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);

#endif
