// SPDX-License-Identifier: Apache-2.0
// Access times (C17): evictors go by them, so loads move them as the file system itself would, and
// verification alone does not.
#include "tests/mount/fixture.h"

#include <sys/mount.h>
#include <time.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB             ((size_t)1 << 20)
#define SIZE            (MIB + 12345)
#define A_YEAR_AGO      (1700000000)

/* How the file system below treats access times: a flag of mount(2). */
static const struct policy {
    const char *name;
    unsigned long flag;
} policies[] = {
    {"strictatime", MS_STRICTATIME}, {"relatime", MS_RELATIME}, {"noatime", MS_NOATIME}};

static void set_policy(struct kvt_env *env, const struct policy *policy)
{
    assert_int_equal(mount(NULL, env->source, NULL, MS_REMOUNT | MS_BIND | policy->flag, NULL), 0);
}

/* Leaves the source as the next test expects it, also when a test failed. */
static int teardown(void **state)
{
    set_policy(*state, &policies[1]);
    return kvt_teardown_test(state);
}

static void set_times(const char *path, time_t atime, time_t mtime)
{
    const struct timespec times[] = {{.tv_sec = atime}, {.tv_sec = mtime}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static struct stat stat_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st;
}

/* What a client does with a block: `flags` for open(2), then one read of `size` bytes, if any. */
static const struct access {
    const char *name;
    int flags;
    size_t size;
} accesses[] = {
    {"a load", O_RDONLY, SIZE},
    {"a direct load", O_RDONLY | O_DIRECT, 2 * MIB},
    {"a load of the first bytes", O_RDONLY, 10},
    {"a load through a handle for both", O_RDWR, SIZE},
    {"a load with O_NOATIME", O_RDONLY | O_NOATIME, SIZE},
    {"an open", O_RDONLY, 0},
    {"a direct open", O_RDONLY | O_DIRECT, 0},
    {"an open for both", O_RDWR, 0},
    {"an open to write", O_WRONLY, 0},
};

static void access_block(const char *path, const struct access *how)
{
    int fd = kvt_open(path, how->flags);
    if (how->size > 0) {
        unsigned char *bytes = kvt_block(how->size, 9);
        assert_int_equal(read(fd, bytes, how->size), how->size < SIZE ? how->size : SIZE);
        free(bytes);
    }
    assert_int_equal(kvt_close(fd), 0);
}

/* btrfs moves atime with a direct read only where it falls back to the page cache, which depends on
 * the memory that is read into. */
static bool is_left_open(struct kvt_env *env, const struct access *how)
{
    return env->kind == KVT_BTRFS && (how->flags & O_DIRECT) && how->size > 0;
}

/* Both names have the same times before; one is accessed below, the other through the mount. */
static void check_access(struct kvt_env *env, const struct policy *policy, const struct access *how,
                         time_t atime, time_t mtime)
{
    set_times(kvt_src(env, "native"), atime, mtime);
    set_times(kvt_src(env, "a"), atime, mtime);
    access_block(kvt_src(env, "native"), how);
    access_block(kvt_mnt(env, "a"), how);
    bool moves = stat_of(kvt_src(env, "native")).st_atim.tv_sec != atime;
    if (moves) // the daemon may do it after its answer
        kvt_wait_for(stat_of(kvt_src(env, "a")).st_atim.tv_sec != atime);
    else
        kvt_remount(env); // whatever it does is done then
    struct stat st = stat_of(kvt_src(env, "a"));
    if ((st.st_atim.tv_sec != atime) != moves || st.st_mtim.tv_sec != mtime)
        fail_msg("%s on %s: %s", how->name, policy->name,
                 st.st_mtim.tv_sec != mtime ? "mtime moved"
                 : moves                    ? "atime did not move"
                                            : "atime moved");
}

static void check_all_accesses(struct kvt_env *env)
{
    for (const struct policy *policy = policies; policy < policies + COUNT_OF(policies); policy++) {
        set_policy(env, policy);
        for (const struct access *how = accesses; how < accesses + COUNT_OF(accesses); how++) {
            if (is_left_open(env, how))
                continue;
            check_access(env, policy, how, A_YEAR_AGO, A_YEAR_AGO);
            if (policy->flag == MS_RELATIME) // read since the last change, and today
                check_access(env, policy, how, time(NULL) - 600, A_YEAR_AGO);
        }
    }
}

static void c17_loads_move_atime_as_the_file_system_would(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_store(env, "native", SIZE, 1, 0), 0);
    check_all_accesses(env);
    kvt_assert_sealed(kvt_src(env, "a"));
}

static void c17_loads_of_unsealed_blocks_too(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), O_WRONLY | O_CREAT, SIZE, 1, 0), 0);
    assert_int_equal(kvt_write_file(kvt_src(env, "native"), O_WRONLY | O_CREAT, SIZE, 1, 0), 0);
    check_all_accesses(env);
}

/* No buffer is large enough: every read comes from below, and is verified again. */
static void c17_loads_by_pieces_too(void **state)
{
    struct kvt_env *env = *state;
    const size_t size = 26 * MIB;
    kvt_start(env, "buffer_memory=32M,passthrough=off");
    set_policy(env, &policies[0]);
    assert_int_equal(kvt_store(env, "a", size, 1, 0), 0);
    set_times(kvt_src(env, "a"), A_YEAR_AGO, A_YEAR_AGO);
    access_block(kvt_mnt(env, "a"), &accesses[5]);
    kvt_remount(env);
    assert_int_equal(stat_of(kvt_src(env, "a")).st_atim.tv_sec, A_YEAR_AGO);
    assert_int_equal(kvt_load(env, "a", size, 1, 0), 0);
    kvt_wait_for(stat_of(kvt_src(env, "a")).st_atim.tv_sec != A_YEAR_AGO);
    assert_int_equal(stat_of(kvt_src(env, "a")).st_mtim.tv_sec, A_YEAR_AGO);
}

static void c17_verifying_for_a_change_leaves_atime_alone(void **state)
{
    struct kvt_env *env = *state;
    set_policy(env, &policies[0]);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        set_times(kvt_src(env, "a"), A_YEAR_AGO, A_YEAR_AGO);
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | direct);
        kvt_put(fd, 100, 2, 5000); // verified, and what it cuts is read back
        assert_int_equal(kvt_close(fd), 0);
        assert_int_equal(truncate(kvt_mnt(env, "a"), SIZE - 1), 0);
        assert_int_equal(truncate(kvt_mnt(env, "a"), SIZE), 0);
        kvt_remount(env);
        assert_int_equal(stat_of(kvt_src(env, "a")).st_atim.tv_sec, A_YEAR_AGO);
        assert_int_not_equal(stat_of(kvt_src(env, "a")).st_mtim.tv_sec, A_YEAR_AGO);
        kvt_assert_sealed(kvt_src(env, "a"));
    }
}

static void c17_a_refused_load_leaves_the_times_alone(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=keep");
    set_policy(env, &policies[0]);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    kvt_flip(kvt_src(env, "a"), 5);
    set_times(kvt_src(env, "a"), A_YEAR_AGO, A_YEAR_AGO);
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDONLY));
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDWR | O_DIRECT));
    kvt_remount(env);
    struct stat st = stat_of(kvt_src(env, "a"));
    assert_int_equal(st.st_atim.tv_sec, A_YEAR_AGO);
    assert_int_equal(st.st_mtim.tv_sec, A_YEAR_AGO);
}

#define test(function) cmocka_unit_test_setup_teardown(function, kvt_setup_test, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(c17_loads_move_atime_as_the_file_system_would),
        test(c17_loads_of_unsealed_blocks_too),
        test(c17_loads_by_pieces_too),
        test(c17_verifying_for_a_change_leaves_atime_alone),
        test(c17_a_refused_load_leaves_the_times_alone),
    };
    return kvt_main("load_atime", tests, COUNT_OF(tests), KVT_DISKS);
}
