// SPDX-License-Identifier: Apache-2.0
// Creation as the caller (C19): file system uid, gid, supplementary groups and umask of this
// thread.
#ifndef KVSEAL_FUSE_CALLER_H
#define KVSEAL_FUSE_CALLER_H

#include <fuse_lowlevel.h>

struct kvs_caller {
    uid_t uid;
    gid_t gid;
};

/* Every worker thread calls this once: gives it a umask of its own (unshare(CLONE_FS)), and takes
 * CAP_FSETID out of its effective set, so that a write through the daemon clears set-id bits as a
 * write by the caller would. */
void kvs_caller_thread_init(void);

/* From here to kvs_caller_restore() this thread creates files as the caller of `req`. Permission
 * was checked by the kernel (default_permissions), so CAP_DAC_OVERRIDE stays effective; CAP_FSETID
 * is effective for a caller that is root. Where the daemon may not change identities (not root)
 * nothing happens. Cannot fail: groups that cannot be read are none. */
void kvs_caller_become(fuse_req_t req, struct kvs_caller *saved_ret);
void kvs_caller_restore(const struct kvs_caller *saved);

/* A change of content clears set-id bits, but not when root makes it: goes around such a change. */
void kvs_caller_change_begins(fuse_req_t req);
void kvs_caller_change_ends(fuse_req_t req);

/* chmod keeps S_ISGID only with CAP_FSETID; the kernel has already cleared what the caller may not
 * set. Effective between the two calls, on this thread. */
void kvs_caller_raise_fsetid(void);
void kvs_caller_lower_fsetid(void);

#endif
