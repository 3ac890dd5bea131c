// SPDX-License-Identifier: Apache-2.0
// Direct reads that are under way side by side: whole, cut, refused, failing, and of shorter files.
#include "core/piece_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/page_cache.h"
#include "core/util.h"
#include "core/verify.h"

#define PIECES 20 /* more than are under way at a time */
#define SIZE   (PIECES * KVS_READ_SIZE)

static char path[4096];
static int fd = -1;
static unsigned char *content, *buffer;
static unsigned arrivals[PIECES];

/* What the kernel is made to say. */
static struct {
    int setup_error;
    long most_taken;  /* by one io_submit; -1: all */
    int submit_error; /* after the first that was taken */
    size_t offset;    /* of the piece whose result is `result` */
    int64_t result;
    bool has_result;
} kernel;
static unsigned long submitted, finished;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

static long submit(long queue, long count, long requests)
{
    if (kernel.submit_error != 0 && submitted > 0) {
        errno = kernel.submit_error;
        return -1;
    }
    if (kernel.most_taken >= 0)
        count = KVS_MIN(count, kernel.most_taken);
    long taken = __real_syscall(SYS_io_submit, queue, count, requests);
    submitted += taken > 0 ? (unsigned long)taken : 0;
    return taken;
}

static void set_results(struct io_event *events, long count)
{
    for (long i = 0; i < count; i++) {
        const struct iocb *request = (const void *)(uintptr_t)events[i].obj;
        if (kernel.has_result && (size_t)request->aio_offset == kernel.offset)
            events[i].res = kernel.result;
    }
    finished += count > 0 ? (unsigned long)count : 0;
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_io_submit)
        return submit(a, b, c);
    if (number == SYS_io_setup && kernel.setup_error != 0) {
        errno = kernel.setup_error;
        return -1;
    }
    long result = __real_syscall(number, a, b, c, d, e, f);
    if (number == SYS_io_getevents)
        set_results((struct io_event *)d, result);
    return result;
}

static void arrived(void *context, size_t offset, size_t len)
{
    const size_t *size = context;

    assert_int_equal(offset % KVS_READ_SIZE, 0);
    assert_int_equal(len, KVS_MIN(*size - offset, KVS_READ_SIZE));
    assert_memory_equal(buffer + offset, content + offset,
                        len); /* when it is said, and not later */
    arrivals[offset / KVS_READ_SIZE]++;
}

static int read_pieces(size_t size, bool *ended_early_ret)
{
    memset(arrivals, 0, sizeof(arrivals));
    memset(buffer, 0, SIZE);
    submitted = finished = 0;
    int error = kvs_read_pieces(fd, buffer, size, arrived, &size, ended_early_ret);
    assert_int_equal(submitted, finished);
    return error;
}

static void assert_all_arrive(size_t size)
{
    bool ended_early = true;

    assert_int_equal(read_pieces(size, &ended_early), 0);
    assert_false(ended_early);
    for (size_t i = 0; i < PIECES; i++)
        assert_int_equal(arrivals[i], i * KVS_READ_SIZE < size);
}

static void c16_every_piece_arrives_once(void **state)
{
    static const size_t sizes[] = {1,
                                   4096,
                                   KVS_READ_SIZE,
                                   KVS_READ_SIZE + 1,
                                   3 * KVS_READ_SIZE + 5000,
                                   16 * KVS_READ_SIZE,
                                   SIZE - 1,
                                   SIZE};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_all_arrive(sizes[i]);
        assert_true(submitted > 0);
    }
}

static void c16_what_came_short_or_was_refused_is_read_again(void **state)
{
    static const int64_t results[] = {0, 4096, KVS_READ_SIZE - 1, -EINVAL};

    kernel.has_result = true;
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        kernel.result = results[i];
        for (kernel.offset = 0; kernel.offset < SIZE; kernel.offset += 19 * KVS_READ_SIZE)
            assert_all_arrive(SIZE);
    }
}

static void c14_an_error_is_passed_on_when_nothing_is_under_way(void **state)
{
    static const int errors[] = {EIO, ESTALE, EBADMSG, ENOMEM};
    bool ended_early = true;

    kernel.has_result = true;
    kernel.offset = 2 * KVS_READ_SIZE;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        kernel.result = -errors[i];
        assert_int_equal(read_pieces(SIZE, &ended_early), -errors[i]);
        assert_false(ended_early);
        assert_int_equal(arrivals[2], 0);
    }
}

static void a_shorter_file_ends_early(void **state)
{
    bool ended_early = false;

    assert_int_equal(ftruncate(fd, 3 * KVS_READ_SIZE + 100), 0);
    assert_int_equal(read_pieces(SIZE, &ended_early), 0);
    assert_true(ended_early);
    assert_int_equal(arrivals[2], 1);
    assert_int_equal(arrivals[3], 0);
    assert_int_equal(pwrite(fd, content, SIZE, 0), SIZE);
}

static void a_queue_that_takes_few_or_no_more_is_enough(void **state)
{
    kernel.most_taken = 3;
    assert_all_arrive(SIZE);
    kernel.submit_error = EAGAIN;
    assert_all_arrive(SIZE);
    assert_int_equal(submitted, 3);
    kernel.most_taken = 0;
    assert_all_arrive(SIZE);
    assert_int_equal(submitted, 0);
}

/* A thread has its queue from its first read on. */
static void *read_without_queue(void *result_ret)
{
    bool ended_early = true;

    *(int *)result_ret = read_pieces(SIZE, &ended_early);
    return NULL;
}

static void where_there_is_no_queue_nothing_is_read(void **state)
{
    static const int errors[] = {EPERM, ENOSYS, EAGAIN};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        pthread_t thread;
        int result = 0;

        kernel.setup_error = errors[i];
        assert_int_equal(pthread_create(&thread, NULL, read_without_queue, &result), 0);
        pthread_join(thread, NULL);
        assert_int_equal(result, -ENOTSUP);
        for (size_t j = 0; j < PIECES; j++)
            assert_int_equal(arrivals[j], 0);
    }
}

static int reset(void **state)
{
    memset(&kernel, 0, sizeof(kernel));
    kernel.most_taken = -1;
    return 0;
}

static int set_up(void **state)
{
    const char *base = getenv("TMPDIR");
    uint32_t seed = 1;

    content = aligned_alloc(KVS_IO_ALIGN, SIZE);
    buffer = aligned_alloc(KVS_IO_ALIGN, SIZE);
    if (content == NULL || buffer == NULL)
        return -1;
    for (size_t i = 0; i < SIZE; i++) {
        seed = seed * 1664525u + 1013904223u;
        content[i] = (unsigned char)(seed >> 24);
    }
    snprintf(path, sizeof(path), "%s/piece-reads-%d", base != NULL ? base : "/tmp", getpid());
    fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    return fd < 0 || pwrite(fd, content, SIZE, 0) == SIZE ? 0 : -1;
}

static int tear_down(void **state)
{
    close(fd);
    unlink(path);
    free(content);
    free(buffer);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(c16_every_piece_arrives_once, reset),
        cmocka_unit_test_setup(c16_what_came_short_or_was_refused_is_read_again, reset),
        cmocka_unit_test_setup(c14_an_error_is_passed_on_when_nothing_is_under_way, reset),
        cmocka_unit_test_setup(a_shorter_file_ends_early, reset),
        cmocka_unit_test_setup(a_queue_that_takes_few_or_no_more_is_enough, reset),
        cmocka_unit_test_setup(where_there_is_no_queue_nothing_is_read, reset),
    };
    bool can_read;

    if (set_up(NULL) != 0)
        return 1;
    can_read = fd >= 0 && kvs_page_cache_is_local(fd);
    if (!can_read)
        print_message("skipped: %s is on no local file system with direct I/O\n", path);
    int failed = can_read ? cmocka_run_group_tests_name("piece_reads", tests, NULL, NULL) : 0;
    tear_down(NULL);
    return failed;
}
