// SPDX-License-Identifier: Apache-2.0
// Reads blocks, from wherever their bytes may be, and compares them with their records.
#include "core/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/piece_reads.h"
#include "core/stats.h"
#include "core/util.h"

#define MAX_READINGS 3

int kvs_snapshot_take(int fd, struct kvs_snapshot *snapshot_ret)
{
    if (fstat(fd, &snapshot_ret->stat) < 0)
        return -errno;
    return kvs_record_read(fd, &snapshot_ret->record);
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool kvs_snapshot_equal(const struct kvs_snapshot *a, const struct kvs_snapshot *b)
{
    return a->stat.st_dev == b->stat.st_dev && a->stat.st_ino == b->stat.st_ino &&
           a->stat.st_size == b->stat.st_size && is_same_time(&a->stat.st_mtim, &b->stat.st_mtim) &&
           is_same_time(&a->stat.st_ctim, &b->stat.st_ctim) &&
           kvs_record_equal(&a->record, &b->record);
}

/* Opens the file once more, for reading; the access time stays where that is allowed. */
static int open_again(int fd, int flags)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
    int again = -1;

    flags |= O_RDONLY | O_CLOEXEC;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, flags | O_NOATIME);
    if (again < 0 && errno == EPERM)
        again = open(path, flags);
    return again < 0 ? -errno : again;
}

/* Opens without O_DIRECT; what is cached and clean is read from the device again. */
static int open_uncached(int fd)
{
    int again = open_again(fd, 0);

    if (again >= 0)
        posix_fadvise(again, 0, 0, POSIX_FADV_DONTNEED);
    return again;
}

int kvs_open_device_reader(int fd)
{
    const unsigned int all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                             SYNC_FILE_RANGE_WAIT_AFTER;
    int again = -1;

    /* Where there is nothing that could be written back, there is nothing to wait for. */
    if (sync_file_range(fd, 0, 0, all) < 0 && errno != EROFS && errno != EINVAL &&
        errno != ENOSYS && errno != ESPIPE)
        return -errno;
    again = open_again(fd, O_DIRECT);
    return again == -EINVAL ? open_uncached(fd) : again;
}

/* pread, also where O_DIRECT was accepted at open but is refused here (some FUSE file systems). */
static ssize_t read_some(int fd, void *buffer, size_t len, uint64_t offset)
{
    ssize_t n = 0;

    do
        n = pread(fd, buffer, len, (off_t)offset);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT)) {
        kvs_cleanup_fd int buffered = open_uncached(fd);

        return buffered < 0 ? buffered : read_some(buffered, buffer, len, offset);
    }
    return n < 0 ? -errno : n;
}

int kvs_read_range(int fd, void *buffer, uint64_t offset, size_t len, size_t *len_ret)
{
    size_t want = KVS_ALIGN_UP(len, (size_t)KVS_IO_ALIGN);
    size_t done = 0;

    *len_ret = 0;
    while (done < len) {
        /* A direct read begins at an aligned place: what follows a short read is read with the
         * whole unit that it lies in. No byte more than before: that was the end of the file. */
        size_t from = KVS_ALIGN_DOWN(done, (size_t)KVS_IO_ALIGN);
        ssize_t n = read_some(fd, (char *)buffer + from, want - from, offset + from);

        if (n < 0)
            return (int)n;
        if (from + (size_t)n <= done)
            break;
        done = from + (size_t)n;
    }
    *len_ret = KVS_MIN(done, len);
    return 0;
}

/* What one reading of a block found. */
struct finding {
    uint32_t crc;
    bool ended_early;
};

/* Whether direct reads can take all of a block at once: its device then has all requests together,
 * and does not wait while a piece is summed. Buffered ones go piece by piece, which the CPU's
 * caches still hold when they are summed. */
static bool can_read_at_once(int fd, const struct kvs_reading *reading)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) != 0 && reading->whole_ret &&
           reading->before_piece == NULL;
}

/* What was asked for, where the block lies whole in memory, and the sum of each request. */
struct request_sums {
    const char *data;
    uint32_t *sums;
};

static void sum_request(void *context, size_t offset, size_t len)
{
    const struct request_sums *requests = context;

    requests->sums[offset / KVS_READ_SIZE] = kvs_crc32c(0, requests->data + offset, len);
}

/* The sum of all, and of the pieces in `sums`. */
static uint32_t join_sums(const uint32_t *request_sums, uint64_t size, uint32_t *sums)
{
    uint32_t crc = 0;

    for (uint64_t offset = 0; offset < size; offset += KVS_READ_SIZE) {
        uint64_t len = KVS_MIN(size - offset, KVS_READ_SIZE);
        uint32_t sum = request_sums[offset / KVS_READ_SIZE];
        uint32_t *piece = &sums[offset / KVS_PIECE_SIZE];

        *piece = offset % KVS_PIECE_SIZE == 0 ? sum : kvs_crc32c_combine(*piece, sum, len);
        crc = kvs_crc32c_combine(crc, sum, len);
    }
    return crc;
}

/* Sums what has arrived while the rest does. -ENOTSUP: not here. */
static int read_overlapped(int fd, const struct kvs_reading *reading, uint64_t size, uint32_t *sums,
                           struct finding *found_ret)
{
    kvs_cleanup_free uint32_t *request_sums = calloc(size / KVS_READ_SIZE + 1, sizeof(*sums));
    struct request_sums requests = {.data = reading->memory, .sums = request_sums};

    if (request_sums == NULL)
        return -ENOMEM;
    int r = kvs_read_pieces(fd, reading->memory, (size_t)size, sum_request, &requests,
                            &found_ret->ended_early);
    if (r == 0 && !found_ret->ended_early)
        found_ret->crc = join_sums(request_sums, size, sums);
    return r;
}

/* Adds the sums of what was read at `offset` to *crc_inout, and by piece to `sums` unless it is
 * NULL. */
static void sum_pieces(const char *data, uint64_t offset, size_t len, uint32_t *sums,
                       uint32_t *crc_inout)
{
    for (size_t done = 0; done < len; done += KVS_PIECE_SIZE) {
        size_t piece = KVS_MIN(len - done, KVS_PIECE_SIZE);
        uint32_t crc = kvs_crc32c(0, data + done, piece);

        if (sums != NULL)
            sums[(offset + done) / KVS_PIECE_SIZE] = crc;
        *crc_inout = kvs_crc32c_combine(*crc_inout, crc, piece);
    }
}

/* Reads `unit` bytes at a time, and sums them. */
static int read_in_turn(int fd, struct kvs_reading *reading, uint64_t size, uint64_t unit,
                        uint32_t *sums, struct finding *found_ret)
{
    for (uint64_t offset = 0; offset < size; offset += unit) {
        char *buffer = (char *)reading->memory + (reading->whole_ret ? offset : 0);
        size_t len = KVS_MIN(size - offset, unit);
        size_t got = 0;
        int r = reading->before_piece != NULL ? reading->before_piece(reading->context, len) : 0;

        if (r == 0)
            r = kvs_read_range(fd, buffer, offset, len, &got);
        if (r < 0)
            return r;
        found_ret->ended_early = got < len;
        if (found_ret->ended_early)
            return 0;
        sum_pieces(buffer, offset, len, sums, &found_ret->crc);
    }
    return 0;
}

/* Reads the `size` bytes of a block and sums them, by piece into `sums` unless it is NULL. */
static int read_block(int fd, struct kvs_reading *reading, uint64_t size, uint32_t *sums,
                      struct finding *found_ret)
{
    bool is_at_once = can_read_at_once(fd, reading);
    int r = -ENOTSUP;

    *found_ret = (struct finding){0};
    if (is_at_once && size > KVS_PIECE_SIZE && sums != NULL)
        r = read_overlapped(fd, reading, size, sums, found_ret);
    if (r == -ENOTSUP)
        r = read_in_turn(fd, reading, size, is_at_once ? size : KVS_PIECE_SIZE, sums, found_ret);
    return r;
}

/* One reading, and whether the block was the same before and after it. */
static int read_steady(int fd, int reader_fd, struct kvs_reading *reading,
                       const struct kvs_snapshot *before, uint32_t *sums, struct finding *found_ret,
                       bool *changed_ret)
{
    struct kvs_snapshot after;
    int r = read_block(reader_fd, reading, (uint64_t)before->stat.st_size, sums, found_ret);

    if (r == 0)
        r = kvs_snapshot_take(fd, &after);
    if (r == 0)
        *changed_ret = found_ret->ended_early || !kvs_snapshot_equal(before, &after);
    return r;
}

/* Judges by one reading, or by two. *changed_ret: the block did not keep still, no verdict. */
static int judge(int fd, struct kvs_reading *reading, const struct kvs_snapshot *before,
                 uint32_t *sums, struct kvs_verification *verification_ret, bool *changed_ret)
{
    const struct kvs_record *record = &before->record;
    struct finding first;
    struct finding second;
    kvs_cleanup_fd int device_fd = -1;
    int r = read_steady(fd, fd, reading, before, sums, &first, changed_ret);

    verification_ret->computed = first.crc;
    if (r < 0 || *changed_ret || (record->kind == KVS_RECORD_SUM && first.crc == record->crc))
        return r;

    device_fd = kvs_open_device_reader(fd);
    if (device_fd < 0)
        return device_fd;
    r = read_steady(fd, device_fd, reading, before, sums, &second, changed_ret);
    if (r < 0 || *changed_ret)
        return r;
    verification_ret->computed = second.crc;
    if (record->kind == KVS_RECORD_SUM && second.crc == record->crc) {
        verification_ret->is_transient = true;
        return 0;
    }
    if (second.crc != first.crc) {
        verification_ret->is_unstable = true;
        return -EIO;
    }
    verification_ret->verdict = KVS_CORRUPT;
    return 0;
}

/* From one look at the record to a verdict, an error, or *changed_ret. */
static int verify_once(int fd, struct kvs_reading *reading,
                       struct kvs_verification *verification_ret, bool *changed_ret)
{
    struct kvs_snapshot before;
    kvs_cleanup_free uint32_t *sums = NULL;
    uint64_t size = 0;
    int r = kvs_snapshot_take(fd, &before);

    if (r < 0)
        return r;
    *changed_ret = false;
    size = (uint64_t)before.stat.st_size;
    *verification_ret = (struct kvs_verification){
        .verdict = before.record.kind == KVS_RECORD_NONE ? KVS_UNSEALED : KVS_INTACT,
        .size = size,
        .record = before.record,
        .stat = before.stat,
    };
    if (before.record.kind == KVS_RECORD_NONE)
        return 0;
    reading->whole_ret = reading->capacity >= KVS_ALIGN_UP(size, (uint64_t)KVS_IO_ALIGN);
    if (reading->piece_sums_ret != NULL) {
        sums = calloc(size / KVS_PIECE_SIZE + 1, sizeof(*sums));
        if (sums == NULL)
            return -ENOMEM;
    }
    r = judge(fd, reading, &before, sums, verification_ret, changed_ret);
    if (r == 0 && !*changed_ret && verification_ret->verdict == KVS_INTACT && sums != NULL) {
        *reading->piece_sums_ret = sums;
        sums = NULL;
    }
    return r;
}

int kvs_verify(int fd, struct kvs_reading *reading, struct kvs_verification *verification_ret)
{
    bool changed = true;
    int r = 0;

    *verification_ret = (struct kvs_verification){0};
    reading->whole_ret = false;
    if (reading->piece_sums_ret != NULL)
        *reading->piece_sums_ret = NULL;
    for (int i = 0; r == 0 && changed && i < MAX_READINGS; i++)
        r = verify_once(fd, reading, verification_ret, &changed);
    if (r == 0 && changed) {
        verification_ret->is_unstable = true;
        return -EIO;
    }
    return r;
}

int kvs_verify_counted(int fd, struct kvs_reading *reading,
                       struct kvs_verification *verification_ret)
{
    uint64_t since = kvs_clock_ns();
    int r = kvs_verify(fd, reading, verification_ret);

    if (r < 0 && verification_ret->is_unstable)
        kvs_stats_add(KVS_STAT_unstable, 1);
    else if (r < 0)
        kvs_stats_backing_error(KVS_BACKING_VERIFY, r);
    else if (verification_ret->verdict != KVS_UNSEALED)
        kvs_stats_time(KVS_TIMING_VERIFY, since);
    if (r == 0 && verification_ret->is_transient)
        kvs_stats_add(KVS_STAT_transient, 1);
    return r;
}

/* Sums [offset, offset + len), which may begin anywhere. */
static int sum_range(int fd, uint64_t offset, uint64_t len, void *scratch, uint32_t *crc_ret)
{
    *crc_ret = 0;
    while (len > 0) {
        size_t skip = offset % KVS_IO_ALIGN;
        size_t piece = KVS_MIN(len, KVS_PIECE_SIZE - skip);
        size_t got = 0;
        int r = kvs_read_range(fd, scratch, offset - skip, skip + piece, &got);

        if (r < 0)
            return r;
        if (got < skip + piece)
            return -EIO;
        *crc_ret = kvs_crc32c(*crc_ret, (char *)scratch + skip, piece);
        offset += piece;
        len -= piece;
    }
    return 0;
}

int kvs_sum_agreed(int fd, uint64_t offset, uint64_t len, void *scratch, size_t scratch_len,
                   uint32_t *crc_ret)
{
    uint32_t sums[MAX_READINGS];
    kvs_cleanup_fd int device_fd = -1;

    if (scratch_len < KVS_PIECE_SIZE)
        return -EINVAL;
    for (int i = 0; i < MAX_READINGS; i++) {
        int r = 0;

        if (i == 1) {
            device_fd = kvs_open_device_reader(fd);
            if (device_fd < 0)
                return device_fd;
        }
        r = sum_range(i == 0 ? fd : device_fd, offset, len, scratch, &sums[i]);
        if (r < 0)
            return r;
        for (int j = 0; j < i; j++) {
            if (sums[j] == sums[i]) {
                *crc_ret = sums[i];
                return 0;
            }
        }
    }
    return -EIO;
}

int kvs_sum_whole(int fd, void *scratch, size_t scratch_len, uint32_t *crc_ret)
{
    struct stat before, after;
    int r = 0;

    if (fstat(fd, &before) < 0)
        return -errno;
    r = kvs_sum_agreed(fd, 0, (uint64_t)before.st_size, scratch, scratch_len, crc_ret);
    if (fstat(fd, &after) < 0)
        return -errno;
    return before.st_size == after.st_size && is_same_time(&before.st_mtim, &after.st_mtim)
               ? r
               : -EBUSY;
}
