// SPDX-License-Identifier: Apache-2.0
// The kvseal tool on real files: what it prints, its exit status, and what it leaves alone.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/record.h"

static char dir[4096];
static char output[16384]; /* of the last run, both streams */

/* Runs the tool in `dir` with the arguments as a shell reads them. Returns its exit status. */
static int run(const char *arguments)
{
    char command[2048];
    size_t len = 0;
    FILE *stream = NULL;
    int status = 0;

    snprintf(command, sizeof(command), "'%s' %s 2>&1", KVSEAL_TOOL, arguments);
    stream = popen(command, "r");
    assert_non_null(stream);
    len = fread(output, 1, sizeof(output) - 1, stream);
    output[len] = '\0';
    status = pclose(stream);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void make_file(const char *name, const char *content)
{
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

static struct kvs_record read_record(const char *name)
{
    struct kvs_record record;
    int fd = open(name, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(kvs_record_read(fd, &record), 0);
    close(fd);
    return record;
}

static void a_file_goes_from_unsealed_to_sealed_to_corrupt(void **state)
{
    make_file("a", "123456789");
    assert_int_equal(run("verify a"), 0);
    assert_string_equal(output, "a: unsealed\n");
    assert_int_equal(run("seal a"), 0);
    assert_string_equal(output, "a: sealed (e3069283)\n");
    assert_int_equal(run("seal a"), 0);
    assert_string_equal(output, "a: intact\n");
    assert_int_equal(run("verify a"), 0);
    assert_string_equal(output, "a: intact\n");
    assert_int_equal(run("show a"), 0);
    assert_string_equal(output, "a: record e3069283, computed e3069283, size 9\n");
    make_file("a", "12345678");
    assert_int_equal(run("verify a"), 1);
    assert_string_equal(output, "a: corrupt (expected e3069283, computed 6087809a)\n");
}

static void c05_seal_launders_nothing(void **state)
{
    make_file("a", "123456789");
    assert_int_equal(run("seal a"), 0);
    make_file("a", "12345678");
    assert_int_equal(run("seal a"), 1);
    assert_int_equal(read_record("a").crc, 0xE3069283);
    assert_int_equal(setxattr("a", KVS_RECORD_NAME, "abc", 3, 0), 0);
    assert_int_equal(run("seal a"), 1);
    assert_int_equal(read_record("a").kind, KVS_RECORD_MALFORMED);
    assert_int_equal(run("show a"), 0);
    assert_string_equal(output, "a: record malformed, computed 6087809a, size 8\n");
}

static void the_gravest_status_counts(void **state)
{
    make_file("intact", "1");
    make_file("corrupt", "2");
    make_file("unsealed", "3");
    assert_int_equal(run("seal intact corrupt"), 0);
    make_file("corrupt", "x");
    assert_int_equal(run("verify intact unsealed"), 0);
    assert_int_equal(run("verify missing unsealed intact"), 2);
    assert_int_equal(run("verify unsealed corrupt missing intact"), 1);
    assert_non_null(strstr(output, "intact: intact\n")); /* an error does not end the run */
}

static void c17_no_command_moves_atime_or_mtime(void **state)
{
    static const char *const commands[] = {"verify a", "seal a", "verify a", "show a"};
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    struct stat st;

    make_file("a", "123456789");
    assert_int_equal(utimensat(AT_FDCWD, "a", times, 0), 0);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        run(commands[i]);
        assert_int_equal(stat("a", &st), 0);
        assert_int_equal(st.st_atim.tv_sec, 1000);
        assert_int_equal(st.st_mtim.tv_sec, 2000);
    }
}

static void names_are_escaped(void **state)
{
    make_file("a\nb", "1");
    assert_int_equal(run("verify 'a\nb'"), 0);
    assert_string_equal(output, "a\\x0ab: unsealed\n");
    make_file("-h", "1");
    assert_int_equal(run("verify -- -h"), 0);
    assert_string_equal(output, "-h: unsealed\n");
}

static void bad_input_gives_one_clear_line(void **state)
{
    static const struct {
        int status;
        const char *arguments, *line;
    } table[] = {
        {64, "", "kvseal: no command is given; see kvseal --help"},
        {64, "polish a", "kvseal: unknown command polish; see kvseal --help"},
        {64, "--loud", "kvseal: unknown option --loud; see kvseal --help"},
        {64, "verify", "kvseal verify: no file is given; see kvseal verify --help"},
        {64, "verify --loud a", "kvseal verify: unknown option --loud; see kvseal verify --help"},
        {2, "verify missing",
         "kvseal: missing: cannot be opened: No such file or directory; check the path"},
        {2, "seal .", "kvseal: .: is not a regular file"},
        {2, "show /dev/null", "kvseal: /dev/null: is not a regular file"},
        {2, "verify fifo", "kvseal: fifo: is not a regular file"}, /* does not wait for a writer */
    };

    assert_int_equal(mkfifo("fifo", 0600), 0);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_int_equal(run(table[i].arguments), table[i].status);
        assert_int_equal(strncmp(output, table[i].line, strlen(table[i].line)), 0);
        assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1);
    }
}

static void help_and_version_succeed(void **state)
{
    assert_int_equal(run("--help"), 0);
    assert_int_equal(strncmp(output, "Usage: kvseal COMMAND", 21), 0);
    assert_int_equal(run("--version"), 0);
    assert_string_equal(output, "kvseal " KVSEAL_VERSION "\n");
}

static void a_full_output_is_an_error(void **state)
{
    make_file("a", "1");
    assert_int_equal(run("show a >/dev/full"), 2);
}

static int set_up(void **state)
{
    const char *base = getenv("TMPDIR");

    snprintf(dir, sizeof(dir), "%s/cli-XXXXXX", base == NULL ? "/tmp" : base);
    return mkdtemp(dir) == NULL || chdir(dir) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"a", "intact", "corrupt", "unsealed", "a\nb", "-h", "fifo"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(names[i]);
    return chdir("/") < 0 || rmdir(dir) < 0 ? -1 : 0;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_file_goes_from_unsealed_to_sealed_to_corrupt),
        CASE(c05_seal_launders_nothing),
        CASE(the_gravest_status_counts),
        CASE(c17_no_command_moves_atime_or_mtime),
        CASE(names_are_escaped),
        CASE(bad_input_gives_one_clear_line),
        CASE(help_and_version_succeed),
        CASE(a_full_output_is_an_error),
    };
#undef CASE

    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
