// SPDX-License-Identifier: Apache-2.0
// Several processes at one file: appending, locks, and what others change below the mount (C19).
#include "tests/mount/fixture_scenario.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* ---- O_APPEND ---- */

#define WRITERS 4
#define RECORDS 300

struct line {
    uint16_t writer, number, length;
};

static void append_lines(const char *path, uint16_t writer)
{
    unsigned char room[1000];
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    for (uint16_t i = 0; i < RECORDS; i++) {
        struct line line = {writer, i, (uint16_t)(sizeof(line) + (writer * 97U + i * 31U) % 900)};
        kvt_fill(room, line.length, writer * 1000U + i);
        memcpy(room, &line, sizeof(line));
        if (write(fd, room, line.length) != line.length)
            _exit(1);
    }
    _exit(close(fd) == 0 ? 0 : 1);
}

static void assert_every_line(const char *path)
{
    static unsigned char bytes[2 * MIB], wanted[1000];
    bool seen[WRITERS][RECORDS] = {{false}};
    unsigned count = 0;
    int fd = kvt_open(path, O_RDONLY);
    ssize_t size = read(fd, bytes, sizeof(bytes));
    close(fd);
    struct line line;
    for (ssize_t at = 0; at < size; at += line.length, count++) {
        memcpy(&line, bytes + at, sizeof(line));
        assert_true(line.writer < WRITERS && line.number < RECORDS && line.length <= 1000);
        assert_false(seen[line.writer][line.number]);
        seen[line.writer][line.number] = true;
        kvt_fill(wanted, line.length, line.writer * 1000U + line.number);
        memcpy(wanted, &line, sizeof(line));
        assert_memory_equal(bytes + at, wanted, line.length);
    }
    assert_int_equal(count, WRITERS * RECORDS);
}

static void c19_appends_of_several_processes_all_arrive(void **state)
{
    struct kvt_env *env = *state;
    pid_t writers[WRITERS];
    for (uint16_t i = 0; i < WRITERS; i++) {
        if ((writers[i] = fork()) == 0)
            append_lines(kvt_mnt(env, "log"), i);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_int_equal(waitpid(writers[i], &status, 0), writers[i]);
        assert_int_equal(status, 0);
    }
    assert_every_line(kvt_mnt(env, "log"));
    kvt_wait_for(kvt_record_of(kvt_src(env, "log")).kind == KVS_RECORD_SUM);
    kvt_assert_sealed(kvt_src(env, "log"));
}

static void c19_appending_finds_the_end_of_a_file_that_grew_below(void **state)
{
    struct kvt_env *env = *state;
    static const int flags[] = {0, O_SYNC, O_DIRECT};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        char wanted[64] = "";
        int mounted = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_APPEND | O_CREAT | flags[i]);
        int below = kvt_open(kvt_src(env, "a"), O_WRONLY | O_APPEND);
        for (int turn = 0; turn < 5; turn++) { // faster than attributes become old
            assert_int_equal(write(mounted, "above,", 6), 6);
            assert_int_equal(write(below, "below,", 6), 6);
            strcat(wanted, "above,below,");
        }
        assert_int_equal(kvt_close(mounted), 0);
        close(below);
        kvt_assert_content(kvt_src(env, "a"), wanted, strlen(wanted));
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
}

/* One write(2) is several requests then, which the kernel may send at the same time. */
static void c19_a_large_append_keeps_its_order(void **state)
{
    struct kvt_env *env = *state;
    static const int flags[] = {0, O_DIRECT};
    size_t size = 8 * MIB;
    unsigned char *block = kvt_block(2 * size, 1);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        for (int round = 0; round < 3; round++) {
            int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_APPEND | O_CREAT | flags[i]);
            for (size_t at = 0; at < 2 * size; at += size)
                assert_int_equal(write(fd, block + at, size), size);
            assert_int_equal(kvt_close(fd), 0);
            kvt_assert_content(kvt_src(env, "a"), block, 2 * size);
            assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
        }
    }
    free(block);
}

static void see_append_flag(void)
{
    kvt_make("file", "0123456789");
    int fd = open("file", O_RDWR | O_APPEND);
    kvt_try(pwrite(fd, "end", 3, 2)); // Linux appends
    kvt_try(lseek(fd, 0, SEEK_SET));
    kvt_try(write(fd, "more", 4));
    kvt_try(lseek(fd, 0, SEEK_CUR));
    kvt_try(fcntl(fd, F_SETFL, 0));
    kvt_try(pwrite(fd, "in", 2, 2));
    kvt_try(fcntl(fd, F_SETFL, O_APPEND));
    kvt_try(write(fd, "again", 5));
    kvt_try(close(fd));
    kvt_note_content("file");
}

static void c19_appending_can_be_switched(void **state)
{
    kvt_same_as_below(*state, see_append_flag);
    kvt_assert_sealed(kvt_src(*state, KVT_MOUNTED "/file"));
}

/* ---- locks ---- */

static int pipes[2][2]; /* to a child and back */

static void tell(int which)
{
    kvt_holds(write(pipes[which][1], "!", 1) == 1);
}

static void wait_to_be_told(int which)
{
    char byte;
    kvt_holds(read(pipes[which][0], &byte, 1) == 1);
}

static struct flock range(short type, off_t start, off_t length)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

static void hold_locks(void)
{
    int fd = open("file", O_RDWR), other = open("other", O_RDWR);
    kvt_try(flock(fd, LOCK_EX));
    kvt_try(fcntl(other, F_SETLK, &(struct flock[]){range(F_WRLCK, 10, 20)}));
    kvt_try(fcntl(other, F_SETLK, &(struct flock[]){range(F_RDLCK, 50, 10)}));
    tell(0);
    wait_to_be_told(1);
    close(fd);
    close(open("other", O_RDONLY)); // any close drops all of them
    tell(0);
    wait_to_be_told(1);
    kvt_try(fcntl(other, F_OFD_SETLK, &(struct flock[]){range(F_WRLCK, 0, 0)}));
    close(open("other", O_RDONLY)); // these stay
    tell(0);
    wait_to_be_told(1);
    _exit(0); // that drops what is left
}

static void meet_locks(void)
{
    int fd = open("file", O_RDWR), other = open("other", O_RDWR);
    kvt_try(flock(fd, LOCK_SH | LOCK_NB));
    kvt_try(flock(fd, LOCK_EX | LOCK_NB));
    kvt_try(fcntl(other, F_SETLK, &(struct flock[]){range(F_RDLCK, 0, 10)}));
    kvt_try(fcntl(other, F_SETLK, &(struct flock[]){range(F_RDLCK, 15, 1)}));
    kvt_try(fcntl(other, F_SETLK, &(struct flock[]){range(F_RDLCK, 55, 1)}));
    kvt_try(fcntl(other, F_SETLK, &(struct flock[]){range(F_WRLCK, 55, 1)}));
    kvt_try(fcntl(other, F_OFD_SETLK, &(struct flock[]){range(F_WRLCK, 0, 0)}));
    struct flock found = range(F_WRLCK, 0, 40);
    kvt_try(fcntl(other, F_GETLK, &found));
    kvt_note("%d from %jd, %jd long, %s", found.l_type, (intmax_t)found.l_start,
             (intmax_t)found.l_len, found.l_pid > 0 && found.l_pid != getpid() ? "a child's" : "?");
    kvt_try(fcntl(open("other", O_RDONLY), F_SETLK, &(struct flock[]){range(F_WRLCK, 900, 1)}));
}

static void see_locks(void)
{
    kvt_make("file", "text");
    kvt_make("other", "text");
    kvt_holds(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
    pid_t pid = fork();
    if (pid == 0)
        hold_locks();
    wait_to_be_told(0);
    meet_locks();
    tell(1);
    wait_to_be_told(0);
    meet_locks(); // they are free
    int fd = open("other", O_RDWR);
    close(fd);
    tell(1);
    wait_to_be_told(0);
    fd = open("other", O_RDWR);
    kvt_try(fcntl(fd, F_SETLK, &(struct flock[]){range(F_RDLCK, 0, 1)}));
    pid_t waiter = fork();
    if (waiter == 0) { // waits for the lock until its holder ends
        int mine = open("other", O_RDWR);
        _exit(fcntl(mine, F_SETLKW, &(struct flock[]){range(F_WRLCK, 0, 0)}) == 0 ? 5 : 6);
    }
    int status;
    kvt_holds(waitpid(waiter, &status, WNOHANG) == 0);
    tell(1);
    kvt_holds(waitpid(waiter, &status, 0) == waiter);
    kvt_note("%x", status);
    kvt_holds(waitpid(pid, NULL, 0) == pid);
    kvt_try(flock(open(".", O_RDONLY), LOCK_EX | LOCK_NB));
}

static void c19_locks_between_processes(void **state)
{
    kvt_same_as_below(*state, see_locks);
}

/* ---- what others change below ---- */

static void overwrite_below(struct kvt_env *env, const char *name, size_t size, unsigned seed)
{
    kvt_remove_record(kvt_src(env, name));
    assert_int_equal(kvt_write_file(kvt_src(env, name), O_WRONLY | O_TRUNC, size, seed, 0), 0);
}

static void c19_a_reader_sees_what_is_written_below(void **state)
{
    struct kvt_env *env = *state;
    overwrite_below(env, (kvt_store(env, "a", 70000, 1, 0), "a"), 70000, 1); // without a record
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    unsigned char got[1000], *block = kvt_block(90000, 2);
    assert_int_equal(pread(fd, got, sizeof(got), 0), sizeof(got));
    overwrite_below(env, "a", 90000, 2);
    assert_int_equal(pread(fd, got, sizeof(got), 0), sizeof(got)); // of the same open
    assert_memory_equal(got, block, sizeof(got));
    assert_int_equal(pread(fd, got, sizeof(got), 88000), sizeof(got)); // beyond the old end
    assert_memory_equal(got, block + 88000, sizeof(got));
    free(block);
    close(fd);
    assert_int_equal(kvt_load(env, "a", 90000, 2, 0), 0);
    overwrite_below(env, "a", 1000, 3);
    assert_int_equal(kvt_load(env, "a", 1000, 3, 0), 0);
}

static void c19_a_new_mapping_sees_what_was_written_below(void **state)
{
    struct kvt_env *env = *state;
    for (unsigned seed = 1; seed < 5; seed++) {
        assert_int_equal(kvt_write_file(kvt_src(env, "a"), O_WRONLY | O_CREAT, 40000, seed, 0), 0);
        unsigned char *block = kvt_block(40000, seed);
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        unsigned char *map = mmap(NULL, 40000, PROT_READ, seed % 2 ? MAP_SHARED : MAP_PRIVATE, fd,
                                  0);
        assert_ptr_not_equal(map, MAP_FAILED);
        assert_memory_equal(map, block, 40000);
        munmap(map, 40000);
        close(fd);
        free(block);
    }
}

static void c19_attributes_changed_below_are_seen(void **state)
{
    struct kvt_env *env = *state;
    struct stat st;
    assert_int_equal(kvt_store(env, "a", 5000, 1, 0), 0);
    assert_int_equal(stat(kvt_mnt(env, "a"), &st), 0);
    assert_int_equal(chmod(kvt_src(env, "a"), 0600), 0);
    assert_int_equal(chown(kvt_src(env, "a"), 7, 8), 0);
    kvt_wait_for(stat(kvt_mnt(env, "a"), &st) == 0 && (st.st_mode & 07777) == 0600 &&
                 st.st_uid == 7 && st.st_gid == 8);
    assert_int_equal(truncate(kvt_src(env, "a"), 99), 0);
    kvt_wait_for(stat(kvt_mnt(env, "a"), &st) == 0 && st.st_size == 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c19_appends_of_several_processes_all_arrive),
        kvt_test(c19_appending_finds_the_end_of_a_file_that_grew_below),
        kvt_test(c19_a_large_append_keeps_its_order),
        kvt_test(c19_appending_can_be_switched),
        kvt_test(c19_locks_between_processes),
        kvt_test(c19_a_reader_sees_what_is_written_below),
        kvt_test(c19_a_new_mapping_sees_what_was_written_below),
        kvt_test(c19_attributes_changed_below_are_seen),
    };
    return kvt_main("posix share", tests, sizeof(tests) / sizeof(tests[0]),
                    KVT_TMPFS | KVT_EXT4 | KVT_DIR);
}
