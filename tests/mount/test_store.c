// SPDX-License-Identifier: Apache-2.0
// Storing: close() and every publish seal (C1, C2), and what leaves a record alone (C7-C9).
#include "tests/mount/fixture.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {0, 1, 511, 4096, 65537, MIB, 4 * MIB + 1};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* ---- C1 ---- */

static void close_each_size(struct kvt_env *env, int flags)
{
    for (size_t i = 0; i < SIZES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%zu", sizes[i]);
        unsigned seed = (unsigned)i;
        assert_int_equal(kvt_write_file(kvt_mnt(env, name), KVT_CREATE | flags, sizes[i], seed, 0),
                         0);
        kvt_assert_sealed_block(env, name, sizes[i], seed);
        kvt_assert_sealed(kvt_mnt(env, name));
    }
}

static void c01_close_seals_every_size(void **state)
{
    close_each_size(*state, 0);
}

static void c01_close_seals_what_came_by_direct_io(void **state)
{
    close_each_size(*state, O_DIRECT);
}

static void c01_close_seals_what_came_in_small_pieces(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_mnt(env, "a"), KVT_CREATE, 65537, 1, 1000), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "b"), KVT_CREATE, MIB + 5, 2, 65536), 0);
    kvt_assert_sealed_block(env, "b", MIB + 5, 2);
}

static void c01_close_of_a_duplicate_seals(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    for (unsigned round = 1; round <= 3; round++) {
        kvt_put(fd, round * 10000, round, 0);
        int copy = dup(fd);
        assert_int_equal(kvt_close(copy), 0);
        kvt_assert_sealed_block(env, "a", round * 10000, round);
    }
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 30000, 3);
}

static void c01_close_by_a_child_seals(void **state)
{
    struct kvt_env *env = *state;
    int status, fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    kvt_put(fd, 65537, 1, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(close(fd) == 0 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kvt_assert_sealed(kvt_src(env, "a"));
    kvt_put(fd, 65537, 2, 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 65537, 2);
}

static void c01_a_stored_block_loads_and_survives_a_remount(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", MIB, 1, KVT_DIRECT), 0);
    assert_int_equal(kvt_store(env, "b", 65537, 2, 0), 0);
    assert_int_equal(kvt_load(env, "a", MIB, 1, 0), 0);
    assert_int_equal(kvt_load(env, "b", 65537, 2, KVT_DIRECT), 0);
    kvt_remount(env);
    assert_int_equal(kvt_load(env, "a", MIB, 1, KVT_DIRECT), 0);
    assert_int_equal(kvt_load(env, "b", 65537, 2, 0), 0);
}

/* ---- C2 ---- */

static void c02_rename_before_close_seals(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 3 * MIB + 7, 1, 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", 3 * MIB + 7, 1);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 3 * MIB + 7, 1);
}

static void c02_rename_over_an_older_block_seals(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 65537, 1, 0), 0);
    assert_int_equal(kvt_store(env, "a", 4096, 2, 0), 0);
    kvt_assert_sealed_block(env, "a", 4096, 2);
    assert_int_equal(kvt_load(env, "a", 4096, 2, 0), 0);
}

static void c02_link_before_close_seals(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 65537, 1, 0);
    assert_int_equal(link(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(unlink(kvt_mnt(env, "tmp")), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
}

static void c02_a_nameless_file_is_sealed_by_linkat(void **state)
{
    struct kvt_env *env = *state;
    char proc[32];
    int fd = kvt_open(kvt_mnt(env, ""), O_TMPFILE | O_RDWR);
    kvt_put(fd, MIB + 1, 1, 0);
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    assert_int_equal(linkat(AT_FDCWD, proc, AT_FDCWD, kvt_mnt(env, "a"), AT_SYMLINK_FOLLOW), 0);
    kvt_assert_sealed_block(env, "a", MIB + 1, 1);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", MIB + 1, 1);
}

static void c02_a_file_made_by_mknod_is_sealed_by_rename(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(mknod(kvt_mnt(env, "tmp"), S_IFREG | 0644, 0), 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", 0, 1);
}

static void c02_rename_noreplace(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 4096, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 65537, 2, 0);
    kvt_assert_errno(EEXIST, renameat2(AT_FDCWD, kvt_mnt(env, "tmp"), AT_FDCWD, kvt_mnt(env, "a"),
                                       RENAME_NOREPLACE));
    kvt_assert_sealed_block(env, "a", 4096, 1);
    assert_int_equal(
        renameat2(AT_FDCWD, kvt_mnt(env, "tmp"), AT_FDCWD, kvt_mnt(env, "b"), RENAME_NOREPLACE), 0);
    kvt_assert_sealed_block(env, "b", 65537, 2);
    assert_true(kvt_is_gone(kvt_src(env, "tmp")));
    assert_int_equal(kvt_close(fd), 0);
}

static void c02_rename_exchange_seals_both(void **state)
{
    struct kvt_env *env = *state;
    int a = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    int b = kvt_open(kvt_mnt(env, "b"), KVT_CREATE);
    kvt_put(a, 65537, 1, 0);
    kvt_put(b, 4096, 2, 0);
    assert_int_equal(
        renameat2(AT_FDCWD, kvt_mnt(env, "a"), AT_FDCWD, kvt_mnt(env, "b"), RENAME_EXCHANGE), 0);
    kvt_assert_sealed_block(env, "a", 4096, 2);
    kvt_assert_sealed_block(env, "b", 65537, 1);
    assert_int_equal(kvt_close(a), 0);
    assert_int_equal(kvt_close(b), 0);
    assert_int_equal(kvt_load(env, "a", 4096, 2, 0), 0);
    assert_int_equal(kvt_load(env, "b", 65537, 1, 0), 0);
}

static void c02_a_change_after_the_publish_is_sealed_again(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 65537, 1, 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
    kvt_put(fd, 4096, 2, 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed(kvt_src(env, "a"));
}

static bool is_sealed(const char *path)
{
    struct kvs_record record = kvt_record_of(path);
    return record.kind == KVS_RECORD_SUM && record.crc == kvt_sum_of(path);
}

/* The kernel writes mapped pages when it likes: after close(), after rename(), before RELEASE. */
static void c02_mapped_pages_that_arrive_after_the_publish_are_sealed(void **state)
{
    struct kvt_env *env = *state;
    const size_t size = MIB + 100;
    unsigned char *block = kvt_block(size, 7);
    uint32_t sum = kvt_crc32c(block, size);
    int fd = kvt_open(kvt_mnt(env, "tmp"), O_CREAT | O_EXCL | O_RDWR);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map, block, size / 2);
    assert_int_equal(kvt_close(fd), 0);
    memcpy((char *)map + size / 2, block + size / 2, size - size / 2);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    assert_int_equal(munmap(map, size), 0);
    kvt_wait_for(kvt_sum_of(kvt_src(env, "a")) == sum && is_sealed(kvt_src(env, "a")));
    assert_int_equal(kvt_load(env, "a", size, 7, 0), 0);
    free(block);
}

/* ---- C7 ---- */

static void c07_an_open_that_writes_nothing_changes_nothing(void **state)
{
    struct kvt_env *env = *state;
    static const int flags[] = {O_RDWR, O_WRONLY, O_RDWR | O_DIRECT, O_WRONLY | O_CREAT,
                                O_WRONLY | O_APPEND};
    assert_int_equal(kvt_store(env, "a", 65537, 1, 0), 0);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        struct stat before, after;
        assert_int_equal(stat(kvt_src(env, "a"), &before), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), flags[i]);
        kvt_assert_sealed_block(env, "a", 65537, 1);
        assert_int_equal(kvt_close(fd), 0);
        kvt_assert_sealed_block(env, "a", 65537, 1);
        assert_int_equal(stat(kvt_src(env, "a"), &after), 0);
        assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
        assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof(before.st_ctim));
    }
}

static void c07_an_unsealed_block_stays_unsealed_when_nothing_is_written(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), KVT_CREATE, 65537, 1, 0), 0);
    assert_int_equal(kvt_close(kvt_open(kvt_mnt(env, "a"), O_WRONLY)), 0);
    assert_int_equal(kvt_close(kvt_open(kvt_mnt(env, "a"), O_RDWR)), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
}

/* ---- C8 ---- */

static int set_record(int fd, uint32_t crc)
{
    unsigned char bytes[4] = {crc >> 24 & 0xFF, crc >> 16 & 0xFF, crc >> 8 & 0xFF, crc & 0xFF};
    return fsetxattr(fd, KVS_RECORD_NAME, bytes, sizeof(bytes), 0) == 0 ? 0 : -errno;
}

/* A block being written, of 65537 bytes of seed 1; its sum. */
static int open_written(struct kvt_env *env, uint32_t *sum_ret)
{
    unsigned char *block = kvt_block(65537, 1);
    *sum_ret = kvt_crc32c(block, 65537);
    free(block);
    int fd = kvt_open(kvt_mnt(env, "tmp"), KVT_CREATE);
    kvt_put(fd, 65537, 1, 0);
    return fd;
}

static void c08_the_clients_own_sum_is_kept_when_it_is_right(void **state)
{
    struct kvt_env *env = *state;
    uint32_t sum;
    int fd = open_written(env, &sum);
    assert_int_equal(set_record(fd, sum), 0);
    assert_int_equal(kvt_record_of(kvt_mnt(env, "tmp")).crc, sum);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
}

static void c08_the_clients_own_sum_refuses_other_bytes(void **state)
{
    struct kvt_env *env = *state;
    uint32_t sum;
    int fd = open_written(env, &sum);
    assert_int_equal(set_record(fd, sum ^ 1), 0);
    kvt_assert_errno(EBADMSG, rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")));
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_assert_errno(EBADMSG, rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")));
    kvt_assert_errno(EBADMSG, link(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")));
    assert_true(kvt_is_gone(kvt_src(env, "a")));
    kvt_assert_block(kvt_src(env, "tmp"), 65537, 1); // the file is kept
    assert_int_equal(kvt_write_file(kvt_mnt(env, "tmp"), O_WRONLY, 65537, 2, 0), 0);
    assert_int_equal(rename(kvt_mnt(env, "tmp"), kvt_mnt(env, "a")), 0);
    kvt_assert_sealed_block(env, "a", 65537, 2);
}

static void c08_a_write_drops_the_clients_own_sum(void **state)
{
    struct kvt_env *env = *state;
    uint32_t sum;
    for (uint32_t wrong = 0; wrong <= 1; wrong++) {
        int fd = open_written(env, &sum);
        assert_int_equal(set_record(fd, sum ^ wrong), 0);
        kvt_put(fd, 4096, 2, 0);
        kvt_assert_unsealed(kvt_src(env, "tmp"));
        assert_int_equal(kvt_close(fd), 0);
        kvt_assert_sealed(kvt_src(env, "tmp"));
        assert_int_equal(unlink(kvt_mnt(env, "tmp")), 0);
    }
}

static void c08_a_truncation_drops_the_clients_own_sum(void **state)
{
    struct kvt_env *env = *state;
    uint32_t sum;
    int fd = open_written(env, &sum);
    assert_int_equal(set_record(fd, sum), 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    kvt_assert_unsealed(kvt_src(env, "tmp"));
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "tmp", 4096, 1);
}

static void c08_a_sum_that_the_client_removed_again_does_not_count(void **state)
{
    struct kvt_env *env = *state;
    uint32_t sum;
    int fd = open_written(env, &sum);
    assert_int_equal(set_record(fd, sum ^ 1), 0);
    assert_int_equal(fremovexattr(fd, KVS_RECORD_NAME), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "tmp", 65537, 1);
}

/* What vLLM does at its start to see whether records can be set. */
static void c08_the_probe_of_vllm_succeeds(void **state)
{
    struct kvt_env *env = *state;
    unsigned char bytes[8];
    int fd = kvt_open(kvt_mnt(env, ".xattr_probe_1.tmp"), O_CREAT | O_WRONLY | O_TRUNC);
    assert_int_equal(set_record(fd, 0), 0);
    assert_int_equal(fgetxattr(fd, KVS_RECORD_NAME, bytes, sizeof(bytes)), 4);
    assert_memory_equal(bytes, "\0\0\0\0", 4);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(unlink(kvt_mnt(env, ".xattr_probe_1.tmp")), 0);
}

static void c08_a_record_of_another_length_is_refused(void **state)
{
    struct kvt_env *env = *state;
    uint32_t sum;
    int fd = open_written(env, &sum);
    kvt_assert_errno(EBADMSG, fsetxattr(fd, KVS_RECORD_NAME, "12345", 5, 0));
    kvt_assert_errno(EBADMSG, fsetxattr(fd, KVS_RECORD_NAME, "", 0, 0));
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "tmp", 65537, 1);
    assert_int_equal(kvt_set_record_bytes(kvt_mnt(env, "tmp"), "123", 3), -EBADMSG);
    kvt_assert_sealed_block(env, "tmp", 65537, 1);
}

static void c08_a_record_set_on_a_quiet_block_must_be_right(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 65537, 1, 0), 0);
    uint32_t sum = kvt_sum_of(kvt_src(env, "a"));
    assert_int_equal(kvt_set_record(kvt_mnt(env, "a"), sum), 0);
    assert_int_equal(kvt_set_record(kvt_mnt(env, "a"), sum ^ 1), -EBADMSG);
    kvt_assert_sealed_block(env, "a", 65537, 1);

    assert_int_equal(kvt_write_file(kvt_src(env, "b"), KVT_CREATE, 65537, 1, 0), 0);
    assert_int_equal(kvt_set_record(kvt_mnt(env, "b"), sum ^ 1), -EBADMSG);
    kvt_assert_unsealed(kvt_src(env, "b"));
    assert_int_equal(kvt_set_record(kvt_mnt(env, "b"), sum), 0);
    kvt_assert_sealed_block(env, "b", 65537, 1);
}

static void c08_a_record_can_be_removed(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 65537, 1, 0), 0);
    assert_int_equal(kvt_remove_record(kvt_mnt(env, "a")), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_remove_record(kvt_mnt(env, "a")), -ENODATA);
    assert_int_equal(kvt_load(env, "a", 65537, 1, 0), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
}

/* ---- C9 ---- */

static void c09_attributes_and_names_do_not_touch_the_record(void **state)
{
    struct kvt_env *env = *state;
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_nsec = UTIME_OMIT}};
    assert_int_equal(kvt_store(env, "a", 65537, 1, 0), 0);
    assert_int_equal(chmod(kvt_mnt(env, "a"), 0600), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(chown(kvt_mnt(env, "a"), 1, 1), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(utimensat(AT_FDCWD, kvt_mnt(env, "a"), times, 0), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(setxattr(kvt_mnt(env, "a"), "user.other", "x", 1, 0), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(removexattr(kvt_mnt(env, "a"), "user.other"), 0);
    kvt_assert_sealed_block(env, "a", 65537, 1);
    assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    kvt_assert_sealed_block(env, "b", 65537, 1);
    assert_int_equal(rename(kvt_mnt(env, "a"), kvt_mnt(env, "c")), 0);
    kvt_assert_sealed_block(env, "c", 65537, 1);
    assert_int_equal(kvt_load(env, "c", 65537, 1, 0), 0);
}

/* Also none to a block that has none: these are no content. */
static void c09_attributes_and_names_do_not_make_a_record(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), KVT_CREATE, 65537, 1, 0), 0);
    assert_int_equal(chmod(kvt_mnt(env, "a"), 0600), 0);
    assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    assert_int_equal(rename(kvt_mnt(env, "a"), kvt_mnt(env, "c")), 0);
    kvt_assert_unsealed(kvt_src(env, "c"));
}

static void c09_truncate_seals_before_it_returns(void **state)
{
    struct kvt_env *env = *state;
    static const off_t to[] = {65537, 4096, 4095, 100000, 1, 3 << 20, 0, 10};
    assert_int_equal(kvt_store(env, "a", 65537, 1, 0), 0);
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        struct stat st;
        assert_int_equal(truncate(kvt_mnt(env, "a"), to[i]), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(stat(kvt_src(env, "a"), &st), 0);
        assert_int_equal(st.st_size, to[i]);
    }
}

static void c09_truncate_of_a_block_being_written_is_sealed_at_close(void **state)
{
    struct kvt_env *env = *state;
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    kvt_put(fd, 65537, 1, 0);
    assert_int_equal(truncate(kvt_mnt(env, "a"), 4096), 0);
    assert_int_equal(kvt_close(fd), 0);
    kvt_assert_sealed_block(env, "a", 4096, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c01_close_seals_every_size),
        kvt_test(c01_close_seals_what_came_by_direct_io),
        kvt_test(c01_close_seals_what_came_in_small_pieces),
        kvt_test(c01_close_of_a_duplicate_seals),
        kvt_test(c01_close_by_a_child_seals),
        kvt_test(c01_a_stored_block_loads_and_survives_a_remount),
        kvt_test(c02_rename_before_close_seals),
        kvt_test(c02_rename_over_an_older_block_seals),
        kvt_test(c02_link_before_close_seals),
        kvt_test(c02_a_nameless_file_is_sealed_by_linkat),
        kvt_test(c02_a_file_made_by_mknod_is_sealed_by_rename),
        kvt_test(c02_rename_noreplace),
        kvt_test(c02_rename_exchange_seals_both),
        kvt_test(c02_a_change_after_the_publish_is_sealed_again),
        kvt_test(c02_mapped_pages_that_arrive_after_the_publish_are_sealed),
        kvt_test(c07_an_open_that_writes_nothing_changes_nothing),
        kvt_test(c07_an_unsealed_block_stays_unsealed_when_nothing_is_written),
        kvt_test(c08_the_clients_own_sum_is_kept_when_it_is_right),
        kvt_test(c08_the_clients_own_sum_refuses_other_bytes),
        kvt_test(c08_a_write_drops_the_clients_own_sum),
        kvt_test(c08_a_truncation_drops_the_clients_own_sum),
        kvt_test(c08_a_sum_that_the_client_removed_again_does_not_count),
        kvt_test(c08_the_probe_of_vllm_succeeds),
        kvt_test(c08_a_record_of_another_length_is_refused),
        kvt_test(c08_a_record_set_on_a_quiet_block_must_be_right),
        kvt_test(c08_a_record_can_be_removed),
        kvt_test(c09_attributes_and_names_do_not_touch_the_record),
        kvt_test(c09_attributes_and_names_do_not_make_a_record),
        kvt_test(c09_truncate_seals_before_it_returns),
        kvt_test(c09_truncate_of_a_block_being_written_is_sealed_at_close),
    };
    return kvt_main("store", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS);
}
