// SPDX-License-Identifier: Apache-2.0
// The log: lines on stderr, the limit on repeated ones (with a clock of our own), escapes.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"

/* What the log takes for the time; every test starts in a new window. */
static time_t now = 1000;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time_ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time_ret)
{
    *time_ret = (struct timespec){.tv_sec = now};
    return 0;
}

static FILE *captured;
static int real_stderr = -1;

static void begin_capture(void)
{
    now += 1000;
    captured = tmpfile();
    assert_non_null(captured);
    fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    assert_true(real_stderr >= 0);
    assert_true(dup2(fileno(captured), STDERR_FILENO) >= 0);
}

/* The text that was logged; the caller frees it. */
static char *end_capture(void)
{
    long size = 0;
    char *text = NULL;

    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    assert_int_equal(fseek(captured, 0, SEEK_END), 0);
    size = ftell(captured);
    rewind(captured);
    text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, captured), size);
    fclose(captured);
    return text;
}

static int count_lines(const char *text)
{
    int lines = 0;

    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

static void a_line_has_name_and_newline(void **state)
{
    char *text = NULL;

    begin_capture();
    kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "%s is %d", "answer", 42);
    text = end_capture();
    assert_string_equal(text, "test: answer is 42\n");
    free(text);
}

static void a_line_stays_one(void **state)
{
    begin_capture();
    kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "/mnt\nkvseal: all is well\033[2J\r: gone");
    char *text = end_capture();
    assert_string_equal(text, "test: /mnt?kvseal: all is well?[2J?: gone\n");
    free(text);
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
    static char long_word[10000];
    char *text = NULL;

    memset(long_word, 'x', sizeof(long_word) - 1);
    begin_capture();
    kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "%s%s", long_word, long_word);
    kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "next");
    text = end_capture();
    assert_int_equal(count_lines(text), 2);
    assert_true(strlen(text) <= 4096 + strlen("test: next\n"));
    assert_string_equal(text + strlen(text) - strlen("x\ntest: next\n"), "x\ntest: next\n");
    free(text);
}

static void each_kind_is_limited_on_its_own(void **state)
{
    char *text = NULL;

    begin_capture();
    for (int i = 0; i < 3 * KVS_LOG_BURST; i++)
        kvs_log(KVS_LOG_CORRUPT, LOG_ERR, "corrupt");
    kvs_log(KVS_LOG_TRANSIENT, LOG_ERR, "transient");
    for (int i = 0; i < 3 * KVS_LOG_BURST; i++)
        kvs_log(KVS_LOG_ALWAYS, LOG_ERR, "always");
    text = end_capture();
    assert_int_equal(count_lines(text), KVS_LOG_BURST + 1 + 3 * KVS_LOG_BURST);
    free(text);
}

static void the_next_window_says_how_many_were_left_out(void **state)
{
    char *text = NULL;

    begin_capture();
    for (int i = 0; i < KVS_LOG_BURST + 7; i++)
        kvs_log(KVS_LOG_UNTRACKED, LOG_ERR, "first");
    now += 9;
    kvs_log(KVS_LOG_UNTRACKED, LOG_ERR, "too early");
    now += 1;
    kvs_log(KVS_LOG_UNTRACKED, LOG_ERR, "second");
    kvs_log(KVS_LOG_UNTRACKED, LOG_ERR, "third");
    text = end_capture();
    assert_int_equal(count_lines(text), KVS_LOG_BURST + 2);
    assert_null(strstr(text, "too early"));
    assert_non_null(strstr(text, "test: (8 lines like this one were left out) second\n"));
    assert_non_null(strstr(text, "test: third\n"));
    free(text);
}

static void debug_lines_are_off_at_first(void **state)
{
    char *text = NULL;

    begin_capture();
    kvs_log(KVS_LOG_ALWAYS, LOG_DEBUG, "unseen");
    kvs_log_debug(1);
    kvs_log(KVS_LOG_ALWAYS, LOG_DEBUG, "seen");
    kvs_log_debug(0);
    text = end_capture();
    assert_string_equal(text, "test: seen\n");
    free(text);
}

static void names_are_made_printable(void **state)
{
    static const struct {
        const char *word, *text, *escaped;
    } table[] = {
        {"plain", "abc/def.bin", "abc/def.bin"},
        {"empty", "", ""},
        {"newline", "a\nb", "a\\x0ab"},
        {"quotes and backslash", "\"'\\", "\\x22\\x27\\x5c"},
        {"terminal", "\x1b[2J\x7f", "\\x1b[2J\\x7f"},
        {"valid UTF-8", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"C1 control",
         "\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"},
        {"lone continuation", "\x80z", "\\x80z"},
        {"cut character", "\xe2\x82", "\\xe2\\x82"},
        {"overlong slash", "\xc0\xaf", "\\xc0\\xaf"},
        {"surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"beyond Unicode", "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
        {"never in UTF-8", "\xff\xfe\xf8\x88\x80\x80", "\\xff\\xfe\\xf8\\x88\\x80\\x80"},
    };
    char escaped[100];

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        print_message("  %s\n", table[i].word);
        assert_ptr_equal(kvs_log_escape(table[i].text, escaped, 4 * strlen(table[i].text) + 1),
                         escaped);
        assert_string_equal(escaped, table[i].escaped);
    }
}

static void names_that_do_not_fit_are_cut(void **state)
{
    static const struct {
        size_t size;
        const char *escaped;
    } table[] = {
        {1, ""},      {3, ""},      {4, "..."},         {5, "a..."},
        {6, "ab..."}, {9, "ab..."}, {10, "ab\\x0a..."}, {11, "ab\\x0acdef"},
    };
    char escaped[16];

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        memset(escaped, '#', sizeof(escaped));
        kvs_log_escape("ab\ncdef", escaped, table[i].size);
        assert_string_equal(escaped, table[i].escaped);
        assert_int_equal(escaped[table[i].size], '#');
    }
}

static void every_name_comes_back_from_its_escape(void **state)
{
    static const char *const bad[] = {"\\", "a\\y41", "\\x4", "\\x4G", "\\x4A", "\\x00", "\\x"};
    char name[256], escaped[4 * sizeof(name) + 1];

    for (unsigned i = 1; i < 256; i++)
        name[i - 1] = (char)i;
    name[255] = '\0';
    kvs_log_escape(name, escaped, sizeof(escaped));
    assert_int_equal(kvs_log_unescape(escaped), 0);
    assert_string_equal(escaped, name);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        strcpy(escaped, bad[i]);
        assert_int_equal(kvs_log_unescape(escaped), -EINVAL);
    }
}

static int set_up(void **state)
{
    kvs_log_init("test");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_name_and_newline),
        cmocka_unit_test(a_line_stays_one),
        cmocka_unit_test(a_long_line_is_cut_and_still_ends),
        cmocka_unit_test(each_kind_is_limited_on_its_own),
        cmocka_unit_test(the_next_window_says_how_many_were_left_out),
        cmocka_unit_test(debug_lines_are_off_at_first),
        cmocka_unit_test(names_are_made_printable),
        cmocka_unit_test(names_that_do_not_fit_are_cut),
        cmocka_unit_test(every_name_comes_back_from_its_escape),
    };

    return cmocka_run_group_tests_name("log", tests, set_up, NULL);
}
