// SPDX-License-Identifier: Apache-2.0
// What the scrubber must not judge and must not touch, and what becomes of corrupt blocks.
#include <sys/mman.h>

#include "tests/unit/scrub_tree.h"

static void c15_fresh_blocks_are_left_out(void **state)
{
    const struct kvs_scrub_options patient = {.shard = 1, .shards = 1, .min_age = 1000};
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct kvs_scrub_progress progress;

    make_tree(100);
    spoil("d0/block00", 5);
    assert_int_equal(utimensat(dir_fd, "d0/block00", old, 0), 0); /* ctime is fresh still */
    progress = pass(&patient, &listener);
    assert_int_equal(progress.blocks[KVS_SCRUB_FRESH], BLOCKS);
    assert_int_equal(progress.bytes_read, 0);
}

/* Who stores beside the mount need not take the record away first, and may take longer than
 * `min_age`. */
static void c15_what_is_open_for_writing_is_not_judged(void **state)
{
    int fd = -1;

    store("a", 100);
    spoil("a", 5);
    fd = openat(dir_fd, "a", O_WRONLY);
    assert_true(fd >= 0);
    pass(&whole, &listener);
    assert_int_equal(times_told("a", KVS_SCRUB_BUSY), 1);
    close(fd);
    pass(&whole, &listener);
    assert_int_equal(times_told("a", KVS_SCRUB_CORRUPT), 1);
}

static bool store_without_record(void *context, int fd, const struct stat *st)
{
    static bool is_done;

    if (!is_done)
        spoil("a", 5);
    is_done = true;
    return false;
}

/* It was not fresh when it was looked at; before it was read, a program has written it and not yet
 * its record. */
static void c15_what_turns_fresh_is_not_judged(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .is_being_written = store_without_record};

    store("a", 100);
    usleep(50000); /* of the clock of the times, more than a tick */
    pass(&whole, &host);
    assert_int_equal(times_told("a", KVS_SCRUB_BUSY), 1);
    pass(&whole, &listener);
    assert_int_equal(times_told("a", KVS_SCRUB_CORRUPT), 1);
}

static int change_block(void *context, const struct kvs_scrub_block *block)
{
    int fd = openat(block->dir_fd, block->name, O_WRONLY);

    assert_int_equal(pwrite(fd, content, 6, 0), 6);
    close(fd);
    return kvs_scrub_treat(dir_fd, KVS_ON_CORRUPT_REMOVE, block);
}

static void c15_what_is_written_at_the_last_moment_stays(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .treat = change_block};

    store("a", 100);
    spoil("a", 5);
    pass(&whole, &host);
    assert_int_equal(times_told("a", KVS_SCRUB_BUSY), 1);
    pass(&whole, &listener);
    assert_int_equal(times_told("a", KVS_SCRUB_INTACT), 1);
}

static int replace_block(void *context, const struct kvs_scrub_block *block)
{
    store("new", 100);
    assert_int_equal(renameat(dir_fd, "new", dir_fd, "a"), 0);
    return kvs_scrub_treat(dir_fd, KVS_ON_CORRUPT_REMOVE, block);
}

static void c15_what_is_stored_anew_stays(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .treat = replace_block};

    store("a", 100);
    spoil("a", 5);
    pass(&whole, &host);
    assert_int_equal(times_told("a", KVS_SCRUB_BUSY), 1);
    assert_true(is_there("a"));
    pass(&whole, &listener);
    assert_int_equal(times_told("a", KVS_SCRUB_INTACT), 1);
}

static enum kvs_on_corrupt on_corrupt;

static int treat(void *context, const struct kvs_scrub_block *block)
{
    return kvs_scrub_treat(dir_fd, on_corrupt, block);
}

static void c13_corrupt_blocks_are_treated(void **state)
{
    const struct kvs_scrub_host host = {.report = note, .treat = treat};

    for (on_corrupt = KVS_ON_CORRUPT_REMOVE; on_corrupt <= KVS_ON_CORRUPT_KEEP; on_corrupt++) {
        store("a", 100);
        spoil("a", 5);
        assert_int_equal(linkat(dir_fd, "a", dir_fd, "b", 0), 0);
        pass(&whole, &host);
        assert_int_equal(times_told("a", KVS_SCRUB_CORRUPT), 1);
        assert_int_equal(times_told("b", KVS_SCRUB_CORRUPT), 1);
        assert_int_equal(is_there("a"), on_corrupt == KVS_ON_CORRUPT_KEEP);
        unlinkat(dir_fd, "a", 0);
        unlinkat(dir_fd, "b", 0);
    }
}

static unsigned count_cached(const char *path)
{
    unsigned char pages[sizeof(content) / 4096];
    unsigned cached = 0;
    int fd = openat(dir_fd, path, O_RDWR);
    void *mapping = mmap(NULL, sizeof(content), PROT_READ, MAP_SHARED, fd, 0);

    assert_true(mapping != MAP_FAILED);
    assert_int_equal(mincore(mapping, sizeof(content), pages), 0);
    for (size_t i = 0; i < sizeof(pages); i++)
        cached += pages[i] & 1;
    munmap(mapping, sizeof(content));
    close(fd);
    return cached;
}

static void drop_cache(const char *path)
{
    int fd = openat(dir_fd, path, O_RDONLY);

    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

static void c17_the_page_cache_stays_as_it_was(void **state)
{
    store("hot", sizeof(content));
    store("cold", sizeof(content));
    drop_cache("cold");
    assert_int_equal(count_cached("cold"), 0);
    assert_int_equal(count_cached("hot"), sizeof(content) / 4096);
    pass(&whole, &listener);
    assert_int_equal(times_told("cold", KVS_SCRUB_INTACT), 1);
    assert_int_equal(count_cached("cold"), 0);
    assert_int_equal(count_cached("hot"), sizeof(content) / 4096);
}

static void c17_no_time_moves(void **state)
{
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    struct stat before, after;

    store("a", 100);
    assert_int_equal(utimensat(dir_fd, "a", times, 0), 0);
    assert_int_equal(fstatat(dir_fd, "a", &before, 0), 0);
    pass(&whole, &listener);
    assert_int_equal(fstatat(dir_fd, "a", &after, 0), 0);
    assert_int_equal(after.st_atim.tv_sec, 1000);
    assert_int_equal(after.st_mtim.tv_sec, 2000);
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof(before.st_ctim));
}

static void odd_things_in_the_tree_are_no_blocks(void **state)
{
    assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
    assert_int_equal(symlinkat("loop", dir_fd, "loop"), 0);
    assert_int_equal(symlinkat("/dev/zero", dir_fd, "zero"), 0);
    assert_int_equal(mkdirat(dir_fd, "empty", 0), 0);
    store("a\n\377", 100);
    pass(&whole, &listener);
    assert_int_equal(told_count, 1);
    assert_int_equal(times_told("a\n\377", KVS_SCRUB_INTACT), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(c15_fresh_blocks_are_left_out),
        CASE(c15_what_is_open_for_writing_is_not_judged),
        CASE(c15_what_turns_fresh_is_not_judged),
        CASE(c15_what_is_written_at_the_last_moment_stays),
        CASE(c15_what_is_stored_anew_stays),
        CASE(c13_corrupt_blocks_are_treated),
        CASE(c17_the_page_cache_stays_as_it_was),
        CASE(c17_no_time_moves),
        CASE(odd_things_in_the_tree_are_no_blocks),
    };

    return cmocka_run_group_tests_name("scrub_check", tests, NULL, NULL);
}
