// SPDX-License-Identifier: Apache-2.0
// Metrics and statistics: both formats show the same, histograms add up, corrupt blocks are told
// apart.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/metrics.h"

static void collect_plain(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                          void *subject)
{
    kvs_metric_count(writer, NULL, *(uint64_t *)subject);
}

static void collect_labelled(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                             void *subject)
{
    const struct kvs_label one[KVS_LABELS_MAX] = {{"path", "a\"b\\c\nd"}};
    const struct kvs_label two[KVS_LABELS_MAX] = {{"path", "x"}, {"result", "y"}};
    kvs_metric_value(writer, one, 0.25);
    kvs_metric_value(writer, two, 3);
}

static void collect_nothing(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                            void *subject)
{
}

static void collect_histogram(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                              void *subject)
{
    struct kvs_histogram histogram = {.counts = {[0] = 2, [3] = 5, [KVS_TIME_BOUNDS] = 1},
                                      .sum_ns = UINT64_C(61500000000)};
    kvs_metric_histogram(writer, &histogram);
}

static const struct kvs_metric metrics[] = {
    {"plain_total", KVS_COUNTER, "Plain.", collect_plain, 0},
    {"nothing", KVS_GAUGE, "Not shown.", collect_nothing, 0},
    {"labelled", KVS_GAUGE, "With labels.", collect_labelled, 0},
    {"time_seconds", KVS_HISTOGRAM, "Times.", collect_histogram, 0},
};

static void text_is_prometheus_format(void **state)
{
    static const char expected[] =
        "# HELP plain_total Plain.\n"
        "# TYPE plain_total counter\n"
        "plain_total 9007199254740993\n"
        "# HELP labelled With labels.\n"
        "# TYPE labelled gauge\n"
        "labelled{path=\"a\\\"b\\\\c\\nd\"} 0.25\n"
        "labelled{path=\"x\",result=\"y\"} 3\n"
        "# HELP time_seconds Times.\n"
        "# TYPE time_seconds histogram\n"
        "time_seconds_bucket{le=\"1e-05\"} 2\n"
        "time_seconds_bucket{le=\"2.5e-05\"} 2\n"
        "time_seconds_bucket{le=\"5e-05\"} 2\n"
        "time_seconds_bucket{le=\"0.0001\"} 7\n";
    static const char end[] =
        "time_seconds_bucket{le=\"60\"} 7\n"
        "time_seconds_bucket{le=\"+Inf\"} 8\n"
        "time_seconds_sum 61.5\n"
        "time_seconds_count 8\n";
    uint64_t value = (UINT64_C(1) << 53) + 1; /* no double has it */
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(kvs_metrics_text(metrics, 4, &value, &text, &len), 0);
    assert_int_equal(len, strlen(text));
    assert_memory_equal(text, expected, strlen(expected));
    assert_string_equal(text + len - strlen(end), end);
    free(text);
}

static void json_shows_the_same(void **state)
{
    uint64_t value = (UINT64_C(1) << 53) + 1;
    json_t *json = kvs_metrics_json(metrics, 4, &value);
    assert_non_null(json);
    assert_true(json_integer_value(json_object_get(json, "plain_total")) == (json_int_t)value);
    assert_null(json_object_get(json, "nothing"));
    const json_t *labelled = json_object_get(json, "labelled");
    assert_int_equal(json_array_size(labelled), 2);
    const json_t *second = json_array_get(labelled, 1);
    assert_string_equal(json_string_value(json_object_get(second, "result")), "y");
    assert_true(json_number_value(json_object_get(second, "value")) == 3);
    const json_t *times = json_object_get(json, "time_seconds");
    assert_int_equal(json_integer_value(json_object_get(times, "count")), 8);
    const json_t *buckets = json_object_get(times, "buckets");
    assert_int_equal(json_integer_value(json_object_get(buckets, "0.0001")), 7);
    json_decref(json);
}

static void times_fall_into_their_bucket(void **state)
{
    struct kvs_histogram before, after;
    for (size_t i = 1; i < KVS_TIME_BOUNDS; i++)
        assert_true(kvs_time_bounds[i] > kvs_time_bounds[i - 1]);
    kvs_stats_histogram(KVS_TIMING_SEAL, &before);
    /* Two seconds, and whatever the calls took: into the bucket up to 2.5 s. */
    kvs_stats_time(KVS_TIMING_SEAL, kvs_clock_ns() - UINT64_C(2000000000));
    kvs_stats_histogram(KVS_TIMING_SEAL, &after);
    for (size_t i = 0; i <= KVS_TIME_BOUNDS; i++)
        assert_int_equal(after.counts[i] - before.counts[i],
                         i < KVS_TIME_BOUNDS && kvs_time_bounds[i] == UINT64_C(2500000000));
    assert_in_range(after.sum_ns - before.sum_ns, UINT64_C(2000000000), UINT64_C(2500000000));
}

static void corrupt_blocks_are_counted_once(void **state)
{
    enum kvs_stat events = kvs_stat_corruption(KVS_CAUSE_EMPTY, KVS_ACTION_KEPT);
    assert_int_equal(events, KVS_STAT_corrupt_empty_kept);
    for (uint64_t block = 1; block <= 10; block++) {
        for (int again = 0; again < 3; again++)
            kvs_stats_corrupt(KVS_CAUSE_EMPTY, KVS_ACTION_KEPT,
                              block * UINT64_C(0x9e3779b97f4a7c15));
    }
    assert_int_equal(kvs_stats_get(events), 30);
    assert_int_equal(kvs_stats_get(KVS_STAT_corrupt_blocks_empty), 10);
    assert_int_equal(kvs_stats_get(KVS_STAT_corrupt_blocks_mismatch), 0);
}

static void errors_have_their_number(void **state)
{
    kvs_stats_backing_error(KVS_BACKING_READ, -5);
    kvs_stats_backing_error(KVS_BACKING_READ, -KVS_ERRNO_END);
    kvs_stats_backing_error(KVS_BACKING_READ, 5);
    assert_int_equal(kvs_stats_backing_errors(KVS_BACKING_READ, 5), 1);
    assert_int_equal(kvs_stats_backing_errors(KVS_BACKING_READ, 0), 2);
    assert_int_equal(kvs_stats_backing_errors(KVS_BACKING_WRITE, 5), 0);
}

static void each_counter_has_its_familys_labels(void **state)
{
    static const struct {
        const char *labels[2];
    } families[] = {
#define FAMILY_LABELS(family, label1, label2, help) {{label1, label2}},
        KVS_FAMILIES(FAMILY_LABELS)
#undef FAMILY_LABELS
    };
    for (int stat = 0; stat < KVS_STAT_COUNT; stat++) {
        const struct kvs_stat_description *described = kvs_stats_describe(stat);
        for (int i = 0; i < 2; i++)
            assert_int_equal(families[described->family].labels[i] == NULL,
                             described->values[i] == NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_prometheus_format),
        cmocka_unit_test(json_shows_the_same),
        cmocka_unit_test(times_fall_into_their_bucket),
        cmocka_unit_test(corrupt_blocks_are_counted_once),
        cmocka_unit_test(errors_have_their_number),
        cmocka_unit_test(each_counter_has_its_familys_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
