// SPDX-License-Identifier: Apache-2.0
// The cursor file: what comes back from it whole, cut anywhere, damaged anywhere, or killed.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/cursor.h"
#include "tests/unit/scratch.h"

#define FILE_NAME ".kvseal/scrub-1-of-1"
#define GRAIN     10

static char owner[KVS_OWNER_SIZE];

static enum kvs_cursor_state open_cursor(struct kvs_cursor *cursor)
{
    enum kvs_cursor_state cursor_state = KVS_CURSOR_NEW;

    assert_int_equal(kvs_cursor_open(cursor, dir_fd, 1, 1, 5000, GRAIN, &cursor_state, owner), 0);
    return cursor_state;
}

static size_t read_bytes(char *bytes, size_t room)
{
    int fd = openat(dir_fd, FILE_NAME, O_RDONLY);
    ssize_t size = 0;

    assert_true(fd >= 0);
    size = read(fd, bytes, room);
    assert_true(size > 0 && (size_t)size < room);
    close(fd);
    return (size_t)size;
}

static void write_bytes(const char *bytes, size_t size)
{
    int fd = openat(dir_fd, FILE_NAME, O_WRONLY | O_TRUNC | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

/* Names as clients may choose them. */
static const char *const odd[] = {"a b", "c\nat 0", "d\\x", "e\377f/g", "h/'i\""};
#define ODD (sizeof(odd) / sizeof(odd[0]))

static void make_cursor(void)
{
    struct kvs_cursor cursor;

    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_NEW);
    cursor.passes = 3;
    cursor.min_age = 30;
    for (size_t i = 0; i < ODD; i++) {
        assert_int_equal(kvs_cursor_advance(&cursor, odd[i], 6000 + 100 * (int64_t)i), 0);
        assert_int_equal(kvs_cursor_suspect(&cursor, odd[i]), 0);
    }
    assert_int_equal(kvs_cursor_save(&cursor), 0);
    kvs_cursor_close(&cursor);
}

static void assert_made(const struct kvs_cursor *cursor)
{
    assert_int_equal(cursor->began, 5000);
    assert_int_equal(cursor->passes, 3);
    assert_int_equal(cursor->min_age, 30);
    assert_string_equal(cursor->position, odd[ODD - 1]);
    assert_int_equal(cursor->suspect_count, ODD);
    for (size_t i = 0; i < ODD; i++) {
        assert_string_equal(cursor->suspects[i], odd[i]);
        assert_int_equal(kvs_coverage_when(&cursor->coverage, odd[i]), 6000 + 100 * (int64_t)i);
    }
    assert_int_equal(kvs_coverage_when(&cursor->coverage, "z"), 0);
}

static void all_of_it_comes_back(void **state)
{
    struct kvs_cursor cursor;

    make_cursor();
    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_GOOD);
    assert_made(&cursor);
    kvs_cursor_clear(&cursor, odd[1]);
    kvs_cursor_clear(&cursor, "none");
    assert_int_equal(kvs_cursor_suspect(&cursor, odd[0]), 0);
    assert_int_equal(cursor.suspect_count, ODD - 1);
    kvs_cursor_close(&cursor);
}

static void what_was_appended_counts(void **state)
{
    struct kvs_cursor cursor;

    make_cursor();
    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_GOOD);
    assert_int_equal(kvs_cursor_save(&cursor), 0);
    assert_int_equal(kvs_cursor_advance(&cursor, "z\n1", 8000), 0);
    assert_int_equal(kvs_cursor_advance(&cursor, NULL, 8010), 0);
    assert_int_equal(kvs_cursor_advance(&cursor, "0", 8020), 0);
    assert_int_equal(kvs_cursor_skip(&cursor, "1"), 0);
    assert_int_equal(kvs_cursor_advance(&cursor, "2", 8030), 0);
    kvs_cursor_close(&cursor);

    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_GOOD);
    assert_string_equal(cursor.position, "2");
    assert_int_equal(kvs_coverage_when(&cursor.coverage, "0"), 8020);
    assert_int_equal(kvs_coverage_when(&cursor.coverage, "1"), 6000); /* as it was */
    assert_int_equal(kvs_coverage_when(&cursor.coverage, "2"), 8030);
    assert_int_equal(kvs_coverage_when(&cursor.coverage, odd[2]), 6200);
    assert_int_equal(kvs_coverage_when(&cursor.coverage, "z"), 8000);
    assert_int_equal(kvs_coverage_when(&cursor.coverage, "zz"), 8010);
    kvs_cursor_close(&cursor);
}

/* A snapshot with appended lines, cut at each byte: what is whole counts, or it is all damaged;
 * never something else. */
static void cut_anywhere_it_says_so_or_goes_back_to_a_block(void **state)
{
    static const char *const appended[] = {"p/1", "p/2", "p/3"};
    struct kvs_cursor cursor;
    char bytes[8192];
    size_t snapshot = 0;
    size_t size = 0;
    size_t good = 0;

    make_cursor();
    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_GOOD);
    assert_int_equal(kvs_cursor_save(&cursor), 0);
    snapshot = read_bytes(bytes, sizeof(bytes));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(kvs_cursor_advance(&cursor, appended[i], 9000), 0);
    kvs_cursor_close(&cursor);
    size = read_bytes(bytes, sizeof(bytes));

    for (size_t cut = 0; cut <= size; cut++) {
        write_bytes(bytes, cut);
        if (open_cursor(&cursor) == KVS_CURSOR_DAMAGED) {
            assert_true(cut < snapshot);
            assert_string_equal(cursor.position, "");
            assert_int_equal(cursor.suspect_count, 0);
            assert_int_equal(cursor.began, 5000);
        } else {
            size_t lines = (cut - snapshot) / ((size - snapshot) / 3);

            assert_true(cut >= snapshot);
            assert_string_equal(cursor.position, lines == 0 ? odd[ODD - 1] : appended[lines - 1]);
            good++;
        }
        kvs_cursor_close(&cursor);
    }
    assert_int_equal(good, size - snapshot + 1);
}

static void a_flipped_bit_is_never_believed(void **state)
{
    struct kvs_cursor cursor;
    char bytes[8192];
    size_t size = 0;

    make_cursor();
    size = read_bytes(bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_bytes(bytes, size);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(open_cursor(&cursor), KVS_CURSOR_DAMAGED);
        kvs_cursor_close(&cursor);
    }
}

/* Whoever is killed while saving leaves the old file or the new one. */
static void a_kill_while_saving_leaves_a_whole_one(void **state)
{
    struct kvs_cursor cursor;

    make_cursor();
    srand(3);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();

        if (child == 0) {
            open_cursor(&cursor);
            for (int number = 0;; number++) {
                char path[16];
                snprintf(path, sizeof(path), "z%08d", number);
                if (kvs_cursor_advance(&cursor, path, 9000) < 0 || kvs_cursor_save(&cursor) < 0)
                    _exit(1);
            }
        }
        usleep((useconds_t)(1000 + rand() % 20000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(open_cursor(&cursor), KVS_CURSOR_GOOD);
        assert_int_equal(cursor.suspect_count, ODD);
        kvs_cursor_close(&cursor);
    }
}

static void a_second_one_is_kept_out_and_told_by_whom(void **state)
{
    struct kvs_cursor cursor, second, other;
    enum kvs_cursor_state cursor_state;
    char host[64], expected[KVS_OWNER_SIZE];

    gethostname(host, sizeof(host));
    snprintf(expected, sizeof(expected), "%s pid %d", host, (int)getpid());
    open_cursor(&cursor);
    assert_int_equal(kvs_cursor_open(&second, dir_fd, 1, 1, 0, 1, &cursor_state, owner), -EBUSY);
    assert_string_equal(owner, expected);
    kvs_cursor_close(&second);
    assert_int_equal(kvs_cursor_open(&other, dir_fd, 2, 3, 0, 1, &cursor_state, owner), 0);
    kvs_cursor_close(&other);
    kvs_cursor_close(&cursor);
    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_NEW);
    kvs_cursor_close(&cursor);
}

static void what_is_no_file_is_no_cursor(void **state)
{
    struct kvs_cursor cursor;

    assert_int_equal(mkdirat(dir_fd, ".kvseal", 0700), 0);
    assert_int_equal(symlinkat("/etc/passwd", dir_fd, FILE_NAME), 0);
    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_DAMAGED);
    assert_int_equal(kvs_cursor_save(&cursor), 0); /* replaces the link */
    kvs_cursor_close(&cursor);
    assert_int_equal(open_cursor(&cursor), KVS_CURSOR_GOOD);
    kvs_cursor_close(&cursor);
}

static void without_a_file_it_goes_on_too(void **state)
{
    struct kvs_cursor cursor;

    assert_int_equal(kvs_cursor_open_nowhere(&cursor, 5000, GRAIN), 0);
    assert_int_equal(kvs_cursor_advance(&cursor, "a", 6000), 0);
    assert_int_equal(kvs_cursor_save(&cursor), 0);
    assert_string_equal(cursor.position, "a");
    kvs_cursor_close(&cursor);
    kvs_cursor_close(&cursor); /* again: harmless */
}

static int set_up(void **state)
{
    return make_scratch();
}

static int tear_down(void **state)
{
    return remove_scratch();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(all_of_it_comes_back),
        CASE(what_was_appended_counts),
        CASE(cut_anywhere_it_says_so_or_goes_back_to_a_block),
        CASE(a_flipped_bit_is_never_believed),
        CASE(a_kill_while_saving_leaves_a_whole_one),
        CASE(a_second_one_is_kept_out_and_told_by_whom),
        CASE(what_is_no_file_is_no_cursor),
        CASE(without_a_file_it_goes_on_too),
    };
#undef CASE

    return cmocka_run_group_tests_name("cursor", tests, NULL, NULL);
}
