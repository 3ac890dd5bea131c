// SPDX-License-Identifier: Apache-2.0
// A ring of items under a mutex, and its threads.
#include "core/queue.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"

struct worker {
    struct kvs_queue *queue;
    unsigned number;
    pthread_t thread;
};

struct kvs_queue {
    struct kvs_queue_work work;
    pthread_mutex_t lock;
    pthread_cond_t has_items, has_room;
    char *items; /* a ring; protected by the lock, as all below */
    unsigned first, count;
    bool is_ending;
    struct worker *workers; /* not protected: written before and after the threads run */
    unsigned started;
};

static char *item_at(struct kvs_queue *queue, unsigned number)
{
    unsigned place = (queue->first + number) % queue->work.capacity;

    return queue->items + (size_t)place * queue->work.item_size;
}

/* False: there will be no more. */
static bool take(struct kvs_queue *queue, void *item_ret)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && !queue->is_ending)
        pthread_cond_wait(&queue->has_items, &queue->lock);
    bool has_item = queue->count > 0;
    if (has_item) {
        memcpy(item_ret, item_at(queue, 0), queue->work.item_size);
        queue->first = (queue->first + 1) % queue->work.capacity;
        queue->count--;
        /* Not for each item: putting is woken up once, and then fills half of the ring. */
        if (queue->count == queue->work.capacity / 2)
            pthread_cond_broadcast(&queue->has_room);
    }
    pthread_mutex_unlock(&queue->lock);
    return has_item;
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    const struct kvs_queue_work *work = &worker->queue->work;
    /* The thread's own; made before it started, behind the ring. */
    char *item = worker->queue->items + (size_t)(work->capacity + worker->number) * work->item_size;

    while (take(worker->queue, item))
        work->work(work->context, worker->number, item);
    return NULL;
}

static int start_workers(struct kvs_queue *queue)
{
    sigset_t all, old;
    int error = 0;

    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* may be handled: a mapped file that was cut */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 0; error == 0 && i < queue->work.workers; i++) {
        struct worker *worker = &queue->workers[i];
        *worker = (struct worker){.queue = queue, .number = i};
        error = pthread_create(&worker->thread, NULL, run_worker, worker);
        queue->started += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}

int kvs_queue_create(const struct kvs_queue_work *work, struct kvs_queue **queue_ret)
{
    struct kvs_queue *queue = calloc(1, sizeof(*queue));
    size_t items = (size_t)work->capacity + work->workers;

    if (queue == NULL)
        return -ENOMEM;
    queue->work = *work;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->has_items, NULL);
    pthread_cond_init(&queue->has_room, NULL);
    /* Items are aligned as malloc() aligns: item_size is a sizeof. */
    queue->items = calloc(items, work->item_size);
    queue->workers = calloc(work->workers, sizeof(*queue->workers));
    int r = queue->items == NULL || queue->workers == NULL ? -ENOMEM : start_workers(queue);
    if (r < 0) {
        kvs_queue_destroy(queue);
        return r;
    }
    *queue_ret = queue;
    return 0;
}

void kvs_queue_put(struct kvs_queue *queue, const void *item)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count == queue->work.capacity)
        pthread_cond_wait(&queue->has_room, &queue->lock);
    memcpy(item_at(queue, queue->count), item, queue->work.item_size);
    queue->count++;
    pthread_cond_signal(&queue->has_items);
    pthread_mutex_unlock(&queue->lock);
}

void kvs_queue_destroy(struct kvs_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_ending = true;
    pthread_cond_broadcast(&queue->has_items);
    pthread_mutex_unlock(&queue->lock);
    for (unsigned i = 0; i < queue->started; i++)
        pthread_join(queue->workers[i].thread, NULL);
    pthread_cond_destroy(&queue->has_room);
    pthread_cond_destroy(&queue->has_items);
    pthread_mutex_destroy(&queue->lock);
    free(queue->workers);
    free(queue->items);
    free(queue);
}
