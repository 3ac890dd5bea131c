// SPDX-License-Identifier: Apache-2.0
// Running the tests: once on each source, watched over by a parent that cleans up.
#include "tests/mount/fixture_internal.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

uint64_t kvt_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- paths ---- */

static const char *join_path(const char *base, struct kvt_env *env, const char *name)
{
    static __thread char paths[16][PATH_MAX];
    static __thread unsigned turn;
    char *path = paths[turn++ % 16];
    snprintf(path, sizeof(paths[0]), "%s/%s%s%s", base, env->dir, *name ? "/" : "", name);
    return path;
}

const char *kvt_mnt(struct kvt_env *env, const char *name)
{
    return join_path(env->mnt, env, name);
}

const char *kvt_src(struct kvt_env *env, const char *name)
{
    return join_path(env->source, env, name);
}

const char *kvt_under(struct kvt_env *env, const char *name)
{
    return join_path(env->under, env, name);
}

void kvt_fresh_dir(struct kvt_env *env)
{
    static unsigned count;
    snprintf(env->dir, sizeof(env->dir), "t%03u", ++count);
    if (mkdir(kvt_src(env, ""), 0755) != 0)
        fail_msg("mkdir %s: %s", kvt_src(env, ""), strerror(errno));
}

/* ---- one test ---- */

int kvt_setup_test(void **state)
{
    struct kvt_env *env = *state;
    kvt_fresh_dir(env);
    kvt_start(env, NULL);
    return 0;
}

int kvt_teardown_test(void **state)
{
    struct kvt_env *env = *state;
    if (env->fault_fd >= 0)
        kvt_fault(env, "release\nclear\n");
    bool died = kvt_daemon_died(env);
    kvt_remove_tree(kvt_under(env, ""));
    if (died) {
        kvt_show_log(env);
        fail_msg("kvsealfs ended by itself");
    }
    if (env->options[0])
        kvt_stop(env);
    return 0;
}

/* ---- one group ---- */

static struct kvt_env the_env;
static bool teardown_failed;

static int set_up_group(void **state)
{
    *state = &the_env;
    return 0;
}

static int tear_down_group(void **state)
{
    teardown_failed = true; // cmocka does not count it
    kvt_stop(*state);
    teardown_failed = false;
    return 0;
}

/* Runs the tests on one source; how many failed. */
static int run_on_source(const char *name, const char *base, enum kvt_source_kind kind,
                         const struct CMUnitTest *tests, size_t count)
{
    char group[128];
    the_env = (struct kvt_env){.kind = kind, .fault_fd = -1};
    snprintf(group, sizeof(group), "%s on %s", name, kvt_source_name(kind));
    snprintf(the_env.work, sizeof(the_env.work), "%s/%s", base, kvt_source_name(kind));
    snprintf(the_env.mnt, sizeof(the_env.mnt), "%s/mnt", the_env.work);
    snprintf(the_env.log, sizeof(the_env.log), "%s/log", the_env.work);
    if (mkdir(the_env.work, 0755) != 0 || mkdir(the_env.mnt, 0755) != 0) {
        perror(the_env.work);
        return 1;
    }
    const char *reason = kvt_source_make(&the_env);
    if (reason) {
        printf("[  SKIPPED ] all of %s: %s\n", group, reason);
        return 0;
    }
    printf("---- %s\n", group); // cmocka itself does not say it
    int failed = _cmocka_run_group_tests(group, tests, count, set_up_group, tear_down_group);
    kvt_source_remove(&the_env);
    return failed + teardown_failed;
}

/* Those that KVT_SOURCE leaves: that one where it is among them, otherwise all. */
static unsigned choose_sources(unsigned sources)
{
    const char *only = getenv("KVT_SOURCE");

    for (enum kvt_source_kind kind = KVT_TMPFS; only && kind <= KVT_FAULTFS; kind *= 2) {
        if ((sources & kind) && strcmp(only, kvt_source_name(kind)) == 0)
            return kind;
    }
    return sources;
}

static int run_on_sources(const char *name, const char *base, const struct CMUnitTest *tests,
                          size_t count, unsigned sources)
{
    int failed = 0;
    sources = choose_sources(sources);
    if (getenv("KVT_ONLY"))
        cmocka_set_test_filter(getenv("KVT_ONLY"));
    for (enum kvt_source_kind kind = KVT_TMPFS; kind <= KVT_FAULTFS; kind *= 2) {
        if (sources & kind)
            failed += run_on_source(name, base, kind, tests, count);
    }
    return failed;
}

/* ---- the parent ---- */

/* Mounts are seen by this program and its children alone, and go with them. */
static int enter_private_namespace(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        perror("mount tests need root (CAP_SYS_ADMIN): unshare");
        return -1;
    }
    return 0;
}

static int watch_over(pid_t child, const char *base)
{
    int status;
    bool ended = kvt_wait_exit(child, KVT_TIME_LIMIT, &status);
    kill(-child, SIGKILL); // daemons that a failed test left, or a test that hangs
    if (!ended) {
        fprintf(stderr, "not done after %d s: killed\n", KVT_TIME_LIMIT);
        waitpid(child, &status, 0);
    }
    kvt_unmount_below(base);
    kvt_remove_tree(base);
    if (WIFSIGNALED(status))
        fprintf(stderr, "the tests ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int kvt_main(const char *name, const struct CMUnitTest *tests, size_t count, unsigned sources)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (sources & KVT_EXT4)
        sources &= ~(unsigned)KVT_DISKS | KVT_EXT4; // it takes long, and the others show no more
#endif
    const char *parent = getenv("TMPDIR");
    char base[512];
    snprintf(base, sizeof(base), "%s/kvt.XXXXXX", parent && *parent ? parent : "/tmp");
    if (enter_private_namespace() != 0)
        return 1;
    if (!mkdtemp(base) || chmod(base, 0755) != 0) {
        perror(base);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); // what was said stays in order when a test is killed
    umask(022);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        exit(run_on_sources(name, base, tests, count, sources) ? 1 : 0);
    }
    setpgid(child, child);
    return watch_over(child, base);
}
