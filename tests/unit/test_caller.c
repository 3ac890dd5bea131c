// SPDX-License-Identifier: Apache-2.0
// Creation as the caller (C19): owner, group, set-group-id directories, umask, for one thread only.
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/caller.h"
#include "tests/unit/scratch.h"

/* What the module asks libfuse for; the test is linked without the rest of libfuse. */
static struct fuse_ctx caller;
static gid_t caller_groups[100];
static int caller_group_count;

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
    return &caller;
}

int fuse_req_getgroups(fuse_req_t req, int size, gid_t list[])
{
    for (int i = 0; i < caller_group_count && i < size; i++)
        list[i] = caller_groups[i];
    return caller_group_count;
}

/* The main thread is a worker from here on. */
static int set_up(void **state)
{
    kvs_caller_thread_init();
    return make_scratch();
}

static int tear_down(void **state)
{
    return remove_scratch();
}

static struct stat stat_of(const char *name)
{
    struct stat st;
    assert_int_equal(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

static void create(const char *name, mode_t mode)
{
    int fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_WRONLY, mode);
    assert_true(fd >= 0);
    close(fd);
}

static void remove_name(const char *name)
{
    assert_int_equal(unlinkat(dir_fd, name, 0), 0);
}

static void set_directory(uid_t uid, gid_t gid, mode_t mode)
{
    assert_int_equal(fchown(dir_fd, uid, gid), 0);
    kvs_caller_raise_fsetid();
    assert_int_equal(fchmod(dir_fd, mode), 0);
    kvs_caller_lower_fsetid();
}

static void create_as_caller(const char *name, mode_t mode)
{
    struct kvs_caller saved;
    kvs_caller_become(NULL, &saved);
    create(name, mode);
    kvs_caller_restore(&saved);
}

static void c19_files_belong_to_the_caller(void **state)
{
    caller = (struct fuse_ctx){.uid = 1234, .gid = 2345, .umask = 027};
    set_directory(0, 0, 0700); /* nothing for the caller: the kernel has checked already */
    create_as_caller("mine", 0666);
    struct stat st = stat_of("mine");
    assert_int_equal(st.st_uid, 1234);
    assert_int_equal(st.st_gid, 2345);
    assert_int_equal(st.st_mode & 07777, 0640);
    remove_name("mine");

    create("own", 0666);
    st = stat_of("own");
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(st.st_gid, 0);
    assert_int_equal(st.st_mode & 07777, 0666);
    assert_int_equal(fchownat(dir_fd, "own", 5, 5, 0), 0);
    remove_name("own");
}

static void *become_and_end(void *argument)
{
    struct kvs_caller saved;
    kvs_caller_thread_init();
    kvs_caller_become(NULL, &saved);
    return NULL;
}

static void c19_the_callers_umask_is_no_other_threads(void **state)
{
    caller = (struct fuse_ctx){.umask = 077};
    umask(011);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, become_and_end, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(umask(0), 011);
}

static void c19_a_directorys_group_is_inherited(void **state)
{
    set_directory(0, 3456, 02777);
    caller = (struct fuse_ctx){.uid = 1234, .gid = 2345};
    caller_group_count = 0;
    create_as_caller("inherited", 02770);
    struct stat st = stat_of("inherited");
    assert_int_equal(st.st_gid, 3456);
    assert_int_equal(st.st_mode & 07777, 0770); /* S_ISGID is for members only */
    remove_name("inherited");

    caller_group_count = 80; /* more than fit at first */
    for (int i = 0; i < 80; i++)
        caller_groups[i] = (gid_t)(3456 + 79 - i);
    create_as_caller("member", 02770);
    assert_int_equal(stat_of("member").st_mode & 07777, 02770);
    remove_name("member");

    caller_group_count = 0;
    create_as_caller("no-member", 02770);
    assert_int_equal(stat_of("no-member").st_mode & 07777, 0770);
    remove_name("no-member");
}

static void c19_root_may_set_any_group_id(void **state)
{
    set_directory(0, 3456, 02777);
    caller = (struct fuse_ctx){.gid = 2345};
    create_as_caller("roots", 02770);
    assert_int_equal(stat_of("roots").st_mode & 07777, 02770);
    remove_name("roots");

    create("workers", 02770); /* the worker itself has not CAP_FSETID */
    assert_int_equal(stat_of("workers").st_mode & 07777, 0770);
    remove_name("workers");
}

static void c19_callers_groups_do_not_stay(void **state)
{
    gid_t before[64], after[64];
    int count_before = getgroups(64, before);
    caller = (struct fuse_ctx){.uid = 1234, .gid = 2345};
    caller_group_count = 1;
    caller_groups[0] = 3456;
    struct kvs_caller saved;
    kvs_caller_become(NULL, &saved);
    assert_int_equal(getgroups(64, after), 1);
    assert_int_equal(after[0], 3456);
    kvs_caller_restore(&saved);
    assert_int_equal(getgroups(64, after), count_before);
    assert_memory_equal(before, after, sizeof(gid_t) * (size_t)count_before);
}

static void c19_a_write_clears_set_id_bits(void **state)
{
    int fd = openat(dir_fd, "program", O_CREAT | O_EXCL | O_WRONLY, 0755);
    assert_true(fd >= 0);
    assert_int_equal(fchown(fd, 1234, 2345), 0);
    kvs_caller_raise_fsetid();
    assert_int_equal(fchmod(fd, 06755), 0);
    kvs_caller_lower_fsetid();
    assert_int_equal(stat_of("program").st_mode & 07777, 06755);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(stat_of("program").st_mode & 07777, 0755);
    assert_int_equal(fchown(fd, 1234, 4567), 0);
    close(fd);
    remove_name("program");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c19_files_belong_to_the_caller),
        cmocka_unit_test(c19_the_callers_umask_is_no_other_threads),
        cmocka_unit_test(c19_a_directorys_group_is_inherited),
        cmocka_unit_test(c19_root_may_set_any_group_id),
        cmocka_unit_test(c19_callers_groups_do_not_stay),
        cmocka_unit_test(c19_a_write_clears_set_id_bits),
    };
    if (geteuid() != 0) {
        fputs("SKIPPED: only root may change identities\n", stderr);
        return 0;
    }
    return cmocka_run_group_tests_name("caller", tests, set_up, tear_down);
}
