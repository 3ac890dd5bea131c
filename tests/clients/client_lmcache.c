// SPDX-License-Identifier: Apache-2.0
// LMCache: its fs connector, LocalDisk backend and GDS backend without GPUs.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/util.h"

/* O_DIRECT only where the size is a multiple of the file system's block. */
static int direct_flag(const char *root, size_t size, unsigned flags)
{
    struct statvfs stats;
    if (!(flags & CLIENT_DIRECT) || statvfs(root, &stats) < 0)
        return 0;
    return size % stats.f_bsize == 0 ? O_DIRECT : 0;
}

/* ---- fs: every writer of a key uses the same temporary name ---- */

struct fs_writer {
    const char *path;
    const char *tmp;
    const char *block;
    size_t size;
    int open_flags;
    int err;
};

static int write_all(int fd, const char *block, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t written = write(fd, block + done, size - done);
        if (written < 0)
            return -errno;
        done += (size_t)written;
    }
    return 0;
}

static int write_and_replace(const struct fs_writer *writer)
{
    struct stat attr;
    if (stat(writer->path, &attr) == 0)
        return 0;
    kvs_cleanup_fd int fd = open(writer->tmp, writer->open_flags, 0644);
    if (fd < 0)
        return -errno;
    int err = write_all(fd, writer->block, writer->size);
    client_close(&fd); // not checked there either
    if (err)
        return err;
    // ENOENT: the other writer was faster and took the file away.
    return rename(writer->tmp, writer->path) < 0 && errno != ENOENT ? -errno : 0;
}

static void *run_fs_writer(void *data)
{
    struct fs_writer *writer = data;
    writer->err = write_and_replace(writer);
    return NULL;
}

int client_lmcache_fs_store(const char *root, const char *key, size_t size, uint64_t seed,
                            unsigned flags)
{
    char path[PATH_MAX];
    char tmp[PATH_MAX];
    pthread_t thread;
    int err = client_flat_path(path, root, key, ".data");
    if (!err)
        err = client_flat_path(tmp, root, key, ".tmp");
    if (err)
        return err;
    kvs_cleanup_free char *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    struct fs_writer writers[2];
    for (int i = 0; i < 2; i++)
        writers[i] = (struct fs_writer){.path = path,
                                        .tmp = tmp,
                                        .block = block,
                                        .size = size,
                                        .open_flags = O_CREAT | O_WRONLY | O_TRUNC |
                                                      direct_flag(root, size, flags)};
    err = pthread_create(&thread, NULL, run_fs_writer, &writers[0]);
    if (err)
        return -err;
    run_fs_writer(&writers[1]);
    pthread_join(thread, NULL);
    return writers[0].err ? writers[0].err : writers[1].err;
}

int client_lmcache_fs_load(const char *root, const char *key, size_t size, uint64_t seed,
                           unsigned flags)
{
    char path[PATH_MAX];
    int err = client_flat_path(path, root, key, ".data");
    if (err)
        return err;
    return client_load_whole(path, O_RDONLY | direct_flag(root, size, flags), size, seed);
}

/* ---- LocalDisk: on the final name ---- */

int client_lmcache_disk_store(const char *root, const char *key, size_t size, uint64_t seed,
                              unsigned flags)
{
    char path[PATH_MAX];
    int err = client_flat_path(path, root, key, ".pt");
    if (err)
        return err;
    kvs_cleanup_free void *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    int direct = direct_flag(root, size, flags);
    kvs_cleanup_fd int fd = open(path, O_CREAT | O_WRONLY | (direct ? direct : O_TRUNC), 0644);
    if (fd < 0)
        return -errno;
    if (write(fd, block, size) < 0) // a short write is not noticed there
        err = -errno;
    int close_err = client_close(&fd);
    return err ? err : close_err;
}

int client_lmcache_disk_load(const char *root, const char *key, size_t size, uint64_t seed,
                             unsigned flags)
{
    char path[PATH_MAX];
    int err = client_flat_path(path, root, key, ".pt");
    if (err)
        return err;
    return client_load_whole(path, O_RDONLY | direct_flag(root, size, flags), size, seed);
}

/* ---- GDS: a header by write, the rest by a shared mapping ---- */

#define GDS_HEADER 4096
#define GDS_SUFFIX ".kvcache.safetensors"

static int write_header(const char *tmp, uint64_t seed)
{
    char header[GDS_HEADER];
    client_fill(header, sizeof(header), 0, seed);
    kvs_cleanup_fd int fd = open(tmp, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd < 0)
        return -errno;
    int err = client_write_once(fd, header, sizeof(header));
    int close_err = client_close(&fd);
    return err ? err : close_err;
}

static int write_mapped(const char *tmp, size_t size, uint64_t seed)
{
    kvs_cleanup_fd int fd = open(tmp, O_RDWR);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return -errno;
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    client_fill(map + GDS_HEADER, size - GDS_HEADER, GDS_HEADER, seed);
    munmap(map, size);
    return client_close(&fd);
}

int client_lmcache_gds_store(const char *root, const char *key, size_t size, uint64_t seed,
                             unsigned flags)
{
    char path[PATH_MAX];
    char tmp[PATH_MAX];
    if (size <= GDS_HEADER)
        return -EINVAL;
    int err = client_fanned_path(path, root, key, GDS_SUFFIX);
    if (!err)
        err = client_fanned_path(tmp, root, key, GDS_SUFFIX ".tmp");
    if (!err)
        err = client_make_parents(path);
    if (!err)
        err = write_header(tmp, seed);
    if (!err)
        err = write_mapped(tmp, size, seed);
    if (!err && rename(tmp, path) < 0)
        err = -errno;
    return err; // the temporary file is leaked there too
}

int client_lmcache_gds_load(const char *root, const char *key, size_t size, uint64_t seed,
                            unsigned flags)
{
    char path[PATH_MAX];
    struct stat attr;
    int err = client_fanned_path(path, root, key, GDS_SUFFIX);
    if (err)
        return err;
    kvs_cleanup_fd int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &attr) < 0)
        return -errno;
    if ((uint64_t)attr.st_size != size)
        return CLIENT_SHORT_READ;
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    err = client_check(map, size, 0, seed);
    munmap(map, size);
    return err;
}
