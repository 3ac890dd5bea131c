// SPDX-License-Identifier: Apache-2.0
// Blocks: their bytes, storing and loading them as clients do, damaging and judging them.
#include "tests/mount/fixture.h"

#include <dirent.h>
#include <sys/xattr.h>

#define PAGE 4096

/* ---- bytes ---- */

void kvt_fill(void *buffer, size_t size, unsigned seed)
{
    unsigned char *bytes = buffer;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = (at + 1) * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03; // splitmix64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
        word ^= word >> 31;
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

unsigned char *kvt_block(size_t size, unsigned seed)
{
    size_t room = (size + PAGE) / PAGE * PAGE;
    unsigned char *block = aligned_alloc(PAGE, room);
    if (!block)
        fail_msg("no memory");
    memset(block + size, 0, room - size);
    kvt_fill(block, size, seed);
    return block;
}

uint32_t kvt_crc32c(const void *data, size_t size)
{
    static uint32_t table[256]; // equal values, whoever writes them
    const unsigned char *bytes = data;
    if (!table[255]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t remainder = i;
            for (int bit = 0; bit < 8; bit++)
                remainder = (remainder >> 1) ^ (remainder & 1 ? 0x82F63B78 : 0);
            table[i] = remainder;
        }
    }
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++)
        crc = (crc >> 8) ^ table[(crc ^ bytes[i]) & 0xFF];
    return crc ^ 0xFFFFFFFF;
}

/* ---- files ---- */

int kvt_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0)
        fail_msg("open %s: %s", path, strerror(errno));
    return fd;
}

int kvt_close(int fd)
{
    return close(fd) == 0 ? 0 : -errno;
}

static int write_pieces(int fd, const unsigned char *data, size_t size, off_t offset, size_t chunk)
{
    for (size_t done = 0; done < size;) {
        size_t len = chunk && size - done > chunk ? chunk : size - done;
        ssize_t n = pwrite(fd, data + done, len, offset + (off_t)done);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

int kvt_write(int fd, const void *data, size_t size, off_t offset, size_t chunk)
{
    int flags = fcntl(fd, F_GETFL);
    size_t tail = flags & O_DIRECT ? size % PAGE : 0;
    int error = write_pieces(fd, data, size - tail, offset, chunk);
    if (error || !tail)
        return error;
    fcntl(fd, F_SETFL, flags & ~O_DIRECT);
    size -= tail;
    error = write_pieces(fd, (const unsigned char *)data + size, tail, offset + (off_t)size, 0);
    fcntl(fd, F_SETFL, flags);
    return error;
}

void kvt_put(int fd, size_t size, unsigned seed, off_t offset)
{
    unsigned char *block = kvt_block(size, seed);
    int error = kvt_write(fd, block, size, offset, 0);
    free(block);
    if (error)
        fail_msg("write of %zu bytes at %jd: %s", size, (intmax_t)offset, strerror(-error));
}

int kvt_write_file(const char *path, int flags, size_t size, unsigned seed, size_t chunk)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    unsigned char *block = kvt_block(size, seed);
    int error = kvt_write(fd, block, size, 0, chunk);
    int close_error = kvt_close(fd);
    free(block);
    return error ? error : close_error;
}

int kvt_store(struct kvt_env *env, const char *name, size_t size, unsigned seed, int flags)
{
    char temporary[NAME_MAX + 1];
    snprintf(temporary, sizeof(temporary), "%s_1.tmp", name);
    const char *path = kvt_mnt(env, temporary);
    int error = kvt_write_file(path, KVT_CREATE | (flags & KVT_DIRECT ? O_DIRECT : 0), size, seed,
                               0);
    if (!error && rename(path, kvt_mnt(env, name)) != 0)
        error = -errno;
    if (error)
        unlink(path);
    return error;
}

int kvt_load_path(const char *path, size_t size, unsigned seed, int flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | (flags & KVT_DIRECT ? O_DIRECT : 0));
    if (fd < 0)
        return -errno;
    size_t room = (size + PAGE) / PAGE * PAGE;
    unsigned char *block = kvt_block(size, seed), *bytes = aligned_alloc(PAGE, room);
    ssize_t length = read(fd, bytes, flags & KVT_DIRECT ? room : size);
    int error = length < 0 ? -errno : 0;
    bool is_same = error || ((size_t)length == size && memcmp(bytes, block, size) == 0);
    close(fd);
    free(block);
    free(bytes);
    if (!is_same)
        fail_msg("%s: %zd bytes that are not the %zu of seed %u", path, length, size, seed);
    return error;
}

int kvt_load(struct kvt_env *env, const char *name, size_t size, unsigned seed, int flags)
{
    return kvt_load_path(kvt_mnt(env, name), size, seed, flags);
}

/* The file's content, malloc()ed. */
static unsigned char *read_file(const char *path, size_t *size_ret)
{
    struct stat st;
    int fd = kvt_open(path, O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    *size_ret = (size_t)st.st_size;
    unsigned char *bytes = malloc(*size_ret + 1);
    assert_non_null(bytes);
    ssize_t n = 1;
    for (size_t done = 0; done < *size_ret && n > 0; done += (size_t)n)
        n = pread(fd, bytes + done, *size_ret - done, (off_t)done);
    close(fd);
    if (n <= 0)
        fail_msg("read %s: %s", path, n < 0 ? strerror(errno) : "short");
    return bytes;
}

void kvt_assert_content(const char *path, const void *data, size_t size)
{
    size_t length;
    unsigned char *bytes = read_file(path, &length);
    size_t at = 0;
    while (at < size && at < length && bytes[at] == ((const unsigned char *)data)[at])
        at++;
    free(bytes);
    if (length != size || at < size)
        fail_msg("%s: %zu bytes, the first %zu as they should be, of %zu", path, length, at, size);
}

void kvt_assert_block(const char *path, size_t size, unsigned seed)
{
    unsigned char *block = kvt_block(size, seed);
    kvt_assert_content(path, block, size);
    free(block);
}

void kvt_drop_cache(const char *path)
{
    int fd = kvt_open(path, O_RDONLY);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

void kvt_flip(const char *path, off_t offset)
{
    unsigned char byte;
    int fd = kvt_open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
    kvt_drop_cache(path);
}

/* ---- records ---- */

uint32_t kvt_sum_of(const char *path)
{
    size_t size;
    unsigned char *bytes = read_file(path, &size);
    uint32_t crc = kvt_crc32c(bytes, size);
    free(bytes);
    return crc;
}

struct kvs_record kvt_record_of(const char *path)
{
    unsigned char bytes[64];
    ssize_t length = getxattr(path, KVS_RECORD_NAME, bytes, sizeof(bytes));
    if (length < 0 && errno == ENODATA)
        return (struct kvs_record){.kind = KVS_RECORD_NONE};
    if (length < 0)
        fail_msg("getxattr %s: %s", path, strerror(errno));
    if (length != 4)
        return (struct kvs_record){.kind = KVS_RECORD_MALFORMED};
    return (struct kvs_record){.kind = KVS_RECORD_SUM,
                               .crc = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
                                      (uint32_t)bytes[2] << 8 | bytes[3]};
}

int kvt_set_record_bytes(const char *path, const void *bytes, size_t size)
{
    return setxattr(path, KVS_RECORD_NAME, bytes, size, 0) == 0 ? 0 : -errno;
}

int kvt_set_record(const char *path, uint32_t crc)
{
    unsigned char bytes[4] = {crc >> 24 & 0xFF, crc >> 16 & 0xFF, crc >> 8 & 0xFF, crc & 0xFF};
    return kvt_set_record_bytes(path, bytes, sizeof(bytes));
}

int kvt_remove_record(const char *path)
{
    return removexattr(path, KVS_RECORD_NAME) == 0 ? 0 : -errno;
}

void kvt_assert_sealed_at(const char *path, const char *file, int line)
{
    struct kvs_record record = kvt_record_of(path);
    uint32_t sum = kvt_sum_of(path);
    if (record.kind == KVS_RECORD_SUM && record.crc == sum)
        return;
    print_error("%s: the record is %s %08x, the content's sum %08x\n", path,
                record.kind == KVS_RECORD_NONE  ? "missing"
                : record.kind == KVS_RECORD_SUM ? "of four bytes"
                                                : "malformed",
                record.crc, sum);
    _fail(file, line);
}

void kvt_assert_unsealed_at(const char *path, const char *file, int line)
{
    struct kvs_record record = kvt_record_of(path);
    if (record.kind == KVS_RECORD_NONE)
        return;
    print_error("%s: there is a record, %08x\n", path, record.crc);
    _fail(file, line);
}

/* ---- names ---- */

bool kvt_is_gone(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 && errno == ENOENT;
}

/* How many names there are, and whether `name` is one of them. */
static unsigned list_names(const char *directory, const char *name, bool *found_ret)
{
    unsigned count = 0;
    DIR *stream = opendir(directory);
    if (!stream)
        fail_msg("opendir %s: %s", directory, strerror(errno));
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count++;
        *found_ret |= strcmp(entry->d_name, name) == 0;
    }
    closedir(stream);
    return count;
}

unsigned kvt_count_names(const char *directory)
{
    bool found = false;
    return list_names(directory, "", &found);
}

void kvt_assert_gone(struct kvt_env *env, const char *name)
{
    bool is_listed = false;
    list_names(kvt_mnt(env, ""), name, &is_listed);
    if (is_listed || !kvt_is_gone(kvt_mnt(env, name)) || !kvt_is_gone(kvt_src(env, name)))
        fail_msg("%s is still there:%s%s%s", name, is_listed ? " listed," : "",
                 kvt_is_gone(kvt_mnt(env, name)) ? "" : " through the mount,",
                 kvt_is_gone(kvt_src(env, name)) ? "" : " in the source");
}
