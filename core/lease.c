// SPDX-License-Identifier: Apache-2.0
// F_SETLEASE, where it means something.
#include "core/lease.h"

#include <errno.h>
#include <fcntl.h>

#include "core/page_cache.h"

int kvs_lease_take(int fd)
{
    if (!kvs_page_cache_is_local(fd))
        return -EOPNOTSUPP;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0)
        return 0;
    return errno == EINVAL ? -EOPNOTSUPP : -errno;
}

void kvs_lease_drop(int fd)
{
    fcntl(fd, F_SETLEASE, F_UNLCK);
}

bool kvs_lease_is_open_for_writing(int fd)
{
    int r = kvs_lease_take(fd);

    if (r == 0)
        kvs_lease_drop(fd);
    return r == -EAGAIN;
}
