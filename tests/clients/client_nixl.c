// SPDX-License-Identifier: Apache-2.0
// NIXL's POSIX back end, as SGLang uses it: many requests at once on one file, in place.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"

#define PIECE ((size_t)256 * 1024)
#define DEPTH 16

struct transfer {
    int fd;
    char *block;
    size_t size;
    bool is_write;
};

/* The i-th piece of a batch that starts at `from`: its offset and length; false past the end. */
static bool find_piece(const struct transfer *transfer, size_t from, unsigned i, size_t *offset_ret,
                       size_t *length_ret)
{
    *offset_ret = from + i * PIECE;
    if (*offset_ret >= transfer->size)
        return false;
    *length_ret = KVS_MIN(transfer->size - *offset_ret, PIECE);
    return true;
}

/* ---- libaio ---- */

/* Some are on their way already when one cannot be sent, so io_destroy has to wait for them. */
static int send_aio(io_context_t context, struct iocb *requests, int count)
{
    struct iocb *list[DEPTH];
    for (int i = 0; i < count; i++)
        list[i] = &requests[i];
    int sent = 0;
    while (sent < count) {
        int result = io_submit(context, count - sent, list + sent);
        if (result < 0)
            return result;
        sent += result;
    }
    return 0;
}

static int run_aio_batch(io_context_t context, const struct transfer *transfer, size_t from)
{
    struct iocb requests[DEPTH];
    struct io_event events[DEPTH];
    size_t offset = 0;
    size_t length = 0;
    int count = 0;
    while (count < DEPTH && find_piece(transfer, from, (unsigned)count, &offset, &length)) {
        struct iocb *request = &requests[count++];
        if (transfer->is_write)
            io_prep_pwrite(request, transfer->fd, transfer->block + offset, length,
                           (long long)offset);
        else
            io_prep_pread(request, transfer->fd, transfer->block + offset, length,
                          (long long)offset);
    }
    int err = send_aio(context, requests, count);
    if (err)
        return err;
    int done = io_getevents(context, count, count, events, NULL);
    for (int i = 0; i < done && !err; i++) {
        if ((long)events[i].res < 0)
            err = (int)events[i].res;
    }
    return done < 0 ? done : err;
}

static int transfer_by_aio(const struct transfer *transfer)
{
    io_context_t context = NULL;
    int err = io_setup(DEPTH, &context);
    if (err)
        return err;
    for (size_t from = 0; from < transfer->size && !err; from += DEPTH * PIECE)
        err = run_aio_batch(context, transfer, from);
    io_destroy(context);
    return err;
}

/* ---- io_uring ---- */

#define PATIENCE_SEC 60

/*
 * One ring for the life of the process, as NIXL has it. Not one for each transfer: since early 2026
 * Linux ends its helper threads (io-wq) when a process closes its last ring, and what the next ring
 * sends just then may be left lying without a thread, for ever (seen on 6.18.44, in one of
 * thousands of transfers). NULL: there is no io_uring here.
 */
static struct io_uring *get_ring(void)
{
    static struct io_uring ring;
    static bool is_made;

    if (!is_made)
        is_made = io_uring_queue_init(DEPTH, &ring, 0) == 0;
    return is_made ? &ring : NULL;
}

bool client_has_uring(void)
{
    return get_ring() != NULL;
}

/* The next answer: its result. Nobody can go on without it, since the kernel still has the memory
 * of the request: a lost one ends the program, so that it is seen. */
static int await_answer(struct io_uring *ring)
{
    struct __kernel_timespec patience = {.tv_sec = PATIENCE_SEC};
    struct io_uring_cqe *done = NULL;
    int err = 0;
    do
        err = io_uring_wait_cqe_timeout(ring, &done, &patience);
    while (err == -EINTR);
    if (err) {
        fprintf(stderr, "io_uring gives no answer: %s\n", strerror(-err));
        abort();
    }
    int result = done->res;
    io_uring_cqe_seen(ring, done);
    return result;
}

static int run_uring_batch(struct io_uring *ring, const struct transfer *transfer, size_t from)
{
    size_t offset = 0;
    size_t length = 0;
    unsigned count = 0;
    while (count < DEPTH && find_piece(transfer, from, count, &offset, &length)) {
        struct io_uring_sqe *request = io_uring_get_sqe(ring);
        char *data = transfer->block + offset;
        if (transfer->is_write)
            io_uring_prep_write(request, transfer->fd, data, (unsigned)length, offset);
        else
            io_uring_prep_read(request, transfer->fd, data, (unsigned)length, offset);
        count++;
    }
    int err = 0;
    unsigned sent = 0;
    while (sent < count) {
        int result = io_uring_submit(ring);
        if (result > 0)
            sent += (unsigned)result;
        else if (result != -EINTR && result != -EAGAIN)
            return result ? result : -EIO;
    }
    for (unsigned i = 0; i < count; i++) {
        int result = await_answer(ring);
        if (result < 0)
            err = result;
    }
    return err;
}

static int transfer_by_uring(const struct transfer *transfer)
{
    struct io_uring *ring = get_ring();
    int err = ring ? 0 : -ENOSYS;
    for (size_t from = 0; from < transfer->size && !err; from += DEPTH * PIECE)
        err = run_uring_batch(ring, transfer, from);
    return err;
}

/* ---- both ---- */

static int run_transfer(const char *path, struct transfer *transfer, unsigned flags)
{
    int direct = flags & CLIENT_DIRECT ? O_DIRECT : 0;
    int create = transfer->is_write ? O_CREAT : 0;
    kvs_cleanup_fd int fd = open(path, O_RDWR | create | direct, 0644);
    if (fd < 0)
        return -errno;
    transfer->fd = fd;
    int err = flags & CLIENT_URING ? transfer_by_uring(transfer) : transfer_by_aio(transfer);
    int close_err = client_close(&fd);
    return err ? err : close_err;
}

int client_nixl_store(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (!err)
        err = client_make_parents(path);
    if (err)
        return err;
    kvs_cleanup_free char *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    struct transfer transfer = {.block = block, .size = size, .is_write = true};
    return run_transfer(path, &transfer, flags);
}

int client_nixl_load(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (err)
        return err;
    kvs_cleanup_free char *block = client_make_buffer(size);
    if (!block)
        return -ENOMEM;
    struct transfer transfer = {.block = block, .size = size};
    err = run_transfer(path, &transfer, flags);
    return err ? err : client_check(block, size, 0, seed);
}
