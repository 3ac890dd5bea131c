// SPDX-License-Identifier: Apache-2.0
// Runs the scrubber in a thread, and tells it what the mount knows.
#include "fuse/scrubber.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/priority.h"
#include "core/stats.h"
#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/file.h"
#include "fuse/refuse.h"

#define RETRY_MS     60000
#define MIN_AGE_PART 100 /* of the window, where that is less than KVS_SCRUB_MIN_AGE */
#define STACK_SIZE   ((size_t)1 << 20)

struct kvs_scrubber {
    struct kvs_fs *fs;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the rest */
    pthread_cond_t changed;
    struct kvs_scrub *scrub; /* NULL: none is open */
    bool is_ending, is_over;
};

/* ---- what the mount knows ---- */

static bool is_loaded(void *context)
{
    struct kvs_scrubber *scrubber = context;

    return atomic_exchange_explicit(&scrubber->fs->has_served, false, memory_order_relaxed);
}

/* Who has the content for himself is changing it. */
static bool is_file_being_written(struct kvs_file *file)
{
    bool is_changed = true;

    if (pthread_rwlock_tryrdlock(&file->content) != 0)
        return true;
    pthread_mutex_lock(&file->block_lock);
    is_changed = file->block.state != KVS_BLOCK_CLEAN || atomic_load(&file->has_unseen_changes);
    pthread_mutex_unlock(&file->block_lock);
    pthread_rwlock_unlock(&file->content);
    return is_changed;
}

static bool is_being_written(void *context, int fd, const struct stat *st)
{
    struct kvs_scrubber *scrubber = context;
    struct kvs_fs *fs = scrubber->fs;
    struct kvs_node *node = kvs_node_find(fs, fd, st);
    struct kvs_file *file = node != NULL ? kvs_file_find(fs, node) : NULL;
    bool is_written = file != NULL && is_file_being_written(file);

    if (file != NULL)
        kvs_file_put(fs, file);
    if (node != NULL)
        kvs_node_unref(fs, node);
    return is_written;
}

/* ---- a corrupt block ---- */

/* The node of a path below the source, looked up once as the kernel would. 0 or -errno. */
static int look_up(struct kvs_fs *fs, const char *path, struct kvs_node **node_ret)
{
    kvs_cleanup_free char *names = strdup(path);
    struct kvs_node *node = kvs_node_of(fs, FUSE_ROOT_ID);
    char *rest = NULL;
    int error = names != NULL ? 0 : -ENOMEM;

    for (char *name = error == 0 ? strtok_r(names, "/", &rest) : NULL; error == 0 && name != NULL;
         name = strtok_r(NULL, "/", &rest)) {
        struct kvs_node *parent = node;
        struct stat st;

        error = kvs_node_lookup(fs, parent, name, &node, &st);
        if (parent != kvs_node_of(fs, FUSE_ROOT_ID))
            kvs_node_forget(fs, parent, 1); /* its child holds it by the name */
    }
    *node_ret = node;
    return error;
}

/* C13, as at open. */
static int treat(void *context, const struct kvs_scrub_block *block)
{
    struct kvs_scrubber *scrubber = context;
    struct kvs_fs *fs = scrubber->fs;
    const struct stat *st = &block->verification->stat;
    struct kvs_node *node = NULL;
    struct kvs_file *file = NULL;
    int error = look_up(fs, block->path, &node);

    if (error != 0)
        return error == -ENOENT ? -EAGAIN : error;
    if (node->dev != st->st_dev || node->ino != st->st_ino)
        error = -EAGAIN;
    if (error == 0)
        error = kvs_file_get(fs, node, &file);
    if (error == 0) {
        error = kvs_refuse(fs, file, block->verification) == -EAGAIN ? -EAGAIN : 0;
        kvs_file_put(fs, file);
    }
    kvs_node_forget(fs, node, 1);
    return error;
}

static void say(const struct kvs_scrub_block *block, enum kvs_log_kind kind, const char *what)
{
    char escaped[1024];

    kvs_log(kind, LOG_WARNING, "scrub: %s: %s",
            kvs_log_escape(block->path, escaped, sizeof(escaped)), what);
}

static void say_error(const struct kvs_scrub_block *block, const char *undone)
{
    char what[128];

    kvs_stats_backing_error(KVS_BACKING_VERIFY, block->error);
    snprintf(what, sizeof(what), "could not be %s: %s", undone, strerror(-block->error));
    say(block, KVS_LOG_BACKING_ERROR, what);
}

/* A corrupt one was told by kvs_refuse(). */
static void report(void *context, const struct kvs_scrub_block *block)
{
    switch (block->outcome) {
    case KVS_SCRUB_TRANSIENT:
        kvs_stats_add(KVS_STAT_transient, 1);
        say(block, KVS_LOG_TRANSIENT, "read wrong once, right the second time");
        break;
    case KVS_SCRUB_UNSTABLE:
        say(block, KVS_LOG_BACKING_ERROR, "reads differently each time: kept");
        break;
    case KVS_SCRUB_ERROR:
        say_error(block, "verified");
        break;
    case KVS_SCRUB_CORRUPT:
        if (block->error != 0)
            say_error(block, "refused");
        break;
    default:
        break;
    }
}

/* ---- the thread ---- */

static struct kvs_scrub_options options_of(const struct kvs_fs *fs)
{
    uint64_t within = fs->options.scrub_within;

    return (struct kvs_scrub_options){
        .within = within,
        .shard = 1,
        .shards = 1,
        .min_age = KVS_MIN(within / MIN_AGE_PART, KVS_SCRUB_MIN_AGE),
        .keeps_no_cursor = fs->options.read_only,
        .sweeps = !fs->options.read_only && fs->options.on_corrupt != KVS_ON_CORRUPT_KEEP,
    };
}

/* 0, -EBUSY, or -errno; what is worth it is said, once. */
static int open_scrub(struct kvs_scrubber *scrubber, int last_error, struct kvs_scrub **scrub_ret)
{
    struct kvs_fs *fs = scrubber->fs;
    const struct kvs_scrub_host host = {
        .context = scrubber,
        .is_being_written = is_being_written,
        .treat = treat,
        .report = report,
        .is_loaded = is_loaded,
    };
    const struct kvs_scrub_options options = options_of(fs);
    enum kvs_cursor_state state = KVS_CURSOR_NEW;
    char owner[KVS_OWNER_SIZE];
    int error = kvs_scrub_open(fs->source_fd, &options, &host, &state, owner, scrub_ret);

    if (error == -EBUSY && error != last_error)
        kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE,
                "%s is being scrubbed already, by %s: tried again from time to time",
                fs->options.source, owner);
    else if (error != 0 && error != last_error)
        kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "%s cannot be scrubbed: %s: tried again from time to time",
                fs->options.source, strerror(-error));
    if (error == 0 && state == KVS_CURSOR_DAMAGED)
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING,
                "the saved position of the scrub of %s is damaged: it begins anew",
                fs->options.source);
    return error;
}

/* Makes it known to the others, unless the end has come. */
static bool publish(struct kvs_scrubber *scrubber, struct kvs_scrub *scrub)
{
    bool goes_on = false;

    pthread_mutex_lock(&scrubber->lock);
    goes_on = !scrubber->is_ending;
    scrubber->scrub = goes_on ? scrub : NULL;
    pthread_mutex_unlock(&scrubber->lock);
    return goes_on;
}

/* Round and round. 0: it was stopped; or -errno. */
static int scrub_rounds(struct kvs_scrub *scrub)
{
    int error = 0;

    while (error == 0) {
        error = kvs_scrub_pass(scrub);
        if (error == 0)
            error = kvs_scrub_rest(scrub);
    }
    return error == -ECANCELED ? 0 : error;
}

static void wait_to_retry(struct kvs_scrubber *scrubber)
{
    struct timespec until = kvs_clock_deadline(RETRY_MS);

    pthread_mutex_lock(&scrubber->lock);
    while (!scrubber->is_ending &&
           pthread_cond_timedwait(&scrubber->changed, &scrubber->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&scrubber->lock);
}

static void *run(void *argument)
{
    struct kvs_scrubber *scrubber = argument;
    int error = 0;
    bool goes_on = true;

    kvs_caller_thread_init();
    pthread_setname_np(pthread_self(), "scrubber");
    kvs_priority_lower();
    while (goes_on) {
        struct kvs_scrub *scrub = NULL;

        error = open_scrub(scrubber, error, &scrub);
        goes_on = publish(scrubber, scrub);
        if (error == 0 && goes_on) {
            error = scrub_rounds(scrub);
            goes_on = publish(scrubber, NULL);
        }
        kvs_scrub_close(scrub);
        if (error != 0 && goes_on)
            wait_to_retry(scrubber);
    }
    pthread_mutex_lock(&scrubber->lock);
    scrubber->is_over = true;
    pthread_cond_broadcast(&scrubber->changed);
    pthread_mutex_unlock(&scrubber->lock);
    return NULL;
}

/* All signals are others' but those that are a bug's. */
static int start_thread(struct kvs_scrubber *scrubber)
{
    static const int not_blocked[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    pthread_attr_t attributes;
    sigset_t blocked, old;
    int error = 0;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(not_blocked) / sizeof(not_blocked[0]); i++)
        sigdelset(&blocked, not_blocked[i]);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    error = -pthread_create(&scrubber->thread, &attributes, run, scrubber);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static void free_scrubber(struct kvs_scrubber *scrubber)
{
    pthread_cond_destroy(&scrubber->changed);
    pthread_mutex_destroy(&scrubber->lock);
    free(scrubber);
}

int kvs_scrubber_start(struct kvs_fs *fs)
{
    struct kvs_scrubber *scrubber = NULL;
    int error = 0;

    if (fs->options.scrub_within == 0)
        return 0;
    scrubber = calloc(1, sizeof(*scrubber));
    if (scrubber == NULL)
        return -ENOMEM;
    scrubber->fs = fs;
    pthread_mutex_init(&scrubber->lock, NULL);
    pthread_cond_init(&scrubber->changed, NULL);
    error = start_thread(scrubber);
    if (error != 0)
        free_scrubber(scrubber);
    else
        atomic_store(&fs->scrubber, scrubber);
    return error;
}

bool kvs_scrubber_end(struct kvs_fs *fs, unsigned limit_ms)
{
    struct kvs_scrubber *scrubber = atomic_load(&fs->scrubber);
    struct timespec until = kvs_clock_deadline(limit_ms);
    bool is_over = false;

    if (scrubber == NULL)
        return true;
    pthread_mutex_lock(&scrubber->lock);
    scrubber->is_ending = true;
    if (scrubber->scrub != NULL)
        kvs_scrub_stop(scrubber->scrub);
    pthread_cond_broadcast(&scrubber->changed);
    while (!scrubber->is_over &&
           pthread_cond_timedwait(&scrubber->changed, &scrubber->lock, &until) == 0)
        ;
    is_over = scrubber->is_over;
    pthread_mutex_unlock(&scrubber->lock);
    if (is_over)
        pthread_join(scrubber->thread, NULL);
    return is_over;
}

void kvs_scrubber_destroy(struct kvs_fs *fs)
{
    struct kvs_scrubber *scrubber = atomic_exchange(&fs->scrubber, NULL);

    if (scrubber != NULL)
        free_scrubber(scrubber);
}

bool kvs_scrubber_progress(struct kvs_fs *fs, struct kvs_scrub_progress *progress_ret)
{
    struct kvs_scrubber *scrubber = atomic_load(&fs->scrubber);
    bool is_running = false;

    if (scrubber == NULL)
        return false;
    pthread_mutex_lock(&scrubber->lock);
    is_running = scrubber->scrub != NULL;
    if (is_running)
        kvs_scrub_progress(scrubber->scrub, progress_ret);
    pthread_mutex_unlock(&scrubber->lock);
    return is_running;
}
