// SPDX-License-Identifier: Apache-2.0
// kvseal status: what the daemon of a mount says of itself, from the mount's control directory.
//
// A mount whose daemon hangs would hang whoever reads there, beyond any signal. So a child reads,
// and is left alone when it does not answer in time.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/cli/cli.h"
#include "core/format.h"
#include "core/log.h"
#include "core/util.h"

#define PATIENCE_MS   5000
#define MOST_BYTES    ((size_t)1 << 20)
#define WATCH_SECONDS 2

/* ---- reading ---- */

static void send_all(int to, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(to, (const char *)data + done, len - done);
        if (n <= 0)
            _exit(1);
        done += (size_t)n;
    }
}

/* In the child: sends -errno or 0, then the text. Whoever reads our output must not wait for it. */
_Noreturn static void read_in_child(const char *path, int to)
{
    char piece[4096];
    int null = open("/dev/null", O_RDWR);

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, piece, sizeof(piece));
    int error = got < 0 ? -errno : 0;
    send_all(to, &error, sizeof(error));
    for (; got > 0; got = read(fd, piece, sizeof(piece)))
        send_all(to, piece, (size_t)got);
    _exit(0);
}

/* Until the end of the pipe. 0, or -errno; -ETIMEDOUT. */
static int receive(int from, char *text, size_t room, size_t *len_ret)
{
    struct pollfd readable = {.fd = from, .events = POLLIN};

    for (*len_ret = 0; *len_ret < room;) {
        int ready = poll(&readable, 1, PATIENCE_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return ready == 0 ? -ETIMEDOUT : -errno;
        ssize_t n = read(from, text + *len_ret, room - *len_ret);
        if (n <= 0)
            return n == 0 ? 0 : -errno;
        *len_ret += (size_t)n;
    }
    return -EFBIG;
}

/* The file's content in *text_ret, malloc()ed. 0 or -errno. */
static int read_with_patience(const char *path, char **text_ret, size_t *len_ret)
{
    kvs_cleanup_free char *text = malloc(MOST_BYTES);
    int ends[2], error = 0;
    size_t len = 0;

    if (text == NULL || pipe2(ends, O_CLOEXEC) < 0)
        return -ENOMEM;
    pid_t child = fork();
    if (child == 0)
        read_in_child(path, ends[1]);
    close(ends[1]);
    int r = child < 0 ? -errno : receive(ends[0], text, MOST_BYTES, &len);
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, WNOHANG); /* it may hang: then it ends with the mount */
    }
    if (r < 0)
        return r;
    if (len < sizeof(error))
        return -EIO;
    memcpy(&error, text, sizeof(error));
    if (error != 0)
        return error;
    *len_ret = len - sizeof(error);
    memmove(text, text + sizeof(error), *len_ret);
    *text_ret = text;
    text = NULL;
    return 0;
}

static enum kvs_cli_status complain(const char *mountpoint, const char *what)
{
    char escaped[PATH_MAX];

    fprintf(stderr, "kvseal: %s: %s\n", kvs_log_escape(mountpoint, escaped, sizeof(escaped)), what);
    return KVS_CLI_ERROR;
}

static enum kvs_cli_status complain_of(const char *mountpoint, int error)
{
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
        return complain(mountpoint,
                        "is not a kvseal mount; give the directory that kvsealfs "
                        "serves, itself");
    case ENOTCONN:
    case ECONNABORTED:
        return complain(mountpoint,
                        "is a dead mount: its daemon is gone; start kvsealfs again, "
                        "or umount it");
    case ETIMEDOUT:
        return complain(mountpoint, "does not answer: its daemon, or what is below it, hangs");
    default:
        return kvs_cli_complain(mountpoint, "asked", error);
    }
}

/* NULL: said why. */
static json_t *fetch(const char *mountpoint)
{
    kvs_cleanup_free char *path = NULL;
    kvs_cleanup_free char *text = NULL;
    size_t len = 0;

    if (asprintf(&path, "%s/.kvseal/status", mountpoint) < 0) {
        path = NULL;
        complain_of(mountpoint, -ENOMEM);
        return NULL;
    }
    int error = read_with_patience(path, &text, &len);
    if (error != 0) {
        complain_of(mountpoint, error);
        return NULL;
    }
    json_t *status = json_loadb(text, len, 0, NULL);
    if (json_object_get(status, "kvseal") != NULL && json_object_get(status, "metrics") != NULL)
        return status;
    json_decref(status);
    complain_of(mountpoint, -ENOENT); /* a file of somebody else's */
    return NULL;
}

/* ---- showing ---- */

/* The sum of a metric's values, of those with this label when it is given. */
static uint64_t total(const json_t *metrics, const char *name, const char *label, const char *value)
{
    const json_t *metric = json_object_get(metrics, name);
    uint64_t sum = 0;
    const json_t *item;
    size_t i;

    if (!json_is_array(metric))
        return (uint64_t)json_number_value(metric);
    json_array_foreach(metric, i, item)
    {
        const char *own = label != NULL ? json_string_value(json_object_get(item, label)) : NULL;
        if (label == NULL || (own != NULL && strcmp(own, value) == 0))
            sum += (uint64_t)json_integer_value(json_object_get(item, "value"));
    }
    return sum;
}

/* The daemon escapes what a terminal should not get; whoever else made the file may not have. */
static const char *text_of(const json_t *status, const char *key)
{
    const char *text = json_string_value(json_object_get(status, key));

    for (const char *c = text; c != NULL && *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            return "?";
    }
    return text != NULL ? text : "?";
}

static const char *show_bytes(const json_t *metrics, const char *name, char shown[KVS_FORMAT_SIZE])
{
    return kvs_format_size(total(metrics, name, NULL, NULL), shown, KVS_FORMAT_SIZE);
}

static const char *show_seconds(uint64_t seconds, char shown[32])
{
    return kvs_format_duration(seconds, shown, 32);
}

static void show_loads(const json_t *metrics)
{
    const char *name = "kvseal_loads_total";

    printf("loads    %" PRIu64 " verified (%" PRIu64 " passthrough, %" PRIu64 " pinned, %" PRIu64
           " buffer, %" PRIu64 " pieces), %" PRIu64 " unsealed, %" PRIu64 " being written\n",
           total(metrics, name, "result", "verified"), total(metrics, name, "path", "passthrough"),
           total(metrics, name, "path", "pinned"), total(metrics, name, "path", "buffer"),
           total(metrics, name, "path", "pieces"), total(metrics, name, "result", "unsealed"),
           total(metrics, name, "result", "being_written"));
    printf("         %" PRIu64 " corrupt, %" PRIu64 " failed, %" PRIu64 " denied\n",
           total(metrics, name, "result", "corrupt"), total(metrics, name, "result", "failed"),
           total(metrics, name, "result", "denied"));
}

static void show_stores(const json_t *metrics)
{
    const char *name = "kvseal_stores_total";

    printf("stores   %" PRIu64 " sealed (%" PRIu64 " as they arrived, %" PRIu64
           " read back), %" PRIu64 " failed, %" PRIu64 " refused, %" PRIu64
           " differ from the client's sum, %" PRIu64 " too large\n",
           total(metrics, name, "result", "sealed"), total(metrics, name, "path", "arrived"),
           total(metrics, name, "path", "read_back"), total(metrics, name, "result", "failed"),
           total(metrics, name, "result", "refused"), total(metrics, name, "result", "client_sum"),
           total(metrics, "kvseal_not_sealed_too_large_total", NULL, NULL));
}

static void show_trouble(const json_t *metrics)
{
    const char *events = "kvseal_corruption_events_total";

    printf("corrupt  %" PRIu64 " blocks, refused %" PRIu64 " times (%" PRIu64 " removed, %" PRIu64
           " quarantined, %" PRIu64 " kept, %" PRIu64 " could not be removed)\n",
           total(metrics, "kvseal_corrupt_blocks_total", NULL, NULL),
           total(metrics, events, NULL, NULL), total(metrics, events, "action", "removed"),
           total(metrics, events, "action", "quarantined"),
           total(metrics, events, "action", "kept"), total(metrics, events, "action", "failed"));
    printf("below    %" PRIu64 " errors, %" PRIu64 " transient mismatches, %" PRIu64
           " unstable reads\n",
           total(metrics, "kvseal_backing_errors_total", NULL, NULL),
           total(metrics, "kvseal_transient_mismatches_total", NULL, NULL),
           total(metrics, "kvseal_unstable_reads_total", NULL, NULL));
}

/* Only where there is a scrubber. */
static void show_scrub(const json_t *metrics)
{
    double all = (double)total(metrics, "kvseal_scrub_total_bytes", NULL, NULL);
    double verified = (double)total(metrics, "kvseal_scrub_verified_bytes", NULL, NULL);
    char window[32], oldest[32];
    char rate[KVS_FORMAT_SIZE];

    if (json_object_get(metrics, "kvseal_scrub_total_bytes") == NULL)
        return;
    printf(
        "scrub    %.1f %% of bytes verified in the last %s, oldest %s, %s/s, %" PRIu64
        " suspects\n",
        all > 0 ? 100 * verified / all : 100,
        show_seconds(total(metrics, "kvseal_scrub_window_seconds", NULL, NULL), window),
        show_seconds(total(metrics, "kvseal_scrub_oldest_unverified_seconds", NULL, NULL), oldest),
        show_bytes(metrics, "kvseal_scrub_rate_bytes_per_second", rate),
        total(metrics, "kvseal_scrub_suspects", NULL, NULL));
}

static void show_resources(const json_t *metrics)
{
    char buffers[KVS_FORMAT_SIZE], buffers_most[KVS_FORMAT_SIZE], pinned[KVS_FORMAT_SIZE],
        pinned_most[KVS_FORMAT_SIZE], resident[KVS_FORMAT_SIZE];

    printf("memory   buffers %s of %s, pinned %s of %s, resident %s\n",
           show_bytes(metrics, "kvseal_buffer_memory_bytes", buffers),
           show_bytes(metrics, "kvseal_buffer_memory_limit_bytes", buffers_most),
           show_bytes(metrics, "kvseal_pinned_memory_bytes", pinned),
           show_bytes(metrics, "kvseal_pinned_memory_limit_bytes", pinned_most),
           show_bytes(metrics, "process_resident_memory_bytes", resident));
    printf("table    %" PRIu64 " names, %" PRIu64 " open files; %" PRIu64 " of %" PRIu64
           " workers, %" PRIu64 " idle\n",
           total(metrics, "kvseal_known_names", NULL, NULL),
           total(metrics, "kvseal_open_files", NULL, NULL),
           total(metrics, "kvseal_workers", NULL, NULL),
           total(metrics, "kvseal_workers_limit", NULL, NULL),
           total(metrics, "kvseal_workers_idle", NULL, NULL));
}

static void show(const json_t *status)
{
    const json_t *metrics = json_object_get(status, "metrics");
    char up[32];

    printf("%s: %s %s, up %s, pid %d, kvseal %s, libfuse %s\n", text_of(status, "mountpoint"),
           text_of(status, "state"), text_of(status, "source"),
           show_seconds((uint64_t)json_number_value(json_object_get(status, "uptime_seconds")), up),
           (int)json_integer_value(json_object_get(status, "pid")), text_of(status, "kvseal"),
           text_of(status, "libfuse"));
    show_loads(metrics);
    show_stores(metrics);
    show_trouble(metrics);
    show_scrub(metrics);
    show_resources(metrics);
}

static enum kvs_cli_status show_once(const char *mountpoint, bool is_json, bool is_watching)
{
    json_t *status = fetch(mountpoint);

    if (status == NULL)
        return KVS_CLI_ERROR;
    if (is_json) {
        kvs_cli_json_print(status);
    } else {
        if (is_watching && isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout); /* to the top of an empty screen */
        show(status);
        json_decref(status);
    }
    return kvs_cli_finish(KVS_CLI_OK);
}

/* The interval, in seconds. */
static double need_interval(const char *text)
{
    char *end = NULL;
    double seconds = text != NULL ? strtod(text, &end) : WATCH_SECONDS;

    if (text != NULL && (*text == '\0' || strspn(text, "0123456789.") != strlen(text) || *end))
        seconds = 0;
    if (seconds < 0.1 || seconds > 86400)
        kvs_cli_fail_usage(&kvs_cmd_status, "--watch=%s: seconds from 0.1 to 86400 are needed",
                           text);
    return seconds;
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {
        KVS_CLI_HELP, KVS_CLI_JSON, {"watch", optional_argument, NULL, 'w'}, {NULL, 0, NULL, 0}};
    struct kvs_cli_common common = {0};
    double interval = 0;

    while (kvs_cli_next_option(&kvs_cmd_status, &common, argc, argv, options) != -1)
        interval = need_interval(optarg);
    if (argc - optind != 1)
        kvs_cli_fail_usage(&kvs_cmd_status, "one MOUNTPOINT is needed");
    const struct timespec pause = {.tv_sec = (time_t)interval,
                                   .tv_nsec = (long)((interval - (double)(time_t)interval) * 1e9)};
    signal(SIGCHLD, SIG_IGN); /* children that hung are nobody's zombies */
    enum kvs_cli_status status = show_once(argv[optind], common.is_json, interval > 0);
    while (interval > 0 && status == KVS_CLI_OK) {
        nanosleep(&pause, NULL);
        status = show_once(argv[optind], common.is_json, true);
    }
    return status;
}

const struct kvs_cli_command kvs_cmd_status = {
    .name = "status",
    .operands = "[--watch[=SECONDS]] [--json] MOUNTPOINT",
    .summary = "shows what the daemon of a mount says of itself",
    .help = "  --watch[=SECONDS]  shows it again and again (every 2 seconds)\n",
    .run = run,
};
