// SPDX-License-Identifier: Apache-2.0
// Looks at the daemon's metrics, as anybody who sees the mount can.
#ifndef KVSEAL_TESTS_MOUNT_FIXTURE_METRICS_H
#define KVSEAL_TESTS_MOUNT_FIXTURE_METRICS_H

#include "tests/mount/fixture.h"

/* MNT/.kvseal/NAME as it reads now, malloc()ed. */
char *kvt_read_control(struct kvt_env *env, const char *name);

/* The value of a sample ("kvseal_loads_total{path=\"raw\",result=\"unsealed\"}") in Prometheus
 * text; -1 where there is none. */
double kvt_metric_in(const char *text, const char *sample);
double kvt_metric(struct kvt_env *env, const char *sample);

/* By how much a counter grew. */
struct kvt_growth {
    const char *sample;
    double amount;
};

/* From here on the counters are watched; all files are closed first. */
void kvt_watch_metrics(struct kvt_env *env, char **before_ret);
/* Exactly these counters (and counts of histograms) grew since then, by these amounts, and no other
 * one did. Frees `before`. */
void kvt_assert_growth(struct kvt_env *env, char *before, const struct kvt_growth *growth,
                       size_t count);

/* kvt_start(), then kvt_watch_metrics(). */
char *kvt_start_and_watch(struct kvt_env *env, const char *options);

/* kvt_assert_growth() with a list of {sample, amount}. */
#define assert_growth(env, before, ...)                                                            \
    kvt_assert_growth(env, before, (const struct kvt_growth[]){__VA_ARGS__},                       \
                      COUNT_OF(((const struct kvt_growth[]){__VA_ARGS__})))
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Samples. */
#define LOADS(path, result)  "kvseal_loads_total{path=\"" path "\",result=\"" result "\"}"
#define STORES(path, result) "kvseal_stores_total{path=\"" path "\",result=\"" result "\"}"
#define CORRUPT(cause, action)                                                                     \
    "kvseal_corruption_events_total{cause=\"" cause "\",action=\"" action "\"}"
#define CORRUPT_BLOCKS(cause) "kvseal_corrupt_blocks_total{cause=\"" cause "\"}"
#define BACKING(operation, err)                                                                    \
    "kvseal_backing_errors_total{operation=\"" operation "\",errno=\"" err "\"}"
#define OPENED         "kvseal_files_opened_total"
#define CLOSED         "kvseal_files_closed_total"
#define READ_BYTES     "kvseal_read_bytes_total"
#define WRITTEN_BYTES  "kvseal_written_bytes_total"
#define VERIFIED_BYTES "kvseal_verified_bytes_total"
#define OPENS_TIMED    "kvseal_open_duration_seconds_count"
#define VERIFIED_TIMED "kvseal_verify_duration_seconds_count"
#define SEALED_TIMED   "kvseal_seal_duration_seconds_count"

#endif
