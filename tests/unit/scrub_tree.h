// SPDX-License-Identifier: Apache-2.0
// What the tests of the scrubber share: a tree of sealed blocks, a round, and what was told of it.
#ifndef KVSEAL_TESTS_UNIT_SCRUB_TREE_H
#define KVSEAL_TESTS_UNIT_SCRUB_TREE_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/record.h"
#include "core/scrub.h"
#include "core/scrub_check.h"
#include "tests/unit/scratch.h"

#define MIB    ((size_t)1 << 20)
#define BLOCKS 60

static char content[4 * MIB];

/* What the scrubber takes for the time. */
static time_t clock_offset;

time_t __real_time(time_t *time_ret);
time_t __wrap_time(time_t *time_ret);
time_t __wrap_time(time_t *time_ret)
{
    return __real_time(time_ret) + clock_offset;
}

/* What the scrubber told: paths and outcomes, in order. */
static struct {
    char path[64];
    enum kvs_scrub_outcome outcome;
    int error;
} told[1000];
static size_t told_count;

static inline void note(void *context, const struct kvs_scrub_block *block)
{
    assert_true(told_count < sizeof(told) / sizeof(told[0]));
    snprintf(told[told_count].path, sizeof(told[0].path), "%s", block->path);
    told[told_count].error = block->error;
    told[told_count++].outcome = block->outcome;
}

static const struct kvs_scrub_options whole = {.shard = 1, .shards = 1};
static const struct kvs_scrub_host listener = {.report = note};

static inline void store(const char *path, size_t size)
{
    int fd = openat(dir_fd, path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), size);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, content, size)), 0);
    close(fd);
}

/* Another byte below the record. */
static inline void spoil(const char *path, off_t offset)
{
    int fd = openat(dir_fd, path, O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "!", 1, offset), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static inline bool is_there(const char *path)
{
    return faccessat(dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline void name_block(char path[64], int i)
{
    snprintf(path, 64, "d%d/block%02d", i % 4, i);
}

static inline void make_tree(size_t size)
{
    char path[64];

    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "d%d", i);
        assert_int_equal(mkdirat(dir_fd, path, 0700), 0);
    }
    for (int i = 0; i < BLOCKS; i++) {
        name_block(path, i);
        store(path, size);
    }
}

static inline struct kvs_scrub *open_scrub(const struct kvs_scrub_options *options,
                                           const struct kvs_scrub_host *host)
{
    enum kvs_cursor_state cursor_state;
    char owner[KVS_OWNER_SIZE];
    struct kvs_scrub *scrub = NULL;

    told_count = 0;
    assert_int_equal(kvs_scrub_open(dir_fd, options, host, &cursor_state, owner, &scrub), 0);
    return scrub;
}

/* One round; what is counted at its end. */
static inline struct kvs_scrub_progress pass(const struct kvs_scrub_options *options,
                                             const struct kvs_scrub_host *host)
{
    struct kvs_scrub_progress progress;
    struct kvs_scrub *scrub = open_scrub(options, host);

    assert_int_equal(kvs_scrub_pass(scrub), 0);
    kvs_scrub_progress(scrub, &progress);
    kvs_scrub_close(scrub);
    return progress;
}

/* How often a path was told with the outcome. */
static inline unsigned times_told(const char *path, enum kvs_scrub_outcome outcome)
{
    unsigned times = 0;

    for (size_t i = 0; i < told_count; i++)
        times += strcmp(told[i].path, path) == 0 && told[i].outcome == outcome;
    return times;
}

static struct kvs_scrub *to_stop;
static size_t stop_after;

static inline void note_and_stop(void *context, const struct kvs_scrub_block *block)
{
    note(context, block);
    if (told_count == stop_after)
        kvs_scrub_stop(to_stop);
}

static inline void stop_scrub_after(size_t blocks)
{
    const struct kvs_scrub_host host = {.report = note_and_stop};

    stop_after = blocks;
    to_stop = open_scrub(&whole, &host);
    assert_int_equal(kvs_scrub_pass(to_stop), -ECANCELED);
    assert_int_equal(told_count, blocks);
}

static inline void stop_and_close_after(size_t blocks)
{
    stop_scrub_after(blocks);
    kvs_scrub_close(to_stop);
}

static inline int set_up(void **state)
{
    clock_offset = 0;
    for (size_t i = 0; i < sizeof(content); i++)
        content[i] = (char)(i * 7 + i / 251);
    return make_scratch() < 0 ? -1 : fchdir(dir_fd);
}

static inline int tear_down(void **state)
{
    return remove_scratch();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
