// SPDX-License-Identifier: Apache-2.0
// kvseal status: of a mount that lives, that is dead, that hangs, and of what is none.
#include "tests/mount/fixture.h"

#include <signal.h>

/* Its exit status; what it said is in WORK/said. */
static int status(struct kvt_env *env, const char *option, const char *where, char said[16384])
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/said", env->work);
    unlink(path);
    int result = kvt_run(path, kvt_program("../../core/cli/kvseal"), "status", where, option, NULL);
    int fd = kvt_open(path, O_RDONLY);
    ssize_t len = read(fd, said, 16383);
    assert_true(len >= 0);
    said[len] = '\0';
    close(fd);
    return result;
}

static void status_shows_a_mount(void **state)
{
    struct kvt_env *env = *state;
    char said[16384], expected[PATH_MAX + 64];
    kvt_stop(env);
    kvt_start(env, "passthrough=off"); // or it depends on when the store's handle is released
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", 4096, 1, KVT_DIRECT), 0);
    assert_int_equal(status(env, NULL, env->mnt, said), 0);
    snprintf(expected, sizeof(expected), "%s: serving %s, up ", env->mnt, env->source);
    assert_non_null(strstr(said, expected));
    assert_non_null(strstr(said, "loads    1 verified (0 passthrough, 0 pinned, 1 buffer, 0"));
    assert_non_null(strstr(said, "stores   1 sealed (1 as they arrived, 0 read back), 0 failed"));
    assert_int_equal(status(env, "--json", env->mnt, said), 0);
    assert_int_equal(said[0], '{');
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

static void status_says_what_is_no_mount(void **state)
{
    struct kvt_env *env = *state;
    char said[16384], planted[PATH_MAX];
    assert_int_equal(status(env, NULL, env->work, said), 2);
    assert_non_null(strstr(said, "is not a kvseal mount"));
    assert_int_equal(status(env, NULL, "/nothing/here", said), 2);
    assert_non_null(strstr(said, "is not a kvseal mount"));
    snprintf(planted, sizeof(planted), "%s/.kvseal", env->work);
    assert_int_equal(mkdir(planted, 0755), 0);
    strcat(planted, "/status");
    assert_int_equal(kvt_write_file(planted, O_WRONLY | O_CREAT, 4096, 1, 0), 0);
    assert_int_equal(status(env, NULL, env->work, said), 2);
    assert_non_null(strstr(said, "is not a kvseal mount"));
    assert_int_equal(status(env, "--watch=0", env->mnt, said), 64);
    assert_int_equal(status(env, "--nothing", env->mnt, said), 64);
}

static void status_does_not_wait_for_the_dead(void **state)
{
    struct kvt_env *env = *state;
    char said[16384];
    kvt_kill(env);
    assert_int_equal(status(env, NULL, env->mnt, said), 2);
    assert_non_null(strstr(said, "is a dead mount: its daemon is gone"));
    kvt_remount(env);
}

static void status_does_not_wait_for_what_hangs(void **state)
{
    struct kvt_env *env = *state;
    char said[16384];
    kvt_remount(env);
    assert_int_equal(kill(env->daemon, SIGSTOP), 0);
    int result = status(env, NULL, env->mnt, said);
    assert_int_equal(kill(env->daemon, SIGCONT), 0);
    assert_int_equal(result, 2);
    assert_non_null(strstr(said, "does not answer"));
    assert_int_equal(status(env, NULL, env->mnt, said), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(status_shows_a_mount),
        kvt_test(status_says_what_is_no_mount),
        kvt_test(status_does_not_wait_for_the_dead),
        kvt_test(status_does_not_wait_for_what_hangs),
    };
    return kvt_main("status", tests, sizeof(tests) / sizeof(tests[0]), KVT_TMPFS);
}
