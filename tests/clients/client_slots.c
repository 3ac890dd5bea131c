// SPDX-License-Identifier: Apache-2.0
// One big file of slots that are rewritten in place: vLLM's simple disk tier and Dynamo's KVBM.
#include "tests/clients/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/util.h"

#define ROUNDS_PER_SLOT 2

/*
 * Which slot a round rewrites follows from the seed, so a check can tell without a log what each
 * slot has to hold: round r writes the content of seed + r; a slot no round chose is zeros.
 */
static size_t choose_slot(uint64_t seed, size_t round, size_t count)
{
    uint64_t word = 0;
    client_fill(&word, sizeof(word), 8 * (uint64_t)round, ~seed);
    return word % count;
}

static int rewrite_slots(int fd, size_t count, uint64_t seed)
{
    kvs_cleanup_free void *data = client_make_buffer(CLIENT_SLOT);
    if (!data)
        return -ENOMEM;
    for (size_t round = 0; round < count * ROUNDS_PER_SLOT; round++) {
        struct iovec piece = {.iov_base = data, .iov_len = CLIENT_SLOT};
        client_fill(data, CLIENT_SLOT, 0, seed + round);
        off_t offset = (off_t)(choose_slot(seed, round, count) * CLIENT_SLOT);
        ssize_t written = pwritev(fd, &piece, 1, offset);
        if (written != (ssize_t)CLIENT_SLOT)
            return written < 0 ? -errno : -EIO;
    }
    return 0;
}

static int check_zeros(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] != 0)
            return CLIENT_WRONG_BYTES;
    }
    return 0;
}

static int check_slot(int fd, size_t slot, size_t count, uint64_t seed, char *data)
{
    struct iovec pieces[2] = {{.iov_base = data, .iov_len = CLIENT_SLOT / 2},
                              {.iov_base = data + CLIENT_SLOT / 2, .iov_len = CLIENT_SLOT / 2}};
    ssize_t got = preadv(fd, pieces, 2, (off_t)(slot * CLIENT_SLOT));
    if (got != (ssize_t)CLIENT_SLOT)
        return got < 0 ? -errno : CLIENT_SHORT_READ;
    for (size_t round = count * ROUNDS_PER_SLOT; round > 0; round--) {
        if (choose_slot(seed, round - 1, count) == slot)
            return client_check(data, CLIENT_SLOT, 0, seed + round - 1);
    }
    return check_zeros(data, CLIENT_SLOT);
}

static int check_slots(int fd, size_t count, uint64_t seed)
{
    kvs_cleanup_free void *data = client_make_buffer(CLIENT_SLOT);
    int err = data ? 0 : -ENOMEM;
    for (size_t slot = 0; slot < count && !err; slot++)
        err = check_slot(fd, slot, count, seed, data);
    return err;
}

static int name_file(char path_ret[PATH_MAX], const char *root, const char *key, size_t size)
{
    if (size == 0 || size % CLIENT_SLOT != 0)
        return -EINVAL;
    return client_flat_path(path_ret, root, key, ".slots");
}

static int use_slots(int *fd, size_t size, uint64_t seed)
{
    int err = rewrite_slots(*fd, size / CLIENT_SLOT, seed);
    if (!err)
        err = check_slots(*fd, size / CLIENT_SLOT, seed);
    int close_err = client_close(fd);
    return err ? err : close_err;
}

int client_slots_vllm_run(const char *root, const char *key, size_t size, uint64_t seed,
                          unsigned flags)
{
    char path[PATH_MAX];
    int err = name_file(path, root, key, size);
    if (err)
        return err;
    int direct = flags & CLIENT_DIRECT ? O_DIRECT : 0;
    unlink(path);
    kvs_cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | direct, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return -errno;
    return use_slots(&fd, size, seed);
}

static int set_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) < 0 ? -errno : 0;
}

static int reserve(int fd, off_t size)
{
    if (fallocate(fd, 0, 0, size) == 0)
        return 0;
    if (errno != EOPNOTSUPP)
        return -errno;
    return ftruncate(fd, size) < 0 ? -errno : 0;
}

int client_slots_kvbm_run(const char *root, const char *key, size_t size, uint64_t seed,
                          unsigned flags)
{
    char path[PATH_MAX];
    int err = name_file(path, root, key, size);
    if (err)
        return err;
    unlink(path);
    kvs_cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (flags & CLIENT_DIRECT)
        err = set_direct(fd);
    if (!err)
        err = reserve(fd, (off_t)size);
    return err ? err : use_slots(&fd, size, seed);
}

int client_slots_check(const char *root, const char *key, size_t size, uint64_t seed,
                       unsigned flags)
{
    char path[PATH_MAX];
    int err = name_file(path, root, key, size);
    if (err)
        return err;
    kvs_cleanup_fd int fd = open(path, O_RDONLY | (flags & CLIENT_DIRECT ? O_DIRECT : 0));
    return fd < 0 ? -errno : check_slots(fd, size / CLIENT_SLOT, seed);
}
