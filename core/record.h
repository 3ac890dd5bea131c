// SPDX-License-Identifier: Apache-2.0
// The record: the extended attribute that holds a block's CRC32C.
//
// Name and bytes are those of vLLM's own `checksum_blocks` option (pull request 57912): four bytes,
// the CRC32C of the whole file, big-endian ("123456789" -> e3 06 92 83).
#ifndef KVSEAL_CORE_RECORD_H
#define KVSEAL_CORE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVS_RECORD_NAME "user.vllm.kv_crc32c"
#define KVS_RECORD_SIZE 4

enum kvs_record_kind {
    KVS_RECORD_NONE,      /* ENODATA: the block is unsealed */
    KVS_RECORD_SUM,       /* four bytes: `crc` */
    KVS_RECORD_MALFORMED, /* any other length: no content matches it (C10) */
};

struct kvs_record {
    enum kvs_record_kind kind;
    uint32_t crc; /* 0 unless kind is KVS_RECORD_SUM */
};

void kvs_record_encode(uint32_t crc, uint8_t bytes_ret[KVS_RECORD_SIZE]);
struct kvs_record kvs_record_decode(const void *bytes, size_t len);
bool kvs_record_equal(const struct kvs_record *a, const struct kvs_record *b);

/* `fd`: open for reading or writing (not O_PATH). Returns 0 or -errno; ENODATA is not an error but
 * KVS_RECORD_NONE; every other errno is the file system's own (C14). */
int kvs_record_read(int fd, struct kvs_record *record_ret);

/* Sets the record. -errno of fsetxattr: ENOSPC, EDQUOT, EIO, EOPNOTSUPP, EROFS, EPERM ... */
int kvs_record_write(int fd, uint32_t crc);

/* The same where there is none: -EEXIST when there is one, which stays. */
int kvs_record_add(int fd, uint32_t crc);

/* Removes the record; that there was none is success. */
int kvs_record_remove(int fd);

/* Whether `user.` attributes can be set *and* read back in this directory (C21): makes a nameless
 * or temporary file there, sets a record, reads it back and removes the file. 0, -EOPNOTSUPP when
 * the attribute did not come back, or -errno. Some file systems (3FS) answer a get but refuse a
 * set. */
int kvs_record_probe(int dir_fd);

#endif
