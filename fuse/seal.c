// SPDX-License-Identifier: Apache-2.0
// Seals blocks at close, publish, truncate, release and shut-down; and judges the client's own
// records.
#include "fuse/seal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/seal_beside.h"
#include "core/stats.h"
#include "core/util.h"
#include "fuse/caller.h"
#include "fuse/change.h"
#include "fuse/names.h"
#include "fuse/reach.h"
#include "fuse/refuse.h"
#include "fuse/worker.h"

/* How long a release waits for the last mapping that may write to go. */
#define UNSEEN_PATIENCE_MS 1000
#define UNSEEN_POLL_MS     5

static uint64_t unknown_len(struct kvs_file *file, uint64_t size)
{
    uint64_t total = 0, offset = 0, len = 0;

    for (uint64_t from = 0; kvs_digest_next_gap(&file->digest, from, size, &offset, &len);
         from = offset + len)
        total += len;
    return total;
}

/* Reads back what did not arrive in full (C6). */
static int read_gaps(struct kvs_fs *fs, struct kvs_file *file, uint64_t size)
{
    kvs_cleanup_fd int fd = -1;
    uint64_t offset = 0, len = 0;

    while (kvs_digest_next_gap(&file->digest, 0, size, &offset, &len)) {
        uint64_t changes = kvs_digest_changes(&file->digest);
        uint32_t crc = 0;
        if (fd < 0)
            fd = kvs_file_open_to_read(fs, file);
        if (fd < 0)
            return fd;
        int error = kvs_sum_agreed(fd, offset, len, kvs_worker_scratch(), KVS_SCRATCH_SIZE, &crc);
        if (error != 0)
            return error;
        kvs_digest_learn(&file->digest, offset, len, crc, changes);
        kvs_stats_add(KVS_STAT_read_back_bytes, len);
        uint64_t next_offset = 0, next_len = 0;
        if (kvs_digest_next_gap(&file->digest, 0, size, &next_offset, &next_len) &&
            next_offset == offset)
            return -ENOMEM; /* what was learned could not be kept */
    }
    return 0;
}

/* The sum of the present content, in the end also when the file is not as long as was seen. */
static int sum_content(struct kvs_fs *fs, struct kvs_file *file, uint64_t size, uint32_t *crc_ret)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        int error = read_gaps(fs, file, size);
        if (error != 0)
            return error;
        if (kvs_digest_sum(&file->digest, size, crc_ret))
            return 0;
        kvs_digest_forget_sums(&file->digest); /* it was cut underneath: what was seen is no more */
    }
    return -EIO;
}

static int seal_content(struct kvs_fs *fs, struct kvs_file *file, int fd, uint64_t size)
{
    uint32_t crc = 0;
    int error = sum_content(fs, file, size, &crc);

    if (error != 0)
        return error;
    if (!kvs_block_summed(&file->block, crc)) {
        kvs_digest_restart(&file->digest);
        kvs_file_log(
            fs, file, KVS_LOG_CLIENT_SUM, LOG_WARNING,
            "the client's own CRC32C is not that of the file: bytes changed on their way; the "
            "file is kept but not published");
        return -file->block.error;
    }
    error = kvs_record_write(fd, crc);
    if (error != 0)
        return error;
    if (atomic_load(&file->has_unseen_changes))
        kvs_block_sealed_for_now(&file->block);
    else
        kvs_block_sealed(&file->block);
    return 0;
}

/* What is owed is sealed, as far as it can be. *step_ret is what it took, *unknown_ret how many
 * bytes did not arrive through the mount. */
static int seal(struct kvs_fs *fs, struct kvs_file *file, int fd, enum kvs_seal_step *step_ret,
                uint64_t *unknown_ret)
{
    kvs_cleanup_fd int own_fd = -1;
    struct stat st;
    bool is_untracked = false;

    if (fd < 0) {
        own_fd = kvs_file_open_to_read(fs, file);
        fd = own_fd;
    }
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (atomic_load(&file->has_unseen_changes))
        kvs_digest_forget_sums(&file->digest);
    uint64_t size = (uint64_t)st.st_size;
    *unknown_ret = unknown_len(file, size);
    *step_ret = kvs_block_seal_begins(&file->block, kvs_digest_is_written(&file->digest, size),
                                      *unknown_ret == 0, *unknown_ret, kvs_change_max_reread(fs),
                                      &is_untracked);
    if (is_untracked && fs->options.checksums == KVS_CHECKSUMS_ON) {
        kvs_stats_add(KVS_STAT_not_sealed_too_large, 1);
        kvs_file_log(fs, file, KVS_LOG_UNTRACKED, LOG_WARNING,
                     "changed in place and larger than max_reread: unsealed");
    }
    int error = 0;
    if (is_untracked && file->block.may_have_record && !file->block.has_client_sum)
        error = kvs_record_remove(fd); /* of content that was tainted, or of a seal half done */
    if (*step_ret == KVS_SEAL_SUM)
        error = seal_content(fs, file, fd, size);
    else if (*step_ret == KVS_SEAL_REFUSE)
        error = -file->block.error;
    return error;
}

/* One attempt, by how it ended. A refusal that nobody hears was counted when somebody did. */
static void count_store(const struct kvs_block *block, enum kvs_seal_step step, bool is_heard,
                        uint64_t unknown, int error)
{
    if (step == KVS_SEAL_REFUSE) {
        kvs_stats_add(KVS_STAT_stores_refused, is_heard);
    } else if (error != 0 && block->state == KVS_BLOCK_TAINTED &&
               block->taint == KVS_TAINT_CLIENT_SUM) {
        kvs_stats_add(KVS_STAT_stores_client_sum, 1);
    } else if (error != 0) {
        kvs_stats_add(KVS_STAT_stores_failed, 1);
        kvs_stats_backing_error(KVS_BACKING_SEAL, error);
    } else if (step == KVS_SEAL_SUM) {
        kvs_stats_add(unknown == 0 ? KVS_STAT_stores_arrived : KVS_STAT_stores_read_back, 1);
    }
}

static int seal_counted(struct kvs_fs *fs, struct kvs_file *file, int fd, bool is_heard)
{
    if (file->block.state == KVS_BLOCK_CLEAN)
        return 0;
    enum kvs_seal_step step = KVS_SEAL_NOTHING;
    uint64_t unknown = 0, since = kvs_clock_ns();
    int error = seal(fs, file, fd, &step, &unknown);
    count_store(&file->block, step, is_heard, unknown, error);
    if (step == KVS_SEAL_SUM)
        kvs_stats_time(KVS_TIMING_SEAL, since);
    return error;
}

int kvs_seal_locked(struct kvs_fs *fs, struct kvs_file *file, int fd)
{
    return seal_counted(fs, file, fd, true);
}

static bool has_corrupt_base(const struct kvs_block *block)
{
    return block->state == KVS_BLOCK_TAINTED && block->taint == KVS_TAINT_CORRUPT_BASE;
}

int kvs_seal_at_flush(struct kvs_fs *fs, struct kvs_handle *handle, uint64_t owner)
{
    struct kvs_file *file = handle->file;

    pthread_rwlock_wrlock(&file->content);
    kvs_handle_flushes(handle, owner); /* under the lock: one of two that close is the last */
    bool is_early = has_corrupt_base(&file->block) && kvs_file_is_being_written(fs, file);
    int error = seal_counted(fs, file, handle->fd, !is_early);
    bool is_corrupt = error != 0 && has_corrupt_base(&file->block);
    struct kvs_verification cause = file->cause;
    pthread_rwlock_unlock(&file->content);
    if (!is_corrupt)
        return error;
    if (is_early)
        return 0;
    kvs_refuse(fs, file, &cause);
    return error;
}

int kvs_seal_at_publish(struct kvs_fs *fs, struct kvs_node *node)
{
    struct kvs_file *file = kvs_file_find(fs, node);

    if (file == NULL)
        return 0;
    pthread_rwlock_wrlock(&file->content);
    int error = kvs_seal_locked(fs, file, -1);
    pthread_rwlock_unlock(&file->content);
    kvs_file_put(fs, file);
    return error;
}

/* Nobody waits for the answer. A block that stays tainted was refused at its close already. */
static void seal_unheard(struct kvs_fs *fs, struct kvs_file *file, int fd)
{
    int error = 0;

    pthread_rwlock_wrlock(&file->content);
    if (atomic_load(&file->writers) == 0 && !atomic_load(&file->has_unseen_changes))
        error = seal_counted(fs, file, fd, false);
    bool is_news = error != 0 && file->block.state == KVS_BLOCK_MODIFIED;
    pthread_rwlock_unlock(&file->content);
    if (is_news) {
        char what[128];
        snprintf(what, sizeof(what), "could not be sealed: %s", strerror(-error));
        kvs_file_log(fs, file, KVS_LOG_SEAL_FAILED, LOG_WARNING, what);
    }
}

void kvs_seal_at_release(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file *file = handle->file;

    if (atomic_fetch_sub(&file->writers, 1) == 1 && !atomic_load(&file->has_unseen_changes))
        seal_unheard(fs, file, handle->fd);
}

/* A read lease is granted where nobody has the file open for writing, be it by a mapping. `fd` is
 * read-only. An owner may have one without CAP_LEASE. */
static bool is_open_for_writing(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return true;
    int own = setfsuid(st.st_uid);
    bool is_granted = fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
    if (is_granted)
        fcntl(fd, F_SETLEASE, F_UNLCK);
    setfsuid((uid_t)own);
    if ((uid_t)own != st.st_uid)
        kvs_caller_lower_fsetid(); /* the way back to root raised it */
    return !is_granted;
}

/* The kernel closes its own descriptor a little after it sent RELEASE. */
static void wait_for_writers(int fd)
{
    const struct timespec moment = {.tv_nsec = UNSEEN_POLL_MS * 1000000L};

    for (int ms = 0; ms < UNSEEN_PATIENCE_MS && is_open_for_writing(fd); ms += UNSEEN_POLL_MS)
        nanosleep(&moment, NULL);
}

void kvs_seal_unseen(struct kvs_fs *fs, struct kvs_file *file, bool be_patient)
{
    if (!atomic_load(&file->has_unseen_changes) || atomic_load(&file->writers) > 0)
        return;
    kvs_cleanup_fd int fd = kvs_file_open_to_read(fs, file);
    if (fd < 0)
        return;
    if (be_patient)
        wait_for_writers(fd);
    pthread_rwlock_wrlock(&file->content);
    bool is_over = atomic_load(&file->has_unseen_changes) && atomic_load(&file->writers) == 0;
    if (is_over && is_open_for_writing(fd)) {
        is_over = false;
        if (file->block.may_have_record && kvs_record_remove(fd) == 0)
            file->block.may_have_record = false;
    }
    if (is_over) {
        kvs_digest_forget_sums(&file->digest);
        atomic_store(&file->has_unseen_changes, false);
    }
    pthread_rwlock_unlock(&file->content);
    if (is_over)
        seal_unheard(fs, file, fd);
}

void kvs_seal_all(struct kvs_fs *fs)
{
    pthread_mutex_lock(kvs_table_lock(fs->table));
    struct kvs_file *file = fs->files;
    if (file != NULL)
        file->refs++;
    pthread_mutex_unlock(kvs_table_lock(fs->table));

    while (file != NULL) {
        kvs_seal_unseen(fs, file, false);
        seal_unheard(fs, file, -1);
        pthread_mutex_lock(kvs_table_lock(fs->table));
        struct kvs_file *next = file->following;
        if (next != NULL)
            next->refs++;
        pthread_mutex_unlock(kvs_table_lock(fs->table));
        kvs_file_put(fs, file);
        file = next;
    }
}

int kvs_seal_unsealed(struct kvs_fs *fs, struct kvs_file *file, int fd)
{
    uint32_t crc = 0;
    int error = -EEXIST;

    pthread_rwlock_wrlock(&file->content);
    if (file->block.state == KVS_BLOCK_CLEAN && atomic_load(&file->writers) == 0) {
        error = kvs_seal_beside(fd, kvs_worker_scratch(), KVS_SCRATCH_SIZE, &crc);
        if (error == 0)
            kvs_stats_add(KVS_STAT_sealed_on_load, 1);
        else if (error != -EBUSY && error != -EEXIST)
            kvs_stats_backing_error(KVS_BACKING_SEAL, error);
    }
    pthread_rwlock_unlock(&file->content);
    return error == -EEXIST ? 0 : error;
}

/* The client's own record for a block that is not owed a seal: only what is true may be set (C8).
 */
static int check_against_content(int fd, uint32_t sum)
{
    uint32_t crc = 0;
    int error = kvs_sum_whole(fd, kvs_worker_scratch(), KVS_SCRATCH_SIZE, &crc);

    return error != 0 ? error : crc == sum ? 0 : -EBADMSG;
}

static int set_client_record(struct kvs_file *file, int fd, const void *value, size_t size,
                             int flags)
{
    struct kvs_record record = kvs_record_decode(value, size);
    int error = 0;

    if (record.kind != KVS_RECORD_SUM)
        return -EBADMSG;
    if (file->block.state == KVS_BLOCK_TAINTED)
        return -file->block.error;
    if (file->block.state == KVS_BLOCK_CLEAN)
        error = check_against_content(fd, record.crc);
    if (error == 0 && fsetxattr(fd, KVS_RECORD_NAME, value, size, flags) < 0)
        error = -errno;
    if (error == 0)
        kvs_block_client_record(&file->block, true, record.crc);
    return error;
}

static int remove_client_record(struct kvs_file *file, int fd)
{
    if (fremovexattr(fd, KVS_RECORD_NAME) < 0)
        return -errno;
    kvs_block_client_record(&file->block, false, 0);
    return 0;
}

/* What both have in common: the file, a descriptor, the content for oneself. */
static int with_content(struct kvs_fs *fs, struct kvs_node *node, const void *value, size_t size,
                        int flags)
{
    struct kvs_file *file = NULL;
    int error = kvs_file_get(fs, node, &file);

    if (error != 0)
        return error;
    pthread_rwlock_wrlock(&file->content);
    {
        kvs_cleanup_fd int fd = kvs_file_open_to_read(fs, file);
        if (fd < 0)
            error = fd;
        else if (value != NULL)
            error = set_client_record(file, fd, value, size, flags);
        else
            error = remove_client_record(file, fd);
    }
    pthread_rwlock_unlock(&file->content);
    kvs_file_put(fs, file);
    return error;
}

int kvs_seal_client_set(struct kvs_fs *fs, struct kvs_node *node, const void *value, size_t size,
                        int flags)
{
    return with_content(fs, node, value != NULL ? value : "", size, flags);
}

int kvs_seal_client_remove(struct kvs_fs *fs, struct kvs_node *node)
{
    return with_content(fs, node, NULL, 0, 0);
}
