// SPDX-License-Identifier: Apache-2.0
// The table of operations, and what is agreed with the kernel at the start.
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

/* Locks are left to the kernel, and so is access(2): default_permissions is on. */
const struct fuse_lowlevel_ops kvs_operations = {
    .init = init,
    .lookup = kvs_op_lookup,
    .forget = kvs_op_forget,
    .forget_multi = kvs_op_forget_multi,
    .mknod = kvs_op_mknod,
    .mkdir = kvs_op_mkdir,
    .symlink = kvs_op_symlink,
    .readlink = kvs_op_readlink,
    .unlink = kvs_op_unlink,
    .rmdir = kvs_op_rmdir,
    .rename = kvs_op_rename,
    .link = kvs_op_link,
    .getattr = kvs_op_getattr,
    .setattr = kvs_op_setattr,
    .statfs = kvs_op_statfs,
    .setxattr = kvs_op_setxattr,
    .getxattr = kvs_op_getxattr,
    .listxattr = kvs_op_listxattr,
    .removexattr = kvs_op_removexattr,
    .opendir = kvs_op_opendir,
    .readdir = kvs_op_readdir,
    .releasedir = kvs_op_releasedir,
    .fsyncdir = kvs_op_fsyncdir,
    .open = kvs_op_open,
    .create = kvs_op_create,
    .tmpfile = kvs_op_tmpfile,
    .flush = kvs_op_flush,
    .release = kvs_op_release,
    .read = kvs_op_read,
    .write = kvs_op_write,
    .fsync = kvs_op_fsync,
    .fallocate = kvs_op_fallocate,
    .lseek = kvs_op_lseek,
};
