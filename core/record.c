// SPDX-License-Identifier: Apache-2.0
// Reads, writes, removes and probes the record.
#include "core/record.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>

#include "core/temporary.h"
#include "core/util.h"

void kvs_record_encode(uint32_t crc, uint8_t bytes_ret[KVS_RECORD_SIZE])
{
    for (int i = 0; i < KVS_RECORD_SIZE; i++)
        bytes_ret[i] = (uint8_t)(crc >> (24 - 8 * i));
}

struct kvs_record kvs_record_decode(const void *bytes, size_t len)
{
    struct kvs_record record = {.kind = KVS_RECORD_MALFORMED};
    const uint8_t *byte = bytes;

    if (len != KVS_RECORD_SIZE)
        return record;
    record.kind = KVS_RECORD_SUM;
    for (int i = 0; i < KVS_RECORD_SIZE; i++)
        record.crc = record.crc << 8 | byte[i];
    return record;
}

bool kvs_record_equal(const struct kvs_record *a, const struct kvs_record *b)
{
    return a->kind == b->kind && a->crc == b->crc;
}

int kvs_record_read(int fd, struct kvs_record *record_ret)
{
    /* One byte more than a record, so that a longer value shows. */
    uint8_t bytes[KVS_RECORD_SIZE + 1];
    ssize_t len = fgetxattr(fd, KVS_RECORD_NAME, bytes, sizeof(bytes));

    if (len < 0 && errno == ENODATA) {
        *record_ret = (struct kvs_record){.kind = KVS_RECORD_NONE};
        return 0;
    }
    if (len < 0 && errno != ERANGE)
        return -errno;
    *record_ret = kvs_record_decode(bytes, len < 0 ? sizeof(bytes) : (size_t)len);
    return 0;
}

static int set_record(int fd, uint32_t crc, int flags)
{
    uint8_t bytes[KVS_RECORD_SIZE];

    kvs_record_encode(crc, bytes);
    return fsetxattr(fd, KVS_RECORD_NAME, bytes, sizeof(bytes), flags) < 0 ? -errno : 0;
}

int kvs_record_write(int fd, uint32_t crc)
{
    return set_record(fd, crc, 0);
}

int kvs_record_add(int fd, uint32_t crc)
{
    return set_record(fd, crc, XATTR_CREATE);
}

int kvs_record_remove(int fd)
{
    return fremovexattr(fd, KVS_RECORD_NAME) < 0 && errno != ENODATA ? -errno : 0;
}

/* A file that is gone when it is closed, or -errno. */
static int open_probe_file(int dir_fd)
{
    char name[KVS_TEMPORARY_SIZE];
    int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0)
        return fd;
    int r = kvs_temporary_make(name, KVS_PROBE_PREFIX);
    if (r < 0)
        return r;
    fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    /* The descriptor suffices from here on, also where the removal fails. */
    unlinkat(dir_fd, name, 0);
    return fd;
}

int kvs_record_probe(int dir_fd)
{
    static const uint32_t crc = 0xE3069283;
    struct kvs_record record = {0};
    kvs_cleanup_fd int fd = open_probe_file(dir_fd);
    int r = fd < 0 ? fd : kvs_record_write(fd, crc);

    if (r == 0)
        r = kvs_record_read(fd, &record);
    if (r < 0)
        return r;
    return record.kind == KVS_RECORD_SUM && record.crc == crc ? 0 : -EOPNOTSUPP;
}
