// SPDX-License-Identifier: Apache-2.0
// What the device reads and writes for a block that is stored or loaded whole, with O_DIRECT.
#include "tests/bench/measure.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/util.h"
#include "tests/bench/tier.h"

#define MIB         ((size_t)1 << 20)
#define FIRST       ((uint64_t)1 << 50)
#define MOST_ROUNDS 3
#define SECTOR      512.0 /* of the kernel's counters, whatever the device's is */

/* Where the counters of the directory's device are. False where it has none, as in btrfs. */
static bool find_counters(const struct side *side, char path_ret[64])
{
    struct stat status;

    if (stat(side->below, &status) < 0)
        return false;
    snprintf(path_ret, 64, "/sys/dev/block/%u:%u/stat", major(status.st_dev), minor(status.st_dev));
    FILE *file = fopen(path_ret, "re");
    if (file == NULL)
        return false;
    fclose(file);
    return true;
}

static struct traffic read_counters(const char *path)
{
    unsigned long long read = 0, written = 0;
    FILE *file = fopen(path, "re");

    if (file == NULL || fscanf(file, "%*u %*u %llu %*u %*u %*u %llu", &read, &written) != 2)
        die("%s cannot be read", path);
    fclose(file);
    return (struct traffic){.read = (double)read * SECTOR, .written = (double)written * SECTOR};
}

/* Others use the device too, and can only add to the counters: so the least of all is kept. */
static void keep_least(struct traffic *least, struct traffic before, struct traffic after,
                       uint64_t blocks, bool is_first)
{
    double read = (after.read - before.read) / (double)blocks;
    double written = (after.written - before.written) / (double)blocks;

    least->read = is_first ? read : KVS_MIN(least->read, read);
    least->written = is_first ? written : KVS_MIN(least->written, written);
}

static void measure_side(struct device_row *row, unsigned i, const struct side *side,
                         const char *counters, bool is_first)
{
    uint64_t blocks = KVS_MAX(64 * MIB / row->size, 8);
    struct tier_job job = {
        .side = side,
        .direct = true,
        .size = row->size,
        .threads = 1,
        .first = FIRST,
        .least_ops = blocks,
        .most_ops = blocks,
    };
    struct parallel_result result;

    side_sync(side);
    struct traffic before = read_counters(counters);
    job.is_store = true;
    tier_run(&job, &result);
    samples_free(&result.latencies);
    side_sync(side);
    struct traffic between = read_counters(counters);
    keep_least(&row->store[i], before, between, blocks, is_first);

    side_cool(side, FIRST, blocks);
    before = read_counters(counters);
    job.is_store = false;
    tier_run(&job, &result);
    samples_free(&result.latencies);
    keep_least(&row->load[i], before, read_counters(counters), blocks, is_first);
    side_remove(side, FIRST, blocks);
}

void device_measure(struct results *results)
{
    const struct settings *settings = &results->settings;
    unsigned turns = KVS_MIN(settings->rounds, MOST_ROUNDS) * results->side_count;
    char counters[64];

    if (!find_counters(&results->sides[0], counters))
        return;
    for (unsigned s = 0; s < settings->size_count; s++) {
        struct device_row *row = &results->device[results->device_count++];
        row->size = settings->sizes[s];
        for (unsigned turn = 0; turn < turns; turn++) {
            unsigned side = turn % results->side_count;
            measure_side(row, side, &results->sides[side], counters, turn < results->side_count);
        }
    }
}
