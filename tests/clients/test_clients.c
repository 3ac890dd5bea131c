// SPDX-License-Identifier: Apache-2.0
// The clients work on plain directories, and notice every kind of damage.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/clients/client.h"

#define KEY        "0123456789abcdef"
#define SIZE       (5 * 1024 * 1024 + 4096)
#define SEED       42
#define CRC_RECORD "user.vllm.kv_crc32c"

static const char *parent_directory;
static char root[256];
static unsigned direct; /* CLIENT_DIRECT where the file system has it */

static int make_root(void **state)
{
    snprintf(root, sizeof(root), "%s/clients-test.XXXXXX", parent_directory);
    assert_non_null(mkdtemp(root));
    int err = client_vllm_probe_direct(root, "", 0, 0, 0);
    assert_true(err == 0 || err == -EINVAL);
    direct = err ? 0 : CLIENT_DIRECT;
    return 0;
}

static int remove_root(void **state)
{
    char command[320];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static void damage(const char *path)
{
    char byte = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, SIZE - 5000), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, SIZE - 5000), 1);
    close(fd);
}

/* Stores and loads; then with one bit of the file flipped. Both with and without O_DIRECT. */
static void check_pair(client_sequence *store, client_sequence *load, const char *path,
                       unsigned flags)
{
    for (int round = 0; round < 2; round++) {
        unsigned now = flags | (round == 1 ? direct : 0);
        assert_int_equal(load(root, KEY, SIZE, SEED, now), -ENOENT);
        assert_int_equal(store(root, KEY, SIZE, SEED, now), 0);
        assert_int_equal(load(root, KEY, SIZE, SEED, now), 0);
        assert_int_equal(load(root, KEY, SIZE, SEED + 1, now), CLIENT_WRONG_BYTES);
        damage(path);
        assert_int_equal(load(root, KEY, SIZE, SEED, now), CLIENT_WRONG_BYTES);
        assert_int_equal(unlink(path), 0);
    }
}

static void fanned_pair(client_sequence *store, client_sequence *load, const char *suffix,
                        unsigned flags)
{
    char path[PATH_MAX];
    assert_int_equal(client_fanned_path(path, root, KEY, suffix), 0);
    check_pair(store, load, path, flags);
}

static void flat_pair(client_sequence *store, client_sequence *load, const char *suffix)
{
    char path[PATH_MAX];
    assert_int_equal(client_flat_path(path, root, KEY, suffix), 0);
    check_pair(store, load, path, 0);
}

static void every_client_stores_loads_and_sees_damage(void **state)
{
    fanned_pair(client_vllm_store, client_vllm_load, ".bin", 0);
    fanned_pair(client_llmd_store, client_llmd_load, ".bin", 0);
    flat_pair(client_lmcache_fs_store, client_lmcache_fs_load, ".data");
    flat_pair(client_lmcache_disk_store, client_lmcache_disk_load, ".pt");
    fanned_pair(client_lmcache_gds_store, client_lmcache_gds_load, ".kvcache.safetensors", 0);
    flat_pair(client_sglang_store, client_sglang_load, ".bin");
    fanned_pair(client_nixl_store, client_nixl_load, ".bin", 0);
    fanned_pair(client_link_store, client_vllm_load, ".bin", 0);
    fanned_pair(client_link_tmpfile_store, client_vllm_load, ".bin", 0);
}

static void nixl_works_through_io_uring(void **state)
{
    if (!client_has_uring()) {
        fputs("skipped: io_uring not available\n", stderr);
        skip();
    }
    fanned_pair(client_nixl_store, client_nixl_load, ".bin", CLIENT_URING);
}

static void nothing_temporary_is_left(void **state)
{
    char command[320];
    assert_int_equal(client_vllm_store(root, KEY, SIZE, SEED, 0), 0);
    assert_int_equal(client_llmd_store(root, "1" KEY, SIZE, SEED, 0), 0);
    assert_int_equal(client_sglang_store(root, KEY, SIZE, SEED, 0), 0);
    assert_int_equal(client_link_store(root, "2" KEY, SIZE, SEED, 0), 0);
    snprintf(command, sizeof(command), "test -z \"$(find %s -mindepth 1 -name '*tmp*')\"", root);
    assert_int_equal(system(command), 0);
}

static void vllm_does_not_store_twice(void **state)
{
    assert_int_equal(client_vllm_lookup(root, KEY, 0, 0, 0), -ENOENT);
    assert_int_equal(client_vllm_store(root, KEY, SIZE, SEED, 0), 0);
    assert_int_equal(client_vllm_lookup(root, KEY, 0, 0, 0), 0);
    assert_int_equal(client_vllm_store(root, KEY, SIZE, SEED + 1, 0), 0);
    assert_int_equal(client_vllm_load(root, KEY, SIZE, SEED, 0), 0);
}

static void vllm_unlinks_a_short_block(void **state)
{
    char path[PATH_MAX];
    assert_int_equal(client_fanned_path(path, root, KEY, ".bin"), 0);
    assert_int_equal(client_vllm_store(root, KEY, SIZE, SEED, 0), 0);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(client_vllm_load(root, KEY, SIZE, SEED, 0), CLIENT_SHORT_READ);
    assert_int_equal(client_vllm_lookup(root, KEY, 0, 0, 0), -ENOENT);
}

static void vllm_checksums_find_and_unlink_damage(void **state)
{
    char path[PATH_MAX];
    unsigned char record[8] = "";
    assert_int_equal(client_fanned_path(path, root, KEY, ".bin"), 0);
    if (client_vllm_probe_xattr(root, "", 0, 0, 0) == -EOPNOTSUPP) {
        fprintf(stderr, "skipped: no user. xattrs in %s\n", parent_directory);
        skip();
    }
    assert_int_equal(client_vllm_probe_xattr(root, "", 0, 0, 0), 0);
    assert_int_equal(client_vllm_store(root, KEY, SIZE, SEED, CLIENT_CRC), 0);
    assert_int_equal(getxattr(path, CRC_RECORD, record, sizeof(record)), 4);
    assert_int_equal(client_vllm_load(root, KEY, SIZE, SEED, CLIENT_CRC), 0);
    damage(path);
    assert_int_equal(client_vllm_load(root, KEY, SIZE, SEED, CLIENT_CRC), -EBADMSG);
    assert_int_equal(client_vllm_lookup(root, KEY, 0, 0, 0), -ENOENT);

    assert_int_equal(client_vllm_store(root, KEY, SIZE, SEED, 0), 0);
    assert_int_equal(client_vllm_load(root, KEY, SIZE, SEED, CLIENT_CRC), 0); // no record
    assert_int_equal(setxattr(path, CRC_RECORD, "12345", 5, 0), 0);
    assert_int_equal(client_vllm_load(root, KEY, SIZE, SEED, CLIENT_CRC), -EBADMSG);
}

static void llmd_loads_a_tail_and_touches_only_the_atime(void **state)
{
    char path[PATH_MAX];
    struct stat attr;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    assert_int_equal(client_fanned_path(path, root, KEY, ".bin"), 0);
    assert_int_equal(client_llmd_store(root, KEY, SIZE, SEED, 0), 0);
    assert_int_equal(client_llmd_load(root, KEY, 1234567, SEED, 0), 0);
    assert_int_equal(client_llmd_load(root, KEY, SIZE + 1, SEED, 0), CLIENT_SHORT_READ);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_int_equal(client_llmd_lookup(root, KEY, 0, 0, 0), 0);
    assert_int_equal(stat(path, &attr), 0);
    assert_true(attr.st_atime > 2000);
    assert_int_equal(attr.st_mtime, 2000);
}

static void slots_hold_what_was_written_last(void **state)
{
    const size_t size = 64 * CLIENT_SLOT;
    char path[PATH_MAX];
    char byte = 0;
    assert_int_equal(client_flat_path(path, root, KEY, ".slots"), 0);
    assert_int_equal(client_slots_vllm_run(root, KEY, size, SEED, direct), 0);
    assert_int_equal(client_slots_check(root, KEY, size, SEED, direct), 0);
    assert_int_equal(client_slots_check(root, KEY, size, SEED + 1, 0), CLIENT_WRONG_BYTES);
    assert_int_equal(client_slots_kvbm_run(root, KEY, size, SEED + 2, direct), 0);
    assert_int_equal(client_slots_check(root, KEY, size, SEED + 2, direct), 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)size - 1), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)size - 1), 1);
    close(fd);
    assert_int_equal(client_slots_check(root, KEY, size, SEED + 2, 0), CLIENT_WRONG_BYTES);
}

static void sums_and_content_are_as_specified(void **state)
{
    char whole[100];
    assert_int_equal(client_crc32c("123456789", 9), 0xE3069283u);
    client_fill(whole, sizeof(whole), 0, SEED);
    for (size_t from = 0; from < sizeof(whole); from++)
        assert_int_equal(client_check(whole + from, sizeof(whole) - from, from, SEED), 0);
    assert_int_equal(client_fanned_path((char[PATH_MAX]){0}, root, "abcd", ""), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_client_stores_loads_and_sees_damage),
        TEST(nixl_works_through_io_uring),
        TEST(nothing_temporary_is_left),
        TEST(vllm_does_not_store_twice),
        TEST(vllm_unlinks_a_short_block),
        TEST(vllm_checksums_find_and_unlink_damage),
        TEST(llmd_loads_a_tail_and_touches_only_the_atime),
        TEST(slots_hold_what_was_written_last),
        TEST(sums_and_content_are_as_specified),
    };
    const char *tmp = getenv("TMPDIR");
    parent_directory = tmp ? tmp : "/tmp";
    int failed = cmocka_run_group_tests_name("disk", tests, NULL, NULL);
    parent_directory = "/dev/shm";
    return failed + cmocka_run_group_tests_name("tmpfs", tests, NULL, NULL);
}
