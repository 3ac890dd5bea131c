// SPDX-License-Identifier: Apache-2.0
// A growing list of measurements, its median and minimum; the clock; and the way out.
#include "tests/bench/samples.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

void samples_add(struct samples *samples, double value)
{
    if (samples->count == samples->room) {
        size_t room = samples->room ? 2 * samples->room : 64;
        double *values = realloc(samples->values, room * sizeof(*values));
        if (values == NULL)
            die("out of memory");
        samples->values = values;
        samples->room = room;
    }
    samples->values[samples->count++] = value;
}

void samples_append(struct samples *samples, const struct samples *more)
{
    for (size_t i = 0; i < more->count; i++)
        samples_add(samples, more->values[i]);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_median(const struct samples *samples)
{
    size_t n = samples->count;
    if (n == 0)
        return 0;
    kvs_cleanup_free double *sorted = malloc(n * sizeof(*sorted));
    if (sorted == NULL)
        die("out of memory");
    memcpy(sorted, samples->values, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double samples_min(const struct samples *samples)
{
    double min = samples->count ? samples->values[0] : 0;
    for (size_t i = 1; i < samples->count; i++)
        min = KVS_MIN(min, samples->values[i]);
    return min;
}

void samples_free(struct samples *samples)
{
    free(samples->values);
    *samples = (struct samples){0};
}

double seconds_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

void die(const char *format, ...)
{
    va_list arguments;
    char line[1024];

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(stderr, "bench: %s\n", line);
    _exit(1); /* any thread may come here while others run */
}
