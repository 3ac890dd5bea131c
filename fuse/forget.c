// SPDX-License-Identifier: Apache-2.0
// The thread that asks the kernel to forget, by node or, on older kernels, by name.
#include "fuse/forget.h"

#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/util.h"
#include "fuse/table.h"
#include "fuse/worker.h"

#define BUCKETS_AT_ONCE 256 /* while the table's lock is held */
#define LEAST_REST_MS   10  /* the kernel's answers are on their way */
#define MOST_REST_MS    2000
#define PATIENCE_MS     500 /* for messages that wait for a directory's lock */
#define PAUSE_POLLS     20  /* for a moment without a request in a directory ... */
#define PAUSE_POLL_US   100
#define MOST_ERRANDS    4
#define STOP_MS         2000

/* Newer than the headers of Debian 13, and than libfuse 3.18. */
#define NOTIFY_PRUNE 9
struct prune_message {
    struct fuse_out_header header;
    uint32_t count, padding;
    uint64_t spare;
    uint64_t inodes[KVS_OLD_NAMES_MAX];
};

/* Messages by name, on a thread of their own: they may hang. */
struct errand {
    struct kvs_forgetter *forgetter;
    pthread_t thread;
    bool is_started;
    bool is_over;       /* protected by the forgetter's lock */
    fuse_ino_t hanging; /* the directory that it waits for; 0: none. Forgetter's lock. */
    struct kvs_old_names names;
};

struct kvs_forgetter {
    struct kvs_fs *fs;
    pthread_t thread;
    bool is_ended; /* joined */
    bool by_name;  /* the kernel has no FUSE_NOTIFY_PRUNE */
    pthread_mutex_t lock;
    pthread_cond_t errand_over;
    struct kvs_old_names names; /* the thread's own */
    struct errand errands[MOST_ERRANDS];
};

static void add(struct kvs_fs *fs, const struct kvs_node *node, const struct kvs_name *name,
                struct kvs_old_names *names)
{
    struct kvs_old_name *entry = &names->entries[names->count];
    size_t len = strlen(name->text);

    if (names->count == KVS_OLD_NAMES_MAX || len > NAME_MAX)
        return;
    entry->ino = kvs_node_ino(fs, node);
    entry->parent = kvs_node_ino(fs, name->parent);
    memcpy(entry->text, name->text, len + 1);
    names->count++;
}

/* The hand is over this node. */
static void pass(struct kvs_fs *fs, struct kvs_node *node, bool by_name,
                 struct kvs_old_names *names)
{
    if (node->nlookup == 0 || node->refs > 0 || (by_name && S_ISDIR(node->mode)))
        return;
    if (node->age != KVS_NODE_OLD) {
        node->age = KVS_NODE_OLD;
        return;
    }
    if (names->count == KVS_OLD_NAMES_MAX)
        return;
    for (const struct kvs_name *name = node->names; name; name = name->node_next)
        add(fs, node, name, names);
    node->age = KVS_NODE_ASKED;
}

size_t kvs_forget_pick(struct kvs_fs *fs, size_t buckets, bool by_name, struct kvs_old_names *names)
{
    struct kvs_table *table = fs->table;
    size_t passed = 0;

    pthread_mutex_lock(&table->lock);
    while (passed < buckets && names->count < KVS_OLD_NAMES_MAX) {
        table->hand = (table->hand + 1) & (table->node_buckets - 1); /* it may have grown */
        for (struct kvs_node *node = table->nodes[table->hand]; node; node = node->hash_next)
            pass(fs, node, by_name, names);
        passed++;
    }
    kvs_table_unlock(table);
    return passed;
}

/* 0, or -errno: -EINVAL where the kernel does not know the message. */
static int send_prune(struct kvs_fs *fs, const struct kvs_old_names *names)
{
    struct prune_message message = {.header.error = NOTIFY_PRUNE};

    for (size_t i = 0; i < names->count; i++) {
        if (i == 0 || names->entries[i].ino != names->entries[i - 1].ino)
            message.inodes[message.count++] = names->entries[i].ino;
    }
    message.header.len = (uint32_t)(offsetof(struct prune_message, inodes) +
                                    message.count * sizeof(message.inodes[0]));
    return write(fuse_session_fd(fs->session), &message, message.header.len) < 0 ? -errno : 0;
}

/* Waits for a moment in which no request is under way in the directory. */
static bool is_quiet(struct kvs_fs *fs, fuse_ino_t directory)
{
    for (int i = 0; i < PAUSE_POLLS; i++) {
        if (!kvs_workers_serve(directory))
            return true;
        usleep(PAUSE_POLL_US);
    }
    return false;
}

static void note_directory(struct errand *errand, fuse_ino_t directory)
{
    pthread_mutex_lock(&errand->forgetter->lock);
    errand->hanging = directory;
    pthread_mutex_unlock(&errand->forgetter->lock);
}

static bool hangs_in(struct kvs_forgetter *forgetter, fuse_ino_t directory)
{
    bool hangs = false;

    pthread_mutex_lock(&forgetter->lock);
    for (size_t i = 0; i < MOST_ERRANDS; i++)
        hangs |= forgetter->errands[i].hanging == directory;
    pthread_mutex_unlock(&forgetter->lock);
    return hangs;
}

static void *run_errand(void *argument)
{
    struct errand *errand = argument;
    struct kvs_forgetter *forgetter = errand->forgetter;
    struct kvs_fs *fs = forgetter->fs;

    for (size_t i = 0; i < errand->names.count && !fuse_session_exited(fs->session); i++) {
        const struct kvs_old_name *name = &errand->names.entries[i];
        if (hangs_in(forgetter, name->parent) || !is_quiet(fs, name->parent))
            continue;
        note_directory(errand, name->parent);
        fuse_lowlevel_notify_inval_entry(fs->session, name->parent, name->text, strlen(name->text));
        note_directory(errand, 0);
    }
    pthread_mutex_lock(&forgetter->lock);
    errand->is_over = true;
    pthread_cond_signal(&forgetter->errand_over);
    pthread_mutex_unlock(&forgetter->lock);
    return NULL;
}

/* Waits until the errand is over, and frees its place. False: it hangs. */
static bool end_errand(struct errand *errand, unsigned limit_ms)
{
    struct kvs_forgetter *forgetter = errand->forgetter;
    struct timespec until = kvs_clock_deadline(limit_ms);
    int error = 0;

    if (!errand->is_started)
        return true;
    pthread_mutex_lock(&forgetter->lock);
    while (!errand->is_over && error == 0)
        error = pthread_cond_timedwait(&forgetter->errand_over, &forgetter->lock, &until);
    bool is_over = errand->is_over;
    pthread_mutex_unlock(&forgetter->lock);
    if (is_over) {
        pthread_join(errand->thread, NULL);
        errand->is_started = false;
    }
    return is_over;
}

static struct errand *find_idle_errand(struct kvs_forgetter *forgetter)
{
    for (size_t i = 0; i < MOST_ERRANDS; i++) {
        if (end_errand(&forgetter->errands[i], 0))
            return &forgetter->errands[i];
    }
    return NULL;
}

/* One that hangs holds up nobody: the next batch goes with the next errand. */
static void send_by_name(struct kvs_forgetter *forgetter)
{
    struct errand *errand = find_idle_errand(forgetter);

    if (!errand)
        return;
    errand->names = forgetter->names;
    errand->is_over = false;
    errand->is_started = pthread_create(&errand->thread, NULL, run_errand, errand) == 0;
    end_errand(errand, PATIENCE_MS);
}

/* Asks for about `wanted` names. Two turns of the hand find all that may go. Returns for how many
 * it asked. */
static uint64_t ask(struct kvs_forgetter *forgetter, uint64_t wanted)
{
    struct kvs_fs *fs = forgetter->fs;
    size_t left = 2 * fs->table->node_buckets;
    uint64_t asked = 0;

    while (asked < wanted && left > 0 && !fuse_session_exited(fs->session)) {
        forgetter->names.count = 0;
        while (left > 0 && forgetter->names.count < KVS_MIN(wanted - asked, KVS_OLD_NAMES_MAX))
            left -= kvs_forget_pick(fs, KVS_MIN(left, BUCKETS_AT_ONCE), forgetter->by_name,
                                    &forgetter->names);
        if (forgetter->names.count == 0)
            break;
        if (forgetter->by_name)
            send_by_name(forgetter);
        else
            send_prune(fs, &forgetter->names);
        asked += forgetter->names.count;
    }
    return asked;
}

/* With the table's lock held. */
static void rest(struct kvs_table *table, unsigned ms)
{
    struct timespec until = kvs_clock_deadline(ms);
    int error = 0;

    while (!table->is_ending && error == 0)
        error = pthread_cond_timedwait(&table->ending, &table->lock, &until);
}

/* What the kernel needs it keeps: the less it forgets, the longer the rest. */
static void *watch(void *argument)
{
    struct kvs_forgetter *forgetter = argument;
    struct kvs_table *table = forgetter->fs->table;
    unsigned rest_ms = LEAST_REST_MS;

    pthread_mutex_lock(&table->lock);
    while (!table->is_ending) {
        if (table->name_count <= table->max_names) {
            pthread_cond_wait(&table->crowded, &table->lock);
            continue;
        }
        uint64_t reaped = table->reaped_count;
        uint64_t wanted = table->name_count - table->max_names + table->max_names / 16;
        pthread_mutex_unlock(&table->lock);
        uint64_t asked = ask(forgetter, wanted);
        pthread_mutex_lock(&table->lock);
        rest(table, rest_ms);
        bool was_heard = asked > 0 && table->reaped_count - reaped > asked / 8;
        rest_ms = was_heard ? LEAST_REST_MS : KVS_MIN(2 * rest_ms, MOST_REST_MS);
    }
    pthread_mutex_unlock(&table->lock);
    return NULL;
}

/* Signals are the main thread's. */
static int start_thread(struct kvs_forgetter *forgetter)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = -pthread_create(&forgetter->thread, NULL, watch, forgetter);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

static void destroy(struct kvs_forgetter *forgetter)
{
    pthread_cond_destroy(&forgetter->errand_over);
    pthread_mutex_destroy(&forgetter->lock);
    free(forgetter);
}

int kvs_forget_start(struct kvs_fs *fs)
{
    struct kvs_forgetter *forgetter;

    if (fs->options.max_names == 0)
        return 0;
    forgetter = calloc(1, sizeof(*forgetter));
    if (!forgetter)
        return -ENOMEM;
    forgetter->fs = fs;
    pthread_mutex_init(&forgetter->lock, NULL);
    pthread_cond_init(&forgetter->errand_over, NULL);
    for (size_t i = 0; i < MOST_ERRANDS; i++)
        forgetter->errands[i].forgetter = forgetter;
    forgetter->by_name = fs->options.invalidate == KVS_INVALIDATE_NAMES ||
                         send_prune(fs, &forgetter->names) != 0;

    int error = start_thread(forgetter);
    if (error != 0) {
        destroy(forgetter);
        return error;
    }
    fs->forgetter = forgetter;
    return 0;
}

int kvs_forget_stop(struct kvs_fs *fs)
{
    struct kvs_forgetter *forgetter = fs->forgetter;
    struct timespec until = kvs_clock_deadline(STOP_MS);

    if (!forgetter)
        return 0;
    pthread_mutex_lock(&fs->table->lock);
    fs->table->is_ending = true;
    pthread_cond_broadcast(&fs->table->crowded);
    pthread_cond_broadcast(&fs->table->ending);
    pthread_mutex_unlock(&fs->table->lock);
    if (!forgetter->is_ended && pthread_timedjoin_np(forgetter->thread, NULL, &until) != 0)
        return -ETIMEDOUT;
    forgetter->is_ended = true;
    for (size_t i = 0; i < MOST_ERRANDS; i++) {
        if (!end_errand(&forgetter->errands[i], STOP_MS))
            return -ETIMEDOUT;
    }
    fs->forgetter = NULL;
    destroy(forgetter);
    return 0;
}
