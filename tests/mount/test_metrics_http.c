// SPDX-License-Identifier: Apache-2.0
// Metrics and health by HTTP, as a scraper and an orchestrator ask for them.
#include "tests/mount/fixture_metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* The port that the daemon's log names; `metrics=0` lets the kernel choose it. */
static uint16_t port_of(struct kvt_env *env)
{
    char text[4096] = "";
    unsigned port = 0;
    assert_true(kvt_log_contains(env, "metrics at http://"));
    int fd = kvt_open(env->log, O_RDONLY);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    const char *url = strstr(text, "metrics at http://");
    assert_int_equal(sscanf(strrchr(strtok((char *)url, "\n"), ':'), ":%u/metrics", &port), 1);
    return (uint16_t)port;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The answer with its headers, malloc()ed; its status, or 0. */
static int ask(uint16_t port, const char *method, const char *path, char **answer_ret)
{
    char request[256];
    size_t len = 0, room = 1 << 20;
    char *answer = calloc(1, room);
    const struct timeval patience = {.tv_sec = 5};
    int fd = connect_to(port), status = 0;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             method, path);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    for (ssize_t n = 1; n > 0; len += (size_t)n) {
        n = recv(fd, answer + len, room - 1 - len, 0);
        if (n < 0)
            n = 0;
    }
    close(fd);
    if (sscanf(answer, "HTTP/1.1 %d", &status) != 1)
        status = 0;
    if (answer_ret)
        *answer_ret = answer;
    else
        free(answer);
    return status;
}

static void http_shows_the_metrics(void **state)
{
    struct kvt_env *env = *state;
    char *answer;
    kvt_start(env, "metrics=0");
    uint16_t port = port_of(env);
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    assert_int_equal(ask(port, "GET", "/metrics", &answer), 200);
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert_int_equal(kvt_metric_in(answer, STORES("arrived", "sealed")), 1);
    free(answer);
    assert_int_equal(ask(port, "HEAD", "/metrics", &answer), 200);
    assert_null(strstr(answer, "kvseal_"));
    free(answer);
    assert_int_equal(ask(port, "GET", "/healthz", NULL), 200);
    assert_int_equal(ask(port, "GET", "/readyz", NULL), 200);
    assert_int_equal(ask(port, "GET", "/", NULL), 404);
    assert_int_equal(ask(port, "GET", "/../../etc/passwd", NULL), 404);
    assert_int_equal(ask(port, "POST", "/metrics", NULL), 405);
    assert_int_equal(ask(port, "nonsense", "/metrics", NULL), 405);
}

static void http_is_for_this_machine_unless_a_host_is_given(void **state)
{
    static const struct {
        const char *options, *logged;
    } cases[] = {
        {"metrics=:0", "metrics at http://127.0.0.1:"},
        {"metrics=localhost:0", "metrics at http://"},
        {"metrics=0.0.0.0:0", "metrics at http://0.0.0.0:"},
    };
    struct kvt_env *env = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        kvt_start(env, cases[i].options);
        assert_true(kvt_log_contains(env, cases[i].logged));
    }
}

static void c21_an_address_in_use_is_refused(void **state)
{
    struct kvt_env *env = *state;
    char options[64], mnt[PATH_MAX], line[128];
    kvt_start(env, "metrics=0");
    snprintf(options, sizeof(options), "metrics=127.0.0.1:%u", port_of(env));
    snprintf(mnt, sizeof(mnt), "%s/other", env->work);
    snprintf(line, sizeof(line), "kvsealfs: %s: cannot listen there: Address already in use",
             options);
    assert_true(mkdir(mnt, 0755) == 0 || errno == EEXIST);
    assert_int_not_equal(kvt_start_fails(env, options, env->source, mnt), 0);
    assert_true(kvt_log_has(env, line));
    assert_false(kvt_is_mounted(mnt));
    assert_int_not_equal(kvt_start_fails(env, "metrics=192.0.2.1:9457", env->source, mnt), 0);
    assert_true(kvt_log_has(env, "cannot listen there"));
    assert_false(kvt_is_mounted(mnt));
    assert_int_equal(rmdir(mnt), 0);
}

/* They are few, they end, and the mount does not notice. */
static void http_is_not_held_up_by_silent_clients(void **state)
{
    struct kvt_env *env = *state;
    int fds[40];
    kvt_start(env, "metrics=0");
    uint16_t port = port_of(env);
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        fds[i] = connect_to(port);
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", 4096, 1, 0), 0);
    kvt_wait_for(ask(port, "GET", "/healthz", NULL) == 200);
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        close(fds[i]);
    kvt_stop(env);
    assert_int_equal(connect_to(port), -1);
}

/* Clients that are never idle and never done, and come back when they are cut off. */
#define SLOW_CLIENTS 100

struct slow_clients {
    uint16_t port;
    atomic_bool is_over;
    atomic_uint bytes;
};

static void *trickle(void *argument)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nX-Slow: ";
    struct slow_clients *clients = argument;
    int fds[SLOW_CLIENTS];
    size_t sent[SLOW_CLIENTS] = {0};
    for (size_t i = 0; i < SLOW_CLIENTS; i++)
        fds[i] = connect_to(clients->port);
    while (!atomic_load(&clients->is_over)) {
        for (size_t i = 0; i < SLOW_CLIENTS; i++) {
            const char *next = sent[i] < sizeof(request) - 1 ? request + sent[i] : "x";
            if (fds[i] >= 0 && send(fds[i], next, 1, MSG_NOSIGNAL) == 1) {
                sent[i]++;
                atomic_fetch_add(&clients->bytes, 1);
                continue;
            }
            close(fds[i]);
            fds[i] = connect_to(clients->port);
            sent[i] = 0;
        }
        usleep(50000);
    }
    for (size_t i = 0; i < SLOW_CLIENTS; i++)
        close(fds[i]);
    return NULL;
}

static void http_is_not_held_up_by_slow_clients(void **state)
{
    struct kvt_env *env = *state;
    pthread_t thread;
    kvt_start(env, "metrics=0");
    struct slow_clients clients = {.port = port_of(env)};
    assert_int_equal(pthread_create(&thread, NULL, trickle, &clients), 0);
    kvt_wait_for(atomic_load(&clients.bytes) > SLOW_CLIENTS);
    for (int i = 0; i < 10; i++) {
        uint64_t began = kvt_now_ms();
        assert_int_equal(ask(clients.port, "GET", i % 2 ? "/healthz" : "/metrics", NULL), 200);
        assert_true(kvt_now_ms() - began < 2000);
        usleep(200000);
    }
    atomic_store(&clients.is_over, true);
    pthread_join(thread, NULL);
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* The end was asked for, and a request hangs below. */
static void http_is_not_ready_while_it_drains(void **state)
{
    struct kvt_env *env = *state;
    kvt_only_on(env, KVT_FAULTFS);
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    kvt_start(env, "metrics=0,passthrough=off");
    uint16_t port = port_of(env);
    kvt_fault(env, "read 1 hang\n");
    pid_t client = fork();
    if (client == 0)
        _exit(kvt_load(env, "a", 4096, 1, KVT_DIRECT) != 0);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    assert_int_equal(ask(port, "GET", "/readyz", NULL), 200);
    assert_int_equal(kill(env->daemon, SIGTERM), 0);
    kvt_wait_for(ask(port, "GET", "/readyz", NULL) == 503);
    char *answer;
    assert_int_equal(ask(port, "GET", "/readyz", &answer), 503);
    assert_non_null(strstr(answer, "not ready: draining"));
    free(answer);
    assert_int_equal(ask(port, "GET", "/healthz", NULL), 200);
    kvt_fault(env, "release\n");
    int status;
    assert_int_equal(waitpid(client, &status, 0), client);
    kvt_wait_for(has_ended(env->daemon)); /* a second signal would come into its unmount */
    kvt_stop(env);
    kvt_fault(env, "clear\n");
}

static void http_answers_while_a_read_of_the_scrub_hangs(void **state)
{
    struct kvt_env *env = *state;
    kvt_only_on(env, KVT_FAULTFS);
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    kvt_start(env, "metrics=0,scrub_within=1");
    uint16_t port = port_of(env);
    kvt_fault(env, "clear\nread 1 hang\n");
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    assert_int_equal(ask(port, "GET", "/metrics", NULL), 200);
    assert_int_equal(ask(port, "GET", "/readyz", NULL), 200);
    kvt_fault(env, "release\n");
    kvt_fault(env, "clear\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(http_shows_the_metrics),
        kvt_test(http_is_for_this_machine_unless_a_host_is_given),
        kvt_test(c21_an_address_in_use_is_refused),
        kvt_test(http_is_not_held_up_by_silent_clients),
        kvt_test(http_is_not_held_up_by_slow_clients),
        kvt_test(http_answers_while_a_read_of_the_scrub_hangs),
        kvt_test(http_is_not_ready_while_it_drains),
    };
    return kvt_main("metrics_http", tests, COUNT_OF(tests), KVT_DIR | KVT_FAULTFS);
}
