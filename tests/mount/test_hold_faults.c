// SPDX-License-Identifier: Apache-2.0
// A mount that is held, over a file system that fails or hangs.
#include "tests/mount/fixture_held.h"

#include <signal.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* A process of its own calls, and meets the fault. */
static pid_t start_victim(struct kvt_env *env, const struct kvt_held *held, const char *fault,
                          int (*act)(const struct kvt_held *))
{
    kvt_fault(env, fault);
    pid_t pid = fork();
    if (pid == 0)
        _exit(act(held));
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    return pid;
}

/* Its errno, or 0. */
static int end_of(pid_t victim)
{
    int status;
    kvt_wait_for(waitpid(victim, &status, WNOHANG) == victim);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void c03_the_next_daemon_knows_of_a_failed_write(void **state)
{
    struct kvt_env *env = *state;
    struct kvt_held held;
    kvt_held_make(env, &held, 0, "30");
    int fd = kvt_open(kvt_in(held.mnt, "a"), KVT_CREATE);
    kvt_put(fd, MIB, 1, 0);
    kvt_fault(env, "clear\nwrite 1 errno 5\n");
    kvt_assert_errno(EIO, pwrite(fd, "x", 1, 100));
    kvt_held_upgrade(&held);
    kvt_assert_errno(EIO, rename(kvt_in(held.mnt, "a"), kvt_in(held.mnt, "b")));
    kvt_held_upgrade(&held);
    kvt_assert_errno(EIO, close(fd));
    kvt_held_upgrade(&held); // nobody has it open
    kvt_assert_errno(EIO, rename(kvt_in(held.mnt, "a"), kvt_in(held.mnt, "b")));
    kvt_assert_unsealed(kvt_in(held.source, "a"));
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), O_WRONLY | O_TRUNC, MIB, 1, 0), 0);
    kvt_assert_sealed(kvt_in(held.source, "a"));
    kvt_held_end(&held);
}

static int write_a(const struct kvt_held *held)
{
    int fd = open(kvt_in(held->mnt, "a"), O_WRONLY);
    return pwrite(fd, "old", 3, 0) == 3 && close(fd) == 0 ? 0 : errno;
}

/* What a killed daemon is still doing below is over before another one serves. */
static void c23_a_write_of_the_last_daemon_comes_before_the_next(void **state)
{
    struct kvt_env *env = *state;
    struct kvt_held held;
    kvt_held_make(env, &held, 0, "30");
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), KVT_CREATE, MIB, 1, 0), 0);
    pid_t victim = start_victim(env, &held, "clear\nwrite 1 hang\n", write_a);
    kill(held.daemon, SIGKILL);
    pid_t last = held.daemon;
    kvt_held_start(&held);
    usleep(500000);
    char own[32];
    snprintf(own, sizeof(own), "%d\n", (int)held.daemon);
    assert_false(kvt_file_has(held.ready, own));
    kvt_fault(env, "release\n");
    assert_int_equal(kvt_held_await_end(&held, last), 128 + SIGKILL);
    kvt_held_await_ready(&held);
    assert_int_equal(end_of(victim), ESTALE);
    kvt_assert_unsealed(kvt_in(held.source, "a"));
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), O_WRONLY | O_TRUNC, MIB, 2, 0), 0);
    kvt_assert_sealed(kvt_in(held.source, "a"));
    kvt_assert_block(kvt_in(held.source, "a"), MIB, 2);
    kvt_held_end(&held);
}

static int exchange(const struct kvt_held *held)
{
    return renameat2(AT_FDCWD, kvt_in(held->mnt, "a"), AT_FDCWD, kvt_in(held->mnt, "b"),
                     RENAME_EXCHANGE)
               ? errno
               : 0;
}

/* Twice would be as never, and its client told that it is done. */
static void an_exchange_is_not_made_twice(void **state)
{
    struct kvt_env *env = *state;
    struct kvt_held held;
    kvt_held_make(env, &held, 0, "30");
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), KVT_CREATE, MIB, 1, 0), 0);
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "b"), KVT_CREATE, MIB, 2, 0), 0);
    pid_t victim = start_victim(env, &held, "clear\nrename 1 hang\n", exchange);
    kill(held.daemon, SIGKILL);
    kvt_fault(env, "release\n");
    assert_int_equal(kvt_held_await_end(&held, held.daemon), 128 + SIGKILL);
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    assert_int_equal(end_of(victim), EIO);
    assert_int_equal(kvt_load_path(kvt_in(held.mnt, "a"), MIB, 2, 0), 0);
    assert_int_equal(kvt_load_path(kvt_in(held.mnt, "b"), MIB, 1, 0), 0);
    kvt_held_end(&held);
}

/* No other one can go on while the first may still write: then nobody waits for it. */
static void a_daemon_that_hangs_at_its_end_lets_nobody_wait(void **state)
{
    struct kvt_env *env = *state;
    struct kvt_held held;
    kvt_held_make(env, &held, 0, "600");
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), KVT_CREATE, MIB, 1, 0), 0);
    pid_t victim = start_victim(env, &held, "clear\nwrite 1 hang\n", write_a);
    kill(held.daemon, SIGTERM);
    kvt_wait_for(!kvt_is_mounted(held.mnt));
    assert_true(end_of(victim) != 0);
    kvt_fault(env, "release\n");
    assert_int_equal(kvt_held_await_end(&held, held.daemon), 1);
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    kvt_held_end(&held);
}

static int rename_b(const struct kvt_held *held)
{
    return rename(kvt_in(held->mnt, "b.tmp"), kvt_in(held->mnt, "b")) ? errno : 0;
}

static int make_c(const struct kvt_held *held)
{
    return open(kvt_in(held->mnt, "c"), O_CREAT | O_WRONLY, 0644) < 0 ? errno : 0;
}

/* It waits for the directory's lock, whose holder waits for the next daemon. */
static void a_stuck_notification_keeps_nothing_from_the_next_daemon(void **state)
{
    struct kvt_env *env = *state;
    struct kvt_held held;
    char path[64];
    kvt_held_make(env, &held, 0, "30");
    held.options = "invalidate=names";
    kvt_held_upgrade(&held);
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "rotten"), KVT_CREATE, MIB, 1, 0), 0);
    kvt_flip(kvt_in(held.source, "rotten"), 7);
    int rotten = kvt_open(kvt_in(held.mnt, "rotten"), O_PATH);
    int a = kvt_open(kvt_in(held.mnt, "a"), KVT_CREATE);
    int b = kvt_open(kvt_in(held.mnt, "b.tmp"), KVT_CREATE);
    kvt_put(a, MIB, 2, 0);
    kvt_put(b, MIB, 3, 0);

    pid_t first = start_victim(env, &held, "clear\nsetxattr 1 hang\n", rename_b);
    pid_t second = fork();
    if (second == 0)
        _exit(make_c(&held));
    usleep(100000); // until it waits for the lock, too, and before the notification
    snprintf(path, sizeof(path), "/proc/self/fd/%d", rotten);
    kvt_assert_errno(EBADMSG, open(path, O_RDONLY));
    kill(held.daemon, SIGTERM);
    usleep(300000); // nobody takes requests any more
    pid_t last = held.daemon;
    kvt_fault(env, "release\n");
    kvt_held_start(&held);
    assert_int_equal(end_of(first), 0);
    assert_int_equal(end_of(second), 0);
    assert_int_equal(kvt_held_await_end(&held, last), 0);
    kvt_held_await_ready(&held);
    assert_int_equal(close(a), 0);
    assert_int_equal(close(b), 0);
    kvt_assert_sealed(kvt_in(held.source, "a"));
    kvt_assert_sealed(kvt_in(held.source, "b"));
    close(rotten);
    kvt_held_end(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c03_the_next_daemon_knows_of_a_failed_write),
        kvt_test(c23_a_write_of_the_last_daemon_comes_before_the_next),
        kvt_test(an_exchange_is_not_made_twice),
        kvt_test(a_stuck_notification_keeps_nothing_from_the_next_daemon),
        kvt_test(a_daemon_that_hangs_at_its_end_lets_nobody_wait),
    };
    return kvt_main("a mount that is held, and faults", tests, sizeof(tests) / sizeof(tests[0]),
                    KVT_FAULTFS);
}
