// SPDX-License-Identifier: Apache-2.0
// Two threads: one counts what there is to do, unless the work does, and one paints.
#include "core/cli/progress.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/format.h"
#include "core/util.h"
#include "core/walk.h"

#define PAINT_MS  200
#define BAR_WIDTH 24
#define LINE_SIZE 128

struct kvs_cli_progress {
    char **operands; /* NULL: `look` counts, and there is no counter */
    void (*look)(void *context, struct kvs_cli_amounts *amounts_ret);
    void *context;
    atomic_ullong done, total;
    atomic_bool is_counted; /* `total` is all */
    atomic_bool is_ending;
    struct timespec start;
    pthread_t counter, painter;
    pthread_mutex_t lock; /* of the condition alone */
    pthread_cond_t ending;
};

/* Of standard output and stderr, and of `is_painted`: is a bar on the last line? */
static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_painted;

static void wipe(void)
{
    if (is_painted)
        fputs("\r\033[K", stderr);
    is_painted = false;
}

void kvs_cli_output_begin(void)
{
    pthread_mutex_lock(&output_lock);
    wipe();
}

void kvs_cli_output_end(void)
{
    /* A line on a terminal, before the bar comes back below it. */
    if (isatty(STDERR_FILENO))
        fflush(stdout);
    pthread_mutex_unlock(&output_lock);
}

/* ---- counting ---- */

static int count(void *context, const struct kvs_walk_entry *entry)
{
    struct kvs_cli_progress *progress = context;

    if (entry->kind == KVS_WALK_FILE)
        atomic_fetch_add(&progress->total, (unsigned long long)entry->stat->st_size);
    return atomic_load(&progress->is_ending);
}

static void *run_counter(void *argument)
{
    struct kvs_cli_progress *progress = argument;
    struct kvs_walk walk = {.visit = count, .context = progress};

    for (char **operand = progress->operands; *operand != NULL; operand++) {
        kvs_cleanup_fd int fd = open(*operand, O_PATH | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
            continue;
        if (S_ISREG(st.st_mode))
            atomic_fetch_add(&progress->total, (unsigned long long)st.st_size);
        else if (S_ISDIR(st.st_mode))
            kvs_walk(fd, &walk);
    }
    atomic_store(&progress->is_counted, true);
    return NULL;
}

/* ---- painting ---- */

static double seconds_since(const struct timespec *start)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

/* "[######......] 50 % of 1.50 GiB" */
static void render_bar(char *line, size_t size, double share, uint64_t total)
{
    char bar[BAR_WIDTH + 1], total_text[KVS_FORMAT_SIZE];

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    snprintf(line, size, "[%s] %3.0f %% of %s", bar, 100 * share,
             kvs_format_size(total, total_text, sizeof(total_text)));
}

static void render(struct kvs_cli_progress *progress, char line[LINE_SIZE])
{
    struct kvs_cli_amounts amounts = {atomic_load(&progress->done), atomic_load(&progress->total)};
    bool is_counted = atomic_load(&progress->is_counted);

    if (progress->look != NULL)
        progress->look(progress->context, &amounts);
    uint64_t done = amounts.done, total = amounts.total;
    double rate = (double)done / KVS_MAX(seconds_since(&progress->start), 0.001);
    char rate_text[KVS_FORMAT_SIZE], done_text[KVS_FORMAT_SIZE], what[LINE_SIZE / 2];

    kvs_format_size((uint64_t)rate, rate_text, sizeof(rate_text));
    if (!is_counted || total == 0) {
        snprintf(line, LINE_SIZE, "%s done, %s/s, still counting",
                 kvs_format_size(done, done_text, sizeof(done_text)), rate_text);
        return;
    }
    render_bar(what, sizeof(what), KVS_MIN((double)done / (double)total, 1.0), total);
    if (rate < 1) {
        snprintf(line, LINE_SIZE, "%s", what);
        return;
    }
    uint64_t left = total > done ? (uint64_t)((double)(total - done) / rate) : 0;
    snprintf(line, LINE_SIZE, "%s, %s/s, %llu:%02llu:%02llu left", what, rate_text,
             (unsigned long long)left / 3600, (unsigned long long)left / 60 % 60,
             (unsigned long long)left % 60);
}

static void paint(struct kvs_cli_progress *progress)
{
    struct winsize window = {0};
    char line[LINE_SIZE];
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1
                      ? window.ws_col
                      : 80;

    render(progress, line);
    pthread_mutex_lock(&output_lock);
    fprintf(stderr, "\r%.*s\033[K", columns - 1, line);
    is_painted = true;
    pthread_mutex_unlock(&output_lock);
}

static void *run_painter(void *argument)
{
    struct kvs_cli_progress *progress = argument;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&progress->lock);
    while (!atomic_load(&progress->is_ending)) {
        until.tv_nsec += PAINT_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&progress->ending, &progress->lock, &until) != 0)
            paint(progress);
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

static void end_painter(struct kvs_cli_progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    atomic_store(&progress->is_ending, true);
    pthread_cond_signal(&progress->ending);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->painter, NULL);
    kvs_cli_output_begin(); /* wipes the bar */
    kvs_cli_output_end();
}

static void destroy(struct kvs_cli_progress *progress)
{
    pthread_cond_destroy(&progress->ending);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
}

/* With the painter running; NULL as of kvs_cli_progress_start(). */
static struct kvs_cli_progress *make_progress(const struct kvs_cli_progress *settings)
{
    struct kvs_cli_progress *progress = NULL;
    pthread_condattr_t monotonic;

    if (!isatty(STDERR_FILENO) || (progress = malloc(sizeof(*progress))) == NULL)
        return NULL;
    *progress = *settings;
    clock_gettime(CLOCK_MONOTONIC, &progress->start);
    pthread_mutex_init(&progress->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->ending, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&progress->painter, NULL, run_painter, progress) == 0)
        return progress;
    destroy(progress);
    return NULL;
}

struct kvs_cli_progress *kvs_cli_progress_start(char **operands)
{
    struct kvs_cli_progress *progress = make_progress(
        &(struct kvs_cli_progress){.operands = operands});

    if (progress == NULL || pthread_create(&progress->counter, NULL, run_counter, progress) == 0)
        return progress;
    end_painter(progress);
    destroy(progress);
    return NULL;
}

struct kvs_cli_progress *kvs_cli_progress_watch(void (*look)(void *context,
                                                             struct kvs_cli_amounts *amounts_ret),
                                                void *context)
{
    return make_progress(
        &(struct kvs_cli_progress){.look = look, .context = context, .is_counted = true});
}

void kvs_cli_progress_add(struct kvs_cli_progress *progress, uint64_t bytes)
{
    if (progress != NULL)
        atomic_fetch_add(&progress->done, bytes);
}

void kvs_cli_progress_end(struct kvs_cli_progress *progress)
{
    if (progress == NULL)
        return;
    end_painter(progress);
    if (progress->operands != NULL)
        pthread_join(progress->counter, NULL);
    destroy(progress);
}
