// SPDX-License-Identifier: Apache-2.0
// Walks of real trees: what is found, in which order, from where on, and while they change.
#include "core/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/util.h"
#include "tests/unit/scratch.h"

#define MOST 4096

/* What a walk told, one "kind:path" each. */
struct record {
    char *lines[MOST];
    unsigned count;
    unsigned end_after; /* 0: never */
    void (*meanwhile)(const struct kvs_walk_entry *entry);
};

static int visit(void *context, const struct kvs_walk_entry *entry)
{
    static const char letters[] = {
        [KVS_WALK_FILE] = 'f',  [KVS_WALK_TEMPORARY] = 't', [KVS_WALK_OTHER] = 'o',
        [KVS_WALK_MOUNT] = 'm', [KVS_WALK_GONE] = 'g',      [KVS_WALK_ERROR] = 'e'};
    struct record *record = context;
    struct stat st;

    assert_true(record->count < MOST);
    assert_true(
        asprintf(&record->lines[record->count++], "%c:%s", letters[entry->kind], entry->path) > 0);
    assert_int_equal(entry->kind == KVS_WALK_ERROR, entry->error != 0);
    if (entry->kind == KVS_WALK_FILE) {
        assert_int_equal(fstatat(entry->dir_fd, entry->name, &st, 0), 0);
        assert_int_equal(st.st_ino, entry->stat->st_ino);
    }
    if (record->meanwhile != NULL)
        record->meanwhile(entry);
    return record->count == record->end_after ? 77 : 0;
}

static int walk(const char *after, struct record *record)
{
    struct kvs_walk walk = {.after = after, .visit = visit, .context = record};
    kvs_cleanup_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return kvs_walk(fd, &walk);
}

static void forget(struct record *record)
{
    while (record->count > 0)
        free(record->lines[--record->count]);
}

static void expect(struct record *record, const char *const *lines)
{
    unsigned i = 0;

    for (; lines[i] != NULL; i++) {
        if (i >= record->count)
            fail_msg("%s is missing", lines[i]);
        assert_string_equal(record->lines[i], lines[i]);
    }
    if (record->count > i)
        fail_msg("%s is too much", record->lines[i]);
    forget(record);
}
#define EXPECT(record, ...) expect(record, (const char *const[]){__VA_ARGS__, NULL})

static void make_file(const char *name)
{
    kvs_cleanup_fd int fd = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
}

static void make_directory(const char *name)
{
    assert_int_equal(mkdir(name, 0700), 0);
}

static void make_tree(void)
{
    make_directory("a");
    make_file("a/z");
    make_file("a/b");
    make_directory("a/sub");
    make_file("a/sub/x");
    make_file("a-b"); /* '-' is less than '/', but "a" is less than "a-b" */
    make_file("B");
    make_file("\xff");
    make_directory("empty");
}

static void names_are_sorted_by_bytes(void **state)
{
    struct record record = {0};

    make_tree();
    assert_int_equal(walk(NULL, &record), 0);
    EXPECT(&record, "f:B", "f:a/b", "f:a/sub/x", "f:a/z", "f:a-b", "f:\xff");
}

static void the_order_is_that_of_compare(void **state)
{
    struct record record = {0};

    make_tree();
    assert_int_equal(walk(NULL, &record), 0);
    for (unsigned i = 0; i < record.count; i++) {
        for (unsigned j = 0; j < record.count; j++) {
            int order = kvs_walk_compare(record.lines[i] + 2, record.lines[j] + 2);
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
    }
    forget(&record);
    assert_true(kvs_walk_compare("a", "a/b") < 0);
    assert_true(kvs_walk_compare("", "a") < 0);
    assert_int_equal(kvs_walk_compare("a/b", "a/b"), 0);
}

/* From behind each path, and from places between them that never were or are gone. */
static void what_comes_after_a_path_is_the_rest(void **state)
{
    struct record record = {0};

    make_tree();
    assert_int_equal(walk("", &record), 0);
    EXPECT(&record, "f:B", "f:a/b", "f:a/sub/x", "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("B", &record), 0);
    EXPECT(&record, "f:a/b", "f:a/sub/x", "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("a", &record), 0);
    EXPECT(&record, "f:a/b", "f:a/sub/x", "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("a/b", &record), 0);
    EXPECT(&record, "f:a/sub/x", "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("a/sub/x", &record), 0);
    EXPECT(&record, "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("a/c/gone", &record), 0);
    EXPECT(&record, "f:a/sub/x", "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("a/z/was a directory", &record), 0);
    EXPECT(&record, "f:a/z", "f:a-b", "f:\xff");
    assert_int_equal(walk("a/zz", &record), 0);
    EXPECT(&record, "f:a-b", "f:\xff");
    assert_int_equal(walk("\xff", &record), 0);
    assert_int_equal(record.count, 0);
}

static void a_visit_can_end_it(void **state)
{
    struct record record = {.end_after = 2};

    make_tree();
    assert_int_equal(walk(NULL, &record), 77);
    EXPECT(&record, "f:B", "f:a/b");
}

static void what_is_no_block_is_told_apart(void **state)
{
    struct record record = {0};

    make_file("block");
    assert_int_equal(symlink("..", "link"), 0);
    assert_int_equal(symlink("link", "loop"), 0);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    make_file(".kvseal-0123456789abcdef");
    make_file(".kvseal-probe-0123456789abcdef");
    make_file(".kvseal-0123456789abcde"); /* too short to be one of ours */
    make_directory(".kvseal");
    make_file(".kvseal/cursor");
    make_directory("sub");
    make_directory("sub/.kvseal");
    make_file("sub/.kvseal/quarantined");
    make_file("sub/kvseal");
    assert_int_equal(walk(NULL, &record), 0);
    EXPECT(&record, "f:.kvseal-0123456789abcde", "t:.kvseal-0123456789abcdef",
           "t:.kvseal-probe-0123456789abcdef", "f:block", "o:fifo", "o:link", "o:loop",
           "f:sub/kvseal");
}

static void remove_others(const struct kvs_walk_entry *entry)
{
    if (strcmp(entry->path, "a") != 0)
        return;
    assert_int_equal(unlink("b"), 0);
    assert_int_equal(rmdir("c"), 0);
    assert_int_equal(rename("d", "e"), 0);
    assert_int_equal(rmdir("f"), 0);
    assert_int_equal(symlink("/", "f"), 0);
    make_file("zz"); /* came too late */
}

static void what_vanishes_is_gone(void **state)
{
    struct record record = {.meanwhile = remove_others};

    make_file("a");
    make_file("b");
    make_directory("c");
    make_directory("d");
    make_file("d/x");
    make_directory("f");
    assert_int_equal(walk(NULL, &record), 0);
    EXPECT(&record, "f:a", "g:b", "g:c", "g:d", "g:f");
}

static void rename_parent(const struct kvs_walk_entry *entry)
{
    if (strcmp(entry->path, "d/a") == 0)
        assert_int_equal(rename("d", "e"), 0);
}

static void a_directory_that_is_renamed_is_finished(void **state)
{
    struct record record = {.meanwhile = rename_parent};

    make_directory("d");
    make_file("d/a");
    make_file("d/b");
    assert_int_equal(walk(NULL, &record), 0);
    EXPECT(&record, "f:d/a", "f:d/b");
}

static void a_deep_tree_and_a_wide_one(void **state)
{
    struct record record = {0};
    char name[32];
    int up = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    make_directory("deep");
    for (int i = 0; i < 300; i++) { /* 300 * 17 bytes: more than PATH_MAX */
        int fd = -1;
        assert_int_equal(mkdirat(up, "sixteen-bytes-xx", 0700), 0);
        fd = openat(up, "sixteen-bytes-xx", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        close(up);
        up = fd;
    }
    close(openat(up, "bottom", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    close(up);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "w%d", i);
        make_file(name);
    }
    assert_int_equal(walk(NULL, &record), 0);
    assert_int_equal(record.count, 3001);
    assert_int_equal(strlen(record.lines[0] + 2), 300 * 17 + 6);
    for (unsigned i = 2; i < record.count; i++)
        assert_true(strcmp(record.lines[i - 1], record.lines[i]) < 0);
    forget(&record);
}

static void what_cannot_be_read_is_told(void **state)
{
    struct record record = {0};

    if (geteuid() == 0) { /* root reads all: as another user then */
        assert_int_equal(chown(".", 65534, 65534), 0);
        assert_int_equal(seteuid(65534), 0);
    }
    make_file("a");
    make_directory("closed");
    make_file("closed/x");
    assert_int_equal(chmod("closed", 0), 0);
    make_directory("z");
    make_file("z/b");
    int r = walk(NULL, &record);
    assert_int_equal(chmod("closed", 0700), 0);
    assert_true(getuid() != 0 || seteuid(0) == 0);
    assert_int_equal(r, 0);
    EXPECT(&record, "f:a", "e:closed", "f:z/b");
}

static int set_up(void **state)
{
    return make_scratch() < 0 ? -1 : fchdir(dir_fd);
}

static int tear_down(void **state)
{
    return remove_scratch();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(names_are_sorted_by_bytes),
        CASE(the_order_is_that_of_compare),
        CASE(what_comes_after_a_path_is_the_rest),
        CASE(a_visit_can_end_it),
        CASE(what_is_no_block_is_told_apart),
        CASE(what_vanishes_is_gone),
        CASE(a_directory_that_is_renamed_is_finished),
        CASE(a_deep_tree_and_a_wide_one),
        CASE(what_cannot_be_read_is_told),
    };
#undef CASE

    return cmocka_run_group_tests_name("walk", tests, NULL, NULL);
}
