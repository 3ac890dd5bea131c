// SPDX-License-Identifier: Apache-2.0
// What could not be made is not there: a call below fails while a name is made, and the second try
// succeeds.
#include "tests/mount/fixture.h"

#define MOST_CALLS 64

static int make_dir(const char *name)
{
    return mkdir(name, 0755);
}

static int make_node(const char *name)
{
    return mknod(name, S_IFREG | 0644, 0);
}

static int make_fifo(const char *name)
{
    return mkfifo(name, 0644);
}

static int make_link(const char *name)
{
    return link("file", name);
}

static int make_symlink(const char *name)
{
    return symlink("anywhere", name);
}

static int make_file(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    close(fd); /* that it cannot be sealed is another matter */
    return 0;
}

/* No open(2) with O_CREAT: below it may fail after the file was made, and the daemon cannot know
 * whose it is then. */
static const struct {
    const char *what;
    int (*make)(const char *name);
} makers[] = {
    {"mkdir", make_dir}, {"mknod", make_node},      {"mkfifo", make_fifo},
    {"link", make_link}, {"symlink", make_symlink},
};

/* Fails the first, second ... call below, until making the name gets by with fewer. */
static void sweep(struct kvt_env *env, size_t maker)
{
    char command[64], name[64];
    int failed = 0;
    for (int call = 1; call <= MOST_CALLS; call++) {
        snprintf(name, sizeof(name), "%s%d", makers[maker].what, call);
        snprintf(command, sizeof(command), "any %d errno %d\n", call, EIO);
        kvt_fault(env, "clear\n");
        kvt_fault(env, command);
        bool was_made = makers[maker].make(name) == 0;
        bool was_hit = kvt_fault_report_has(env, "hit 1");
        kvt_fault(env, "clear\n");
        if (!was_hit) {
            assert_true(was_made);
            assert_in_range(failed, 1, MOST_CALLS);
            return;
        }
        failed += !was_made;
        if (!was_made && makers[maker].make(name) != 0)
            fail_msg("%s: call %d below failed, and then the second try: %s", makers[maker].what,
                     call, strerror(errno));
    }
    fail_msg("%s takes more than %d calls", makers[maker].what, MOST_CALLS);
}

static void c19_what_could_not_be_made_is_not_there(void **state)
{
    struct kvt_env *env = *state;
    int home_fd = kvt_open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(kvt_mnt(env, ".")), 0);
    assert_int_equal(make_file("file"), 0);
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
        sweep(env, i);
    assert_int_equal(fchdir(home_fd), 0);
    close(home_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {kvt_test(c19_what_could_not_be_made_is_not_there)};
    return kvt_main("names faults", tests, 1, KVT_FAULTFS);
}
