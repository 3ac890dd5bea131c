// SPDX-License-Identifier: Apache-2.0
// Names and sums of what was measured.
#include "tests/bench/results.h"

#include <stdio.h>
#include <string.h>

const char *const kind_names[KINDS] = {
    [LOAD_DIRECT] = "load, O_DIRECT",
    [STORE_DIRECT] = "store, O_DIRECT",
    [LOAD_COLD] = "load, buffered, cold",
    [LOAD_FIRST] = "load, buffered, hot, first open",
    [LOAD_REOPEN] = "load, buffered, hot, re-open",
    [STORE_BUFFERED] = "store, buffered",
};

const char *const look_names[LOOKS] = {
    [LOOK_NEW] = "absent, a new name each",
    [LOOK_AGAIN] = "absent, asked again",
    [LOOK_PRESENT] = "present",
};

const char *const summer_names[SUMMERS] = {
    [SUM_READ] = "read",
    [SUM_FAST] = "kvseal",
    [SUM_STREAM] = "one stream",
    [SUM_PORTABLE] = "portable",
};

double cell_rate(const struct cell *cell, unsigned side)
{
    return samples_median(&cell->outcomes[side].rates);
}

double cell_ratio(const struct cell *cell, unsigned side)
{
    double native = cell_rate(cell, 0);
    return native > 0 ? cell_rate(cell, side) / native : 0;
}

int results_find_side(const struct results *results, const char *name)
{
    for (unsigned i = 0; i < results->side_count; i++) {
        if (strcmp(results->sides[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

struct size_text size_text(size_t size)
{
    struct size_text text;
    size_t mib = (size_t)1 << 20;

    if (size % mib == 0)
        snprintf(text.text, sizeof(text.text), "%zu MiB", size / mib);
    else
        snprintf(text.text, sizeof(text.text), "%zu KiB", size / 1024);
    return text;
}
