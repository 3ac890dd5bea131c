// SPDX-License-Identifier: Apache-2.0
// A mount that is held, and a process that starts its daemons.
#include "tests/mount/fixture_held.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

const char *kvt_in(const char *dir, const char *name)
{
    static _Thread_local char paths[8][PATH_MAX];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    return path;
}

struct order {
    enum { START_MOUNTER, START_DAEMON, AWAIT_END } what;
    pid_t pid;
    uid_t user;
    char options[64];
};

static int obey(const struct kvt_held *held, struct order order)
{
    char uid[16];
    int status;
    snprintf(uid, sizeof(uid), "%u", order.user);
    switch (order.what) {
    case START_MOUNTER:
        return kvt_launch(held->log, 0, -1, "-f", "--mount-for", held->socket, "--user", uid,
                          "--stay", "--hold", held->seconds, held->source, held->mnt, NULL);
    case START_DAEMON:
        return kvt_launch(held->log, order.user, -1, "-f", "--fd-socket", held->socket,
                          "--ready-file", held->ready, "-o", order.options, held->source, NULL);
    case AWAIT_END:
        if (waitpid(order.pid, &status, 0) == order.pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return -1;
}

static int tell(const struct kvt_held *held, int what, pid_t pid)
{
    struct order order = {.what = what, .pid = pid, .user = held->user};
    int result = -1;
    snprintf(order.options, sizeof(order.options), "%s",
             held->options ? held->options : "on_corrupt=remove");
    assert_int_equal(write(held->keeper, &order, sizeof(order)), sizeof(order));
    assert_int_equal(read(held->keeper, &result, sizeof(result)), sizeof(result));
    return result;
}

static void start_keeper(struct kvt_held *held)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t keeper = fork();
    assert_true(keeper >= 0);
    if (keeper == 0) {
        struct order order;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        while (read(ends[0], &order, sizeof(order)) == sizeof(order)) {
            int result = obey(held, order);
            if (write(ends[0], &result, sizeof(result)) < 0)
                break;
        }
        _exit(0);
    }
    close(ends[0]);
    held->keeper = ends[1];
}

void kvt_held_start(struct kvt_held *held)
{
    held->daemon = tell(held, START_DAEMON, 0);
}

pid_t kvt_held_start_mounter(const struct kvt_held *held)
{
    return tell(held, START_MOUNTER, 0);
}

int kvt_held_await_end(const struct kvt_held *held, pid_t pid)
{
    return tell(held, AWAIT_END, pid);
}

int kvt_held_terminate(const struct kvt_held *held, pid_t pid)
{
    kill(pid, SIGTERM);
    return kvt_held_await_end(held, pid);
}

void kvt_held_await_ready(const struct kvt_held *held)
{
    char own[32];
    snprintf(own, sizeof(own), "%d\n", (int)held->daemon);
    kvt_wait_for(kvt_file_has(held->ready, own));
}

void kvt_held_make(struct kvt_env *env, struct kvt_held *held, uid_t user, const char *seconds)
{
    static unsigned turn; // what a test that failed has left is in nobody's way
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", kvt_work_path(env, "held"));
    snprintf(dir + strlen(dir), 16, "-%u", turn++);
    assert_int_equal(mkdir(dir, 0777) | chmod(dir, 0777), 0);
    const char *source = env->kind == KVT_FAULTFS ? kvt_in(env->source, strrchr(dir, '/') + 1)
                                                  : kvt_in(dir, "source");
    assert_int_equal(mkdir(source, 0755) | mkdir(kvt_in(dir, "mnt"), 0755), 0);
    *held = (struct kvt_held){.source = strdup(source),
                              .mnt = strdup(kvt_in(dir, "mnt")),
                              .socket = strdup(kvt_in(dir, "socket")),
                              .ready = strdup(kvt_in(dir, "ready")),
                              .log = strdup(kvt_in(dir, "log")),
                              .seconds = seconds,
                              .user = user};
    assert_int_equal(chmod(env->work, 0755), 0);
    assert_int_equal(chown(held->source, user, user), 0);
    start_keeper(held);
    held->mounter = kvt_held_start_mounter(held);
    kvt_held_start(held);
    kvt_held_await_ready(held);
}

void kvt_held_end(struct kvt_held *held)
{
    assert_int_equal(kvt_held_terminate(held, held->daemon), 0);
    assert_int_equal(kvt_held_terminate(held, held->mounter), 0);
    assert_false(kvt_is_mounted(held->mnt));
    close(held->keeper);
    assert_int_equal(kvt_run(NULL, "/bin/rm", "-r", held->source, NULL), 0);
    assert_false(kvt_file_has(held->log, "Sanitizer"));
    free((void *)held->source);
    free((void *)held->mnt);
    free((void *)held->socket);
    free((void *)held->ready);
    free((void *)held->log);
}

void kvt_held_upgrade(struct kvt_held *held)
{
    assert_int_equal(kvt_held_terminate(held, held->daemon), 0);
    kvt_held_start(held);
    kvt_held_await_ready(held);
}

void kvt_held_kill(const struct kvt_held *held)
{
    kill(held->daemon, SIGKILL);
    assert_int_equal(kvt_held_await_end(held, held->daemon), 128 + SIGKILL);
}

void kvt_held_kill_and_replace(struct kvt_held *held)
{
    kvt_held_kill(held);
    kvt_held_start(held);
    kvt_held_await_ready(held);
}
