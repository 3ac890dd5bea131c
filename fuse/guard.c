// SPDX-License-Identifier: Apache-2.0
// The directory under the mount, immutable while a mount covers it.
#include "fuse/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"

/* The kernel writes and reads an int here, whatever the ioctl's number says. */
static bool get_flags(int fd, int *flags_ret)
{
    return ioctl(fd, FS_IOC_GETFLAGS, flags_ret) == 0;
}

static bool is_empty(int directory_fd)
{
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    unsigned count = 0;
    while (count <= 2 && readdir(directory))
        count++;
    closedir(directory);
    return count == 2; /* "." and ".." */
}

static bool is_same_directory(int a, int b)
{
    struct stat st_a, st_b;
    return b >= 0 && fstat(a, &st_a) == 0 && fstat(b, &st_b) == 0 && st_a.st_dev == st_b.st_dev &&
           st_a.st_ino == st_b.st_ino;
}

/* The mark comes first and goes last: an immutable directory takes no attributes. */
static bool set_guard(int fd, int flags)
{
    if (fsetxattr(fd, KVS_GUARD_MARK, "", 0, 0) < 0)
        return false;
    flags |= FS_IMMUTABLE_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0)
        return true;
    fremovexattr(fd, KVS_GUARD_MARK);
    return false;
}

void kvs_guard_take(const char *path, int source_fd, bool may_set, struct kvs_guard *guard_ret)
{
    guard_ret->directory_fd = -1;
    kvs_cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int flags = 0;
    if (fd < 0 || is_same_directory(fd, source_fd) || !get_flags(fd, &flags))
        return;
    bool is_ours = false;
    if (flags & FS_IMMUTABLE_FL)
        is_ours = fgetxattr(fd, KVS_GUARD_MARK, NULL, 0) >= 0;
    else if (may_set && is_empty(fd))
        is_ours = set_guard(fd, flags);
    if (is_ours)
        guard_ret->directory_fd = kvs_steal_fd(&fd);
}

void kvs_guard_give_back(struct kvs_guard *guard)
{
    kvs_cleanup_fd int fd = atomic_exchange(&guard->directory_fd, -1);
    int flags;
    if (fd < 0 || !get_flags(fd, &flags))
        return;
    flags &= ~FS_IMMUTABLE_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0)
        fremovexattr(fd, KVS_GUARD_MARK);
    else
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING,
                "the directory under the mount stays immutable (chattr -i): %s", strerror(errno));
}
