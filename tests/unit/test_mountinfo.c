// SPDX-License-Identifier: Apache-2.0
// Lines of /proc/self/mountinfo, good and odd; and what it says of a descriptor.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/mountinfo.h"

static int parse(const char *text, struct kvs_mount_entry *entry_ret)
{
    char line[512];
    strcpy(line, text);
    return kvs_mount_entry_parse(line, entry_ret);
}

static void good_lines(void **state)
{
    static const struct {
        const char *line;
        struct kvs_mount_entry expected;
    } cases[] = {
        {"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n",
         {36, "/mnt2", "ext3", false}},
        {"36 35 98:0 / / rw shared:1 - ext4 /dev/root rw", {36, "/", "ext4", true}},
        {"1 0 0:1 / /m rw - fuse.kvsealfs src rw\n", {1, "/m", "fuse.kvsealfs", false}},
        {"1 0 0:1 / /m rw shared:12 master:3 propagate_from:2 - tmpfs x rw\n",
         {1, "/m", "tmpfs", true}},
        {"1 0 0:1 / /m rw master:3 shared:12 - tmpfs x rw\n", {1, "/m", "tmpfs", true}},
        {"1 0 0:1 / /m rw unbindable - tmpfs x rw\n", {1, "/m", "tmpfs", false}},
        {"1 0 0:1 / /a\\040b\\011c\\012d\\134e rw - t s o\n", {1, "/a b\tc\nd\\e", "t", false}},
        {"1 0 0:1 / /a\\04 rw - t s o\n", {1, "/a\\04", "t", false}},
        {"1 0 0:1 /- /- - shared:1 - t s o\n", {1, "/-", "shared:1", false}},
        {"1 0 0:1 / /m rw - t", {1, "/m", "t", false}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct kvs_mount_entry entry = {0};
        const struct kvs_mount_entry *expected = &cases[i].expected;
        if (parse(cases[i].line, &entry) != 0 || entry.id != expected->id ||
            strcmp(entry.mountpoint, expected->mountpoint) != 0 ||
            strcmp(entry.type, expected->type) != 0 || entry.is_shared != expected->is_shared)
            fail_msg("%s: %d, \"%s\", \"%s\", %d", cases[i].line, entry.id, entry.mountpoint,
                     entry.type, entry.is_shared);
        kvs_mount_entry_free(&entry);
    }
}

static void odd_lines(void **state)
{
    static const char *const lines[] = {
        "",
        "\n",
        " ",
        "36",
        "36 35 98:0 / /m rw",
        "36 35 98:0 / /m rw -",
        "36 35 98:0 / /m rw - \n",
        "x 35 98:0 / /m rw - t s o",
        "-1 35 98:0 / /m rw - t s o",
        "36x 0 0:1 / /m rw - t s o",
        "99999999999 0 0:1 / /m rw - t s o",
        "36 35 98:0 - t s o",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct kvs_mount_entry entry = {0};
        if (parse(lines[i], &entry) != -EINVAL)
            fail_msg("taken: \"%s\"", lines[i]);
    }
}

static void a_descriptor_is_identified(void **state)
{
    char path[PATH_MAX];
    enum kvs_occupant occupant = KVS_OCCUPANT_FUSE;
    int fd = open("/proc/self", O_PATH | O_DIRECTORY);
    assert_int_equal(kvs_mount_identify(fd, path, &occupant), 0);
    assert_int_equal(strncmp(path, "/proc/", 6), 0);
    assert_int_equal(occupant, KVS_OCCUPANT_ORDINARY);
    struct kvs_mount_entry entry;
    assert_int_equal(kvs_mount_entry_find(fd, &entry), 0);
    assert_string_equal(entry.mountpoint, "/proc");
    assert_string_equal(entry.type, "proc");
    assert_int_equal(entry.id, kvs_mount_id("/proc"));
    kvs_mount_entry_free(&entry);
    close(fd);
    assert_int_equal(kvs_mount_id("/no/such/path"), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_lines),
        cmocka_unit_test(odd_lines),
        cmocka_unit_test(a_descriptor_is_identified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
