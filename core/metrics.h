// SPDX-License-Identifier: Apache-2.0
// Metrics: one description of each, shown as Prometheus text or as JSON.
//
// Who describes metrics gives a table; each has a function that tells its values, when they are
// asked for, to a writer that knows the format. So what one format shows the other does, too.
#ifndef KVSEAL_CORE_METRICS_H
#define KVSEAL_CORE_METRICS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "core/stats.h"

enum kvs_metric_type {
    KVS_COUNTER,
    KVS_GAUGE,
    KVS_HISTOGRAM,
};

struct kvs_label {
    const char *name;  /* NULL: no label */
    const char *value; /* valid UTF-8 */
};
#define KVS_LABELS_MAX 2

struct kvs_metric_writer;

struct kvs_metric {
    const char *name; /* with unit and "_total", as in kvseal_read_bytes_total */
    enum kvs_metric_type type;
    const char *help; /* one sentence */
    /* Gives each value to the writer: with other labels each, or one without. None: the metric is
     * not shown. `subject` is the caller's own. */
    void (*collect)(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                    void *subject);
    int key; /* for `collect` */
};

/* For `collect`. `labels`: KVS_LABELS_MAX of them, or NULL for none. */
void kvs_metric_value(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                      double value);
void kvs_metric_count(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                      uint64_t value); /* the same, exact beyond 2^53 */
void kvs_metric_histogram(struct kvs_metric_writer *writer, const struct kvs_histogram *histogram);

/* Prometheus's text format, version 0.0.4. *text_ret is malloc()ed and ends in a null that *len_ret
 * does not count. 0 or -ENOMEM. */
int kvs_metrics_text(const struct kvs_metric *metrics, size_t count, void *subject, char **text_ret,
                     size_t *len_ret);

/* An object by metric name: a number; an array of objects {LABEL: VALUE, ..., "value": number}
 * where there are labels; or for a histogram {"count", "sum", "buckets": {UPPER BOUND: how many up
 * to there}}. A new reference, or NULL: no memory. */
json_t *kvs_metrics_json(const struct kvs_metric *metrics, size_t count, void *subject);

#endif
