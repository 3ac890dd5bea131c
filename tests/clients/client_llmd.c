// SPDX-License-Identifier: Apache-2.0
// llm-d's fs backend: stream I/O that renames before it closes.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util.h"

#define STREAM_BUFFER ((size_t)1024 * 1024)

/* Existence is "can be opened for reading"; the atime tells the evictor that it is in use. */
static int touch_existing(const char *path)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -errno;
    close(fd);
    return utimensat(AT_FDCWD, path, times, 0) < 0 ? -errno : 0;
}

int client_llmd_lookup(const char *root, const char *key, size_t size, uint64_t seed,
                       unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    return err ? err : touch_existing(path);
}

static int write_stream(int fd, const char *block, size_t size)
{
    int err = 0;
    for (size_t done = 0; done < size && !err; done += STREAM_BUFFER)
        err = client_write_once(fd, block + done, KVS_MIN(size - done, STREAM_BUFFER));
    return err;
}

int client_llmd_store(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    char tmp[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (err)
        return err;
    if (snprintf(tmp, PATH_MAX, "%s_%" PRIu64 ".tmp", path, client_random()) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (touch_existing(path) == 0)
        return 0;
    kvs_cleanup_free char *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    err = client_make_parents(path);
    if (err)
        return err;
    kvs_cleanup_fd int fd = open(tmp, O_CREAT | O_WRONLY | O_TRUNC, 0666);
    if (fd < 0)
        return -errno;
    err = write_stream(fd, block, size);
    if (err)
        return err; // the temporary file stays behind
    if (rename(tmp, path) < 0) {
        err = -errno;
        unlink(tmp);
    }
    int close_err = client_close(&fd);
    return err ? err : close_err;
}

static int read_stream(int fd, char *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, data + done, size - done);
        if (got <= 0)
            return got < 0 ? -errno : CLIENT_SHORT_READ;
        done += (size_t)got;
    }
    return 0;
}

int client_llmd_load(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (err)
        return err;
    kvs_cleanup_free char *data = client_make_buffer(size);
    if (!data)
        return -ENOMEM;
    kvs_cleanup_fd int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -errno;
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return -errno;
    if ((uint64_t)end < size)
        return CLIENT_SHORT_READ;
    off_t from = lseek(fd, end - (off_t)size, SEEK_SET);
    if (from < 0)
        return -errno;
    err = read_stream(fd, data, size);
    return err ? err : client_check(data, size, (uint64_t)from, seed);
}
