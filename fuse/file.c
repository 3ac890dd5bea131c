// SPDX-License-Identifier: Apache-2.0
// Files and handles: who has an inode's content open, and how long what is known of it is kept.
#include "fuse/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/util.h"
#include "fuse/ids.h"
#include "fuse/names.h"
#include "fuse/pinned.h"
#include "fuse/reach.h"

static void lock_table(struct kvs_fs *fs)
{
    pthread_mutex_lock(kvs_table_lock(fs->table));
}

static void unlock_table(struct kvs_fs *fs)
{
    pthread_mutex_unlock(kvs_table_lock(fs->table));
}

static struct kvs_file *new_file(struct kvs_node *node)
{
    struct kvs_file *file = calloc(1, sizeof(*file));
    if (file == NULL)
        return NULL;

    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&file->content, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&file->block_lock, NULL);
    pthread_mutex_init(&file->append_lock, NULL);
    pthread_cond_init(&file->appended, NULL);
    kvs_join_init(&file->join);
    pthread_mutex_init(&file->mode_lock, NULL);
    pthread_cond_init(&file->mode_ended, NULL);
    pthread_mutex_init(&file->mirror_lock, NULL);
    kvs_digest_init(&file->digest);
    file->node = node;
    return file;
}

static void free_file(struct kvs_file *file)
{
    kvs_digest_destroy(&file->digest);
    kvs_join_destroy(&file->join);
    pthread_mutex_destroy(&file->mirror_lock);
    pthread_cond_destroy(&file->mode_ended);
    pthread_mutex_destroy(&file->mode_lock);
    pthread_cond_destroy(&file->appended);
    pthread_mutex_destroy(&file->append_lock);
    pthread_mutex_destroy(&file->block_lock);
    pthread_rwlock_destroy(&file->content);
    free(file);
}

/* The table's lock is held. */
static void link_file(struct kvs_fs *fs, struct kvs_file *file)
{
    file->node->file = file;
    file->following = fs->files;
    if (fs->files != NULL)
        fs->files->previous = file;
    fs->files = file;
}

static void unlink_file(struct kvs_fs *fs, struct kvs_file *file)
{
    file->node->file = NULL;
    if (file->following != NULL)
        file->following->previous = file->previous;
    if (file->previous != NULL)
        file->previous->following = file->following;
    else
        fs->files = file->following;
}

int kvs_file_get(struct kvs_fs *fs, struct kvs_node *node, struct kvs_file **file_ret)
{
    struct kvs_file *file = kvs_file_find(fs, node);

    if (file == NULL) {
        struct kvs_file *fresh = new_file(node);
        if (fresh == NULL)
            return -ENOMEM;
        kvs_node_ref(fs, node);
        lock_table(fs);
        file = node->file;
        if (file == NULL) {
            link_file(fs, fresh);
            file = fresh;
        }
        file->refs++;
        unlock_table(fs);
        if (file != fresh) {
            kvs_node_unref(fs, node);
            free_file(fresh);
        }
    }
    *file_ret = file;
    return 0;
}

struct kvs_file *kvs_file_find(struct kvs_fs *fs, struct kvs_node *node)
{
    lock_table(fs);
    struct kvs_file *file = node->file;
    if (file != NULL)
        file->refs++;
    unlock_table(fs);
    return file;
}

static bool owes_seal(const struct kvs_file *file)
{
    return !file->is_forgiven &&
           (file->block.state == KVS_BLOCK_MODIFIED || file->block.state == KVS_BLOCK_TAINTED);
}

void kvs_file_put(struct kvs_fs *fs, struct kvs_file *file)
{
    struct kvs_node *node = file->node;

    lock_table(fs);
    bool is_last = --file->refs == 0 && !owes_seal(file);
    if (is_last)
        unlink_file(fs, file);
    unlock_table(fs);
    if (is_last) {
        free_file(file);
        kvs_node_unref(fs, node);
    }
}

/* Whether the inode has no name on disk any more, known to us or not. */
static bool has_no_name(struct kvs_fs *fs, struct kvs_node *node)
{
    kvs_cleanup_fd int fd = kvs_node_open(fs, node, O_PATH);
    struct stat st;

    if (fd < 0)
        return fd == -ESTALE || fd == -ENOENT;
    return fstat(fd, &st) < 0 ? errno == ESTALE : st.st_nlink == 0;
}

void kvs_file_forgive(struct kvs_fs *fs, struct kvs_node *node)
{
    struct kvs_file *file = kvs_file_find(fs, node);

    kvs_pins_forget(fs->pins, node->dev, node->ino);
    if (file == NULL && node->handle_len > 0) /* nothing is owed, and it is told from others */
        return;
    if (has_no_name(fs, node)) {
        kvs_node_end(fs, node);
        lock_table(fs);
        if (file != NULL)
            file->is_forgiven = true;
        unlock_table(fs);
    }
    if (file != NULL)
        kvs_file_put(fs, file);
}

struct kvs_handle *kvs_handle_create(struct kvs_fs *fs, struct kvs_file *file, int fd, int flags)
{
    struct kvs_handle *handle = calloc(1, sizeof(*handle));
    int mode = flags & O_ACCMODE;

    if (handle == NULL) {
        close(fd);
        return NULL;
    }
    handle->file = file;
    handle->fd = fd;
    atomic_init(&handle->plain_fd, -1);
    handle->can_read = mode != O_WRONLY;
    handle->can_write = mode != O_RDONLY;
    handle->is_direct = (flags & O_DIRECT) != 0;
    handle->is_parallel = mode == O_WRONLY && (flags & O_DIRECT) != 0 && (flags & O_APPEND) == 0;
    handle->is_noatime = (flags & O_NOATIME) != 0;
    if (handle->can_write)
        atomic_fetch_add(&file->writers, 1);

    lock_table(fs);
    file->refs++;
    handle->next = file->handles;
    if (file->handles != NULL)
        file->handles->previous = handle;
    file->handles = handle;
    unlock_table(fs);
    kvs_stats_add(KVS_STAT_files_opened, 1);
    return handle;
}

void kvs_handle_destroy(struct kvs_fs *fs, struct kvs_handle *handle)
{
    struct kvs_file *file = handle->file;

    lock_table(fs);
    if (handle->next != NULL)
        handle->next->previous = handle->previous;
    if (handle->previous != NULL)
        handle->previous->next = handle->next;
    else
        file->handles = handle->next;
    unlock_table(fs);

    int plain_fd = atomic_load(&handle->plain_fd);
    if (plain_fd >= 0)
        close(plain_fd);
    close(handle->fd);
    kvs_ids_remove(fs->ids, KVS_ID_HANDLE, handle->number);
    free(handle);
    kvs_stats_add(KVS_STAT_files_closed, 1);
    kvs_file_put(fs, file);
}

void kvs_handle_writes(struct kvs_handle *handle, uint64_t owner)
{
    if (atomic_load(&handle->writer) != owner)
        atomic_store(&handle->writer, owner);
    if (!atomic_load(&handle->is_writing))
        atomic_store(&handle->is_writing, true);
}

void kvs_handle_flushes(struct kvs_handle *handle, uint64_t owner)
{
    uint64_t writer = atomic_load(&handle->writer);

    if (writer == 0 || writer == owner)
        atomic_store(&handle->is_writing, false);
}

bool kvs_file_is_being_written(struct kvs_fs *fs, struct kvs_file *file)
{
    bool is_written = false;

    lock_table(fs);
    for (struct kvs_handle *handle = file->handles; handle && !is_written; handle = handle->next)
        is_written = atomic_load(&handle->is_writing);
    unlock_table(fs);
    return is_written;
}

int kvs_handle_plain_fd(struct kvs_fs *fs, struct kvs_handle *handle)
{
    int known = atomic_load(&handle->plain_fd);
    if (known >= 0)
        return known;

    int mode = handle->can_write ? (handle->can_read ? O_RDWR : O_WRONLY) : O_RDONLY;
    int fd = kvs_node_open(fs, handle->file->node, mode);
    if (fd < 0)
        return fd;
    known = -1;
    if (atomic_compare_exchange_strong(&handle->plain_fd, &known, fd))
        return fd;
    close(fd);
    return known;
}

void kvs_file_log(struct kvs_fs *fs, struct kvs_file *file, enum kvs_log_kind kind, int priority,
                  const char *what)
{
    kvs_cleanup_free char *path = kvs_names_path(fs, file->node);
    char escaped[1024];

    kvs_log(kind, priority, "%s: %s",
            kvs_log_escape(path != NULL ? path : "?", escaped, sizeof(escaped)), what);
}

int kvs_file_open_to_read(struct kvs_fs *fs, struct kvs_file *file)
{
    return kvs_node_open(fs, file->node, O_RDONLY | O_NOATIME);
}
