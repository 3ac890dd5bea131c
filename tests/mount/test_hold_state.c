// SPDX-License-Identifier: Apache-2.0
// What a holder keeps of a mount: who may change it, and what the next daemon makes of it.
#include "tests/mount/fixture_held.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MIB ((size_t)1 << 20)

/* One message of the holder's protocol, to the holder or from it. */
struct message {
    char text[PATH_MAX];
    int fds[2];
    size_t count;
};

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(2 * sizeof(int))];
};

static void send_message(int connection, const struct message *message)
{
    struct iovec iov = {.iov_base = (char *)message->text, .iov_len = strlen(message->text) + 1};
    union control control = {.header = {.cmsg_len = CMSG_LEN(message->count * sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS}};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = CMSG_SPACE(message->count * sizeof(int))};
    memcpy(CMSG_DATA(&control.header), message->fds, message->count * sizeof(int));
    assert_true(sendmsg(connection, &header, 0) > 0);
}

static void receive_message(int connection, struct message *message_ret)
{
    struct iovec iov = {.iov_base = message_ret->text, .iov_len = sizeof(message_ret->text)};
    union control control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof(control)};
    assert_true(recvmsg(connection, &header, 0) > 0);
    message_ret->count = (control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(message_ret->fds, CMSG_DATA(&control.header), message_ret->count * sizeof(int));
}

/* As a daemon that does not serve: the state that it is given, and its connection. */
static int come(const struct kvt_held *held, int *state_ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct message message;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", held->socket);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(connect(connection, (struct sockaddr *)&address, sizeof(address)), 0);
    receive_message(connection, &message);
    assert_int_equal(message.count, 2);
    close(message.fds[0]);
    *state_ret = message.fds[1];
    return connection;
}

static int come_and_go(const struct kvt_held *held)
{
    int state;
    close(come(held, &state));
    return state;
}

/* The holder gets another state: its own with one byte changed at `offset`, and these seals. */
static void replace_state(const struct kvt_held *held, off_t offset, int seals)
{
    int old, connection = come(held, &old);
    struct stat st;
    assert_int_equal(fstat(old, &st), 0);
    unsigned char *data = malloc((size_t)st.st_size);
    assert_int_equal(pread(old, data, (size_t)st.st_size, 0), st.st_size);
    data[offset < 0 ? st.st_size + offset : offset] ^= 0x55;
    int fd = memfd_create("kvseal-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, data, (size_t)st.st_size), st.st_size);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    send_message(connection, &(struct message){.text = "state", .fds = {fd}, .count = 1});
    close(connection);
    close(fd);
    close(old);
    free(data);
}

/* As the daemon's. */
static void spoil_state(const struct kvt_held *held, off_t offset)
{
    int state = come_and_go(held);
    replace_state(held, offset, fcntl(state, F_GET_SEALS));
    close(state);
}

static void who_comes_and_goes_prolongs_no_hold(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "1");
    kvt_held_kill(&held);
    kvt_wait_for(kvt_file_has(held.log, "clients wait"));
    uint64_t start = kvt_now_ms();
    while (!kvt_file_has(held.log, "no daemon serves") && kvt_now_ms() < start + 10000) {
        close(come_and_go(&held));
        usleep(100000);
    }
    assert_true(kvt_file_has(held.log, "no daemon serves"));
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    kvt_held_end(&held);
}

/* It has nothing any more that another one could not have. */
static void who_comes_and_hangs_keeps_nobody_out(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "0.5");
    kvt_held_kill(&held);
    int old, connection = come(&held, &old);
    kvt_wait_for(kvt_file_has(held.log, "no daemon serves"));
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    close(old);
    close(connection);
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), KVT_CREATE, MIB, 1, 0), 0);
    kvt_held_end(&held);
}

/* After it: the version, behind INIT and its answer. */
static off_t offset_of_version(const struct kvt_held *held)
{
    uint32_t lens[2];
    char name[64];
    snprintf(name, sizeof(name), "/proc/%d/fd", (int)held->mounter);
    DIR *dir = opendir(name);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[PATH_MAX], target[64] = "";
        snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "kvseal-state")) {
            int fd = kvt_open(path, O_RDONLY);
            assert_int_equal(pread(fd, lens, sizeof(lens), 12), sizeof(lens));
            close(fd);
        }
    }
    closedir(dir);
    return 24 + (off_t)lens[0] + lens[1];
}

static void a_state_of_another_version_is_as_a_kill(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    int fd = kvt_open(kvt_in(held.mnt, "a"), KVT_CREATE);
    kvt_put(fd, MIB, 1, 0);
    assert_int_equal(kvt_held_terminate(&held, held.daemon), 0);
    kvt_wait_for(kvt_file_has(held.log, "clients wait"));
    spoil_state(&held, offset_of_version(&held));
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    assert_true(kvt_file_has(held.log, "was killed"));
    kvt_assert_errno(ESTALE, close(fd));
    kvt_assert_unsealed(kvt_in(held.source, "a"));
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "b"), KVT_CREATE, MIB, 1, 0), 0);

    kvt_held_kill(&held);
    kvt_wait_for(kvt_file_has(held.log, "clients wait"));
    usleep(200000);
    spoil_state(&held, -1); // of the answer: what was agreed with the kernel is not what we want
    kvt_held_start(&held);
    assert_int_equal(kvt_held_await_end(&held, held.daemon), 1);
    kvt_wait_for(!kvt_is_mounted(held.mnt));
    kvt_held_start(&held); // anew
    kvt_held_await_ready(&held);
    assert_int_equal(kvt_load_path(kvt_in(held.mnt, "b"), MIB, 1, 0), 0);
    kvt_held_end(&held);
}

static void assert_made_anew(struct kvt_held *held)
{
    kvt_held_start(held);
    assert_int_equal(kvt_held_await_end(held, held->daemon), 1);
    kvt_wait_for(!kvt_is_mounted(held->mnt));
    kvt_held_start(held);
    kvt_held_await_ready(held);
}

/* Whoever had it before has its descriptor still: he could cut it while it is read. */
static void a_state_that_can_be_changed_is_not_read(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    assert_int_equal(kvt_held_terminate(&held, held.daemon), 0);
    int fd = come_and_go(&held);
    kvt_assert_errno(EPERM, pwrite(fd, "", 1, 0));
    kvt_assert_errno(EPERM, ftruncate(fd, 0));
    close(fd);
    replace_state(&held, -1, F_SEAL_GROW);
    assert_made_anew(&held);
    kvt_held_end(&held);
}

/* Its descriptors and file handles may lead anywhere. */
static void a_state_of_somebody_else_is_not_read_by_root(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, KVT_NOBODY, "30");
    assert_int_equal(kvt_held_terminate(&held, held.daemon), 0);
    held.user = 0;
    assert_made_anew(&held);
    kvt_held_end(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(who_comes_and_goes_prolongs_no_hold),
        kvt_test(who_comes_and_hangs_keeps_nobody_out),
        kvt_test(a_state_of_another_version_is_as_a_kill),
        kvt_test(a_state_that_can_be_changed_is_not_read),
        kvt_test(a_state_of_somebody_else_is_not_read_by_root),
    };
    return kvt_main("the state of a mount that is held", tests, sizeof(tests) / sizeof(tests[0]),
                    KVT_DIR);
}
