// SPDX-License-Identifier: Apache-2.0
// Content from a seed, names, and the small steps that the sequences share.
#include "tests/clients/client.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util.h"

/* The finalizer of splitmix64: each seed and word number gives a word of its own. */
static uint64_t mix(uint64_t value)
{
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

/* The 8 bytes around `offset`, as they lie in memory. */
static uint64_t content_word(uint64_t offset, uint64_t seed_mixed)
{
    return htole64(mix(seed_mixed + offset / 8));
}

void client_fill(void *data, size_t size, uint64_t offset, uint64_t seed)
{
    uint64_t seed_mixed = mix(seed);
    for (size_t done = 0, len = 0; done < size; done += len) {
        uint64_t word = content_word(offset + done, seed_mixed);
        size_t skip = (offset + done) % sizeof(word);
        len = KVS_MIN(sizeof(word) - skip, size - done);
        memcpy((char *)data + done, (char *)&word + skip, len);
    }
}

int client_check(const void *data, size_t size, uint64_t offset, uint64_t seed)
{
    uint64_t seed_mixed = mix(seed);
    for (size_t done = 0, len = 0; done < size; done += len) {
        uint64_t word = content_word(offset + done, seed_mixed);
        size_t skip = (offset + done) % sizeof(word);
        len = KVS_MIN(sizeof(word) - skip, size - done);
        if (memcmp((const char *)data + done, (char *)&word + skip, len) != 0)
            return CLIENT_WRONG_BYTES;
    }
    return 0;
}

void *client_make_buffer(size_t size)
{
    void *buffer = NULL;
    size_t room = KVS_ALIGN_UP(KVS_MAX(size, 1u), 4096u);
    if (posix_memalign(&buffer, 4096, room) != 0)
        return NULL;
    return memset(buffer, 0, room);
}

void *client_make_block(size_t size, uint64_t seed)
{
    void *block = client_make_buffer(size);
    if (block)
        client_fill(block, size, 0, seed);
    return block;
}

static uint32_t crc_table[256];
static pthread_once_t crc_table_once = PTHREAD_ONCE_INIT;

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++)
            rest = rest & 1 ? (rest >> 1) ^ 0x82F63B78u : rest >> 1;
        crc_table[i] = rest;
    }
}

uint32_t client_crc32c(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t crc = 0xFFFFFFFFu;
    pthread_once(&crc_table_once, make_crc_table);
    for (size_t i = 0; i < size; i++)
        crc = crc_table[(crc ^ bytes[i]) & 0xFF] ^ (crc >> 8);
    return crc ^ 0xFFFFFFFFu;
}

static int check_length(int length)
{
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int client_fanned_path(char path_ret[PATH_MAX], const char *root, const char *key,
                       const char *suffix)
{
    if (strlen(key) < 5)
        return -EINVAL;
    return check_length(
        snprintf(path_ret, PATH_MAX, "%s/%.3s/%.2s_g0/%s%s", root, key, key + 3, key, suffix));
}

int client_flat_path(char path_ret[PATH_MAX], const char *root, const char *key, const char *suffix)
{
    return check_length(snprintf(path_ret, PATH_MAX, "%s/%s%s", root, key, suffix));
}

/* The first `length` characters of `path` are the directory; at most as deep as PATH_MAX allows. */
static int make_directory(const char *path, size_t length)
{
    char directory[PATH_MAX];
    struct stat attr;
    snprintf(directory, sizeof(directory), "%.*s", (int)length, path);
    if (stat(directory, &attr) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    const char *slash = strrchr(directory, '/');
    int err = slash && slash != directory ? make_directory(path, (size_t)(slash - directory)) : 0;
    if (!err && mkdir(directory, 0777) < 0 && errno != EEXIST)
        err = -errno;
    return err;
}

int client_make_parents(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash != path ? make_directory(path, (size_t)(slash - path)) : 0;
}

int client_write_once(int fd, const void *data, size_t size)
{
    ssize_t written = write(fd, data, size);
    if (written < 0)
        return -errno;
    return (size_t)written == size ? 0 : -EIO;
}

int client_read_once(int fd, void *data, size_t size)
{
    ssize_t got = read(fd, data, size);
    if (got < 0)
        return -errno;
    return (size_t)got == size ? 0 : CLIENT_SHORT_READ;
}

int client_close(int *fd)
{
    return close(kvs_steal_fd(fd)) < 0 ? -errno : 0;
}

uint64_t client_random(void)
{
    uint64_t value = 0;
    while (getrandom(&value, sizeof(value), 0) != sizeof(value))
        ;
    return value >> 1;
}

int client_load_whole(const char *path, int open_flags, size_t size, uint64_t seed)
{
    kvs_cleanup_free void *data = client_make_buffer(size);
    if (!data)
        return -ENOMEM;
    kvs_cleanup_fd int fd = open(path, open_flags);
    if (fd < 0)
        return -errno;
    int err = client_read_once(fd, data, size);
    return err ? err : client_check(data, size, 0, seed);
}
