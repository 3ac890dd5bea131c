// SPDX-License-Identifier: Apache-2.0
// Clients that publish by link: a temporary name that is unlinked, or a file that had none.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"

static int direct_flag(unsigned flags)
{
    return flags & CLIENT_DIRECT ? O_DIRECT : 0;
}

static int write_tmp(const char *tmp, const void *block, size_t size, unsigned flags)
{
    kvs_cleanup_fd int fd = open(tmp, O_CREAT | O_EXCL | O_WRONLY | direct_flag(flags), 0644);
    if (fd < 0)
        return -errno;
    int err = client_write_once(fd, block, size);
    int close_err = client_close(&fd);
    return err ? err : close_err;
}

int client_link_store(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    char tmp[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (err)
        return err;
    if (snprintf(tmp, PATH_MAX, "%s_%" PRIu64 ".tmp", path, client_random()) >= PATH_MAX)
        return -ENAMETOOLONG;
    kvs_cleanup_free void *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    err = client_make_parents(path);
    if (err)
        return err;
    err = write_tmp(tmp, block, size, flags);
    // EEXIST: somebody else stored the same block, which is as good.
    if (!err && link(tmp, path) < 0 && errno != EEXIST)
        err = -errno;
    if (unlink(tmp) < 0 && !err)
        err = -errno;
    return err;
}

/* Publishes while the file is open: it would be gone otherwise. */
static int publish_unnamed(int fd, const char *path)
{
    char name[32];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
        return -errno;
    return 0;
}

int client_link_tmpfile_store(const char *root, const char *key, size_t size, uint64_t seed,
                              unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (!err)
        err = client_make_parents(path);
    if (err)
        return err;
    kvs_cleanup_free void *block = client_make_block(size, seed);
    kvs_cleanup_free char *directory = strndup(path, (size_t)(strrchr(path, '/') - path));
    if (!block || !directory)
        return -ENOMEM;
    kvs_cleanup_fd int fd = open(directory, O_TMPFILE | O_WRONLY | direct_flag(flags), 0644);
    if (fd < 0)
        return -errno;
    err = client_write_once(fd, block, size);
    if (!err)
        err = publish_unnamed(fd, path);
    int close_err = client_close(&fd);
    return err ? err : close_err;
}
