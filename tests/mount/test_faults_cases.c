// SPDX-License-Identifier: Apache-2.0
// What a failed seal and a failed write lead to, step by step (C3).
#include "tests/mount/fixture.h"

#define KIB  ((size_t)1 << 10)
#define SIZE (64 * KIB)

static const int seal_errors[] = {ENOSPC, EDQUOT, EIO, EOPNOTSUPP};
#define SEAL_ERRORS (sizeof(seal_errors) / sizeof(seal_errors[0]))

static void fail_call(struct kvt_env *env, const char *kind, unsigned nth, int error)
{
    char command[64];
    snprintf(command, sizeof(command), "%s %u errno %d\n", kind, nth, error);
    kvt_fault(env, command);
}

/* A new block of SIZE bytes, still open. */
static int begin_block(struct kvt_env *env, const char *name)
{
    kvt_fault(env, "clear\n");
    unlink(kvt_mnt(env, name));
    int fd = kvt_open(kvt_mnt(env, name), KVT_CREATE);
    kvt_put(fd, SIZE, 1, 0);
    return fd;
}

static int close_copy(int fd)
{
    return kvt_close(dup(fd));
}

static int move(struct kvt_env *env, const char *from, const char *to)
{
    return rename(kvt_mnt(env, from), kvt_mnt(env, to)) == 0 ? 0 : -errno;
}

static int add_name(struct kvt_env *env, const char *from, const char *to)
{
    return link(kvt_mnt(env, from), kvt_mnt(env, to)) == 0 ? 0 : -errno;
}

/* ---- seals that fail ---- */

static void c03_a_seal_that_failed_at_close_is_tried_again(void **state)
{
    struct kvt_env *env = *state;
    for (size_t i = 0; i < SEAL_ERRORS; i++) {
        int fd = begin_block(env, "a");
        fail_call(env, "setxattr", 1, seal_errors[i]);
        fail_call(env, "setxattr", 2, seal_errors[i]);
        assert_int_equal(close_copy(fd), -seal_errors[i]);
        assert_int_equal(close_copy(fd), -seal_errors[i]);
        kvt_assert_unsealed(kvt_under(env, "a"));
        assert_int_equal(kvt_close(fd), 0);
        kvt_assert_sealed_block(env, "a", SIZE, 1);
    }
}

static void c03_a_seal_that_failed_is_tried_again_at_the_publish(void **state)
{
    struct kvt_env *env = *state;
    for (size_t i = 0; i < SEAL_ERRORS; i++) {
        int fd = begin_block(env, "a");
        fail_call(env, "setxattr", 1, seal_errors[i]);
        fail_call(env, "setxattr", 2, seal_errors[i]);
        fail_call(env, "setxattr", 3, seal_errors[i]);
        assert_int_equal(kvt_close(fd), -seal_errors[i]);
        kvt_wait_for(kvt_fault_report_has(env, "setxattr 2")); // RELEASE tries, too
        assert_int_equal(move(env, "a", "b"), -seal_errors[i]);
        kvt_assert_gone(env, "b");
        kvt_assert_unsealed(kvt_under(env, "a"));
        assert_int_equal(move(env, "a", "b"), 0);
        kvt_assert_sealed_block(env, "b", SIZE, 1);
        assert_int_equal(kvt_load(env, "b", SIZE, 1, 0), 0);
        assert_int_equal(unlink(kvt_mnt(env, "b")), 0);
    }
}

static void c03_a_publish_of_an_open_block_fails_unsealed(void **state)
{
    struct kvt_env *env = *state;
    for (size_t i = 0; i < SEAL_ERRORS; i++) {
        int fd = begin_block(env, "a");
        fail_call(env, "setxattr", 1, seal_errors[i]);
        assert_int_equal(move(env, "a", "b"), -seal_errors[i]);
        fail_call(env, "setxattr", 1, seal_errors[i]);
        assert_int_equal(add_name(env, "a", "b"), -seal_errors[i]);
        kvt_assert_gone(env, "b");
        kvt_assert_unsealed(kvt_under(env, "a"));
        assert_int_equal(add_name(env, "a", "b"), 0);
        kvt_assert_sealed_block(env, "b", SIZE, 1);
        assert_int_equal(kvt_close(fd), 0);
        assert_int_equal(unlink(kvt_mnt(env, "b")), 0);
    }
}

/* ---- writes that fail ---- */

/* No seal of what is at "a" succeeds, whatever is tried; then a full rewrite makes it good. */
static void check_that_it_is_remembered(struct kvt_env *env, int fd, int error)
{
    assert_int_equal(close_copy(fd), -error);
    assert_int_equal(move(env, "a", "b"), -error);
    assert_int_equal(add_name(env, "a", "b"), -error);
    assert_int_equal(kvt_close(fd), -error);
    assert_int_equal(move(env, "a", "b"), -error);

    fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, SIZE / 2, 2, 0);
    assert_int_equal(close_copy(fd), -error);
    assert_int_equal(move(env, "a", "b"), -error);
    kvt_assert_gone(env, "b");
    kvt_assert_unsealed(kvt_under(env, "a"));

    kvt_put(fd, SIZE, 3, 0);
    assert_int_equal(close_copy(fd), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 3);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(move(env, "a", "b"), 0);
    assert_int_equal(kvt_load(env, "b", SIZE, 3, 0), 0);
    assert_int_equal(unlink(kvt_mnt(env, "b")), 0);
}

static void fail_write(struct kvt_env *env, int fd, int error)
{
    unsigned char *block = kvt_block(SIZE, 4);
    fail_call(env, "write", 1, error);
    assert_int_equal(kvt_write(fd, block, SIZE / 4, SIZE / 4, 0), -error);
    free(block);
}

static void c03_a_failed_write_is_never_forgotten(void **state)
{
    struct kvt_env *env = *state;
    static const int errors[] = {EIO, ENOSPC, EDQUOT, ESTALE};
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        int fd = begin_block(env, "a");
        fail_write(env, fd, errors[i]);
        check_that_it_is_remembered(env, fd, errors[i]);
    }
}

/* The same piece written again is no rewrite in full. */
static void c03_a_failed_write_that_is_repeated_is_remembered(void **state)
{
    struct kvt_env *env = *state;
    int fd = begin_block(env, "a");
    fail_write(env, fd, EIO);
    kvt_put(fd, SIZE / 4, 4, SIZE / 4);
    check_that_it_is_remembered(env, fd, EIO);
}

static void c03_truncation_to_nothing_ends_a_failed_write(void **state)
{
    struct kvt_env *env = *state;
    int fd = begin_block(env, "a");
    fail_write(env, fd, EIO);
    assert_int_equal(close_copy(fd), -EIO);
    assert_int_equal(ftruncate(fd, SIZE / 2), 0);
    assert_int_equal(close_copy(fd), -EIO);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(close_copy(fd), 0);
    kvt_assert_sealed_block(env, "a", 0, 0);

    fail_write(env, fd, ENOSPC);
    assert_int_equal(kvt_close(fd), -ENOSPC);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY | O_TRUNC, SIZE, 5, 0), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 5);
}

/* A fresh daemon: RELEASE of an earlier handle, which nobody waits for, flushes below as well. */
static void c03_an_error_of_close_below_reaches_close(void **state)
{
    struct kvt_env *env = *state;
    kvt_remount(env);
    int fd = begin_block(env, "a");
    fail_call(env, "flush", 1, EIO);
    assert_int_equal(close_copy(fd), -EIO);
    check_that_it_is_remembered(env, fd, EIO);
}

static void c03_an_error_of_the_last_close_reaches_it(void **state)
{
    struct kvt_env *env = *state;
    kvt_remount(env);
    int fd = begin_block(env, "a");
    fail_call(env, "flush", 1, EDQUOT);
    assert_int_equal(kvt_close(fd), -EDQUOT);
    assert_int_equal(move(env, "a", "b"), -EDQUOT);
    kvt_assert_gone(env, "b");
}

static void c03_an_error_of_fsync_is_never_forgotten(void **state)
{
    struct kvt_env *env = *state;
    int fd = begin_block(env, "a");
    fail_call(env, "fsync", 1, EIO);
    kvt_assert_errno(EIO, fsync(fd));
    assert_int_equal(fsync(fd), 0);
    check_that_it_is_remembered(env, fd, EIO);

    fd = begin_block(env, "a");
    fail_call(env, "fsync", 1, ENOSPC);
    kvt_assert_errno(ENOSPC, fdatasync(fd));
    check_that_it_is_remembered(env, fd, ENOSPC);
}

/* The record cannot be removed: nothing is changed, and what is there stays good. */
static void c04_no_change_where_the_record_stays(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    fail_call(env, "removexattr", 1, EIO);
    kvt_assert_errno(EIO, pwrite(fd, "x", 1, 100));
    fail_call(env, "removexattr", 1, EDQUOT);
    kvt_assert_errno(EDQUOT, ftruncate(fd, 0));
    fail_call(env, "removexattr", 1, EIO);
    kvt_assert_errno(EIO, ftruncate(fd, 100));
    kvt_assert_sealed_block(env, "a", SIZE, 1);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(pwrite(fd, "x", 1, 100), 1);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c03_a_seal_that_failed_at_close_is_tried_again),
        kvt_test(c03_a_seal_that_failed_is_tried_again_at_the_publish),
        kvt_test(c03_a_publish_of_an_open_block_fails_unsealed),
        kvt_test(c03_a_failed_write_is_never_forgotten),
        kvt_test(c03_a_failed_write_that_is_repeated_is_remembered),
        kvt_test(c03_truncation_to_nothing_ends_a_failed_write),
        kvt_test(c03_an_error_of_close_below_reaches_close),
        kvt_test(c03_an_error_of_the_last_close_reaches_it),
        kvt_test(c03_an_error_of_fsync_is_never_forgotten),
        kvt_test(c04_no_change_where_the_record_stays),
    };
    return kvt_main("faults, case by case", tests, sizeof(tests) / sizeof(tests[0]), KVT_FAULTFS);
}
