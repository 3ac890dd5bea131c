// SPDX-License-Identifier: Apache-2.0
// The table of metrics, with where their values come from; and the status made of them.
#include "fuse/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/metrics.h"
#include "core/util.h"
#include "fuse/buffers.h"
#include "fuse/inode.h"
#include "fuse/metrics_scrub.h"
#include "fuse/pinned.h"
#include "fuse/serve_passthrough.h"
#include "fuse/worker.h"

/* ---- counters and histograms, from core/stats.h ---- */

static const char *const label_names[][2] = {
#define LABEL_NAMES(family, label1, label2, help) {label1, label2},
    KVS_FAMILIES(LABEL_NAMES)
#undef LABEL_NAMES
};

static void collect_family(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                           void *subject)
{
    for (int stat = 0; stat < KVS_STAT_COUNT; stat++) {
        const struct kvs_stat_description *described = kvs_stats_describe(stat);
        if ((int)described->family != metric->key)
            continue;
        const struct kvs_label labels[KVS_LABELS_MAX] = {
            {label_names[metric->key][0], described->values[0]},
            {label_names[metric->key][1], described->values[1]},
        };
        kvs_metric_count(writer, labels, kvs_stats_get(stat));
    }
}

static const char *const backing_words[KVS_BACKING_COUNT] = {
    [KVS_BACKING_VERIFY] = "verify", [KVS_BACKING_SEAL] = "seal", [KVS_BACKING_READ] = "read",
    [KVS_BACKING_WRITE] = "write",   [KVS_BACKING_SYNC] = "sync",
};

/* The first EIO must be seen as a step from 0; other numbers appear when they come up. */
static void collect_backing_errors(struct kvs_metric_writer *writer,
                                   const struct kvs_metric *metric, void *subject)
{
    for (int backing = 0; backing < KVS_BACKING_COUNT; backing++) {
        for (int number = 0; number < KVS_ERRNO_END; number++) {
            uint64_t count = kvs_stats_backing_errors(backing, number);
            const char *word = number > 0 ? strerrorname_np(number) : NULL;
            const struct kvs_label labels[KVS_LABELS_MAX] = {
                {"operation", backing_words[backing]},
                {"errno", word != NULL ? word : "other"},
            };
            if (count > 0 || number == EIO)
                kvs_metric_count(writer, labels, count);
        }
    }
}

static void collect_times(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                          void *subject)
{
    struct kvs_histogram histogram;

    kvs_stats_histogram(metric->key, &histogram);
    kvs_metric_histogram(writer, &histogram);
}

/* ---- gauges ---- */

enum gauge {
    GAUGE_OPEN_FILES,
    GAUGE_INODES,
    GAUGE_NAMES,
    GAUGE_NAMES_LIMIT,
    GAUGE_BUFFER_MEMORY,
    GAUGE_BUFFER_MEMORY_LIMIT,
    GAUGE_PINNED_MEMORY,
    GAUGE_PINNED_MEMORY_LIMIT,
    GAUGE_PASSTHROUGH,
    GAUGE_WORKERS,
    GAUGE_WORKERS_LIMIT,
    GAUGE_WORKERS_IDLE,
    GAUGE_READY,
};

/* The one that is read first is never ahead of the other. */
static uint64_t count_open_files(void)
{
    uint64_t closed = kvs_stats_get(KVS_STAT_files_closed);
    uint64_t opened = kvs_stats_get(KVS_STAT_files_opened);

    return opened > closed ? opened - closed : 0;
}

static uint64_t gauge_of(struct kvs_fs *fs, enum gauge gauge)
{
    uint64_t inodes = 0, names = 0;

    switch (gauge) {
    case GAUGE_OPEN_FILES:
        return count_open_files();
    case GAUGE_INODES:
        kvs_table_count(fs->table, &inodes, &names);
        return inodes;
    case GAUGE_NAMES:
        kvs_table_count(fs->table, &inodes, &names);
        return names;
    case GAUGE_NAMES_LIMIT:
        return fs->options.max_names;
    case GAUGE_BUFFER_MEMORY:
        return kvs_buffers_used(fs->buffers);
    case GAUGE_BUFFER_MEMORY_LIMIT:
        return fs->options.buffer_memory;
    case GAUGE_PINNED_MEMORY:
        return kvs_pins_used(fs->pins);
    case GAUGE_PINNED_MEMORY_LIMIT:
        return fs->options.pinned_memory;
    case GAUGE_PASSTHROUGH:
        return kvs_passthrough_is_on(fs);
    case GAUGE_WORKERS:
        return kvs_workers_count().all;
    case GAUGE_WORKERS_LIMIT:
        return fs->options.threads;
    case GAUGE_WORKERS_IDLE:
        return kvs_workers_count().idle;
    case GAUGE_READY:
        return kvs_status_why_unready(fs) == NULL;
    }
    return 0;
}

static void collect_gauge(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                          void *subject)
{
    kvs_metric_count(writer, NULL, gauge_of(subject, metric->key));
}

static void collect_build(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                          void *subject)
{
    const struct kvs_label labels[KVS_LABELS_MAX] = {
        {"version", KVSEAL_VERSION},
        {"libfuse", fuse_pkgversion()},
    };
    kvs_metric_count(writer, labels, 1);
}

static void collect_mount(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                          void *subject)
{
    struct kvs_fs *fs = subject;
    char source[4096], mountpoint[4096];
    const struct kvs_label labels[KVS_LABELS_MAX] = {
        {"source", kvs_log_escape(fs->options.source, source, sizeof(source))},
        {"mountpoint", kvs_log_escape(fs->mountpoint, mountpoint, sizeof(mountpoint))},
    };
    kvs_metric_count(writer, labels, 1);
}

/* ---- the process; by the names that Prometheus's own libraries use ---- */

static void collect_start(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                          void *subject)
{
    const struct kvs_fs *fs = subject;

    kvs_metric_value(writer, NULL, (double)fs->started.tv_sec + (double)fs->started.tv_nsec / 1e9);
}

static void collect_resident(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                             void *subject)
{
    char line[256]; /* "SIZE RESIDENT SHARED ...", in pages */
    FILE *statm = fopen("/proc/self/statm", "re");

    if (statm == NULL)
        return;
    const char *space = fgets(line, sizeof(line), statm) != NULL ? strchr(line, ' ') : NULL;
    fclose(statm);
    if (space != NULL)
        kvs_metric_count(writer, NULL, strtoull(space, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void collect_descriptors(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                                void *subject)
{
    uint64_t count = 0;
    DIR *dir = opendir("/proc/self/fd");

    if (dir == NULL)
        return;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    kvs_metric_count(writer, NULL, count - 1); /* without that of /proc/self/fd */
}

static void collect_descriptors_limit(struct kvs_metric_writer *writer,
                                      const struct kvs_metric *metric, void *subject)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        kvs_metric_count(writer, NULL, limit.rlim_cur);
}

static void collect_cpu(struct kvs_metric_writer *writer, const struct kvs_metric *metric,
                        void *subject)
{
    struct timespec used;

    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0)
        kvs_metric_value(writer, NULL, (double)used.tv_sec + (double)used.tv_nsec / 1e9);
}

/* ---- the table ---- */

static const struct kvs_metric metrics[] = {
    {"kvseal_build_info", KVS_GAUGE, "1, with what this daemon was built from.", collect_build, 0},
    {"kvseal_mount_info", KVS_GAUGE, "1, with what is served where.", collect_mount, 0},
    {"kvseal_ready", KVS_GAUGE, "1 while the mount takes requests.", collect_gauge, GAUGE_READY},
#define FAMILY(family, label1, label2, help)                                                       \
    {"kvseal_" #family "_total", KVS_COUNTER, help, collect_family, KVS_FAMILY_##family},
    KVS_FAMILIES(FAMILY)
#undef FAMILY
        {"kvseal_backing_errors_total", KVS_COUNTER,
         "Errors of the file system below: no corruption, the file is kept.",
         collect_backing_errors, 0},
    {"kvseal_open_duration_seconds", KVS_HISTOGRAM, "How long opens for reading took.",
     collect_times, KVS_TIMING_OPEN},
    {"kvseal_verify_duration_seconds", KVS_HISTOGRAM,
     "How long it took to read and sum a block that has a record.", collect_times,
     KVS_TIMING_VERIFY},
    {"kvseal_seal_duration_seconds", KVS_HISTOGRAM,
     "How long it took to give a written block its record.", collect_times, KVS_TIMING_SEAL},
    {"kvseal_open_files", KVS_GAUGE, "Regular files that are open.", collect_gauge,
     GAUGE_OPEN_FILES},
    {"kvseal_known_inodes", KVS_GAUGE, "Inodes in the table, as the kernel knows them.",
     collect_gauge, GAUGE_INODES},
    {"kvseal_known_names", KVS_GAUGE, "Names in the table, as the kernel knows them.",
     collect_gauge, GAUGE_NAMES},
    {"kvseal_known_names_limit", KVS_GAUGE, "The most of them that stay: max_names; 0: no limit.",
     collect_gauge, GAUGE_NAMES_LIMIT},
    {"kvseal_buffer_memory_bytes", KVS_GAUGE, "Memory for verified blocks and requests, in use.",
     collect_gauge, GAUGE_BUFFER_MEMORY},
    {"kvseal_buffer_memory_limit_bytes", KVS_GAUGE, "The most of it: buffer_memory.", collect_gauge,
     GAUGE_BUFFER_MEMORY_LIMIT},
    {"kvseal_pinned_memory_bytes", KVS_GAUGE, "Verified pages locked in the page cache.",
     collect_gauge, GAUGE_PINNED_MEMORY},
    {"kvseal_pinned_memory_limit_bytes", KVS_GAUGE, "The most of them: pinned_memory.",
     collect_gauge, GAUGE_PINNED_MEMORY_LIMIT},
    {"kvseal_passthrough_enabled", KVS_GAUGE, "1 where the kernel reads verified pages itself.",
     collect_gauge, GAUGE_PASSTHROUGH},
    {"kvseal_workers", KVS_GAUGE, "Threads that serve requests.", collect_gauge, GAUGE_WORKERS},
    {"kvseal_workers_idle", KVS_GAUGE, "Those of them that wait for one.", collect_gauge,
     GAUGE_WORKERS_IDLE},
    {"kvseal_workers_limit", KVS_GAUGE, "The most of them: threads.", collect_gauge,
     GAUGE_WORKERS_LIMIT},
    {"kvseal_scrub_window_seconds", KVS_GAUGE, "Within this, each block is to be verified once.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_WINDOW},
    {"kvseal_scrub_total_bytes", KVS_GAUGE, "Size of all blocks, as last counted.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_TOTAL},
    {"kvseal_scrub_verified_bytes", KVS_GAUGE, "Of these, what was verified within the window.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_VERIFIED},
    {"kvseal_scrub_unsealed_bytes", KVS_GAUGE, "Of these, what has no record to verify it by.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_UNSEALED},
    {"kvseal_scrub_oldest_unverified_seconds", KVS_GAUGE,
     "For how long the block that was verified longest ago has not been.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_OLDEST},
    {"kvseal_scrub_rate_bytes_per_second", KVS_GAUGE, "What the scrubber aims at now.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_RATE},
    {"kvseal_scrub_suspects", KVS_GAUGE, "Blocks that wait to be looked at again.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_SUSPECTS},
    {"kvseal_scrub_read_bytes_total", KVS_COUNTER, "Bytes that the scrubber read.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_READ},
    {"kvseal_scrub_blocks_total", KVS_COUNTER, "Blocks that it came by, by what it found.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_BLOCKS},
    {"kvseal_scrub_passes_total", KVS_COUNTER, "Rounds through the whole source.",
     kvs_metrics_collect_scrub, KVS_SCRUB_METRIC_PASSES},
    {"process_start_time_seconds", KVS_GAUGE, "When the daemon started, since 1970.", collect_start,
     0},
    {"process_cpu_seconds_total", KVS_COUNTER, "Processor time used.", collect_cpu, 0},
    {"process_resident_memory_bytes", KVS_GAUGE, "Memory in use.", collect_resident, 0},
    {"process_open_fds", KVS_GAUGE, "Open descriptors.", collect_descriptors, 0},
    {"process_max_fds", KVS_GAUGE, "The most of them.", collect_descriptors_limit, 0},
};
#define METRICS_COUNT (sizeof(metrics) / sizeof(metrics[0]))

int kvs_metrics_render(struct kvs_fs *fs, char **text_ret, size_t *len_ret)
{
    return kvs_metrics_text(metrics, METRICS_COUNT, fs, text_ret, len_ret);
}

/* ---- status ---- */

const char *kvs_status_why_unready(struct kvs_fs *fs)
{
    if (!atomic_load(&fs->is_serving))
        return "the mount does not serve yet";
    if (fuse_session_exited(fs->session))
        return "draining: the end was asked for";
    if (kvs_workers_count().idle == 0)
        return "all workers are busy";
    return NULL;
}

static double uptime_of(const struct kvs_fs *fs)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)(now.tv_sec - fs->started.tv_sec) +
           (double)(now.tv_nsec - fs->started.tv_nsec) / 1e9;
}

static int dump(json_t *object, char **text_ret, size_t *len_ret)
{
    *text_ret = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(object);
    if (*text_ret == NULL)
        return -ENOMEM;
    *len_ret = strlen(*text_ret);
    return 0;
}

int kvs_status_render(struct kvs_fs *fs, char **text_ret, size_t *len_ret)
{
    char source[4096], mountpoint[4096];
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:s, s:f, s:o*}", "kvseal", KVSEAL_VERSION, "libfuse",
        fuse_pkgversion(), "source", kvs_log_escape(fs->options.source, source, sizeof(source)),
        "mountpoint", kvs_log_escape(fs->mountpoint, mountpoint, sizeof(mountpoint)), "pid",
        (int)getpid(), "state", fuse_session_exited(fs->session) ? "draining" : "serving",
        "uptime_seconds", uptime_of(fs), "metrics", kvs_metrics_json(metrics, METRICS_COUNT, fs));

    return object != NULL ? dump(object, text_ret, len_ret) : -ENOMEM;
}
