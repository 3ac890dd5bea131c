// SPDX-License-Identifier: Apache-2.0
// C21: what kvsealfs refuses to start on, with one clear line and nothing mounted; what it starts
// on; and all ways to start it.
#include "tests/mount/fixture_process.h"

#include <grp.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>

/* ---- starting it ---- */

static const char *make_file(struct kvt_env *env, const char *name)
{
    const char *path = kvt_work_path(env, name);
    assert_int_equal(close(kvt_open(path, O_CREAT | O_WRONLY)), 0);
    return path;
}

/* Runs kvsealfs; what it says is all that is in the log. Opened before the user changes, who may
 * not reach the build directory. */
static pid_t spawn(const char *log, uid_t user, char *const argv[])
{
    int program = kvt_open(kvt_program("../../fuse/kvsealfs"), O_RDONLY);
    int output = kvt_open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        if (user != 0 && (setgroups(0, NULL) != 0 || setgid(user) != 0 || setuid(user) != 0))
            _exit(126);
        fexecve(program, argv, environ);
        _exit(127);
    }
    close(program);
    close(output);
    assert_true(pid > 0);
    return pid;
}

/* Those that have `text`. */
static unsigned count_lines(const char *path, const char *text)
{
    char line[4 * PATH_MAX];
    unsigned count = 0;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    fclose(file);
    return count;
}

/* Ours alone: others make and remove theirs, and their removal reaches this namespace. */
static unsigned count_mounts(struct kvt_env *env)
{
    return count_lines("/proc/self/mountinfo", env->work);
}

/* Does not start with these arguments (after "-f" or not; NULL-terminated), and says why in one
 * line, which has `text`. */
static void assert_refused_as(struct kvt_env *env, uid_t user, const char *text,
                              const char *const arguments[])
{
    const char *log = kvt_work_path(env, "refused.log");
    for (int in_foreground = 0; in_foreground <= 1; in_foreground++) {
        struct kvt_env looked_at = *env;
        char *argv[8] = {"kvsealfs", "-f"};
        unsigned mounts = count_mounts(env);
        for (int i = 0; i < 5 && arguments[i]; i++)
            argv[1 + in_foreground + i] = (char *)arguments[i];
        if (!in_foreground && !arguments[0])
            argv[1] = NULL;
        int status = kvt_end_of(spawn(log, user, argv));
        snprintf(looked_at.log, sizeof(looked_at.log), "%s", log);
        bool is_said = kvt_log_has(&looked_at, text);
        if (status == 0 || status > 125 || !is_said || count_lines(log, "\n") != 1) {
            kvt_run("/dev/stderr", "cat", log, NULL);
            fail_msg("status %d, and what it said is not one line with \"%s\"", status, text);
        }
        assert_int_equal(count_mounts(env), mounts);
    }
}

#define assert_refused(env, text, ...)                                                             \
    assert_refused_as(env, 0, text, (const char *const[]){__VA_ARGS__, NULL})

static bool is_fuse(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

/* A daemon in the foreground that serves `mnt`. */
static pid_t start(struct kvt_env *env, const char *options, const char *source, const char *mnt)
{
    char *argv[] = {"kvsealfs",      "-f", (char *)source, (char *)mnt, options ? "-o" : NULL,
                    (char *)options, NULL};
    pid_t pid = spawn(kvt_work_path(env, "start.log"), 0, argv);
    kvt_wait_for(is_fuse(mnt));
    return pid;
}

static void stop(pid_t pid, const char *mnt)
{
    assert_int_equal(umount2(mnt, 0), 0);
    assert_int_equal(kvt_end_of(pid), 0);
    assert_false(is_fuse(mnt));
}

/* Stores a block through `mnt` and loads it. */
static void use(const char *mnt, unsigned seed)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/block-%u", mnt, seed);
    assert_int_equal(kvt_write_file(path, KVT_CREATE, 70000, seed, 0), 0);
    kvt_assert_sealed(path);
    assert_int_equal(kvt_load_path(path, 70000, seed, 0), 0);
}

/* ---- what is refused ---- */

static void c21_refuses_a_source_that_is_no_directory(void **state)
{
    struct kvt_env *env = *state;
    const char *mnt = kvt_work_dir(env, "m", 0755);
    assert_refused(env, "No such file or directory", kvt_work_path(env, "missing"), mnt);
    assert_refused(env, "Not a directory", make_file(env, "file"), mnt);
}

static void c21_refuses_a_source_that_it_may_not_read(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "closed", 0755), *mnt = kvt_work_dir(env, "m", 0755);
    assert_int_equal(chmod(source, 0700), 0);
    assert_refused_as(env, KVT_NOBODY, "Permission denied",
                      (const char *const[]){source, mnt, NULL});
}

static void c21_refuses_a_source_without_user_attributes(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "ramfs", 0755), *mnt = kvt_work_dir(env, "m", 0755);
    assert_int_equal(mount("ramfs", source, "ramfs", 0, NULL), 0);
    assert_refused(env, "extended attributes", source, mnt);
    assert_int_equal(kvt_count_names(source), 0);
    stop(start(env, "ro", source, mnt), mnt); // needs no probe by set
    assert_int_equal(umount2(source, 0), 0);
}

static void c21_serves_a_read_only_source_with_ro_alone(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "tmpfs", 0755), *mnt = kvt_work_dir(env, "m", 0755);
    assert_int_equal(mount("tmpfs", source, "tmpfs", 0, NULL), 0);
    char below[PATH_MAX], above[PATH_MAX];
    snprintf(below, sizeof(below), "%s/a", source);
    snprintf(above, sizeof(above), "%s/a", mnt);
    assert_int_equal(kvt_write_file(below, KVT_CREATE, 5000, 1, 0), 0);
    assert_int_equal(kvt_set_record(below, kvt_sum_of(below)), 0);
    assert_int_equal(mount(NULL, source, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);

    assert_refused(env, "-o ro", source, mnt);
    pid_t pid = start(env, "ro", source, mnt);
    assert_int_equal(kvt_load_path(above, 5000, 1, 0), 0);
    kvt_assert_errno(EROFS, open(above, O_WRONLY));
    stop(pid, mnt);
    assert_int_equal(umount2(source, 0), 0);
}

static void c21_refuses_a_mount_point_that_is_no_directory(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "s", 0755);
    assert_refused(env, "No such file or directory", source, kvt_work_path(env, "missing"));
    assert_refused(env, "Not a directory", source, make_file(env, "file"));
    assert_refused(env, "inside the source", source, kvt_work_dir(env, "s/inner", 0755));
}

static void c21_refuses_a_mount_point_that_is_served(void **state)
{
    struct kvt_env *env = *state;
    assert_refused(env, "already served", env->source, env->mnt);
    assert_refused(env, "already served", kvt_work_dir(env, "s", 0755), env->mnt);
    use(kvt_mnt(env, ""), 1); // the other one goes on
}

static void c21_refuses_options_by_name(void **state)
{
    static const struct {
        const char *options, *text;
    } cases[] = {
        {"no_such_option", "no_such_option"},
        {"ro,no_such_option=5", "no_such_option"},
        {"threads=3", "threads"},
        {"threads=4097", "threads"},
        {"threads=many", "threads"},
        {"threads", "threads"},
        {"buffer_memory=31M", "buffer_memory"},
        {"max_reread=-1", "max_reread"},
        {"attr_timeout=-1", "attr_timeout"},
        {"on_corrupt=repair", "on_corrupt"},
        {"corrupt_errno=EPERM", "corrupt_errno"},
        {"unsealed=maybe", "unsealed"},
    };
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "s", 0755), *mnt = kvt_work_dir(env, "m", 0755);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(env, cases[i].text, source, mnt, "-o", cases[i].options);
    assert_refused(env, "-q", source, mnt, "-q");
    assert_refused(env, "--no-such-switch", source, mnt, "--no-such-switch");
}

static void c21_refuses_missing_arguments(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "s", 0755), *mnt = kvt_work_dir(env, "m", 0755);
    assert_refused_as(env, 0, "usage", (const char *const[]){NULL});
    assert_refused(env, "usage", source);
    assert_refused(env, "usage", source, mnt, mnt);
    assert_refused(env, "usage", source, "");
    assert_refused(env, "-o", source, mnt, "-o");
}

/* ---- what was mounted before ---- */

static void c21_mounts_over_an_ordinary_mount(void **state)
{
    struct kvt_env *env = *state;
    const char *volume = kvt_work_dir(env, "volume", 0755);
    assert_int_equal(mount("tmpfs", volume, "tmpfs", 0, NULL), 0);
    pid_t pid = start(env, NULL, kvt_work_dir(env, "s", 0755), volume); // on the mount point
    use(volume, 1);
    stop(pid, volume);
    assert_int_equal(kvt_count_names(volume), 0);
    pid = start(env, NULL, volume, volume); // as the source, too
    use(volume, 2);
    stop(pid, volume);
    assert_int_equal(kvt_count_names(volume), 1);
    assert_int_equal(umount2(volume, 0), 0);
}

static void c21_replaces_a_dead_mount(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 70000, 1, 0), 0);
    for (int round = 0; round < 3; round++) {
        kvt_kill(env);
        struct statfs fs;
        kvt_assert_errno(ENOTCONN, statfs(env->mnt, &fs));
        kvt_start(env, NULL);
        assert_true(kvt_log_has(env, "dead mount"));
        assert_int_equal(kvt_load(env, "a", 70000, 1, 0), 0);
    }
}

static void kill_daemon(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(kvt_end_of(pid), 128 + SIGKILL);
}

static void c21_replaces_a_dead_mount_that_hides_its_source(void **state)
{
    struct kvt_env *env = *state;
    const char *cache = kvt_work_dir(env, "cache", 0755);
    pid_t pid = start(env, NULL, cache, cache);
    use(cache, 1);
    kill_daemon(pid);
    pid = start(env, NULL, cache, cache);
    use(cache, 2);
    assert_int_equal(kvt_count_names(cache), 2);
    stop(pid, cache);
    assert_int_equal(kvt_count_names(cache), 2);
}

/* As mountinfo(5) and -o escape them. */
static void c21_takes_every_character_in_paths(void **state)
{
    static const char *const names[] = {"two  spaces ",   "comma,comma,", "back\\slash\\", "\\040",
                                        "new\nline\ttab", "caf\xc3\xa9",  "bad\xff\xfe",   "-o",
                                        "#hash=\"quote'"};
    struct kvt_env *env = *state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "s %s", names[i]);
        const char *source = kvt_work_dir(env, name, 0755),
                   *mnt = kvt_work_dir(env, names[i], 0755);
        pid_t pid = start(env, "fsname=a\\,b", source, mnt);
        use(mnt, 1);
        kill_daemon(pid);
        pid = start(env, NULL, source, mnt);
        use(mnt, 2);
        stop(pid, mnt);
        pid = start(env, NULL, mnt, mnt);
        kill_daemon(pid);
        stop(start(env, NULL, mnt, mnt), mnt);
    }
}

/* ---- ways to start ---- */

/* The daemon in the background is nobody's child but ours: it ends with 0. */
static void end_background(const char *mnt)
{
    assert_int_equal(umount2(mnt, 0), 0);
    assert_int_equal(kvt_end_of(-1), 0);
}

static void c21_returns_from_the_background_when_it_serves(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "s", 0755), *mnt = kvt_work_dir(env, "m", 0755);
    kvt_stop(env); // no other child
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (unsigned round = 10; round < 15; round++) {
        char *argv[] = {"kvsealfs", (char *)source, (char *)mnt, NULL};
        assert_int_equal(kvt_end_of(spawn(kvt_work_path(env, "start.log"), 0, argv)), 0);
        assert_true(is_fuse(mnt));
        use(mnt, round);
        end_background(mnt);
    }
    assert_int_equal(count_lines(kvt_work_path(env, "start.log"), "\n"), 0);
}

/* mount(8) gives its helper no PATH of ours: the program is where it is installed, for the
 * processes in this mount namespace. */
static void c21_is_mounted_by_mount(void **state)
{
    struct kvt_env *env = *state;
    const char *source = kvt_work_dir(env, "s", 0755), *mnt = kvt_work_dir(env, "m", 0755),
               *bin = "/usr/local/bin";
    if (access("/sbin/mount.fuse", X_OK) != 0 && access("/sbin/mount.fuse3", X_OK) != 0) {
        print_message("SKIPPED: mount.fuse is not installed\n");
        skip();
    }
    kvt_stop(env);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    assert_int_equal(mount(kvt_program("../../fuse"), bin, NULL, MS_BIND, NULL), 0);
    int status = kvt_run("/dev/stderr", "mount", "-t", "fuse.kvsealfs", "-o",
                         "threads=16,noatime,_netdev,x-systemd.automount", source, mnt, NULL);
    int bad_status = kvt_run(NULL, "mount", "-t", "fuse.kvsealfs", "-o", "no_such_option", source,
                             mnt, NULL);
    umount2(bin, MNT_DETACH);
    assert_int_equal(status, 0);
    assert_int_not_equal(bad_status, 0);
    assert_true(is_fuse(mnt));
    use(mnt, 20);
    end_background(mnt);
}

static void c21_says_what_it_is(void **state)
{
    struct kvt_env *env = *state;
    for (int i = 0; i < 2; i++) {
        char *argv[] = {"kvsealfs", i ? "--version" : "--help", NULL};
        assert_int_equal(kvt_end_of(spawn(env->log, 0, argv)), 0);
        assert_true(kvt_log_has(env, i ? KVSEAL_VERSION : "on_corrupt"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c21_refuses_a_source_that_is_no_directory),
        kvt_test(c21_refuses_a_source_that_it_may_not_read),
        kvt_test(c21_refuses_a_source_without_user_attributes),
        kvt_test(c21_serves_a_read_only_source_with_ro_alone),
        kvt_test(c21_refuses_a_mount_point_that_is_no_directory),
        kvt_test(c21_refuses_a_mount_point_that_is_served),
        kvt_test(c21_refuses_options_by_name),
        kvt_test(c21_refuses_missing_arguments),
        kvt_test(c21_mounts_over_an_ordinary_mount),
        kvt_test(c21_replaces_a_dead_mount),
        kvt_test(c21_replaces_a_dead_mount_that_hides_its_source),
        kvt_test(c21_takes_every_character_in_paths),
        kvt_test(c21_returns_from_the_background_when_it_serves),
        kvt_test(c21_is_mounted_by_mount),
        kvt_test(c21_says_what_it_is),
    };
    return kvt_main("start", tests, sizeof(tests) / sizeof(tests[0]), KVT_DIR);
}
