// SPDX-License-Identifier: Apache-2.0
// Creation as the caller, by what Linux keeps for each thread: file system ids, groups,
// capabilities and, once unshared, the umask.
#include "fuse/caller.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/util.h"

#define BIT(capability) (UINT32_C(1) << (capability))

/* What the kernel takes from a thread whose fsuid stops being 0, and what it gives back. */
#define FILE_CAPABILITIES                                                                          \
    (BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_FOWNER) |         \
     BIT(CAP_FSETID) | BIT(CAP_MKNOD) | BIT(CAP_LINUX_IMMUTABLE))
/* What only root has; it reads trusted. attributes by CAP_SYS_ADMIN. */
#define ROOT_CAPABILITIES (FILE_CAPABILITIES | BIT(CAP_SYS_ADMIN))
/* What a caller needs on top of its own rights: the kernel has checked them already. */
#define SEARCH_CAPABILITIES (BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH))
#define SWITCH_CAPABILITIES (BIT(CAP_SETUID) | BIT(CAP_SETGID))

#define FEW_GROUPS 64

/* What this thread is when it is nobody else. */
static _Thread_local struct {
    struct __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3];
    uint32_t own;          /* the effective ones of the first 32 */
    struct kvs_caller now; /* fsuid and fsgid */
    bool may_switch;
    bool has_groups_of_caller;
    int group_count;
    gid_t groups[FEW_GROUPS];
} self;

/* The C library would change every thread of the process; the kernel's calls change this one. */
static void set_effective(uint32_t effective)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    self.capabilities[0].effective = effective & self.capabilities[0].permitted;
    syscall(SYS_capset, &header, self.capabilities);
}

static void set_groups(int count, const gid_t *groups)
{
    syscall(SYS_setgroups, (size_t)count, groups);
}

void kvs_caller_thread_init(void)
{
    unshare(CLONE_FS);
    umask(0);

    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    if (syscall(SYS_capget, &header, self.capabilities))
        return;
    uint32_t effective = self.capabilities[0].effective;
    self.now = (struct kvs_caller){.uid = geteuid(), .gid = getegid()};
    self.may_switch = self.now.uid == 0 && (effective & SWITCH_CAPABILITIES) == SWITCH_CAPABILITIES;
    int count = getgroups(FEW_GROUPS, self.groups);
    self.group_count = KVS_MAX(count, 0);
    self.own = effective & ~BIT(CAP_FSETID);
    set_effective(self.own);
}

/* Groups decide whether a new file in a set-group-id directory may have S_ISGID itself. */
static void take_groups(fuse_req_t req)
{
    gid_t few[FEW_GROUPS];
    kvs_cleanup_free gid_t *many = NULL;
    gid_t *groups = few;
    int count = fuse_req_getgroups(req, FEW_GROUPS, few);
    if (count > FEW_GROUPS) {
        many = calloc((size_t)count, sizeof(*many));
        int again = many ? fuse_req_getgroups(req, count, many) : 0;
        count = KVS_MIN(again, count);
        groups = many;
    }
    count = KVS_MAX(count, 0);
    self.has_groups_of_caller = count > 0 || self.group_count > 0;
    if (self.has_groups_of_caller)
        set_groups(count, groups);
}

void kvs_caller_become(fuse_req_t req, struct kvs_caller *saved_ret)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    umask(caller->umask);
    *saved_ret = self.now;
    if (!self.may_switch)
        return;
    if (caller->uid != 0)
        take_groups(req);
    if (caller->gid != self.now.gid)
        setfsgid(caller->gid);
    if (caller->uid != self.now.uid)
        setfsuid(caller->uid);
    self.now = (struct kvs_caller){.uid = caller->uid, .gid = caller->gid};
    set_effective(caller->uid == 0
                      ? self.own | BIT(CAP_FSETID)
                      : (self.own & ~ROOT_CAPABILITIES) | (self.own & SEARCH_CAPABILITIES));
}

void kvs_caller_restore(const struct kvs_caller *saved)
{
    umask(0);
    if (!self.may_switch)
        return;
    if (self.now.uid != saved->uid)
        setfsuid(saved->uid);
    if (self.now.gid != saved->gid)
        setfsgid(saved->gid);
    self.now = *saved;
    set_effective(self.own); /* setfsuid(0) made more effective than that */
    if (self.has_groups_of_caller) {
        set_groups(self.group_count, self.groups);
        self.has_groups_of_caller = false;
    }
}

void kvs_caller_raise_fsetid(void)
{
    set_effective(self.own | BIT(CAP_FSETID));
}

void kvs_caller_lower_fsetid(void)
{
    set_effective(self.own);
}

void kvs_caller_change_begins(fuse_req_t req)
{
    if (fuse_req_ctx(req)->uid == 0)
        kvs_caller_raise_fsetid();
}

void kvs_caller_change_ends(fuse_req_t req)
{
    if (fuse_req_ctx(req)->uid == 0)
        kvs_caller_lower_fsetid();
}
