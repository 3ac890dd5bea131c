// SPDX-License-Identifier: Apache-2.0
// The coverage that the scrubber reports: what was verified, as it is now, and nothing else.
#include "tests/unit/scrub_tree.h"

/* What was stored after it was checked is not verified any more. */
static void coverage_says_what_was_checked_and_is_unchanged(void **state)
{
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = 100; /* all was stored before */
    progress = pass(&whole, &listener);
    assert_int_equal(progress.bytes_total, 1000 * BLOCKS);
    assert_int_equal(progress.bytes_verified, 1000 * BLOCKS);
    assert_in_range(progress.oldest_age, 0, 20);
    assert_int_equal(progress.window, KVS_SCRUB_WINDOW);
    clock_offset = 200;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000 * BLOCKS);
    assert_in_range(progress.oldest_age, 100, 120);
    kvs_scrub_close(to_stop);
}

static void coverage_ends_with_its_window(void **state)
{
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = 100;
    pass(&whole, &listener);
    clock_offset = 101 + KVS_SCRUB_WINDOW;
    stop_scrub_after(15);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000 * 15);
    assert_in_range(progress.oldest_age, KVS_SCRUB_WINDOW, KVS_SCRUB_WINDOW + 20);
    kvs_scrub_close(to_stop);
}

static void coverage_forgets_what_is_stored_anew(void **state)
{
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = -100; /* all is stored after it is checked */
    pass(&whole, &listener);
    clock_offset = 10;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000);
    assert_in_range(progress.oldest_age, 10, 30); /* since it was stored */
    kvs_scrub_close(to_stop);
}

static void what_was_checked_by_a_clock_ahead_is_not_verified(void **state)
{
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = 100000;
    pass(&whole, &listener);
    clock_offset = 0;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_in_range(progress.bytes_verified, 0, 1000);
    kvs_scrub_close(to_stop);
}

/* ---- what is passed and not verified ---- */

static const struct kvs_scrub_options patient = {.shard = 1, .shards = 1, .min_age = 50};

static void pass_at(time_t offset, const struct kvs_scrub_options *options)
{
    clock_offset = offset;
    pass(options, &listener);
}

static void what_was_fresh_is_not_verified(void **state)
{
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = 10;
    progress = pass(&patient, &listener);
    assert_int_equal(progress.blocks[KVS_SCRUB_FRESH], BLOCKS);
    assert_int_equal(progress.bytes_verified, 0);
    clock_offset = 100; /* as of the next count */
    stop_after = 1;
    to_stop = open_scrub(&patient, &(struct kvs_scrub_host){.report = note_and_stop});
    assert_int_equal(kvs_scrub_pass(to_stop), -ECANCELED);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000); /* the one that it stopped at */
    assert_in_range(progress.oldest_age, 90, 120);   /* since it was stored */
    kvs_scrub_close(to_stop);
}

/* A later run that waits for less must not take for checked what an earlier one left out. */
static void what_an_earlier_run_found_fresh_is_not_verified(void **state)
{
    struct kvs_scrub_progress progress;

    make_tree(1000);
    pass_at(10, &patient);
    clock_offset = 20;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_in_range(progress.bytes_verified, 0, 1000);
    kvs_scrub_close(to_stop);
    pass_at(21, &whole);
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000 * BLOCKS);
    kvs_scrub_close(to_stop);
}

static void what_is_fresh_by_its_mtime_alone_keeps_its_age(void **state)
{
    const struct timespec soon[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = __real_time(NULL) + 300}};
    struct kvs_scrub_progress progress;

    make_tree(1000);
    assert_int_equal(utimensat(dir_fd, "d1/block01", soon, 0), 0);
    clock_offset = 280;
    progress = pass(&patient, &listener);
    assert_int_equal(times_told("d1/block01", KVS_SCRUB_FRESH), 1);
    assert_int_equal(progress.bytes_verified, 1000 * (BLOCKS - 1));
    clock_offset = 500;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000 * (BLOCKS - 1));
    assert_in_range(progress.oldest_age, 220, 250); /* since the first run */
    kvs_scrub_close(to_stop);
}

static bool is_that_one(void *context, int fd, const struct stat *st)
{
    struct stat that;

    return fstatat(dir_fd, "d1/block13", &that, 0) == 0 && that.st_ino == st->st_ino;
}

/* It was checked in an earlier round, and stays as old as it was. */
static void what_is_being_written_keeps_its_age(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .is_being_written = is_that_one};
    struct kvs_scrub_progress progress;

    make_tree(1000);
    pass_at(100, &whole);
    clock_offset = 100 + KVS_SCRUB_WINDOW / 2;
    progress = pass(&whole, &host);
    assert_int_equal(times_told("d1/block13", KVS_SCRUB_BUSY), 1);
    assert_int_equal(progress.bytes_verified, 1000 * BLOCKS);
    clock_offset = 200 + KVS_SCRUB_WINDOW;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000 * (BLOCKS - 1));
    assert_in_range(progress.oldest_age, KVS_SCRUB_WINDOW + 90, KVS_SCRUB_WINDOW + 120);
    kvs_scrub_close(to_stop);
}

/* Another block comes to the first name while the one that had it is looked at. */
static bool replace_first(void *context, int fd, const struct stat *st)
{
    struct stat first;

    assert_int_equal(fstatat(dir_fd, "a", &first, 0), 0);
    if (first.st_ino == st->st_ino) {
        store("b", 2000);
        assert_int_equal(renameat(dir_fd, "b", dir_fd, "a"), 0);
        usleep(1100000); /* a ctime in whole seconds is compared */
    }
    return false;
}

static uint64_t verified_at_start;

static void note_count(void *context, const struct kvs_scrub_block *block)
{
    struct kvs_scrub_progress progress;

    kvs_scrub_progress(to_stop, &progress);
    verified_at_start = told_count == 0 ? progress.bytes_verified : verified_at_start;
    note(context, block);
}

static void what_was_replaced_meanwhile_is_not_verified(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .is_being_written = replace_first};
    const struct kvs_scrub_host counter = {.report = note_count};

    store("a", 1000);
    store("z", 1000);
    usleep(1100000);
    pass(&whole, &host);
    to_stop = open_scrub(&whole, &counter);
    assert_int_equal(kvs_scrub_pass(to_stop), 0);
    assert_int_equal(verified_at_start, 1000);
    kvs_scrub_close(to_stop);
}

static bool is_dir_broken;

int __real_openat64(int at_fd, const char *name, int flags, ...);
int __wrap_openat64(int at_fd, const char *name, int flags, ...);
int __wrap_openat64(int at_fd, const char *name, int flags, ...)
{
    if (!is_dir_broken || strcmp(name, "d1") != 0)
        return __real_openat64(at_fd, name, flags, 0600);
    errno = EIO;
    return -1;
}

/* The count sees it, the round does not. */
static void break_directory(void *context, const struct kvs_scrub_block *block)
{
    is_dir_broken = true;
    note(context, block);
}

static void what_lies_in_a_directory_that_cannot_be_read_keeps_its_age(void **state)
{
    const struct kvs_scrub_host host = {.report = break_directory};
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = 100;
    pass(&whole, &host);
    is_dir_broken = false;
    assert_int_equal(told_count, BLOCKS * 3 / 4 + 1);
    assert_int_equal(times_told("d1", KVS_SCRUB_ERROR), 1);
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    /* The first one behind it cannot be told from what is in it. */
    assert_int_equal(progress.bytes_verified, 1000 * (BLOCKS * 3 / 4 - 1));
    kvs_scrub_close(to_stop);
}

static unsigned calls;

static bool is_every_second(void *context, int fd, const struct stat *st)
{
    return ++calls % 2 == 0;
}

static void every_second_one_may_be_left_out(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .is_being_written = is_every_second};
    struct kvs_scrub_progress progress;

    make_tree(1000);
    clock_offset = 100;
    progress = pass(&whole, &host);
    assert_int_equal(progress.blocks[KVS_SCRUB_BUSY], BLOCKS / 2);
    assert_int_equal(progress.bytes_verified, 1000 * BLOCKS / 2);
    clock_offset = 200;
    stop_scrub_after(1);
    kvs_scrub_progress(to_stop, &progress);
    assert_int_equal(progress.bytes_verified, 1000 * BLOCKS / 2);
    kvs_scrub_close(to_stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(coverage_says_what_was_checked_and_is_unchanged),
        CASE(coverage_ends_with_its_window),
        CASE(coverage_forgets_what_is_stored_anew),
        CASE(what_was_checked_by_a_clock_ahead_is_not_verified),
        CASE(what_was_fresh_is_not_verified),
        CASE(what_an_earlier_run_found_fresh_is_not_verified),
        CASE(what_is_fresh_by_its_mtime_alone_keeps_its_age),
        CASE(what_is_being_written_keeps_its_age),
        CASE(what_was_replaced_meanwhile_is_not_verified),
        CASE(what_lies_in_a_directory_that_cannot_be_read_keeps_its_age),
        CASE(every_second_one_may_be_left_out),
    };

    return cmocka_run_group_tests_name("scrub_coverage", tests, NULL, NULL);
}
