// SPDX-License-Identifier: Apache-2.0
// Direct reads by the kernel's native AIO (io_submit). io_uring would do the same, but the seccomp
// profiles of containers forbid it.
#include "core/piece_reads.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/page_cache.h"
#include "core/util.h"
#include "core/verify.h"

#define MOST_UNDER_WAY 8

/* One read of a file. */
struct reads {
    int fd;
    char *buffer;
    size_t len;
    size_t next; /* the first byte that was not asked for */
    kvs_piece_arrived *arrived;
    void *context;
    int error; /* the first */
    bool ended_early;
};

/* Each thread has a queue of its own, 0 until it needs one. Ends with the thread. */
static _Thread_local aio_context_t queue;
static pthread_key_t queue_key;
static pthread_once_t queue_key_once = PTHREAD_ONCE_INIT;
static bool has_queue_key;

static void end_queue(void *argument)
{
    syscall(SYS_io_destroy, queue);
}

static void make_queue_key(void)
{
    has_queue_key = pthread_key_create(&queue_key, end_queue) == 0;
}

static bool have_queue(void)
{
    if (queue != 0)
        return true;
    pthread_once(&queue_key_once, make_queue_key);
    if (!has_queue_key || syscall(SYS_io_setup, MOST_UNDER_WAY, &queue) != 0)
        return false;
    if (pthread_setspecific(queue_key, &queue) == 0)
        return true;
    end_queue(NULL);
    queue = 0;
    return false;
}

static size_t piece_at(const struct reads *reads, size_t offset)
{
    return KVS_MIN(reads->len - offset, KVS_READ_SIZE);
}

static void note_error(struct reads *reads, int error)
{
    if (reads->error == 0)
        reads->error = error;
}

/* The ordinary way, for what came short, was refused, or found no room in the queue. */
static void read_now(struct reads *reads, size_t offset)
{
    size_t got = 0, len = piece_at(reads, offset);
    int error = kvs_read_range(reads->fd, reads->buffer + offset, offset, len, &got);

    if (error != 0)
        note_error(reads, error);
    else if (got < len)
        reads->ended_early = true;
    else
        reads->arrived(reads->context, offset, len);
}

static void finish(struct reads *reads, size_t offset, int64_t result)
{
    size_t len = piece_at(reads, offset);

    if (result >= 0 && (uint64_t)result >= len)
        reads->arrived(reads->context, offset, len);
    else if (result >= 0 || result == -EINVAL) /* as kvs_read_range() takes it */
        read_now(reads, offset);
    else
        note_error(reads, (int)result);
}

/* Asks for the next pieces, one for each of the requests. Returns how many are under way: fewer
 * only where the queue took no more; those are still to be asked for. */
static size_t ask(struct reads *reads, struct iocb *const *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t offset = reads->next + i * KVS_READ_SIZE;
        *requests[i] = (struct iocb){
            .aio_lio_opcode = IOCB_CMD_PREAD,
            .aio_fildes = (uint32_t)reads->fd,
            .aio_data = (uintptr_t)requests[i],
            .aio_buf = (uintptr_t)(reads->buffer + offset),
            .aio_nbytes = KVS_ALIGN_UP(piece_at(reads, offset), (size_t)KVS_IO_ALIGN),
            .aio_offset = (int64_t)offset,
        };
    }
    long taken = count > 0 ? syscall(SYS_io_submit, queue, (long)count, requests) : 0;
    size_t under_way = taken > 0 ? (size_t)taken : 0;
    reads->next += under_way * KVS_READ_SIZE;
    return under_way;
}

static size_t pieces_left(const struct reads *reads)
{
    if (reads->next >= reads->len || reads->error != 0 || reads->ended_early)
        return 0;
    return (reads->len - reads->next + KVS_READ_SIZE - 1) / KVS_READ_SIZE;
}

/* Waits for at least one. Whatever fails, what is under way writes to the buffer: there is no way
 * out but to wait. */
static size_t wait_for_some(struct io_event *events)
{
    long count = 0;

    do
        count = syscall(SYS_io_getevents, queue, 1L, (long)MOST_UNDER_WAY, events, NULL);
    while (count < 1);
    return (size_t)count;
}

/* `under_way` requests are. What arrived is summed while its request is used again. */
static void go_on(struct reads *reads, size_t under_way)
{
    struct io_event events[MOST_UNDER_WAY];

    while (under_way > 0) {
        size_t count = wait_for_some(events);
        under_way -= count;
        for (size_t i = 0; i < count; i++) {
            struct iocb *request = (struct iocb *)(uintptr_t)events[i].data;
            size_t offset = (size_t)request->aio_offset;
            under_way += ask(reads, &request, KVS_MIN(pieces_left(reads), (size_t)1));
            finish(reads, offset, events[i].res);
        }
    }
}

int kvs_read_pieces(int fd, void *buffer, size_t len, kvs_piece_arrived *arrived, void *context,
                    bool *ended_early_ret)
{
    struct reads reads = {
        .fd = fd, .buffer = buffer, .len = len, .arrived = arrived, .context = context};
    struct iocb requests[MOST_UNDER_WAY];
    struct iocb *all[MOST_UNDER_WAY];

    *ended_early_ret = false;
    /* While a request hangs in FUSE or on the network, a process that has it cannot end. */
    if (!kvs_page_cache_is_local(fd) || !have_queue())
        return -ENOTSUP;
    for (size_t i = 0; i < MOST_UNDER_WAY; i++)
        all[i] = &requests[i];
    size_t half = (pieces_left(&reads) + 1) / 2;
    go_on(&reads, ask(&reads, all, KVS_MIN(half, (size_t)MOST_UNDER_WAY)));
    for (; pieces_left(&reads) > 0; reads.next += KVS_READ_SIZE)
        read_now(&reads, reads.next);
    *ended_early_ret = reads.ended_early;
    return reads.error;
}
