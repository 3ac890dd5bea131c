// SPDX-License-Identifier: Apache-2.0
// The descriptor of a mount, handed from the process that may mount to the one that serves.
//
// The mounter listens on a unix socket (SOCK_SEQPACKET), the daemon connects. The answer is one
// message: the mount point's path with the descriptor (SCM_RIGHTS), or, without one, the reason why
// there is none. The daemon then keeps the connection, so that its end is seen at the other side.
// With a mount that is held comes a second descriptor, and more messages follow (holder.h).
#ifndef KVSEAL_FUSE_FD_SOCKET_H
#define KVSEAL_FUSE_FD_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Longest text of a message, with its NUL. */
#define KVS_FD_SOCKET_TEXT 4608

/* Listens at `path`, where a stale socket is replaced, with mode 0600 for the user `peer`. Where it
 * may not be given to that user, everybody may connect; kvs_fd_socket_accept() looks who it is. 0
 * with a non-blocking descriptor; or -errno after one line in the log: -EADDRINUSE (somebody
 * listens there, or it is no socket) ... */
int kvs_fd_socket_listen(const char *path, uid_t peer, int *fd_ret);

/* A connection of `peer` or of our own user; others are told and turned away. 0 or -errno; -EAGAIN:
 * there is none. */
int kvs_fd_socket_accept(int listen_fd, uid_t peer, int *connection_ret);

/* One message with `fd`, or -1: without. 0 or -errno. */
int kvs_fd_socket_send(int connection, const char *text, int fd);

/* Waits for the message at most `limit_ms`. 0 with *fd_ret (close-on-exec) or -1 there, and the
 * text; or -errno: -ETIMEDOUT, -EINTR, -ECONNRESET (the other side left). */
int kvs_fd_socket_receive(int connection, int limit_ms, char *text_ret, int *fd_ret);

/* The same with up to KVS_FD_SOCKET_FDS descriptors. Sending waits for room, at most
 * `limit_ms`: -ETIMEDOUT. Of those that come, more than `room` are none: *count_ret 0. */
#define KVS_FD_SOCKET_FDS 250
int kvs_fd_socket_send_all(int connection, const char *text, const int *fds, size_t count,
                           int limit_ms);
int kvs_fd_socket_receive_all(int connection, int limit_ms, char *text_ret, int *fds_ret,
                              size_t room, size_t *count_ret);

/* Connects, tries again until somebody listens, and receives /dev/fuse with the mount point's path
 * (KVS_FD_SOCKET_TEXT bytes), and the state of a mount that is held (*state_ret -1: it is not).
 * Gives up after `limit_ms`, or when `is_over` says so. 0 with the descriptors; or -errno after one
 * line in the log. */
int kvs_fd_socket_fetch(const char *path, int limit_ms, bool (*is_over)(void *argument),
                        void *argument, char *mountpoint_ret, int *connection_ret, int *device_ret,
                        int *state_ret);

/* Whether a descriptor is open and that of /dev/fuse. */
bool kvs_fd_is_fuse_device(int fd);

#endif
