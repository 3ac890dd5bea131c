// SPDX-License-Identifier: Apache-2.0
// How the daemon gets its mount and leaves it.
#include "fuse/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"
#include "fuse/fd_socket.h"
#include "fuse/mount.h"
#include "fuse/mountinfo.h"
#include "fuse/source.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

static bool mounts_itself(const struct kvs_options *options)
{
    return !options->fd_socket && options->device_fd < 0;
}

int kvs_attach_prepare(const struct kvs_options *options, struct kvs_attachment *attachment)
{
    attachment->options = options;
    if (mounts_itself(options)) {
        int error = kvs_mount_prepare(options->mountpoint, &attachment->mountpoint);
        if (!error && options->require_shared)
            error = kvs_mount_check_shared(attachment->mountpoint);
        return error;
    }
    if (!options->fd_socket && !kvs_fd_is_fuse_device(options->device_fd)) {
        complain("%s is not a descriptor of /dev/fuse", options->mountpoint);
        return -EBADF;
    }
    attachment->mountpoint = strdup(options->fd_socket ? options->fd_socket : options->mountpoint);
    return attachment->mountpoint ? 0 : -ENOMEM;
}

int kvs_attach_check_source(struct kvs_attachment *attachment, int source_fd)
{
    const struct kvs_options *options = attachment->options;
    if (!mounts_itself(options))
        return 0;
    return kvs_source_check_nesting(source_fd, options->source, attachment->mountpoint);
}

static int mount_by_ourselves(struct kvs_attachment *attachment, struct fuse_session *session,
                              int source_fd)
{
    const char *mountpoint = attachment->mountpoint;
    kvs_guard_take(mountpoint, source_fd, attachment->options->immutable, &attachment->guard);
    if (fuse_session_mount(session, mountpoint)) {
        complain("cannot mount on %s: it takes /dev/fuse, and CAP_SYS_ADMIN or fusermount3",
                 mountpoint);
        return -EIO;
    }
    attachment->mount_id = kvs_mount_id(mountpoint);
    return 0;
}

/* libfuse takes a descriptor by this name. */
int kvs_attach_use_device(struct fuse_session *session, int device_fd)
{
    char name[32];
    snprintf(name, sizeof(name), "/dev/fd/%d", device_fd);
    if (fcntl(device_fd, F_SETFD, FD_CLOEXEC) == 0 && fuse_session_mount(session, name) == 0)
        return 0;
    complain("libfuse does not take the descriptor %s", name);
    return -EIO;
}

static bool is_over(void *session)
{
    return fuse_session_exited(session);
}

static int fetch_device(struct kvs_attachment *attachment, struct fuse_session *session)
{
    const struct kvs_options *options = attachment->options;
    char mountpoint[KVS_FD_SOCKET_TEXT];
    int device_fd;
    int error = kvs_fd_socket_fetch(options->fd_socket, (int)(options->timeout * 1000), is_over,
                                    session, mountpoint, &attachment->connection_fd, &device_fd,
                                    &attachment->state_fd);
    if (error)
        return error;
    free(attachment->mountpoint);
    attachment->mountpoint = strdup(mountpoint);
    error = attachment->mountpoint ? 0 : -ENOMEM;
    if (!error && attachment->state_fd >= 0)
        attachment->device_fd = kvs_steal_fd(&device_fd);
    else if (!error)
        error = kvs_attach_use_device(session, device_fd);
    if (error)
        kvs_close_fd(&device_fd);
    return error;
}

int kvs_attach_mount(struct kvs_attachment *attachment, struct fuse_session *session, int source_fd)
{
    const struct kvs_options *options = attachment->options;
    if (options->fd_socket)
        return fetch_device(attachment, session);
    if (options->device_fd >= 0)
        return kvs_attach_use_device(session, options->device_fd);
    return mount_by_ourselves(attachment, session, source_fd);
}

static bool is_still_mounted(const struct kvs_attachment *attachment)
{
    return attachment->mount_id >= 0 &&
           kvs_mount_id(attachment->mountpoint) == attachment->mount_id;
}

void kvs_attach_notice_unmount(struct kvs_attachment *attachment)
{
    if (!is_still_mounted(attachment))
        kvs_guard_give_back(&attachment->guard);
}

void kvs_attach_unmount(struct kvs_attachment *attachment, struct fuse_session *session,
                        bool must_cut)
{
    if (is_still_mounted(attachment)) {
        if (must_cut)
            umount2(attachment->mountpoint, MNT_FORCE | MNT_DETACH);
        fuse_session_unmount(session);
    }
    kvs_guard_give_back(&attachment->guard);
}

void kvs_attach_end(struct kvs_attachment *attachment)
{
    kvs_close_fd(&attachment->connection_fd);
    kvs_close_fd(&attachment->device_fd);
    kvs_close_fd(&attachment->state_fd);
    free(attachment->mountpoint);
}
