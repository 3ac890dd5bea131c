// SPDX-License-Identifier: Apache-2.0
// Names and inode numbers that are used again at once, where files are found by name: a daemon
// without CAP_DAC_READ_SEARCH, which may open no file handle.
#include "tests/mount/fixture.h"

#include <dirent.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CLIENTS 6
#define ROUNDS  (KVT_IS_SANITIZED ? 150 : 600)
#define NAMES   3

/* ---- many clients ---- */

/* Of a client process: 0 is success. The paths are relative to the working directory. */
typedef int run_client(unsigned client);

/* Runs the client CLIENTS times at once, in this directory. */
static void run_clients(run_client *run, const char *directory)
{
    pid_t pids[CLIENTS];
    int status, failed = 0;

    for (unsigned i = 0; i < CLIENTS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(chdir(directory) == 0 ? run(i) : 2);
        }
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        failed += status != 0;
    }
    if (failed > 0)
        fail_msg("%d clients of %d failed", failed, CLIENTS);
}

static int make_dir(const char *name)
{
    return mkdir(name, 0755);
}

/* What was written through a descriptor is read through it, whoever has the name meanwhile. */
static int make_file(const char *name)
{
    static unsigned count;
    unsigned written[2] = {(unsigned)getpid(), ++count}, read[2] = {0};
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0)
        return -1;
    bool is_mine = pwrite(fd, written, sizeof(written), 0) == sizeof(written) &&
                   pread(fd, read, sizeof(read), 0) == sizeof(read) &&
                   memcmp(written, read, sizeof(read)) == 0;
    if (close(fd) != 0)
        return -1;
    errno = EBADE;
    return is_mine ? 0 : -1;
}

static int look(const char *name)
{
    struct stat st;

    return lstat(name, &st);
}

/* An open directory works, also when it is removed meanwhile. */
static int list(const char *name)
{
    char entries[1024];
    struct stat st;
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    int result = fstat(fd, &st);
    if (result == 0 && getdents64(fd, entries, sizeof(entries)) < 0 && errno != ENOENT)
        result = -1;
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

/* Each call, below the directory of that name or not, with the errors that it has natively. */
static const struct {
    const char *what;
    int (*call)(const char *name);
    bool is_below;
    int errors[4];
} calls[] = {
    {"mkdir", make_dir, false, {EEXIST}},
    {"rmdir", rmdir, false, {ENOENT, ENOTDIR, ENOTEMPTY}},
    {"create", make_file, false, {EEXIST}},
    {"unlink", unlink, false, {ENOENT, EISDIR}},
    {"stat", look, false, {ENOENT}},
    {"list", list, false, {ENOENT, ENOTDIR}},
    {"mkdir below", make_dir, true, {ENOENT, ENOTDIR, EEXIST}},
    {"rmdir below", rmdir, true, {ENOENT, ENOTDIR}},
    {"create below", make_file, true, {ENOENT, ENOTDIR, EEXIST}},
    {"unlink below", unlink, true, {ENOENT, ENOTDIR, EISDIR}},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static bool is_native(size_t call, int error)
{
    for (size_t i = 0; i < 4; i++) {
        if (calls[call].errors[i] == error)
            return true;
    }
    return false;
}

static int contend(unsigned client)
{
    unsigned seed = client, odd = 0;
    char name[32];

    for (int i = 0; i < ROUNDS * 4; i++) {
        size_t call = (size_t)rand_r(&seed) % CALLS;
        snprintf(name, sizeof(name), "n%d%s", rand_r(&seed) % NAMES,
                 calls[call].is_below ? "/below" : "");
        if (calls[call].call(name) == 0 || is_native(call, errno))
            continue;
        print_error("%s %s: %s\n", calls[call].what, name, strerror(errno));
        odd++;
    }
    return odd > 0;
}

/* Each client has names of its own: whatever is in its way is its own. */
static int keep_to_oneself(unsigned client)
{
    char dir[32], below[64];

    for (int i = 0; i < ROUNDS; i++) {
        snprintf(dir, sizeof(dir), "own%u", client);
        snprintf(below, sizeof(below), "%s/below", dir);
        const char *failed = make_dir(dir) != 0     ? "mkdir"
                             : make_file(below) < 0 ? "create below"
                             : list(dir) != 0       ? "list"
                             : unlink(below) != 0   ? "unlink below"
                             : make_dir(below) != 0 ? "mkdir below"
                             : rmdir(below) != 0    ? "rmdir below"
                             : rmdir(dir) != 0      ? "rmdir"
                             : make_file(dir) != 0  ? "create"
                             : look(dir) != 0       ? "stat"
                             : unlink(dir) != 0     ? "unlink"
                                                    : NULL;
        if (failed) {
            print_error("%s of round %d: %s\n", failed, i, strerror(errno));
            return 1;
        }
    }
    return 0;
}

static void c19_names_of_ones_own_never_fail(void **state)
{
    run_clients(keep_to_oneself, kvt_mnt(*state, ""));
}

static void c19_the_same_names_give_what_they_give_natively(void **state)
{
    struct kvt_env *env = *state;

    run_clients(contend, kvt_src(env, "")); /* so that the table above is right */
    kvt_fresh_dir(env);
    run_clients(contend, kvt_mnt(env, ""));
}

/* Each use of a name is a look-up of its own, beside whatever happens to the name. */
static void c19_nor_is_that_a_matter_of_what_the_kernel_remembers(void **state)
{
    struct kvt_env *env = *state;

    kvt_start(env, "entry_timeout=0,attr_timeout=0");
    run_clients(contend, kvt_mnt(env, ""));
    run_clients(keep_to_oneself, kvt_mnt(env, ""));
}

/* ---- one after the other ---- */

/* A directory that is gone stays so for who is in it, whatever has its number now. */
static void check_removed_directory(const char *directory)
{
    struct stat old, new;

    assert_int_equal(chdir(directory), 0);
    assert_int_equal(make_dir("d"), 0);
    int fd = kvt_open("d", O_PATH | O_DIRECTORY);
    assert_int_equal(chdir("d"), 0);
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/d", directory);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(make_dir(path), 0);
    kvt_assert_errno(ENOENT, make_dir("x"));
    kvt_assert_errno(ENOENT, make_file("x"));
    kvt_assert_errno(ENOENT, mkdirat(fd, "x", 0755));
    assert_int_equal(fstat(fd, &old), 0);
    assert_int_equal(stat(path, &new), 0);
    assert_true(old.st_ino != new.st_ino || old.st_nlink != new.st_nlink);

    snprintf(path, sizeof(path), "%s/d/x", directory);
    assert_int_equal(make_file(path), 0);
    kvt_assert_errno(ENOENT, look("x"));
    kvt_assert_errno(ENOENT, faccessat(fd, "x", F_OK, 0));
    assert_int_equal(chdir("/"), 0);
    close(fd);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/d", directory);
    assert_int_equal(rmdir(path), 0);
}

static void c19_a_removed_directory_is_not_the_next_one(void **state)
{
    struct kvt_env *env = *state;

    for (int i = 0; i < 20; i++) {
        check_removed_directory(kvt_src(env, ""));
        check_removed_directory(kvt_mnt(env, ""));
    }
}

/* Nor is a removed file: who refers to it gets it, or nothing. */
static void check_removed_file(const char *old_name, const char *new_name)
{
    char self[64];
    struct stat st;

    assert_int_equal(kvt_write_file(old_name, KVT_CREATE, 1000, 1, 0), 0);
    int fd = kvt_open(old_name, O_PATH);
    assert_int_equal(unlink(old_name), 0);
    assert_int_equal(kvt_write_file(new_name, KVT_CREATE, 2000, 2, 0), 0);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    int opened = open(self, O_RDONLY | O_CLOEXEC);
    if (opened >= 0) {
        assert_int_equal(fstat(opened, &st), 0);
        assert_int_equal(st.st_size, 1000);
        close(opened);
    } else {
        assert_int_equal(errno, ESTALE);
    }
    close(fd);
    assert_int_equal(kvt_load_path(new_name, 2000, 2, 0), 0);
    assert_int_equal(unlink(new_name), 0);
}

static void c19_a_removed_file_is_not_the_next_one(void **state)
{
    struct kvt_env *env = *state;

    for (int i = 0; i < 20; i++) {
        check_removed_file(kvt_src(env, "a"), kvt_src(env, "a"));
        check_removed_file(kvt_mnt(env, "a"), kvt_mnt(env, "a"));
        check_removed_file(kvt_mnt(env, "a"), kvt_mnt(env, "b"));
    }
}

/* A block that was taken away for being corrupt, and stored again. */
static void c13_a_removed_block_is_not_the_next_one(void **state)
{
    struct kvt_env *env = *state;
    char self[64];

    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(kvt_store(env, "a", 5000, 1, 0), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), O_PATH);
        kvt_flip(kvt_src(env, "a"), 99);
        assert_int_equal(kvt_load(env, "a", 5000, 1, 0), -EBADMSG);
        kvt_assert_gone(env, "a");
        assert_int_equal(kvt_store(env, "a", 5000, 2, 0), 0);
        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        int opened = open(self, O_RDONLY | O_CLOEXEC);
        assert_int_equal(opened, -1);
        close(fd);
        assert_int_equal(kvt_load(env, "a", 5000, 2, 0), 0);
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
}

/* What the tests above rest on. */
static void files_are_found_by_name(void **state)
{
    assert_true(kvt_log_contains(*state, "DAC_READ_SEARCH (files found by name, not by handle)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(files_are_found_by_name),
        kvt_test(c19_the_same_names_give_what_they_give_natively),
        kvt_test(c19_names_of_ones_own_never_fail),
        kvt_test(c19_nor_is_that_a_matter_of_what_the_kernel_remembers),
        kvt_test(c19_a_removed_directory_is_not_the_next_one),
        kvt_test(c19_a_removed_file_is_not_the_next_one),
        kvt_test(c13_a_removed_block_is_not_the_next_one),
    };
    if (prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH) != 0) { /* for whoever is started */
        perror("CAP_DAC_READ_SEARCH");
        return 1;
    }
    return kvt_main("names used again", tests, sizeof(tests) / sizeof(tests[0]),
                    KVT_DISKS | KVT_FAULTFS);
}
