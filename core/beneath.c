// SPDX-License-Identifier: Apache-2.0
// Reaches directories by openat2(2).
#include "core/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>

#include "core/util.h"

int kvs_beneath_open_parent(int root_fd, const char *path, const char **name_ret)
{
    static const struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    const char *slash = strrchr(path, '/');
    kvs_cleanup_free char *parent = slash != NULL ? strndup(path, (size_t)(slash - path))
                                                  : strdup(".");
    int fd = -1;

    if (parent == NULL)
        return -ENOMEM;
    *name_ret = slash != NULL ? slash + 1 : path;
    fd = (int)syscall(SYS_openat2, root_fd, parent, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}
