// SPDX-License-Identifier: Apache-2.0
// The quarantine as kvs_corrupt_quarantine() fills it: what is read back, restored and removed.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/corrupt.h"
#include "core/quarantine.h"
#include "tests/unit/scratch.h"

static struct kvs_quarantined *blocks;
static size_t count;

static void store(const char *path, const char *text)
{
    int fd = openat(dir_fd, path, O_CREAT | O_EXCL | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void assert_content(const char *path, const char *text)
{
    char bytes[64] = "";
    int fd = openat(dir_fd, path, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, bytes, sizeof(bytes)), strlen(text));
    assert_string_equal(bytes, text);
    close(fd);
}

/* Stores a block and moves it into quarantine as a daemon would. */
static void quarantine(const char *path, const char *said_path, struct kvs_record expected)
{
    struct kvs_verification cause = {
        .verdict = KVS_CORRUPT, .size = 5, .record = expected, .computed = 0x0badf00d};
    const char *slash = strrchr(path, '/');
    char parent[256];
    struct stat st;
    int parent_fd = -1;

    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    mkdirat(dir_fd, parent, 0700);
    store(path, "wrong");
    parent_fd = openat(dir_fd, parent, O_RDONLY | O_DIRECTORY);
    assert_int_equal(fstatat(dir_fd, path, &st, 0), 0);
    assert_int_equal(kvs_corrupt_quarantine(dir_fd, parent_fd, slash ? slash + 1 : path, st.st_dev,
                                            st.st_ino, said_path, &cause),
                     0);
    close(parent_fd);
}

static const struct kvs_record sum = {.kind = KVS_RECORD_SUM, .crc = 0xe3069283};

/* The quarantine's descriptor, and its list in `blocks`. */
static int list(void)
{
    int fd = kvs_quarantine_open_existing(dir_fd);

    assert_true(fd >= 0);
    kvs_quarantine_free(blocks, count);
    assert_int_equal(kvs_quarantine_list(fd, &blocks, &count), 0);
    return fd;
}

static unsigned count_files(int fd)
{
    unsigned files = 0;

    for (size_t i = 0; i < count; i++)
        files += faccessat(fd, blocks[i].name, F_OK, 0) == 0;
    return files;
}

static void a_block_is_listed_with_its_cause(void **state)
{
    time_t before = time(NULL);

    quarantine("d/a\nb\377", "d/a\nb\377", sum);
    close(list());
    assert_int_equal(count, 1);
    assert_string_equal(blocks[0].path, "d/a\nb\377");
    assert_int_equal(blocks[0].size, 5);
    assert_true(blocks[0].has_cause);
    assert_int_equal(blocks[0].expected.kind, KVS_RECORD_SUM);
    assert_int_equal(blocks[0].expected.crc, 0xe3069283);
    assert_int_equal(blocks[0].computed, 0x0badf00d);
    assert_true(blocks[0].time >= before && blocks[0].time <= before + 5);
}

static void a_malformed_record_is_told(void **state)
{
    quarantine("a", "a", (struct kvs_record){.kind = KVS_RECORD_MALFORMED});
    close(list());
    assert_true(blocks[0].has_cause);
    assert_int_equal(blocks[0].expected.kind, KVS_RECORD_MALFORMED);
}

static void a_lost_or_damaged_cause_leaves_the_block_listed(void **state)
{
    static const char *const bad[] = {
        "",
        "path: a\nsize: 5\nexpected: e3069283\ncomputed: 0badf00d\ntime: 2026-01-01T00:00:0",
        "path: a\nexpected: e306928\ncomputed: 0badf00d\ntime: 2026-01-01T00:00:00Z\n",
        "expected: e3069283\ncomputed: 0badf00d\ntime: yesterday\n",
        "\n\n:\n",
    };
    char name[300];
    int fd = -1;

    quarantine("a", "a", sum);
    fd = list();
    snprintf(name, sizeof(name), "%s.cause", blocks[0].name);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int cause_fd = openat(fd, name, O_WRONLY | O_TRUNC);

        assert_int_equal(write(cause_fd, bad[i], strlen(bad[i])), strlen(bad[i]));
        close(cause_fd);
        close(list());
        assert_int_equal(count, 1);
        assert_false(blocks[0].has_cause);
        assert_true(blocks[0].time > 0);
    }
    assert_int_equal(unlinkat(fd, name, 0), 0);
    close(list());
    assert_int_equal(count, 1);
    assert_null(blocks[0].path);
    assert_int_equal(kvs_quarantine_restore(dir_fd, fd, &blocks[0]), -EINVAL);
    close(fd);
}

static void a_block_goes_back_where_it_was(void **state)
{
    int fd = -1;

    quarantine("d/a", "d/a", sum);
    quarantine("b", "b", sum);
    fd = list();
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(kvs_quarantine_restore(dir_fd, fd, &blocks[i]), 0);
    assert_int_equal(count_files(fd), 0);
    assert_content("d/a", "wrong");
    assert_content("b", "wrong");
    assert_int_equal(kvs_quarantine_restore(dir_fd, fd, &blocks[0]), -ENOENT);
    close(fd);
    close(list());
    assert_int_equal(count, 0);
}

static void it_never_takes_the_place_of_another(void **state)
{
    int fd = -1;

    quarantine("a", "a", sum);
    store("a", "new");
    fd = list();
    assert_int_equal(kvs_quarantine_restore(dir_fd, fd, &blocks[0]), -EEXIST);
    assert_content("a", "new");
    assert_int_equal(count_files(fd), 1);
    close(fd);
}

/* A path that somebody wrote into the cause leads nowhere else. */
static void c22_it_goes_nowhere_else(void **state)
{
    static const char *const paths[] = {"../escaped",   "/tmp/escaped",
                                        "link/escaped", "none/a",
                                        "file/a",       "d/../../a",
                                        "?/a",          "?",
                                        "a//b",         ""};
    int fd = -1;

    assert_int_equal(symlinkat("/tmp", dir_fd, "link"), 0);
    store("file", "x");
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        quarantine("a", paths[i], sum);
        fd = list();
        assert_int_equal(count, i + 1);
        for (size_t j = 0; j < count; j++)
            assert_true(kvs_quarantine_restore(dir_fd, fd, &blocks[j]) < 0);
        assert_int_equal(count_files(fd), i + 1);
        close(fd);
    }
}

static void a_removed_one_is_gone_with_its_cause(void **state)
{
    char name[300];
    int fd = -1;

    quarantine("a", "a", sum);
    fd = list();
    snprintf(name, sizeof(name), "%s.cause", blocks[0].name);
    assert_int_equal(faccessat(fd, name, F_OK, 0), 0);
    assert_int_equal(kvs_quarantine_remove(fd, &blocks[0]), 0);
    assert_int_equal(faccessat(fd, name, F_OK, 0), -1);
    assert_int_equal(kvs_quarantine_remove(fd, &blocks[0]), -ENOENT);
    close(fd);
    close(list());
    assert_int_equal(count, 0);
}

static void a_cause_without_its_block_is_told_apart(void **state)
{
    struct kvs_quarantined *causes = NULL;
    size_t cause_count = 0;
    char name[300];
    int fd = -1;

    quarantine("gone", "d/gone", sum);
    fd = list();
    snprintf(name, sizeof(name), "%s.cause", blocks[0].name);
    assert_int_equal(unlinkat(fd, blocks[0].name, 0), 0);
    quarantine("a", "a", sum);
    close(fd);
    fd = list();
    assert_int_equal(count, 1);
    assert_string_equal(blocks[0].path, "a");
    assert_int_equal(kvs_quarantine_list_orphans(fd, &causes, &cause_count), 0);
    assert_int_equal(cause_count, 1);
    assert_string_equal(causes[0].name, name);
    assert_string_equal(causes[0].path, "d/gone");
    assert_true(causes[0].has_cause);
    assert_int_equal(kvs_quarantine_remove(fd, &causes[0]), 0);
    assert_int_equal(faccessat(fd, name, F_OK, 0), -1);
    kvs_quarantine_free(causes, cause_count);
    assert_int_equal(kvs_quarantine_list_orphans(fd, &causes, &cause_count), 0);
    assert_int_equal(cause_count, 0);
    kvs_quarantine_free(causes, cause_count);
    close(fd);
}

static void there_may_be_none(void **state)
{
    assert_int_equal(kvs_quarantine_open_existing(dir_fd), -ENOENT);
    assert_int_equal(mkdirat(dir_fd, KVS_STATE_DIR, 0700), 0);
    assert_int_equal(kvs_quarantine_open_existing(dir_fd), -ENOENT);
    assert_int_equal(symlinkat("/tmp", dir_fd, KVS_QUARANTINE_DIR), 0);
    assert_int_equal(kvs_quarantine_open_existing(dir_fd), -ELOOP);
}

static int set_up(void **state)
{
    return make_scratch();
}

static int tear_down(void **state)
{
    kvs_quarantine_free(blocks, count);
    blocks = NULL;
    count = 0;
    return remove_scratch();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_block_is_listed_with_its_cause),
        CASE(a_malformed_record_is_told),
        CASE(a_lost_or_damaged_cause_leaves_the_block_listed),
        CASE(a_block_goes_back_where_it_was),
        CASE(it_never_takes_the_place_of_another),
        CASE(c22_it_goes_nowhere_else),
        CASE(a_removed_one_is_gone_with_its_cause),
        CASE(a_cause_without_its_block_is_told_apart),
        CASE(there_may_be_none),
    };
#undef CASE

    return cmocka_run_group_tests_name("quarantine", tests, NULL, NULL);
}
