// SPDX-License-Identifier: Apache-2.0
// Gives the scrubber's progress as metrics.
#include "fuse/metrics_scrub.h"

#include "core/scrub_check.h"
#include "fuse/scrubber.h"

static void give_blocks(struct kvs_metric_writer *writer, const struct kvs_scrub_progress *progress)
{
    for (int outcome = 0; outcome < KVS_SCRUB_OUTCOMES; outcome++) {
        const struct kvs_label labels[KVS_LABELS_MAX] = {
            {"result", kvs_scrub_word((enum kvs_scrub_outcome)outcome)}};
        kvs_metric_count(writer, labels, progress->blocks[outcome]);
    }
}

static uint64_t value_of(const struct kvs_scrub_progress *progress, enum kvs_scrub_metric metric)
{
    switch (metric) {
    case KVS_SCRUB_METRIC_WINDOW:
        return progress->window;
    case KVS_SCRUB_METRIC_TOTAL:
        return progress->bytes_total;
    case KVS_SCRUB_METRIC_VERIFIED:
        return progress->bytes_verified;
    case KVS_SCRUB_METRIC_UNSEALED:
        return progress->bytes_unsealed;
    case KVS_SCRUB_METRIC_OLDEST:
        return progress->oldest_age;
    case KVS_SCRUB_METRIC_RATE:
        return progress->rate;
    case KVS_SCRUB_METRIC_SUSPECTS:
        return progress->suspects;
    case KVS_SCRUB_METRIC_READ:
        return progress->bytes_read;
    case KVS_SCRUB_METRIC_PASSES:
        return progress->passes;
    case KVS_SCRUB_METRIC_BLOCKS:
        break;
    }
    return 0;
}

void kvs_metrics_collect_scrub(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                               void *subject)
{
    struct kvs_scrub_progress progress;

    if (!kvs_scrubber_progress(subject, &progress))
        return;
    if (metric->key == KVS_SCRUB_METRIC_BLOCKS)
        give_blocks(writer, &progress);
    else
        kvs_metric_count(writer, NULL, value_of(&progress, metric->key));
}
