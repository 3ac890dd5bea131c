// SPDX-License-Identifier: Apache-2.0
// A record that is only ever added, and only to bytes that nobody is changing.
#include "core/seal_beside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "core/lease.h"
#include "core/util.h"
#include "core/verify.h"

#define SECOND_NS      INT64_C(1000000000)
#define TICK_NS        (SECOND_NS / 25) /* several of the longest, a hundredth (HZ=100) */
#define COARSE_TICK_NS (2 * SECOND_NS)

static bool is_old(const struct stat *st)
{
    time_t last = KVS_MAX(st->st_mtim.tv_sec, st->st_ctim.tv_sec);

    return time(NULL) - last >= KVS_SEAL_AGE_SECONDS;
}

/*
 * Whoever opens, writes and closes the block while it is read is seen by its ctime alone, and two
 * changes in one tick of the file system's clock have the same one (kernels before 6.13, and some
 * file systems since). So the reading begins in a later tick than the last change: a change after
 * that has another ctime, and one before it is in what is read. A ctime in whole seconds comes from
 * a file system that has no others.
 */
static void outlast_tick(const struct stat *st)
{
    const int64_t tick = st->st_ctim.tv_nsec != 0 ? TICK_NS : COARSE_TICK_NS;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (now.tv_sec - st->st_ctim.tv_sec) * SECOND_NS + now.tv_nsec - st->st_ctim.tv_nsec;
    if (age >= 0 && age < tick) /* a clock that was set back shows all changes */
        kvs_clock_sleep((uint64_t)(tick - age));
}

/* Network file systems answer from what they remember, unless they are asked to look. */
static void look_again(int fd)
{
    struct statx unused;

    statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &unused);
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

    if (!has_lease)
        look_again(fd);
    int r = kvs_snapshot_take(fd, &now);
    if (r == 0 && !kvs_snapshot_equal(before, &now))
        r = -EBUSY;
    if (r == 0)
        r = kvs_record_add(fd, crc);
    if (r < 0 || has_lease)
        return r == -EEXIST ? -EBUSY : r;
    look_again(fd);
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

    if (r < 0)
        return r;
    outlast_tick(&before.stat);
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
