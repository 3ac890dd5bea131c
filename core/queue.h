// SPDX-License-Identifier: Apache-2.0
// Threads that work on what is put into a bounded queue, in that order.
#ifndef KVSEAL_CORE_QUEUE_H
#define KVSEAL_CORE_QUEUE_H

#include <stddef.h>

struct kvs_queue;

/* `work` is called with a copy of each item by one of the `workers` (1...) threads, 0 ...
 * workers-1. The threads take no signals but SIGBUS. */
struct kvs_queue_work {
    void (*work)(void *context, unsigned worker, void *item);
    void *context;
    size_t item_size;
    unsigned workers;
    unsigned capacity; /* items that may wait, 1... */
};

/* 0, -ENOMEM or -EAGAIN (no thread). *work is copied. */
int kvs_queue_create(const struct kvs_queue_work *work, struct kvs_queue **queue_ret);

/* Copies the item in; waits while the queue is full. From any thread but the workers. */
void kvs_queue_put(struct kvs_queue *queue, const void *item);

/* Waits until all items are worked on, and ends the threads. */
void kvs_queue_destroy(struct kvs_queue *queue);

#endif
