// SPDX-License-Identifier: Apache-2.0
// The directory under the mount: immutable while it is covered, given back, and never somebody
// else's. The mount points lie on the file systems of the fixture.
#include "tests/mount/fixture_process.h"

#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#define MARK "trusted.kvseal.mountpoint"

/* A mount point in the source's file system, and the same directory as it is under the mount. */
struct place {
    char mnt[PATH_MAX], below[PATH_MAX];
    const char *log, *source;
};

static struct place place(struct kvt_env *env)
{
    struct place place;
    const char *beside = kvt_work_dir(env, "beside", 0755);
    if (kvt_count_names(beside) == 0)
        assert_int_equal(mount(env->source, beside, NULL, MS_BIND, NULL), 0);
    snprintf(place.mnt, sizeof(place.mnt), "%s/m", kvt_src(env, ""));
    snprintf(place.below, sizeof(place.below), "%s/%s/m", beside, env->dir);
    assert_int_equal(mkdir(place.mnt, 0755), 0);
    place.source = kvt_work_dir(env, "guard-source", 0755);
    place.log = kvt_work_path(env, "guard.log");
    return place;
}

static int flags_of(const char *path)
{
    int flags = 0, fd = kvt_open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(ioctl(fd, FS_IOC_GETFLAGS, &flags), 0);
    close(fd);
    return flags;
}

static void set_immutable(const char *path, bool is_immutable)
{
    int flags = flags_of(path), fd = kvt_open(path, O_RDONLY | O_DIRECTORY);
    flags = is_immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
    assert_int_equal(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
    close(fd);
}

static bool is_guarded(const char *path)
{
    return (flags_of(path) & FS_IMMUTABLE_FL) && getxattr(path, MARK, NULL, 0) >= 0;
}

static bool is_untouched(const char *path)
{
    return !(flags_of(path) & FS_IMMUTABLE_FL) && getxattr(path, MARK, NULL, 0) < 0;
}

static pid_t serve(const struct place *place, const char *options)
{
    pid_t pid = kvt_launch(place->log, 0, -1, "-f", place->source, place->mnt, "-o", options, NULL);
    kvt_wait_for(kvt_is_fuse(place->mnt));
    return pid;
}

static void nobody_writes_below_a_mount(void **state)
{
    struct place there = place(*state);
    char file[PATH_MAX + 8];
    snprintf(file, sizeof(file), "%s/file", there.below);
    pid_t pid = serve(&there, "rw");
    assert_true(is_guarded(there.below));
    kvt_assert_errno(EPERM, open(file, O_CREAT | O_WRONLY, 0644));
    kvt_assert_errno(EPERM, mkdir(file, 0755));
    assert_int_equal(kvt_terminate(pid), 0);
    assert_true(is_untouched(there.mnt));
    assert_int_equal(rmdir(there.mnt), 0);
}

static void an_unmount_gives_it_back(void **state)
{
    struct place there = place(*state);
    pid_t pid = serve(&there, "rw");
    assert_true(is_guarded(there.below));
    assert_int_equal(umount2(there.mnt, 0), 0);
    kvt_wait_for(is_untouched(there.mnt));
    assert_int_equal(rmdir(there.mnt), 0);
    assert_int_equal(kvt_end_of(pid), 0);
}

static void a_killed_daemons_guard_is_taken_over(void **state)
{
    struct place there = place(*state);
    pid_t pid = serve(&there, "rw");
    kill(pid, SIGKILL);
    kvt_end_of(pid);
    assert_true(is_guarded(there.below));
    pid = serve(&there, "rw"); // over the dead mount
    assert_true(is_guarded(there.below));
    kill(pid, SIGKILL);
    kvt_end_of(pid);
    assert_int_equal(umount2(there.mnt, MNT_DETACH), 0);
    assert_true(is_guarded(there.mnt));
    kvt_assert_errno(EPERM, rmdir(there.mnt));
    pid = serve(&there, "immutable=off"); // also by one that would not have set it
    assert_int_equal(kvt_terminate(pid), 0);
    assert_true(is_untouched(there.mnt));
}

static void what_an_administrator_made_immutable_stays(void **state)
{
    struct place there = place(*state);
    set_immutable(there.mnt, true);
    pid_t pid = serve(&there, "rw");
    kill(pid, SIGKILL);
    kvt_end_of(pid);
    pid = serve(&there, "rw");
    assert_int_equal(kvt_terminate(pid), 0);
    bool is_immutable = flags_of(there.mnt) & FS_IMMUTABLE_FL;
    set_immutable(there.mnt, false);
    assert_true(is_immutable);
    assert_true(is_untouched(there.mnt));
}

static void other_directories_are_left_alone(void **state)
{
    struct kvt_env *env = *state;
    struct place there = place(env);
    char file[PATH_MAX + 8];
    snprintf(file, sizeof(file), "%s/file", there.mnt);
    pid_t pid = serve(&there, "immutable=off");
    assert_true(is_untouched(there.below));
    assert_int_equal(kvt_terminate(pid), 0);

    there.source = there.mnt; // empty, and the source itself
    pid = serve(&there, "rw");
    assert_true(is_untouched(there.below));
    assert_int_equal(kvt_write_file(file, KVT_CREATE, 5000, 1, 0), 0);
    assert_int_equal(kvt_terminate(pid), 0);

    there.source = kvt_work_dir(env, "guard-source", 0755);
    pid = serve(&there, "rw"); // not empty
    assert_true(is_untouched(there.below));
    assert_int_equal(kvt_terminate(pid), 0);
    kvt_assert_block(file, 5000, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(nobody_writes_below_a_mount),
        kvt_test(an_unmount_gives_it_back),
        kvt_test(a_killed_daemons_guard_is_taken_over),
        kvt_test(what_an_administrator_made_immutable_stays),
        kvt_test(other_directories_are_left_alone),
    };
    return kvt_main("guard", tests, sizeof(tests) / sizeof(tests[0]),
                    KVT_TMPFS | KVT_EXT4 | KVT_XFS | KVT_BTRFS);
}
