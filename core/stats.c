// SPDX-License-Identifier: Apache-2.0
// The counters and their names.
#include "core/stats.h"

#include <stdatomic.h>

static _Atomic uint64_t counters[KVS_STAT_COUNT];

#define STAT_NAME(name, help) #name,
#define STAT_HELP(name, help) help,
static const char *const names[] = {KVS_STATS(STAT_NAME)};
static const char *const helps[] = {KVS_STATS(STAT_HELP)};

void kvs_stats_add(enum kvs_stat stat, uint64_t amount)
{
    atomic_fetch_add_explicit(&counters[stat], amount, memory_order_relaxed);
}

uint64_t kvs_stats_get(enum kvs_stat stat)
{
    return atomic_load_explicit(&counters[stat], memory_order_relaxed);
}

const char *kvs_stats_name(enum kvs_stat stat)
{
    return names[stat];
}

const char *kvs_stats_help(enum kvs_stat stat)
{
    return helps[stat];
}
