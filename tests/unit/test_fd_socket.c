// SPDX-License-Identifier: Apache-2.0
// A descriptor over a socket: what arrives, what is refused, and sockets that are stale or taken.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "fuse/fd_socket.h"
#include "tests/unit/scratch.h"

static char path[PATH_MAX + 2];

static int set_up(void **state)
{
    if (make_scratch() < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/s", dir);
    return 0;
}

static int tear_down(void **state)
{
    return remove_scratch();
}

static void a_descriptor_arrives_with_its_text(void **state)
{
    int ends[2], fd = -2;
    char text[KVS_FD_SOCKET_TEXT];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    int null = open("/dev/null", O_RDONLY);
    assert_int_equal(kvs_fd_socket_send(ends[0], "/mount point", null), 0);
    assert_int_equal(kvs_fd_socket_send(ends[0], "no", -1), 0);

    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), 0);
    assert_string_equal(text, "/mount point");
    struct stat sent, got;
    assert_int_equal(fstat(null, &sent), 0);
    assert_int_equal(fstat(fd, &got), 0);
    assert_int_equal(got.st_rdev, sent.st_rdev);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    close(null);

    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), 0);
    assert_string_equal(text, "no");
    assert_int_equal(fd, -1);
    assert_int_equal(kvs_fd_socket_receive(ends[1], 20, text, &fd), -ETIMEDOUT);
    close(ends[0]);
    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), -ECONNRESET);
    assert_int_equal(kvs_fd_socket_send(ends[1], "x", -1), -EPIPE);
    close(ends[1]);
}

static void last_words_are_heard(void **state)
{
    int ends[2], fd = -2;
    char text[KVS_FD_SOCKET_TEXT];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(kvs_fd_socket_send(ends[1], "never read", -1), 0);
    assert_int_equal(kvs_fd_socket_send(ends[0], "last", -1), 0);
    close(ends[0]);
    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), 0);
    assert_string_equal(text, "last");
    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), -ECONNRESET);
    close(ends[1]);
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Whatever a wrong peer sends: nothing stays open, nothing is taken for a descriptor. */
static void two_descriptors_are_none(void **state)
{
    int ends[2], fd = -2, both[2] = {STDIN_FILENO, STDOUT_FILENO};
    char text[KVS_FD_SOCKET_TEXT];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(both))];
    } control = {0};
    struct iovec iov = {.iov_base = "x", .iov_len = 2};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof(control.room)};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(both));
    memcpy(CMSG_DATA(&control.header), both, sizeof(both));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    unsigned before = count_descriptors();
    assert_int_equal(sendmsg(ends[0], &message, 0), 2);
    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(count_descriptors(), before);
    close(ends[0]);
    close(ends[1]);
}

static void long_texts_are_cut(void **state)
{
    int ends[2], fd;
    char text[KVS_FD_SOCKET_TEXT], sent[2 * KVS_FD_SOCKET_TEXT];
    memset(sent, 'x', sizeof(sent) - 1);
    sent[sizeof(sent) - 1] = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(kvs_fd_socket_send(ends[0], sent, -1), 0);
    assert_int_equal(kvs_fd_socket_receive(ends[1], 1000, text, &fd), 0);
    assert_int_equal(strlen(text), KVS_FD_SOCKET_TEXT - 1);
    close(ends[0]);
    close(ends[1]);
}

static bool never(void *argument)
{
    return false;
}

static bool always(void *argument)
{
    return true;
}

static int fetch(int limit_ms, bool (*is_over)(void *), char *text, int *device_ret)
{
    int connection = -1, state = -1;
    int error = kvs_fd_socket_fetch(path, limit_ms, is_over, NULL, text, &connection, device_ret,
                                    &state);
    if (!error)
        close(connection);
    return error;
}

struct mounter {
    int listen_fd, fd;
    const char *text;
};

static void *answer_one(void *argument)
{
    struct mounter *mounter = argument;
    int connection = -1, error = -EAGAIN;
    while (error == -EAGAIN)
        error = kvs_fd_socket_accept(mounter->listen_fd, geteuid(), &connection);
    if (!error)
        kvs_fd_socket_send(connection, mounter->text, mounter->fd);
    close(connection);
    return NULL;
}

/* What fetching gives when the mounter answers with `fd`. */
static int fetch_from(int fd, const char *said, char *text, int *device_ret)
{
    pthread_t thread;
    struct mounter mounter = {.fd = fd, .text = said};
    assert_int_equal(kvs_fd_socket_listen(path, geteuid(), &mounter.listen_fd), 0);
    assert_int_equal(pthread_create(&thread, NULL, answer_one, &mounter), 0);
    int error = fetch(20000, never, text, device_ret);
    pthread_join(thread, NULL);
    close(mounter.listen_fd);
    unlink(path);
    return error;
}

static void only_the_fuse_device_is_fetched(void **state)
{
    char text[KVS_FD_SOCKET_TEXT];
    int device = -1, null = open("/dev/null", O_RDWR);
    assert_int_equal(fetch_from(null, "/m", text, &device), -EBADF);
    assert_int_equal(fetch_from(-1, "not today", text, &device), -ECONNREFUSED);
    assert_int_equal(fetch(100, never, text, &device), -ETIMEDOUT);
    assert_int_equal(fetch(20000, always, text, &device), -EINTR);
    close(null);
    int fuse = open("/dev/fuse", O_RDWR);
    if (fuse < 0) {
        print_message("cannot open /dev/fuse: the rest is not tried\n");
        return;
    }
    assert_int_equal(fetch_from(fuse, "/m", text, &device), 0);
    assert_string_equal(text, "/m");
    assert_true(kvs_fd_is_fuse_device(device));
    close(device);
    close(fuse);
}

static void only_a_stale_socket_is_replaced(void **state)
{
    int first = -1, second = -1;
    struct stat st;
    assert_int_equal(kvs_fd_socket_listen(path, geteuid(), &first), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(kvs_fd_socket_listen(path, geteuid(), &second), -EADDRINUSE);
    assert_int_equal(accept(first, NULL, NULL), -1); /* the other one's look is no daemon */
    assert_int_equal(errno, EAGAIN);
    close(first); /* as if killed: the name stays */
    assert_int_equal(kvs_fd_socket_listen(path, geteuid(), &second), 0);
    close(second);
    assert_int_equal(unlink(path), 0);

    char unready[sizeof(path) + 8];
    snprintf(unready, sizeof(unready), "%s.new", path);
    close(open(unready, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(kvs_fd_socket_listen(path, geteuid(), &second), -EADDRINUSE);
    assert_int_equal(unlink(unready), 0); // it is still there

    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(kvs_fd_socket_listen(path, geteuid(), &second), -EADDRINUSE);
    assert_int_equal(unlink(path), 0);

    char longest[200];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    assert_int_equal(kvs_fd_socket_listen(longest, geteuid(), &second), -ENAMETOOLONG);
    assert_int_equal(kvs_fd_socket_listen("/no/such/s", geteuid(), &second), -ENOENT);
}

/* Whoever sees the name can connect: a daemon that is refused does not try again. */
static void *listen_many_times(void *argument)
{
    for (int i = 0; i < 300; i++) {
        int fd = -1;
        if (kvs_fd_socket_listen(path, 65534, &fd) == 0) {
            usleep(500);
            unlink(path);
            close(fd);
        }
    }
    return NULL;
}

static void the_name_comes_last(void **state)
{
    if (geteuid() != 0)
        skip();
    pthread_t thread;
    struct stat st;
    unsigned seen = 0;
    assert_int_equal(pthread_create(&thread, NULL, listen_many_times, NULL), 0);
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        if (stat(path, &st) != 0)
            continue;
        seen++;
        if (st.st_uid != 65534 || (st.st_mode & 07777) != 0600)
            fail_msg("seen with user %u and mode %o", (unsigned)st.st_uid, st.st_mode & 07777);
    }
    assert_true(seen > 0);
}

static void set_fowner(cap_flag_value_t value)
{
    const cap_value_t fowner = CAP_FOWNER;
    cap_t own = cap_get_proc();
    assert_int_equal(cap_set_flag(own, CAP_EFFECTIVE, 1, &fowner, value), 0);
    assert_int_equal(cap_set_proc(own), 0);
    cap_free(own);
}

/* A mounter has no FOWNER: what it gave away it can change no more. */
static void the_socket_is_the_daemons(void **state)
{
    if (geteuid() != 0)
        skip();
    int fd = -1;
    struct stat st;
    set_fowner(CAP_CLEAR);
    int error = kvs_fd_socket_listen(path, 65534, &fd);
    set_fowner(CAP_SET);
    assert_int_equal(error, 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_mode & 07777, 0600);
    close(fd);
    unlink(path);
}

int main(void)
{
    kvs_log_init("kvsealfs");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_arrives_with_its_text),
        cmocka_unit_test(last_words_are_heard),
        cmocka_unit_test(two_descriptors_are_none),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(only_the_fuse_device_is_fetched),
        cmocka_unit_test(only_a_stale_socket_is_replaced),
        cmocka_unit_test(the_name_comes_last),
        cmocka_unit_test(the_socket_is_the_daemons),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
