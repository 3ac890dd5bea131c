// SPDX-License-Identifier: Apache-2.0
// The mount point: a dead FUSE mount there is replaced, a live kvsealfs refused (C21).
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"
#include "fuse/ask.h"
#include "fuse/mountinfo.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/* How long a file system on the mount point may take to answer. */
#define ANSWER_MS 2000
/* Dead mounts that lie on each other; more than any crash loop left so far. */
#define MOST_DEAD_MOUNTS 256

/* 0, or -errno of the answer. */
static int ask_for_life(void *path)
{
    struct statfs st;
    return statfs(path, &st) < 0 ? -errno : 0;
}

/* 0 or -errno. */
static int detach(const char *path, int flags)
{
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW | flags) == 0)
        return 0;
    int error = -errno;
    if (error != -EPERM)
        return error;
    /* An ordinary user's mount goes the way it came. */
    char *const argv[] = {"fusermount3", "-u", "-z", "-q", "--", (char *)path, NULL};
    pid_t child;
    int status;
    if (posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) != 0 ||
        waitpid(child, &status, 0) < 0 || status != 0)
        return error;
    return 0;
}

/* Opens the mount point and finds its canonical path (PATH_MAX bytes) and what is mounted there.
 * 0 or -errno, said. */
static int look_up(const char *mountpoint, char *path, enum kvs_occupant *occupant_ret)
{
    kvs_cleanup_fd int fd = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        int error = -errno;
        complain("mount point %s: %s", mountpoint, strerror(-error));
        return error;
    }
    int error = kvs_mount_identify(fd, path, occupant_ret);
    if (error)
        complain("mount point %s: cannot be looked up in /proc: %s", mountpoint, strerror(-error));
    return error;
}

/* One look at the mount point. 0: it can be used; 1: a dead mount was detached, look again;
 * or -errno, said. */
static int look_once(const char *mountpoint, char *path)
{
    enum kvs_occupant occupant = KVS_OCCUPANT_ORDINARY;
    int error = look_up(mountpoint, path, &occupant);
    if (error || occupant == KVS_OCCUPANT_ORDINARY)
        return error;
    error = kvs_ask(ask_for_life, path, ANSWER_MS);
    if (error == -ENOTCONN || error == -ECONNABORTED) {
        error = detach(path, 0);
        if (error) {
            complain("mount point %s: a dead mount is there and cannot be detached: %s", mountpoint,
                     strerror(-error));
            return error;
        }
        kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE, "detached a dead mount from %s", path);
        return 1;
    }
    if (error == -ETIMEDOUT) {
        complain("mount point %s: what is mounted there does not answer: detach it with umount -l",
                 mountpoint);
        return error;
    }
    if (occupant == KVS_OCCUPANT_KVSEALFS) {
        complain("mount point %s: already served by another kvsealfs", mountpoint);
        return -EBUSY;
    }
    return 0;
}

int kvs_mount_prepare(const char *mountpoint, char **path_ret)
{
    char path[PATH_MAX];
    for (int i = 0; i < MOST_DEAD_MOUNTS; i++) {
        int result = look_once(mountpoint, path);
        if (result < 0)
            return result;
        if (result == 0) {
            *path_ret = strdup(path);
            return *path_ret ? 0 : -ENOMEM;
        }
    }
    complain("mount point %s: dead mounts keep coming back", mountpoint);
    return -EBUSY;
}

int kvs_mount_check_shared(const char *path)
{
    kvs_cleanup_fd int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct kvs_mount_entry entry = {0};
    int error = fd < 0 ? -errno : kvs_mount_entry_find(fd, &entry);
    if (error) {
        complain("mount point %s: cannot be looked up in /proc: %s", path, strerror(-error));
        return error;
    }
    if (!entry.is_shared) {
        complain(
            "mount point %s: the mount %s that it lies on is not shared, so nobody outside "
            "would see it: give the volume Bidirectional (rshared) propagation, on the host "
            "mount --make-shared",
            path, entry.mountpoint);
        error = -EINVAL;
    }
    kvs_mount_entry_free(&entry);
    return error;
}

void kvs_mount_detach(const char *path, int mount_id, bool must_cut)
{
    if (mount_id < 0 || kvs_mount_id(path) != mount_id)
        return;
    int error = detach(path, must_cut ? MNT_FORCE : 0);
    if (error)
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING, "cannot detach the mount from %s: %s", path,
                strerror(-error));
}
