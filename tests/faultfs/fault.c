// SPDX-License-Identifier: Apache-2.0
// The list of faults to come and the counts of calls, as the control file shows them.
#include "tests/faultfs/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAULTS_MAX 64

enum action {
    ACTION_ERRNO,
    ACTION_HANG,
    ACTION_HANG_ALWAYS,
    ACTION_SHORT,
    ACTION_FLIP,
    ACTION_FLIP_ALWAYS,
};

struct fault {
    enum fault_kind kind;
    enum action action;
    uint64_t countdown; /* calls until it is due; 0: it is spent */
    uint64_t argument;
};

static const char *const kind_names[] = {
#define X(name) #name,
    FAULT_KINDS(X)
#undef X
        [FAULT_any] = "any"};

static const char *const action_names[] = {
    [ACTION_ERRNO] = "errno", [ACTION_HANG] = "hang", [ACTION_HANG_ALWAYS] = "hang-always",
    [ACTION_SHORT] = "short", [ACTION_FLIP] = "flip", [ACTION_FLIP_ALWAYS] = "flip-always",
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* All of it is protected by `lock`. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t released;
    uint64_t releases; /* how often `release` was written: a hung call waits for a change */
    uint64_t counts[FAULT_any];
    struct fault faults[FAULTS_MAX];
    size_t fault_count;
    bool hit;
    bool (*is_stopping)(void);
} plan = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

void fault_init(bool (*is_stopping)(void))
{
    plan.is_stopping = is_stopping;
}

static bool is_flip(const struct fault *fault)
{
    return fault->action == ACTION_FLIP || fault->action == ACTION_FLIP_ALWAYS;
}

/* A hung thread cannot be woken by a signal handler, so it looks from time to time. */
static int hang(void)
{
    uint64_t seen = plan.releases;
    while (plan.releases == seen) {
        if (plan.is_stopping())
            return -ENOTCONN;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 500 * 1000 * 1000; // there may be hundreds
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&plan.released, &plan.lock, &until);
    }
    return 0;
}

/* Counts a call for every fault that waits for it. The first that is due, or one that is not. */
static struct fault find_due(enum fault_kind kind)
{
    struct fault due = {.countdown = 1};
    for (size_t i = 0; i < plan.fault_count; i++) {
        struct fault *fault = &plan.faults[i];
        if (is_flip(fault) || fault->countdown == 0 ||
            (fault->kind != kind && fault->kind != FAULT_any))
            continue;
        if (--fault->countdown > 0)
            continue;
        if (due.countdown != 0)
            due = *fault;
        if (fault->action == ACTION_HANG_ALWAYS)
            fault->countdown = 1;
    }
    return due;
}

int fault_enter(enum fault_kind kind, size_t *size)
{
    int err = 0;
    pthread_mutex_lock(&plan.lock);
    plan.counts[kind]++;
    struct fault due = find_due(kind);
    if (due.countdown == 0) {
        plan.hit = true;
        if (due.action == ACTION_ERRNO)
            err = -(int)due.argument;
        else if (due.action == ACTION_HANG || due.action == ACTION_HANG_ALWAYS)
            err = hang();
        else if (due.argument < *size)
            *size = due.argument;
    }
    pthread_mutex_unlock(&plan.lock);
    return err;
}

void fault_flip(char *data, off_t offset, size_t size)
{
    pthread_mutex_lock(&plan.lock);
    for (size_t i = 0; i < plan.fault_count; i++) {
        struct fault *fault = &plan.faults[i];
        uint64_t at = fault->argument - (uint64_t)offset;
        if (!is_flip(fault) || fault->argument < (uint64_t)offset || at >= size ||
            fault->countdown == 0 || --fault->countdown > 0)
            continue;
        data[at] ^= 0x10;
        plan.hit = true;
        if (fault->action == ACTION_FLIP_ALWAYS)
            fault->countdown = 1;
    }
    pthread_mutex_unlock(&plan.lock);
}

static size_t find_name(const char *const *names, size_t count, const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static bool makes_sense(const struct fault *fault, bool has_argument)
{
    bool is_read = fault->kind == FAULT_read;
    switch (fault->action) {
    case ACTION_ERRNO:
        return has_argument && fault->argument > 0 && fault->argument < 4096;
    case ACTION_HANG:
    case ACTION_HANG_ALWAYS:
        return !has_argument;
    case ACTION_SHORT:
        return has_argument && (is_read || fault->kind == FAULT_write);
    default:
        return has_argument && is_read;
    }
}

static int add_fault(const char *kind, uint64_t nth, const char *action, const uint64_t *argument)
{
    size_t kind_index = find_name(kind_names, COUNT_OF(kind_names), kind);
    size_t action_index = find_name(action_names, COUNT_OF(action_names), action);
    if (kind_index == COUNT_OF(kind_names) || action_index == COUNT_OF(action_names) || nth == 0 ||
        plan.fault_count == FAULTS_MAX)
        return -EINVAL;
    struct fault fault = {.kind = (enum fault_kind)kind_index,
                          .action = (enum action)action_index,
                          .countdown = nth,
                          .argument = argument ? *argument : 0};
    if (!makes_sense(&fault, argument != NULL))
        return -EINVAL;
    plan.faults[plan.fault_count++] = fault;
    return 0;
}

static int take_line(const char *line)
{
    char kind[32];
    char action[32];
    uint64_t nth = 0;
    uint64_t argument = 0;
    int words = sscanf(line, "%31s %" SCNu64 " %31s %" SCNu64, kind, &nth, action, &argument);
    if (words >= 3)
        return add_fault(kind, nth, action, words == 4 ? &argument : NULL);
    if (words != 1)
        return -EINVAL;
    if (strcmp(kind, "clear") == 0) {
        plan.fault_count = 0;
        plan.hit = false;
        memset(plan.counts, 0, sizeof(plan.counts));
        return 0;
    }
    if (strcmp(kind, "release") == 0) {
        plan.releases++;
        pthread_cond_broadcast(&plan.released);
        return 0;
    }
    return -EINVAL;
}

int fault_command(const char *text, size_t size)
{
    char *copy = strndup(text, size);
    if (!copy)
        return -ENOMEM;
    int err = 0;
    char *rest = NULL;
    pthread_mutex_lock(&plan.lock);
    for (char *line = strtok_r(copy, "\n", &rest); line && !err; line = strtok_r(NULL, "\n", &rest))
        err = take_line(line);
    pthread_mutex_unlock(&plan.lock);
    free(copy);
    return err;
}

char *fault_report(size_t *size_ret)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size_ret);
    if (!out)
        return NULL;
    pthread_mutex_lock(&plan.lock);
    for (size_t i = 0; i < COUNT_OF(plan.counts); i++)
        fprintf(out, "%s %" PRIu64 "\n", kind_names[i], plan.counts[i]);
    fprintf(out, "hit %d\n", plan.hit);
    pthread_mutex_unlock(&plan.lock);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
