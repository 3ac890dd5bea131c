// SPDX-License-Identifier: Apache-2.0
// Loading from a file system that fails: its errors are no corruption (C14), bad readings are
// judged twice (C15), what hangs holds up nobody else (C24).
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <sys/wait.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB             ((size_t)1 << 20)
#define SIZE            ((size_t)65537)

/* 0 or -errno of open(2) and close(2). */
static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : kvt_close(fd);
}

/* The next `count` calls of this kind fail. Where a path is walked again after an error (ESTALE),
 * one would not be enough. */
static void fail_calls(struct kvt_env *env, const char *kind, unsigned count, int error)
{
    char line[64];
    for (unsigned i = 1; i <= count; i++) {
        snprintf(line, sizeof(line), "%s %u errno %d\n", kind, i, error);
        kvt_fault(env, line);
    }
}

static const char *const directions[] = {"a load", "a direct load", "an open for both"};

static int open_in_direction(struct kvt_env *env, size_t direction)
{
    static const int flags[] = {O_RDONLY, O_RDONLY | O_DIRECT, O_RDWR};
    return try_open(kvt_mnt(env, "a"), flags[direction]);
}

static void check_error_passes(struct kvt_env *env, const char *kind, int error)
{
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (size_t i = 0; i < COUNT_OF(directions); i++) {
        fail_calls(env, kind, 12, error);
        int result = open_in_direction(env, i);
        if (result != -error || !kvt_fault_report_has(env, "hit 1"))
            fail_msg("%s, %s with %s: %s", directions[i], kind, strerror(error), strerror(-result));
        kvt_fault(env, "clear\n");
        kvt_assert_sealed_block(env, "a", SIZE, 1);
        assert_int_equal(access(kvt_mnt(env, "a"), F_OK), 0);
        assert_int_equal(open_in_direction(env, i), 0);
        assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    }
    assert_false(kvt_log_has(env, "corrupt block"));
}

static void c14_errors_of_reads_pass(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=remove"); // a log of its own
    check_error_passes(env, "read", EIO);
    check_error_passes(env, "read", ESTALE);
    check_error_passes(env, "read", ETIMEDOUT);
}

static void c14_ebadmsg_of_the_file_system_is_no_corruption(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=remove,corrupt_errno=EIO");
    check_error_passes(env, "read", EBADMSG);
    check_error_passes(env, "getxattr", EBADMSG);
}

static void c14_errors_of_getxattr_pass(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=remove");
    check_error_passes(env, "getxattr", EIO);
    check_error_passes(env, "getxattr", ESTALE);
    check_error_passes(env, "getxattr", ETIMEDOUT);
}

static void c14_errors_of_open_pass(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=remove");
    check_error_passes(env, "open", EIO);
    check_error_passes(env, "open", EACCES);
}

/* Only the second reading of a damaged block fails: there is no verdict then. */
static void c14_an_error_of_the_second_reading_passes(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    kvt_flip(kvt_under(env, "a"), 100);
    kvt_fault(env, "read 2 errno 5\n");
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EIO);
    assert_true(kvt_fault_report_has(env, "hit 1"));
    kvt_fault(env, "clear\n");
    assert_false(kvt_is_gone(kvt_src(env, "a")));
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c14_errors_pass_to_who_reads_an_unsealed_block(void **state)
{
    struct kvt_env *env = *state;
    unsigned char bytes[4096];
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), O_WRONLY | O_CREAT, SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    kvt_fault(env, "read 1 errno 5\n");
    kvt_assert_errno(EIO, pread(fd, bytes, sizeof(bytes), 0));
    assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    close(fd);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
}

/* The file system delivers less than it was asked for; the client does not notice. */
static void c16_short_reads_below_are_not_passed_on(void **state)
{
    struct kvt_env *env = *state;
    static const char *const faults[] = {"read 1 short 1\nread 2 short 5000\nread 3 short 4096\n",
                                         "read 1 short 10000\n", "read 1 short 4096\n"};
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_write_file(kvt_src(env, "u"), O_WRONLY | O_CREAT, SIZE, 2, 0), 0);
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        for (int flags = 0; flags <= KVT_DIRECT; flags++) {
            kvt_fault(env, faults[i]);
            assert_int_equal(kvt_load(env, "a", SIZE, 1, flags), 0);
            assert_true(kvt_fault_report_has(env, "hit 1"));
            kvt_fault(env, "clear\n");
            kvt_fault(env, faults[i]);
            assert_int_equal(kvt_load(env, "u", SIZE, 2, flags), 0);
            kvt_fault(env, "clear\n");
        }
    }
}

/* ---- C15 ---- */

static void c15_one_bad_reading_is_served_from_the_second(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {1, 4096, SIZE, 3 * MIB + 5};
    kvt_start(env, "on_corrupt=remove");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char fault[64];
        assert_int_equal(kvt_store(env, "a", sizes[i], 1, 0), 0);
        for (int flags = 0; flags <= KVT_DIRECT; flags++) {
            snprintf(fault, sizeof(fault), "read 1 flip %zu\n", sizes[i] / 2);
            kvt_fault(env, fault);
            assert_int_equal(kvt_load(env, "a", sizes[i], 1, flags), 0);
            assert_true(kvt_fault_report_has(env, "hit 1"));
            kvt_fault(env, "clear\n");
            assert_false(kvt_is_gone(kvt_src(env, "a")));
        }
    }
    assert_true(kvt_log_contains(env, "read wrong once"));
    assert_false(kvt_log_has(env, "corrupt block"));
}

static void c15_bad_readings_that_differ_are_an_error(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=remove");
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (size_t i = 0; i < COUNT_OF(directions); i++) {
        kvt_fault(env, "read 1 flip 10\nread 2 flip 5000\n");
        assert_int_equal(open_in_direction(env, i), -EIO);
        kvt_fault(env, "clear\n");
        assert_false(kvt_is_gone(kvt_src(env, "a")));
        assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    }
    assert_false(kvt_log_has(env, "corrupt block"));
}

static void c15_two_bad_readings_that_agree_are_corruption(void **state)
{
    struct kvt_env *env = *state;
    for (size_t i = 0; i < COUNT_OF(directions); i++) {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        kvt_fault(env, "read 1 flip-always 10\n");
        assert_int_equal(open_in_direction(env, i), -EBADMSG);
        kvt_assert_gone(env, "a");
        kvt_fault(env, "clear\n");
    }
}

/* A bad reading does not become the sum of a change either (C5): the base is read twice. */
static void c15_one_bad_reading_does_not_refuse_a_change(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    kvt_fault(env, "read 1 flip 10\n");
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 100, 2, 30000);
    assert_int_equal(kvt_close(fd), 0);
    assert_true(kvt_fault_report_has(env, "hit 1"));
    kvt_fault(env, "clear\n");
    kvt_assert_sealed(kvt_src(env, "a"));
}

static void c15_another_program_that_rewrites_the_block_raises_no_alarm(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (unsigned seed = 2; seed < 5; seed++) { // between the first reading and the verdict
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s", kvt_mnt(env, "a"));
        kvt_fault(env, "read 1 hang\n");
        pid_t child = fork();
        if (child == 0)
            _exit(-try_open(path, O_RDONLY));
        kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
        assert_int_equal(kvt_write_file(kvt_under(env, "a"), O_WRONLY, SIZE, seed, 0), 0);
        assert_int_equal(kvt_set_record(kvt_under(env, "a"), kvt_sum_of(kvt_under(env, "a"))), 0);
        kvt_fault(env, "release\nclear\n");
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(kvt_load(env, "a", SIZE, seed, 0), 0);
    }
}

/* ---- C24 ---- */

#define HUNG 40 /* more than the kernel's max_background of old, and than the first workers */

struct loader {
    pthread_t thread;
    char path[PATH_MAX];
    int error;
};

static void *open_and_close(void *argument)
{
    struct loader *loader = argument;
    loader->error = try_open(loader->path, O_RDONLY);
    return NULL;
}

static void c24_reads_that_hang_hold_up_nobody_else(void **state)
{
    struct kvt_env *env = *state;
    static struct loader loaders[HUNG];
    char name[16], line[32];
    assert_int_equal(kvt_store(env, "good", SIZE, 1, 0), 0);
    for (unsigned i = 0; i < HUNG; i++) {
        snprintf(name, sizeof(name), "%u", i);
        assert_int_equal(kvt_store(env, name, SIZE, i, 0), 0);
    }
    for (unsigned i = 0; i < HUNG; i++) {
        snprintf(line, sizeof(line), "read %u hang\n", i + 1);
        kvt_fault(env, line);
    }
    for (unsigned i = 0; i < HUNG; i++) {
        snprintf(name, sizeof(name), "%u", i);
        snprintf(loaders[i].path, sizeof(loaders[i].path), "%s", kvt_mnt(env, name));
        pthread_create(&loaders[i].thread, NULL, open_and_close, &loaders[i]);
    }
    snprintf(line, sizeof(line), "read %u", HUNG);
    kvt_wait_for(kvt_fault_report_has(env, line));
    for (int i = 0; i < 50; i++) {
        assert_int_equal(kvt_load(env, "good", SIZE, 1, i % 2 ? KVT_DIRECT : 0), 0);
        assert_int_equal(kvt_store(env, "other", SIZE, 2, 0), 0);
        assert_int_equal(kvt_count_names(kvt_mnt(env, "")), HUNG + 2);
    }
    kvt_fault(env, "release\nclear\n");
    for (unsigned i = 0; i < HUNG; i++) {
        pthread_join(loaders[i].thread, NULL);
        assert_int_equal(loaders[i].error, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c14_errors_of_reads_pass),
        kvt_test(c14_ebadmsg_of_the_file_system_is_no_corruption),
        kvt_test(c14_errors_of_getxattr_pass),
        kvt_test(c14_errors_of_open_pass),
        kvt_test(c14_an_error_of_the_second_reading_passes),
        kvt_test(c14_errors_pass_to_who_reads_an_unsealed_block),
        kvt_test(c16_short_reads_below_are_not_passed_on),
        kvt_test(c15_one_bad_reading_is_served_from_the_second),
        kvt_test(c15_bad_readings_that_differ_are_an_error),
        kvt_test(c15_two_bad_readings_that_agree_are_corruption),
        kvt_test(c15_one_bad_reading_does_not_refuse_a_change),
        kvt_test(c15_another_program_that_rewrites_the_block_raises_no_alarm),
        kvt_test(c24_reads_that_hang_hold_up_nobody_else),
    };
    return kvt_main("load_faults", tests, COUNT_OF(tests), KVT_FAULTFS);
}
