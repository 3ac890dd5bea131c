// SPDX-License-Identifier: Apache-2.0
// Changing blocks in place: no stale record (C4), no laundering (C5), files too large for a second
// look (C6).
#include "tests/mount/fixture.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define LARGE (4 * MIB + 1)
#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define SIZE  (256 * KIB + 77) /* of most blocks here: no multiple of anything */

/* ---- ways to change content ---- */

static int change_by_write(struct kvt_env *env, int fd)
{
    return pwrite(fd, "change", 6, 1000) == 6 ? 0 : -errno;
}

static int change_by_truncate(struct kvt_env *env, int fd)
{
    return ftruncate(fd, 100000) == 0 ? 0 : -errno;
}

static int change_by_growing(struct kvt_env *env, int fd)
{
    return ftruncate(fd, 1000000) == 0 ? 0 : -errno;
}

static int change_by_fallocate(struct kvt_env *env, int fd)
{
    return fallocate(fd, 0, 0, 1000000) == 0 ? 0 : -errno;
}

static int change_by_punching(struct kvt_env *env, int fd)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 50000) == 0 ? 0 : -errno;
}

static int change_by_zeroing(struct kvt_env *env, int fd)
{
    return fallocate(fd, FALLOC_FL_ZERO_RANGE, 5000, 50000) == 0 ? 0 : -errno;
}

static int change_by_copy(struct kvt_env *env, int fd)
{
    int from = kvt_open(kvt_mnt(env, "other"), O_RDONLY);
    off_t in = 0, out = 8192;
    ssize_t n = copy_file_range(from, &in, fd, &out, 16384, 0);
    int error = n < 0 ? -errno : n == 16384 ? 0 : -EIO;
    close(from);
    return error;
}

static int change_by_mapping(struct kvt_env *env, int fd)
{
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    memcpy(map + 70000, "change", 6);
    int error = msync(map, SIZE, MS_SYNC) == 0 ? 0 : -errno;
    munmap(map, SIZE);
    return error;
}

static const struct way {
    const char *name;
    int (*change)(struct kvt_env *env, int fd); /* 0 or -errno */
} ways[] = {
    {"pwrite", change_by_write},
    {"ftruncate to less", change_by_truncate},
    {"ftruncate to more", change_by_growing},
    {"fallocate beyond the end", change_by_fallocate},
    {"a punched hole", change_by_punching},
    {"a zeroed range", change_by_zeroing},
    {"copy_file_range", change_by_copy},
    {"a shared mapping", change_by_mapping},
};

#define for_each_way(way)                                                                          \
    for (const struct way *way = ways; way < ways + sizeof(ways) / sizeof(ways[0]); way++)

/* ---- C4 ---- */

static void c04_the_record_is_gone_after_the_first_change(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "other", SIZE, 9, 0), 0);
    for_each_way(way)
    {
        assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
        uint32_t before = kvt_sum_of(kvt_src(env, "a"));
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDWR);
        int error = way->change(env, fd);
        if (error == -EOPNOTSUPP) { // tmpfs cannot zero a range
            assert_int_equal(kvt_close(fd), 0);
            kvt_assert_sealed_block(env, "a", SIZE, 1);
            continue;
        }
        if (error || kvt_record_of(kvt_src(env, "a")).kind != KVS_RECORD_NONE)
            fail_msg("%s: %s", way->name, error ? strerror(-error) : "the record is still there");
        assert_int_not_equal(kvt_sum_of(kvt_src(env, "a")), before);
        assert_int_equal(kvt_close(fd), 0);
        kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind ==
                     KVS_RECORD_SUM); // a mapping's RELEASE
        kvt_assert_sealed(kvt_src(env, "a"));
    }
}

static void c04_truncation_at_open_drops_the_record(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_TRUNC);
    struct kvs_record record = kvt_record_of(kvt_src(env, "a"));
    assert_true(record.kind == KVS_RECORD_NONE || record.crc == 0); // it is empty now
    kvt_put(fd, 4096, 2, 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 4096, 2);
}

static void c04_a_kill_leaves_a_changed_block_unsealed(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 100, 2, 5000);
    kvt_kill(env);
    kvt_assert_unsealed(kvt_src(env, "a"));
    close(fd);
    kvt_start(env, NULL);
    int read_fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    close(read_fd);
}

/* ---- C5 ---- */

/* A sealed block of `size` bytes, corrupt at `at`. */
static void store_corrupt(struct kvt_env *env, size_t size, off_t at)
{
    assert_int_equal(kvt_store(env, "a", size, 1, 0), 0);
    kvt_flip(kvt_src(env, "a"), at);
}

static void c05_a_partial_change_of_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    static const off_t offsets[] = {0, 40000, SIZE - 100}; /* of a write of 100 bytes */
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        store_corrupt(env, SIZE, 40050); // the second one writes over the wrong bit
        assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        kvt_put(fd, 100, 2, offsets[i]);
        assert_int_equal(kvt_close(fd), -EBADMSG);
        kvt_assert_gone(env, "a");
        kvt_assert_gone(env, "b");
    }
}

static void c05_every_other_way_to_change_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "other", SIZE, 9, 0), 0);
    for_each_way(way)
    {
        if (way->change == change_by_mapping)
            continue; // needs O_RDWR, which is refused
        store_corrupt(env, SIZE, 40050);
        int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        int error = way->change(env, fd);
        int close_error = kvt_close(fd);
        if (error == -EOPNOTSUPP) {
            unlink(kvt_src(env, "a"));
            continue;
        }
        if (error != -EBADMSG && close_error != -EBADMSG)
            fail_msg("%s: %d, close: %d", way->name, error, close_error);
        kvt_assert_gone(env, "a");
    }
}

static void c05_appending_to_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "more", 4), 4);
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c05_a_publish_of_a_corrupt_block_changed_in_part_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 100, 2, 0);
    kvt_assert_errno(EBADMSG, rename(kvt_mnt(env, "a"), kvt_mnt(env, "b")));
    assert_true(kvt_is_gone(kvt_src(env, "b")));
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c05_opening_a_corrupt_block_for_both_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDWR));
    kvt_assert_gone(env, "a");
}

static void c05_a_full_rewrite_of_a_corrupt_block_is_sealed(void **state)
{
    struct kvt_env *env = *state;
    static const size_t sizes[] = {1, 4096, SIZE, 4 * MIB + 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t chunk = 64 * KIB; chunk; chunk = chunk == MIB ? 0 : MIB) {
            store_corrupt(env, sizes[i], (off_t)sizes[i] / 2);
            assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, sizes[i], 2, chunk), 0);
            kvt_assert_sealed_block(env, "a", sizes[i], 2);
            assert_int_equal(kvt_load(env, "a", sizes[i], 2, 0), 0);
        }
    }
}

static void c05_a_rewrite_that_leaves_one_old_byte_is_refused(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, SIZE - 1, 2, 0), -EBADMSG);
    kvt_assert_gone(env, "a");
}

/* Who else has it open may close it before the rewrite is complete. */
static void c05_a_rewrite_outlives_the_close_of_another_handle(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 70000);
    unsigned char *block = kvt_block(SIZE, 2);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    int other_fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    assert_int_equal(kvt_write(fd, block, SIZE / 2, 0, 0), 0);
    assert_int_equal(kvt_close(other_fd), 0);
    assert_int_equal(kvt_write(fd, block + SIZE / 2, SIZE - SIZE / 2, SIZE / 2, 0), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 2);
    free(block);
}

static void c05_a_rewrite_outlives_the_close_of_an_inherited_descriptor(void **state)
{
    struct kvt_env *env = *state;
    int status;
    store_corrupt(env, SIZE, 70000);
    unsigned char *block = kvt_block(SIZE, 2);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    assert_int_equal(kvt_write(fd, block, SIZE / 2, 0, 0), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(-kvt_close(fd));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(kvt_write(fd, block + SIZE / 2, SIZE - SIZE / 2, SIZE / 2, 0), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 2);
    free(block);
}

static void c05_two_rewrite_halves_of_a_corrupt_block(void **state)
{
    struct kvt_env *env = *state;
    static const off_t half = SIZE / 2;
    for (int is_complete = 0; is_complete < 2; is_complete++) {
        store_corrupt(env, SIZE, 70000);
        unsigned char *block = kvt_block(SIZE, 2);
        size_t rest = (size_t)(SIZE - half) - (is_complete ? 0 : 1);
        int first_fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        int last_fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
        assert_int_equal(kvt_write(first_fd, block, (size_t)half, 0, 0), 0);
        assert_int_equal(kvt_write(last_fd, block + half, 100, half, 0), 0);
        assert_int_equal(kvt_close(first_fd), 0);
        assert_int_equal(kvt_write(last_fd, block + half, rest, half, 0), 0);
        assert_int_equal(kvt_close(last_fd), is_complete ? 0 : -EBADMSG);
        if (is_complete)
            kvt_assert_sealed_block(env, "a", SIZE, 2);
        else
            kvt_assert_gone(env, "a");
        free(block);
    }
}

static void c05_truncation_at_open_heals_a_corrupt_block(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY | O_TRUNC, 4096, 2, 0), 0);
    kvt_assert_sealed_block(env, "a", 4096, 2);
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_RDWR | O_TRUNC, SIZE, 3, 0), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 3);
}

static void c05_truncation_to_another_size_fails_like_a_read(void **state)
{
    struct kvt_env *env = *state;
    static const off_t to[] = {1, 40000, 100000, 1000000};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        store_corrupt(env, SIZE, 40050);
        kvt_assert_errno(EBADMSG, truncate(kvt_mnt(env, "a"), to[i]));
        kvt_assert_gone(env, "a");
    }
}

static void c05_truncation_to_zero_heals_a_corrupt_block(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    assert_int_equal(truncate(kvt_mnt(env, "a"), 0), 0);
    kvt_assert_sealed_block(env, "a", 0, 0);
}

static void c05_a_kill_does_not_launder(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, SIZE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 100, 2, 0);
    kvt_kill(env);
    close(fd);
    assert_int_equal(kvt_record_of(kvt_src(env, "a")).kind, KVS_RECORD_SUM);
    kvt_start(env, NULL);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c10_what_was_kept_is_not_read_after_a_failed_change(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=keep");
    store_corrupt(env, SIZE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 100, 2, 0);
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_wait_for((fd = open(kvt_mnt(env, "a"), O_RDONLY)) < 0 || // until RELEASE: being written
                 close(fd) != 0);
    assert_int_equal(errno, EBADMSG);
    kvt_assert_errno(EBADMSG, open(kvt_mnt(env, "a"), O_RDWR));
}

/* ---- C6: max_reread ---- */

static void c06_a_slot_file_above_max_reread_goes_unsealed_without_errors(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    assert_int_equal(kvt_store(env, "a", LARGE, 1, 0), 0);
    kvt_assert_sealed_block(env, "a", LARGE, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    kvt_put(fd, 4096, 2, MIB);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(dup(fd)), 0);
    assert_int_equal(rename(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "b"));
    fd = kvt_open(kvt_mnt(env, "b"), O_RDONLY);
    close(fd);
}

static void c06_a_corrupt_slot_file_above_max_reread_is_not_looked_at(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    store_corrupt(env, LARGE, 40050);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 4096, 2, MIB);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
}

static void c06_a_file_above_max_reread_that_arrives_in_full_is_sealed(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    assert_int_equal(kvt_store(env, "a", LARGE, 1, KVT_DIRECT), 0);
    kvt_assert_sealed_block(env, "a", LARGE, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 4096, 2, MIB);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), O_WRONLY, LARGE, 3, MIB), 0);
    kvt_assert_sealed_block(env, "a", LARGE, 3);
}

static void c06_a_file_within_max_reread_is_sealed_after_a_change(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "max_reread=1M");
    assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    kvt_put(fd, 4096, 2, 5000);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
}

/* ---- checksums=off, to measure with ---- */

static void c04_without_checksums_no_record_is_left(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, NULL);
    assert_int_equal(kvt_store(env, "a", MIB, 1, 0), 0);
    assert_int_equal(kvt_store(env, "b", MIB, 2, 0), 0);
    kvt_stop(env);
    kvt_start(env, "checksums=off");
    int fd = kvt_open(kvt_mnt(env, "a"), O_WRONLY);
    assert_int_equal(pwrite(fd, "changed", 7, 100), 7);
    assert_int_equal(kvt_record_of(kvt_src(env, "a")).kind, KVS_RECORD_NONE);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    kvt_assert_sealed(kvt_src(env, "b")); // what is not touched keeps its own
    assert_int_equal(kvt_store(env, "c", MIB, 3, 0), 0);
    kvt_assert_unsealed(kvt_src(env, "c"));
    assert_int_equal(kvt_load(env, "c", MIB, 3, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c04_the_record_is_gone_after_the_first_change),
        kvt_test(c04_truncation_at_open_drops_the_record),
        kvt_test(c04_a_kill_leaves_a_changed_block_unsealed),
        kvt_test(c05_a_partial_change_of_a_corrupt_block_is_refused),
        kvt_test(c05_every_other_way_to_change_a_corrupt_block_is_refused),
        kvt_test(c05_appending_to_a_corrupt_block_is_refused),
        kvt_test(c05_a_publish_of_a_corrupt_block_changed_in_part_is_refused),
        kvt_test(c05_opening_a_corrupt_block_for_both_is_refused),
        kvt_test(c05_a_full_rewrite_of_a_corrupt_block_is_sealed),
        kvt_test(c05_a_rewrite_that_leaves_one_old_byte_is_refused),
        kvt_test(c05_a_rewrite_outlives_the_close_of_another_handle),
        kvt_test(c05_a_rewrite_outlives_the_close_of_an_inherited_descriptor),
        kvt_test(c05_two_rewrite_halves_of_a_corrupt_block),
        kvt_test(c05_truncation_at_open_heals_a_corrupt_block),
        kvt_test(c05_truncation_to_another_size_fails_like_a_read),
        kvt_test(c05_truncation_to_zero_heals_a_corrupt_block),
        kvt_test(c05_a_kill_does_not_launder),
        kvt_test(c10_what_was_kept_is_not_read_after_a_failed_change),
        kvt_test(c06_a_slot_file_above_max_reread_goes_unsealed_without_errors),
        kvt_test(c06_a_corrupt_slot_file_above_max_reread_is_not_looked_at),
        kvt_test(c06_a_file_above_max_reread_that_arrives_in_full_is_sealed),
        kvt_test(c06_a_file_within_max_reread_is_sealed_after_a_change),
        kvt_test(c04_without_checksums_no_record_is_left),
    };
    return kvt_main("store_in_place", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS);
}
