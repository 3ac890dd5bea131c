// SPDX-License-Identifier: Apache-2.0
// Replays the start of a connection, and hands it on.
#include "fuse/takeover.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"
#include "fuse/attach.h"
#include "fuse/fd_socket.h"
#include "fuse/handover.h"
#include "fuse/holder.h"
#include "fuse/ids.h"
#include "fuse/table.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/* Headers before Linux 6.9 have neither. */
#define NOTIFY_RESEND 7
#define HAS_RESEND2   (1U << (39 - 32)) /* of flags2 */

#define INIT_ROOM ((size_t)64 << 10) /* the kernel wants room for any request */

/* What INIT has on kernels before Linux 5.17. */
#define INIT_LEAST offsetof(struct fuse_init_in, flags2)

/* How the state begins, in every version; the handover follows. */
struct beginning {
    char magic[8];
    uint32_t epoch;
    uint32_t init_len, answer_len;
    uint32_t padding;
}; /* and the two */

static const char magic[8] = {'k', 'v', 's', 'h', 'e', 'l', 'd', '1'};

/* A state that is sent can be changed by nobody who has it. */
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* What a state descriptor has, in memory. */
struct state {
    const char *data;
    size_t size;
};

/* An empty one has no memory. 0 or -errno; -EBADMSG: it may change, or is by somebody whom we do
 * not trust to say what our descriptors are. */
static int map_state(int fd, struct state *state_ret)
{
    struct stat st;
    *state_ret = (struct state){0};
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size == 0)
        return 0;
    if (fcntl(fd, F_GET_SEALS) != SEALS || (st.st_uid != geteuid() && st.st_uid != 0))
        return -EBADMSG;
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return -errno;
    *state_ret = (struct state){.data = data, .size = (size_t)st.st_size};
    return 0;
}

static void unmap_state(struct state *state)
{
    if (state->data)
        munmap((void *)state->data, state->size);
}

static int copy(const char *from, size_t len, char **to_ret, size_t *len_ret)
{
    *to_ret = malloc(len);
    if (!*to_ret)
        return -ENOMEM;
    memcpy(*to_ret, from, len);
    *len_ret = len;
    return 0;
}

/* Reads the beginning, and leaves what follows. 0 or -errno. */
static int read_beginning(struct kvs_fs *fs, struct kvs_takeover *takeover,
                          const struct state *state, struct state *rest_ret)
{
    struct beginning beginning;
    if (state->size < sizeof(beginning))
        return -EBADMSG;
    memcpy(&beginning, state->data, sizeof(beginning));
    size_t size = sizeof(beginning) + (size_t)beginning.init_len + beginning.answer_len;
    if (memcmp(beginning.magic, magic, sizeof(magic)) != 0 || size > state->size ||
        beginning.epoch >= KVS_EPOCH_MAX)
        return -EBADMSG;
    const char *init = state->data + sizeof(beginning), *answer = init + beginning.init_len;
    int error = copy(init, beginning.init_len, &takeover->init, &takeover->init_len);
    if (!error)
        error = copy(answer, beginning.answer_len, &takeover->answer, &takeover->answer_len);
    fs->epoch = beginning.epoch + 1;
    fs->ids = kvs_ids_create();
    fs->table->ids = fs->ids;
    *rest_ret = (struct state){.data = state->data + size, .size = state->size - size};
    return error || fs->ids ? error : -ENOMEM;
}

/* The kernel's first request. 0 or -errno. */
static int read_init(struct kvs_fs *fs, struct kvs_takeover *takeover, int device_fd)
{
    takeover->init = malloc(INIT_ROOM);
    if (!takeover->init)
        return -ENOMEM;
    ssize_t len;
    do
        len = read(device_fd, takeover->init, INIT_ROOM);
    while (len < 0 && errno == EINTR && !fuse_session_exited(fs->session));
    if (len < 0)
        return -errno;
    takeover->init_len = (size_t)len;
    return 0;
}

/* What the session says to INIT, written to the pipe that it has for a device: a new answer, or
 * -EPROTO where another one was given before. */
static int take_answer(struct kvs_takeover *takeover, int pipe_fd)
{
    char answer[sizeof(struct fuse_out_header) + 256];
    ssize_t len = read(pipe_fd, answer, sizeof(answer));
    if (len < 0)
        return -errno;
    if (!takeover->answer)
        return copy(answer, (size_t)len, &takeover->answer, &takeover->answer_len);
    bool is_same = (size_t)len == takeover->answer_len &&
                   memcmp(answer, takeover->answer, (size_t)len) == 0;
    return is_same ? 0 : -EPROTO;
}

static bool is_init(const struct kvs_takeover *takeover)
{
    struct fuse_in_header header;
    if (takeover->init_len < sizeof(header) + INIT_LEAST)
        return false;
    memcpy(&header, takeover->init, sizeof(header));
    return header.opcode == FUSE_INIT && header.len == takeover->init_len;
}

/* The session processes INIT, and has the device afterwards. 0 or -errno. */
static int replay_init(struct kvs_fs *fs, struct kvs_takeover *takeover, int device_fd)
{
    int ends[2];
    if (!is_init(takeover))
        return -EBADMSG;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    kvs_cleanup_fd int read_fd = ends[0];
    int error = kvs_attach_use_device(fs->session, ends[1]);
    if (error) {
        close(ends[1]);
        return error;
    }
    bool is_first = !takeover->answer;
    struct fuse_buf request = {.mem = takeover->init, .size = takeover->init_len};
    fuse_session_process_buf(fs->session, &request);
    error = take_answer(takeover, read_fd);
    if (!error && is_first &&
        write(device_fd, takeover->answer, takeover->answer_len) != (ssize_t)takeover->answer_len)
        error = -errno;
    if (!error && dup3(device_fd, ends[1], O_CLOEXEC) < 0)
        error = -errno;
    return error || !fuse_session_exited(fs->session) ? error : -ECANCELED;
}

/* Sends what the next daemon has to have in any case; with `contents`, all of it. 0 or -errno. */
static int send_state(struct kvs_fs *fs, const struct kvs_takeover *takeover, bool contents)
{
    kvs_cleanup_fd int fd = memfd_create("kvseal-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int copy_fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *out = copy_fd < 0 ? NULL : fdopen(copy_fd, "w");
    if (!out) {
        int error = -errno;
        kvs_close_fd(&copy_fd);
        return error;
    }
    struct beginning beginning = {.epoch = fs->epoch,
                                  .init_len = (uint32_t)takeover->init_len,
                                  .answer_len = (uint32_t)takeover->answer_len};
    memcpy(beginning.magic, magic, sizeof(magic));
    bool is_written = fwrite(&beginning, sizeof(beginning), 1, out) == 1 &&
                      fwrite(takeover->init, takeover->init_len, 1, out) == 1 &&
                      fwrite(takeover->answer, takeover->answer_len, 1, out) == 1;
    struct kvs_handover_fds fds = {0};
    int error = is_written ? 0 : -EIO;
    if (!error && contents)
        error = kvs_handover_write(fs, out, &fds);
    if (fclose(out) && !error)
        error = -errno;
    if (!error && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        error = -errno;
    if (!error)
        error = kvs_fd_socket_send_all(takeover->connection, KVS_HOLDER_STATE, &fd, 1,
                                       KVS_HOLDER_PATIENCE_MS);
    for (size_t i = 0; i < fds.count && !error; i += KVS_FD_SOCKET_FDS)
        error = kvs_fd_socket_send_all(takeover->connection, KVS_HOLDER_MORE, fds.fds + i,
                                       KVS_MIN(fds.count - i, (size_t)KVS_FD_SOCKET_FDS),
                                       KVS_HOLDER_PATIENCE_MS);
    free(fds.fds);
    return error;
}

/* 0 with all of them, or -errno. */
static int receive_fds(const struct kvs_takeover *takeover, size_t count,
                       struct kvs_handover_fds *fds_ret)
{
    char text[KVS_FD_SOCKET_TEXT];
    *fds_ret = (struct kvs_handover_fds){.fds = malloc((count + 1) * sizeof(int))};
    int error = fds_ret->fds ? 0 : -ENOMEM;
    while (!error && fds_ret->count < count) {
        size_t got = 0;
        error = kvs_fd_socket_receive_all(takeover->connection, KVS_HOLDER_PATIENCE_MS, text,
                                          fds_ret->fds + fds_ret->count, count - fds_ret->count,
                                          &got);
        error = error || got > 0 ? error : -EBADMSG;
        fds_ret->count += got;
    }
    return error;
}

static void destroy_fds(struct kvs_handover_fds *fds)
{
    for (size_t i = 0; i < fds->count; i++)
        kvs_close_fd(&fds->fds[i]);
    free(fds->fds);
}

/* What the last daemon handed over. 0; -ENODATA: nothing, or not all of it; or -errno. */
static int receive_handover(struct kvs_fs *fs, const struct kvs_takeover *takeover,
                            const struct state *state)
{
    long count = kvs_handover_count_fds(fs, state->data, state->size);
    if (count < 0)
        return -ENODATA;
    struct kvs_handover_fds fds;
    int error = receive_fds(takeover, (size_t)count, &fds);
    if (error == -ETIMEDOUT || error == -EBADMSG)
        error = -ENODATA;
    else if (!error)
        error = kvs_handover_read(fs, state->data, state->size, &fds);
    destroy_fds(&fds);
    return error;
}

/* Requests that the last daemon took and did not answer come again. */
static int ask_for_requests(const struct kvs_fs *fs)
{
    struct fuse_out_header message = {.len = sizeof(message), .error = NOTIFY_RESEND};
    return write(fuse_session_fd(fs->session), &message, sizeof(message)) < 0 ? -errno : 0;
}

static bool can_resend(const struct kvs_takeover *takeover)
{
    struct fuse_init_in init = {0};
    memcpy(&init, takeover->init + sizeof(struct fuse_in_header),
           KVS_MIN(takeover->init_len - sizeof(struct fuse_in_header), sizeof(init)));
    return init.flags & FUSE_INIT_EXT && init.flags2 & HAS_RESEND2;
}

/* 0 or -errno, said. */
static int go_on(struct kvs_fs *fs, const struct kvs_takeover *takeover, const struct state *rest)
{
    int error = receive_handover(fs, takeover, rest);
    bool was_killed = error == -ENODATA;
    if (was_killed && !can_resend(takeover)) {
        kvs_takeover_give_up(takeover);
        complain(
            "the last daemon was killed, and this kernel cannot send its requests again "
            "(Linux 6.9): the mount has to be made anew");
        return -EOPNOTSUPP;
    }
    if (error && !was_killed) {
        complain("what the last daemon handed over cannot be used: %s", strerror(-error));
        return error;
    }
    error = can_resend(takeover) ? ask_for_requests(fs) : 0;
    if (error) {
        complain("the kernel does not send requests again: %s", strerror(-error));
        return error;
    }
    uint64_t nodes, names;
    kvs_table_count(fs->table, &nodes, &names);
    kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE, "takes the mount over from a daemon that %s (%ju names)",
            was_killed ? "was killed: what is open fails with ESTALE" : "handed it over",
            (uintmax_t)names);
    return 0;
}

int kvs_takeover_begin(struct kvs_fs *fs, struct kvs_takeover *takeover, int device_fd,
                       int state_fd)
{
    struct state state, rest;
    int error = map_state(state_fd, &state);
    bool is_first = !error && state.size == 0;
    fs->is_held = true;
    if (!error)
        error = is_first ? read_init(fs, takeover, device_fd)
                         : read_beginning(fs, takeover, &state, &rest);
    error = error ? error : replay_init(fs, takeover, device_fd);
    if (error)
        complain("cannot serve the mount: %s",
                 error == -EPROTO    ? "this version agrees otherwise with the kernel than the "
                                       "last daemon did: it has to be made anew"
                 : error == -EBADMSG ? "its state is of another kind: it has to be made anew"
                                     : strerror(-error));
    if (error == -EPROTO || error == -EBADMSG)
        kvs_takeover_give_up(takeover);
    if (!error && !is_first)
        error = go_on(fs, takeover, &rest);
    unmap_state(&state);
    if (error)
        return error;
    error = send_state(fs, takeover, false);
    if (error)
        complain("the mounter does not take the mount's state: %s", strerror(-error));
    return error;
}

void kvs_takeover_hand_over(struct kvs_fs *fs, const struct kvs_takeover *takeover)
{
    struct pollfd device = {.fd = fuse_session_fd(fs->session)};
    if (poll(&device, 1, 0) != 0) /* somebody has unmounted it */
        return;
    int error = send_state(fs, takeover, true);
    if (error)
        complain("cannot hand the mount over: %s", strerror(-error));
    else
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO, "handed the mount over to who holds it");
}

void kvs_takeover_give_up(const struct kvs_takeover *takeover)
{
    kvs_fd_socket_send(takeover->connection, KVS_HOLDER_DROP, -1);
}

void kvs_takeover_destroy(struct kvs_takeover *takeover)
{
    free(takeover->init);
    free(takeover->answer);
}
