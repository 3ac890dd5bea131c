// SPDX-License-Identifier: Apache-2.0
// What is seen of a mount from outside: health check, ready file, refusal where nobody would see
// it; and how fast a new daemon heals it.
#include "tests/mount/fixture_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* ---- --healthcheck ---- */

/* Its exit status; it has to say this, or nothing. */
static int health_as(struct kvt_env *env, uid_t user, const char *mnt, const char *said)
{
    const char *log = kvt_work_path(env, "health.log");
    unlink(log);
    int status = kvt_end_of(kvt_launch(log, user, -1, "--healthcheck", mnt, NULL));
    struct stat st = {0};
    assert_int_equal(stat(log, &st), 0);
    if (said ? !kvt_file_has(log, said) : st.st_size != 0) {
        kvt_run("/dev/stderr", "cat", log, NULL);
        fail_msg("status %d, and it did not say: %s", status, said ? said : "nothing");
    }
    return status;
}

static void healthy_while_it_serves(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(health_as(env, 0, env->mnt, NULL), 0);
    assert_int_equal(chmod(env->work, 0755), 0);
    assert_int_equal(health_as(env, KVT_NOBODY, env->mnt, NULL), 0);
}

static void unhealthy_where_nothing_serves(void **state)
{
    struct kvt_env *env = *state;
    const char *empty = kvt_work_dir(env, "empty", 0755);
    assert_int_equal(health_as(env, 0, empty, "not mounted"), 1);
    assert_int_equal(health_as(env, 0, kvt_mnt(env, ""), "not mounted"), 1); // below the mount
    assert_int_equal(mount("tmpfs", empty, "tmpfs", 0, NULL), 0);
    assert_int_equal(health_as(env, 0, empty, "not mounted"), 1);
    assert_int_equal(umount2(empty, 0), 0);
    assert_int_equal(health_as(env, 0, kvt_work_path(env, "missing"), "No such file"), 1);
    const char *source = kvt_work_dir(env, "else-source", 0755);
    pid_t other = kvt_launch(kvt_work_path(env, "else.log"), 0, -1, "-f", source, empty, "-o",
                             "subtype=else", NULL);
    kvt_wait_for(kvt_is_fuse(empty));
    assert_int_equal(health_as(env, 0, empty, "another FUSE file system"), 1);
    assert_int_equal(kvt_terminate(other), 0);
    kvt_kill(env);
    assert_int_equal(health_as(env, 0, env->mnt, "the mount is dead"), 1);
    kvt_start(env, NULL);
    assert_int_equal(health_as(env, 0, env->mnt, NULL), 0);
}

/* Who waits for the end of its output, as container engines do, is not held up by what hangs. */
static void the_check_of_a_hung_daemon_ends(void **state)
{
    struct kvt_env *env = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char output[64];
    snprintf(output, sizeof(output), "/proc/self/fd/%d", ends[1]);
    kill(env->daemon, SIGSTOP);
    uint64_t start = kvt_now_ms();
    pid_t pid = kvt_launch(output, 0, -1, "--healthcheck", env->mnt, "--timeout", "0.5", NULL);
    close(ends[1]);
    char said[512] = "";
    size_t len = 0;
    ssize_t got = 1;
    while (got > 0) {
        struct pollfd readable = {.fd = ends[0], .events = POLLIN};
        if (poll(&readable, 1, KVT_PATIENCE_SEC * 1000) <= 0)
            break;
        got = read(ends[0], said + len, sizeof(said) - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    uint64_t took = kvt_now_ms() - start;
    int status = kvt_end_of(pid);
    kill(env->daemon, SIGCONT);
    close(ends[0]);
    assert_int_equal(got, 0);
    assert_int_equal(status, 1);
    assert_non_null(strstr(said, "no answer within 0.5 seconds"));
    assert_in_range(took, 500, KVT_PATIENCE_SEC * 1000);
    kvt_wait_for(health_as(env, 0, env->mnt, NULL) == 0);
}

/* ---- --ready-file ---- */

static void the_ready_file_is_there_while_it_serves(void **state)
{
    struct kvt_env *env = *state;
    const char *log = kvt_work_path(env, "ready.log"), *ready = kvt_work_path(env, "ready");
    const char *source = kvt_work_dir(env, "ready-source", 0755);
    const char *mnt = kvt_work_dir(env, "ready-mnt", 0755);
    close(kvt_open(ready, O_CREAT | O_WRONLY)); // a killed daemon's
    pid_t pid = kvt_launch(log, 0, -1, "-f", source, mnt, "--ready-file", ready, NULL);
    char own[32];
    snprintf(own, sizeof(own), "%d\n", (int)pid);
    kvt_wait_for(kvt_file_has(ready, own));
    assert_true(kvt_is_fuse(mnt));
    assert_int_equal(kvt_terminate(pid), 0);
    assert_true(kvt_is_gone(ready));
    assert_false(kvt_is_fuse(mnt));

    close(kvt_open(ready, O_CREAT | O_WRONLY));
    const char *missing = kvt_work_path(env, "missing");
    assert_int_equal(
        kvt_end_of(kvt_launch(log, 0, -1, "-f", missing, mnt, "--ready-file", ready, NULL)), 1);
    assert_true(kvt_is_gone(ready));

    const char *nowhere = kvt_work_path(env, "missing/ready");
    assert_int_equal(
        kvt_end_of(kvt_launch(log, 0, -1, "-f", source, mnt, "--ready-file", nowhere, NULL)), 1);
    assert_true(kvt_file_has(log, "ready file"));
    assert_false(kvt_is_mounted(mnt));
}

/* A path that the mount covers means the directory below it, and holds nothing up. */
static void a_ready_file_below_the_mount_is_harmless(void **state)
{
    struct kvt_env *env = *state;
    const char *log = kvt_work_path(env, "ready.log");
    const char *source = kvt_work_dir(env, "ready-source", 0755);
    const char *mnt = kvt_work_dir(env, "ready-below", 0755);
    char ready[PATH_MAX];
    snprintf(ready, sizeof(ready), "%s/ready", mnt);
    pid_t pid = kvt_launch(log, 0, -1, "-f", source, mnt, "-oimmutable=off", "--ready-file", ready,
                           NULL);
    kvt_wait_for(kvt_is_fuse(mnt));
    assert_true(kvt_is_gone(ready));
    assert_int_equal(kvt_terminate(pid), 0);
    assert_int_equal(kvt_count_names(mnt), 0);
}

/* ---- -o require_shared ---- */

static void refuses_a_mount_that_nobody_would_see(void **state)
{
    struct kvt_env *env = *state;
    const char *volume = kvt_work_dir(env, "volume", 0755);
    const char *source = kvt_work_dir(env, "shared-source", 0755);
    assert_int_equal(mount(volume, volume, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, volume, NULL, MS_PRIVATE, NULL), 0);
    const char *mnt = kvt_work_dir(env, "volume/mnt", 0755);
    struct kvt_env refused = *env;
    assert_int_equal(kvt_start_fails(&refused, "require_shared", source, mnt), 1);
    assert_true(kvt_log_has(env, "is not shared"));
    assert_false(kvt_is_mounted(mnt));

    assert_int_equal(mount(NULL, volume, NULL, MS_SHARED, NULL), 0);
    const char *log = kvt_work_path(env, "shared.log");
    pid_t pid = kvt_launch(log, 0, -1, "-f", source, mnt, "-o", "require_shared", NULL);
    kvt_wait_for(kvt_is_fuse(mnt));
    kill(pid, SIGKILL); // what is dead there is no parent of the next one
    assert_int_equal(kvt_end_of(pid), 128 + SIGKILL);
    pid = kvt_launch(log, 0, -1, "-f", source, mnt, "-o", "require_shared", NULL);
    kvt_wait_for(kvt_is_fuse(mnt));
    assert_int_equal(kvt_terminate(pid), 0);
    assert_int_equal(umount2(volume, 0), 0);
}

/* ---- SIGKILL ---- */

static int compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* From the kill to the first block that loads again. One machine may be busy once. */
static void a_restart_heals_within_a_second(void **state)
{
    enum { ROUNDS = 7 };
    struct kvt_env *env = *state;
    uint64_t took_ms[ROUNDS];
    assert_int_equal(kvt_store(env, "a", 1 << 20, 1, 0), 0);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = kvt_now_ms();
        kvt_kill(env);
        assert_int_equal(kvt_load(env, "a", 1 << 20, 1, 0), -ENOTCONN);
        kvt_start(env, NULL);
        assert_int_equal(kvt_load(env, "a", 1 << 20, 1, 0), 0);
        took_ms[i] = kvt_now_ms() - start;
    }
    qsort(took_ms, ROUNDS, sizeof(*took_ms), compare);
    print_message("healed within %ju to %ju ms, half of the times within %ju\n",
                  (uintmax_t)took_ms[0], (uintmax_t)took_ms[ROUNDS - 1],
                  (uintmax_t)took_ms[ROUNDS / 2]);
    assert_in_range(took_ms[ROUNDS / 2], 0, 999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(healthy_while_it_serves),
        kvt_test(unhealthy_where_nothing_serves),
        kvt_test(the_check_of_a_hung_daemon_ends),
        kvt_test(the_ready_file_is_there_while_it_serves),
        kvt_test(a_ready_file_below_the_mount_is_harmless),
        kvt_test(refuses_a_mount_that_nobody_would_see),
        kvt_test(a_restart_heals_within_a_second),
    };
    return kvt_main("healthcheck", tests, sizeof(tests) / sizeof(tests[0]), KVT_DIR);
}
