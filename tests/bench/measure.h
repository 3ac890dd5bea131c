// SPDX-License-Identifier: Apache-2.0
// The measurements. Each goes round the sides in every round, so that what disturbs the machine
// disturbs all alike, and adds what it found to the results.
#ifndef KVSEAL_BENCH_MEASURE_H
#define KVSEAL_BENCH_MEASURE_H

#include "tests/bench/results.h"

/* Which cells there are to measure, sorted by size. */
void cells_plan(struct results *results);
void cells_measure(struct results *results);

/* Storms of access(), for names that are there and names that are not. */
void lookup_measure(struct results *results);

/* What the device reads and writes for a block. */
void device_measure(struct results *results);

/* CRC32C against the machine's own speed of reading memory. */
void crc_measure(struct results *results);

#endif
