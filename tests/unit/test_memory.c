// SPDX-License-Identifier: Apache-2.0
// The memory there is for us: odd texts of /proc and /sys, whole trees of them, and the defaults.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "fuse/memory.h"
#include "tests/unit/scratch.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static void limits_are_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t expected;
    } cases[] = {
        {"max\n", UINT64_MAX},
        {"max", UINT64_MAX},
        {"536870912\n", 512 * MIB},
        {"536870912", 512 * MIB},
        {"0\n", 0},
        {"9223372036854771712\n", UINT64_C(9223372036854771712)}, /* v1's "no limit" */
        {"18446744073709551615\n", UINT64_MAX},
        {"18446744073709551616\n", UINT64_MAX},
        {"99999999999999999999999\n", UINT64_MAX},
        {"", UINT64_MAX},
        {"\n", UINT64_MAX},
        {"-1\n", UINT64_MAX},
        {" 5\n", UINT64_MAX},
        {"+5\n", UINT64_MAX},
        {"5 MB\n", UINT64_MAX},
        {"0x10\n", UINT64_MAX},
        {"five\n", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t limit = kvs_memory_parse_limit(cases[i].text);
        if (limit != cases[i].expected)
            fail_msg("\"%s\": %ju", cases[i].text, (uintmax_t)limit);
    }
}

static void the_total_is_read(void **state)
{
    assert_int_equal(kvs_memory_parse_total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), 2 * MIB);
    assert_int_equal(kvs_memory_parse_total("MemFree: 1 kB\nMemTotal: 4 kB"), 4 * KIB);
    static const char *const odd[] = {"",
                                      "\n\n",
                                      "MemTotal:",
                                      "MemTotal: x kB\n",
                                      "MemTotal",
                                      "xMemTotal: 4 kB\n",
                                      "MemTotal: 18446744073709551615 kB\n"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        assert_true(kvs_memory_parse_total(odd[i]) == UINT64_MAX);
}

static void our_group_is_found(void **state)
{
    static const struct {
        const char *text, *controller, *expected; /* NULL: none */
    } cases[] = {
        {"0::/a/b\n", "", "/a/b"},
        {"0::/a/b", "", "/a/b"},
        {"0::/\n", "", "/"},
        {"9:name=systemd:/x\n4:memory:/m\n0::/v2\n", "memory", "/m"},
        {"9:name=systemd:/x\n4:memory:/m\n0::/v2\n", "", "/v2"},
        {"4:cpu,memory,pids:/m\n", "memory", "/m"},
        {"4:cpu,memoryx:/m\n3:xmemory:/n\n", "memory", NULL},
        {"0::/with:colon\n", "", "/with:colon"},
        {"0::/../../outside\n", "", "/"},
        {"0::relative\n", "", "/"},
        {"0::\n", "", "/"},
        {"4:memory:/m\n", "", NULL},
        {"", "", NULL},
        {"\n\n", "", NULL},
        {"nonsense\n", "", NULL},
        {"1:\n", "", NULL},
        {"1:memory\n2:x:/y\n", "memory", NULL},
        {":::\n", "", "/"},
        {"4:,memory,:/m\n", "memory", "/m"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[32] = "unset";
        int result = kvs_memory_parse_group(cases[i].text, cases[i].controller, path, sizeof(path));
        if (result != (cases[i].expected ? 0 : -ENOENT) ||
            strcmp(path, cases[i].expected ? cases[i].expected : "unset") != 0)
            fail_msg("case %zu: %d, %s", i, result, path);
    }
    char small[4];
    assert_int_equal(kvs_memory_parse_group("0::/abc\n", "", small, sizeof(small)), -ENAMETOOLONG);
    assert_int_equal(kvs_memory_parse_group("0::/ab\n", "", small, sizeof(small)), 0);
}

/* ---- trees ---- */

/* A file below `dir`, its directories made. */
static void put(const char *path, const char *text)
{
    char name[sizeof(dir) + 512];
    snprintf(name, sizeof(name), "%s%s", dir, path);
    for (char *slash = strchr(name + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(name, 0755);
        *slash = '/';
    }
    FILE *file = fopen(name, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    return make_scratch();
}

static int tear_down(void **state)
{
    return remove_scratch();
}

static void nothing_known_is_no_limit(void **state)
{
    assert_true(kvs_memory_limit(dir) == UINT64_MAX);
    put("/proc/self/cgroup", "0::/gone\n4:memory:/gone\n");
    assert_true(kvs_memory_limit(dir) == UINT64_MAX);
    put("/proc/meminfo", "MemTotal: 1048576 kB\n");
    assert_int_equal(kvs_memory_limit(dir), GIB);
}

static void a_group_above_counts(void **state)
{
    put("/proc/meminfo", "MemTotal: 1048576 kB\n");
    put("/proc/self/cgroup", "0::/pod/container\n");
    put("/sys/fs/cgroup/pod/container/memory.max", "max\n");
    assert_int_equal(kvs_memory_limit(dir), GIB);
    put("/sys/fs/cgroup/pod/memory.max", "536870912\n");
    assert_int_equal(kvs_memory_limit(dir), 512 * MIB);
    put("/sys/fs/cgroup/pod/container/memory.max", "268435456\n");
    assert_int_equal(kvs_memory_limit(dir), 256 * MIB);
    put("/sys/fs/cgroup/pod/container/memory.high", "134217728\n");
    assert_int_equal(kvs_memory_limit(dir), 128 * MIB);
}

/* In a container: its own group is the root of what it sees, whatever the path says. */
static void a_container_sees_its_group_as_the_root(void **state)
{
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "536870912\n");
    assert_int_equal(kvs_memory_limit(dir), 512 * MIB);
    put("/proc/self/cgroup", "0::/../../x\n");
    assert_int_equal(kvs_memory_limit(dir), 512 * MIB);
    put("/proc/self/cgroup", "0::/docker/0123456789\n");
    assert_int_equal(kvs_memory_limit(dir), 512 * MIB);
}

static void version_1_and_hybrid(void **state)
{
    put("/proc/self/cgroup", "4:memory:/docker/0123\n1:cpu:/\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    assert_int_equal(kvs_memory_limit(dir), 256 * MIB);
    put("/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(kvs_memory_limit(dir), 256 * MIB);
    put("/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "134217728\n");
    assert_int_equal(kvs_memory_limit(dir), 128 * MIB);
    put("/sys/fs/cgroup/unified/memory.max", "67108864\n");
    assert_int_equal(kvs_memory_limit(dir), 64 * MIB);
}

/* ---- defaults; what is said goes to a file ---- */

static char said[1024];

static struct kvs_options choose(uint64_t buffer_memory, uint64_t pinned_memory, uint64_t limit)
{
    struct kvs_options options = {.buffer_memory = buffer_memory, .pinned_memory = pinned_memory};
    FILE *file = tmpfile();
    assert_non_null(file);
    int stderr_copy = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    kvs_memory_choose(&options, limit);
    dup2(stderr_copy, STDERR_FILENO);
    close(stderr_copy);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = 0;
    fclose(file);
    return options;
}

static void defaults_fit_the_limit(void **state)
{
    static const struct {
        uint64_t limit, buffer_memory, pinned_memory;
        const char *said; /* "": nothing */
    } cases[] = {
        {UINT64_MAX, GIB, 256 * MIB, ""},
        {4 * GIB, GIB, 256 * MIB, ""},
        {2 * GIB, 512 * MIB, 256 * MIB,
         "memory limit 2048M: buffer_memory=512M, pinned_memory=256M"},
        {512 * MIB, 128 * MIB, 64 * MIB,
         "memory limit 512M: buffer_memory=128M, pinned_memory=64M"},
        {128 * MIB, 32 * MIB, 16 * MIB, "memory limit 128M: buffer_memory=32M, pinned_memory=16M"},
        {100 * MIB, 32 * MIB, 100 * MIB / 8, "too small"},
        {64 * MIB, 32 * MIB, 8 * MIB, "too small"},
        {4 * MIB, 32 * MIB, MIB, "too small"},
        {0, 32 * MIB, MIB, "too small"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct kvs_options options = choose(0, 0, cases[i].limit);
        assert_int_equal(options.buffer_memory, cases[i].buffer_memory);
        assert_int_equal(options.pinned_memory, cases[i].pinned_memory);
        if (cases[i].said[0] ? !strstr(said, cases[i].said) : said[0] != 0)
            fail_msg("case %zu: %s", i, said);
    }
}

static void what_was_given_stays_and_is_warned_of(void **state)
{
    struct kvs_options options = choose(GIB, 2 * MIB, 512 * MIB);
    assert_int_equal(options.buffer_memory, GIB);
    assert_int_equal(options.pinned_memory, 2 * MIB);
    assert_non_null(strstr(said,
                           "the memory limit of 512M is too small for buffer_memory=1024M, "
                           "pinned_memory=2M and 64M besides"));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    choose(64 * MIB, 2 * MIB, 512 * MIB);
    assert_string_equal(said, "");
    options = choose(64 * MIB, 0, 512 * MIB);
    assert_int_equal(options.pinned_memory, 64 * MIB);
}

int main(void)
{
    kvs_log_init("kvsealfs");
#define ON_TREE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_read),
        cmocka_unit_test(the_total_is_read),
        cmocka_unit_test(our_group_is_found),
        ON_TREE(nothing_known_is_no_limit),
        ON_TREE(a_group_above_counts),
        ON_TREE(a_container_sees_its_group_as_the_root),
        ON_TREE(version_1_and_hybrid),
        cmocka_unit_test(defaults_fit_the_limit),
        cmocka_unit_test(what_was_given_stays_and_is_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
