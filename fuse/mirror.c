// SPDX-License-Identifier: Apache-2.0
// Copies what changed from the file to the memory that the kernel reads instead.
#include "fuse/mirror.h"

#include <string.h>
#include <sys/stat.h>

#include "core/util.h"
#include "core/verify.h"
#include "fuse/worker.h"

static void set_size(struct kvs_buffer *buffer, uint64_t size)
{
    if (ftruncate(buffer->fd, (off_t)size) == 0)
        buffer->lent_size = size;
}

static void end_at(struct kvs_buffer *buffer, uint64_t offset)
{
    buffer->has_ended = true;
    if (offset < buffer->lent_size)
        set_size(buffer, offset);
}

/* Where it grows the bytes come first and the size after them, as write(2) does it: nobody sees
 * zeros in between. */
static void put(struct kvs_buffer *buffer, uint64_t offset, const char *data, size_t len)
{
    size_t inside = (size_t)KVS_MIN((uint64_t)len, buffer->lent_size - offset);

    memcpy((char *)buffer->memory + offset, data, inside);
    while (inside < len && !buffer->has_ended) {
        ssize_t n = pwrite(buffer->fd, data + inside, len - inside, (off_t)buffer->lent_size);
        if (n > 0) {
            inside += (size_t)n;
            buffer->lent_size += (uint64_t)n;
        } else if (n == 0 || errno != EINTR) {
            buffer->has_ended = true;
        }
    }
}

/* Copies [offset, end), which begins inside the memory or at its end. */
static void copy(struct kvs_buffer *buffer, int fd, uint64_t offset, uint64_t end)
{
    char *scratch = kvs_worker_scratch();

    while (offset < end) {
        size_t len = (size_t)KVS_MIN(end - offset, (uint64_t)KVS_PIECE_SIZE), got = 0;
        if (kvs_read_range(fd, scratch, offset, len, &got) < 0) {
            end_at(buffer, offset);
            return;
        }
        put(buffer, offset, scratch, got);
        /* Cut meanwhile, which is followed by itself; or it has ended. Mapped memory past its end
         * is not to be touched. */
        if (got < len || buffer->lent_size < offset + len)
            return;
        offset += len;
    }
}

/* file->mirror_lock is held. */
static void follow(struct kvs_fs *fs, struct kvs_file *file, struct kvs_buffer *buffer,
                   uint64_t offset, uint64_t len)
{
    struct stat st;
    kvs_cleanup_fd int fd = kvs_file_open_to_read(fs, file);

    if (fd < 0 || fstat(fd, &st) < 0) {
        end_at(buffer, offset);
        return;
    }
    uint64_t size = (uint64_t)st.st_size;
    if (size < buffer->lent_size)
        set_size(buffer, size);
    uint64_t end = KVS_MIN(offset + len, size);
    if (end > buffer->capacity) {
        end = buffer->capacity;
        buffer->has_ended = true;
    }
    if (buffer->has_ended)
        end = KVS_MIN(end, buffer->lent_size);
    copy(buffer, fd, KVS_MIN(offset, buffer->lent_size), end);
}

void kvs_mirror_follow(struct kvs_fs *fs, struct kvs_file *file, uint64_t offset, uint64_t len)
{
    if (!atomic_load(&file->is_lent))
        return;
    pthread_mutex_lock(&file->mode_lock);
    struct kvs_buffer *buffer = file->mode.lent;
    if (buffer != NULL)
        kvs_buffer_share(fs->buffers, buffer);
    pthread_mutex_unlock(&file->mode_lock);
    if (buffer == NULL)
        return;
    pthread_mutex_lock(&file->mirror_lock);
    follow(fs, file, buffer, offset, len);
    pthread_mutex_unlock(&file->mirror_lock);
    kvs_buffer_unpin(fs->buffers, buffer);
}
