// SPDX-License-Identifier: Apache-2.0
// Sizes and durations, as written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/format.h"

static void durations_are_written_with_two_units(void **state)
{
    static const struct {
        uint64_t seconds;
        const char *text;
    } cases[] = {
        {0, "0 s"},
        {59, "59 s"},
        {60, "1 min 0 s"},
        {3599, "59 min 59 s"},
        {3600, "1 h 0 min"},
        {86399, "23 h 59 min"},
        {6 * 86400 + 3 * 3600 + 59, "6 d 3 h"},
        {UINT64_MAX, "213503982334601 d 7 h"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[32];
        assert_string_equal(kvs_format_duration(cases[i].seconds, text, sizeof(text)),
                            cases[i].text);
    }
}

static void sizes_are_written_with_three_digits(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {999, "999 B"},
        {1000, "0.98 KiB"},
        {1024, "1.00 KiB"},
        {1536 << 10, "1.50 MiB"},
        {10475274, "9.99 MiB"}, /* not 10.0 */
        {(uint64_t)100 << 30, "100 GiB"},
        {((uint64_t)1000 << 30) - 1, "0.98 TiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[16];
        assert_string_equal(kvs_format_size(cases[i].bytes, text, sizeof(text)), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_written_with_two_units),
        cmocka_unit_test(sizes_are_written_with_three_digits),
    };
    return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
