// SPDX-License-Identifier: Apache-2.0
// The descriptor of a mount, handed from the process that may mount to the one that serves.
#include "fuse/fd_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/util.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/* How often the daemon looks whether somebody listens, or it is to end. */
#define RETRY_MS 50

/* Stands behind the socket's name until it listens. */
#define UNREADY ".new"

/* The device's number, the same everywhere. */
#define FUSE_MAJOR 10
#define FUSE_MINOR 229

bool kvs_fd_is_fuse_device(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
           st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
}

/* 0 or -ENAMETOOLONG. */
static int make_address(const char *path, struct sockaddr_un *address_ret)
{
    *address_ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t size = strlen(path) + 1;
    if (size > sizeof(address_ret->sun_path))
        return -ENAMETOOLONG;
    memcpy(address_ret->sun_path, path, size);
    return 0;
}

/* A socket that is connected there, or -errno. */
static int connect_to(const struct sockaddr_un *address)
{
    kvs_cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
        return -errno;
    return kvs_steal_fd(&fd);
}

/* Whether the name can be ours: nothing is there, or a socket that nobody has any more. 0 or
 * -errno. Asked by a socket of another type, which never gets a connection: a mounter that waits
 * would take that for the daemon, mount for it, and end. */
static int check_name(const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(address->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EADDRINUSE;
    kvs_cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
        return -EADDRINUSE;
    if (errno == ECONNREFUSED)
        return 0;
    return errno == EPROTOTYPE ? -EADDRINUSE : -errno;
}

/* 0 or -errno. The mode is set first: afterwards it may be the file of another. */
static int open_to(const char *path, uid_t peer)
{
    if (chmod(path, 0600) < 0)
        return -errno;
    if (peer == geteuid() || chown(path, peer, (gid_t)-1) == 0)
        return 0;
    return chmod(path, 0666) < 0 ? -errno : 0;
}

/* What a killed mounter left there goes; nobody could connect to it yet. 0 or -errno. */
static int clear_unready(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EADDRINUSE;
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

/* A socket that listens there, or -errno. */
static int listen_at(const struct sockaddr_un *address, uid_t peer)
{
    int error = clear_unready(address->sun_path);
    if (error)
        return error;
    kvs_cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
        return -errno;
    error = open_to(address->sun_path, peer);
    if (!error && listen(fd, 8) < 0)
        error = -errno;
    return error ? error : kvs_steal_fd(&fd);
}

/* The name appears when the socket is ready to be connected to, by whom it is for. */
int kvs_fd_socket_listen(const char *path, uid_t peer, int *fd_ret)
{
    struct sockaddr_un address, unready;
    char name[sizeof(address.sun_path) + sizeof(UNREADY)];
    int error = make_address(path, &address);
    if (!error) {
        snprintf(name, sizeof(name), "%s" UNREADY, path);
        error = make_address(name, &unready);
    }
    error = error ? error : check_name(&address);
    kvs_cleanup_fd int fd = error ? error : listen_at(&unready, peer);
    error = fd < 0 ? fd : 0;
    if (!error && rename(name, path) < 0) {
        error = -errno;
        unlink(name);
    }
    if (error) {
        complain("socket %s: %s", path, strerror(-error));
        return error;
    }
    *fd_ret = kvs_steal_fd(&fd);
    return 0;
}

int kvs_fd_socket_accept(int listen_fd, uid_t peer, int *connection_ret)
{
    kvs_cleanup_fd int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t size = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
        return -errno;
    if (who.uid != peer && who.uid != geteuid()) {
        kvs_log(KVS_LOG_OTHER, LOG_WARNING, "turned a process of user %u away: --user is %u",
                (unsigned)who.uid, (unsigned)peer);
        kvs_fd_socket_send(fd, "this user is not the mounter's --user", -1);
        return -EAGAIN;
    }
    *connection_ret = kvs_steal_fd(&fd);
    return 0;
}

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(KVS_FD_SOCKET_FDS * sizeof(int))];
};

/* 0 or -errno. */
static int send_now(int connection, const char *text, const int *fds, size_t count)
{
    struct iovec iov = {.iov_base = (char *)text,
                        .iov_len = KVS_MIN(strlen(text) + 1, (size_t)KVS_FD_SOCKET_TEXT)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    union control control = {0};
    if (count > 0) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int kvs_fd_socket_send(int connection, const char *text, int fd)
{
    return send_now(connection, text, &fd, fd >= 0);
}

int kvs_fd_socket_send_all(int connection, const char *text, const int *fds, size_t count,
                           int limit_ms)
{
    int64_t deadline = kvs_clock_ms() + limit_ms;
    for (;;) {
        int error = send_now(connection, text, fds, count);
        /* ETOOMANYREFS: of descriptors on their way there may be as many as open ones. */
        if (error != -EAGAIN && error != -ETOOMANYREFS && error != -EINTR)
            return error;
        if (kvs_clock_ms() >= deadline)
            return -ETIMEDOUT;
        struct pollfd pollfd = {.fd = connection, .events = POLLOUT};
        poll(&pollfd, error == -EAGAIN, RETRY_MS / 10);
    }
}

/* What came beside the text. */
static size_t take_descriptors(struct msghdr *message, int *fds_ret, size_t room)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    int fds[KVS_FD_SOCKET_FDS];
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), count * sizeof(int));
    if (count <= room && !(message->msg_flags & MSG_CTRUNC)) {
        memcpy(fds_ret, fds, count * sizeof(int));
        return count;
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return 0;
}

int kvs_fd_socket_receive_all(int connection, int limit_ms, char *text_ret, int *fds_ret,
                              size_t room, size_t *count_ret)
{
    struct pollfd pollfd = {.fd = connection, .events = POLLIN};
    int ready = poll(&pollfd, 1, limit_ms);
    if (ready <= 0)
        return ready < 0 ? -errno : -ETIMEDOUT;
    struct iovec iov = {.iov_base = text_ret, .iov_len = KVS_FD_SOCKET_TEXT - 1};
    union control control = {0};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof(control.room)};
    ssize_t len = recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    /* Told once, before the last words of whoever left with ours unread. */
    if (len < 0 && errno == ECONNRESET)
        len = recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (len <= 0)
        return len < 0 ? -errno : -ECONNRESET;
    text_ret[len] = 0;
    *count_ret = take_descriptors(&message, fds_ret, room);
    return 0;
}

int kvs_fd_socket_receive(int connection, int limit_ms, char *text_ret, int *fd_ret)
{
    size_t count = 0;
    int error = kvs_fd_socket_receive_all(connection, limit_ms, text_ret, fd_ret, 1, &count);
    if (!error && count == 0)
        *fd_ret = -1;
    return error;
}

/* Until somebody listens. A connection, or -errno. */
static int connect_in_time(const struct sockaddr_un *address, int64_t deadline,
                           bool (*is_over)(void *), void *argument)
{
    for (;;) {
        int fd = connect_to(address);
        if (fd != -ENOENT && fd != -ECONNREFUSED)
            return fd;
        if (is_over(argument))
            return -EINTR;
        if (kvs_clock_ms() >= deadline)
            return -ETIMEDOUT;
        poll(NULL, 0, RETRY_MS);
    }
}

/* /dev/fuse, and the state of a mount that is held. */
static int receive_in_time(int connection, int64_t deadline, bool (*is_over)(void *),
                           void *argument, char *text_ret, int fds_ret[2])
{
    for (;;) {
        size_t count;
        int error = kvs_fd_socket_receive_all(connection, RETRY_MS, text_ret, fds_ret, 2, &count);
        if (error != -ETIMEDOUT && error != -EINTR && error != -EAGAIN)
            return error;
        if (is_over(argument))
            return -EINTR;
        if (kvs_clock_ms() >= deadline)
            return -ETIMEDOUT;
    }
}

int kvs_fd_socket_fetch(const char *path, int limit_ms, bool (*is_over)(void *), void *argument,
                        char *mountpoint_ret, int *connection_ret, int *device_ret, int *state_ret)
{
    int64_t deadline = kvs_clock_ms() + limit_ms;
    struct sockaddr_un address;
    int error = make_address(path, &address);
    kvs_cleanup_fd int connection = error ? error
                                          : connect_in_time(&address, deadline, is_over, argument);
    if (connection < 0) {
        complain("socket %s: %s", path,
                 connection == -ETIMEDOUT ? "no kvsealfs --mount-for came to listen there"
                 : connection == -EINTR   ? "asked to end before a mount came"
                                          : strerror(-connection));
        return connection;
    }
    int fds[2] = {-1, -1};
    error = receive_in_time(connection, deadline, is_over, argument, mountpoint_ret, fds);
    kvs_cleanup_fd int device = fds[0];
    kvs_cleanup_fd int state = fds[1];
    if (error) {
        complain("socket %s: got no mount: %s", path, strerror(-error));
        return error;
    }
    if (device < 0) {
        complain("socket %s: got no mount: %s", path, mountpoint_ret);
        return -ECONNREFUSED;
    }
    if (!kvs_fd_is_fuse_device(device)) {
        complain("socket %s: what came is not a descriptor of /dev/fuse", path);
        return -EBADF;
    }
    *connection_ret = kvs_steal_fd(&connection);
    *device_ret = kvs_steal_fd(&device);
    *state_ret = kvs_steal_fd(&state);
    return 0;
}
