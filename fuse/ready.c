// SPDX-License-Identifier: Apache-2.0
// --ready-file: a file that is there exactly while the mount serves.
#include "fuse/ready.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"

static int complain(const struct kvs_ready *ready, int error)
{
    kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "ready file %s: %s", ready->path, strerror(-error));
    return error;
}

static const char *name_of(const struct kvs_ready *ready)
{
    const char *slash = strrchr(ready->path, '/');
    return slash ? slash + 1 : ready->path;
}

int kvs_ready_prepare(const char *path, struct kvs_ready *ready_ret)
{
    *ready_ret = (struct kvs_ready){.path = path, .directory_fd = -1};
    if (!path)
        return 0;
    kvs_cleanup_free char *copy = strdup(path);
    if (!copy)
        return complain(ready_ret, -ENOMEM);
    ready_ret->directory_fd = open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ready_ret->directory_fd < 0)
        return complain(ready_ret, -errno);
    if (unlinkat(ready_ret->directory_fd, name_of(ready_ret), 0) == 0 || errno == ENOENT)
        return 0;
    int error = -errno;
    kvs_ready_end(ready_ret);
    return complain(ready_ret, error);
}

int kvs_ready_announce(struct kvs_ready *ready)
{
    if (ready->directory_fd < 0)
        return 0;
    kvs_cleanup_fd int fd = openat(ready->directory_fd, name_of(ready),
                                   O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return complain(ready, -errno);
    return dprintf(fd, "%d\n", (int)getpid()) < 0 ? complain(ready, -errno) : 0;
}

void kvs_ready_end(struct kvs_ready *ready)
{
    if (ready->directory_fd < 0)
        return;
    unlinkat(ready->directory_fd, name_of(ready), 0);
    close(ready->directory_fd);
    ready->directory_fd = -1;
}
