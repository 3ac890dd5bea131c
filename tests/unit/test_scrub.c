// SPDX-License-Identifier: Apache-2.0
// Rounds of the scrubber: in which order it checks, how it goes on after it was stopped or killed,
// and how several share a tree.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "core/walk.h"
#include "tests/unit/scrub_tree.h"

static void every_block_is_checked_once_and_in_order(void **state)
{
    struct kvs_scrub_progress progress;
    int fd = -1;

    make_tree(5000);
    store("z", 0);
    fd = openat(dir_fd, "unsealed", O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "1234", 4), 4);
    close(fd);
    spoil("d2/block22", 4000);
    progress = pass(&whole, &listener);
    assert_int_equal(told_count, BLOCKS + 2);
    for (size_t i = 1; i < told_count; i++)
        assert_true(kvs_walk_compare(told[i - 1].path, told[i].path) < 0);
    assert_int_equal(progress.blocks[KVS_SCRUB_INTACT], BLOCKS);
    assert_int_equal(progress.blocks[KVS_SCRUB_CORRUPT], 1);
    assert_int_equal(times_told("d2/block22", KVS_SCRUB_CORRUPT), 1);
    assert_int_equal(times_told("unsealed", KVS_SCRUB_UNSEALED), 1);
    assert_int_equal(progress.bytes_total, 5000 * BLOCKS + 4);
    assert_int_equal(progress.pass_bytes, 5000 * BLOCKS + 4);
    assert_int_equal(progress.bytes_unsealed, 4);
    assert_int_equal(progress.bytes_read, 5000 * BLOCKS + 5000); /* the corrupt one twice */
    assert_int_equal(progress.passes, 1);
    assert_true(is_there("d2/block22")); /* nobody treats it */
}

/* The next run begins with what was checked longest ago, and goes round from there. */
static void a_stopped_one_goes_on_where_it_was(void **state)
{
    char last[64], first[64];

    make_tree(100);
    stop_and_close_after(17);
    snprintf(last, sizeof(last), "%s", told[16].path);
    stop_and_close_after(20);
    assert_true(kvs_walk_compare(last, told[0].path) < 0);
    snprintf(last, sizeof(last), "%s", told[19].path);
    pass(&whole, &listener);
    assert_int_equal(told_count, BLOCKS);
    snprintf(first, sizeof(first), "%s", told[0].path);
    assert_true(kvs_walk_compare(last, first) < 0);
    assert_string_equal(told[BLOCKS - 1].path, last); /* round to where it began */
    assert_int_equal(times_told("d0/block00", KVS_SCRUB_INTACT), 1);
    pass(&whole, &listener);
    assert_string_equal(told[0].path, first);
}

/* Killed with SIGKILL at any point, it repeats no more than the block that it was at, and leaves
 * none out. */
static struct shared {
    char path[64]; /* the last that was told */
    unsigned count;
} * shared;

static void note_shared(void *context, const struct kvs_scrub_block *block)
{
    snprintf(shared->path, sizeof(shared->path), "%s", block->path);
    __atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
}

static void run_until_killed(useconds_t delay)
{
    const struct kvs_scrub_host host = {.report = note_shared};
    pid_t child = fork();

    if (child == 0) {
        struct kvs_scrub *scrub = open_scrub(&whole, &host);

        while (kvs_scrub_pass(scrub) == 0)
            ;
        _exit(1);
    }
    usleep(delay);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_killed_one_goes_on_within_one_block(void **state)
{
    const struct kvs_scrub_host host = {.report = note_and_stop};
    char order[BLOCKS][64];

    make_tree(40000);
    pass(&whole, &listener);
    for (int i = 0; i < BLOCKS; i++)
        memcpy(order[i], told[i].path, sizeof(order[i]));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    srand(11);
    for (int i = 0; i < 60; i++) {
        int last = 0, next = 0;

        shared->count = 0;
        run_until_killed((useconds_t)(rand() % 30000));
        if (shared->count == 0)
            continue;
        stop_after = 1;
        to_stop = open_scrub(&whole, &host);
        kvs_scrub_pass(to_stop);
        kvs_scrub_close(to_stop);
        for (int j = 0; j < BLOCKS; j++) {
            if (strcmp(order[j], shared->path) == 0)
                last = j;
            if (strcmp(order[j], told[0].path) == 0)
                next = j;
        }
        if (next != last && next != (last + 1) % BLOCKS)
            fail_msg("killed behind %s, it went on with %s", shared->path, told[0].path);
    }
    munmap(shared, sizeof(*shared));
}

static void a_damaged_cursor_begins_anew(void **state)
{
    enum kvs_cursor_state cursor_state;
    char owner[KVS_OWNER_SIZE];
    struct kvs_scrub *scrub = NULL;

    make_tree(100);
    stop_and_close_after(17);
    assert_int_equal(truncate(".kvseal/scrub-1-of-1", 30), 0);
    told_count = 0;
    assert_int_equal(kvs_scrub_open(dir_fd, &whole, &listener, &cursor_state, owner, &scrub), 0);
    assert_int_equal(cursor_state, KVS_CURSOR_DAMAGED);
    assert_int_equal(kvs_scrub_pass(scrub), 0);
    kvs_scrub_close(scrub);
    assert_int_equal(told_count, BLOCKS);
    assert_string_equal(told[0].path, "d0/block00");
}

static void shards_share_the_blocks(void **state)
{
    struct kvs_scrub *first = NULL;
    size_t total = 0;

    make_tree(100);
    first = open_scrub(&(struct kvs_scrub_options){.shard = 1, .shards = 3}, &listener);
    for (unsigned shard = 2; shard <= 3; shard++) { /* at once with the first */
        pass(&(struct kvs_scrub_options){.shard = shard, .shards = 3}, &listener);
        assert_in_range(told_count, BLOCKS / 6, BLOCKS / 2);
        total += told_count;
    }
    told_count = 0;
    assert_int_equal(kvs_scrub_pass(first), 0);
    kvs_scrub_close(first);
    assert_int_equal(total + told_count, BLOCKS);
}

static void a_second_one_is_kept_out(void **state)
{
    enum kvs_cursor_state cursor_state;
    char owner[KVS_OWNER_SIZE];
    struct kvs_scrub *scrub = open_scrub(&whole, &listener), *second = NULL;

    assert_int_equal(kvs_scrub_open(dir_fd, &whole, &listener, &cursor_state, owner, &second),
                     -EBUSY);
    assert_non_null(strstr(owner, "pid"));
    kvs_scrub_close(scrub);
}

static void suspects_come_first_until_they_are_good(void **state)
{
    static const char *const paths[] = {"d3/block03", "d1/block01", "d1/none", "none/a",
                                        "link/a",     "../a",       "/etc/a"};
    enum kvs_cursor_state cursor_state;
    char owner[KVS_OWNER_SIZE];
    struct kvs_cursor cursor;
    struct kvs_scrub_progress progress;

    make_tree(100);
    assert_int_equal(kvs_cursor_open(&cursor, dir_fd, 1, 1, 1, 1, &cursor_state, owner), 0);
    assert_int_equal(symlinkat("d1", dir_fd, "link"), 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(kvs_cursor_suspect(&cursor, paths[i]), 0);
    assert_int_equal(kvs_cursor_save(&cursor), 0);
    kvs_cursor_close(&cursor);
    progress = pass(&whole, &listener);
    assert_string_equal(told[0].path, paths[0]);
    assert_string_equal(told[1].path, paths[1]);
    assert_int_equal(told[2].outcome, KVS_SCRUB_GONE);
    assert_int_equal(progress.suspects, 0);
    pass(&whole, &listener);
    assert_int_equal(told_count, BLOCKS);
}

static void stale_names_are_swept(void **state)
{
    const struct kvs_scrub_options sweeping = {.shard = 1, .shards = 1, .sweeps = true};

    store(".kvseal-0123456789abcdef", 100);
    spoil(".kvseal-0123456789abcdef", 5);
    store(".kvseal-mine", 100);
    assert_int_equal(pass(&sweeping, &listener).stale_removed, 0); /* not old enough */
    clock_offset = KVS_ASIDE_AGE_S + 10;
    assert_int_equal(pass(&whole, &listener).stale_removed, 0);
    assert_int_equal(pass(&sweeping, &listener).stale_removed, 1);
    assert_false(is_there(".kvseal-0123456789abcdef"));
    assert_int_equal(times_told(".kvseal-mine", KVS_SCRUB_INTACT), 1);
    assert_int_equal(told_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_block_is_checked_once_and_in_order),
        CASE(a_stopped_one_goes_on_where_it_was),
        CASE(a_killed_one_goes_on_within_one_block),
        CASE(a_damaged_cursor_begins_anew),
        CASE(shards_share_the_blocks),
        CASE(a_second_one_is_kept_out),
        CASE(suspects_come_first_until_they_are_good),
        CASE(stale_names_are_swept),
    };

    return cmocka_run_group_tests_name("scrub", tests, NULL, NULL);
}
