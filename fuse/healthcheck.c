// SPDX-License-Identifier: Apache-2.0
// --healthcheck: one statfs(2), which the kernel answers from no cache.
#include "fuse/healthcheck.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "core/log.h"
#include "core/util.h"
#include "fuse/ask.h"
#include "fuse/mountinfo.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/* Besides 0 and -errno. */
enum finding {
    FOUND_NO_MOUNT = 1,
    FOUND_OTHER = 2,
};

/* In a child: all of it may hang. */
static int examine(void *mountpoint)
{
    kvs_cleanup_fd int fd = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char path[PATH_MAX];
    enum kvs_occupant occupant;
    int error = kvs_mount_identify(fd, path, &occupant);
    if (error)
        return error;
    if (occupant != KVS_OCCUPANT_KVSEALFS)
        return occupant == KVS_OCCUPANT_FUSE ? FOUND_OTHER : FOUND_NO_MOUNT;
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return -errno;
    /* Whom the mount is not for gets zeros, from the kernel itself. */
    return st.f_bsize ? 0 : -EACCES;
}

int kvs_healthcheck(const char *mountpoint, double limit_s)
{
    int finding = kvs_ask(examine, (void *)mountpoint, (int)(limit_s * 1000));
    switch (finding) {
    case 0:
        return EXIT_SUCCESS;
    case FOUND_NO_MOUNT:
        complain("%s: not mounted", mountpoint);
        break;
    case FOUND_OTHER:
        complain("%s: another FUSE file system is mounted there, not kvsealfs", mountpoint);
        break;
    case -ENOTCONN:
    case -ECONNABORTED:
        complain("%s: the mount is dead: its kvsealfs has ended", mountpoint);
        break;
    case -ETIMEDOUT:
        complain("%s: no answer within %g seconds", mountpoint, limit_s);
        break;
    case -EACCES:
        complain("%s: this user may not use the mount: it takes -o allow_other", mountpoint);
        break;
    default:
        complain("%s: %s", mountpoint, strerror(-finding));
    }
    return EXIT_FAILURE;
}
