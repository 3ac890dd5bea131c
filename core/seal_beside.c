// SPDX-License-Identifier: Apache-2.0
// A record that is only ever added, and only to bytes that nobody is changing.
#include "core/seal_beside.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "core/lease.h"
#include "core/util.h"
#include "core/verify.h"

static bool is_old(const struct stat *st)
{
    time_t last = KVS_MAX(st->st_mtim.tv_sec, st->st_ctim.tv_sec);

    return time(NULL) - last >= KVS_SEAL_AGE_SECONDS;
}

static int check(int fd, struct kvs_snapshot *now_ret)
{
    int r = kvs_snapshot_take(fd, now_ret);

    if (r == 0 && now_ret->record.kind != KVS_RECORD_NONE)
        r = -EEXIST;
    if (r < 0)
        return r;
    r = kvs_lease_take(fd);
    if (r == 0)
        kvs_lease_drop(fd); /* not held while it is read */
    else
        r = r == -EAGAIN || !is_old(&now_ret->stat) ? -EBUSY : 0;
    return r;
}

int kvs_seal_beside_check(int fd)
{
    struct kvs_snapshot now;

    return check(fd, &now);
}

/* `before` is what was summed. Between this look and the record the block can change only where
 * there is no lease; then it shows afterwards. */
static int add_record(int fd, const struct kvs_snapshot *before, uint32_t crc, bool has_lease)
{
    struct kvs_snapshot now;
    int r = kvs_snapshot_take(fd, &now);

    if (r == 0 && !kvs_snapshot_equal(before, &now))
        r = -EBUSY;
    if (r == 0)
        r = kvs_record_add(fd, crc);
    if (r < 0 || has_lease)
        return r == -EEXIST ? -EBUSY : r;
    if (fstat(fd, &now.stat) == 0 && now.stat.st_size == before->stat.st_size &&
        now.stat.st_mtim.tv_sec == before->stat.st_mtim.tv_sec &&
        now.stat.st_mtim.tv_nsec == before->stat.st_mtim.tv_nsec)
        return 0;
    kvs_record_remove(fd);
    return -EBUSY;
}

int kvs_seal_beside(int fd, void *scratch, size_t scratch_len, uint32_t *crc_ret)
{
    struct kvs_snapshot before;
    int r = check(fd, &before);

    if (r == 0)
        r = kvs_sum_whole(fd, scratch, scratch_len, crc_ret);
    if (r < 0)
        return r;
    int lease = kvs_lease_take(fd);
    if (lease == -EAGAIN)
        return -EBUSY;
    r = add_record(fd, &before, *crc_ret, lease == 0);
    if (lease == 0)
        kvs_lease_drop(fd);
    return r;
}
