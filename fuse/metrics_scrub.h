// SPDX-License-Identifier: Apache-2.0
// The metrics of the scrubber inside the daemon, for the table in metrics.c. Where there is none
// (scrub_within is not given) they have no value.
#ifndef KVSEAL_FUSE_METRICS_SCRUB_H
#define KVSEAL_FUSE_METRICS_SCRUB_H

#include "core/metrics.h"

/* metric->key; the subject is struct kvs_fs. */
enum kvs_scrub_metric {
    KVS_SCRUB_METRIC_WINDOW,
    KVS_SCRUB_METRIC_TOTAL,
    KVS_SCRUB_METRIC_VERIFIED,
    KVS_SCRUB_METRIC_UNSEALED,
    KVS_SCRUB_METRIC_OLDEST,
    KVS_SCRUB_METRIC_RATE,
    KVS_SCRUB_METRIC_SUSPECTS,
    KVS_SCRUB_METRIC_READ,
    KVS_SCRUB_METRIC_BLOCKS,
    KVS_SCRUB_METRIC_PASSES,
};
void kvs_metrics_collect_scrub(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                               void *subject);

#endif
