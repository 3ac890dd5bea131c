// SPDX-License-Identifier: Apache-2.0
// C22 and C23: what a mount reaches, how it ends, and what is left when somebody is killed; and
// living with too little of everything.
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* ---- a second daemon ---- */

/* An environment of its own in the work directory of `env`: WORK/NAME-source, WORK/NAME-mnt. */
static struct kvt_env *second_env(struct kvt_env *env, const char *name)
{
    static struct kvt_env second;
    second = (struct kvt_env){.kind = KVT_DIR, .fault_fd = -1};
    snprintf(second.work, sizeof(second.work), "%s", env->work);
    snprintf(second.source, sizeof(second.source), "%s/%s-source", env->work, name);
    snprintf(second.under, sizeof(second.under), "%s", second.source);
    snprintf(second.mnt, sizeof(second.mnt), "%s/%s-mnt", env->work, name);
    snprintf(second.log, sizeof(second.log), "%s/%s-log", env->work, name);
    assert_int_equal(mkdir(second.source, 0755), 0);
    assert_int_equal(mkdir(second.mnt, 0755), 0);
    strcpy(second.dir, ".");
    return &second;
}

/* ---- C22 ---- */

static void c22_serves_a_directory_on_itself(void **state)
{
    struct kvt_env *second = second_env(*state, "itself");
    char beside[PATH_MAX]; // another way to the real directory
    strcpy(beside, second->source);
    strcpy(second->source, second->mnt);
    assert_int_equal(kvt_write_file(kvt_src(second, "old"), KVT_CREATE, 5000, 1, 0), 0);
    assert_int_equal(mount(second->mnt, beside, NULL, MS_BIND, NULL), 0);

    kvt_start(second, NULL);
    assert_int_equal(kvt_load(second, "old", 5000, 1, 0), 0);
    assert_int_equal(kvt_store(second, "new", MIB, 2, 0), 0);
    assert_int_equal(kvt_load(second, "new", MIB, 2, 0), 0);
    kvt_kill(second);
    kvt_start(second, NULL);
    assert_int_equal(kvt_load(second, "new", MIB, 2, 0), 0);
    kvt_stop(second);

    strcpy(second->source, beside);
    kvt_assert_sealed_block(second, "new", MIB, 2);
    kvt_assert_unsealed(kvt_src(second, "old"));
    assert_int_equal(umount2(beside, 0), 0);
}

/* DEEP/source is served, and DEEP/secret lies beside it. The mount is elsewhere, where the same
 * relative path leads to nothing: who reaches the secret was led there by the daemon. */
static struct kvt_env *env_with_secret(struct kvt_env *env, const char *name, char *secret)
{
    struct kvt_env *second = second_env(env, name);
    strcat(second->source, "/deep");
    assert_int_equal(mkdir(second->source, 0755), 0);
    snprintf(secret, PATH_MAX, "%s/%s-source/secret", env->work, name);
    assert_int_equal(mkdir(secret, 0755), 0);
    char file[2 * PATH_MAX];
    snprintf(file, sizeof(file), "%s/file", secret);
    assert_int_equal(kvt_write_file(file, KVT_CREATE, 100, 9, 0), 0);
    kvt_start(second, "entry_timeout=0,attr_timeout=0");
    return second;
}

static void c22_symbolic_links_resolve_in_the_client(void **state)
{
    struct kvt_env *env = *state;
    char secret[PATH_MAX], target[PATH_MAX];
    struct kvt_env *second = env_with_secret(env, "links", secret);
    assert_int_equal(symlink("../secret/file", kvt_src(second, "relative")), 0);
    assert_int_equal(symlink("../secret", kvt_mnt(second, "directory")), 0);
    assert_int_equal(symlink("/proc/self/exe", kvt_mnt(second, "absolute")), 0);

    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "relative"), O_RDONLY));
    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "relative"), O_RDWR | O_TRUNC));
    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "directory/file"), O_RDONLY));
    kvt_assert_errno(ENOENT, truncate(kvt_mnt(second, "relative"), 0));
    kvt_assert_errno(ELOOP, open(kvt_mnt(second, "relative"), O_RDONLY | O_NOFOLLOW));

    ssize_t length = readlink(kvt_mnt(second, "relative"), target, sizeof(target));
    assert_int_equal(length, strlen("../secret/file"));
    /* /proc/self is the client's own. */
    char self[PATH_MAX], client[PATH_MAX];
    length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length] = 0;
    assert_non_null(realpath(kvt_mnt(second, "absolute"), client));
    assert_string_equal(client, self);
    kvt_stop(second);
}

static void c22_a_directory_that_becomes_a_link_is_not_followed(void **state)
{
    struct kvt_env *env = *state;
    char secret[PATH_MAX];
    struct kvt_env *second = env_with_secret(env, "swap", secret);
    assert_int_equal(mkdir(kvt_src(second, "d"), 0755), 0);
    assert_int_equal(kvt_write_file(kvt_src(second, "d/file"), KVT_CREATE, 100, 1, 0), 0);
    int dir = kvt_open(kvt_mnt(second, "d"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(kvt_load(second, "d/file", 100, 1, 0), 0);

    assert_int_equal(rename(kvt_src(second, "d"), kvt_src(second, "e")), 0);
    assert_int_equal(symlink("../secret", kvt_src(second, "d")), 0);
    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "d/file"), O_RDONLY));
    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "d/new"), O_CREAT | O_WRONLY, 0644));
    int fd = openat(dir, "file", O_RDONLY); // what was `d`, or an error
    if (fd >= 0) {
        unsigned char byte, *block = kvt_block(100, 1);
        assert_int_equal(read(fd, &byte, 1), 1);
        assert_int_equal(byte, block[0]);
        free(block);
        close(fd);
    }
    fd = openat(dir, "new", O_CREAT | O_WRONLY, 0644);
    if (fd >= 0)
        close(fd);
    unlinkat(dir, "file", 0);
    assert_int_equal(kvt_count_names(secret), 1);
    close(dir);
    kvt_stop(second);
}

/* As with a bind mount: who is in there stays, but nobody finds in, or further out. */
static void c22_a_directory_that_is_moved_out_is_gone(void **state)
{
    struct kvt_env *env = *state;
    char secret[PATH_MAX], outside[2 * PATH_MAX];
    struct kvt_env *second = env_with_secret(env, "moved", secret);
    assert_int_equal(mkdir(kvt_src(second, "d"), 0755), 0);
    assert_int_equal(kvt_write_file(kvt_src(second, "d/file"), KVT_CREATE, 100, 1, 0), 0);
    int dir = kvt_open(kvt_mnt(second, "d"), O_RDONLY | O_DIRECTORY);
    snprintf(outside, sizeof(outside), "%s/d", secret);
    assert_int_equal(rename(kvt_src(second, "d"), outside), 0);

    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "d/file"), O_RDONLY));
    kvt_assert_errno(ENOENT, open(kvt_mnt(second, "d"), O_RDONLY));
    kvt_assert_errno(ENOENT, openat(dir, "../file", O_RDONLY));
    kvt_assert_errno(ENOENT, openat(dir, "../../secret/file", O_RDONLY));
    close(dir);
    kvt_stop(second);
}

static void c22_two_mounts_keep_apart(void **state)
{
    struct kvt_env *env = *state, *second = second_env(env, "two");
    kvt_start(second, NULL);
    assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
    assert_int_equal(kvt_store(second, "a", MIB, 2, 0), 0);
    assert_int_equal(kvt_load(env, "a", MIB, 1, 0), 0);
    assert_int_equal(kvt_load(second, "a", MIB, 2, 0), 0);
    kvt_assert_errno(EXDEV, rename(kvt_mnt(env, "a"), kvt_mnt(second, "b")));
    kvt_stop(second);
    assert_int_equal(kvt_load(env, "a", MIB, 1, 0), 0);
}

/* ---- C23 ---- */

/* One block closed, one being written, one with a writer that wrote nothing. */
static void end_while_writing(struct kvt_env *env, void (*end)(struct kvt_env *))
{
    assert_int_equal(kvt_store(env, "closed", MIB + 5, 1, 0), 0);
    assert_int_equal(kvt_store(env, "idle", 5000, 2, 0), 0);
    int idle = kvt_open(kvt_mnt(env, "idle"), O_WRONLY);
    int fd = kvt_open(kvt_mnt(env, "written"), KVT_CREATE);
    kvt_put(fd, MIB, 3, 0);
    end(env);
    close(fd);
    close(idle);
    kvt_assert_sealed_block(env, "closed", MIB + 5, 1);
    kvt_assert_sealed_block(env, "idle", 5000, 2);
    kvt_assert_unsealed(kvt_src(env, "written"));
    kvt_assert_block(kvt_src(env, "written"), MIB, 3);
    kvt_start(env, NULL);
    assert_int_equal(kvt_load(env, "closed", MIB + 5, 1, 0), 0);
    assert_int_equal(kvt_load(env, "written", MIB, 3, 0), 0);
}

/* Whatever asked the daemon to. */
static void await_end(struct kvt_env *env)
{
    pid_t daemon = env->daemon;
    int status;
    kvt_wait_for(waitpid(daemon, &status, WNOHANG) == daemon);
    env->daemon = 0;
    assert_int_equal(status, 0);
    assert_false(kvt_is_mounted(env->mnt));
}

static void interrupt(struct kvt_env *env)
{
    kill(env->daemon, SIGINT);
    await_end(env);
}

static void c23_sigterm_ends_it(void **state)
{
    end_while_writing(*state, kvt_stop);
}

static void c23_sigint_ends_it(void **state)
{
    end_while_writing(*state, interrupt);
}

/* umount(2) waits for nobody, but it lets no file be open. */
static void c23_umount_ends_it(void **state)
{
    struct kvt_env *env = *state;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(kvt_store(env, "a", MIB + 5, i, 0), 0);
        assert_int_equal(kvt_write_file(kvt_mnt(env, "b"), O_CREAT | O_WRONLY, 70000, i, 0), 0);
        kvt_stop_by_umount(env);
        kvt_assert_sealed_block(env, "a", MIB + 5, i);
        kvt_assert_sealed_block(env, "b", 70000, i);
        kvt_start(env, NULL);
    }
}

/* A lazy unmount serves who has files open to the end. */
static void c23_lazy_umount_seals_what_is_still_written(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    kvt_put(fd, MIB, 1, 0);
    assert_int_equal(umount2(env->mnt, MNT_DETACH), 0);
    kvt_put(fd, MIB, 2, 0);
    assert_int_equal(kvt_close(fd), 0);
    await_end(env);
    kvt_assert_sealed_block(env, "a", MIB, 2);
}

/* Stores blocks under new names until it is killed. */
static void store_without_end(struct kvt_env *env)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned i = 0;; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%u", i % 50);
        if (kvt_store(env, name, MIB + 100, i % 50, 0) != 0)
            _exit(1);
    }
}

/* What the kernel closes for a killed client is a temporary file; the final names are whole. */
static void c23_a_killed_client_leaves_whole_blocks(void **state)
{
    struct kvt_env *env = *state;
    unsigned kills = 0, blocks = 0;
    for (unsigned round = 0; round < 12; round++) {
        kvt_fresh_dir(env);
        pid_t pid = fork();
        if (pid == 0)
            store_without_end(env);
        kvt_wait_for(access(kvt_src(env, "0"), F_OK) == 0);
        usleep(round * 700);
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        kills += WIFSIGNALED(status);
        for (unsigned i = 0; i < 50; i++) {
            char name[32];
            snprintf(name, sizeof(name), "%u", i);
            int error = kvt_load(env, name, MIB + 100, i, 0);
            assert_true(error == 0 || error == -ENOENT);
            blocks += error == 0;
        }
    }
    assert_int_equal(kills, 12);
    assert_true(blocks >= 12);
}

/* ---- too little ---- */

/* C3: what has no room fails in the client, and what is there stays good. */
static void c03_a_full_disk_fails_the_store_alone(void **state)
{
    struct kvt_env *env = *state, *second = second_env(env, "full");
    assert_int_equal(mount("tmpfs", second->source, "tmpfs", 0, "mode=755,size=8m"), 0);
    kvt_start(second, NULL);
    assert_int_equal(kvt_store(second, "a", 4 * MIB, 1, 0), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(kvt_store(second, "b", 6 * MIB, 2, i % 2 ? KVT_DIRECT : 0), -ENOSPC);
        assert_true(kvt_is_gone(kvt_src(second, "b")));
        assert_int_equal(kvt_load(second, "a", 4 * MIB, 1, 0), 0);
    }
    assert_int_equal(kvt_store(second, "c", 3 * MIB, 3, 0), 0);
    kvt_remount(second); // also while there is little room
    assert_int_equal(unlink(kvt_mnt(second, "a")), 0);
    assert_int_equal(kvt_store(second, "b", 4 * MIB, 2, 0), 0);
    kvt_assert_sealed_block(second, "b", 4 * MIB, 2);
    kvt_stop(second);
    assert_int_equal(umount2(second->source, 0), 0);
}

#define HANDLES 150
#define NAMES   5000

static void c19_few_descriptors_suffice_for_many_names(void **state)
{
    struct kvt_env *env = *state;
    const struct rlimit few = {256, 256}; // of the daemon alone: nobody may raise it again
    char name[32];
    int fds[HANDLES];
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        assert_int_equal(close(kvt_open(kvt_src(env, name), KVT_CREATE)), 0);
    }
    kvt_remount(env);
    assert_int_equal(prlimit(env->daemon, RLIMIT_NOFILE, &few, NULL), 0);
    for (unsigned i = 0; i < 200; i++) { // and closed again
        snprintf(name, sizeof(name), "b%u", i);
        assert_int_equal(kvt_store(env, name, 5000, i, 0), 0);
    }
    for (unsigned i = 0; i < HANDLES; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        fds[i] = kvt_open(kvt_mnt(env, name), O_RDONLY);
    }
    for (unsigned i = 0; i < NAMES; i++) {
        struct stat st;
        snprintf(name, sizeof(name), "n%u", i);
        if (stat(kvt_mnt(env, name), &st) != 0)
            fail_msg("%s: %s", name, strerror(errno));
    }
    assert_int_equal(kvt_count_names(kvt_mnt(env, "")), NAMES + 200);
    for (unsigned i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        assert_int_equal(kvt_load(env, name, 5000, i, 0), 0);
    }
    for (unsigned i = 0; i < HANDLES; i++)
        close(fds[i]);
    kvt_stop(env); // the next test has its own
}

/* ---- names in the log ---- */

static void c19_the_log_escapes_names(void **state)
{
    static const char *const names[][2] = {
        {"new\nline", "new\\x0aline"},
        {"bad\xff\xfe", "bad\\xff\\xfe"},
        {"esc\x1b[31m", "esc\\x1b[31m"},
        {"quote\"back\\slash", "quote\\x22back\\x5cslash"},
    };
    struct kvt_env *env = *state;
    char longest[NAME_MAX + 1] = {0};
    memset(longest, 'x', NAME_MAX);
    kvt_remount(env); // with an empty log
    for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
        bool is_last = i == sizeof(names) / sizeof(names[0]);
        const char *name = is_last ? longest : names[i][0],
                   *shown = is_last ? longest : names[i][1];
        assert_int_equal(kvt_write_file(kvt_mnt(env, name), KVT_CREATE, 5000, 1, 0), 0);
        kvt_assert_sealed_block(env, name, 5000, 1);
        kvt_flip(kvt_src(env, name), 100);
        assert_int_equal(kvt_load(env, name, 5000, 1, 0), -EBADMSG);
        kvt_assert_gone(env, name);
        assert_true(kvt_log_has(env, shown));
    }
    assert_false(kvt_log_has(env, "new\nline"));
    assert_false(kvt_log_has(env, "\x1b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c22_serves_a_directory_on_itself),
        kvt_test(c22_symbolic_links_resolve_in_the_client),
        kvt_test(c22_a_directory_that_becomes_a_link_is_not_followed),
        kvt_test(c22_a_directory_that_is_moved_out_is_gone),
        kvt_test(c22_two_mounts_keep_apart),
        kvt_test(c23_sigterm_ends_it),
        kvt_test(c23_sigint_ends_it),
        kvt_test(c23_umount_ends_it),
        kvt_test(c23_lazy_umount_seals_what_is_still_written),
        kvt_test(c23_a_killed_client_leaves_whole_blocks),
        kvt_test(c03_a_full_disk_fails_the_store_alone),
        kvt_test(c19_few_descriptors_suffice_for_many_names),
        kvt_test(c19_the_log_escapes_names),
    };
    return kvt_main("lifecycle", tests, sizeof(tests) / sizeof(tests[0]), KVT_TMPFS | KVT_EXT4);
}
