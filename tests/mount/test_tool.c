// SPDX-License-Identifier: Apache-2.0
// The kvseal tool on real file systems: beside a live mount, with the page cache and times as they
// were, and where something cannot be done.
#include "tests/mount/fixture.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

#include "core/page_cache.h"
#include "core/seal_beside.h"
#include "core/verify.h"

#define SIZE ((size_t)300 << 10)

static char output[65536]; /* of the last run, both streams */

/* Runs the tool on a path; its exit status. */
static int run(const char *command, const char *options, const char *path)
{
    char line[4 * PATH_MAX];
    FILE *stream = NULL;

    snprintf(line, sizeof(line), "timeout 60 '%s' %s %s '%s' 2>&1",
             kvt_program("../../core/cli/kvseal"), command, options, path);
    stream = popen(line, "r");
    assert_non_null(stream);
    output[fread(output, 1, sizeof(output) - 1, stream)] = '\0';
    int status = pclose(stream);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_says(const char *text)
{
    if (strstr(output, text) == NULL)
        fail_msg("no \"%s\" in \"%s\"", text, output);
}

/* A path of the test's own directory in the source. */
static const char *own(struct kvt_env *env, const char *name)
{
    return kvt_src(env, name);
}

static const char *tree(struct kvt_env *env)
{
    return own(env, ".");
}

static void wait_ms(long ms)
{
    const struct timespec moment = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&moment, NULL);
}

/* ---- beside a live mount (C15) ---- */

/* Shared with the clients, which are processes. */
struct clients {
    atomic_bool is_ending;
    atomic_uint rounds;
};

/* Stores, rewrites in place and removes blocks through the mount. */
static void use_mount(struct kvt_env *env, struct clients *clients)
{
    char name[32], other[PATH_MAX];

    for (unsigned i = 0; !atomic_load(&clients->is_ending); i++) {
        snprintf(name, sizeof(name), "m%u", i % 24);
        kvt_store(env, name, SIZE + i % 7, i, i % 2 == 0 ? KVT_DIRECT : 0);
        snprintf(name, sizeof(name), "m%u", (i * 5 + 3) % 24);
        int fd = open(kvt_mnt(env, name), O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            unsigned char *bytes = kvt_block(SIZE, i + 1);
            for (size_t at = 0; at < SIZE; at += 50000) {
                if (pwrite(fd, bytes + at, 4096, (off_t)at) < 0)
                    break;
            }
            free(bytes);
            close(fd);
        }
        snprintf(other, sizeof(other), "%s", kvt_mnt(env, "renamed"));
        if (i % 5 == 0)
            rename(kvt_mnt(env, name), other);
        if (i % 11 == 0)
            unlink(other);
        atomic_fetch_add(&clients->rounds, 1);
    }
}

/* Rewrites sealed blocks beside the mount, slowly, as a tier of its own would: the record is the
 * old one while it writes, and the new one when it has ended. */
static void use_source(struct kvt_env *env, struct clients *clients)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s", kvt_src(env, "beside"));
    for (unsigned i = 0; !atomic_load(&clients->is_ending); i++) {
        unsigned char *bytes = kvt_block(SIZE, i);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0)
            _exit(2);
        for (size_t at = 0; at < SIZE; at += 100000) {
            size_t len = SIZE - at < 100000 ? SIZE - at : 100000;
            if (pwrite(fd, bytes + at, len, (off_t)at) != (ssize_t)len)
                _exit(3);
            wait_ms(30);
        }
        close(fd);
        wait_ms(100); /* it thinks about the sum */
        if (kvt_set_record(path, kvt_crc32c(bytes, SIZE)) < 0)
            _exit(4);
        free(bytes);
        wait_ms(50);
    }
}

static pid_t start_client(void (*use)(struct kvt_env *, struct clients *), struct kvt_env *env,
                          struct clients *clients)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        use(env, clients);
        _exit(0);
    }
    return pid;
}

static int end_client(pid_t pid)
{
    int status = -1;

    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void c15_nothing_is_wrong_beside_a_live_mount(void **state)
{
    struct kvt_env *env = *state;
    struct clients *clients = mmap(NULL, sizeof(*clients), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int runs = 0, status = 0;

    assert_true(clients != MAP_FAILED);
    pid_t above = start_client(use_mount, env, clients);
    pid_t below = start_client(use_source, env, clients);
    time_t end = time(NULL) + 5;
    while (status == 0 && (time(NULL) < end || runs < 5)) {
        status = run("verify", "-j 3", tree(env));
        if (status == 0)
            status = run("seal", "-j 2", tree(env));
        runs++;
    }
    atomic_store(&clients->is_ending, true);
    int above_status = end_client(above), below_status = end_client(below);
    unsigned rounds = atomic_load(&clients->rounds);
    munmap(clients, sizeof(*clients));
    if (status != 0)
        fail_msg("status %d: %s", status, output);
    assert_int_equal(above_status, 0);
    assert_int_equal(below_status, 0);
    kvt_stop(env);
    assert_int_equal(run("verify", "", tree(env)), 0);
    print_message("  %d runs beside %u rounds of a client\n", runs, rounds);
    assert_true(rounds > 0);
    kvt_start(env, NULL);
}

/* What is found on the mount itself was refused by the daemon. */
/* Takes the record away while it has the block open, as who writes beside a mount should. */
static void rewrite(const char *path, unsigned i)
{
    char bytes[64];

    snprintf(bytes, sizeof(bytes), "%063u", i);
    int fd = kvt_open(path, O_WRONLY);
    kvt_remove_record(path);
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    close(fd);
}

/* Whatever the clock of the file system: the last one to close sees no record but its own sum. */
static void c15_no_wrong_record_beside_a_writer(void **state)
{
    struct kvt_env *env = *state;
    const char *path = own(env, "a");
    const uint64_t end = kvt_now_ms() + 3000;
    unsigned sealed = 0, busy = 0;
    void *scratch = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);

    assert_int_equal(kvt_write_file(path, O_CREAT | O_WRONLY, 64, 1, 0), 0);
    assert_true(signal(SIGIO, SIG_IGN) != SIG_ERR);
    while (kvt_now_ms() < end) {
        pid_t writer = fork();
        if (writer == 0) {
            for (unsigned i = 0; i < 8; i++) {
                rewrite(path, i + (unsigned)kvt_now_ms());
                usleep(i % 4 * 8000);
            }
            _exit(0);
        }
        for (bool is_over = false; !is_over;) {
            uint32_t crc = 0;
            int status = 0;
            is_over = waitpid(writer, &status, WNOHANG) == writer;
            assert_int_equal(status, 0);
            int fd = kvt_open(path, O_RDONLY);
            int r = kvs_seal_beside(fd, scratch, KVS_PIECE_SIZE, &crc);
            close(fd);
            sealed += r == 0;
            busy += r == -EBUSY;
            assert_true(r == 0 || r == -EBUSY || r == -EEXIST);
        }
        kvt_assert_sealed(path);
    }
    print_message("%u sealed, %u busy\n", sealed, busy);
    assert_true(sealed > 0 && busy > 0);
    free(scratch);
}

static void on_the_mount_the_daemon_judges(void **state)
{
    struct kvt_env *env = *state;

    kvt_start(env, "on_corrupt=keep");
    assert_int_equal(kvt_store(env, "good", SIZE, 1, 0), 0);
    assert_int_equal(kvt_store(env, "bad", SIZE, 2, 0), 0);
    kvt_flip(own(env, "bad"), 1000);
    wait_ms(2100);
    assert_int_equal(run("verify", "", kvt_mnt(env, ".")), 1);
    assert_says("bad: corrupt (refused by the mount it was opened on)\n");
    assert_says("1 intact, 1 corrupt");
    assert_int_equal(run("verify", "--json", tree(env)), 1);
    assert_says("\"verdict\":\"corrupt\"");
}

/* ---- the page cache and times (C17) ---- */

static enum kvs_cached cached(const char *path)
{
    int fd = kvt_open(path, O_RDONLY);
    enum kvs_cached found = kvs_page_cache_look(fd, 0, SIZE);

    close(fd);
    return found;
}

static void c17_cache_and_times_stay_as_they_were(void **state)
{
    static const char *const commands[] = {"verify", "show", "seal", "show"};
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    struct kvt_env *env = *state;
    char hot[PATH_MAX], cold[PATH_MAX];
    struct stat st;

    snprintf(hot, sizeof(hot), "%s", own(env, "hot"));
    snprintf(cold, sizeof(cold), "%s", own(env, "cold"));
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        assert_int_equal(kvt_write_file(hot, O_CREAT | O_TRUNC | O_WRONLY, SIZE, 1, 0), 0);
        assert_int_equal(kvt_write_file(cold, O_CREAT | O_TRUNC | O_WRONLY, SIZE, 2, 0), 0);
        if (i < 2) {
            assert_int_equal(kvt_set_record(hot, kvt_sum_of(hot)), 0);
            assert_int_equal(kvt_set_record(cold, kvt_sum_of(cold)), 0);
        } else {
            kvt_remove_record(hot);
            kvt_remove_record(cold);
        }
        assert_int_equal(utimensat(AT_FDCWD, hot, times, 0), 0);
        assert_int_equal(utimensat(AT_FDCWD, cold, times, 0), 0);
        kvt_drop_cache(hot);
        kvt_drop_cache(cold);
        kvt_sum_of(hot);
        assert_int_equal(utimensat(AT_FDCWD, hot, times, 0), 0);
        enum kvs_cached hot_before = cached(hot), cold_before = cached(cold);
        assert_int_equal(run(commands[i], "", hot), 0);
        assert_int_equal(run(commands[i], "", cold), 0);
        if (cached(hot) != hot_before || cached(cold) != cold_before)
            fail_msg("%s: hot %d -> %d, cold %d -> %d", commands[i], hot_before, cached(hot),
                     cold_before, cached(cold));
        assert_int_equal(stat(hot, &st), 0);
        assert_true(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec == 2000);
        assert_int_equal(stat(cold, &st), 0);
        assert_true(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec == 2000);
    }
}

/* ---- trouble ---- */

static void a_flip_is_found_hot_and_cold(void **state)
{
    struct kvt_env *env = *state;

    assert_int_equal(kvt_store(env, "block", 3 * SIZE, 1, 0), 0);
    assert_int_equal(kvt_store(env, "other", SIZE, 2, 0), 0);
    kvt_flip(own(env, "block"), 700001);
    wait_ms(2100);
    assert_int_equal(run("verify", "", tree(env)), 1); /* cold */
    assert_says("block: corrupt (expected ");
    assert_says("1 intact, 1 corrupt");
    kvt_sum_of(own(env, "block"));
    assert_int_equal(run("verify", "", tree(env)), 1); /* hot */
    assert_int_equal(run("show", "", own(env, "block")), 1);
    assert_says("one flipped bit: byte 700001, ");
}

static void what_is_mounted_below_is_left_out(void **state)
{
    struct kvt_env *env = *state;
    char point[PATH_MAX];

    snprintf(point, sizeof(point), "%s", own(env, "point"));
    assert_int_equal(mkdir(point, 0755), 0);
    assert_int_equal(mount("tmpfs", point, "tmpfs", 0, "size=1m"), 0);
    assert_int_equal(kvt_write_file(own(env, "point/x"), O_CREAT | O_WRONLY, 10, 1, 0), 0);
    int status = run("verify", "", tree(env));
    int inside = run("seal", "", point);
    assert_int_equal(umount(point), 0);
    assert_int_equal(status, 0);
    assert_int_equal(inside, 0);
    assert_int_equal(run("verify", "", tree(env)), 0);
    assert_says("0 blocks, 0 B read\n");
}

static void a_read_only_file_system_can_be_verified(void **state)
{
    struct kvt_env *env = *state;

    assert_int_equal(kvt_store(env, "sealed", SIZE, 1, 0), 0);
    assert_int_equal(kvt_write_file(own(env, "unsealed"), O_CREAT | O_WRONLY, SIZE, 2, 0), 0);
    assert_int_equal(mount(NULL, env->source, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    int verified = run("verify", "", tree(env));
    bool is_counted = strstr(output, "1 intact, 1 unsealed") != NULL;
    int sealed = run("seal", "", tree(env));
    assert_int_equal(mount(NULL, env->source, NULL, MS_REMOUNT | MS_BIND, NULL), 0);
    assert_int_equal(verified, 0);
    assert_true(is_counted);
    assert_int_equal(sealed, 2);
    assert_says("unsealed: cannot be sealed: Read-only file system; mount");
}

static void a_file_system_without_attributes_is_named_once(void **state)
{
    struct kvt_env *env = *state;
    char point[PATH_MAX];

    kvt_only_on(env, KVT_TMPFS);
    snprintf(point, sizeof(point), "%s", own(env, "ramfs"));
    assert_int_equal(mkdir(point, 0755), 0);
    assert_int_equal(mount("ramfs", point, "ramfs", 0, NULL), 0);
    assert_int_equal(kvt_write_file(own(env, "ramfs/x"), O_CREAT | O_WRONLY, 10, 1, 0), 0);
    assert_int_equal(kvt_write_file(own(env, "ramfs/y"), O_CREAT | O_WRONLY, 10, 1, 0), 0);
    int verified = run("verify", "", point);
    const char *why =
        "Operation not supported; use a file system that stores user extended attributes";
    char *found = strstr(output, why);
    bool is_once = found != NULL && strstr(found + 1, why) == NULL;
    int sealed = run("seal", "", point);
    int scrubbed = run("scrub", "--min-age 0", point);
    char *told = strstr(output, why);
    bool is_scrub_once = told != NULL && strstr(told + 1, why) == NULL;
    assert_int_equal(umount(point), 0);
    assert_int_equal(verified, 2);
    assert_true(is_once);
    assert_int_equal(scrubbed, 2);
    assert_true(is_scrub_once);
    assert_int_equal(sealed, 2);
}

/* As a user who is neither the owner nor root. */
static int run_as_stranger(struct kvt_env *env, const char *options)
{
    char line[4 * PATH_MAX];

    snprintf(line, sizeof(line),
             "setpriv --reuid 65534 --regid 65534 --clear-groups timeout 60 '%s' %s '%s' 2>&1",
             kvt_program("../../core/cli/kvseal"), options, tree(env));
    FILE *stream = popen(line, "r");
    assert_non_null(stream);
    output[fread(output, 1, sizeof(output) - 1, stream)] = '\0';
    int status = pclose(stream);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void an_ordinary_user_is_told_what_it_cannot_read(void **state)
{
    struct kvt_env *env = *state;

    assert_int_equal(kvt_store(env, "open", SIZE, 1, 0), 0);
    assert_int_equal(kvt_store(env, "closed", SIZE, 2, 0), 0);
    assert_int_equal(mkdir(own(env, "private"), 0700), 0);
    assert_int_equal(chmod(own(env, "closed"), 0600), 0);
    assert_int_equal(run_as_stranger(env, "verify"), 2);
    assert_says("closed: cannot be read: Permission denied; run as its owner or as root\n");
    assert_says("private: cannot be read: Permission denied; run as its owner or as root\n");
    assert_says("1 intact, 2 not readable");
    assert_int_equal(run_as_stranger(env, "scrub --min-age 0"), 2);
    assert_says("the position cannot be kept in .kvseal: Permission denied; every run begins at");
    assert_says("closed: cannot be read: Permission denied; run as its owner or as root\n");
    assert_says("private: cannot be read: Permission denied; run as its owner or as root\n");
    assert_says(" 1 intact, 2 error,");
    assert_int_equal(kvt_remove_record(own(env, "open")), 0);
    assert_int_equal(run_as_stranger(env, "seal"), 2);
    assert_says(
        "1 being written"); /* for all it knows: it may have no lease, and that was just now */
}

/* ---- progress ---- */

/* Runs the tool on a pseudo-terminal; its exit status. */
static int run_on_terminal(const char *command, const char *options, const char *path)
{
    char line[4 * PATH_MAX];

    snprintf(line, sizeof(line), "timeout 60 script -qec \"'%s' %s %s '%s'\" /dev/null </dev/null",
             kvt_program("../../core/cli/kvseal"), command, options, path);
    FILE *stream = popen(line, "r");
    assert_non_null(stream);
    output[fread(output, 1, sizeof(output) - 1, stream)] = '\0';
    return WEXITSTATUS(pclose(stream));
}

static void progress_is_for_terminals(void **state)
{
    struct kvt_env *env = *state;

    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "b%d", i);
        assert_int_equal(kvt_store(env, name, SIZE, 1, 0), 0);
    }
    kvt_flip(own(env, "b1"), 5); /* fresh: so it takes two seconds */
    assert_int_equal(run_on_terminal("verify", "", tree(env)), 1);
    assert_says("] ");
    assert_says("/s, 0:00:0");
    assert_says("\r\033[K"); /* and it is wiped */
    assert_int_equal(run("verify", "", tree(env)), 1);
    assert_null(strchr(output, '\r'));
}

/* A round that takes two seconds, with a corrupt block on the way. */
static void a_scrub_shows_its_progress_on_terminals(void **state)
{
    struct kvt_env *env = *state;
    const char *options = "--min-age 0 --rate 600K";

    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "b%d", i);
        assert_int_equal(kvt_store(env, name, SIZE, 1, 0), 0);
    }
    kvt_flip(own(env, "b1"), 5);
    assert_int_equal(run_on_terminal("scrub", options, tree(env)), 1);
    assert_says("] ");
    assert_says("0 % of 1.46 MiB, ");
    assert_says("/s, 0:00:0");
    assert_says("\r\033[Kb1: corrupt (expected"); /* the bar is not in a line */
    assert_says("\r\033[Kscrubbed: ");
    assert_int_equal(run("scrub", options, tree(env)), 1);
    assert_null(strchr(output, '\r'));
    assert_int_equal(run_on_terminal("scrub", "--json --min-age 0", tree(env)), 1);
    assert_says("{\"path\":\"b1\",\"verdict\":\"corrupt\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c15_nothing_is_wrong_beside_a_live_mount),
        kvt_test(c15_no_wrong_record_beside_a_writer),
        kvt_test(on_the_mount_the_daemon_judges),
        kvt_test(c17_cache_and_times_stay_as_they_were),
        kvt_test(a_flip_is_found_hot_and_cold),
        kvt_test(what_is_mounted_below_is_left_out),
        kvt_test(a_read_only_file_system_can_be_verified),
        kvt_test(a_file_system_without_attributes_is_named_once),
        kvt_test(an_ordinary_user_is_told_what_it_cannot_read),
        kvt_test(progress_is_for_terminals),
        kvt_test(a_scrub_shows_its_progress_on_terminals),
    };
    return kvt_main("tool", tests, sizeof(tests) / sizeof(*tests), KVT_DISKS);
}
