// SPDX-License-Identifier: Apache-2.0
// Numbers with units: what is taken, and what is not.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/parse.h"

static void sizes(void **state)
{
    static const struct {
        const char *text;
        int result;
        uint64_t size;
    } cases[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"1k", 0, 1024},
        {"64M", 0, (uint64_t)64 << 20},
        {"1.5G", 0, (uint64_t)3 << 29},
        {"2T", 0, (uint64_t)2 << 40},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"16777216T", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"M", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 M", -EINVAL, 0},
        {"1MB", -EINVAL, 0},
        {"1.5", -EINVAL, 0},
        {".5G", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1P", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t size = 0;
        int result = kvs_parse_size(cases[i].text, &size);
        if (result != cases[i].result || size != cases[i].size)
            fail_msg("\"%s\": result %d, size %llu", cases[i].text, result,
                     (unsigned long long)size);
    }
}

static void counts(void **state)
{
    uint64_t count = 7;

    assert_int_equal(kvs_parse_count("0042", &count), 0);
    assert_int_equal(count, 42);
    assert_int_equal(kvs_parse_count("", &count), -EINVAL);
    assert_int_equal(kvs_parse_count("1k", &count), -EINVAL);
    assert_int_equal(kvs_parse_count("-1", &count), -EINVAL);
    assert_int_equal(kvs_parse_count("18446744073709551616", &count), -ERANGE);
    assert_int_equal(count, 42);
}

static void durations(void **state)
{
    static const struct {
        const char *text;
        int result;
        uint64_t seconds;
    } cases[] = {
        {"0", 0, 0},
        {"90", 0, 90},
        {"90s", 0, 90},
        {"90m", 0, 5400},
        {"36h", 0, 129600},
        {"7d", 0, 604800},
        {"2w", 0, 1209600},
        {"", -EINVAL, 0},
        {"d", -EINVAL, 0},
        {"7dd", -EINVAL, 0},
        {"7D", -EINVAL, 0},
        {"1.5h", -EINVAL, 0},
        {"-1d", -EINVAL, 0},
        {"7 d", -EINVAL, 0},
        {"18446744073709551615w", -ERANGE, 0},
        {"18446744073709551616", -ERANGE, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t seconds = 0;
        int result = kvs_parse_duration(cases[i].text, &seconds);
        if (result != cases[i].result || seconds != cases[i].seconds)
            fail_msg("\"%s\": result %d, %llu s", cases[i].text, result,
                     (unsigned long long)seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(counts),
        cmocka_unit_test(durations),
    };
    return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
