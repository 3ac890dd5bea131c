// SPDX-License-Identifier: Apache-2.0
// The source directory at the start: opened, and looked at whether it will do (C21).
#include "fuse/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/record.h"
#include "core/util.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

int kvs_source_open(const char *source)
{
    int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    int error = -errno;
    complain("source %s: %s", source, strerror(-error));
    return error;
}

int kvs_source_check_nesting(int source_fd, const char *source, const char *mountpoint)
{
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", source_fd);
    ssize_t len = readlink(name, path, sizeof(path));
    if (len <= 0 || len >= (ssize_t)sizeof(path))
        return 0;
    if (path[len - 1] == '/')
        len--; /* the root directory */
    if (strncmp(mountpoint, path, (size_t)len) != 0 || mountpoint[len] != '/')
        return 0;
    complain("mount point %s lies inside the source %s: mount on the source itself, or outside it",
             mountpoint, source);
    return -EINVAL;
}

int kvs_source_check_records(int source_fd, const char *source)
{
    int error = kvs_record_probe(source_fd);
    switch (-error) {
    case 0:
        return 0;
    case EROFS:
        complain("source %s is read-only: mount with -o ro", source);
        return error;
    case EOPNOTSUPP:
        complain(
            "source %s: its file system does not keep user. extended attributes, which ext4, "
            "XFS, Btrfs, ZFS, Lustre, CephFS and tmpfs (Linux 6.6) do",
            source);
        return error;
    case ENOSPC:
    case EDQUOT:
        /* A full cache must come up, so that its evictor can make room; seals that fail are told
         * to who stores (C3). */
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING,
                "source %s: could not try whether records can be kept: %s", source,
                strerror(-error));
        return 0;
    default:
        complain("source %s: cannot set the attribute %s there: %s", source, KVS_RECORD_NAME,
                 strerror(-error));
        return error;
    }
}
