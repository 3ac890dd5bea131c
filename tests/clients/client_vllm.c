// SPDX-License-Identifier: Apache-2.0
// vLLM's fs tier, with the checksums of its pull request 57912.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/util.h"

#define CHECKSUM_XATTR "user.vllm.kv_crc32c"

static int direct_flag(unsigned flags)
{
    return flags & CLIENT_DIRECT ? O_DIRECT : 0;
}

/* ---- probes ---- */

static int name_probe(char path_ret[PATH_MAX], const char *root, const char *what)
{
    int length = snprintf(path_ret, PATH_MAX, "%s/.%s_probe_%" PRIu64 ".tmp", root, what,
                          client_random());
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int client_vllm_probe_direct(const char *root, const char *key, size_t size, uint64_t seed,
                             unsigned flags)
{
    char path[PATH_MAX];
    int err = name_probe(path, root, "o_direct");
    if (err)
        return err;
    kvs_cleanup_fd int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_DIRECT, 0644);
    if (fd < 0) {
        err = -errno;
        unlink(path); // some file systems refuse O_DIRECT only after they made the file
        return err;
    }
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    err = page == MAP_FAILED ? -errno : client_write_once(fd, page, 4096);
    if (page != MAP_FAILED)
        munmap(page, 4096);
    unlink(path);
    return err;
}

static int try_xattr(int fd)
{
    const unsigned char zeros[4] = {0};
    unsigned char value[4] = {1};
    if (fsetxattr(fd, CHECKSUM_XATTR, zeros, sizeof(zeros), 0) < 0)
        return -errno;
    ssize_t length = fgetxattr(fd, CHECKSUM_XATTR, value, sizeof(value));
    if (length < 0)
        return -errno;
    bool is_same = length == sizeof(zeros) && memcmp(value, zeros, sizeof(zeros)) == 0;
    return is_same ? 0 : CLIENT_WRONG_BYTES;
}

int client_vllm_probe_xattr(const char *root, const char *key, size_t size, uint64_t seed,
                            unsigned flags)
{
    char path[PATH_MAX];
    int err = name_probe(path, root, "xattr");
    if (err)
        return err;
    kvs_cleanup_fd int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd < 0)
        return -errno;
    err = try_xattr(fd);
    int close_err = client_close(&fd);
    unlink(path);
    return err ? err : close_err;
}

/* ---- store ---- */

static int set_checksum(int fd, const void *block, size_t size)
{
    uint32_t crc = client_crc32c(block, size);
    const unsigned char value[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16),
                                    (unsigned char)(crc >> 8), (unsigned char)crc};
    return fsetxattr(fd, CHECKSUM_XATTR, value, sizeof(value), 0) < 0 ? -errno : 0;
}

/* The random part belongs to the thread for its life, so a leaked file is in its way for ever. */
static int name_tmp(char tmp_ret[PATH_MAX], const char *path)
{
    static _Thread_local uint64_t suffix;
    if (suffix == 0)
        suffix = client_random();
    int length = snprintf(tmp_ret, PATH_MAX, "%s_%" PRIu64 ".tmp", path, suffix);
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int write_block(int *fd, const void *block, size_t size, unsigned flags)
{
    int err = client_write_once(*fd, block, size);
    if (!err && flags & CLIENT_CRC)
        err = set_checksum(*fd, block, size);
    int close_err = client_close(fd);
    return err ? err : close_err;
}

int client_vllm_store(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    char tmp[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (!err)
        err = name_tmp(tmp, path);
    if (err)
        return err;
    kvs_cleanup_free void *block = client_make_block(size, seed);
    if (!block)
        return -ENOMEM;
    if (access(path, F_OK) == 0)
        return 0;
    err = client_make_parents(path);
    if (err)
        return err;
    kvs_cleanup_fd int fd = open(tmp, O_CREAT | O_EXCL | O_WRONLY | O_TRUNC | direct_flag(flags),
                                 0644);
    if (fd < 0)
        return -errno;
    err = write_block(&fd, block, size, flags);
    if (!err && rename(tmp, path) < 0)
        err = -errno;
    if (err)
        unlink(tmp);
    return err;
}

/* ---- load ---- */

/* 0 also without a record: the block is older than the option. */
static int verify_checksum(int fd, const char *path, const void *block, size_t size)
{
    unsigned char value[8] = {0};
    ssize_t length = fgetxattr(fd, CHECKSUM_XATTR, value, sizeof(value));
    if (length < 0 && errno != ERANGE)
        return errno == ENODATA ? 0 : -errno;
    uint32_t recorded = (uint32_t)value[0] << 24 | (uint32_t)value[1] << 16 |
                        (uint32_t)value[2] << 8 | (uint32_t)value[3];
    if (length == 4 && recorded == client_crc32c(block, size))
        return 0;
    unlink(path);
    return -EBADMSG;
}

int client_vllm_load(const char *root, const char *key, size_t size, uint64_t seed, unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (err)
        return err;
    kvs_cleanup_free void *block = client_make_buffer(size);
    if (!block)
        return -ENOMEM;
    kvs_cleanup_fd int fd = open(path, O_RDONLY | direct_flag(flags));
    if (fd < 0)
        return -errno;
    err = client_read_once(fd, block, size);
    if (!err && flags & CLIENT_CRC)
        err = verify_checksum(fd, path, block, size);
    close(kvs_steal_fd(&fd));
    if (err == CLIENT_SHORT_READ)
        unlink(path);
    return err ? err : client_check(block, size, 0, seed);
}

int client_vllm_lookup(const char *root, const char *key, size_t size, uint64_t seed,
                       unsigned flags)
{
    char path[PATH_MAX];
    int err = client_fanned_path(path, root, key, ".bin");
    if (!err && access(path, F_OK) < 0)
        err = -errno;
    return err;
}
