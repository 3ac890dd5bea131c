// SPDX-License-Identifier: Apache-2.0
// The way of every change of content: first the block's state and record, then the bytes, then what
// is known of them.
#include "fuse/change.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/log.h"
#include "core/stats.h"
#include "core/util.h"
#include "fuse/mirror.h"
#include "fuse/reach.h"
#include "fuse/refuse.h"
#include "fuse/seal.h"
#include "fuse/worker.h"

/* What a verification found becomes known of the unchanged pieces, so that a partial change has to
 * read back only the pieces that it cuts. */
static void learn_pieces(struct kvs_file *file, uint64_t size, const uint32_t *sums)
{
    uint64_t changes = kvs_digest_changes(&file->digest);

    for (uint64_t offset = 0; offset < size; offset += KVS_PIECE_SIZE) {
        kvs_digest_learn(&file->digest, offset, KVS_MIN(KVS_PIECE_SIZE, size - offset),
                         sums[offset / KVS_PIECE_SIZE], changes);
        changes = kvs_digest_changes(&file->digest);
    }
}

/* Verifies a CLEAN block before its first change (C5). `content` is held exclusively. */
static int verify_base(struct kvs_fs *fs, struct kvs_file *file, int fd,
                       struct kvs_verification *found_ret)
{
    kvs_cleanup_free uint32_t *sums = NULL;
    struct kvs_reading reading = {
        .memory = kvs_worker_scratch(), .capacity = KVS_SCRATCH_SIZE, .piece_sums_ret = &sums};
    int error = kvs_verify_counted(fd, &reading, found_ret);

    if (error != 0)
        return error;
    if (found_ret->verdict == KVS_INTACT && sums != NULL)
        learn_pieces(file, found_ret->size, sums);
    if (found_ret->verdict == KVS_INTACT)
        kvs_stats_add(KVS_STAT_verified_bytes, found_ret->size);
    if (found_ret->is_transient)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* a wrong page must not become dirty */
    return 0;
}

uint64_t kvs_change_max_reread(const struct kvs_fs *fs)
{
    return fs->options.checksums == KVS_CHECKSUMS_OFF ? 0 : fs->options.max_reread;
}

/* Makes the block ready for a change that keeps some of its content: verified, its record gone.
 * `content` is held exclusively. */
static int prepare(struct kvs_fs *fs, struct kvs_file *file)
{
    uint64_t max_reread = kvs_change_max_reread(fs);
    struct stat st;
    kvs_cleanup_fd int fd = kvs_file_open_to_read(fs, file);

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    uint64_t size = (uint64_t)st.st_size;
    bool was_clean = file->block.state == KVS_BLOCK_CLEAN;
    if (was_clean)
        kvs_digest_restart(&file->digest);
    enum kvs_block_need need = kvs_block_need_before_change(&file->block, false, size, max_reread);
    if (need == KVS_NEED_VERIFY) {
        int error = verify_base(fs, file, fd, &file->cause);
        if (error != 0)
            return error;
        need = kvs_block_verified_for_change(&file->block, file->cause.verdict);
    }
    if (need == KVS_NEED_REMOVE_RECORD) {
        int error = kvs_record_remove(fd);
        if (error != 0)
            return error;
    }
    kvs_block_change_begins(&file->block, false, size, max_reread);
    if (was_clean && file->block.state == KVS_BLOCK_UNTRACKED &&
        fs->options.checksums == KVS_CHECKSUMS_ON)
        kvs_stats_add(KVS_STAT_not_sealed_too_large, 1);
    return 0;
}

static bool is_ready(struct kvs_file *file)
{
    pthread_mutex_lock(&file->block_lock);
    bool ready = file->block.state != KVS_BLOCK_CLEAN &&
                 kvs_block_need_before_change(&file->block, false, 0, 0) == KVS_NEED_NOTHING;
    if (ready)
        kvs_block_change_begins(&file->block, false, 0, 0);
    pthread_mutex_unlock(&file->block_lock);
    return ready;
}

int kvs_change_begin(struct kvs_fs *fs, struct kvs_file *file, uint64_t offset, uint64_t len,
                     struct kvs_change *change_ret)
{
    pthread_rwlock_rdlock(&file->content);
    while (!is_ready(file)) {
        pthread_rwlock_unlock(&file->content);
        pthread_rwlock_wrlock(&file->content);
        int error = prepare(fs, file);
        pthread_rwlock_unlock(&file->content);
        if (error != 0)
            return error;
        pthread_rwlock_rdlock(&file->content);
    }
    change_ret->fs = fs;
    change_ret->file = file;
    change_ret->offset = offset;
    change_ret->len = len;
    atomic_fetch_add(&file->generation, 1);
    kvs_digest_begin(&file->digest, offset, len, &change_ret->write);
    return 0;
}

static void end(struct kvs_change *change, uint64_t len_done, uint32_t crc, bool summed)
{
    kvs_mirror_follow(change->fs, change->file, change->offset, change->len);
    kvs_digest_end(&change->file->digest, &change->write, len_done, crc, summed);
    pthread_rwlock_unlock(&change->file->content);
}

void kvs_change_done(struct kvs_change *change, uint64_t len_done, uint32_t crc)
{
    end(change, len_done, crc, true);
}

void kvs_change_unseen(struct kvs_change *change)
{
    end(change, 0, 0, false);
}

int kvs_change_expect_unseen(struct kvs_fs *fs, struct kvs_file *file)
{
    pthread_rwlock_wrlock(&file->content);
    int error = prepare(fs, file);
    if (error == 0) {
        atomic_store(&file->has_unseen_changes, true);
        atomic_fetch_add(&file->generation, 1);
    }
    pthread_rwlock_unlock(&file->content);
    return error;
}

static void taint(struct kvs_file *file, int error)
{
    pthread_mutex_lock(&file->block_lock);
    kvs_block_change_failed(&file->block, -error);
    pthread_mutex_unlock(&file->block_lock);
    kvs_digest_restart(&file->digest);
}

/* Refused by the kernel before anything was touched. */
static bool is_refusal(int error)
{
    switch (-error) {
    case EINVAL:
    case EFBIG:
    case EBADF:
    case EPERM:
    case EOPNOTSUPP:
        return true;
    default:
        return false;
    }
}

void kvs_change_failed(struct kvs_change *change, int error)
{
    struct kvs_file *file = change->file;

    kvs_mirror_follow(change->fs, file, change->offset, change->len);
    kvs_digest_end(&file->digest, &change->write, 0, 0, false);
    if (!is_refusal(error)) {
        kvs_stats_backing_error(KVS_BACKING_WRITE, error);
        taint(file, error);
    }
    pthread_rwlock_unlock(&file->content);
}

void kvs_change_lost(struct kvs_file *file, int error)
{
    kvs_stats_backing_error(KVS_BACKING_SYNC, error);
    pthread_rwlock_rdlock(&file->content);
    pthread_mutex_lock(&file->block_lock);
    bool is_owed = file->block.state != KVS_BLOCK_CLEAN;
    pthread_mutex_unlock(&file->block_lock);
    if (is_owed)
        taint(file, error);
    pthread_rwlock_unlock(&file->content);
}

/* To 0: whatever was wrong with the content goes with it, so nothing is verified (C5). */
static int truncate_to_nothing(struct kvs_fs *fs, struct kvs_file *file, int fd)
{
    bool was_tainted = file->block.state == KVS_BLOCK_TAINTED;

    if (kvs_block_need_before_change(&file->block, true, 0, kvs_change_max_reread(fs)) ==
        KVS_NEED_REMOVE_RECORD) {
        int error = kvs_record_remove(fd);
        if (error != 0)
            return error;
    }
    kvs_block_change_begins(&file->block, true, 0, kvs_change_max_reread(fs));
    atomic_fetch_add(&file->generation, 1);
    int error = ftruncate(fd, 0) < 0 ? -errno : 0;
    kvs_mirror_follow(fs, file, 0, 0);
    if (error != 0) {
        taint(file, error); /* the old content, never verified, must not be sealed */
        return error;
    }
    kvs_block_emptied(&file->block);
    kvs_digest_restart(&file->digest);
    kvs_digest_truncate(&file->digest, 0);
    /* A TAINTED block kept its record until here. */
    return was_tainted ? kvs_record_remove(fd) : 0;
}

static int truncate_to_size(struct kvs_fs *fs, struct kvs_file *file, int fd, uint64_t old_size,
                            uint64_t size)
{
    int error = prepare(fs, file);
    if (error != 0)
        return error;
    if (file->block.state == KVS_BLOCK_TAINTED && file->block.taint == KVS_TAINT_CORRUPT_BASE)
        return -EBADMSG;
    kvs_block_change_begins(&file->block, false, old_size, kvs_change_max_reread(fs));
    atomic_fetch_add(&file->generation, 1);
    error = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
    kvs_mirror_follow(fs, file, KVS_MIN(old_size, size), size - KVS_MIN(old_size, size));
    if (error != 0) {
        kvs_digest_forget_sums(&file->digest);
        return error;
    }
    if (size < old_size)
        kvs_digest_truncate(&file->digest, size);
    else
        kvs_digest_extend(&file->digest, old_size, size);
    return 0;
}

int kvs_change_truncate(struct kvs_fs *fs, struct kvs_file *file, int fd, uint64_t size, bool seal)
{
    struct stat st;
    bool is_corrupt = false;

    pthread_rwlock_wrlock(&file->content);
    bool was_clean = file->block.state == KVS_BLOCK_CLEAN;
    int error = fstat(fd, &st) < 0 ? -errno : 0;
    if (error == 0)
        error = size == 0 ? truncate_to_nothing(fs, file, fd)
                          : truncate_to_size(fs, file, fd, (uint64_t)st.st_size, size);
    if (error == -EBADMSG && was_clean && file->block.taint == KVS_TAINT_CORRUPT_BASE) {
        /* Nothing was changed: the block is what it was, and is refused like a read. */
        file->block = (struct kvs_block){.state = KVS_BLOCK_CLEAN};
        is_corrupt = true;
    }
    if (error == 0 && seal && atomic_load(&file->writers) == 0)
        error = kvs_seal_locked(fs, file, fd);
    struct kvs_verification cause = file->cause;
    pthread_rwlock_unlock(&file->content);
    if (!is_corrupt)
        return error;
    error = kvs_refuse(fs, file, &cause);
    return error == -EAGAIN ? -EIO : error;
}
