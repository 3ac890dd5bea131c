// SPDX-License-Identifier: Apache-2.0
// What the service manager hears of a daemon's life (sd_notify(3)), and when it hears nothing.
#include "tests/mount/fixture.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TICK_MS 3000 /* the daemon looks after itself more often */

/* A socket that stands for the service manager's; the daemon that is started next talks to it. */
static int listen_as_manager(struct kvt_env *env)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/notify", env->work);
    unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    return fd;
}

/* The next message with this line comes within `limit_ms`; it is `message`. Others are dropped. */
static bool hear(int fd, const char *line, int limit_ms, char *message, size_t size)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    uint64_t deadline = kvt_now_ms() + (uint64_t)limit_ms;
    while (kvt_now_ms() < deadline) {
        if (poll(&readable, 1, 50) <= 0)
            continue;
        message[0] = '\n'; // so that each line has one before it
        ssize_t length = recv(fd, message + 1, size - 3, 0);
        assert_true(length >= 0);
        strcpy(message + 1 + length, "\n");
        if (strstr(message, line))
            return true;
    }
    return false;
}

/* Starts a daemon of our own, so that the one of other tests never hears of the socket. */
static int start_as_service(struct kvt_env *env, const char *options)
{
    char message[1024], status[3 * PATH_MAX];
    kvt_stop(env);
    int fd = listen_as_manager(env);
    kvt_start(env, options);
    unsetenv("NOTIFY_SOCKET");
    if (!hear(fd, "\nREADY=1\n", KVT_PATIENCE_SEC * 1000, message, sizeof(message))) {
        if (kvt_run(NULL, "grep", "-q", "libsystemd", kvt_program("../../fuse/kvsealfs"), NULL)) {
            print_message("this build has no libsystemd\n");
            skip();
        }
        fail_msg("kvsealfs never said that it is ready");
    }
    snprintf(status, sizeof(status), "\nSTATUS=Serving %s at %s\n", env->source, env->mnt);
    assert_non_null(strstr(message, status));
    return fd;
}

static void ready_when_it_serves_and_stopping_at_the_end(void **state)
{
    struct kvt_env *env = *state;
    char message[1024];
    int fd = start_as_service(env, NULL);
    assert_int_equal(kvt_store(env, "block", 5000, 1, 0), 0);
    kvt_stop(env);
    assert_true(hear(fd, "\nSTOPPING=1\n", 1000, message, sizeof(message)));
    char *patience = strstr(message, "\nEXTEND_TIMEOUT_USEC=");
    assert_non_null(patience);
    assert_true(strtoull(strchr(patience, '=') + 1, NULL, 10) > 10 * 1000000ULL); // the grace
    close(fd);
}

static void stopping_after_an_unmount(void **state)
{
    struct kvt_env *env = *state;
    char message[1024];
    int fd = start_as_service(env, NULL);
    kvt_stop_by_umount(env);
    assert_true(hear(fd, "\nSTOPPING=1\n", 1000, message, sizeof(message)));
    close(fd);
}

static void a_start_that_fails_is_never_ready(void **state)
{
    struct kvt_env *env = *state;
    char message[1024];
    int fd = listen_as_manager(env);
    kvt_start_fails(env, "nonsense=1", env->source, env->mnt);
    kvt_start_fails(env, NULL, "/nowhere", env->mnt);
    unsetenv("NOTIFY_SOCKET");
    assert_false(hear(fd, "READY", 200, message, sizeof(message)));
    close(fd);
}

static void a_manager_that_is_gone_changes_nothing(void **state)
{
    struct kvt_env *env = *state;
    kvt_stop(env);
    close(listen_as_manager(env));
    kvt_start(env, NULL);
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(kvt_store(env, "block", 5000, 1, 0), 0);
    assert_int_equal(kvt_load(env, "block", 5000, 1, 0), 0);
    kvt_stop(env);
}

static void alive_while_the_loop_takes_requests(void **state)
{
    struct kvt_env *env = *state;
    char message[1024];
    int fd = start_as_service(env, NULL);
    for (int i = 0; i < 2; i++)
        assert_true(hear(fd, "\nWATCHDOG=1\n", KVT_PATIENCE_SEC * 1000, message, sizeof(message)));
    kvt_stop(env);
    close(fd);
}

#define THREADS 4

static void *load_one(void *path)
{
    return (void *)(intptr_t)kvt_load_path(path, 5000, 1, 0);
}

/* Each worker hangs in an open of its own. */
static void not_alive_while_all_workers_hang(void **state)
{
    struct kvt_env *env = *state;
    char message[1024], paths[THREADS][PATH_MAX];
    pthread_t clients[THREADS];
    void *error;
    for (int i = 0; i < THREADS; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/%s/block%d", env->mnt, env->dir, i);
        assert_int_equal(kvt_write_file(paths[i], KVT_CREATE, 5000, 1, 0), 0);
    }
    int fd = start_as_service(env, "threads=4");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(access(paths[i], F_OK), 0);
    kvt_fault(env, "clear\nopen 1 hang\nopen 2 hang\nopen 3 hang\nopen 4 hang\n");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&clients[i], NULL, load_one, paths[i]), 0);
    kvt_wait_for(kvt_fault_report_has(env, "open 4"));
    hear(fd, "\nnever\n", TICK_MS, message, sizeof(message)); // what is due for the time before
    assert_false(hear(fd, "\nWATCHDOG=1\n", 2 * TICK_MS, message, sizeof(message)));

    kvt_fault(env, "release\n");
    assert_true(hear(fd, "\nWATCHDOG=1\n", KVT_PATIENCE_SEC * 1000, message, sizeof(message)));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(clients[i], &error);
        assert_int_equal((intptr_t)error, 0);
    }
    kvt_stop(env);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(ready_when_it_serves_and_stopping_at_the_end),
        kvt_test(stopping_after_an_unmount),
        kvt_test(a_start_that_fails_is_never_ready),
        kvt_test(a_manager_that_is_gone_changes_nothing),
        kvt_test(alive_while_the_loop_takes_requests),
        kvt_test(not_alive_while_all_workers_hang),
    };
    return kvt_main("service", tests, sizeof(tests) / sizeof(tests[0]), KVT_FAULTFS);
}
