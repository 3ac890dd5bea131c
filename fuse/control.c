// SPDX-License-Identifier: Apache-2.0
// Serves the control directory and its files.
#include "fuse/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/corrupt.h"
#include "core/util.h"
#include "fuse/ids.h"
#include "fuse/metrics.h"
#include "fuse/ops.h"
#include "fuse/worker.h"

static const struct entry {
    const char *name;
    enum kvs_control_node node;
    int (*render)(struct kvs_fs *fs, char **text_ret, size_t *len_ret);
} files[] = {
    {"status", KVS_CONTROL_STATUS, kvs_status_render},
    {"metrics", KVS_CONTROL_METRICS, kvs_metrics_render},
};
#define FILES_COUNT (sizeof(files) / sizeof(files[0]))

bool kvs_is_control_name(fuse_ino_t parent, const char *name)
{
    return parent == FUSE_ROOT_ID && strcmp(name, KVS_STATE_DIR) == 0;
}

/* As clients see it. The inode number is none that the source may have: not the node's, which could
 * be that of the directory above, and would look like a loop. */
static struct stat attributes_of(const struct kvs_fs *fs, fuse_ino_t ino)
{
    bool is_dir = ino == KVS_CONTROL_DIR;

    return (struct stat){
        .st_ino = UINT64_MAX - (KVS_CONTROL_END - ino),
        .st_mode = is_dir ? S_IFDIR | 0555 : S_IFREG | 0444,
        .st_nlink = is_dir ? 2 : 1,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_blksize = KVS_MAX_REQUEST,
        .st_atim = fs->started,
        .st_mtim = fs->started,
        .st_ctim = fs->started,
    };
}

/* 0: none. */
static fuse_ino_t find(fuse_ino_t parent, const char *name)
{
    if (kvs_is_control_name(parent, name))
        return KVS_CONTROL_DIR;
    for (size_t i = 0; parent == KVS_CONTROL_DIR && i < FILES_COUNT; i++) {
        if (strcmp(files[i].name, name) == 0)
            return files[i].node;
    }
    return 0;
}

void kvs_control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    fuse_ino_t ino = find(parent, name);

    if (ino == 0) {
        kvs_reply_error(req, -ENOENT);
        return;
    }
    fuse_reply_entry(req, &(struct fuse_entry_param){
                              .ino = ino,
                              .attr = attributes_of(fs, ino),
                              .attr_timeout = fs->options.attr_timeout,
                              .entry_timeout = fs->options.entry_timeout,
                          });
}

void kvs_control_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const struct kvs_fs *fs = kvs_fs_of(req);
    struct stat st = attributes_of(fs, ino);

    fuse_reply_attr(req, &st, fs->options.attr_timeout);
}

/* ---- files: what was rendered stays in a memory file, fi->fh, as long as it is open ---- */

static int write_all(int fd, const char *text, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = write(fd, text + done, len - done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The descriptor, or -errno. */
static int render(struct kvs_fs *fs, fuse_ino_t ino)
{
    kvs_cleanup_free char *text = NULL;
    size_t len = 0;
    int error = files[ino - KVS_CONTROL_STATUS].render(fs, &text, &len);

    if (error != 0)
        return error;
    kvs_cleanup_fd int fd = memfd_create("kvseal-control", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    error = write_all(fd, text, len);
    return error != 0 ? error : kvs_steal_fd(&fd);
}

/* Root may open for writing what nobody may write. */
void kvs_control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct kvs_fs *fs = kvs_fs_of(req);
    bool is_read_only = (fi->flags & O_ACCMODE) == O_RDONLY && (fi->flags & O_TRUNC) == 0;
    int fd = is_read_only ? render(fs, ino) : -EPERM;

    if (fd < 0) {
        kvs_reply_error(req, fd);
        return;
    }
    fi->fh = kvs_id_of(fs, (void *)(intptr_t)fd);
    fi->direct_io = 1; /* its size is not known to the kernel */
    fi->noflush = 1;
    if (fuse_reply_open(req, fi) != 0) /* interrupted: no RELEASE will come */
        close(fd);
}

void kvs_control_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *fi)
{
    char *scratch = kvs_worker_scratch();
    bool is_lost = fi->fh == KVS_CONTROL_NO_HANDLE;
    kvs_cleanup_fd int own_fd = is_lost && offset == 0 ? render(kvs_fs_of(req), ino) : -1;
    int fd = is_lost ? own_fd : (int)fi->fh;
    ssize_t len = 0;

    if (fd >= 0)
        len = pread(fd, scratch, KVS_MIN(size, KVS_SCRATCH_SIZE), offset);
    if (len < 0)
        kvs_reply_error(req, -errno);
    else
        fuse_reply_buf(req, scratch, (size_t)len);
}

void kvs_control_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    kvs_reply_error(req, 0);
}

void kvs_control_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (fi->fh != KVS_CONTROL_NO_HANDLE)
        close((int)fi->fh);
    kvs_reply_error(req, 0);
}

void kvs_control_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    kvs_reply_error(req, 0);
}

/* SEEK_DATA and SEEK_HOLE; the kernel does the others itself. */
void kvs_control_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                       struct fuse_file_info *fi)
{
    off_t found = lseek((int)fi->fh, offset, whence);

    if (found < 0)
        kvs_reply_error(req, -errno);
    else
        fuse_reply_lseek(req, found);
}

/* ---- the directory ---- */

void kvs_control_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    fi->fh = 0;
    fuse_reply_open(req, fi);
}

/* Adds an entry at `offset`, if it is not before the one that was asked for. False: it is full. */
static bool add_entry(fuse_req_t req, char *reply, size_t size, size_t *len, off_t offset,
                      off_t wanted, const char *name, const struct stat *st)
{
    if (offset < wanted)
        return true;
    size_t needed = fuse_add_direntry(req, reply + *len, size - *len, name, st, offset + 1);
    if (needed > size - *len)
        return false;
    *len += needed;
    return true;
}

void kvs_control_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                         struct fuse_file_info *fi)
{
    const struct kvs_fs *fs = kvs_fs_of(req);
    char *reply = kvs_worker_scratch();
    struct stat st = attributes_of(fs, KVS_CONTROL_DIR);
    size_t len = 0;

    size = KVS_MIN(size, KVS_SCRATCH_SIZE);
    bool has_room = add_entry(req, reply, size, &len, 0, offset, ".", &st) &&
                    add_entry(req, reply, size, &len, 1, offset, "..", &st);
    for (size_t i = 0; has_room && i < FILES_COUNT; i++) {
        st = attributes_of(fs, files[i].node);
        has_room = add_entry(req, reply, size, &len, 2 + (off_t)i, offset, files[i].name, &st);
    }
    fuse_reply_buf(req, reply, len);
}

void kvs_control_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    kvs_reply_error(req, 0);
}

void kvs_control_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    kvs_reply_error(req, 0);
}

/* ---- of both ---- */

void kvs_control_statfs(fuse_req_t req, fuse_ino_t ino)
{
    kvs_op_statfs(req, FUSE_ROOT_ID);
}

void kvs_control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    kvs_reply_error(req, -ENODATA);
}

void kvs_control_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    if (size == 0)
        fuse_reply_xattr(req, 0);
    else
        fuse_reply_buf(req, NULL, 0);
}
