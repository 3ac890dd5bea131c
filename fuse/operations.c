// SPDX-License-Identifier: Apache-2.0
// The table of operations, and what is agreed with the kernel at the start.
//
// Each request goes to the operations on the source or to those on the control directory, by the
// node that it is about: no operation on the source ever meets a control node, which is not in the
// table of nodes.
#include <errno.h>

#include "fuse/control.h"
#include "fuse/ops.h"
#include "fuse/serve_passthrough.h"
#include "fuse/worker.h"

static void set_if_capable(struct fuse_conn_info *conn, uint64_t capability)
{
    fuse_set_feature_flag(conn, capability); /* does nothing where the kernel lacks it */
}

static void init(void *userdata, struct fuse_conn_info *conn)
{
    conn->max_write = KVS_MAX_REQUEST;
    /* RELEASE, readahead and async direct I/O count as background: few of them that hang must not
     * hold up the rest (C24). */
    conn->max_background = 1024;
    conn->congestion_threshold = 768;

    /* With the writeback cache the bytes would arrive after the publish (C1, C2); splice would keep
     * them out of user space, where they are summed. */
    fuse_unset_feature_flag(conn, FUSE_CAP_WRITEBACK_CACHE);
    fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_READ);
    fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_WRITE);
    fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_MOVE);
    /* Entries of a listing would be look-ups of every block, with two system calls each. */
    fuse_unset_feature_flag(conn, FUSE_CAP_READDIRPLUS);

    set_if_capable(conn, FUSE_CAP_ASYNC_READ);
    set_if_capable(conn, FUSE_CAP_ASYNC_DIO);
    set_if_capable(conn, FUSE_CAP_PARALLEL_DIROPS);
    set_if_capable(conn, FUSE_CAP_ATOMIC_O_TRUNC); /* C5: known before the content goes */
    set_if_capable(conn, FUSE_CAP_POSIX_ACL);
    set_if_capable(conn, FUSE_CAP_DONT_MASK); /* default ACLs replace the umask (C19) */
    /* Saves a getxattr of security.capability at each write. */
    set_if_capable(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
    set_if_capable(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
    /* A mapping sees what others changed in the source. */
    set_if_capable(conn, FUSE_CAP_AUTO_INVAL_DATA);
    kvs_passthrough_negotiate(userdata, conn);
}

typedef struct fuse_file_info *info_ptr;

/* What both kinds of nodes have. */
#define BY_NODE(op, parameters, arguments)                                                         \
    static void dispatch_##op parameters                                                           \
    {                                                                                              \
        if (kvs_is_control(ino))                                                                   \
            kvs_control_##op arguments;                                                            \
        else                                                                                       \
            kvs_op_##op arguments;                                                                 \
    }

/* What would change a control node, as `is_control` says. */
#define REFUSED(op, is_control, parameters, arguments)                                             \
    static void dispatch_##op parameters                                                           \
    {                                                                                              \
        if (is_control)                                                                            \
            kvs_reply_error(req, -EPERM);                                                          \
        else                                                                                       \
            kvs_op_##op arguments;                                                                 \
    }
#define IS_NODE         kvs_is_control(ino)
#define IS_NAME(dir, n) (kvs_is_control(dir) || kvs_is_control_name(dir, n))

BY_NODE(getattr, (fuse_req_t req, fuse_ino_t ino, info_ptr fi), (req, ino, fi))
BY_NODE(open, (fuse_req_t req, fuse_ino_t ino, info_ptr fi), (req, ino, fi))
BY_NODE(read, (fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, info_ptr fi),
        (req, ino, size, offset, fi))
BY_NODE(flush, (fuse_req_t req, fuse_ino_t ino, info_ptr fi), (req, ino, fi))
BY_NODE(release, (fuse_req_t req, fuse_ino_t ino, info_ptr fi), (req, ino, fi))
BY_NODE(fsync, (fuse_req_t req, fuse_ino_t ino, int datasync, info_ptr fi),
        (req, ino, datasync, fi))
BY_NODE(lseek, (fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, info_ptr fi),
        (req, ino, offset, whence, fi))
BY_NODE(opendir, (fuse_req_t req, fuse_ino_t ino, info_ptr fi), (req, ino, fi))
BY_NODE(readdir, (fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, info_ptr fi),
        (req, ino, size, offset, fi))
BY_NODE(releasedir, (fuse_req_t req, fuse_ino_t ino, info_ptr fi), (req, ino, fi))
BY_NODE(fsyncdir, (fuse_req_t req, fuse_ino_t ino, int datasync, info_ptr fi),
        (req, ino, datasync, fi))
BY_NODE(statfs, (fuse_req_t req, fuse_ino_t ino), (req, ino))
BY_NODE(getxattr, (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size),
        (req, ino, name, size))
BY_NODE(listxattr, (fuse_req_t req, fuse_ino_t ino, size_t size), (req, ino, size))

REFUSED(setattr, IS_NODE,
        (fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, info_ptr fi),
        (req, ino, attr, to_set, fi))
REFUSED(setxattr, IS_NODE,
        (fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
         int flags),
        (req, ino, name, value, size, flags))
REFUSED(removexattr, IS_NODE, (fuse_req_t req, fuse_ino_t ino, const char *name), (req, ino, name))
REFUSED(readlink, IS_NODE, (fuse_req_t req, fuse_ino_t ino), (req, ino))
REFUSED(write, IS_NODE,
        (fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset, info_ptr fi),
        (req, ino, data, size, offset, fi))
REFUSED(fallocate, IS_NODE,
        (fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t len, info_ptr fi),
        (req, ino, mode, offset, len, fi))
REFUSED(mknod, IS_NAME(parent, name),
        (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev),
        (req, parent, name, mode, rdev))
REFUSED(mkdir, IS_NAME(parent, name),
        (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode),
        (req, parent, name, mode))
REFUSED(symlink, IS_NAME(parent, name),
        (fuse_req_t req, const char *link, fuse_ino_t parent, const char *name),
        (req, link, parent, name))
REFUSED(create, IS_NAME(parent, name),
        (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, info_ptr fi),
        (req, parent, name, mode, fi))
REFUSED(tmpfile, kvs_is_control(parent),
        (fuse_req_t req, fuse_ino_t parent, mode_t mode, info_ptr fi), (req, parent, mode, fi))
REFUSED(unlink, IS_NAME(parent, name), (fuse_req_t req, fuse_ino_t parent, const char *name),
        (req, parent, name))
REFUSED(rmdir, IS_NAME(parent, name), (fuse_req_t req, fuse_ino_t parent, const char *name),
        (req, parent, name))
REFUSED(rename, IS_NAME(parent, name) || IS_NAME(new_parent, new_name),
        (fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
         const char *new_name, unsigned flags),
        (req, parent, name, new_parent, new_name, flags))
REFUSED(link, kvs_is_control(ino) || IS_NAME(new_parent, new_name),
        (fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name),
        (req, ino, new_parent, new_name))

static void dispatch_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (IS_NAME(parent, name))
        kvs_control_lookup(req, parent, name);
    else
        kvs_op_lookup(req, parent, name);
}

/* Control nodes are always there. */
static void dispatch_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    if (kvs_is_control(ino))
        fuse_reply_none(req);
    else
        kvs_op_forget(req, ino, nlookup);
}

static void dispatch_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (!kvs_is_control(forgets[i].ino))
            forgets[kept++] = forgets[i];
    }
    kvs_op_forget_multi(req, kept, forgets);
}

/* Locks are left to the kernel, and so is access(2): default_permissions is on. */
const struct fuse_lowlevel_ops kvs_operations = {
    .init = init,
    .lookup = dispatch_lookup,
    .forget = dispatch_forget,
    .forget_multi = dispatch_forget_multi,
    .mknod = dispatch_mknod,
    .mkdir = dispatch_mkdir,
    .symlink = dispatch_symlink,
    .readlink = dispatch_readlink,
    .unlink = dispatch_unlink,
    .rmdir = dispatch_rmdir,
    .rename = dispatch_rename,
    .link = dispatch_link,
    .getattr = dispatch_getattr,
    .setattr = dispatch_setattr,
    .statfs = dispatch_statfs,
    .setxattr = dispatch_setxattr,
    .getxattr = dispatch_getxattr,
    .listxattr = dispatch_listxattr,
    .removexattr = dispatch_removexattr,
    .opendir = dispatch_opendir,
    .readdir = dispatch_readdir,
    .releasedir = dispatch_releasedir,
    .fsyncdir = dispatch_fsyncdir,
    .open = dispatch_open,
    .create = dispatch_create,
    .tmpfile = dispatch_tmpfile,
    .flush = dispatch_flush,
    .release = dispatch_release,
    .read = dispatch_read,
    .write = dispatch_write,
    .fsync = dispatch_fsync,
    .fallocate = dispatch_fallocate,
    .lseek = dispatch_lseek,
};
