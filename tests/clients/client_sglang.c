// SPDX-License-Identifier: Apache-2.0
// SGLang's HiCacheFile: numpy's tofile to a temporary file, then replace.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/util.h"

/* tofile works on a duplicate of Python's descriptor and closes that first: two flushes. */
static int write_by_duplicate(int *fd, const void *block, size_t size)
{
    kvs_cleanup_fd int duplicate = dup(*fd);
    if (duplicate < 0)
        return -errno;
    int err = client_write_once(duplicate, block, size);
    int duplicate_err = client_close(&duplicate);
    int close_err = client_close(fd);
    if (!err)
        err = duplicate_err;
    return err ? err : close_err;
}

int client_sglang_store(const char *root, const char *key, size_t size, uint64_t seed,
                        unsigned flags)
{
    char path[PATH_MAX];
    char tmp[PATH_MAX];
    int err = client_flat_path(path, root, key, ".bin");
    if (err)
        return err;
    if (snprintf(tmp, PATH_MAX, "%s.tmp.%d.%d.%016" PRIx64 "%016" PRIx64, path, getpid(), gettid(),
                 client_random(), client_random()) >= PATH_MAX)
        return -ENAMETOOLONG;
    kvs_cleanup_free void *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    if (access(path, F_OK) == 0)
        return 0;
    kvs_cleanup_fd int fd = open(tmp, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    err = write_by_duplicate(&fd, block, size);
    if (!err && rename(tmp, path) < 0)
        err = -errno;
    if (err)
        unlink(tmp);
    return err;
}

int client_sglang_load(const char *root, const char *key, size_t size, uint64_t seed,
                       unsigned flags)
{
    char path[PATH_MAX];
    int err = client_flat_path(path, root, key, ".bin");
    return err ? err : client_load_whole(path, O_RDONLY | O_CLOEXEC, size, seed);
}
