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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "core/examine.h"
#include "core/record.h"
#include "tests/unit/scratch.h"

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

/* As if nobody had touched them for a while: a fresh mismatch is waited for. */
static void let_age(void)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    struct timespec start, now;

    /* mtime can be set, ctime cannot. */
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        nanosleep(&moment, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
             KVS_SETTLE_MS);
}

static void a_file_goes_from_unsealed_to_sealed_to_corrupt(void **state)
{
    make_file("a", "123456789");
    assert_int_equal(run("verify a"), 0);
    assert_string_equal(output, "1 block, 0 B read: 1 unsealed\n");
    assert_int_equal(run("seal --dry-run a"), 0);
    assert_string_equal(output,
                        "a: would be sealed\n"
                        "1 would be sealed, 9 B; 0 had a record already\n");
    assert_int_equal(read_record("a").kind, KVS_RECORD_NONE);
    assert_int_equal(run("seal -v a"), 0);
    assert_string_equal(output, "a: sealed (e3069283)\n1 sealed, 9 B; 0 had a record already\n");
    assert_int_equal(run("seal a"), 0);
    assert_string_equal(output, "0 sealed, 0 B; 1 had a record already\n");
    assert_int_equal(run("verify --verbose a"), 0);
    assert_string_equal(output, "a: intact\n1 block, 9 B read: 1 intact\n");
    assert_int_equal(run("verify a"), 0);
    assert_string_equal(output, "1 block, 9 B read: 1 intact\n");
    make_file("a", "12345678");
    assert_int_equal(run("verify a"), 1);
    assert_string_equal(output,
                        "a: corrupt (expected e3069283, computed 6087809a)\n"
                        "1 block, 8 B read: 1 corrupt\n");
}

static void c05_seal_launders_nothing(void **state)
{
    make_file("a", "123456789");
    assert_int_equal(run("seal a"), 0);
    make_file("a", "12345678");
    assert_int_equal(run("seal a"), 0);
    assert_int_equal(read_record("a").crc, 0xE3069283);
    assert_int_equal(setxattr("a", KVS_RECORD_NAME, "abc", 3, 0), 0);
    assert_int_equal(run("seal a"), 0);
    assert_int_equal(read_record("a").kind, KVS_RECORD_MALFORMED);
    assert_int_equal(run("verify a"), 1);
    assert_non_null(strstr(output, "a: corrupt (malformed record, computed 6087809a)\n"));
}

static void a_file_that_is_open_for_writing_is_left_alone(void **state)
{
    int fd = -1;

    make_file("a", "123456789");
    make_file("b", "123456789");
    assert_int_equal(run("seal a"), 0);
    fd = open("a", O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 3), 1);
    assert_int_equal(run("verify a"), 0);
    assert_string_equal(output, "1 block, 0 B read: 1 being written\n");
    close(fd);
    assert_int_equal(run("verify a"), 1); /* it was not made right */
    fd = open("b", O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(run("seal b"), 0);
    assert_string_equal(output, "0 sealed, 0 B; 0 had a record already, 1 being written\n");
    assert_int_equal(read_record("b").kind, KVS_RECORD_NONE);
    close(fd);
    assert_int_equal(run("seal b"), 0);
    assert_int_equal(read_record("b").crc, 0xE3069283);
}

static void trees_are_walked(void **state)
{
    assert_int_equal(mkdir("tree", 0700), 0);
    assert_int_equal(mkdir("tree/sub", 0700), 0);
    assert_int_equal(mkdir("tree/.kvseal", 0700), 0);
    make_file("tree/x", "1");
    make_file("tree/sub/y", "2");
    make_file("tree/.kvseal/z", "3");
    assert_int_equal(mkfifo("tree/fifo", 0600), 0);
    assert_int_equal(symlink("..", "tree/loop"), 0);
    assert_int_equal(symlink("tree", "link"), 0);
    assert_int_equal(run("seal link/"), 0);
    assert_string_equal(output, "2 sealed, 2 B; 0 had a record already\n");
    make_file("tree/sub/y", "3");
    let_age();
    assert_int_equal(run("verify --jobs 3 tree"), 1);
    assert_non_null(strstr(output, "tree/sub/y: corrupt ("));
    assert_non_null(
        strstr(output, "2 blocks, 2 B read: 1 intact, 1 corrupt; left out: 2 not regular\n"));
}

static void the_gravest_status_counts(void **state)
{
    make_file("intact", "1");
    make_file("corrupt", "2");
    make_file("unsealed", "3");
    assert_int_equal(run("seal intact corrupt"), 0);
    make_file("corrupt", "x");
    let_age();
    assert_int_equal(run("verify intact unsealed"), 0);
    assert_int_equal(run("verify missing unsealed intact"), 2);
    assert_non_null(strstr(output, "1 intact, 1 unsealed, 1 not readable\n"));
    assert_int_equal(run("verify unsealed corrupt missing intact"), 1);
    assert_int_equal(run("show intact corrupt missing"), 1);
    assert_int_equal(run("show intact missing"), 2);
}

/* The object on the first line that has this text in it; the order is that of the threads. */
static json_t *parse_line(const char *text)
{
    json_error_t error;
    const char *line = strstr(output, text);

    assert_non_null(line);
    while (line > output && line[-1] != '\n')
        line--;
    json_t *object = json_loads(line, JSON_DISABLE_EOF_CHECK, &error);
    if (object == NULL)
        fail_msg("%s in %s", error.text, line);
    return object;
}

static void assert_text(json_t *object, const char *key, const char *expected)
{
    const char *text = json_string_value(json_object_get(object, key));

    assert_non_null(text);
    assert_string_equal(text, expected);
}

static void json_has_one_object_a_line(void **state)
{
    make_file("a", "123456789");
    make_file("\xff\n", "");
    assert_int_equal(run("seal a"), 0);
    make_file("a", "12345678");
    let_age();
    assert_int_equal(run("verify --json --jobs 1 a missing"), 1);
    json_t *object = parse_line("\"a\"");
    assert_text(object, "path", "a");
    assert_text(object, "verdict", "corrupt");
    assert_text(object, "expected", "e3069283");
    assert_text(object, "computed", "6087809a");
    json_decref(object);
    object = parse_line("missing");
    assert_text(object, "path", "missing");
    assert_text(object, "errno", "ENOENT");
    json_decref(object);
    object = parse_line("summary");
    json_t *summary = json_object_get(object, "summary");
    assert_int_equal(json_integer_value(json_object_get(summary, "corrupt")), 1);
    assert_int_equal(json_integer_value(json_object_get(summary, "errors")), 1);
    json_decref(object);
    assert_int_equal(run("verify --json -v '\xff\n'"), 0);
    object = parse_line("verdict");
    assert_null(json_object_get(object, "path"));
    assert_text(object, "path_base64", "/wo=");
    assert_text(object, "verdict", "unsealed");
    json_decref(object);
}

static void show_tells_what_the_damage_looks_like(void **state)
{
    make_file("a", "123456789");
    assert_int_equal(run("seal a"), 0);
    assert_int_equal(run("show a"), 0);
    assert_non_null(strstr(output,
                           "a\n  verdict   intact\n  record    e3069283\n"
                           "  computed  e3069283\n  size      9\n"));
    assert_null(strstr(output, "hint"));
    make_file("a", "123416789"); /* '5' ^ 4 */
    let_age();
    assert_int_equal(run("show a"), 1);
    assert_non_null(strstr(output, "- one flipped bit: byte 4, bit 2 ("));
    assert_non_null(strstr(output, "(a hint, no proof)\n"));
    assert_int_equal(run("show --json a"), 1);
    json_t *object = parse_line("hints");
    assert_int_equal(json_array_size(json_object_get(object, "hints")), 1);
    json_decref(object);
    make_file("a", "abcdefghi");
    let_age();
    assert_int_equal(run("show a"), 1);
    assert_non_null(strstr(output, "consistent with none of: a flipped bit,"));
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
    assert_int_equal(run("verify -v 'a\nb'"), 0);
    assert_int_equal(strncmp(output, "a\\x0ab: unsealed\n", 17), 0);
    make_file("-h", "1");
    assert_int_equal(run("verify -v -- -h"), 0);
    assert_int_equal(strncmp(output, "-h: unsealed\n", 13), 0);
}

/* Each line is one object, and gives the path exactly, in one of two ways. Runs the tool; its exit
 * status. */
static int count_paths(const char *arguments, const char *key, size_t *lines_ret)
{
    int status = run(arguments);
    char *rest = NULL;

    *lines_ret = 0;
    for (char *line = strtok_r(output, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char other[64];
        json_t *object = json_loads(line, 0, NULL);

        assert_non_null(object);
        snprintf(other, sizeof(other), "%s_base64", key);
        if (json_object_get(object, "summary") == NULL) {
            bool is_text = json_is_string(json_object_get(object, key));
            assert_int_equal(is_text, !json_is_string(json_object_get(object, other)));
            ++*lines_ret;
        }
        json_decref(object);
    }
    return status;
}

static void json_takes_every_name(void **state)
{
    static const char *const names[] = {
        "plain",        "a\nb",     "a\"b\\c'",     "\001\033[2J\177", "\xff\xfe",
        "\xed\xa0\x80", "\xc2\x85", "\xe2\x80\xa8", "\xc0\xafz",       "\xf5\x80\x80\x80"};
    const size_t count = sizeof(names) / sizeof(names[0]);
    char longest[256] = "", path[512];
    size_t lines = 0;

    memset(longest, 0xff, 255);
    assert_int_equal(mkdir("odd", 0700), 0);
    for (size_t i = 0; i <= count; i++) {
        snprintf(path, sizeof(path), "odd/%s", i < count ? names[i] : longest);
        make_file(path, "123456789");
    }
    assert_int_equal(count_paths("seal -v --json odd", "path", &lines), 0);
    assert_int_equal(lines, count + 1);
    assert_int_equal(count_paths("verify -v --json odd", "path", &lines), 0);
    assert_int_equal(lines, count + 1);
    assert_int_equal(count_paths("show --json odd/*", "path", &lines), 0);
    assert_int_equal(lines, count + 1);
    for (size_t i = 0; i <= count; i++) {
        snprintf(path, sizeof(path), "odd/%s", i < count ? names[i] : longest);
        make_file(path, "12345678");
    }
    assert_int_equal(count_paths("scrub --json --min-age 0 -C quarantine odd", "path", &lines), 1);
    assert_int_equal(lines, count + 1);
    assert_int_equal(count_paths("quarantine list --json odd", "path", &lines), 0);
    assert_int_equal(lines, count + 1);
    assert_int_equal(count_paths("quarantine purge --json odd", "name", &lines), 0);
    assert_int_equal(lines, count + 1);
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
        {64, "verify", "kvseal verify: no file or directory is given; see kvseal verify --help"},
        {64, "show", "kvseal show: no file is given; see kvseal show --help"},
        {64, "verify --loud a", "kvseal verify: unknown option --loud; see kvseal verify --help"},
        {64, "verify a --jobs", "kvseal verify: option --jobs needs a value; see"},
        {64, "verify --jobs 0 a", "kvseal verify: --jobs takes a number from 1 to 1024, not \"0\""},
        {64, "seal --jobs many a",
         "kvseal seal: --jobs takes a number from 1 to 1024, not \"many\""},
        {64, "scrub --shard 0/0 .", "kvseal scrub: --shard takes I/N such as 1/4, I from 1 to N"},
        {64, "scrub --rate 0 .", "kvseal scrub: --rate takes more than 0; see"},
        {64, "scrub --rate 99999999T .", "kvseal scrub: --rate takes a size such as 64M or 1.5G"},
        {64, "scrub --within 9999w .", "kvseal scrub: --within takes 1s to 3650d; see"},
        {64, "scrub . .", "kvseal scrub: give one source directory; see"},
        {64, "status --watch=nan .", "kvseal status: --watch=nan: seconds from 0.1 to 86400 are"},
        {64, "quarantine purge -o x .", "kvseal quarantine: --older-than takes a time such as"},
        {2, "scrub missing", "kvseal: missing: cannot be opened: No such file or directory; check"},
        {2, "scrub loop", "kvseal: loop: cannot be opened: Too many levels of symbolic links; its"},
        {2, "quarantine list fifo", "kvseal: fifo: cannot be opened: Not a directory; check the"},
        {2, "quarantine restore . ../a", "kvseal: ../a: is not in quarantine; see kvseal"},
        {2, "show missing",
         "kvseal: missing: cannot be opened: No such file or directory; check the path"},
        {2, "show .", "kvseal: .: is not a regular file"},
        {2, "show /dev/null", "kvseal: /dev/null: is not a regular file"},
        {2, "show fifo", "kvseal: fifo: is not a regular file"}, /* does not wait for a writer */
        {2, "show loop", "kvseal: loop: cannot be opened: Too many levels of symbolic links; its"},
        {2, "verify missing",
         "kvseal: missing: cannot be read: No such file or directory; check the path"},
        {2, "verify fifo", "kvseal: fifo: is neither a file nor a directory; give"},
        {2, "seal /dev/null", "kvseal: /dev/null: is neither a file nor a directory; give"},
        {2, "verify loop", "kvseal: loop: cannot be read: Too many levels of symbolic links; its"},
    };

    assert_int_equal(symlink("loop", "loop"), 0);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_int_equal(run(table[i].arguments), table[i].status);
        assert_int_equal(strncmp(output, table[i].line, strlen(table[i].line)), 0);
        if (table[i].status == 64 || strncmp(table[i].arguments, "show", 4) == 0)
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
    return make_scratch() < 0 ? -1 : fchdir(dir_fd);
}

/* What a list shows can be given back to the tool, whatever the name is made of. */
static void a_quarantined_block_is_restored_by_the_name_that_is_shown(void **state)
{
    char shown[256], command[512];

    assert_int_equal(mkdir("c", 0700), 0);
    make_file("c/a\n\\b", "123456789");
    assert_int_equal(run("seal c"), 0);
    make_file("c/a\n\\b", "12345678");
    assert_int_equal(run("scrub --min-age 0 --on-corrupt quarantine c"), 1);
    assert_int_equal(access("c/a\n\\b", F_OK), -1);
    assert_int_equal(run("quarantine list c"), 0);
    assert_int_equal(sscanf(output, "%255s", shown), 1);
    snprintf(command, sizeof(command), "quarantine restore --force c '%s'", shown);
    assert_int_equal(run(command), 0);
    assert_int_equal(access("c/a\n\\b", F_OK), 0);
}

static void a_purge_takes_what_is_left_of_a_block(void **state)
{
    char name[256], path[512];

    assert_int_equal(mkdir("c", 0700), 0);
    make_file("c/a", "123456789");
    assert_int_equal(run("seal c"), 0);
    make_file("c/a", "12345678");
    assert_int_equal(run("scrub --min-age 0 --on-corrupt quarantine c"), 1);
    assert_int_equal(run("quarantine list c"), 0);
    assert_int_equal(sscanf(output, "%255s", name), 1);
    snprintf(path, sizeof(path), "c/.kvseal/quarantine/%s", name);
    assert_int_equal(unlink(path), 0);
    strcat(path, ".cause");
    assert_int_equal(run("quarantine list c"), 0);
    assert_string_equal(output, "0 in quarantine, 0 B\n");
    assert_int_equal(run("quarantine purge --older-than 1h c"), 0);
    assert_string_equal(output, "");
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(run("quarantine purge c"), 0);
    assert_int_equal(access(path, F_OK), -1);
}

static int tear_down(void **state)
{
    return remove_scratch();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_file_goes_from_unsealed_to_sealed_to_corrupt),
        CASE(c05_seal_launders_nothing),
        CASE(a_file_that_is_open_for_writing_is_left_alone),
        CASE(trees_are_walked),
        CASE(the_gravest_status_counts),
        CASE(json_has_one_object_a_line),
        CASE(show_tells_what_the_damage_looks_like),
        CASE(c17_no_command_moves_atime_or_mtime),
        CASE(names_are_escaped),
        CASE(a_quarantined_block_is_restored_by_the_name_that_is_shown),
        CASE(a_purge_takes_what_is_left_of_a_block),
        CASE(json_takes_every_name),
        CASE(bad_input_gives_one_clear_line),
        CASE(help_and_version_succeed),
        CASE(a_full_output_is_an_error),
    };
#undef CASE

    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
