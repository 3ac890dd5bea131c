// SPDX-License-Identifier: Apache-2.0
// Open directories. An entry's offset is the one that the file system below gives, so seeking works
// as it does there.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/corrupt.h"
#include "core/util.h"
#include "fuse/control.h"
#include "fuse/ids.h"
#include "fuse/inode.h"
#include "fuse/ops.h"
#include "fuse/reach.h"
#include "fuse/worker.h"

#define ENTRIES_SIZE ((size_t)32 << 10)
#define MOST_REPLY   KVS_MAX_REQUEST

/* fi->fh of a directory. What was read and did not fit into a reply waits for the next one. */
struct open_dir {
    struct open_dir *previous, *next; /* in open_dirs */
    uint64_t number;                  /* that an earlier daemon gave it (ids.h); 0: its own */
    int fd;
    pthread_mutex_t lock; /* the rest, over getdents too: it holds up this handle's users alone */
    off_t next_offset;    /* of the entry at `start` */
    size_t start, end;    /* what is left in `entries` */
    _Alignas(struct dirent64) char entries[ENTRIES_SIZE];
};

/* All of them: the kernel keeps the only other pointer, and may end without a RELEASEDIR. */
static struct open_dir *open_dirs;
static pthread_mutex_t open_dirs_lock = PTHREAD_MUTEX_INITIALIZER;

static void enlist(struct open_dir *dir)
{
    pthread_mutex_lock(&open_dirs_lock);
    dir->previous = NULL;
    dir->next = open_dirs;
    if (open_dirs)
        open_dirs->previous = dir;
    open_dirs = dir;
    pthread_mutex_unlock(&open_dirs_lock);
}

static void delist(struct open_dir *dir)
{
    pthread_mutex_lock(&open_dirs_lock);
    if (dir->next)
        dir->next->previous = dir->previous;
    if (dir->previous)
        dir->previous->next = dir->next;
    else
        open_dirs = dir->next;
    pthread_mutex_unlock(&open_dirs_lock);
}

static struct open_dir *dir_of(const struct fuse_file_info *fi)
{
    return (struct open_dir *)(uintptr_t)fi->fh;
}

int kvs_dir_fd(const struct fuse_file_info *fi)
{
    return dir_of(fi)->fd;
}

static void close_dir(struct kvs_fs *fs, struct open_dir *dir)
{
    delist(dir);
    kvs_ids_remove(fs->ids, KVS_ID_HANDLE, dir->number);
    close(dir->fd);
    pthread_mutex_destroy(&dir->lock);
    free(dir);
}

/* Owns `fd`. NULL: no memory. */
static struct open_dir *make_dir(int fd)
{
    struct open_dir *dir = malloc(sizeof(*dir));
    if (!dir) {
        close(fd);
        return NULL;
    }
    dir->number = 0;
    dir->fd = fd;
    pthread_mutex_init(&dir->lock, NULL);
    dir->next_offset = 0;
    dir->start = dir->end = 0;
    enlist(dir);
    return dir;
}

void kvs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    int fd = kvs_node_open(fs, kvs_node_of(fs, ino), O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        kvs_reply_error(req, fd);
        return;
    }
    struct open_dir *dir = make_dir(fd);
    if (!dir) {
        kvs_reply_error(req, -ENOMEM);
        return;
    }
    fi->fh = kvs_id_of(fs, dir);
    if (fuse_reply_open(req, fi)) /* interrupted: no RELEASEDIR will come */
        close_dir(fs, dir);
}

int kvs_dirs_each(struct kvs_fs *fs, int (*take)(void *context, uint64_t number, int fd),
                  void *context)
{
    int error = 0;
    for (const struct open_dir *dir = open_dirs; dir && !error; dir = dir->next)
        error = take(context, dir->number ? dir->number : kvs_id_of(fs, dir), dir->fd);
    return error;
}

int kvs_dirs_restore(struct kvs_fs *fs, uint64_t number, int fd)
{
    struct open_dir *dir = make_dir(fd);
    if (!dir)
        return -ENOMEM;
    dir->next_offset = -1; /* wherever the last daemon was in it */
    int error = kvs_ids_add(fs->ids, KVS_ID_HANDLE, number, dir);
    if (error)
        close_dir(fs, dir);
    else
        dir->number = number;
    return error;
}

void kvs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    close_dir(kvs_fs_of(req), dir_of(fi));
    kvs_reply_error(req, 0);
}

/* Makes the entry at `offset` the next one. From the start the directory is read anew (rewinddir).
 */
static int seek_to(struct open_dir *dir, off_t offset)
{
    if (offset != 0 && offset == dir->next_offset)
        return 0;
    if (lseek(dir->fd, offset, SEEK_SET) < 0)
        return -errno;
    dir->next_offset = offset;
    dir->start = dir->end = 0;
    return 0;
}

/* 1: there is an entry at `start`; 0: the end of the directory; -errno. */
static int load_entries(struct open_dir *dir)
{
    if (dir->start < dir->end)
        return 1;
    ssize_t len = getdents64(dir->fd, dir->entries, sizeof(dir->entries));
    if (len < 0)
        return -errno;
    dir->start = 0;
    dir->end = (size_t)len;
    return len > 0;
}

/* What a kill of the daemon left behind goes when the directory is listed: nobody else would ever
 * find it. The worker's memory is shared with the reply. */
static bool is_swept(fuse_req_t req, const struct open_dir *dir, const char *name)
{
    const struct kvs_fs *fs = kvs_fs_of(req);
    struct kvs_reading reading = {.memory = (char *)kvs_worker_scratch() + MOST_REPLY,
                                  .capacity = KVS_SCRATCH_SIZE - MOST_REPLY};

    return kvs_corrupt_is_aside(name) && !fs->options.read_only &&
           kvs_corrupt_sweep(fs->source_fd, dir->fd, name, &reading) == 0;
}

/* Fills `reply` with whole entries. An error after the first entry waits for the next call. */
static int fill_reply(fuse_req_t req, fuse_ino_t ino, struct open_dir *dir, off_t offset,
                      char *reply, size_t size, size_t *len_ret)
{
    size_t len = 0;
    int more = seek_to(dir, offset);
    if (more == 0)
        more = load_entries(dir);
    while (more > 0) {
        const struct dirent64 *entry = (const void *)(dir->entries + dir->start);
        if (!kvs_is_control_name(ino, entry->d_name) && !is_swept(req, dir, entry->d_name)) {
            struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)DTTOIF(entry->d_type)};
            size_t needed = fuse_add_direntry(req, reply + len, size - len, entry->d_name, &st,
                                              entry->d_off);
            if (needed > size - len)
                break;
            len += needed;
        }
        dir->start += entry->d_reclen;
        dir->next_offset = entry->d_off;
        more = load_entries(dir);
    }
    *len_ret = len;
    return more < 0 && len == 0 ? more : 0;
}

void kvs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    struct open_dir *dir = dir_of(fi);
    char *reply = kvs_worker_scratch();
    size_t len = 0;
    pthread_mutex_lock(&dir->lock);
    int error = fill_reply(req, ino, dir, offset, reply, KVS_MIN(size, MOST_REPLY), &len);
    pthread_mutex_unlock(&dir->lock);
    if (error)
        kvs_reply_error(req, error);
    else
        fuse_reply_buf(req, reply, len);
}

void kvs_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    int fd = kvs_dir_fd(fi);
    kvs_reply_error(req, (datasync ? fdatasync(fd) : fsync(fd)) ? -errno : 0);
}
