// SPDX-License-Identifier: Apache-2.0
// --mount-for: mounts for a daemon that may not, and hands it the descriptor.
//
// No copy of the descriptor is kept: while somebody has one, the clients of a daemon that died
// would wait instead of getting ENOTCONN. Unless this is wanted, for some time (holder.h). The
// connection tells that the daemon is gone.
#include "fuse/mounter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/util.h"
#include "fuse/fd_socket.h"
#include "fuse/guard.h"
#include "fuse/holder.h"
#include "fuse/mount.h"
#include "fuse/mountinfo.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

struct mounter {
    struct kvs_options *options;
    int listen_fd;
    int connection_fd; /* to the daemon that serves the mount; -1: none does */
    char *path;        /* of the mount point, canonical; NULL before the first mount */
    int mount_id;      /* -1: there is no mount of ours */
    struct kvs_holder holder;
    int64_t held_until; /* as kvs_clock_ms(): a daemon has to serve by then; 0: one does */
    struct kvs_guard guard;
};

static volatile sig_atomic_t is_ended;

static void end(int number)
{
    is_ended = 1;
}

/* The signals that end it come in only while it waits, with `mask_ret`. */
static void take_signals(sigset_t *mask_ret)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction action = {.sa_handler = end};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        sigaction(numbers[i], &action, NULL);
        sigaddset(&blocked, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &blocked, mask_ret);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        sigdelset(mask_ret, numbers[i]);
}

/* What can be seen before a daemon comes. A mount that is there may have to be replaced then. */
static int check_mountpoint(const struct kvs_options *options)
{
    char path[PATH_MAX];
    enum kvs_occupant occupant = KVS_OCCUPANT_ORDINARY;
    kvs_cleanup_fd int fd = open(options->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 ? -errno : kvs_mount_identify(fd, path, &occupant);
    if (error) {
        complain("mount point %s: %s", options->mountpoint, strerror(-error));
        return error;
    }
    bool may_look = options->require_shared && occupant == KVS_OCCUPANT_ORDINARY;
    return may_look ? kvs_mount_check_shared(path) : 0;
}

/* A session takes out of its arguments what it understood: each gets its own. NULL: none. */
static struct fuse_session *make_session(const struct fuse_args *arguments)
{
    static const struct fuse_lowlevel_ops no_operations;
    struct fuse_session *session = NULL;
    struct fuse_args own = FUSE_ARGS_INIT(0, NULL);
    int error = 0;
    for (int i = 0; i < arguments->argc && !error; i++)
        error = fuse_opt_add_arg(&own, arguments->argv[i]);
    if (!error)
        session = fuse_session_new(&own, &no_operations, sizeof(no_operations), NULL);
    fuse_opt_free_args(&own);
    return session;
}

/* Mounts, by libfuse, whose session is only a way to it. 0 or -errno, said. */
static int mount_and_send(struct mounter *mounter, int connection)
{
    struct fuse_session *session = make_session(&mounter->options->session_args);
    if (!session || fuse_session_mount(session, mounter->path)) {
        complain("cannot mount on %s: it takes /dev/fuse and CAP_SYS_ADMIN", mounter->path);
        if (session)
            fuse_session_destroy(session);
        return -EIO;
    }
    mounter->mount_id = kvs_mount_id(mounter->path);
    int device_fd = fuse_session_fd(session);
    int error = mounter->options->hold > 0
                    ? kvs_holder_begin(&mounter->holder, connection, mounter->path, device_fd)
                    : kvs_fd_socket_send(connection, mounter->path, device_fd);
    fuse_session_destroy(session); /* closes the descriptor; the mount stays */
    if (error)
        complain("cannot hand the mount over: %s", strerror(-error));
    return error;
}

/* `is_gone`: its daemon is. One that goes on serves open files to their end. */
static void take_mount_away(struct mounter *mounter, bool is_gone)
{
    if (mounter->path)
        kvs_mount_detach(mounter->path, mounter->mount_id, is_gone || mounter->held_until > 0);
    mounter->mount_id = -1;
    mounter->held_until = 0;
    kvs_holder_drop(&mounter->holder);
}

/* 0 and the canonical mount point, malloc()ed; or -errno, said: the place is taken, and whoever
 * serves it goes on. */
static int prepare_place(const struct kvs_options *options, char **path_ret)
{
    kvs_cleanup_free char *path = NULL;
    int error = kvs_mount_prepare(options->mountpoint, &path);
    if (!error && options->require_shared)
        error = kvs_mount_check_shared(path);
    if (error)
        return error;
    *path_ret = path;
    path = NULL;
    return 0;
}

static void send_away(int connection, int error)
{
    char text[128];
    snprintf(text, sizeof(text), "the mounter could not mount: %s", strerror(-error));
    kvs_fd_socket_send(connection, text, -1);
}

/* Everything for the daemon at the other end of `connection`. 0 or -errno, said, also there. */
static int serve_daemon(struct mounter *mounter, int connection)
{
    const struct kvs_options *options = mounter->options;
    char *path = NULL;
    int error = prepare_place(options, &path);
    if (error) {
        send_away(connection, error);
        return error;
    }
    free(mounter->path);
    mounter->path = path;
    /* Without --stay nobody would give it back; and the mount, dead or not, covers the place. */
    if (options->stay && mounter->guard.directory_fd < 0)
        kvs_guard_take(mounter->path, -1, options->immutable, &mounter->guard);
    error = mount_and_send(mounter, connection);
    if (error) {
        send_away(connection, error);
        take_mount_away(mounter, true);
        return error;
    }
    kvs_log(KVS_LOG_ALWAYS, LOG_INFO, "mounted %s for the daemon that asked", mounter->path);
    return 0;
}

/* The daemon at the other end goes on with the mount. 0 or -errno. */
static int hand_on(struct mounter *mounter, int connection)
{
    int error = kvs_holder_send(&mounter->holder, connection, mounter->path);
    if (error)
        return error; /* gone already: the next one may come */
    kvs_log(KVS_LOG_ALWAYS, LOG_INFO, "handed %s on to the daemon that asked", mounter->path);
    return 0;
}

/* A connection was made. 0; -EAGAIN: nobody who may, or who stays; or -errno, said. */
static int greet(struct mounter *mounter)
{
    kvs_cleanup_fd int connection = -1;
    int error = kvs_fd_socket_accept(mounter->listen_fd, mounter->options->user, &connection);
    if (error)
        return -EAGAIN;
    error = mounter->held_until > 0 ? hand_on(mounter, connection)
                                    : serve_daemon(mounter, connection);
    if (error == -EPIPE || error == -ECONNRESET)
        return -EAGAIN; /* gone before it got the mount: the next one may come */
    if (error)
        return error;
    kvs_close_fd(&mounter->connection_fd); /* to one whose mount somebody has taken away */
    mounter->connection_fd = kvs_steal_fd(&connection);
    return 0;
}

/* Waits for a daemon, until the end or for `limit_s`; serves one. 0 or -errno, said. */
static int run_once(struct mounter *mounter, double limit_s, const sigset_t *mask)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double deadline = (double)now.tv_sec + (double)now.tv_nsec / 1e9 + limit_s;
    while (!is_ended) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        double left = deadline - (double)now.tv_sec - (double)now.tv_nsec / 1e9;
        if (left <= 0) {
            complain("no daemon connected to %s within %g seconds", mounter->options->mount_for,
                     limit_s);
            return -ETIMEDOUT;
        }
        struct timespec timeout = {.tv_sec = (time_t)left,
                                   .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        struct pollfd caller = {.fd = mounter->listen_fd, .events = POLLIN};
        int error = ppoll(&caller, 1, &timeout, mask) > 0 ? greet(mounter) : -EAGAIN;
        if (error != -EAGAIN)
            return error;
    }
    complain("asked to end before a daemon came");
    return -EINTR;
}

/* Also what an earlier mounter left that was killed: a dead mount, a guarded directory. */
static void leave_nothing(struct mounter *mounter)
{
    take_mount_away(mounter, false);
    free(mounter->path);
    mounter->path = NULL;
    if (kvs_mount_prepare(mounter->options->mountpoint, &mounter->path) == 0 &&
        mounter->guard.directory_fd < 0)
        kvs_guard_take(mounter->path, -1, false, &mounter->guard);
    kvs_guard_give_back(&mounter->guard);
}

/* The daemon said something to be kept; or it is gone. */
static void hear_daemon(struct mounter *mounter)
{
    int heard = -ENODATA;
    if (mounter->holder.device_fd >= 0)
        heard = kvs_holder_receive(&mounter->holder, mounter->connection_fd);
    if (heard > 0)
        mounter->held_until = 0;
    if (heard >= 0)
        return;
    close(mounter->connection_fd);
    mounter->connection_fd = -1;
    if (kvs_holder_is_ready(&mounter->holder) && kvs_mount_id(mounter->path) == mounter->mount_id) {
        if (mounter->held_until == 0)
            mounter->held_until = kvs_clock_ms() + (int64_t)(mounter->options->hold * 1000) + 1;
        kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE,
                "the daemon of %s is gone: its clients wait for the next one, up to %g seconds",
                mounter->path, mounter->options->hold);
        return;
    }
    kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE, "the daemon of %s is gone", mounter->path);
    take_mount_away(mounter, true);
}

/* Waits for what is to be done, to the end of a hold at most. Whether there is something. */
static bool wait_for_news(const struct mounter *mounter, struct pollfd fds[2], const sigset_t *mask)
{
    int64_t left_ms = mounter->held_until - kvs_clock_ms();
    struct timespec left = {0};
    if (left_ms > 0)
        left = (struct timespec){.tv_sec = left_ms / 1000, .tv_nsec = (left_ms % 1000) * 1000000};
    return ppoll(fds, 2, mounter->held_until > 0 ? &left : NULL, mask) > 0;
}

/* Without --hold a daemon sends nothing: what can be read is its end. */
static void run_on(struct mounter *mounter, const sigset_t *mask)
{
    while (!is_ended) {
        /* Of a held mount the next daemon waits until the present one is gone. */
        bool is_waiting = mounter->options->hold > 0 && mounter->connection_fd >= 0;
        struct pollfd fds[] = {
            {.fd = mounter->connection_fd, .events = POLLIN},
            {.fd = is_waiting ? -1 : mounter->listen_fd, .events = POLLIN},
        };
        bool is_news = wait_for_news(mounter, fds, mask);
        if (is_news && fds[0].revents)
            hear_daemon(mounter);
        if (is_news && fds[1].revents)
            greet(mounter);
        if (mounter->held_until > 0 && kvs_clock_ms() >= mounter->held_until) {
            complain("no daemon serves %s again within %g seconds: its clients' calls fail",
                     mounter->path, mounter->options->hold);
            take_mount_away(mounter, true);
            kvs_close_fd(&mounter->connection_fd); /* to one that never came to serve it */
            mounter->connection_fd = -1;
        }
    }
    leave_nothing(mounter);
}

int kvs_mounter_run(struct kvs_options *options)
{
    struct mounter mounter = {.options = options,
                              .listen_fd = -1,
                              .connection_fd = -1,
                              .mount_id = -1,
                              .holder = KVS_HOLDER_INIT,
                              .guard.directory_fd = -1};
    sigset_t mask;
    take_signals(&mask);
    int error = check_mountpoint(options);
    error = error ? error
                  : kvs_fd_socket_listen(options->mount_for, options->user, &mounter.listen_fd);
    if (!error && options->stay)
        run_on(&mounter, &mask);
    else if (!error)
        error = run_once(&mounter, options->timeout, &mask);
    if (mounter.listen_fd >= 0) {
        unlink(options->mount_for);
        close(mounter.listen_fd);
    }
    if (mounter.connection_fd >= 0)
        close(mounter.connection_fd);
    kvs_holder_drop(&mounter.holder);
    free(mounter.path);
    return error ? EXIT_FAILURE : EXIT_SUCCESS;
}
