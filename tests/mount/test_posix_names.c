// SPDX-License-Identifier: Apache-2.0
// Names through the mount behave as they do on the file system below (C19): kinds of files, links,
// renames, errors, long names, deep trees.
#include "tests/mount/fixture_scenario.h"

#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

static void fill_name(char *name, size_t length)
{
    memset(name, 'n', length);
    name[length] = 0;
}

/* ---- errors ---- */

static void see_errors(void)
{
    kvt_make("file", "x");
    kvt_holds(mkdir("dir", 0755) == 0 && mkdir("full", 0755) == 0);
    kvt_make("full/inside", "y");
    kvt_try(mkdir("dir", 0755));
    kvt_try(mkdir("file", 0755));
    kvt_try(mkdir("no/dir", 0755));
    kvt_try(mkdir("file/dir", 0755));
    kvt_try(rmdir("full"));
    kvt_try(rmdir("file"));
    kvt_try(rmdir("no"));
    kvt_try(rmdir("dir/."));
    kvt_try(rmdir("full/.."));
    kvt_try(unlink("dir"));
    kvt_try(unlink("no"));
    kvt_try(unlink("file/"));
    kvt_try(unlink("file/x"));
    kvt_try(unlink(""));
    kvt_try(open("no", O_RDONLY));
    kvt_try(open("dir", O_WRONLY));
    kvt_try(open("dir", O_RDWR));
    kvt_try(open("dir", O_RDONLY | O_CREAT, 0600));
    kvt_try(open("dir/", O_WRONLY | O_CREAT, 0600));
    kvt_try(open("new/", O_WRONLY | O_CREAT, 0600));
    kvt_try(open("file", O_RDONLY | O_DIRECTORY));
    kvt_try(open("file/", O_RDONLY));
    kvt_try(open("file", O_CREAT | O_EXCL | O_WRONLY, 0600));
    kvt_try(open("file", O_CREAT | O_DIRECTORY | O_RDONLY, 0600));
    kvt_try(rename("no", "new"));
    kvt_try(rename("dir", "file"));
    kvt_try(rename("file", "dir"));
    kvt_try(rename("dir", "full"));
    kvt_try(rename("full", "full/below"));
    kvt_try(rename("full/inside", "full"));
    kvt_try(rename("file", "file"));
    kvt_try(rename("file", "no/file"));
    kvt_try(link("no", "new"));
    kvt_try(link("dir", "new"));
    kvt_try(link("file", "dir"));
    kvt_try(symlink("", "new"));
    kvt_try(symlink("x", "file"));
    kvt_try(readlink("file", (char[8]){0}, 8));
    kvt_try(mknod("file", S_IFIFO | 0600, 0));
    kvt_try(truncate("dir", 0));
    kvt_try(truncate("no", 0));
    kvt_try(access("file", X_OK));
}

static void c19_the_same_errors(void **state)
{
    kvt_same_as_below(*state, see_errors);
}

static void see_open_flags(void)
{
    char byte;
    kvt_make("file", "x");
    kvt_holds(mkdir("dir", 0755) == 0 && symlink("file", "link") == 0 &&
              symlink("no", "hang") == 0);
    kvt_try(open("link", O_RDONLY | O_NOFOLLOW));
    kvt_try(open("hang", O_RDONLY));
    kvt_try(open("hang", O_CREAT | O_EXCL | O_WRONLY, 0600));
    kvt_try(open("link", O_CREAT | O_EXCL | O_WRONLY, 0600));
    kvt_try(open("link", O_RDONLY | O_DIRECTORY));
    int fd = (int)kvt_try(open("link", O_PATH | O_NOFOLLOW));
    kvt_note_fstat(fd);
    kvt_try(read(fd, &byte, 1));
    kvt_try(fchmod(fd, 0600));
    fd = (int)kvt_try(open("file", O_PATH));
    kvt_try(read(fd, &byte, 1));
    kvt_try(ftruncate(fd, 0));
    kvt_try(fchdir((int)kvt_try(open("dir", O_PATH | O_DIRECTORY))));
    kvt_holds(chdir("..") == 0);
    fd = (int)kvt_try(open("dir", O_RDONLY));
    kvt_try(read(fd, &byte, 1));
    fd = (int)kvt_try(open("file", O_WRONLY));
    kvt_try(read(fd, &byte, 1));
    fd = (int)kvt_try(open("file", O_RDONLY));
    kvt_try(write(fd, "x", 1));
    kvt_try(ftruncate(fd, 0));
    kvt_try(open("hang", O_CREAT | O_WRONLY, 0640)); // makes what it leads to
    kvt_note_stat("no");
    fd = (int)kvt_try(
        open("new", O_CREAT | O_RDWR | O_EXCL, 0400)); // its own mode binds later opens
    kvt_try(write(fd, "abc", 3));
    kvt_note_stat("new");
}

static void c19_the_same_open_flags(void **state)
{
    kvt_same_as_below(*state, see_open_flags);
}

/* ---- names ---- */

static void see_names(void)
{
    static const char *const odd[] = {"new\nline",    " ",       "...", "ümläut",
                                      "\xff\xfe\x80", "a\\040b", "-rf", "%s%n"};
    char name[300];
    for (size_t length = 254; length <= 257; length++) {
        fill_name(name, length);
        kvt_try(mkdir(name, 0755));
        kvt_try(rmdir(name));
        kvt_try(open(name, O_CREAT | O_EXCL | O_WRONLY, 0600));
        kvt_try(link(name, "linked"));
        kvt_try(rename("linked", name));
        kvt_try(symlink("to", name));
        kvt_try(unlink(name));
        kvt_try(access(name, F_OK));
        unlink("linked");
    }
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        kvt_make(odd[i], odd[i]);
        kvt_note_content(odd[i]);
    }
}

static void c19_names_of_255_bytes_and_of_any_bytes(void **state)
{
    struct kvt_env *env = *state;
    kvt_same_as_below(env, see_names);
    assert_int_equal(kvt_count_names(kvt_mnt(env, KVT_BELOW)), 8);
    assert_int_equal(kvt_count_names(kvt_src(env, KVT_MOUNTED)), 8);
}

#define DEPTH 120

static void see_deep_tree(void)
{
    char name[NAME_MAX + 1], there[PATH_MAX * 8] = ".";
    fill_name(name, 200);
    for (int i = 0; i < DEPTH; i++) {
        kvt_holds(mkdir(name, 0755) == 0 && chdir(name) == 0);
        strcat(strcat(there, "/"), name);
    }
    kvt_make("bottom", "deep");
    kvt_note_content("bottom");
    kvt_try(rename("bottom", "renamed"));
    kvt_note_stat("renamed");
    kvt_try(truncate("renamed", 2));
    kvt_note_content("renamed");
    int top = open("../..", O_RDONLY | O_DIRECTORY);
    kvt_holds(top >= 0);
    kvt_try(unlink("renamed"));
    for (int i = 0; i < DEPTH; i++)
        kvt_holds(chdir("..") == 0 && rmdir(name) == 0);
    kvt_note_stat(there); // longer than PATH_MAX
    kvt_note_stat(name);
}

static void c19_paths_deeper_than_a_path_can_say(void **state)
{
    kvt_same_as_below(*state, see_deep_tree);
}

/* ---- symbolic links ---- */

static void see_symlinks(void)
{
    char text[PATH_MAX + 1], back[PATH_MAX + 1];
    memset(text, 't', PATH_MAX);
    for (size_t length = 4094; length <= 4096; length++) {
        text[length] = 0;
        if (kvt_try(symlink(text, "long")) == 0) {
            kvt_note_stat("long");
            ssize_t got = kvt_try(readlink("long", back, sizeof(back)));
            kvt_holds(got == (ssize_t)length && memcmp(text, back, length) == 0);
            kvt_try(open("long", O_RDONLY));
        }
        unlink("long");
        text[length] = 't';
    }
    kvt_make("file", "target");
    kvt_holds(mkdir("dir", 0755) == 0);
    kvt_try(symlink("../file", "dir/up"));
    kvt_note_content("dir/up");
    kvt_try(symlink("dangling", "hang"));
    kvt_note_stat("hang");
    kvt_try(readlink("hang", back, 3)); // cut
    kvt_try(open("hang", O_RDONLY));
    kvt_try(symlink("one", "two") + symlink("two", "one"));
    kvt_try(open("one", O_RDONLY));
    kvt_try(access("one", F_OK));
    kvt_try(symlink("self", "self"));
    kvt_try(chdir("self"));
    kvt_try(symlink("dir", "to_dir"));
    kvt_note_content("to_dir/up");
    kvt_try(rmdir("to_dir"));
    kvt_try(unlink("to_dir/"));
    kvt_try(lchown("hang", 12, 34));
    kvt_note_stat("hang");
    kvt_try(utimensat(AT_FDCWD, "hang", (struct timespec[]){{1, 0}, {2, 0}}, AT_SYMLINK_NOFOLLOW));
    struct stat st;
    kvt_holds(lstat("hang", &st) == 0 && st.st_mtime == 2);
    kvt_try(link("hang", "hang too"));
    kvt_note_stat("hang too");
    kvt_try(linkat(AT_FDCWD, "dir/up", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW));
    kvt_note_stat("followed");
    kvt_try(rename("hang", "hang too"));
    kvt_try(unlink("hang too"));
    kvt_note_stat("hang");
}

static void c19_symbolic_links(void **state)
{
    kvt_same_as_below(*state, see_symlinks);
}

/* ---- hard links ---- */

static void see_hard_links(void)
{
    struct stat one, two;
    kvt_holds(mkdir("dir", 0755) == 0);
    kvt_make("one", "shared");
    kvt_try(link("one", "dir/two"));
    kvt_note_stat("one");
    kvt_note_stat("dir/two");
    kvt_holds(stat("one", &one) == 0 && stat("dir/two", &two) == 0 && one.st_ino == two.st_ino);
    int fd = open("dir/two", O_WRONLY | O_APPEND);
    kvt_holds(write(fd, " text", 5) == 5 && close(fd) == 0);
    kvt_note_content("one");
    kvt_try(rename("one", "dir/two")); // two names of one inode: nothing happens
    kvt_note_stat("one");
    kvt_try(chmod("one", 0600));
    kvt_note_stat("dir/two");
    kvt_try(unlink("one"));
    kvt_note_stat("dir/two");
    kvt_note_content("dir/two");
    for (int i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        kvt_holds(link("dir/two", name) == 0);
    }
    kvt_note_stat("n49");
    kvt_try(mkfifo("fifo", 0600));
    kvt_try(link("fifo", "fifo too"));
    kvt_note_stat("fifo too");
}

static void c19_hard_links(void **state)
{
    kvt_same_as_below(*state, see_hard_links);
}

/* ---- special files ---- */

static void talk_through_fifo(void)
{
    char text[8] = "";
    kvt_try(mkfifo("fifo", 0644));
    kvt_try(open("fifo", O_WRONLY | O_NONBLOCK)); // nobody reads
    pid_t pid = fork();
    if (pid == 0) {
        int out = open("fifo", O_WRONLY);
        _exit(write(out, "hello", 5) == 5 ? 0 : 1);
    }
    int in = open("fifo", O_RDONLY);
    kvt_try(read(in, text, 5));
    kvt_holds(strcmp(text, "hello") == 0 && waitpid(pid, NULL, 0) == pid);
}

static void talk_through_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    char text[8] = "";
    kvt_try(bind(server, (struct sockaddr *)&address, sizeof(address)));
    kvt_try(listen(server, 1));
    kvt_note_stat("socket");
    kvt_try(open("socket", O_RDONLY));
    kvt_try(connect(client, (struct sockaddr *)&address, sizeof(address)));
    int peer = accept(server, NULL, NULL);
    kvt_holds(write(client, "hello", 5) == 5 && read(peer, text, 5) == 5);
    kvt_try(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof(address)));
    kvt_try(unlink("socket"));
}

static void make_devices(void)
{
    kvt_try(mknod("zero", S_IFCHR | 0666, makedev(1, 5)));
    kvt_try(mknod("loop", S_IFBLK | 0660, makedev(7, 250)));
    kvt_try(mknod("regular", S_IFREG | 0640, 0));
    kvt_try(mknod("untyped", 0604, 0));
    kvt_try(mknod("directory", S_IFDIR | 0755, 0));
    kvt_note_stat("zero");
    kvt_note_stat("loop");
    kvt_note_stat("regular");
    kvt_note_stat("untyped");
    kvt_try(truncate("zero", 0));
    kvt_try(rename("zero", "moved"));
    kvt_note_stat("moved");
    kvt_try(chmod("moved", 0600));
    kvt_try(unlink("moved"));
}

static void see_special_files(void)
{
    talk_through_fifo();
    talk_through_socket();
    make_devices();
    kvt_as(1000, 1000, make_devices);
}

static void c19_special_files(void **state)
{
    kvt_same_as_below(*state, see_special_files);
}

/* ---- rename ---- */

static void see_renames(void)
{
    char byte;
    kvt_make("a", "of a");
    kvt_make("b", "of b!");
    int a = open("a", O_RDWR), b = open("b", O_RDWR);
    kvt_try(rename("a", "b")); // over an open file
    kvt_try(access("a", F_OK));
    kvt_note_content("b");
    kvt_note_fstat(a);
    kvt_note_fstat(b); // no links
    kvt_try(pread(b, &byte, 1, 3));
    kvt_holds(byte == 'b');
    kvt_try(pwrite(b, "X", 1, 0));
    kvt_try(pwrite(a, "Y", 1, 0));
    kvt_note_content("b");
    kvt_holds(close(b) == 0 && close(a) == 0);

    kvt_make("c", "of c");
    kvt_try(renameat2(AT_FDCWD, "c", AT_FDCWD, "b", RENAME_NOREPLACE));
    kvt_try(renameat2(AT_FDCWD, "c", AT_FDCWD, "new", RENAME_NOREPLACE));
    kvt_try(renameat2(AT_FDCWD, "c", AT_FDCWD, "b", RENAME_EXCHANGE));
    kvt_try(renameat2(AT_FDCWD, "new", AT_FDCWD, "b", RENAME_EXCHANGE));
    kvt_note_content("new");
    kvt_note_content("b");
    kvt_try(renameat2(AT_FDCWD, "new", AT_FDCWD, "b", RENAME_EXCHANGE | RENAME_NOREPLACE));
    kvt_try(renameat2(AT_FDCWD, "new", AT_FDCWD, "b", 1U << 10));
    kvt_holds(mkdir("dir", 0755) == 0);
    kvt_make("dir/x", "of x");
    kvt_try(renameat2(AT_FDCWD, "dir", AT_FDCWD, "b", RENAME_EXCHANGE)); // with a directory
    kvt_note_content("b/x");
    kvt_note_content("dir");
    kvt_try(renameat2(AT_FDCWD, "b/x", AT_FDCWD, "b", RENAME_EXCHANGE));
}

static void c19_renames_and_their_flags(void **state)
{
    kvt_same_as_below(*state, see_renames);
}

static void see_moved_directories(void)
{
    char text[8] = "";
    kvt_holds(mkdir("from", 0755) == 0 && mkdir("from/sub", 0755) == 0 && mkdir("to", 0755) == 0);
    kvt_make("from/sub/file", "inside");
    int file = open("from/sub/file", O_RDWR), sub = open("from/sub", O_RDONLY | O_DIRECTORY);
    kvt_holds(chdir("from/sub") == 0);
    kvt_try(rename("../../from", "../../to/moved"));
    kvt_note_content("file"); // from inside
    kvt_note_content("../../../to/moved/sub/file");
    kvt_note_stat("../../../from");
    kvt_try(pwrite(file, "I", 1, 0));
    kvt_try(openat(sub, "new", O_CREAT | O_WRONLY, 0644));
    kvt_note_stat("../../../to/moved/sub/new");
    kvt_try(rename("../../../to/moved", "../../../to/again"));
    kvt_note_content("file");
    kvt_holds(chdir("../../..") == 0);
    kvt_try(unlink("to/again/sub/file"));
    kvt_try(unlinkat(sub, "new", 0));
    kvt_try(rmdir("to/again/sub"));
    kvt_try(openat(sub, "more", O_CREAT | O_WRONLY, 0644)); // it is gone
    kvt_try(mkdirat(sub, "more", 0755));
    kvt_try(pread(file, text, 6, 0));
    kvt_holds(strcmp(text, "Inside") == 0);
    kvt_holds(mkdir("empty", 0755) == 0 && mkdir("other", 0755) == 0);
    kvt_try(rename("empty", "other")); // over an empty directory
    kvt_note_stat("empty");
}

static void c19_directories_move_with_all_that_is_open_below(void **state)
{
    kvt_same_as_below(*state, see_moved_directories);
}

/* ---- no name, and no name yet ---- */

static void see_unlinked_file(void)
{
    char text[16] = "", path[64];
    kvt_make("file", "0123456789");
    int fd = open("file", O_RDWR), second = open("file", O_RDONLY);
    kvt_try(unlink("file"));
    kvt_note_stat("file");
    kvt_note_fstat(fd);
    kvt_try(pread(fd, text, 10, 0));
    kvt_try(pwrite(fd, "abc", 3, 8));
    kvt_try(pread(second, text, 16, 0));
    kvt_holds(memcmp(text, "01234567abc", 12) == 0);
    kvt_try(ftruncate(fd, 4));
    kvt_note_fstat(second);
    kvt_try(fchmod(fd, 0600));
    kvt_try(fchown(fd, 5, 6));
    kvt_try(futimens(fd, NULL));
    kvt_try(fsync(fd));
    kvt_try(posix_fallocate(fd, 0, 100));
    kvt_note_fstat(fd);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    kvt_try(open(path, O_RDWR));
    kvt_note_content(path);
    kvt_try(linkat(AT_FDCWD, path, AT_FDCWD, "again", AT_SYMLINK_FOLLOW));
    kvt_make("file", "another one");
    kvt_note_content("file");
    kvt_note_fstat(fd);
    kvt_try(close(fd));
    kvt_try(close(second));
}

static void c19_open_files_without_a_name(void **state)
{
    kvt_same_as_below(*state, see_unlinked_file);
}

static void see_tmpfile(void)
{
    char path[64];
    int fd = (int)kvt_try(open(".", O_TMPFILE | O_RDWR, 0640));
    kvt_note_fstat(fd);
    kvt_try(write(fd, "nameless", 8));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    kvt_note_content(path);
    kvt_try(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    kvt_note_stat("named");
    kvt_note_content("named");
    kvt_try(linkat(fd, "", AT_FDCWD, "named too", AT_EMPTY_PATH));
    kvt_note_fstat(fd);
    kvt_try(close(fd));
    fd = (int)kvt_try(open(".", O_TMPFILE | O_WRONLY | O_EXCL, 0600));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    kvt_try(linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
    kvt_try(open(".", O_TMPFILE | O_RDONLY, 0600));
    kvt_try(open("named", O_TMPFILE | O_RDWR, 0600));
    kvt_try(open("no", O_TMPFILE | O_RDWR, 0600));
}

static void c19_files_that_get_a_name_later(void **state)
{
    struct kvt_env *env = *state;
    kvt_same_as_below(env, see_tmpfile);
    kvt_assert_sealed(kvt_src(env, KVT_MOUNTED "/named"));
}

/* ---- changes from below ---- */

static void c19_what_was_not_there_is_found_once_it_is(void **state)
{
    struct kvt_env *env = *state;
    kvt_assert_errno(ENOENT, access(kvt_mnt(env, "later"), F_OK));
    kvt_assert_errno(ENOENT, open(kvt_mnt(env, "later"), O_RDONLY));
    assert_int_equal(kvt_write_file(kvt_src(env, "later"), KVT_CREATE, 5000, 1, 0), 0);
    assert_int_equal(kvt_load(env, "later", 5000, 1, 0), 0); // now, not after a time-out

    assert_int_equal(unlink(kvt_src(env, "later")), 0);
    kvt_wait_for(kvt_is_gone(kvt_mnt(env, "later")));
    assert_int_equal(mkdir(kvt_src(env, "later"), 0755), 0); // of another kind now
    kvt_wait_for(mkdir(kvt_mnt(env, "later/inside"), 0755) == 0);

    assert_int_equal(rename(kvt_src(env, "later"), kvt_src(env, "moved")), 0);
    assert_int_equal(access(kvt_mnt(env, "moved/inside"), F_OK), 0);
    kvt_wait_for(kvt_is_gone(kvt_mnt(env, "later")));
}

static void c19_a_file_replaced_from_below_is_the_new_one(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 5000, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", 5000, 1, 0), 0);
    assert_int_equal(kvt_write_file(kvt_src(env, "b"), KVT_CREATE, 7000, 2, 0), 0);
    assert_int_equal(rename(kvt_src(env, "b"), kvt_src(env, "a")), 0);
    struct stat st, below;
    assert_int_equal(stat(kvt_src(env, "a"), &below), 0);
    kvt_wait_for(stat(kvt_mnt(env, "a"), &st) == 0 && st.st_ino == below.st_ino);
    assert_int_equal(kvt_load(env, "a", 7000, 2, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c19_the_same_errors),
        kvt_test(c19_the_same_open_flags),
        kvt_test(c19_names_of_255_bytes_and_of_any_bytes),
        kvt_test(c19_paths_deeper_than_a_path_can_say),
        kvt_test(c19_symbolic_links),
        kvt_test(c19_hard_links),
        kvt_test(c19_special_files),
        kvt_test(c19_renames_and_their_flags),
        kvt_test(c19_directories_move_with_all_that_is_open_below),
        kvt_test(c19_open_files_without_a_name),
        kvt_test(c19_files_that_get_a_name_later),
        kvt_test(c19_what_was_not_there_is_found_once_it_is),
        kvt_test(c19_a_file_replaced_from_below_is_the_new_one),
    };
    return kvt_main("posix names", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS | KVT_DIR);
}
