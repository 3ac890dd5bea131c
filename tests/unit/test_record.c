// SPDX-License-Identifier: Apache-2.0
// The record: its bytes, absence, malformed ones, errors, and the probe.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/record.h"
#include "tests/unit/scratch.h"

/* The errno that the next calls of this kind give; 0: the real call. */
static int get_error;
static int set_error;
static int nameless_error;

ssize_t __real_fgetxattr(int fd, const char *name, void *value, size_t size);
ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t size);
int __real_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __real_openat64(int at_fd, const char *name, int flags, ...);
int __wrap_openat64(int at_fd, const char *name, int flags, ...);

ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t size)
{
    if (get_error == 0)
        return __real_fgetxattr(fd, name, value, size);
    errno = get_error;
    return -1;
}

int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    if (set_error == 0)
        return __real_fsetxattr(fd, name, value, size, flags);
    errno = set_error;
    return -1;
}

int __wrap_openat64(int at_fd, const char *name, int flags, ...)
{
    if ((flags & O_TMPFILE) != O_TMPFILE || nameless_error == 0)
        return __real_openat64(at_fd, name, flags, 0600);
    errno = nameless_error;
    return -1;
}

static int open_file(void)
{
    int fd = openat(dir_fd, "file", O_CREAT | O_EXCL | O_RDWR, 0600);

    assert_true(fd >= 0);
    assert_int_equal(unlinkat(dir_fd, "file", 0), 0);
    return fd;
}

static void c01_the_record_is_the_one_of_vllm(void **state)
{
    const uint8_t expected[] = {0xe3, 0x06, 0x92, 0x83};
    uint8_t bytes[8];
    struct kvs_record record;
    int fd = open_file();

    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, "123456789", 9)), 0);
    assert_int_equal(fgetxattr(fd, "user.vllm.kv_crc32c", bytes, sizeof(bytes)), 4);
    assert_memory_equal(bytes, expected, 4);
    assert_int_equal(kvs_record_read(fd, &record), 0);
    assert_int_equal(record.kind, KVS_RECORD_SUM);
    assert_int_equal(record.crc, 0xE3069283);
    close(fd);
}

static void every_sum_survives_encoding(void **state)
{
    static const uint32_t sums[] = {0, 1, 0x80000000, 0x00ff00ff, 0xffffffff, 0x12345678};

    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        uint8_t bytes[KVS_RECORD_SIZE];
        struct kvs_record record;

        kvs_record_encode(sums[i], bytes);
        record = kvs_record_decode(bytes, sizeof(bytes));
        assert_int_equal(record.kind, KVS_RECORD_SUM);
        assert_int_equal(record.crc, sums[i]);
    }
}

static void c12_a_file_without_a_record_is_no_error(void **state)
{
    struct kvs_record record;
    int fd = open_file();

    assert_int_equal(kvs_record_read(fd, &record), 0);
    assert_int_equal(record.kind, KVS_RECORD_NONE);
    assert_int_equal(kvs_record_remove(fd), 0);
    assert_int_equal(kvs_record_write(fd, 1), 0);
    assert_int_equal(kvs_record_remove(fd), 0);
    assert_int_equal(kvs_record_read(fd, &record), 0);
    assert_int_equal(record.kind, KVS_RECORD_NONE);
    close(fd);
}

static void c10_another_length_is_malformed(void **state)
{
    static const size_t lengths[] = {0, 1, 3, 5, 8, 100};
    static const char bytes[100];

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct kvs_record record;
        int fd = open_file();

        assert_int_equal(fsetxattr(fd, KVS_RECORD_NAME, bytes, lengths[i], 0), 0);
        assert_int_equal(kvs_record_read(fd, &record), 0);
        assert_int_equal(record.kind, KVS_RECORD_MALFORMED);
        assert_int_equal(record.crc, 0);
        close(fd);
    }
}

static void records_are_equal_in_kind_and_sum(void **state)
{
    const struct kvs_record none = {.kind = KVS_RECORD_NONE};
    const struct kvs_record zero = {.kind = KVS_RECORD_SUM};
    const struct kvs_record one = {.kind = KVS_RECORD_SUM, .crc = 1};

    assert_true(kvs_record_equal(&one, &one));
    assert_false(kvs_record_equal(&zero, &one));
    assert_false(kvs_record_equal(&none, &zero));
}

static void c14_errors_of_the_file_system_pass_through(void **state)
{
    static const int errors[] = {EIO, ESTALE, EBADMSG, EOPNOTSUPP};
    struct kvs_record record;
    int fd = open_file();

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        get_error = set_error = errors[i];
        assert_int_equal(kvs_record_read(fd, &record), -errors[i]);
        assert_int_equal(kvs_record_write(fd, 1), -errors[i]);
        get_error = set_error = 0;
    }
    close(fd);
}

static void assert_dir_is_empty(void)
{
    DIR *stream = opendir(dir);
    int entries = 0;

    assert_non_null(stream);
    while (readdir(stream) != NULL)
        entries++;
    closedir(stream);
    assert_int_equal(entries, 2);
}

static void c21_the_probe_sets_reads_and_leaves_nothing(void **state)
{
    static const int errors[] = {0, EOPNOTSUPP, EISDIR, EINVAL};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        nameless_error = errors[i]; /* then a named file has to do */
        assert_int_equal(kvs_record_probe(dir_fd), 0);
        assert_dir_is_empty();
        /* 3FS answers a get, but refuses a set. */
        set_error = ENOTSUP;
        assert_int_equal(kvs_record_probe(dir_fd), -ENOTSUP);
        set_error = 0;
        assert_dir_is_empty();
        get_error = ENODATA;
        assert_int_equal(kvs_record_probe(dir_fd), -EOPNOTSUPP);
        get_error = 0;
        assert_dir_is_empty();
    }
    nameless_error = 0;
}

static void c21_the_probe_fails_where_no_file_can_be_made(void **state)
{
    int fd = open("/proc", O_RDONLY | O_DIRECTORY);

    assert_true(fd >= 0);
    assert_true(kvs_record_probe(fd) < 0);
    close(fd);
}

static int set_up(void **state)
{
    return make_scratch();
}

static int tear_down(void **state)
{
    return remove_scratch();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c01_the_record_is_the_one_of_vllm),
        cmocka_unit_test(every_sum_survives_encoding),
        cmocka_unit_test(c12_a_file_without_a_record_is_no_error),
        cmocka_unit_test(c10_another_length_is_malformed),
        cmocka_unit_test(records_are_equal_in_kind_and_sum),
        cmocka_unit_test(c14_errors_of_the_file_system_pass_through),
        cmocka_unit_test(c21_the_probe_sets_reads_and_leaves_nothing),
        cmocka_unit_test(c21_the_probe_fails_where_no_file_can_be_made),
    };

    return cmocka_run_group_tests_name("record", tests, set_up, tear_down);
}
