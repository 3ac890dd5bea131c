// SPDX-License-Identifier: Apache-2.0
// Storing where there is no room: close() and every publish fail, and go on failing (C3).
#include "tests/mount/fixture.h"

#include <sys/mman.h>

#define MIB       ((size_t)1 << 20)
#define TOO_LARGE (8 * MIB)

/* Takes all space of the source away. */
static void fill_disk(struct kvt_env *env)
{
    int fd = kvt_open(kvt_src(env, "filler"), O_CREAT | O_WRONLY);
    off_t end = 0;
    for (off_t step = 64 << 20; step >= 4096; step /= 2) {
        while (fallocate(fd, 0, end, step) == 0)
            end += step;
        assert_int_equal(errno, ENOSPC);
    }
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

/* A new file to which a write has failed for lack of space, which there is again. */
static int open_after_failed_write(struct kvt_env *env)
{
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 4096, 1, 0);
    fill_disk(env);
    unsigned char *block = kvt_block(TOO_LARGE, 1);
    assert_int_equal(kvt_write(fd, block, TOO_LARGE, 0, MIB), -ENOSPC);
    free(block);
    assert_int_equal(unlink(kvt_src(env, "filler")), 0);
    return fd;
}

static void assert_never_published(struct kvt_env *env, int fd)
{
    assert_int_equal(kvt_close(dup(fd)), -ENOSPC);
    kvt_assert_errno(ENOSPC, rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")));
    kvt_assert_errno(ENOSPC, link(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")));
    assert_true(kvt_is_gone(kvt_src(env, "a")));
    kvt_assert_unsealed(kvt_src(env, "tmp"));
}

static void c03_a_full_disk_fails_close_and_publish(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    fill_disk(env);
    unsigned char *block = kvt_block(TOO_LARGE, 1);
    assert_int_equal(kvt_write(fd, block, TOO_LARGE, 0, 0), -ENOSPC);
    free(block);
    assert_never_published(env, fd);
    assert_int_equal(kvt_close(fd), -ENOSPC);
    kvt_assert_errno(ENOSPC, rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")));
    assert_int_equal(unlink(kvt_mnt(env, "tmp")), 0);
    assert_int_equal(unlink(kvt_src(env, "filler")), 0);
    assert_int_equal(kvt_store(env, "a", TOO_LARGE, 2, 0), 0);
    kvt_assert_sealed_block(env, "a", TOO_LARGE, 2);
}

static void c03_a_failed_write_is_forgotten_after_a_full_rewrite_only(void **state)
{
    struct kvt_env *env = *state;
    int fd = open_after_failed_write(env);
    assert_never_published(env, fd);
    kvt_put(fd, 1000, 2, 0); // a part does not heal it
    assert_never_published(env, fd);
    kvt_put(fd, TOO_LARGE, 3, 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", TOO_LARGE, 3);
}

static void c03_a_failed_write_is_forgotten_after_truncation_to_zero(void **state)
{
    struct kvt_env *env = *state;
    int fd = open_after_failed_write(env);
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_never_published(env, fd);
    assert_int_equal(ftruncate(fd, 0), 0);
    kvt_put(fd, 65537, 2, 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", 65537, 2);
}

/* Who gets EOPNOTSUPP from fallocate() goes on with ftruncate(). Nothing has failed. */
static void c03_what_was_refused_is_no_failed_write(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 65537, 1, 0);
    if (env->kind == KVT_TMPFS)
        kvt_assert_errno(EOPNOTSUPP, fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096));
    if (env->kind == KVT_EXT4)
        kvt_assert_errno(EFBIG, pwrite(fd, "x", 1, (off_t)1 << 60));
    kvt_assert_errno(EBADF, read(fd, &(char){0}, 1));
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "tmp", 65537, 1);
}

/* The kernel looks at no count when it writes the pages of a mapping. */
static void c03_mapped_pages_without_room_fail_close(void **state)
{
    struct kvt_env *env = *state;
    unsigned fds = kvt_count_fds(env->daemon);
    unsigned char *block = kvt_block(MIB, 1);
    int fd = kvt_open(kvt_mnt(env, "a"), O_CREAT | O_EXCL | O_RDWR);
    fill_disk(env);
    struct stat st;
    assert_int_equal(stat(kvt_src(env, "filler"), &st), 0);
    assert_int_equal(truncate(kvt_src(env, "filler"), st.st_size - (off_t)MIB / 4), 0);
    assert_int_equal(ftruncate(fd, MIB), 0);
    void *map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map, block, MIB);
    int sync_error = msync(map, MIB, MS_SYNC) == 0 ? 0 : -errno;
    assert_int_equal(munmap(map, MIB), 0);
    int close_error = kvt_close(fd);
    kvt_wait_for(kvt_count_fds(env->daemon) <= fds); // RELEASE seals too
    if (kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_NONE)
        assert_true(close_error < 0);
    else // room for all of it after all
        kvt_assert_sealed_block(env, "a", MIB, 1);
    if (env->kind == KVT_TMPFS)
        assert_true(sync_error < 0 && close_error < 0);
    assert_int_equal(unlink(kvt_src(env, "filler")), 0);
    free(block);
}

/* The kernel itself truncates the file to its old size, nothing, after a direct write failed. */
static void c03_a_failed_direct_write_to_an_empty_file_fails_close(void **state)
{
    struct kvt_env *env = *state;
    unsigned fds = kvt_count_fds(env->daemon);
    unsigned char *block = kvt_block(MIB, 1);
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE | O_DIRECT);
    fill_disk(env);
    assert_int_equal(kvt_write(fd, block, MIB, 0, 0), -ENOSPC);
    assert_never_published(env, fd);
    assert_int_equal(kvt_close(fd), -ENOSPC);
    kvt_wait_for(kvt_count_fds(env->daemon) <= fds);
    kvt_assert_unsealed(kvt_src(env, "tmp"));
    assert_int_equal(unlink(kvt_src(env, "filler")), 0);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c03_a_full_disk_fails_close_and_publish),
        kvt_test(c03_a_failed_write_is_forgotten_after_a_full_rewrite_only),
        kvt_test(c03_a_failed_write_is_forgotten_after_truncation_to_zero),
        kvt_test(c03_what_was_refused_is_no_failed_write),
        kvt_test(c03_mapped_pages_without_room_fail_close),
        kvt_test(c03_a_failed_direct_write_to_an_empty_file_fails_close),
    };
    return kvt_main("store_failed", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS);
}
