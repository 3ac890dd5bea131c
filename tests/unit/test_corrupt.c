// SPDX-License-Identifier: Apache-2.0
// C13 on real directories: names that go, names that changed hands meanwhile, quarantine.
#include <dirent.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "core/corrupt.h"
#include "core/crc32c.h"
#include "core/record.h"
#include "tests/unit/scratch.h"

#define BLOCK "block.bin"

/* What happens between the steps of the code under test. */
static int looks;                    /* fstatat calls so far */
static void (*after_look)(int look); /* called after each */
static bool has_no_noreplace;        /* RENAME_NOREPLACE gives EINVAL */
static int rename_error;             /* every rename fails with it */
static time_t ctime_age;             /* every ctime is so much older */
static int unlink_error;             /* every unlink fails with it */
static const struct kvs_verification cause = {
    .verdict = KVS_CORRUPT,
    .size = 5,
    .record = {KVS_RECORD_SUM, 0xe3069283},
    .computed = 0x0000beef,
};

int __real_fstatat64(int at_fd, const char *name, struct stat *st, int flags);
int __wrap_fstatat64(int at_fd, const char *name, struct stat *st, int flags);
int __real_renameat2(int old_fd, const char *old, int new_fd, const char *new, unsigned int flags);
int __wrap_renameat2(int old_fd, const char *old, int new_fd, const char *new, unsigned int flags);
int __real_unlinkat(int at_fd, const char *name, int flags);
int __wrap_unlinkat(int at_fd, const char *name, int flags);

int __wrap_fstatat64(int at_fd, const char *name, struct stat *st, int flags)
{
    int r = __real_fstatat64(at_fd, name, st, flags);
    int saved = errno;

    if (after_look != NULL)
        after_look(++looks);
    st->st_ctime -= ctime_age;
    errno = saved;
    return r;
}

int __wrap_renameat2(int old_fd, const char *old, int new_fd, const char *new, unsigned int flags)
{
    if (rename_error == 0 && !(has_no_noreplace && flags != 0))
        return __real_renameat2(old_fd, old, new_fd, new, flags);
    errno = rename_error != 0 ? rename_error : EINVAL;
    return -1;
}

int __wrap_unlinkat(int at_fd, const char *name, int flags)
{
    if (unlink_error == 0)
        return __real_unlinkat(at_fd, name, flags);
    errno = unlink_error;
    return -1;
}

/* Stores a block as clients do: aside, then rename. */
static void store(const char *name, const char *content)
{
    int fd = openat(dir_fd, "store.tmp", O_CREAT | O_EXCL | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
    assert_int_equal(renameat(dir_fd, "store.tmp", dir_fd, name), 0);
}

static struct stat stat_name(const char *name)
{
    struct stat st;

    assert_int_equal(__real_fstatat64(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

static void assert_content(int at_fd, const char *name, const char *content)
{
    char text[1024] = "";
    int fd = openat(at_fd, name, O_RDONLY);

    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) >= 0);
    close(fd);
    assert_string_equal(text, content);
}

static int count_entries(int at_fd)
{
    int fd = openat(at_fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *stream = fdopendir(fd);
    int entries = -2;

    assert_non_null(stream);
    while (readdir(stream) != NULL)
        entries++;
    closedir(stream);
    return entries;
}

static int set_up(void **state)
{
    looks = 0;
    after_look = NULL;
    has_no_noreplace = false;
    rename_error = 0;
    unlink_error = 0;
    ctime_age = 0;
    if (make_scratch() < 0)
        return -1;
    store(BLOCK, "wrong");
    return 0;
}

static int tear_down(void **state)
{
    unlink_error = 0;
    ctime_age = 0;
    return remove_scratch();
}

static void c13_remove_takes_the_name(void **state)
{
    struct stat st = stat_name(BLOCK);

    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), 0);
    assert_int_equal(count_entries(dir_fd), 0);
    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -ENOENT);
}

static void c13_remove_leaves_other_names_of_the_inode(void **state)
{
    struct stat st = stat_name(BLOCK);

    assert_int_equal(linkat(dir_fd, BLOCK, dir_fd, "second", 0), 0);
    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), 0);
    assert_int_equal(count_entries(dir_fd), 1);
    assert_content(dir_fd, "second", "wrong");
}

static void c13_another_file_under_the_name_stays(void **state)
{
    struct stat st = stat_name(BLOCK);
    struct stat fresh;

    assert_int_equal(linkat(dir_fd, BLOCK, dir_fd, "pin", 0), 0); /* its number is not reused */
    store(BLOCK, "fresh");
    fresh = stat_name(BLOCK);
    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -ENOENT);
    assert_content(dir_fd, BLOCK, "fresh");
    assert_true(stat_name(BLOCK).st_ctim.tv_nsec == fresh.st_ctim.tv_nsec); /* never touched */
}

static void store_after_first_look(int look)
{
    if (look == 1)
        store(BLOCK, "fresh");
}

static void c13_a_block_stored_meanwhile_goes_back(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct stat st;

        has_no_noreplace = i == 1;
        looks = 0;
        after_look = NULL;
        store(BLOCK, "wrong");
        unlinkat(dir_fd, "pin", 0);
        assert_int_equal(linkat(dir_fd, BLOCK, dir_fd, "pin", 0), 0);
        st = stat_name(BLOCK);
        after_look = store_after_first_look;
        assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -ENOENT);
        assert_content(dir_fd, BLOCK, "fresh");
        assert_int_equal(count_entries(dir_fd), 2);
    }
}

static void store_twice(int look)
{
    store_after_first_look(look);
    if (look == 2)
        store(BLOCK, "freshest");
}

static void c13_the_block_stored_last_wins(void **state)
{
    struct stat st = stat_name(BLOCK);

    assert_int_equal(linkat(dir_fd, BLOCK, dir_fd, "pin", 0), 0);
    after_look = store_twice;
    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -ENOENT);
    assert_content(dir_fd, BLOCK, "freshest");
    assert_int_equal(count_entries(dir_fd), 2);
}

static void c13_remove_works_without_noreplace(void **state)
{
    struct stat st = stat_name(BLOCK);

    has_no_noreplace = true;
    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), 0);
    assert_int_equal(count_entries(dir_fd), 0);
}

static void c13_nothing_is_lost_where_the_name_cannot_go(void **state)
{
    static const int errors[] = {EROFS, EACCES, EPERM, EIO};
    struct stat st = stat_name(BLOCK);

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        rename_error = errors[i];
        assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -errors[i]);
        rename_error = 0;
        unlink_error = errors[i];
        assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -errors[i]);
        unlink_error = 0;
        assert_content(dir_fd, BLOCK, "wrong");
        assert_int_equal(count_entries(dir_fd), 1);
    }
}

static void c13_remove_fails_in_a_directory_of_others(void **state)
{
    struct stat st = stat_name(BLOCK);

    if (geteuid() != 0) {
        print_message("skipped: needs root to become somebody else\n");
        skip();
    }
    assert_int_equal(fchmod(dir_fd, 0555), 0);
    assert_int_equal(seteuid(65534), 0);
    assert_int_equal(kvs_corrupt_remove(dir_fd, BLOCK, st.st_dev, st.st_ino), -EACCES);
    assert_int_equal(seteuid(0), 0);
    assert_content(dir_fd, BLOCK, "wrong");
}

static int open_quarantine(void)
{
    int fd = openat(dir_fd, KVS_QUARANTINE_DIR, O_RDONLY | O_DIRECTORY);

    assert_true(fd >= 0);
    return fd;
}

/* A block's name in quarantine; the caller frees it. */
static char *find_block(int at_fd)
{
    DIR *stream = fdopendir(dup(at_fd));
    struct dirent *entry = NULL;
    char *found = NULL;

    assert_non_null(stream);
    rewinddir(stream);
    while (found == NULL && (entry = readdir(stream)) != NULL) {
        if (entry->d_name[0] != '.' && strstr(entry->d_name, ".cause") == NULL)
            found = strdup(entry->d_name);
    }
    closedir(stream);
    assert_non_null(found);
    return found;
}

static void c13_quarantine_keeps_the_block_and_its_cause(void **state)
{
    static const char expected[] =
        "path: a/b\\x0ac.bin\nsize: 5\nexpected: e3069283\n"
        "computed: 0000beef\ntime: 2";
    struct stat st = stat_name(BLOCK);
    char text[1024] = "";
    char cause_name[512];
    char *name = NULL;
    int quarantine_fd = -1;
    int fd = -1;

    assert_int_equal(
        kvs_corrupt_quarantine(dir_fd, dir_fd, BLOCK, st.st_dev, st.st_ino, "a/b\nc.bin", &cause),
        0);
    assert_int_equal(stat_name(KVS_STATE_DIR).st_mode & 07777, 0700);
    assert_int_equal(stat_name(KVS_QUARANTINE_DIR).st_mode & 07777, 0700);
    quarantine_fd = open_quarantine();
    assert_int_equal(count_entries(quarantine_fd), 2);
    name = find_block(quarantine_fd);
    assert_int_equal(strncmp(name, BLOCK "-", sizeof(BLOCK)), 0);
    assert_content(quarantine_fd, name, "wrong");
    snprintf(cause_name, sizeof(cause_name), "%s.cause", name);
    fd = openat(quarantine_fd, cause_name, O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    assert_memory_equal(text, expected, strlen(expected));
    assert_string_equal(text + strlen(text) - 2, "Z\n");
    close(fd);
    close(quarantine_fd);
    free(name);
}

static void c13_quarantine_never_overwrites(void **state)
{
    int quarantine_fd = -1;

    for (int i = 0; i < 5; i++) {
        struct stat st;

        /* One inode again and again, within a second or so: the same name as far as it goes. */
        st = stat_name(BLOCK);
        assert_int_equal(
            kvs_corrupt_quarantine(dir_fd, dir_fd, BLOCK, st.st_dev, st.st_ino, BLOCK, &cause), 0);
        if (i == 0)
            quarantine_fd = open_quarantine();
        assert_int_equal(count_entries(quarantine_fd), 2 * (i + 1));
        if (i < 4) {
            char *name = find_block(quarantine_fd);

            assert_int_equal(linkat(quarantine_fd, name, dir_fd, BLOCK, 0), 0);
            free(name);
        }
    }
    close(quarantine_fd);
}

static void c13_quarantine_takes_the_longest_names(void **state)
{
    char name[256] = "";
    struct stat st;

    for (size_t i = 0; i < 255; i += 3)
        memcpy(name + i, "\xe2\x82\xac", 4);
    assert_int_equal(strlen(name), 255);
    store(name, "wrong");
    st = stat_name(name);
    assert_int_equal(
        kvs_corrupt_quarantine(dir_fd, dir_fd, name, st.st_dev, st.st_ino, name, &cause), 0);
    assert_int_equal(count_entries(dir_fd), 2); /* BLOCK and .kvseal */
}

static void c13_quarantine_gives_a_newer_block_back(void **state)
{
    struct stat st = stat_name(BLOCK);
    int quarantine_fd = -1;

    assert_int_equal(linkat(dir_fd, BLOCK, dir_fd, "pin", 0), 0);
    after_look = store_after_first_look;
    assert_int_equal(
        kvs_corrupt_quarantine(dir_fd, dir_fd, BLOCK, st.st_dev, st.st_ino, BLOCK, &cause),
        -ENOENT);
    assert_content(dir_fd, BLOCK, "fresh");
    quarantine_fd = open_quarantine();
    assert_int_equal(count_entries(quarantine_fd), 0);
    close(quarantine_fd);
}

static void c22_quarantine_follows_no_symlink(void **state)
{
    struct stat st = stat_name(BLOCK);

    assert_int_equal(mkdirat(dir_fd, "elsewhere", 0700), 0);
    assert_int_equal(symlinkat("elsewhere", dir_fd, KVS_STATE_DIR), 0);
    assert_true(kvs_corrupt_quarantine(dir_fd, dir_fd, BLOCK, st.st_dev, st.st_ino, BLOCK, &cause) <
                0);
    assert_content(dir_fd, BLOCK, "wrong");

    __real_unlinkat(dir_fd, KVS_STATE_DIR, 0);
    assert_int_equal(mkdirat(dir_fd, KVS_STATE_DIR, 0700), 0);
    assert_int_equal(symlinkat("../elsewhere", dir_fd, KVS_QUARANTINE_DIR), 0);
    assert_true(kvs_corrupt_quarantine(dir_fd, dir_fd, BLOCK, st.st_dev, st.st_ino, BLOCK, &cause) <
                0);
    assert_content(dir_fd, BLOCK, "wrong");
}

static void c13_quarantine_fails_and_loses_nothing(void **state)
{
    struct stat st = stat_name(BLOCK);

    rename_error = EXDEV; /* a mount inside the source */
    assert_int_equal(
        kvs_corrupt_quarantine(dir_fd, dir_fd, BLOCK, st.st_dev, st.st_ino, BLOCK, &cause), -EXDEV);
    assert_content(dir_fd, BLOCK, "wrong");
}

#define ASIDE ".kvseal-0123456789abcdef"

static int sweep(const char *name)
{
    static char memory[KVS_PIECE_SIZE] __attribute__((aligned(KVS_IO_ALIGN)));
    struct kvs_reading reading = {.memory = memory, .capacity = sizeof(memory)};

    return kvs_corrupt_sweep(dir_fd, dir_fd, name, &reading);
}

/* "wrong", with this record; 0: none. */
static void store_aside(const char *name, uint32_t record)
{
    store(name, "wrong");
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    if (record != 0)
        assert_int_equal(kvs_record_write(fd, record), 0);
    close(fd);
}

static void c23_what_a_kill_left_aside_is_swept(void **state)
{
    store_aside(ASIDE, 1);
    assert_int_equal(sweep(ASIDE), -EAGAIN); /* somebody may be at it */
    ctime_age = KVS_ASIDE_AGE_S + 1;
    assert_int_equal(sweep(ASIDE), 0);
    assert_int_equal(sweep(ASIDE), -ENOENT);
    assert_content(dir_fd, BLOCK, "wrong");
}

/* It was stored anew between a look and the move, and the kill came before it was given back. */
static void c23_a_good_block_that_was_left_aside_is_not_lost(void **state)
{
    struct dirent **names = NULL;

    store_aside(ASIDE, kvs_crc32c(0, "wrong", 5));
    ctime_age = KVS_ASIDE_AGE_S + 1;
    assert_int_equal(sweep(ASIDE), 0);
    assert_int_equal(fstatat(dir_fd, ASIDE, &(struct stat){0}, 0), -1);
    int fd = openat(dir_fd, ".kvseal/quarantine", O_RDONLY | O_DIRECTORY);
    assert_int_equal(scandirat(fd, ".", &names, NULL, alphasort), 4);
    assert_content(fd, names[2]->d_name, "wrong"); /* behind it is its cause */
    for (int i = 0; i < 4; i++)
        free(names[i]);
    free(names);
    close(fd);
}

static void c15_what_is_aside_and_in_use_stays(void **state)
{
    store_aside(ASIDE, 1);
    ctime_age = KVS_ASIDE_AGE_S + 1;
    int fd = openat(dir_fd, ASIDE, O_WRONLY | O_CLOEXEC);
    assert_int_equal(sweep(ASIDE), -EAGAIN);
    close(fd);
    assert_int_equal(sweep(ASIDE), 0);
}

static void c23_nothing_else_is_swept(void **state)
{
    static const char *const others[] = {
        "kvseal-0123456789abcdef",  ".kvseal-0123456789abcde",   ".kvseal-0123456789abcdef0",
        ".kvseal-0123456789ABCDEF", ".kvseal-0123456789abcdef~", ".kvseal-",
    };
    ctime_age = KVS_ASIDE_AGE_S + 1;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(kvs_corrupt_is_aside(others[i]));
        store_aside(others[i], 1);
        assert_int_equal(sweep(others[i]), -EAGAIN);
    }
    assert_true(kvs_corrupt_is_aside(ASIDE));
    store_aside(ASIDE, 0); /* not a block of ours */
    assert_int_equal(sweep(ASIDE), -EAGAIN);
    __real_unlinkat(dir_fd, ASIDE, 0);
    assert_int_equal(mkfifoat(dir_fd, ASIDE, 0600), 0);
    assert_int_equal(sweep(ASIDE), -EAGAIN);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(c13_remove_takes_the_name),
        CASE(c13_remove_leaves_other_names_of_the_inode),
        CASE(c13_another_file_under_the_name_stays),
        CASE(c13_a_block_stored_meanwhile_goes_back),
        CASE(c13_the_block_stored_last_wins),
        CASE(c13_remove_works_without_noreplace),
        CASE(c13_nothing_is_lost_where_the_name_cannot_go),
        CASE(c13_remove_fails_in_a_directory_of_others),
        CASE(c13_quarantine_keeps_the_block_and_its_cause),
        CASE(c13_quarantine_never_overwrites),
        CASE(c13_quarantine_takes_the_longest_names),
        CASE(c13_quarantine_gives_a_newer_block_back),
        CASE(c22_quarantine_follows_no_symlink),
        CASE(c13_quarantine_fails_and_loses_nothing),
        CASE(c23_what_a_kill_left_aside_is_swept),
        CASE(c23_a_good_block_that_was_left_aside_is_not_lost),
        CASE(c15_what_is_aside_and_in_use_stays),
        CASE(c23_nothing_else_is_swept),
    };
#undef CASE

    return cmocka_run_group_tests_name("corrupt", tests, NULL, NULL);
}
