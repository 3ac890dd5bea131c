// SPDX-License-Identifier: Apache-2.0
// The scrubber's pace by the clock.
#include <pthread.h>

#include "core/util.h"
#include "tests/unit/scrub_tree.h"

/* ---- pace ---- */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A busy machine may hold it up: then once more. Too fast it must never be. */
#define TRIES 5

/* 60 blocks of 1 MiB and a bit, in about two seconds. */
static void a_rate_is_kept_within_five_percent(void **state)
{
    const struct kvs_scrub_options options = {.shard = 1, .shards = 1, .rate = 30 * MIB};
    double rate = 0;

    make_tree(MIB + 5000);
    for (int i = 0; i < TRIES && rate < 0.95 * (double)options.rate; i++) {
        double began = now();

        rate = (double)pass(&options, &listener).bytes_read / (now() - began);
        print_message("%.2f MiB/s of 30\n", rate / (double)MIB);
        assert_true(rate < 1.05 * (double)options.rate);
    }
    assert_true(rate >= 0.95 * (double)options.rate);
}

/* Nine tenths of it are planned for. */
static void a_window_is_kept(void **state)
{
    const struct kvs_scrub_options options = {.shard = 1, .shards = 1, .within = 3};
    double took = 3;

    make_tree(100000);
    for (int i = 0; i < TRIES && took >= 2.9; i++) {
        double began = now();

        pass(&options, &listener);
        took = now() - began;
        print_message("%.2f s of 3\n", took);
        assert_true(took > 2.5);
    }
    assert_true(took < 2.9);
}

#define LARGE (64 * MIB)

/* Of zeros, most of which are nowhere. */
static void store_large(const char *path)
{
    kvs_cleanup_free char *zeros = calloc(1, LARGE);
    int fd = openat(dir_fd, path, O_CREAT | O_WRONLY, 0600);

    assert_non_null(zeros);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, LARGE), 0);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, zeros, LARGE)), 0);
    close(fd);
}

/* Nor does it go faster and faster. */
static void a_window_is_kept_within_a_block(void **state)
{
    const struct kvs_scrub_options options = {.shard = 1, .shards = 1, .within = 3};
    double took = 3;

    store_large("large");
    for (int i = 0; i < TRIES && took >= 2.9; i++) {
        double began = now();

        pass(&options, &listener);
        took = now() - began;
        print_message("%.2f s of 3\n", took);
        assert_true(took > 2.5);
    }
    assert_true(took < 2.9);
}

/* When there is nothing else to come. */
static void a_second_reading_keeps_the_window(void **state)
{
    const struct kvs_scrub_options options = {.shard = 1, .shards = 1, .within = 3};
    double began = now();

    store("a", 3 * MIB);
    spoil("a", 5);
    assert_int_equal(pass(&options, &listener).blocks[KVS_SCRUB_CORRUPT], 1);
    assert_true(now() - began < 10);
}

static struct kvs_scrub *watched;
static uint64_t seen[2 * LARGE / MIB], seen_total;
static size_t seen_count;

static bool watch(void *context)
{
    struct kvs_scrub_progress progress;

    kvs_scrub_progress(watched, &progress);
    if (seen_count > 0)
        assert_int_equal(progress.pass_bytes + progress.pass_ahead, seen_total);
    seen_total = progress.pass_bytes + progress.pass_ahead;
    if (seen_count < sizeof(seen) / sizeof(*seen))
        seen[seen_count++] = progress.pass_bytes;
    return false;
}

/* Also in one that is read twice. */
static void progress_is_seen_within_a_block(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .is_loaded = watch};
    struct kvs_scrub_progress progress;

    store_large("large");
    store("small", MIB);
    spoil("large", 5);
    watched = open_scrub(&whole, &host);
    seen_count = 0;
    assert_int_equal(kvs_scrub_pass(watched), 0);
    kvs_scrub_progress(watched, &progress);
    kvs_scrub_close(watched);
    assert_int_equal(progress.pass_bytes, LARGE + MIB);
    assert_int_equal(progress.pass_ahead, 0);
    assert_int_equal(seen_count, 2 * LARGE / MIB);
    for (size_t i = 0; i < seen_count; i++)
        assert_int_equal(seen[i], KVS_MIN(i * MIB, LARGE));
}

static bool say_loaded(void *context)
{
    return true;
}

static void under_load_it_rests_most_of_the_time(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .is_loaded = say_loaded};
    struct kvs_scrub_progress progress;
    double began = 0, alone = 0, loaded = 0;

    make_tree(MIB / 2);
    /* Whoever else uses the machine makes the first pass long at times. */
    for (int tries = 0; tries < 10 && loaded <= 10 * alone; tries++) {
        began = now();
        progress = pass(&whole, &listener);
        alone = now() - began;
        began = now();
        progress = pass(&whole, &host);
        loaded = now() - began;
        print_message("%.3f s alone, %.3f s under load\n", alone, loaded);
        assert_int_equal(progress.blocks[KVS_SCRUB_INTACT], BLOCKS);
    }
    assert_true(loaded > 10 * alone);
}

static void *stop_soon(void *scrub)
{
    usleep(100000);
    kvs_scrub_stop(scrub);
    return NULL;
}

static void a_slow_one_stops_at_once(void **state)
{
    const struct kvs_scrub_options options = {.shard = 1, .shards = 1, .rate = 1};
    struct kvs_scrub *scrub = NULL;
    double began = 0;
    pthread_t thread;

    make_tree(MIB);
    scrub = open_scrub(&options, &listener);
    began = now();
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, scrub), 0);
    assert_int_equal(kvs_scrub_pass(scrub), -ECANCELED);
    assert_true(now() - began < 5);
    pthread_join(thread, NULL);
    kvs_scrub_close(scrub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_rate_is_kept_within_five_percent), CASE(a_window_is_kept),
        CASE(a_window_is_kept_within_a_block),    CASE(a_second_reading_keeps_the_window),
        CASE(progress_is_seen_within_a_block),    CASE(under_load_it_rests_most_of_the_time),
        CASE(a_slow_one_stops_at_once),
    };

    return cmocka_run_group_tests_name("scrub_pace", tests, NULL, NULL);
}
