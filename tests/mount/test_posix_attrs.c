// SPDX-License-Identifier: Apache-2.0
// Owners, modes, permissions, times and extended attributes through the mount are
// those of the file system below (C9, C19).
#include "tests/mount/fixture_scenario.h"

#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>

/* ---- creation ---- */

static void create_one_of_each(void)
{
    static const mode_t modes[] = {0666, 0777, 0640, 04755, 02755, 02775, 01777, 0};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        kvt_try(open("file", O_CREAT | O_EXCL | O_WRONLY, modes[i]));
        kvt_try(mkdir("dir", modes[i]));
        kvt_try(mknod("node", S_IFREG | modes[i], 0));
        kvt_try(mkfifo("fifo", modes[i]));
        kvt_note_fstat((int)kvt_try(open(".", O_TMPFILE | O_WRONLY, modes[i])));
        kvt_try(symlink("file", "link"));
        kvt_note_stat("file");
        kvt_note_stat("dir");
        kvt_note_stat("node");
        kvt_note_stat("fifo");
        kvt_note_stat("link");
        kvt_try(unlink("file") + unlink("node") + unlink("fifo") + unlink("link") + rmdir("dir"));
    }
}

static void create_with_umasks(void)
{
    static const mode_t masks[] = {0, 022, 027, 077, 0177};
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        umask(masks[i]);
        create_one_of_each();
    }
}

static void see_creation_by_anybody(void)
{
    create_with_umasks();
    kvt_as_owner(create_with_umasks);
    kvt_as_member(create_with_umasks);
}

static void c19_what_is_created_belongs_to_the_caller(void **state)
{
    kvt_same_as_below(*state, see_creation_by_anybody);
}

static void see_setgid_directories(void)
{
    kvt_make_dir("setgid", 02777, 5, KVT_SECOND);
    kvt_make_dir("group", 02777, 5, KVT_GROUP);
    kvt_holds(chdir("setgid") == 0);
    create_with_umasks();
    kvt_as_owner(create_with_umasks); // no member of the directory's group
    kvt_as_member(create_with_umasks);
    kvt_holds(chdir("../group") == 0);
    kvt_as_owner(create_with_umasks);
    kvt_as_stranger(create_with_umasks);
}

static void c19_setgid_directories_hand_down_their_group(void **state)
{
    kvt_same_as_below(*state, see_setgid_directories);
}

/* ---- who may do what ---- */

static void try_in_sticky(void)
{
    kvt_try(unlink("sticky/owners"));
    kvt_try(rename("sticky/owners", "sticky/renamed"));
    kvt_try(rename("sticky/strangers", "sticky/owners"));
    kvt_try(rmdir("sticky/dir"));
    kvt_try(unlink("sticky/strangers"));
}

static void see_sticky_directories(void)
{
    kvt_make_dir("sticky", 01777, 5, 5);
    for (int i = 0; i < 2; i++) {
        kvt_make_file("sticky/owners", 0666, KVT_OWNER, KVT_GROUP);
        kvt_make_file("sticky/strangers", 0666, 3000, 3000);
        kvt_make_dir("sticky/dir", 0777, KVT_OWNER, KVT_GROUP);
        if (i == 0)
            kvt_as_stranger(try_in_sticky);
        kvt_as_member(try_in_sticky);
        kvt_as_owner(try_in_sticky);
        unlink("sticky/strangers");
    }
}

static void c19_sticky_directories_protect_names(void **state)
{
    kvt_same_as_below(*state, see_sticky_directories);
}

static void try_everything(void)
{
    kvt_try(open("file", O_RDONLY));
    kvt_try(open("file", O_WRONLY));
    kvt_try(open("file", O_RDWR));
    kvt_try(open("file", O_WRONLY | O_TRUNC));
    kvt_try(access("file", R_OK));
    kvt_try(access("file", W_OK));
    kvt_try(access("file", X_OK));
    kvt_try(faccessat(AT_FDCWD, "file", W_OK, AT_EACCESS));
    kvt_try(truncate("file", 5));
    kvt_try(chmod("file", 0640));
    kvt_try(chown("file", KVT_OTHER, (gid_t)-1));
    kvt_try(chown("file", (gid_t)-1, KVT_SECOND));
    kvt_try(utimensat(AT_FDCWD, "file", NULL, 0));
    kvt_try(utimensat(AT_FDCWD, "file", (struct timespec[]){{1, 0}, {1, 0}}, 0));
    kvt_try(setxattr("file", "user.mine", "x", 1, 0));
    kvt_try(getxattr("file", "user.kept", NULL, 0));
    kvt_try(removexattr("file", "user.mine"));
    kvt_try(link("file", "linked"));
    kvt_try(unlink("linked"));
    kvt_try(open("dir", O_RDONLY | O_DIRECTORY));
    kvt_try(open("dir/file", O_RDONLY));
    kvt_try(access("dir/file", F_OK));
    kvt_try(open("dir/new", O_CREAT | O_WRONLY, 0600));
    kvt_try(mkdir("dir/newdir", 0700));
    kvt_try(symlink("x", "dir/newlink"));
    kvt_try(rename("dir/file", "dir/renamed"));
    kvt_try(rename("dir/renamed", "dir/file"));
    kvt_try(unlink("dir/new"));
    kvt_try(rmdir("dir/newdir"));
    kvt_try(unlink("dir/newlink"));
    kvt_try(chdir("dir"));
}

static void see_permissions(void)
{
    static const mode_t modes[] = {0777, 0700, 0070, 0007, 0600, 0060, 0006, 0555, 0444, 0111, 0};
    kvt_make_dir("dir", 0777, KVT_OWNER, KVT_GROUP);
    kvt_make_file("dir/file", 0666, KVT_OWNER, KVT_GROUP);
    kvt_make_file("file", 0666, KVT_OWNER, KVT_GROUP);
    kvt_holds(setxattr("file", "user.kept", "x", 1, 0) == 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        for (gid_t group = KVT_GROUP; group <= KVT_SECOND; group++) {
            kvt_note("---- %o, group %u", modes[i], group);
            kvt_give("file", modes[i], KVT_OWNER, group);
            kvt_give("dir", modes[i], KVT_OWNER, group);
            kvt_as_stranger(try_everything);
            kvt_as_member(try_everything);
            kvt_as_owner(try_everything);
        }
    }
}

static void c19_the_same_permissions(void **state)
{
    kvt_same_as_below(*state, see_permissions);
}

/* ---- modes and owners ---- */

static void change_modes(void)
{
    kvt_try(chmod("file", 07777));
    kvt_note_stat("file");
    kvt_try(chmod("file", 0600));
    kvt_note_stat("file");
    kvt_try(chown("file", (uid_t)-1, KVT_SECOND));
    kvt_note_stat("file");
    kvt_try(chmod("file", 02770));
    kvt_note_stat("file");
    kvt_try(chmod("dir", 03777));
    kvt_note_stat("dir");
    kvt_try(fchmod(open("file", O_RDONLY), 0644));
    kvt_note_stat("file");
    kvt_try(fchown(open("file", O_RDONLY), (uid_t)-1, KVT_GROUP));
    kvt_note_stat("file");
    kvt_try(chown("file", 3000, 3000));
}

static void see_modes(void)
{
    kvt_make_dir("dir", 0777, KVT_OTHER, KVT_SECOND);
    kvt_make_file("file", 0666, KVT_OTHER, KVT_SECOND);
    kvt_as_member(change_modes);
    kvt_give("file", 0666, KVT_OTHER, 3000); // a group that the owner is not in
    kvt_as_member(change_modes);
    kvt_as_owner(change_modes);
    change_modes();
    kvt_note_stat("file");
}

static void c19_chmod_and_chown(void **state)
{
    kvt_same_as_below(*state, see_modes);
}

static int with_file(int flags, int (*act)(int fd))
{
    int fd = open("file", flags);
    int result = fd < 0 ? -1 : act(fd);
    close(fd);
    return result;
}

static int write_some(int fd)
{
    return (int)write(fd, "x", 1);
}
static int write_direct(int fd)
{
    static _Alignas(4096) char page[4096];
    return (int)write(fd, page, sizeof(page));
}
static int cut(int fd)
{
    return ftruncate(fd, 3);
}
static int allocate(int fd)
{
    return fallocate(fd, 0, 0, 4096);
}
static int set_attribute(int fd)
{
    return fsetxattr(fd, "user.other", "x", 1, 0);
}
static int nothing(int fd)
{
    return 0;
}

static int way_of_changing;

static void change_in_one_way(void)
{
    switch (way_of_changing) {
    case 0:
        kvt_try(with_file(O_WRONLY, write_some));
        break;
    case 1:
        kvt_try(with_file(O_WRONLY, cut));
        break;
    case 2:
        kvt_try(truncate("file", 2));
        break;
    case 3:
        kvt_try(with_file(O_WRONLY | O_TRUNC, nothing));
        break;
    case 4:
        kvt_try(with_file(O_WRONLY, allocate));
        break;
    case 5:
        kvt_try(with_file(O_WRONLY | O_APPEND, write_some));
        break;
    case 6:
        kvt_try(with_file(O_WRONLY | O_DIRECT, write_direct));
        break;
    case 7:
        kvt_try(with_file(O_RDWR, set_attribute));
        break;
    case 8:
        kvt_try(chown("file", (uid_t)-1, getgid()));
        break;
    default:
        kvt_try(with_file(O_WRONLY, nothing)); // keeps everything
    }
}

static void see_set_id_bits(void)
{
    /* Set-group-ID without the group's execution: the daemon clears it for members as well. */
    static const mode_t modes[] = {06777, 04777, 02777, 04666};
    kvt_make("file", "some text");
    for (way_of_changing = 0; way_of_changing <= 9; way_of_changing++) {
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            kvt_note("---- way %d, %o", way_of_changing, modes[i]);
            kvt_give("file", modes[i], KVT_OWNER, KVT_GROUP);
            kvt_as_stranger(change_in_one_way);
            kvt_note_stat("file");
            kvt_give("file", modes[i], KVT_OWNER, KVT_GROUP);
            kvt_as_owner(change_in_one_way);
            kvt_note_stat("file");
            kvt_give("file", modes[i], KVT_OWNER, KVT_GROUP);
            change_in_one_way(); // root
            kvt_note_stat("file");
        }
    }
}

static void c19_set_id_bits_go_with_a_change_by_others(void **state)
{
    struct kvt_env *env = *state;
    kvt_same_as_below(env, see_set_id_bits);
    kvt_assert_sealed(kvt_src(env, KVT_MOUNTED "/file"));
}

static void see_file_capabilities(void)
{
    static const unsigned char capability[20] = {1, 0, 0, 2, 0x80}; // VFS_CAP_REVISION_2
    for (way_of_changing = 0; way_of_changing <= 9; way_of_changing++) {
        kvt_make("file", "some text");
        kvt_give("file", 0777, KVT_OWNER, KVT_GROUP);
        kvt_try(setxattr("file", "security.capability", capability, sizeof(capability), 0));
        change_in_one_way();
        kvt_try(getxattr("file", "security.capability", NULL, 0));
        kvt_holds(unlink("file") == 0);
    }
}

static void c19_file_capabilities_go_with_a_change(void **state)
{
    kvt_same_as_below(*state, see_file_capabilities);
}

/* ---- times ---- */

static void note_time(const char *what, struct timespec time_of)
{
    if (time_of.tv_sec > time(NULL) - 1000 && time_of.tv_sec < time(NULL) + 1000)
        kvt_note("%s: now", what);
    else
        kvt_note("%s: %jd.%09ld", what, (intmax_t)time_of.tv_sec, time_of.tv_nsec);
}

static void note_times(const char *path)
{
    struct stat st;
    kvt_holds(lstat(path, &st) == 0);
    note_time("atime", st.st_atim);
    note_time("mtime", st.st_mtim);
    note_time("ctime", st.st_ctim);
}

static void set_times_in_all_ways(void)
{
    static const struct timespec times[][2] = {
        {{1000, 1000}, {2000, 2000}},       {{0, UTIME_OMIT}, {3000, 3000}},
        {{4000, 4000}, {0, UTIME_OMIT}},    {{0, UTIME_NOW}, {0, UTIME_OMIT}},
        {{5000, 5000}, {5000, 5000}},       {{0, UTIME_OMIT}, {0, UTIME_NOW}},
        {{0, UTIME_OMIT}, {0, UTIME_OMIT}}, {{0, UTIME_NOW}, {0, UTIME_NOW}},
        {{-5, 0}, {-6, 999999999}},         {{0, 1000000000}, {0, 0}},
        {{2147483647, 9}, {2147483648, 8}},
    };
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        kvt_try(utimensat(AT_FDCWD, "file", times[i], 0));
        note_times("file");
        kvt_try(futimens(open("dir", O_RDONLY | O_DIRECTORY), times[i]));
        note_times("dir");
        kvt_try(utimensat(AT_FDCWD, "link", times[i], AT_SYMLINK_NOFOLLOW));
        note_times("link");
    }
    kvt_try(futimens(open("file", O_RDONLY), NULL));
    note_times("file");
    kvt_try(utimes("file", (struct timeval[]){{7, 7}, {8, 8}}));
    note_times("file");
}

static void see_times(void)
{
    kvt_make_file("file", 0666, KVT_OWNER, KVT_GROUP);
    kvt_make_dir("dir", 0777, KVT_OWNER, KVT_GROUP);
    kvt_holds(symlink("file", "link") == 0);
    set_times_in_all_ways();
    kvt_as_owner(set_times_in_all_ways);
    kvt_as_stranger(set_times_in_all_ways); // may say "now", as it may write
    kvt_give("file", 0444, KVT_OWNER, KVT_GROUP);
    kvt_as_stranger(set_times_in_all_ways);
}

static void c19_times_can_be_set(void **state)
{
    kvt_same_as_below(*state, see_times);
}

static void c09_attributes_leave_the_record(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 5000, 1, 0), 0);
    const char *path = kvt_mnt(env, "a");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(chown(path, KVT_OWNER, KVT_GROUP), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
    assert_int_equal(setxattr(path, "user.other", "x", 1, 0), 0);
    assert_int_equal(link(path, kvt_mnt(env, "b")), 0);
    assert_int_equal(rename(path, kvt_mnt(env, "c")), 0);
    kvt_assert_sealed_block(env, "c", 5000, 1);
    assert_int_equal(kvt_load(env, "b", 5000, 1, 0), 0);
}

/* ---- extended attributes ---- */

static int compare_names(const void *one, const void *two)
{
    return strcmp(*(char *const *)one, *(char *const *)two);
}

/* In some order: the file system's own differs from file to file. Blocks below have no record. */
static void note_names(const char *path)
{
    char list[4096], *names[64];
    size_t count = 0;
    ssize_t size = listxattr(path, list, sizeof(list));
    kvt_holds(size >= 0);
    for (ssize_t at = 0; at < size && count < 64; at += (ssize_t)strlen(list + at) + 1) {
        if (strcmp(list + at, KVS_RECORD_NAME) != 0)
            names[count++] = list + at;
    }
    qsort(names, count, sizeof(names[0]), compare_names);
    for (size_t i = 0; i < count; i++)
        kvt_note("%s has %s", path, names[i]);
}

static void use_attributes(const char *path)
{
    static char big[70000];
    char value[64] = "";
    memset(big, 'v', sizeof(big));
    kvt_note("---- %s", path);
    kvt_try(setxattr(path, "user.a", "value", 5, 0));
    kvt_try(setxattr(path, "user.a", "other", 5, XATTR_CREATE));
    kvt_try(setxattr(path, "user.b", "other", 5, XATTR_REPLACE));
    kvt_try(setxattr(path, "user.b", "", 0, XATTR_CREATE));
    kvt_try(setxattr(path, "user.a", "longer value", 12, XATTR_REPLACE));
    kvt_try(setxattr(path, "user.a", "x", 1, 8));
    kvt_try(getxattr(path, "user.a", NULL, 0));
    kvt_try(getxattr(path, "user.a", value, 11));
    kvt_try(getxattr(path, "user.a", value, 12));
    kvt_note("%s", value);
    kvt_try(getxattr(path, "user.b", value, sizeof(value)));
    kvt_try(getxattr(path, "user.none", value, sizeof(value)));
    kvt_try(removexattr(path, "user.none"));
    kvt_try(removexattr(path, "user.b"));
    kvt_try(setxattr(path, "user.big", big, 3000, 0));
    kvt_try(getxattr(path, "user.big", big, sizeof(big)));
    kvt_try(setxattr(path, "user.bigger", big, 65536, 0));
    kvt_try(getxattr(path, "user.bigger", big, sizeof(big)));
    kvt_try(removexattr(path, "user.bigger"));
    kvt_try(setxattr(path, "user.biggest", big, 65537, 0));
    kvt_try(setxattr(path, "trusted.a", "x", 1, 0));
    kvt_try(getxattr(path, "trusted.a", value, sizeof(value)));
    kvt_try(setxattr(path, "security.a", "x", 1, 0));
    kvt_try(setxattr(path, "unknown.a", "x", 1, 0));
    kvt_try(setxattr(path, "user.", "x", 1, 0));
    kvt_try(setxattr(path, "", "x", 1, 0));
    big[0] = 'u', big[1] = 's', big[2] = 'e', big[3] = 'r', big[4] = '.';
    big[255] = 0;
    kvt_try(setxattr(path, big, "x", 1, 0));
    kvt_try(removexattr(path, big));
    big[255] = 'v', big[256] = 0;
    kvt_try(setxattr(path, big, "x", 1, 0));
    note_names(path);
}

static void use_all_attributes(void)
{
    use_attributes("file");
    use_attributes("dir");
    use_attributes("fifo");
    use_attributes("tacky");
    kvt_try(lsetxattr("link", "user.a", "x", 1, 0));
    kvt_try(lsetxattr("link", "trusted.a", "x", 1, 0));
    kvt_try(lgetxattr("link", "trusted.a", NULL, 0));
    kvt_try(llistxattr("link", NULL, 0));
    kvt_try(listxattr("dir", (char[4]){0}, 4));
    int fd = open("file", O_RDONLY);
    kvt_try(fsetxattr(fd, "user.f", "x", 1, 0));
    kvt_try(fgetxattr(fd, "user.f", NULL, 0));
    kvt_try(fremovexattr(fd, "user.f"));
    kvt_try(fgetxattr(open("file", O_PATH), "user.f", NULL, 0));
    close(fd);
}

static void see_attributes(void)
{
    kvt_make_file("file", 0666, KVT_OWNER, KVT_GROUP);
    kvt_make_dir("dir", 0755, KVT_OWNER, KVT_GROUP);
    kvt_make_dir("tacky", 01777, KVT_OWNER, KVT_GROUP); // user. is the owner's there
    kvt_holds(mkfifo("fifo", 0666) == 0 && symlink("file", "link") == 0);
    use_all_attributes();
    kvt_as_stranger(use_all_attributes);
    kvt_as_owner(use_all_attributes);
    kvt_give("file", 0600, KVT_OWNER, KVT_GROUP);
    kvt_as_stranger(use_all_attributes);
}

static void c19_extended_attributes(void **state)
{
    kvt_same_as_below(*state, see_attributes);
}

/* ---- what a file system says of itself and of a file ---- */

static void c19_statfs_and_stat_are_those_below(void **state)
{
    struct kvt_env *env = *state;
    struct statvfs below, mounted;
    struct stat st, through;
    assert_int_equal(kvt_store(env, "a", 300000, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(statvfs(kvt_src(env, ""), &below), 0);
    assert_int_equal(fstatvfs(fd, &mounted), 0);
    assert_int_equal(mounted.f_bsize, below.f_bsize);
    assert_int_equal(mounted.f_frsize, below.f_frsize);
    assert_int_equal(mounted.f_blocks, below.f_blocks);
    assert_int_equal(mounted.f_files, below.f_files);
    assert_int_equal(mounted.f_namemax, below.f_namemax);

    assert_int_equal(stat(kvt_src(env, "a"), &st), 0);
    kvt_wait_for(fstat(fd, &through) == 0 && through.st_blocks == st.st_blocks);
    assert_int_equal(through.st_ino, st.st_ino);
    assert_int_equal(through.st_blksize, st.st_blksize);
    assert_int_equal(through.st_size, st.st_size);
    assert_memory_equal(&through.st_mtim, &st.st_mtim, sizeof(st.st_mtim));
    assert_memory_equal(&through.st_ctim, &st.st_ctim, sizeof(st.st_ctim));
    close(fd);
}

static void see_execution(void)
{
    kvt_holds(kvt_run(NULL, "cp", "/bin/true", "program", NULL) == 0 &&
              chmod("program", 0755) == 0);
    kvt_note("program: %d", kvt_run(NULL, "./program", NULL));
    kvt_holds(chmod("program", 0644) == 0);
    kvt_try(execl("./program", "program", (char *)NULL));
    kvt_make("script", "#!/bin/sh\nexit 7\n");
    kvt_holds(chmod("script", 0755) == 0);
    kvt_note("script: %d", kvt_run(NULL, "./script", NULL));
}

static void c19_programs_run_from_the_mount(void **state)
{
    kvt_same_as_below(*state, see_execution);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c19_what_is_created_belongs_to_the_caller),
        kvt_test(c19_setgid_directories_hand_down_their_group),
        kvt_test(c19_sticky_directories_protect_names),
        kvt_test(c19_the_same_permissions),
        kvt_test(c19_chmod_and_chown),
        kvt_test(c19_set_id_bits_go_with_a_change_by_others),
        kvt_test(c19_file_capabilities_go_with_a_change),
        kvt_test(c19_times_can_be_set),
        kvt_test(c09_attributes_leave_the_record),
        kvt_test(c19_extended_attributes),
        kvt_test(c19_statfs_and_stat_are_those_below),
        kvt_test(c19_programs_run_from_the_mount),
    };
    return kvt_main("posix attrs", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS | KVT_DIR);
}
