// SPDX-License-Identifier: Apache-2.0
// Verification: reads a block, sums it, compares it with its record, and gives a verdict that is
// kept apart from the errors of the file system below (C10, C14-C18).
//
// A verdict of "corrupt" destroys a block, so it needs two independent readings that agree: the
// first as the descriptor reads, the second from the device (dirty pages written first, then direct
// I/O or a dropped page cache). Size, mtime, ctime and the record must not have moved meanwhile.
#ifndef KVSEAL_CORE_VERIFY_H
#define KVSEAL_CORE_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "core/record.h"

/* Memory, offsets and lengths of direct I/O are multiples of this everywhere in kvseal. */
#define KVS_IO_ALIGN 4096

/* Memory in pages of this size is few segments to a device. */
#define KVS_HUGE_PAGE ((size_t)2 << 20)

/* The unit of the per-piece sums, and of buffered reads. */
#define KVS_PIECE_SIZE ((size_t)1 << 20)

/* A block changed if any of this did: device, inode, size, mtime, ctime or record. */
struct kvs_snapshot {
    struct stat stat;
    struct kvs_record record;
};

/* `fd`: open for reading or writing. 0 or -errno. */
int kvs_snapshot_take(int fd, struct kvs_snapshot *snapshot_ret);
bool kvs_snapshot_equal(const struct kvs_snapshot *a, const struct kvs_snapshot *b);

enum kvs_verdict {
    KVS_INTACT,
    KVS_UNSEALED, /* there is no record */
    KVS_CORRUPT,
};

/* Where the bytes go while they are summed. Owned by the caller. */
struct kvs_reading {
    void *memory;    /* KVS_IO_ALIGN-aligned */
    size_t capacity; /* multiple of KVS_IO_ALIGN; at least KVS_PIECE_SIZE */
    /* In: capacity >= size rounded up to KVS_IO_ALIGN keeps the whole content in `memory`
     * (whole_ret true); a smaller one is reused for each piece. */
    bool whole_ret;
    /* When not NULL: receives malloc()ed sums, one per KVS_PIECE_SIZE bytes (the last one shorter),
     * of the reading that was found intact; the caller frees it. NULL after any other verdict. */
    uint32_t **piece_sums_ret;
    /* When not NULL: called before each piece, of `len` bytes, is read, to keep a pace. What it
     * returns other than 0 ends the verification (-errno). */
    int (*before_piece)(void *context, size_t len);
    void *context;
};

struct kvs_verification {
    enum kvs_verdict verdict;
    bool is_transient; /* the first reading was bad, the second good (C15) */
    bool is_unstable;  /* with -EIO: ours, for differing readings or a changing block (C15); not one
                        * of the file system's own (C14) */
    uint64_t size;
    struct kvs_record record; /* as it was during the verification */
    uint32_t computed;        /* the sum that was read */
    struct stat stat;         /* of the verified state: size, mtime, ctime */
};

/* Gives a verdict on `fd` (readable, any of buffered or O_DIRECT).
 *
 * Returns 0 with *verification_ret, or -errno (C14): of fstat, pread, fgetxattr, fdatasync as the
 * file system gave it; -EIO when two bad readings differ (C15) and -EIO when the block changed
 * under three readings in turn. A file that grows or shrinks while it is read counts as changed. An
 * unsealed block is not read: verdict KVS_UNSEALED, nothing in `memory`. Access times: move as
 * reads on `fd` move them; give an O_NOATIME descriptor where they must not. */
int kvs_verify(int fd, struct kvs_reading *reading, struct kvs_verification *verification_ret);

/* The same, counted in core/stats.h: the time (where there is a record), transient and unstable
 * readings, errors of the file system. */
int kvs_verify_counted(int fd, struct kvs_reading *reading,
                       struct kvs_verification *verification_ret);

/* Reads [offset, offset+len) into `buffer` (KVS_IO_ALIGN-aligned, room for len rounded up), never
 * short before the end of the file. offset must be aligned when `fd` is O_DIRECT. *len_ret may be
 * shorter only at the end of the file. 0 or -errno. EINTR is retried. */
int kvs_read_range(int fd, void *buffer, uint64_t offset, size_t len, size_t *len_ret);

/* The sum of [offset, offset+len) as it stands on the device: read until two readings agree, at
 * most three, the second and third from the device (a wrong sum in a record would be a false alarm
 * later). `scratch`: KVS_IO_ALIGN-aligned, at least KVS_PIECE_SIZE. -EIO when none agree or the
 * file ends early. */
int kvs_sum_agreed(int fd, uint64_t offset, uint64_t len, void *scratch, size_t scratch_len,
                   uint32_t *crc_ret);

/* The same of the whole file; -EBUSY when its size or mtime moved while it was read. */
int kvs_sum_whole(int fd, void *scratch, size_t scratch_len, uint32_t *crc_ret);

/* A second descriptor on the same file whose reads come from the device: dirty pages are written,
 * then the file is opened with O_DIRECT|O_NOATIME, or where that is refused, its page cache is
 * dropped and it is opened buffered. On tmpfs simply again. >= 0 the descriptor (the caller closes
 * it), or -errno. */
int kvs_open_device_reader(int fd);

#endif
