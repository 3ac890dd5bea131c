// SPDX-License-Identifier: Apache-2.0
// Joins writes that follow each other.
#include "fuse/join.h"

#include <sys/uio.h>

#define MAX_JOINED 16 /* requests, so at most 16 MiB */

enum state { WAITING, CHOSEN, DONE, FAILED };

struct kvs_join_write {
    struct kvs_join_write *next;
    pthread_cond_t woken;
    enum state state; /* protected by the join's lock, as is `next` */
    int fd;
    struct iovec data;
    off_t offset;
};

void kvs_join_init(struct kvs_join *join)
{
    pthread_mutex_init(&join->lock, NULL);
}

void kvs_join_destroy(struct kvs_join *join)
{
    pthread_mutex_destroy(&join->lock);
}

static off_t end_of(const struct kvs_join_write *write)
{
    return write->offset + (off_t)write->data.iov_len;
}

static void enqueue(struct kvs_join *join, struct kvs_join_write *write)
{
    struct kvs_join_write **at = &join->first;

    while (*at != NULL && (*at)->offset <= write->offset)
        at = &(*at)->next;
    write->next = *at;
    *at = write;
}

static void dequeue(struct kvs_join *join, struct kvs_join_write *write)
{
    struct kvs_join_write **at = &join->first;

    while (*at != write)
        at = &(*at)->next;
    *at = write->next;
}

/* Takes what follows the chosen write without a gap, through the same descriptor. */
static int take_group(struct kvs_join *join, struct kvs_join_write *chosen,
                      struct kvs_join_write *group[MAX_JOINED])
{
    struct kvs_join_write *next = chosen->next;
    int count = 0;

    dequeue(join, chosen);
    group[count++] = chosen;
    while (next != NULL && count < MAX_JOINED && next->fd == chosen->fd &&
           next->offset == end_of(group[count - 1])) {
        struct kvs_join_write *following = next->next;
        dequeue(join, next);
        group[count++] = next;
        next = following;
    }
    return count;
}

/* Without the lock. How many bytes of the group are in the file. */
static size_t write_group(struct kvs_join_write *const *group, int count)
{
    struct iovec data[MAX_JOINED];

    for (int i = 0; i < count; i++)
        data[i] = group[i]->data;
    ssize_t written = pwritev(group[0]->fd, data, count, group[0]->offset);
    return written > 0 ? (size_t)written : 0;
}

static void tell_group(struct kvs_join_write *const *group, int count, size_t written)
{
    for (int i = 0; i < count; i++) {
        size_t len = group[i]->data.iov_len;
        group[i]->state = written >= len ? DONE : FAILED;
        written = written >= len ? written - len : 0;
        if (i > 0) /* the first is whoever tells */
            pthread_cond_signal(&group[i]->woken);
    }
}

bool kvs_join_write(struct kvs_join *join, int fd, const void *data, size_t len, off_t offset)
{
    struct kvs_join_write *group[MAX_JOINED];
    struct kvs_join_write write = {
        .fd = fd,
        .data = {.iov_base = (void *)data, .iov_len = len},
        .offset = offset,
        .woken = PTHREAD_COND_INITIALIZER,
    };

    pthread_mutex_lock(&join->lock);
    enqueue(join, &write);
    if (!join->is_busy) {
        join->is_busy = true;
        write.state = CHOSEN;
    }
    while (write.state == WAITING)
        pthread_cond_wait(&write.woken, &join->lock);
    if (write.state == CHOSEN) {
        int count = take_group(join, &write, group);
        pthread_mutex_unlock(&join->lock);
        size_t written = write_group(group, count);
        pthread_mutex_lock(&join->lock);
        tell_group(group, count, written);
        if (join->first != NULL) {
            join->first->state = CHOSEN;
            pthread_cond_signal(&join->first->woken);
        } else {
            join->is_busy = false;
        }
    }
    pthread_mutex_unlock(&join->lock);
    pthread_cond_destroy(&write.woken);
    return write.state == DONE;
}
