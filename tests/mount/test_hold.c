// SPDX-License-Identifier: Apache-2.0
// A mount that is held (--hold) outlives its daemons: clients' calls wait for the next one, and
// nothing wrong is ever taken for right.
#include "tests/mount/fixture_held.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "core/util.h"

#define MIB ((size_t)1 << 20)

// ---- clients ----

enum { CLIENTS = 4, BLOCK = 300 << 10, PIECE = 64 << 10, NAMES = 8 };

struct load {
    const struct kvt_held *held;
    bool with_kills;
    atomic_bool is_over;
    atomic_uint rounds, failed, wrong;
    atomic_uint_fast64_t longest_ms;
    atomic_uint next;
};

/* What a client may be told when the daemon that knew what it had open was killed. */
static bool is_told_of_kill(int error)
{
    return error == ESTALE || error == EEXIST || error == ENOENT ||
           error == EIO; // the kernel's, of a request that was just being read
}

static bool note(struct load *load, const char *call, long result)
{
    if (result >= 0)
        return true;
    if (load->with_kills && is_told_of_kill(errno))
        return false;
    print_message("%s: %s\n", call, strerror(errno));
    atomic_fetch_add(&load->failed, 1);
    return false;
}

static bool store(struct load *load, const char *name, const unsigned char *data)
{
    char temporary[PATH_MAX + 8];
    snprintf(temporary, sizeof(temporary), "%s.tmp", name);
    if (load->with_kills) { // whatever the last kill has left
        unlink(name);
        unlink(temporary);
    }
    int fd = open(temporary, KVT_CREATE, 0644);
    if (!note(load, "create", fd))
        return false;
    bool is_good = true;
    for (size_t at = 0; at < BLOCK && is_good; at += PIECE) {
        size_t len = KVS_MIN((size_t)PIECE, BLOCK - at);
        is_good = note(load, "write", pwrite(fd, data + at, len, (off_t)at));
    }
    is_good = note(load, "close", close(fd)) && is_good;
    return is_good && note(load, "rename", rename(temporary, name));
}

static bool read_back(struct load *load, const char *name, const unsigned char *data)
{
    unsigned char got[BLOCK + 1];
    int fd = open(name, O_RDONLY);
    if (!note(load, "open", fd))
        return false;
    ssize_t len = 0;
    for (ssize_t n = 1; n > 0 && note(load, "read", n = read(fd, got + len, PIECE));)
        len += n;
    if (len == BLOCK && memcmp(got, data, BLOCK) != 0)
        atomic_fetch_add(&load->wrong, 1);
    if (len != BLOCK && !load->with_kills)
        atomic_fetch_add(&load->wrong, 1);
    note(load, "close", close(fd));
    return len == BLOCK;
}

static void *be_client(void *argument)
{
    struct load *load = argument;
    unsigned own = atomic_fetch_add(&load->next, 1);
    char dir[64], name[PATH_MAX];
    snprintf(dir, sizeof(dir), "dir-%u", own);
    note(load, "mkdir", mkdir(kvt_in(load->held->mnt, dir), 0755));
    for (unsigned i = 0; !atomic_load(&load->is_over); i++) {
        unsigned seed = own * NAMES + i % NAMES;
        snprintf(name, sizeof(name), "%s/%s/b%u", load->held->mnt, dir, i % NAMES);
        unsigned char *data = kvt_block(BLOCK, seed);
        uint64_t start = kvt_now_ms();
        if (store(load, name, data))
            read_back(load, name, data);
        uint64_t took = kvt_now_ms() - start;
        if (took > atomic_load(&load->longest_ms))
            atomic_store(&load->longest_ms, took);
        atomic_fetch_add(&load->rounds, 1);
        free(data);
    }
    return NULL;
}

/* Every block below that has a record has the right one, and its bytes. Returns how many. */
static unsigned check_blocks(const struct kvt_held *held, bool all_sealed)
{
    unsigned sealed = 0;
    for (unsigned own = 0; own < CLIENTS; own++) {
        for (unsigned i = 0; i < NAMES; i++) {
            char name[64];
            snprintf(name, sizeof(name), "dir-%u/b%u", own, i);
            const char *path = kvt_in(held->source, name);
            if (kvt_is_gone(path))
                continue;
            if (all_sealed || kvt_record_of(path).kind == KVS_RECORD_SUM) {
                kvt_assert_sealed(path);
                kvt_assert_block(path, BLOCK, own * NAMES + i);
                sealed++;
            }
        }
    }
    return sealed;
}

static void run_load(struct kvt_held *held, bool with_kills, unsigned times)
{
    struct load load = {.held = held, .with_kills = with_kills};
    pthread_t clients[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&clients[i], NULL, be_client, &load), 0);
    for (unsigned i = 0; i < times; i++) {
        unsigned before = atomic_load(&load.rounds);
        kvt_wait_for(atomic_load(&load.rounds) >= before + 2 * CLIENTS);
        if (with_kills)
            kvt_held_kill_and_replace(held);
        else
            kvt_held_upgrade(held);
    }
    atomic_store(&load.is_over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    assert_int_equal(atomic_load(&load.failed), 0);
    assert_int_equal(atomic_load(&load.wrong), 0);
    unsigned sealed = check_blocks(held, !with_kills);
    print_message("%u daemons, %u blocks stored and loaded, longest round %ju ms, %u sealed\n",
                  times, atomic_load(&load.rounds), (uintmax_t)atomic_load(&load.longest_ms),
                  sealed);
    assert_true(sealed > 0);
}

static void upgrades_fail_no_call(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    run_load(&held, false, KVT_IS_SANITIZED ? 5 : 20);
    kvt_held_end(&held);
}

static void upgrades_without_privileges_fail_no_call(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, KVT_NOBODY, "30");
    run_load(&held, false, KVT_IS_SANITIZED ? 3 : 10);
    kvt_held_end(&held);
}

static void c23_kills_leave_nothing_wrong(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    run_load(&held, true, KVT_IS_SANITIZED ? 5 : 20);
    kvt_held_end(&held);
}

// ---- what is open goes on ----

/* The sum is that of the bytes as they arrived under both daemons: nothing is read back, so what
 * rots meanwhile is found. */
static void c06_a_block_is_written_under_two_daemons(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    unsigned char *data = kvt_block(4 * MIB, 7);
    int fd = kvt_open(kvt_in(held.mnt, "t"), KVT_CREATE);
    int rotten = kvt_open(kvt_in(held.mnt, "rotten"), KVT_CREATE);
    int direct = kvt_open(kvt_in(held.mnt, "direct"), KVT_CREATE | O_DIRECT);
    int append = kvt_open(kvt_in(held.mnt, "append"), KVT_CREATE | O_APPEND);
    int nameless = kvt_open(held.mnt, O_TMPFILE | O_RDWR);
    int gone = kvt_open(kvt_in(held.mnt, "gone"), O_CREAT | O_EXCL | O_RDWR);
    int fds[] = {fd, rotten, direct, append, nameless, gone};
    assert_int_equal(unlink(kvt_in(held.mnt, "gone")), 0);
    for (unsigned half = 0; half < 2; half++) {
        off_t at = (off_t)(half * 2 * MIB);
        for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
            assert_int_equal(fds[i] == append ? write(append, data + at, 2 * MIB)
                                              : pwrite(fds[i], data + at, 2 * MIB, at),
                             2 * MIB);
        if (half == 0) {
            assert_int_equal(kvt_held_terminate(&held, held.daemon), 0);
            kvt_flip(kvt_in(held.source, "rotten"), 4711);
            kvt_held_start(&held);
            kvt_held_await_ready(&held);
        }
    }
    unsigned char *got = kvt_block(4 * MIB, 0);
    assert_int_equal(pread(gone, got, 4 * MIB, 0), 4 * MIB);
    assert_memory_equal(got, data, 4 * MIB);
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", nameless);
    assert_int_equal(
        linkat(AT_FDCWD, link, AT_FDCWD, kvt_in(held.mnt, "linked"), AT_SYMLINK_FOLLOW), 0);
    assert_int_equal(rename(kvt_in(held.mnt, "t"), kvt_in(held.mnt, "final")),
                     0); // before it is closed
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        assert_int_equal(close(fds[i]), 0);
    const char *names[] = {"final", "direct", "append", "linked"};
    for (size_t i = 0; i < 4; i++) {
        kvt_assert_sealed(kvt_in(held.source, names[i]));
        kvt_assert_block(kvt_in(held.source, names[i]), 4 * MIB, 7);
        assert_int_equal(kvt_load_path(kvt_in(held.mnt, names[i]), 4 * MIB, 7, 0), 0);
    }
    kvt_assert_errno(EBADMSG, open(kvt_in(held.mnt, "rotten"), O_RDONLY));
    free(data);
    free(got);
    kvt_held_end(&held);
}

/* What was verified at the open is what is served; what has rotted since is not (C11). */
static void c11_an_open_block_is_read_on(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    unsigned char *data = kvt_block(3 * MIB, 9), *got = kvt_block(MIB, 0);
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), KVT_CREATE, 3 * MIB, 9, 0), 0);
    int fd = kvt_open(kvt_in(held.mnt, "a"), O_RDONLY);
    for (unsigned i = 0; i < 3; i++) { // over several daemons
        kvt_held_upgrade(&held);
        assert_int_equal(pread(fd, got, MIB, (off_t)(i * MIB)), MIB);
        assert_memory_equal(got, data + i * MIB, MIB);
    }
    kvt_flip(kvt_in(held.source, "a"), (off_t)MIB + 5);
    kvt_held_upgrade(&held);
    assert_int_equal(pread(fd, got, MIB, 0), MIB);
    kvt_assert_errno(EIO, pread(fd, got, MIB, (off_t)MIB));
    assert_int_equal(close(fd), 0);
    kvt_assert_errno(EBADMSG, open(kvt_in(held.mnt, "a"), O_RDONLY)); // under the name handed over
    assert_true(kvt_is_gone(kvt_in(held.source, "a")));
    free(data);
    free(got);
    kvt_held_end(&held);
}

/* What must not be sealed stays so; a record that the client set counts. */
static void c05_c08_a_block_keeps_its_state(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "bad"), KVT_CREATE, MIB, 1, 0), 0);
    kvt_flip(kvt_in(held.source, "bad"), 4711);
    int bad = kvt_open(kvt_in(held.mnt, "bad"), O_WRONLY);
    kvt_put(bad, 100, 2, 0);
    int own = kvt_open(kvt_in(held.mnt, "own"), KVT_CREATE);
    kvt_put(own, MIB, 3, 0);
    assert_int_equal(kvt_set_record(kvt_in(held.mnt, "own"), 0x12345678), 0);
    kvt_held_upgrade(&held);
    kvt_assert_errno(EBADMSG, close(own));
    kvt_assert_errno(EBADMSG, rename(kvt_in(held.mnt, "own"), kvt_in(held.mnt, "own2")));
    kvt_assert_errno(EBADMSG, close(bad));
    assert_true(kvt_is_gone(kvt_in(held.source, "bad")));
    kvt_held_end(&held);
}

static void directories_and_locks_go_on(void **state)
{
    struct kvt_held held;
    enum { FILES = 3000 };
    kvt_held_make(*state, &held, KVT_NOBODY, "30");
    assert_int_equal(mkdir(kvt_in(held.mnt, "d"), 0777), 0);
    char name[64];
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "d/%u", i);
        close(kvt_open(kvt_in(held.source, name), O_CREAT | O_WRONLY));
    }
    int dir_fd = kvt_open(kvt_in(held.mnt, "d"), O_PATH | O_DIRECTORY);
    int one = kvt_open(kvt_in(held.mnt, "lock"), O_CREAT | O_RDWR);
    int other = kvt_open(kvt_in(held.mnt, "lock"), O_RDWR);
    assert_int_equal(flock(one, LOCK_EX), 0);
    DIR *dir = opendir(kvt_in(held.mnt, "d"));
    bool seen[FILES] = {false};
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        unsigned number = (unsigned)strtoul(entry->d_name, NULL, 10);
        assert_false(seen[number]);
        seen[number] = true;
        if (++count % 1000 == 1)
            kvt_held_upgrade(&held);
    }
    assert_int_equal(count, FILES);
    closedir(dir);
    kvt_assert_errno(EWOULDBLOCK, flock(other, LOCK_EX | LOCK_NB));
    close(one);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    int fd = openat(dir_fd, "new", KVT_CREATE, 0644); // as from a working directory
    assert_true(fd >= 0);
    kvt_put(fd, 1000, 4, 0);
    assert_int_equal(close(fd), 0);
    kvt_assert_sealed(kvt_in(held.source, "d/new"));
    close(dir_fd);
    fd = kvt_open(kvt_in(held.mnt, ".kvseal/status"), O_RDONLY);
    kvt_held_upgrade(&held);
    char text[64];
    assert_true(read(fd, text, sizeof(text)) > 0);
    assert_int_equal(text[0], '{');
    close(fd);
    kvt_held_end(&held);
}

// ---- kills ----

static void c23_a_kill_is_told_to_who_has_files_open(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "whole"), KVT_CREATE, MIB, 1, 0), 0);
    int reader = kvt_open(kvt_in(held.mnt, "whole"), O_RDONLY);
    int writer = kvt_open(kvt_in(held.mnt, "half"), KVT_CREATE);
    kvt_put(writer, MIB, 2, 0);
    kvt_held_kill_and_replace(&held);
    char byte;
    kvt_assert_errno(ESTALE, pread(reader, &byte, 1, 0));
    kvt_assert_errno(ESTALE, pwrite(writer, "x", 1, 0));
    kvt_assert_errno(ESTALE, close(writer));
    close(reader);
    kvt_assert_unsealed(kvt_in(held.source, "half"));
    assert_int_equal(kvt_load_path(kvt_in(held.mnt, "whole"), MIB, 1, 0), 0);
    kvt_held_upgrade(&held); // what the one before the last gave is still known to be unknown
    assert_int_equal(kvt_load_path(kvt_in(held.mnt, "whole"), MIB, 1, 0), 0);
    kvt_held_end(&held);
}

// ---- the holder ----

static void the_hold_ends(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "0.5");
    int fd = kvt_open(kvt_in(held.mnt, "a"), KVT_CREATE);
    kvt_put(fd, MIB, 1, 0);
    assert_int_equal(kvt_held_terminate(&held, held.daemon), 0);
    uint64_t start = kvt_now_ms();
    assert_int_equal(close(fd), -1); // waits, and is told
    assert_true(errno == ENOTCONN || errno == ECONNABORTED);
    uint64_t waited = kvt_now_ms() - start;
    assert_true(waited >= 300 && waited < 5000);
    kvt_wait_for(!kvt_is_mounted(held.mnt));
    kvt_assert_unsealed(kvt_in(held.source, "a"));
    kvt_wait_for(kvt_file_has(held.log, "its clients' calls fail"));
    kvt_held_start(&held); // a new mount
    kvt_held_await_ready(&held);
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "b"), KVT_CREATE, MIB, 1, 0), 0);
    kvt_held_kill(&held);
    kvt_wait_for(!kvt_is_mounted(held.mnt));
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    kvt_held_end(&held);
}

static void a_mounter_that_ends_lets_nobody_wait(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "600");
    int fd = kvt_open(kvt_in(held.mnt, "a"), KVT_CREATE);
    kvt_held_kill(&held);
    kvt_wait_for(kvt_file_has(held.log, "clients wait"));
    assert_int_equal(kvt_held_terminate(&held, held.mounter), 0);
    assert_int_equal(close(fd), -1);
    assert_false(kvt_is_mounted(held.mnt));
    held.mounter = kvt_held_start_mounter(&held);
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    kvt_held_end(&held);
}

static void a_mount_that_somebody_took_away_is_not_held(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "600");
    assert_int_equal(umount2(held.mnt, 0), 0);
    assert_int_equal(kvt_held_await_end(&held, held.daemon), 0);
    kvt_held_start(&held);
    kvt_held_await_ready(&held);
    assert_int_equal(kvt_write_file(kvt_in(held.mnt, "a"), KVT_CREATE, MIB, 1, 0), 0);
    kvt_held_end(&held);
}

static void the_next_daemon_may_wait_for_the_last(void **state)
{
    struct kvt_held held;
    kvt_held_make(*state, &held, 0, "30");
    int fd = kvt_open(kvt_in(held.mnt, "a"), KVT_CREATE);
    kvt_put(fd, MIB, 1, 0);
    pid_t last = held.daemon;
    kvt_held_start(&held);
    usleep(300000);
    kvt_put(fd, MIB, 2, MIB);
    uint64_t start = kvt_now_ms();
    kill(last, SIGTERM);
    kvt_put(fd, MIB, 3, 2 * MIB); // goes through, whoever serves it
    assert_int_equal(kvt_held_await_end(&held, last), 0);
    kvt_held_await_ready(&held);
    assert_int_equal(close(fd), 0);
    print_message("the next one served within %ju ms\n", (uintmax_t)(kvt_now_ms() - start));
    kvt_assert_sealed(kvt_in(held.source, "a"));
    kvt_held_end(&held);
}

/* The mounter's own limit is the usual soft one. */
static void many_open_files_go_on(void **state)
{
    enum { FILES = 600 };
    struct kvt_held held;
    struct rlimit limit, low;
    static int fds[FILES];
    char name[32];
    getrlimit(RLIMIT_NOFILE, &limit);
    low = (struct rlimit){.rlim_cur = 256, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    kvt_held_make(*state, &held, KVT_NOBODY, "30");
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(chmod(held.mnt, 0777), 0);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "%u", i);
        fds[i] = kvt_open(kvt_in(held.mnt, name), KVT_CREATE);
        kvt_put(fds[i], 1000, i, 0);
    }
    kvt_held_upgrade(&held);
    for (unsigned i = 0; i < FILES; i++) {
        assert_int_equal(close(fds[i]), 0);
        snprintf(name, sizeof(name), "%u", i);
        kvt_assert_sealed(kvt_in(held.source, name));
    }
    kvt_held_end(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(upgrades_fail_no_call),
        kvt_test(upgrades_without_privileges_fail_no_call),
        kvt_test(c23_kills_leave_nothing_wrong),
        kvt_test(c06_a_block_is_written_under_two_daemons),
        kvt_test(c11_an_open_block_is_read_on),
        kvt_test(c05_c08_a_block_keeps_its_state),
        kvt_test(directories_and_locks_go_on),
        kvt_test(c23_a_kill_is_told_to_who_has_files_open),
        kvt_test(the_hold_ends),
        kvt_test(a_mounter_that_ends_lets_nobody_wait),
        kvt_test(a_mount_that_somebody_took_away_is_not_held),
        kvt_test(the_next_daemon_may_wait_for_the_last),
        kvt_test(many_open_files_go_on),
    };
    return kvt_main("a mount that is held", tests, sizeof(tests) / sizeof(tests[0]), KVT_DIR);
}
