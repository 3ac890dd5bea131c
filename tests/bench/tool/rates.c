// SPDX-License-Identifier: Apache-2.0
// What the tool is measured against: the machine's speed of reading memory, and a device's of
// reading files.
//
//   rates memory THREADS MIB            reads so much memory once, each thread its part
//   rates device THREADS FILE...        reads the files with O_DIRECT, each thread the next one
//   rates drop FILE...                  writes the files' pages and takes them out of the page
//   cache
//
// Prints seconds.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"
#include "core/verify.h"
#include "tests/bench/sums.h"

#define REQUEST      ((size_t)4 << 20)
#define SLICE        ((size_t)4 << 20)
#define MOST_THREADS 64

struct job {
    unsigned char *memory; /* of "memory" */
    size_t slices;
    char **files; /* of "device" */
    atomic_size_t next;
    pthread_barrier_t start;
};

static _Noreturn void fail(const char *what, int error)
{
    fprintf(stderr, "rates: %s: %s\n", what, strerror(error));
    exit(1);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *huge_memory(size_t size)
{
    void *memory = aligned_alloc(KVS_HUGE_PAGE, size);

    if (memory == NULL)
        fail("memory", errno);
    madvise(memory, size, MADV_HUGEPAGE);
    memset(memory, 0x5a, size);
    return memory;
}

static void *read_slices(void *argument)
{
    struct job *job = argument;
    uint64_t sum = 0;

    pthread_barrier_wait(&job->start);
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->slices;)
        sum += read_memory(job->memory + i * SLICE, SLICE);
    __asm__ volatile("" : : "r"(sum)); /* or the compiler finds that nobody needs it */
    return NULL;
}

static void *read_files(void *argument)
{
    struct job *job = argument;
    kvs_cleanup_free void *memory = huge_memory(REQUEST);
    const char *file = NULL;

    pthread_barrier_wait(&job->start);
    while ((file = job->files[atomic_fetch_add(&job->next, 1)]) != NULL) {
        kvs_cleanup_fd int fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
        ssize_t n = 0;

        if (fd < 0)
            fail(file, errno);
        do
            n = read(fd, memory, REQUEST);
        while (n > 0);
        if (n < 0)
            fail(file, errno);
    }
    return NULL;
}

static void time_threads(struct job *job, unsigned count, void *(*run)(void *))
{
    pthread_t threads[MOST_THREADS];

    if (count < 1 || count > MOST_THREADS)
        fail("threads", EINVAL);
    pthread_barrier_init(&job->start, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        int error = pthread_create(&threads[i], NULL, run, job);
        if (error != 0)
            fail("thread", error);
    }
    double start = seconds(); /* before the last of them can begin */
    pthread_barrier_wait(&job->start);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%.6f\n", seconds() - start);
}

static void drop(char **files)
{
    for (; *files != NULL; files++) {
        kvs_cleanup_fd int fd = open(*files, O_RDONLY | O_CLOEXEC);

        if (fd < 0 || fdatasync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
            fail(*files, errno);
    }
}

int main(int argc, char **argv)
{
    struct job job = {0};

    if (argc == 4 && strcmp(argv[1], "memory") == 0) {
        job.slices = ((size_t)atoi(argv[3]) << 20) / SLICE;
        job.memory = huge_memory(job.slices * SLICE);
        time_threads(&job, (unsigned)atoi(argv[2]), read_slices);
        free(job.memory);
    } else if (argc >= 4 && strcmp(argv[1], "device") == 0) {
        /* Threads go one past the end each. */
        char **files = calloc((size_t)argc + MOST_THREADS, sizeof(*files));
        if (files == NULL)
            fail("memory", errno);
        memcpy(files, argv + 3, ((size_t)argc - 3) * sizeof(*files));
        job.files = files;
        time_threads(&job, (unsigned)atoi(argv[2]), read_files);
        free(files);
    } else if (argc >= 3 && strcmp(argv[1], "drop") == 0) {
        drop(argv + 2);
    } else {
        fputs("usage: rates memory THREADS MIB | device THREADS FILE... | drop FILE...\n", stderr);
        return 2;
    }
    return 0;
}
