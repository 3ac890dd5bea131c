// SPDX-License-Identifier: Apache-2.0
// The loop: an elastic set of threads, each blocked in read(2) of /dev/fuse with memory of its own.
//
// The kernel hands each request to one waiting reader (an exclusive wait, first come first served),
// so a blocking read is the fastest way to wait and wakes nobody in vain. What cannot be said
// through the device - end, give your memory back - is left in the worker's `orders` and pointed
// out with a signal whose handler does nothing: the read returns EINTR. A signal that comes just
// before the read is lost; the main thread repeats it. It signals receiving workers only, so that
// no system call of an operation is interrupted.
#include "fuse/worker.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/util.h"
#include "core/verify.h"
#include "fuse/buffers.h"
#include "fuse/caller.h"
#include "fuse/ids.h"
#include "fuse/service.h"

#define FIRST_WORKERS  4    /* always there */
#define TICK_MS        2500 /* what is idle for one to two ticks goes */
#define END_TICK_MS    10
#define STALL_MS       500 /* nobody is idle and nobody finishes: requests hang */
#define STACK_SIZE     ((size_t)1 << 20)
#define WAKE_SIGNAL    SIGRTMIN
#define WRITE_HEADER   (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define RECEIVE_SIZE   (WRITE_HEADER + KVS_MAX_REQUEST)
#define SCRATCH_OFFSET KVS_HUGE_PAGE
#define WORKER_MEMORY  (SCRATCH_OFFSET + KVS_SCRATCH_SIZE)

enum order {
    ORDER_TRIM = 1, /* give the pages of your memory back */
    ORDER_END = 2,
};

/* `memory`: a request is received so that the payload of a WRITE begins at its second page, in one
 * huge page: a device takes it in few segments. The scratch area follows in the next ones. */
struct worker {
    struct worker *previous, *next; /* protected by the pool's lock */
    struct pool *pool;
    pthread_t thread;
    char *memory;
    bool is_counted;      /* its memory, in the budget */
    pthread_mutex_t lock; /* while a signal is sent, it stays receiving */
    bool is_receiving;
    atomic_uint orders;
    atomic_uint_fast64_t inode, second_inode; /* of the request that is served; RENAME has two */
    atomic_bool has_served;                   /* since the last tick */
    atomic_bool is_trimmed;
};

struct pool {
    struct kvs_fs *fs;
    int device_fd;
    int wake_fd; /* an eventfd: a worker has ended, or nobody is idle (`is_short`) */
    pthread_attr_t attributes;
    pthread_mutex_t lock;
    struct worker *workers;
    unsigned count;
    atomic_uint idle;       /* receiving, or about to */
    atomic_uint least_idle; /* since the last tick */
    atomic_uint served;     /* requests, of all workers */
    atomic_bool
        is_short; /* there was no room for a worker that was wanted: the main thread knows */
    atomic_int error;
    void (*on_unmount)(void *); /* once, by whoever notices it first */
    void *on_unmount_argument;
    atomic_bool is_unmounted;
};

/* The process's one pool while there is one, for kvs_workers_count() and kvs_workers_serve(). */
static struct pool *current;
static pthread_mutex_t current_lock = PTHREAD_MUTEX_INITIALIZER;

static void set_current(struct pool *pool)
{
    pthread_mutex_lock(&current_lock);
    current = pool;
    pthread_mutex_unlock(&current_lock);
}

struct kvs_workers_count kvs_workers_count(void)
{
    struct kvs_workers_count count = {0};
    pthread_mutex_lock(&current_lock);
    if (current) {
        pthread_mutex_lock(&current->lock);
        count.all = current->count;
        count.idle = KVS_MIN(atomic_load(&current->idle), count.all);
        pthread_mutex_unlock(&current->lock);
    }
    pthread_mutex_unlock(&current_lock);
    return count;
}

static _Thread_local char *scratch;

void *kvs_worker_scratch(void)
{
    return scratch;
}

static void ignore_signal(int number)
{
}

/* All signals are the main thread's, but for the wake-up, and for those that are a bug's. */
static void block_signals(sigset_t *old_ret)
{
    static const int not_blocked[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(not_blocked) / sizeof(not_blocked[0]); i++)
        sigdelset(&blocked, not_blocked[i]);
    sigdelset(&blocked, WAKE_SIGNAL);
    pthread_sigmask(SIG_SETMASK, &blocked, old_ret);
}

static void *run_worker(void *argument);

static void free_worker(struct worker *worker)
{
    if (worker->memory)
        munmap(worker->memory, WORKER_MEMORY);
    if (worker->is_counted)
        kvs_buffers_unreserve(worker->pool->fs->buffers, WORKER_MEMORY);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

static struct worker *make_worker(struct pool *pool, bool must)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return NULL;
    worker->pool = pool;
    pthread_mutex_init(&worker->lock, NULL);
    atomic_init(&worker->is_trimmed, true);
    worker->is_counted = kvs_buffers_reserve(pool->fs->buffers, WORKER_MEMORY);
    if (worker->is_counted || must) {
        worker->memory = kvs_buffers_map(WORKER_MEMORY);
        if (worker->memory &&
            !worker->is_counted) /* beyond the budget: the pages that it touches */
            madvise(worker->memory, WORKER_MEMORY, MADV_NOHUGEPAGE);
        if (worker->memory)
            return worker;
    }
    free_worker(worker);
    return NULL;
}

/* Adds an idle worker; `must`: also where the budget has no room. 0 or -errno; -EAGAIN: as many as
 * there may be. */
static int start_worker(struct pool *pool, bool must)
{
    int error = -EAGAIN;
    pthread_mutex_lock(&pool->lock);
    if (pool->count >= pool->fs->options.threads)
        goto out;
    error = -ENOMEM;
    struct worker *worker = make_worker(pool, must);
    if (!worker)
        goto out;
    atomic_fetch_add(&pool->idle, 1);
    error = -pthread_create(&worker->thread, &pool->attributes, run_worker, worker);
    if (error) {
        atomic_fetch_sub(&pool->idle, 1);
        free_worker(worker);
        goto out;
    }
    worker->next = pool->workers;
    if (worker->next)
        worker->next->previous = worker;
    pool->workers = worker;
    pool->count++;
out:
    pthread_mutex_unlock(&pool->lock);
    return error;
}

/* The main thread may free the pool once the lock is given back. */
static void end_worker(struct worker *worker)
{
    struct pool *pool = worker->pool;
    scratch = NULL;
    pthread_mutex_lock(&pool->lock);
    if (worker->previous)
        worker->previous->next = worker->next;
    else
        pool->workers = worker->next;
    if (worker->next)
        worker->next->previous = worker->previous;
    free_worker(worker);
    pool->count--;
    eventfd_write(pool->wake_fd, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void set_receiving(struct worker *worker, bool is_receiving)
{
    pthread_mutex_lock(&worker->lock);
    worker->is_receiving = is_receiving;
    pthread_mutex_unlock(&worker->lock);
}

/* libfuse's own receive function drops a request that comes after fuse_session_exit: the client
 * would wait in vain for the unmount. Bytes received, or -errno. */
static ssize_t receive(struct worker *worker)
{
    ssize_t len = -EINTR;
    set_receiving(worker, true);
    if (!atomic_load(&worker->orders)) {
        len = read(worker->pool->device_fd, worker->memory + KVS_IO_ALIGN - WRITE_HEADER,
                   RECEIVE_SIZE);
        if (len < 0)
            len = -errno;
    }
    set_receiving(worker, false);
    return len;
}

static bool is_forget(const void *request)
{
    uint32_t opcode = ((const struct fuse_in_header *)request)->opcode;
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
}

/* Makes known which directories the request may hold the locks of. */
static void note_inodes(struct worker *worker, const void *request)
{
    const struct fuse_in_header *header = request;
    const struct fuse_rename_in *rename = (const void *)(header + 1); /* begins as rename2_in */
    bool is_rename = header->opcode == FUSE_RENAME || header->opcode == FUSE_RENAME2;

    atomic_store(&worker->inode, header->nodeid);
    atomic_store(&worker->second_inode, is_rename ? rename->newdir : 0);
}

bool kvs_workers_serve(fuse_ino_t directory)
{
    bool serves = false;

    pthread_mutex_lock(&current_lock);
    if (current) {
        pthread_mutex_lock(&current->lock);
        for (struct worker *worker = current->workers; worker && !serves; worker = worker->next)
            serves = atomic_load(&worker->inode) == directory ||
                     atomic_load(&worker->second_inode) == directory;
        pthread_mutex_unlock(&current->lock);
    }
    pthread_mutex_unlock(&current_lock);
    return serves;
}

/* False: it is answered, as it is about something that went with an earlier daemon. */
static bool resolve_ids(struct pool *pool, void *request)
{
    const struct fuse_in_header *header = request;
    bool is_moot = false;
    int error = kvs_ids_resolve(pool->fs, request, &is_moot);

    if (error != 0 && header->opcode != FUSE_FORGET) {
        struct fuse_out_header answer = {
            .len = sizeof(answer), .error = is_moot ? 0 : error, .unique = header->unique};
        ssize_t ignored = write(pool->device_fd, &answer, sizeof(answer));
        (void)ignored; /* whoever asked was interrupted */
    }
    return error == 0;
}

static void serve(struct worker *worker, size_t len)
{
    struct pool *pool = worker->pool;
    struct fuse_buf request = {.size = len, .mem = worker->memory + KVS_IO_ALIGN - WRITE_HEADER};

    note_inodes(worker, request.mem);
    unsigned idle = atomic_fetch_sub(&pool->idle, 1) - 1;
    if (idle < atomic_load_explicit(&pool->least_idle, memory_order_relaxed))
        atomic_store_explicit(&pool->least_idle, idle, memory_order_relaxed);
    if (idle == 0 && !is_forget(request.mem) && /* FORGET touches memory only and cannot hang */
        start_worker(pool, false) && !atomic_exchange(&pool->is_short, true))
        eventfd_write(pool->wake_fd, 1);
    if (!atomic_load_explicit(&pool->fs->has_served, memory_order_relaxed))
        atomic_store_explicit(&pool->fs->has_served, true, memory_order_relaxed);
    if (!pool->fs->ids || resolve_ids(pool, request.mem))
        fuse_session_process_buf(pool->fs->session, &request);
    atomic_store(&worker->inode, 0);
    atomic_store(&worker->second_inode, 0);
    atomic_fetch_add_explicit(&pool->served, 1, memory_order_relaxed);
    atomic_store_explicit(&worker->is_trimmed, false, memory_order_relaxed);
    atomic_store_explicit(&worker->has_served, true, memory_order_relaxed);
    atomic_fetch_add(&pool->idle, 1);
}

/* What read(2) of /dev/fuse failed with. False: the end. */
static bool goes_on_after(struct pool *pool, int error)
{
    if (error == -EINTR || error == -EAGAIN || error == -ENOENT) /* ENOENT: request interrupted */
        return true;
    if (error == -ENODEV || error == -ECONNABORTED) { /* unmounted, be it this moment */
        if (!atomic_exchange(&pool->is_unmounted, true))
            pool->on_unmount(pool->on_unmount_argument);
    } else {
        atomic_store(&pool->error, error);
        kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "reading requests from the kernel: %s", strerror(-error));
    }
    fuse_session_exit(pool->fs->session);
    return false;
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    kvs_caller_thread_init();
    pthread_setname_np(pthread_self(), "worker");
    scratch = worker->memory + SCRATCH_OFFSET;

    while (!fuse_session_exited(pool->fs->session)) {
        ssize_t len = receive(worker);
        if (len >= (ssize_t)sizeof(struct fuse_in_header))
            serve(worker, (size_t)len);
        else if (!goes_on_after(pool, len < 0 ? (int)len : -EIO))
            break;
        unsigned orders = atomic_exchange(&worker->orders, 0);
        if (orders & ORDER_END)
            break;
        if (orders & ORDER_TRIM) {
            madvise(worker->memory, WORKER_MEMORY, MADV_DONTNEED);
            atomic_store_explicit(&worker->is_trimmed, true, memory_order_relaxed);
        }
    }
    atomic_fetch_sub(&pool->idle, 1);
    end_worker(worker);
    return NULL;
}

/* Callers hold pool->lock, so that the worker is still there. */
static void give_order(struct worker *worker, enum order order)
{
    atomic_fetch_or(&worker->orders, order);
    pthread_mutex_lock(&worker->lock);
    if (worker->is_receiving)
        pthread_kill(worker->thread, WAKE_SIGNAL);
    pthread_mutex_unlock(&worker->lock);
}

/* Ends workers that were not needed since the last tick, and takes the memory of those that had
 * nothing to do. Returns whether the loop takes requests: somebody waits for one, or has finished
 * one since the last tick. */
static bool shrink(struct pool *pool)
{
    bool takes_requests = false;
    pthread_mutex_lock(&pool->lock);
    unsigned idle = atomic_load(&pool->idle);
    unsigned least = KVS_MIN(atomic_exchange(&pool->least_idle, idle), idle);
    unsigned surplus = least > FIRST_WORKERS ? least - FIRST_WORKERS : 0;
    for (struct worker *worker = pool->workers; worker; worker = worker->next) {
        bool has_served = atomic_exchange(&worker->has_served, false);
        bool is_receiving;
        pthread_mutex_lock(&worker->lock);
        is_receiving = worker->is_receiving;
        pthread_mutex_unlock(&worker->lock);
        takes_requests = takes_requests || is_receiving || has_served;
        if (is_receiving && surplus > 0) {
            surplus--;
            give_order(worker, ORDER_END);
        } else if (!has_served && !atomic_load(&worker->is_trimmed)) {
            give_order(worker, ORDER_TRIM);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return takes_requests;
}

static unsigned order_end(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    for (struct worker *worker = pool->workers; worker; worker = worker->next)
        give_order(worker, ORDER_END);
    unsigned count = pool->count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

/* Waits, with the signals of `mask` let in, until a worker has something to say. False: the time
 * was over, or a signal came. */
static bool wait_for_wake(struct pool *pool, int64_t timeout_ms, const sigset_t *mask)
{
    struct pollfd wake = {.fd = pool->wake_fd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                               .tv_nsec = (timeout_ms % 1000) * 1000000};
    if (ppoll(&wake, 1, &timeout, mask) <= 0)
        return false;
    eventfd_t count;
    eventfd_read(pool->wake_fd, &count);
    return true;
}

static unsigned count_workers(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    unsigned count = pool->count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

/* Nobody is idle. Where some still finish, that is load, and requests wait for their turn in the
 * kernel. Where nobody does for a while they hang, and whoever comes next must not wait for them.
 */
static void relieve(struct pool *pool, const sigset_t *mask)
{
    unsigned served = atomic_load(&pool->served);
    if (wait_for_wake(pool, STALL_MS, mask) || atomic_load(&pool->idle) > 0)
        return;
    bool is_stalled = served == atomic_load(&pool->served);
    unsigned wanted = is_stalled ? KVS_MAX(count_workers(pool) / 4, (unsigned)FIRST_WORKERS) : 1;
    while (wanted-- > 0 && start_worker(pool, is_stalled) == 0)
        ;
}

/* Until somebody asks for the end. */
static void supervise(struct pool *pool, const sigset_t *mask)
{
    int64_t next_tick = kvs_clock_ms() + TICK_MS;
    while (!fuse_session_exited(pool->fs->session)) {
        int64_t left = next_tick - kvs_clock_ms();
        atomic_store(&pool->is_short, false); /* before looking: whoever comes later says so */
        if (left <= 0) {
            if (shrink(pool))
                kvs_service_alive();
            next_tick = kvs_clock_ms() + TICK_MS;
        } else if (atomic_load(&pool->idle) == 0) {
            relieve(pool, mask);
        } else {
            wait_for_wake(pool, left, mask);
        }
    }
}

/* Returns how many hang. */
static unsigned end_all(struct pool *pool, int64_t deadline, const sigset_t *mask)
{
    unsigned left = order_end(pool);
    while (left > 0 && kvs_clock_ms() < deadline) {
        wait_for_wake(pool, END_TICK_MS, mask);
        left = order_end(pool);
    }
    return left;
}

/* NULL with errno. */
static struct pool *create_pool(struct kvs_fs *fs)
{
    struct pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pool->wake_fd < 0) {
        free(pool);
        return NULL;
    }
    pool->fs = fs;
    pool->device_fd = fuse_session_fd(fs->session);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_attr_init(&pool->attributes);
    pthread_attr_setdetachstate(&pool->attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&pool->attributes, STACK_SIZE);
    return pool;
}

static void destroy_pool(struct pool *pool)
{
    pthread_attr_destroy(&pool->attributes);
    pthread_mutex_destroy(&pool->lock);
    close(pool->wake_fd);
    free(pool);
}

int kvs_workers_run(struct kvs_fs *fs, void (*on_unmount)(void *), void *argument,
                    unsigned grace_ms, unsigned *left_ms_ret)
{
    struct pool *pool = create_pool(fs);
    if (!pool)
        return -errno;
    pool->on_unmount = on_unmount;
    pool->on_unmount_argument = argument;
    struct sigaction wake = {.sa_handler = ignore_signal}; /* without SA_RESTART */
    sigaction(WAKE_SIGNAL, &wake, NULL);
    set_current(pool);
    sigset_t mask; /* signals come in only while the main thread waits */
    block_signals(&mask);

    int error = 0;
    for (int i = 0; i < FIRST_WORKERS && !error; i++)
        error = start_worker(pool, true);
    if (error)
        fuse_session_exit(fs->session);
    supervise(pool, &mask);
    kvs_service_stopping(grace_ms);
    int64_t deadline = kvs_clock_ms() + grace_ms;
    unsigned hanging = end_all(pool, deadline, &mask);
    *left_ms_ret = (unsigned)KVS_MAX(deadline - kvs_clock_ms(), INT64_C(0));
    if (!error)
        error = atomic_load(&pool->error);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (hanging > 0) { /* they still use the pool; the process is about to exit */
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING,
                "%u requests hang %u ms after the end was asked for, and are given up", hanging,
                grace_ms);
        return -ETIMEDOUT;
    }
    set_current(NULL);
    destroy_pool(pool);
    return error;
}

struct errand {
    struct kvs_fs *fs;
    void (*work)(struct kvs_fs *);
    char *memory;
    atomic_bool is_left; /* by the thread or by who waits for it; the second frees it */
};

static void leave_errand(struct errand *errand)
{
    if (!atomic_exchange(&errand->is_left, true))
        return;
    free(errand->memory);
    free(errand);
}

static void *run_errand(void *argument)
{
    struct errand *errand = argument;
    kvs_caller_thread_init();
    scratch = errand->memory;
    errand->work(errand->fs);
    scratch = NULL;
    leave_errand(errand);
    return NULL;
}

int kvs_worker_run_once(struct kvs_fs *fs, void (*work)(struct kvs_fs *), unsigned limit_ms)
{
    struct errand *errand = malloc(sizeof(*errand));
    if (!errand)
        return -ENOMEM;
    *errand = (struct errand){
        .fs = fs, .work = work, .memory = aligned_alloc(KVS_IO_ALIGN, KVS_SCRATCH_SIZE)};
    pthread_t thread;
    sigset_t mask; /* whoever asks twice for the end must not interrupt the last seals */
    block_signals(&mask);
    int error = errand->memory ? -pthread_create(&thread, NULL, run_errand, errand) : -ENOMEM;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (error) {
        errand->is_left = true;
    } else {
        struct timespec until = kvs_clock_deadline(limit_ms);
        error = -pthread_timedjoin_np(thread, NULL, &until);
    }
    leave_errand(errand);
    return error;
}
