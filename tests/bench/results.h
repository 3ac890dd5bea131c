// SPDX-License-Identifier: Apache-2.0
// What the benchmark is asked for, and everything that it measures.
#ifndef KVSEAL_BENCH_RESULTS_H
#define KVSEAL_BENCH_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/samples.h"
#include "tests/bench/side.h"

#define MAX_SIDES   6
#define MAX_CHOICES 8   /* block sizes, numbers of threads */
#define MAX_CELLS   512 /* kinds * sizes * threads */

enum kind {
    LOAD_DIRECT,
    STORE_DIRECT,
    LOAD_COLD,   /* buffered, nothing in the page cache */
    LOAD_FIRST,  /* buffered, in the page cache, but not verified since it changed */
    LOAD_REOPEN, /* buffered, in the page cache, loaded before */
    STORE_BUFFERED,
    KINDS,
};

/* One kind of work at one block size and number of threads, played on every side. */
struct cell {
    enum kind kind;
    size_t size;
    unsigned threads;
    struct outcome {
        struct samples rates;     /* GB/s, one a round */
        struct samples latencies; /* seconds, one a block */
        uint64_t bytes;           /* of all rounds; so are the CPU seconds */
        double client_cpu;
        double daemon_cpu;
    } outcomes[MAX_SIDES];
};

enum look { LOOK_NEW, LOOK_AGAIN, LOOK_PRESENT, LOOKS };

struct lookup {
    enum look look;
    unsigned threads;
    struct samples rates[MAX_SIDES]; /* calls a second, one a round */
};

/* What the device did for one block, in bytes. */
struct traffic {
    double read;
    double written;
};

struct device_row {
    size_t size;
    struct traffic load[MAX_SIDES];
    struct traffic store[MAX_SIDES];
};

enum summer { SUM_READ, SUM_FAST, SUM_STREAM, SUM_PORTABLE, SUMMERS };

struct crc_row {
    size_t size;
    bool cold;
    double rates[SUMMERS]; /* GB/s, medians */
};

struct settings {
    size_t sizes[MAX_CHOICES];
    unsigned size_count;
    unsigned threads[MAX_CHOICES];
    unsigned thread_count;
    unsigned rounds;
    double seconds; /* of one side in one round of one cell */
    bool all_cells; /* every kind at every size and number; otherwise those of the goals */
    bool cells_only;
};

struct results {
    struct settings settings;
    struct side sides[MAX_SIDES]; /* the first is native */
    unsigned side_count;
    struct cell cells[MAX_CELLS];
    unsigned cell_count;
    struct lookup lookups[LOOKS * MAX_CHOICES];
    unsigned lookup_count;
    struct device_row device[MAX_CHOICES];
    unsigned device_count; /* 0: the file system has no block device that can be asked */
    struct crc_row crc[2 * MAX_CHOICES];
    unsigned crc_count;
};

extern const char *const kind_names[KINDS];
extern const char *const look_names[LOOKS];
extern const char *const summer_names[SUMMERS];

/* The median rate of a side, and its ratio to native's. */
double cell_rate(const struct cell *cell, unsigned side);
double cell_ratio(const struct cell *cell, unsigned side);

/* The index of the side `name`, or -1. */
int results_find_side(const struct results *results, const char *name);

/* "256 KiB", "4 MiB" */
struct size_text {
    char text[24];
};
struct size_text size_text(size_t size);

#endif
