// SPDX-License-Identifier: Apache-2.0
// Opens and makes kvseal's own directories.
#include "core/state_dir.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "core/util.h"

static int open_own_dir(int parent_fd, const char *name)
{
    int fd = -1;

    if (mkdirat(parent_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int kvs_state_dir_open(int source_fd)
{
    return open_own_dir(source_fd, KVS_STATE_DIR);
}

int kvs_quarantine_open(int source_fd)
{
    kvs_cleanup_fd int state_fd = kvs_state_dir_open(source_fd);

    return state_fd < 0 ? state_fd : open_own_dir(state_fd, strrchr(KVS_QUARANTINE_DIR, '/') + 1);
}
