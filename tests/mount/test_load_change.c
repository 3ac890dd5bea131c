// SPDX-License-Identifier: Apache-2.0
// Loading what changes: verified bytes that rot underneath, that are written to, that lose their
// memory (C11); never a false alarm beside writers (C15). Where rot is made by changing the
// source's pages, passthrough is off: its readers see those pages (test_passthrough.c).
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB             ((size_t)1 << 20)
#define SIZE            (3 * MIB + 12345)

/* 0 or -errno of open(2) and close(2). */
static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : kvt_close(fd);
}

/* What pread(2) gives: 0 when it is `len` bytes of kvt_block(size, seed) at `offset`, 1 when it is
 * anything else, or -errno. */
static int look_at(int fd, size_t size, unsigned seed, size_t offset, size_t len)
{
    unsigned char *block = kvt_block(size, seed),
                  *bytes = aligned_alloc(4096, len + 4096 - len % 4096);
    ssize_t n = pread(fd, bytes, len, (off_t)offset);
    int result = n < 0                                                          ? -errno
                 : n != (ssize_t)len || memcmp(bytes, block + offset, len) != 0 ? 1
                                                                                : 0;
    free(block);
    free(bytes);
    return result;
}

/* Why a test of verified buffers cannot hold without them. */
#define READ_AGAIN "what was verified is read again, and is not there any more"

/* ---- C11: rot ---- */

static void c11_bytes_that_rot_after_the_open_are_not_served(void **state)
{
    struct kvt_env *env = *state;
    kvt_not_with("buffers=off", READ_AGAIN);
    static const int accesses[] = {O_RDONLY, O_RDONLY | O_DIRECT, O_RDWR, O_RDWR | O_DIRECT};
    kvt_start(env, "passthrough=off");
    for (size_t i = 0; i < COUNT_OF(accesses); i++) {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), accesses[i]);
        kvt_flip(kvt_src(env, "a"), 100);
        kvt_flip(kvt_src(env, "a"), 2 * MIB);
        kvt_flip(kvt_src(env, "a"), SIZE - 1);
        assert_int_equal(look_at(fd, SIZE, 1, 0, SIZE), 0);
        assert_int_equal(look_at(fd, SIZE, 1, 99, 4096), 0);
        close(fd);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    }
}

static void c11_a_block_cut_after_the_open_is_still_served(void **state)
{
    struct kvt_env *env = *state;
    kvt_not_with("buffers=off", READ_AGAIN);
    kvt_start(env, "passthrough=off");
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(truncate(kvt_src(env, "a"), 0), 0);
    assert_int_equal(look_at(fd, SIZE, 1, 0, SIZE), 0);
    close(fd);
}

/* ---- C11: dropped buffers ---- */

#define SMALL_MEMORY "buffer_memory=32M,passthrough=off"
#define MANY         24
#define BIG          (4 * MIB)

/* Blocks "0" to "23", all open, so that most of them have lost their buffers again. */
static void open_many(struct kvt_env *env, int fds[MANY], int flags)
{
    char name[16];
    kvt_start(env, SMALL_MEMORY);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "%u", i);
        assert_int_equal(kvt_store(env, name, BIG, i, 0), 0);
    }
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "%u", i);
        fds[i] = kvt_open(kvt_mnt(env, name), flags);
    }
}

static void close_many(const int fds[MANY])
{
    for (unsigned i = 0; i < MANY; i++)
        close(fds[i]);
}

static void c11_dropped_buffers_are_read_again(void **state)
{
    struct kvt_env *env = *state;
    int fds[MANY];
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        open_many(env, fds, O_RDONLY | direct);
        for (unsigned i = 0; i < MANY; i++) {
            assert_int_equal(look_at(fds[i], BIG, i, 0, BIG), 0);
            assert_int_equal(look_at(fds[i], BIG, i, MIB - 3, 1000), 0);
        }
        close_many(fds);
        kvt_fresh_dir(env);
    }
}

static void c11_rot_after_the_drop_is_an_error_and_never_served(void **state)
{
    struct kvt_env *env = *state;
    int fds[MANY];
    unsigned errors = 0;
    open_many(env, fds, O_RDONLY);
    for (unsigned i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        kvt_flip(kvt_src(env, name), MIB + 7);
    }
    for (unsigned i = 0; i < MANY; i++) {
        int result = look_at(fds[i], BIG, i, MIB, 4096);
        assert_true(result == 0 || result == -EIO); // from memory, or not at all
        errors += result == -EIO;
        assert_int_equal(look_at(fds[i], BIG, i, 0, 4096), 0); // the pieces beside it are good
        assert_int_equal(look_at(fds[i], BIG, i, 2 * MIB, 2 * MIB), 0);
    }
    assert_true(errors >= MANY - 32 / 4); // what does not fit into the memory
    close_many(fds);
}

static void c11_a_cut_after_the_drop_is_an_error_and_never_short(void **state)
{
    struct kvt_env *env = *state;
    int fds[MANY];
    unsigned errors = 0;
    open_many(env, fds, O_RDONLY);
    for (unsigned i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        assert_int_equal(truncate(kvt_src(env, name), MIB + 1), 0);
    }
    for (unsigned i = 0; i < MANY; i++) {
        int result = look_at(fds[i], BIG, i, 2 * MIB, 4096);
        assert_true(result == 0 || result == -EIO);
        errors += result == -EIO;
    }
    assert_true(errors >= MANY - 32 / 4);
    close_many(fds);
}

/* ---- C11: written through the mount ---- */

static void check_readers_see_the_change(struct kvt_env *env, int read_flags, int write_flags)
{
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int reader = kvt_open(kvt_mnt(env, "a"), read_flags);
    int late = kvt_open(kvt_mnt(env, "a"), read_flags); // has not read yet
    int writer = kvt_open(kvt_mnt(env, "a"), write_flags);
    assert_int_equal(look_at(reader, SIZE, 1, 0, SIZE), 0);
    kvt_put(writer, MIB, 2, 0);
    assert_int_equal(look_at(reader, MIB, 2, 0, MIB), 0);
    assert_int_equal(look_at(late, MIB, 2, 0, MIB), 0);
    assert_int_equal(look_at(reader, SIZE, 1, MIB, MIB), 0); // the rest stayed
    kvt_put(writer, MIB, 3, 0);
    assert_int_equal(look_at(reader, MIB, 3, 0, MIB), 0);
    assert_int_equal(ftruncate(writer, MIB / 2), 0);
    assert_int_equal(look_at(late, MIB, 3, 0, MIB / 2), 0);
    char byte;
    assert_int_equal(pread(reader, &byte, 1, MIB / 2), 0);
    assert_int_equal(kvt_close(writer), 0);
    assert_int_equal(look_at(reader, MIB, 3, 0, MIB / 2), 0);
    close(reader);
    close(late);
    kvt_assert_sealed(kvt_src(env, "a"));
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
}

static void c11_readers_see_what_was_written(void **state)
{
    struct kvt_env *env = *state;
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        check_readers_see_the_change(env, O_RDONLY, O_WRONLY | direct);
        check_readers_see_the_change(env, O_RDONLY | direct, O_RDWR);
        check_readers_see_the_change(env, O_RDWR | direct, O_WRONLY | direct);
    }
}

static void c11_readers_see_what_was_written_by_pieces(void **state)
{
    struct kvt_env *env = *state;
    int fds[MANY];
    open_many(env, fds, O_RDONLY);
    int writer = kvt_open(kvt_mnt(env, "0"), O_WRONLY);
    kvt_put(writer, MIB, 99, MIB);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(look_at(fds[0], BIG, 0, 0, MIB), 0);
        unsigned char *block = kvt_block(MIB, 99), *bytes = kvt_block(MIB, 98);
        assert_int_equal(pread(fds[0], bytes, MIB, MIB), MIB);
        assert_memory_equal(bytes, block, MIB);
        free(block);
        free(bytes);
        if (i == 0)
            assert_int_equal(kvt_close(writer), 0);
    }
    close_many(fds);
}

static void c11_a_writer_reads_its_own_bytes(void **state)
{
    struct kvt_env *env = *state;
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDWR | direct);
        assert_int_equal(look_at(fd, SIZE, 1, 0, SIZE), 0);
        for (unsigned seed = 2; seed < 6; seed++) {
            kvt_put(fd, 8192, seed, 4096);
            unsigned char *block = kvt_block(8192, seed), *bytes = kvt_block(8192, 99);
            assert_int_equal(pread(fd, bytes, 8192, 4096), 8192);
            assert_memory_equal(bytes, block, 8192);
            free(block);
            free(bytes);
        }
        assert_int_equal(kvt_close(fd), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
    }
}

static void c11_readers_see_what_was_written_through_a_mapping(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    int writer = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map + MIB, "mapped", 6);
    assert_int_equal(msync(map, SIZE, MS_SYNC), 0);
    char bytes[6];
    assert_int_equal(pread(reader, bytes, 6, MIB), 6);
    assert_memory_equal(bytes, "mapped", 6);
    munmap(map, SIZE);
    assert_int_equal(kvt_close(writer), 0);
    close(reader);
    kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_SUM);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
}

/* ---- C15 ---- */

static void c15_a_block_being_written_is_not_verified(void **state)
{
    struct kvt_env *env = *state;
    for (int direct = 0; direct <= O_DIRECT; direct += O_DIRECT) {
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_CREAT | direct);
        for (size_t done = 0; done < 4; done++) {
            kvt_put(fd, MIB, (unsigned)done, (off_t)(done * MIB));
            int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY | direct);
            unsigned char *block = kvt_block(MIB, (unsigned)done), *bytes = kvt_block(MIB, 99);
            assert_int_equal(pread(reader, bytes, MIB, (off_t)(done * MIB)), MIB);
            assert_memory_equal(bytes, block, MIB);
            assert_int_equal(pread(reader, bytes, MIB, (off_t)((done + 1) * MIB)), 0);
            free(block);
            free(bytes);
            close(reader);
        }
        assert_int_equal(kvt_close(fd), 0);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
}

static void c15_a_sealed_block_being_rewritten_is_not_verified(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 100000, 2, 50000);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDWR), 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
}

/* It keeps its old record until it is known what becomes of it (C5). */
static void c15_a_corrupt_block_being_rewritten_is_not_judged(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 2 * MIB, 1, 0), 0);
    kvt_flip(kvt_src(env, "a"), 5);
    unsigned char *block = kvt_block(2 * MIB, 2);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    assert_int_equal(kvt_write(fd, block, MIB, 0, 0), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT), 0);
    assert_int_equal(kvt_write(fd, block + MIB, MIB, MIB, 0), 0);
    free(block);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 2 * MIB, 2);
}

/* The client's own sum is judged when its bytes are all there, and no earlier (C8). */
static void c15_a_record_set_by_who_still_writes_is_not_judged(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_CREAT);
    kvt_put(fd, SIZE, 1, 0);
    assert_int_equal(kvt_set_record(kvt_mnt(env, "a"), 0x12345678), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    assert_int_equal(kvt_close(fd), -EBADMSG);
    assert_false(kvt_is_gone(kvt_src(env, "a")));
}

/* Readers and writers of one name. */
#define VERSIONS      4
#define CROWD_SIZE    ((size_t)70000)
#define CROWD_READERS 4
#define CROWD_LOADS   600

struct crowd {
    unsigned char *versions[VERSIONS];
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    bool is_in_place;
    atomic_uint readers_left, loads;
    atomic_int error; /* what went wrong first: -errno, 1: short, 2: wrong bytes */
};

static void note_error(struct crowd *crowd, int error)
{
    int none = 0;
    if (error)
        atomic_compare_exchange_strong(&crowd->error, &none, error);
}

/* One of the versions; or, where it is rewritten in place, a mixture of them. */
static bool is_plausible(const struct crowd *crowd, const unsigned char *bytes)
{
    for (unsigned i = 0; i < VERSIONS; i++)
        if (memcmp(bytes, crowd->versions[i], CROWD_SIZE) == 0)
            return true;
    for (size_t at = 0; at < CROWD_SIZE && crowd->is_in_place; at++) {
        unsigned i = 0;
        while (i < VERSIONS && bytes[at] != crowd->versions[i][at])
            i++;
        if (i == VERSIONS)
            return false;
    }
    return crowd->is_in_place;
}

static void *read_in_crowd(void *argument)
{
    struct crowd *crowd = argument;
    unsigned char *bytes = aligned_alloc(4096, 18 * 4096);
    for (int i = 0; i < CROWD_LOADS && !atomic_load(&crowd->error); i++) {
        int fd = open(crowd->path, (i % 2 ? O_RDONLY : O_RDONLY | O_DIRECT) | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, bytes, CROWD_SIZE);
        note_error(crowd, n < 0                         ? -errno
                          : n != (ssize_t)CROWD_SIZE    ? 1
                          : !is_plausible(crowd, bytes) ? 2
                                                        : 0);
        if (fd >= 0)
            close(fd);
        atomic_fetch_add(&crowd->loads, 1);
    }
    free(bytes);
    atomic_fetch_sub(&crowd->readers_left, 1);
    return NULL;
}

/* One version after the other: over the old one, or by temporary file and rename. */
static void *write_in_crowd(void *argument)
{
    struct crowd *crowd = argument;
    const char *path = crowd->is_in_place ? crowd->path : crowd->temporary;
    for (unsigned i = 0; atomic_load(&crowd->readers_left) && !atomic_load(&crowd->error); i++) {
        int flags = crowd->is_in_place ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL | O_TRUNC;
        int fd = open(path, flags | O_CLOEXEC, 0644);
        const unsigned char *data = crowd->versions[i % VERSIONS];
        int error = fd < 0 ? -errno : kvt_write(fd, data, CROWD_SIZE, 0, i % 3 ? 0 : 30000);
        if (fd >= 0) {
            int close_error = kvt_close(fd);
            error = error ? error : close_error;
        }
        if (!error && !crowd->is_in_place && rename(path, crowd->path) != 0)
            error = -errno;
        note_error(crowd, error);
    }
    return NULL;
}

static void check_loads_beside_a_writer(struct kvt_env *env, bool is_in_place)
{
    struct crowd crowd = {.is_in_place = is_in_place, .readers_left = CROWD_READERS};
    pthread_t readers[CROWD_READERS], writer;
    snprintf(crowd.path, sizeof(crowd.path), "%s", kvt_mnt(env, "a"));
    snprintf(crowd.temporary, sizeof(crowd.temporary), "%s.tmp", crowd.path);
    for (unsigned i = 0; i < VERSIONS; i++)
        crowd.versions[i] = kvt_block(CROWD_SIZE, i);
    assert_int_equal(kvt_store(env, "a", CROWD_SIZE, 0, 0), 0);
    pthread_create(&writer, NULL, write_in_crowd, &crowd);
    for (size_t i = 0; i < CROWD_READERS; i++)
        pthread_create(&readers[i], NULL, read_in_crowd, &crowd);
    for (size_t i = 0; i < CROWD_READERS; i++)
        pthread_join(readers[i], NULL);
    pthread_join(writer, NULL);
    for (unsigned i = 0; i < VERSIONS; i++)
        free(crowd.versions[i]);
    int error = atomic_load(&crowd.error);
    if (error)
        fail_msg("after %u loads: %s", atomic_load(&crowd.loads),
                 error == 1   ? "a short read"
                 : error == 2 ? "wrong bytes"
                              : strerror(-error));
    kvt_assert_sealed(kvt_src(env, "a"));
    assert_int_equal(kvt_log_has(env, "corrupt block"), false);
}

static void c15_no_alarm_beside_who_replaces_the_block(void **state)
{
    check_loads_beside_a_writer(*state, false);
}

static void c15_no_alarm_beside_who_rewrites_the_block(void **state)
{
    check_loads_beside_a_writer(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c11_bytes_that_rot_after_the_open_are_not_served),
        kvt_test(c11_a_block_cut_after_the_open_is_still_served),
        kvt_test(c11_dropped_buffers_are_read_again),
        kvt_test(c11_rot_after_the_drop_is_an_error_and_never_served),
        kvt_test(c11_a_cut_after_the_drop_is_an_error_and_never_short),
        kvt_test(c11_readers_see_what_was_written),
        kvt_test(c11_readers_see_what_was_written_by_pieces),
        kvt_test(c11_a_writer_reads_its_own_bytes),
        kvt_test(c11_readers_see_what_was_written_through_a_mapping),
        kvt_test(c15_a_block_being_written_is_not_verified),
        kvt_test(c15_a_sealed_block_being_rewritten_is_not_verified),
        kvt_test(c15_a_corrupt_block_being_rewritten_is_not_judged),
        kvt_test(c15_a_record_set_by_who_still_writes_is_not_judged),
        kvt_test(c15_no_alarm_beside_who_replaces_the_block),
        kvt_test(c15_no_alarm_beside_who_rewrites_the_block),
    };
    return kvt_main("load_change", tests, COUNT_OF(tests), KVT_DISKS);
}
