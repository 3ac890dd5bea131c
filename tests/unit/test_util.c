// SPDX-License-Identifier: Apache-2.0
// The macros of core/util.h: each argument is looked at once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"

static int calls;

static int next(void)
{
    return ++calls;
}

static void arguments_are_looked_at_once(void **state)
{
    calls = 0;
    assert_int_equal(KVS_MIN(next(), 10), 1);
    assert_int_equal(calls, 1);
    assert_int_equal(KVS_MAX(next(), 0), 2);
    assert_int_equal(calls, 2);
    assert_int_equal(KVS_MIN(0, next()), 0);
    assert_int_equal(calls, 3);
}

static void they_nest(void **state)
{
    int a = 5, b = 3;

    assert_int_equal(KVS_MIN(KVS_MAX(a, b), 4), 4);
    assert_int_equal(KVS_MAX(KVS_MIN(a, b), KVS_MIN(4, b)), 3);
}

static void lengths_are_aligned(void **state)
{
    assert_int_equal(KVS_ALIGN_DOWN(8191, 4096), 4096);
    assert_int_equal(KVS_ALIGN_UP(4097, 4096), 8192);
    assert_int_equal(KVS_ALIGN_UP(4096, 4096), 4096);
    assert_int_equal(KVS_ALIGN_UP(0, 4096), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_looked_at_once),
        cmocka_unit_test(they_nest),
        cmocka_unit_test(lengths_are_aligned),
    };

    return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
