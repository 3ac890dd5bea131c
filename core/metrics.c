// SPDX-License-Identifier: Apache-2.0
// Writes metrics in both formats.
#include "core/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct kvs_metric_writer {
    const struct kvs_metric *metric; /* at hand */
    bool has_begun;                  /* it has had a value */
    FILE *text;                      /* NULL: to `json` */
    json_t *json;
};

static const char *const type_words[] = {
    [KVS_COUNTER] = "counter",
    [KVS_GAUGE] = "gauge",
    [KVS_HISTOGRAM] = "histogram",
};

/* A number as both formats have it; JSON's own output is not as short. */
struct number {
    bool is_whole;
    uint64_t whole;
    double value;
};

/* ---- text ---- */

static void begin_text(struct kvs_metric_writer *writer)
{
    const struct kvs_metric *metric = writer->metric;

    if (writer->has_begun)
        return;
    writer->has_begun = true;
    fprintf(writer->text, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
            type_words[metric->type]);
}

static void write_escaped(FILE *text, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            fputs("\\n", text);
        else if (*value == '\\' || *value == '"')
            fprintf(text, "\\%c", *value);
        else
            fputc(*value, text);
    }
}

static void write_text(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                       const struct number *number)
{
    FILE *text = writer->text;
    const char *before = "{";

    begin_text(writer);
    fputs(writer->metric->name, text);
    for (int i = 0; labels != NULL && i < KVS_LABELS_MAX && labels[i].name != NULL; i++) {
        fprintf(text, "%s%s=\"", before, labels[i].name);
        write_escaped(text, labels[i].value);
        fputc('"', text);
        before = ",";
    }
    if (before[0] == ',')
        fputc('}', text);
    if (number->is_whole)
        fprintf(text, " %" PRIu64 "\n", number->whole);
    else
        fprintf(text, " %.15g\n", number->value);
}

static void write_text_histogram(struct kvs_metric_writer *writer,
                                 const struct kvs_histogram *histogram)
{
    const char *name = writer->metric->name;
    uint64_t count = 0;

    begin_text(writer);
    for (size_t i = 0; i < KVS_TIME_BOUNDS; i++) {
        count += histogram->counts[i];
        fprintf(writer->text, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                (double)kvs_time_bounds[i] / 1e9, count);
    }
    count += histogram->counts[KVS_TIME_BOUNDS];
    fprintf(writer->text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    fprintf(writer->text, "%s_sum %.15g\n", name, (double)histogram->sum_ns / 1e9);
    fprintf(writer->text, "%s_count %" PRIu64 "\n", name, count);
}

/* ---- JSON ---- */

static json_t *json_number(const struct number *number)
{
    return number->is_whole ? json_integer((json_int_t)number->whole) : json_real(number->value);
}

static json_t *json_labelled(const struct kvs_label *labels, const struct number *number)
{
    json_t *object = json_object();

    for (int i = 0; i < KVS_LABELS_MAX && labels[i].name != NULL; i++)
        json_object_set_new(object, labels[i].name, json_string(labels[i].value));
    json_object_set_new(object, "value", json_number(number));
    return object;
}

static void write_json(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                       const struct number *number)
{
    const char *name = writer->metric->name;

    if (labels == NULL || labels[0].name == NULL) {
        json_object_set_new(writer->json, name, json_number(number));
        return;
    }
    if (!writer->has_begun)
        json_object_set_new(writer->json, name, json_array());
    writer->has_begun = true;
    json_array_append_new(json_object_get(writer->json, name), json_labelled(labels, number));
}

static void write_json_histogram(struct kvs_metric_writer *writer,
                                 const struct kvs_histogram *histogram)
{
    json_t *object = json_object(), *buckets = json_object();
    uint64_t count = 0;
    char bound[32];

    for (size_t i = 0; i < KVS_TIME_BOUNDS; i++) {
        count += histogram->counts[i];
        snprintf(bound, sizeof(bound), "%g", (double)kvs_time_bounds[i] / 1e9);
        json_object_set_new(buckets, bound, json_integer((json_int_t)count));
    }
    count += histogram->counts[KVS_TIME_BOUNDS];
    json_object_set_new(object, "count", json_integer((json_int_t)count));
    json_object_set_new(object, "sum", json_real((double)histogram->sum_ns / 1e9));
    json_object_set_new(object, "buckets", buckets);
    json_object_set_new(writer->json, writer->metric->name, object);
}

/* ---- both ---- */

static void write_number(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                         const struct number *number)
{
    if (writer->text != NULL)
        write_text(writer, labels, number);
    else
        write_json(writer, labels, number);
}

void kvs_metric_value(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                      double value)
{
    write_number(writer, labels, &(struct number){.value = value});
}

void kvs_metric_count(struct kvs_metric_writer *writer, const struct kvs_label *labels,
                      uint64_t value)
{
    write_number(writer, labels, &(struct number){.is_whole = true, .whole = value});
}

void kvs_metric_histogram(struct kvs_metric_writer *writer, const struct kvs_histogram *histogram)
{
    if (writer->text != NULL)
        write_text_histogram(writer, histogram);
    else
        write_json_histogram(writer, histogram);
}

static void collect_all(struct kvs_metric_writer *writer, const struct kvs_metric *metrics,
                        size_t count, void *subject)
{
    for (size_t i = 0; i < count; i++) {
        writer->metric = &metrics[i];
        writer->has_begun = false;
        metrics[i].collect(writer, &metrics[i], subject);
    }
}

int kvs_metrics_text(const struct kvs_metric *metrics, size_t count, void *subject, char **text_ret,
                     size_t *len_ret)
{
    struct kvs_metric_writer writer = {.text = open_memstream(text_ret, len_ret)};

    if (writer.text == NULL)
        return -ENOMEM;
    collect_all(&writer, metrics, count, subject);
    if (fclose(writer.text) == 0)
        return 0;
    free(*text_ret);
    *text_ret = NULL;
    return -ENOMEM;
}

json_t *kvs_metrics_json(const struct kvs_metric *metrics, size_t count, void *subject)
{
    struct kvs_metric_writer writer = {.json = json_object()};

    if (writer.json != NULL)
        collect_all(&writer, metrics, count, subject);
    return writer.json;
}
