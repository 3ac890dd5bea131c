// SPDX-License-Identifier: Apache-2.0
// Calls one operation from several threads for a while, and takes the time of each call.
#include "tests/bench/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/util.h"

#define MOST_LATENCIES 65536

struct run {
    const struct parallel *work;
    double end; /* set before the barrier lets the threads go */
    atomic_uint_fast64_t next;
    pthread_barrier_t barrier;
};

struct runner {
    struct run *run;
    unsigned number;
    uint64_t ops;
    double last_end;
    struct samples latencies;
};

static void *run_thread(void *argument)
{
    struct runner *runner = argument;
    struct run *run = runner->run;
    const struct parallel *work = run->work;

    pthread_barrier_wait(&run->barrier);
    pthread_barrier_wait(&run->barrier);
    for (double now = 0;; now = runner->last_end) {
        uint64_t number = atomic_fetch_add(&run->next, 1);
        if (work->most_ops != 0 && number >= work->most_ops)
            break;
        now = seconds_now();
        if (number >= work->least_ops && now >= run->end)
            break;
        work->op(work->context, runner->number, number);
        runner->last_end = seconds_now();
        runner->ops++;
        if (runner->latencies.count < MOST_LATENCIES)
            samples_add(&runner->latencies, runner->last_end - now);
    }
    return NULL;
}

static double process_cpu(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void parallel_run(const struct parallel *work, struct parallel_result *result_ret)
{
    struct run run = {.work = work};
    kvs_cleanup_free struct runner *runners = calloc(work->threads, sizeof(*runners));
    kvs_cleanup_free pthread_t *threads = calloc(work->threads, sizeof(*threads));
    if (runners == NULL || threads == NULL)
        die("out of memory");
    pthread_barrier_init(&run.barrier, NULL, work->threads + 1);
    for (unsigned i = 0; i < work->threads; i++) {
        runners[i] = (struct runner){.run = &run, .number = i};
        int err = pthread_create(&threads[i], NULL, run_thread, &runners[i]);
        if (err)
            die("cannot start a thread: %s", strerror(err));
    }
    pthread_barrier_wait(&run.barrier); /* all have started, so none starts while the clock runs */
    *result_ret = (struct parallel_result){.cpu = -process_cpu()};
    double start = seconds_now();
    run.end = start + work->seconds;
    pthread_barrier_wait(&run.barrier);
    for (unsigned i = 0; i < work->threads; i++) {
        pthread_join(threads[i], NULL);
        result_ret->ops += runners[i].ops;
        result_ret->seconds = KVS_MAX(result_ret->seconds, runners[i].last_end - start);
        samples_append(&result_ret->latencies, &runners[i].latencies);
        samples_free(&runners[i].latencies);
    }
    result_ret->cpu += process_cpu();
    result_ret->numbers = run.next;
    pthread_barrier_destroy(&run.barrier);
}
