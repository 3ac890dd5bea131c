// SPDX-License-Identifier: Apache-2.0
// Keeps descriptors for the next daemon.
#include "fuse/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/util.h"
#include "fuse/fd_socket.h"

static void drop_state(struct kvs_holder *holder)
{
    for (size_t i = 0; i < holder->count; i++)
        close(holder->fds[i]);
    holder->count = 0;
    kvs_close_fd(&holder->state_fd);
    holder->state_fd = -1;
}

void kvs_holder_drop(struct kvs_holder *holder)
{
    drop_state(holder);
    free(holder->fds);
    kvs_close_fd(&holder->device_fd);
    *holder = (struct kvs_holder)KVS_HOLDER_INIT;
}

int kvs_holder_begin(struct kvs_holder *holder, int connection, const char *path, int device_fd)
{
    kvs_holder_drop(holder);
    kvs_cleanup_fd int copy = fcntl(device_fd, F_DUPFD_CLOEXEC, 0);
    kvs_cleanup_fd int empty = memfd_create("kvseal-state", MFD_CLOEXEC);
    if (copy < 0 || empty < 0)
        return -errno;
    const int fds[] = {copy, empty};
    int error = kvs_fd_socket_send_all(connection, path, fds, 2, KVS_HOLDER_PATIENCE_MS);
    if (!error)
        holder->device_fd = kvs_steal_fd(&copy);
    return error;
}

static int keep(struct kvs_holder *holder, const int *fds, size_t count)
{
    if (holder->count + count > holder->room) {
        size_t room = 2 * holder->room + KVS_FD_SOCKET_FDS;
        int *grown = realloc(holder->fds, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        holder->fds = grown;
        holder->room = room;
    }
    memcpy(holder->fds + holder->count, fds, count * sizeof(*fds));
    holder->count += count;
    return 0;
}

int kvs_holder_receive(struct kvs_holder *holder, int connection)
{
    char text[KVS_FD_SOCKET_TEXT];
    int fds[KVS_FD_SOCKET_FDS];
    size_t count = 0;
    int error = kvs_fd_socket_receive_all(connection, 0, text, fds, KVS_FD_SOCKET_FDS, &count);
    if (error)
        return error == -EINTR || error == -ETIMEDOUT || error == -EAGAIN ? 0 : error;
    bool is_more = strcmp(text, KVS_HOLDER_MORE) == 0 && holder->state_fd >= 0;
    if (is_more && keep(holder, fds, count) == 0)
        return 0;
    drop_state(holder);
    if (strcmp(text, KVS_HOLDER_STATE) == 0 && count == 1) {
        holder->state_fd = fds[0];
        return 1;
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return 0;
}

bool kvs_holder_is_ready(const struct kvs_holder *holder)
{
    return holder->device_fd >= 0 && holder->state_fd >= 0;
}

int kvs_holder_send(const struct kvs_holder *holder, int connection, const char *path)
{
    const int first[] = {holder->device_fd, holder->state_fd};
    int error = kvs_fd_socket_send_all(connection, path, first, 2, KVS_HOLDER_PATIENCE_MS);
    if (error)
        return error;
    for (size_t i = 0; i < holder->count && !error; i += KVS_FD_SOCKET_FDS) {
        size_t count = KVS_MIN(holder->count - i, (size_t)KVS_FD_SOCKET_FDS);
        error = kvs_fd_socket_send_all(connection, KVS_HOLDER_MORE, holder->fds + i, count,
                                       KVS_HOLDER_PATIENCE_MS);
    }
    return 0;
}
