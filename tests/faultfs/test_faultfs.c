// SPDX-License-Identifier: Apache-2.0
// faultfs passes through what it should, and fails exactly where it is told to.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FILE_SIZE    ((size_t)3 * 1024 * 1024)
#define PATIENCE_SEC 20

static char base[256];
static char source[300];
static char mountpoint[300];
static pid_t daemon_pid;
static int control = -1;

/* ---- the mount ---- */

static int start_daemon(void **state)
{
    int out[2];
    char ready[8] = "";
    const char *tmp = getenv("TMPDIR");
    snprintf(base, sizeof(base), "%s/faultfs-test.XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(base));
    snprintf(source, sizeof(source), "%s/source", base);
    snprintf(mountpoint, sizeof(mountpoint), "%s/mount", base);
    assert_int_equal(mkdir(source, 0755), 0);
    assert_int_equal(mkdir(mountpoint, 0755), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    daemon_pid = fork();
    if (daemon_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); // a test that is killed leaves no mount
        dup2(out[1], STDOUT_FILENO);
        execl(FAULTFS_PROGRAM, "faultfs", source, mountpoint, NULL);
        _exit(127);
    }
    close(out[1]);
    assert_int_equal(read(out[0], ready, sizeof(ready) - 1), 6);
    close(out[0]);
    assert_string_equal(ready, "ready\n");
    assert_int_equal(chdir(mountpoint), 0);
    control = open(".faultfs", O_RDWR | O_CLOEXEC);
    assert_true(control >= 0);
    return 0;
}

/* The daemon's exit status. One that does not end in time is killed, to free who waits for it. */
static int end_daemon(void)
{
    int status = -1;
    assert_int_equal(kill(daemon_pid, SIGTERM), 0);
    for (int i = 0; i < PATIENCE_SEC * 100; i++) {
        if (waitpid(daemon_pid, &status, WNOHANG) == daemon_pid) {
            daemon_pid = 0;
            return status;
        }
        usleep(10000);
    }
    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, &status, 0);
    daemon_pid = 0;
    return status;
}

static int stop_daemon(void **state)
{
    char command[300];
    close(control);
    assert_int_equal(chdir("/"), 0);
    int status = daemon_pid ? end_daemon() : 0;
    umount2(mountpoint, MNT_DETACH);
    snprintf(command, sizeof(command), "rm -rf --one-file-system %s", base);
    assert_int_equal(system(command), 0);
    return status;
}

static void order(const char *commands)
{
    assert_int_equal(write(control, commands, strlen(commands)), strlen(commands));
}

static bool report_has(const char *line)
{
    char report[4096] = "\n";
    ssize_t length = pread(control, report + 1, sizeof(report) - 2, 0);
    assert_true(length > 0);
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "\n%s\n", line);
    return strstr(report, wanted) != NULL;
}

static void wait_for_report(const char *line)
{
    for (int i = 0; i < PATIENCE_SEC * 100; i++) {
        if (report_has(line))
            return;
        usleep(10000);
    }
    fail_msg("the report never had: %s", line);
}

#define assert_errno(expected, call)                                                               \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_int_equal(call, -1);                                                                \
        assert_int_equal(errno, expected);                                                         \
    } while (0)

/* ---- files ---- */

static void make_file(const char *name)
{
    char *data = malloc(FILE_SIZE);
    assert_non_null(data);
    for (size_t i = 0; i < FILE_SIZE; i++)
        data[i] = (char)(i * 31 + i / 4096);
    int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, FILE_SIZE), FILE_SIZE);
    assert_int_equal(close(fd), 0);
    free(data);
}

/* How many bytes of the file are not what make_file wrote. */
static size_t count_wrong_bytes(const char *name)
{
    char *data = calloc(1, FILE_SIZE);
    assert_non_null(data);
    int fd = open(name, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, data, FILE_SIZE), FILE_SIZE);
    close(fd);
    size_t wrong = 0;
    for (size_t i = 0; i < FILE_SIZE; i++)
        wrong += data[i] != (char)(i * 31 + i / 4096);
    free(data);
    return wrong;
}

static void passes_names_through(void **state)
{
    char target[8] = "";
    struct stat a;
    struct stat b;
    assert_int_equal(mkdir("dir", 0750), 0);
    make_file("dir/a");
    make_file("b");
    assert_errno(EEXIST, renameat2(AT_FDCWD, "dir/a", AT_FDCWD, "b", RENAME_NOREPLACE));
    assert_int_equal(renameat2(AT_FDCWD, "dir/a", AT_FDCWD, "b", RENAME_EXCHANGE), 0);
    assert_int_equal(rename("dir/a", "c"), 0);
    assert_int_equal(link("c", "d"), 0);
    assert_int_equal(stat("c", &a), 0);
    assert_int_equal(stat("d", &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    assert_int_equal(b.st_nlink, 2);
    assert_int_equal(symlink("c", "s"), 0);
    assert_int_equal(readlink("s", target, sizeof(target)), 1);
    assert_string_equal(target, "c");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(rmdir("dir"), 0);
    assert_int_equal(access("dir", F_OK), -1);

    int fd = open(".", O_TMPFILE | O_WRONLY, 0644);
    assert_true(fd >= 0);
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert_int_equal(linkat(AT_FDCWD, path, AT_FDCWD, "t", AT_SYMLINK_FOLLOW), 0);
    close(fd);
    assert_int_equal(unlink("t"), 0);
}

static void lists_all_but_the_control_file(void **state)
{
    size_t count = 0;
    for (int i = 0; i < 2000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "a-name-of-some-length-%d", i);
        assert_int_equal(mknod(name, S_IFREG | 0600, 0), 0);
    }
    DIR *dir = opendir(".");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        assert_string_not_equal(entry->d_name, ".faultfs");
        count++;
    }
    assert_int_equal(fsync(dirfd(dir)), 0);
    closedir(dir);
    assert_int_equal(count, 2002);
}

static void passes_attributes_through(void **state)
{
    struct stat attr;
    struct statvfs stats;
    char value[8] = "";
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_nsec = UTIME_OMIT}};
    make_file("a");
    assert_int_equal(chmod("a", 0604), 0);
    assert_int_equal(chown("a", 12, 34), 0);
    assert_int_equal(utimensat(AT_FDCWD, "a", times, 0), 0);
    assert_int_equal(truncate("a", 100), 0);
    assert_int_equal(stat("a", &attr), 0);
    assert_int_equal(attr.st_mode & 07777, 0604);
    assert_int_equal(attr.st_uid, 12);
    assert_int_equal(attr.st_gid, 34);
    assert_int_equal(attr.st_atime, 1000);
    assert_true(attr.st_mtime > 1000);
    assert_int_equal(attr.st_size, 100);
    assert_int_equal(setxattr("a", "user.x", "12345", 5, 0), 0);
    assert_int_equal(getxattr("a", "user.x", value, sizeof(value)), 5);
    assert_string_equal(value, "12345");
    assert_errno(ERANGE, getxattr("a", "user.x", value, 2));
    assert_int_equal(listxattr("a", value, sizeof(value)), 7);
    assert_int_equal(removexattr("a", "user.x"), 0);
    assert_errno(ENODATA, getxattr("a", "user.x", value, sizeof(value)));
    assert_int_equal(statvfs(".", &stats), 0);
    assert_true(stats.f_blocks > 0);
}

static void passes_content_through(void **state)
{
    struct stat attr;
    loff_t from = 0;
    loff_t to = 4096;
    make_file("a");
    assert_int_equal(count_wrong_bytes("a"), 0);
    int in = open("a", O_RDONLY);
    int out = open("b", O_CREAT | O_RDWR, 0600);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(copy_file_range(in, &from, out, &to, 4096, 0), 4096);
    assert_int_equal(lseek(out, 0, SEEK_DATA), 4096);
    assert_int_equal(fallocate(out, 0, 0, 12288), 0);
    assert_int_equal(fsync(out), 0);
    assert_int_equal(unlink("b"), 0);
    assert_int_equal(fstat(out, &attr), 0);
    assert_int_equal(attr.st_size, 12288);
    assert_int_equal(attr.st_nlink, 0);
    assert_int_equal(ftruncate(out, 10), 0);
    close(in);
    close(out);
}

static void fails_the_nth_call_and_no_other(void **state)
{
    make_file("a");
    int fd = open("a", O_RDWR);
    order("clear\nwrite 3 errno 28\nsetxattr 1 errno 95\n");
    for (int i = 1; i <= 5; i++) {
        if (i == 3)
            assert_errno(ENOSPC, pwrite(fd, "x", 1, i));
        else
            assert_int_equal(pwrite(fd, "x", 1, i), 1);
    }
    assert_errno(EOPNOTSUPP, fsetxattr(fd, "user.x", "1", 1, 0));
    assert_int_equal(fsetxattr(fd, "user.x", "1", 1, 0), 0);
    assert_true(report_has("write 5"));
    assert_true(report_has("setxattr 2"));
    assert_true(report_has("hit 1"));
    order("clear\n");
    assert_true(report_has("write 0"));
    assert_true(report_has("hit 0"));
    close(fd);
}

static void fails_the_nth_call_of_any_kind(void **state)
{
    make_file("a");
    int fd = open("a", O_RDWR);
    order("clear\nany 3 errno 5\n");
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    assert_int_equal(fsync(fd), 0);
    assert_errno(EIO, fremovexattr(fd, "user.x"));
    assert_errno(ENODATA, fremovexattr(fd, "user.x"));
    close(fd);
}

static void flush_errors_reach_close(void **state)
{
    make_file("a");
    int fd = open("a", O_RDWR);
    order("flush 1 errno 122\n");
    assert_errno(EDQUOT, close(fd));
}

static void shortens_one_read_or_write(void **state)
{
    char data[8192] = "";
    make_file("a");
    int fd = open("a", O_RDWR);
    order("read 2 short 4096\nwrite 1 short 512\n");
    assert_int_equal(pread(fd, data, sizeof(data), 0), sizeof(data));
    assert_int_equal(pread(fd, data, sizeof(data), 0), 4096);
    assert_int_equal(pread(fd, data, sizeof(data), 0), sizeof(data));
    assert_int_equal(pwrite(fd, data, sizeof(data), 0), 512);
    assert_int_equal(pwrite(fd, data, sizeof(data), 0), sizeof(data));
    close(fd);
}

static void flips_a_bit_in_one_read(void **state)
{
    make_file("a");
    order("clear\nread 2 flip 2500000\n");
    assert_int_equal(count_wrong_bytes("a"), 0);
    assert_true(report_has("hit 0"));
    assert_int_equal(count_wrong_bytes("a"), 1);
    assert_true(report_has("hit 1"));
    assert_int_equal(count_wrong_bytes("a"), 0);
}

static void rot_stays_until_cleared(void **state)
{
    char path[320];
    make_file("a");
    snprintf(path, sizeof(path), "%s/a", source);
    order("read 2 flip-always 0\n");
    assert_int_equal(count_wrong_bytes("a"), 0);
    assert_int_equal(count_wrong_bytes("a"), 1);
    assert_int_equal(count_wrong_bytes("a"), 1);
    assert_int_equal(count_wrong_bytes(path), 0);
    order("clear\n");
    assert_int_equal(count_wrong_bytes("a"), 0);
}

static void *write_one_byte(void *fd)
{
    return pwrite(*(int *)fd, "x", 1, 0) == 1 ? NULL : fd;
}

static void a_hung_call_waits_for_its_release(void **state)
{
    pthread_t thread;
    void *failed = NULL;
    make_file("a");
    int fd = open("a", O_RDWR);
    order("clear\nwrite 1 hang\n");
    assert_int_equal(pthread_create(&thread, NULL, write_one_byte, &fd), 0);
    wait_for_report("hit 1");
    assert_int_equal(access("a", F_OK), 0); // others go on
    assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
    order("release\n");
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    close(fd);
}

static void sigterm_ends_hung_calls_and_unmounts(void **state)
{
    pthread_t thread;
    void *failed = NULL;
    struct stat outside;
    struct stat inside;
    make_file("a");
    int fd = open("a", O_RDWR);
    order("clear\nwrite 1 hang\n");
    assert_int_equal(pthread_create(&thread, NULL, write_one_byte, &fd), 0);
    wait_for_report("hit 1");
    assert_int_equal(end_daemon(), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_non_null(failed);
    close(fd);
    assert_int_equal(stat(base, &outside), 0);
    assert_int_equal(stat(mountpoint, &inside), 0);
    assert_int_equal(outside.st_dev, inside.st_dev);
}

static void refuses_bad_commands(void **state)
{
    const char *bad[] = {"nonsense",        "write",           "write 1",
                         "write 0 errno 5", "write 1 errno",   "write 1 errno 0",
                         "poke 1 errno 5",  "fsync 1 short 1", "write 1 flip 0",
                         "any 1 short 1",   "write 1 hang 3",  "write 1 explode 2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_errno(EINVAL, write(control, bad[i], strlen(bad[i])));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_daemon, stop_daemon)

int main(void)
{
    if (access("/dev/fuse", R_OK | W_OK) != 0) {
        fprintf(stderr, "skipped: /dev/fuse cannot be used here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(passes_names_through),
        TEST(lists_all_but_the_control_file),
        TEST(passes_attributes_through),
        TEST(passes_content_through),
        TEST(fails_the_nth_call_and_no_other),
        TEST(fails_the_nth_call_of_any_kind),
        TEST(flush_errors_reach_close),
        TEST(shortens_one_read_or_write),
        TEST(flips_a_bit_in_one_read),
        TEST(rot_stays_until_cleared),
        TEST(a_hung_call_waits_for_its_release),
        TEST(sigterm_ends_hung_calls_and_unmounts),
        TEST(refuses_bad_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
