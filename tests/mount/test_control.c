// SPDX-License-Identifier: Apache-2.0
// The control directory: there for whoever knows its name, and nobody can change it.
#include "tests/mount/fixture_metrics.h"

#include <dirent.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

static const char *control(struct kvt_env *env, const char *name)
{
    static _Thread_local char paths[4][PATH_MAX];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/.kvseal%s%s", env->mnt, *name ? "/" : "", name);
    return path;
}

static void control_is_not_listed_at_the_top(void **state)
{
    struct kvt_env *env = *state;
    const struct dirent *entry;
    DIR *dir = opendir(env->mnt);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        assert_string_not_equal(entry->d_name, ".kvseal");
    closedir(dir);
}

static void control_lists_its_files(void **state)
{
    struct kvt_env *env = *state;
    const struct dirent *entry;
    unsigned found = 0, all = 0;
    DIR *dir = opendir(control(env, ""));
    assert_non_null(dir);
    for (; (entry = readdir(dir)) != NULL; all++)
        found += !strcmp(entry->d_name, "status") || !strcmp(entry->d_name, "metrics");
    rewinddir(dir);
    assert_non_null(readdir(dir));
    closedir(dir);
    assert_int_equal(found, 2);
    assert_int_equal(all, 4);
}

static void control_has_attributes(void **state)
{
    struct kvt_env *env = *state;
    struct stat dir, file, top;
    struct statvfs there, above;
    char value[16];
    assert_int_equal(stat(env->mnt, &top), 0);
    assert_int_equal(stat(control(env, ""), &dir), 0);
    assert_int_equal(dir.st_mode, S_IFDIR | 0555);
    assert_true(dir.st_ino != top.st_ino && dir.st_dev == top.st_dev);
    for (const char *name = "status\0metrics\0"; *name; name += strlen(name) + 1) {
        assert_int_equal(stat(control(env, name), &file), 0);
        assert_int_equal(file.st_mode, S_IFREG | 0444);
        assert_int_equal(file.st_size, 0);
        assert_int_equal(access(control(env, name), R_OK), 0);
        kvt_assert_errno(ENODATA, getxattr(control(env, name), "user.x", value, sizeof(value)));
        kvt_assert_errno(ENODATA, getxattr(control(env, name), KVS_RECORD_NAME, value, 4));
        assert_int_equal(listxattr(control(env, name), value, sizeof(value)), 0);
    }
    assert_int_equal(statvfs(control(env, "status"), &there), 0);
    assert_int_equal(statvfs(env->mnt, &above), 0);
    assert_true(there.f_blocks == above.f_blocks && there.f_bsize == above.f_bsize);
}

static void control_cannot_be_changed(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    kvt_assert_errno(EPERM, open(control(env, "status"), O_WRONLY));
    kvt_assert_errno(EPERM, open(control(env, "status"), O_RDWR));
    kvt_assert_errno(EPERM, open(control(env, "status"), O_RDONLY | O_TRUNC));
    kvt_assert_errno(EPERM, open(control(env, "new"), O_WRONLY | O_CREAT, 0644));
    kvt_assert_errno(EPERM, open(control(env, ""), O_WRONLY | O_TMPFILE, 0644));
    kvt_assert_errno(EPERM, truncate(control(env, "status"), 0));
    kvt_assert_errno(EPERM, chmod(control(env, "status"), 0777));
    kvt_assert_errno(EPERM, chmod(control(env, ""), 0777));
    kvt_assert_errno(EPERM, utimensat(AT_FDCWD, control(env, "status"), NULL, 0));
    kvt_assert_errno(EPERM, setxattr(control(env, "status"), "user.x", "y", 1, 0));
    kvt_assert_errno(EPERM, removexattr(control(env, "status"), "user.x"));
    kvt_assert_errno(EPERM, unlink(control(env, "status")));
    kvt_assert_errno(EPERM, rmdir(control(env, "")));
    kvt_assert_errno(EPERM, mkdir(control(env, "new"), 0755));
    kvt_assert_errno(EPERM, mknod(control(env, "new"), S_IFREG | 0644, 0));
    kvt_assert_errno(EPERM, symlink("x", control(env, "new")));
    kvt_assert_errno(EPERM, link(kvt_mnt(env, "a"), control(env, "new")));
    kvt_assert_errno(EPERM, link(control(env, "status"), kvt_mnt(env, "b")));
    kvt_assert_errno(EPERM, rename(kvt_mnt(env, "a"), control(env, "new")));
    kvt_assert_errno(EPERM, rename(kvt_mnt(env, "a"), control(env, "status")));
    kvt_assert_errno(EPERM, rename(control(env, "status"), kvt_mnt(env, "b")));
    kvt_assert_errno(EPERM, rename(control(env, ""), kvt_mnt(env, "b")));
    kvt_assert_errno(ENOENT, unlink(control(env, "new")));
    kvt_assert_errno(ENOENT, open(control(env, "quarantine"), O_RDONLY));
    assert_int_equal(kvt_load(env, "a", 4096, 1, 0), 0);
    kvt_stop(env); /* it has lived through all this */
}

/* As /proc is read: by size 0, in any pieces, and what is open does not change. */
static void control_is_read_as_proc_is(void **state)
{
    struct kvt_env *env = *state;
    char *whole = kvt_read_control(env, "metrics"), copy[PATH_MAX], byte;
    assert_true(strlen(whole) > 4096);
    free(whole);
    int fd = kvt_open(control(env, "metrics"), O_RDONLY | O_DIRECT);
    off_t size = 0;
    for (; pread(fd, &byte, 1, size) == 1; size += 512)
        ;
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    char again;
    assert_int_equal(pread(fd, &again, 1, size - 512), 1);
    assert_int_equal(kvt_close(fd), 0);

    snprintf(copy, sizeof(copy), "%s/copied", env->work);
    for (const char *name = "status\0metrics\0"; *name; name += strlen(name) + 1) {
        struct stat st;
        assert_int_equal(kvt_run(NULL, "cp", control(env, name), copy, NULL), 0);
        assert_int_equal(stat(copy, &st), 0);
        assert_true(st.st_size > 1000);
        assert_int_equal(unlink(copy), 0);
        assert_int_equal(kvt_run(copy, "cat", control(env, name), NULL), 0);
        assert_int_equal(stat(copy, &st), 0);
        assert_true(st.st_size > 1000);
        assert_int_equal(unlink(copy), 0);
    }
}

static void control_is_there_read_only(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "ro");
    char *status = kvt_read_control(env, "status");
    assert_non_null(strstr(status, "\"state\": \"serving\""));
    free(status);
}

/* Its nodes are forgotten by the kernel like others, and are none of the table's. */
static void control_is_not_in_the_table(void **state)
{
    struct kvt_env *env = *state;
    kvt_remount(env);
    double inodes = kvt_metric(env, "kvseal_known_inodes");
    for (int i = 0; i < 3; i++) {
        char *text = kvt_read_control(env, "status");
        free(text);
        assert_int_equal(kvt_run(NULL, "sh", "-c", "echo 2 >/proc/sys/vm/drop_caches", NULL), 0);
    }
    assert_true(kvt_metric(env, "kvseal_known_inodes") <= inodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(control_is_not_listed_at_the_top), kvt_test(control_lists_its_files),
        kvt_test(control_has_attributes),           kvt_test(control_cannot_be_changed),
        kvt_test(control_is_read_as_proc_is),       kvt_test(control_is_there_read_only),
        kvt_test(control_is_not_in_the_table),
    };
    return kvt_main("control", tests, COUNT_OF(tests), KVT_TMPFS | KVT_EXT4);
}
