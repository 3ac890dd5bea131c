// SPDX-License-Identifier: Apache-2.0
// The command line and mount options: what is taken, what is refused, and what libfuse is told.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "fuse/options.h"

#define MOST_ARGUMENTS 16

/* Parses a command line given as words; what goes to stderr is left in `said`. */
static char said[4096];

static int parse(struct kvs_options *options, const char *const *words)
{
    char *argv[MOST_ARGUMENTS + 1] = {NULL};
    int argc = 0;
    for (; words[argc]; argc++) {
        assert_true(argc < MOST_ARGUMENTS);
        argv[argc] = strdup(words[argc]);
    }
    FILE *file = tmpfile();
    assert_non_null(file);
    int stderr_copy = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    int result = kvs_options_parse(argc, argv, options);
    dup2(stderr_copy, STDERR_FILENO);
    close(stderr_copy);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = 0;
    fclose(file);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return result;
}

#define PARSE(options, ...) parse(options, (const char *const[]){"kvsealfs", __VA_ARGS__, NULL})

/* What libfuse is told after -o, between commas. */
static const char *told(const struct kvs_options *options)
{
    assert_int_equal(options->session_args.argc, 3);
    assert_string_equal(options->session_args.argv[1], "-o");
    return options->session_args.argv[2];
}

static bool is_told(const struct kvs_options *options, const char *item)
{
    char list[4096], wanted[256];
    snprintf(list, sizeof(list), ",%s,", told(options));
    snprintf(wanted, sizeof(wanted), ",%s,", item);
    return strstr(list, wanted) != NULL;
}

static void c21_defaults(void **state)
{
    struct kvs_options options;
    assert_int_equal(PARSE(&options, "/source", "/mnt"), 0);
    assert_string_equal(said, "");
    assert_string_equal(options.source, "/source");
    assert_string_equal(options.mountpoint, "/mnt");
    assert_false(options.foreground || options.debug || options.read_only);
    assert_int_equal(options.on_corrupt, KVS_ON_CORRUPT_REMOVE);
    assert_int_equal(options.corrupt_errno, EBADMSG);
    assert_int_equal(options.unsealed, KVS_UNSEALED_ALLOW);
    assert_int_equal(options.max_reread, 1 << 30);
    assert_int_equal(options.buffer_memory, 0); /* fits the memory there is */
    assert_int_equal(options.buffers, KVS_BUFFERS_AUTO);
    assert_int_equal(options.passthrough, KVS_PASSTHROUGH_AUTO);
    assert_int_equal(options.pinned_memory, 0);
    assert_true(options.grace == 10 && options.immutable && !options.require_shared);
    assert_int_equal(options.device_fd, -1);
    assert_false(options.ready_file || options.healthcheck || options.fd_socket);
    assert_false(options.mount_for || options.stay);
    assert_true(options.attr_timeout == 1 && options.entry_timeout == 1);
    assert_true(options.negative_timeout == 0);
    assert_int_equal(options.max_names, 250000);
    assert_int_equal(options.threads, 512);
    assert_int_equal(options.scrub_within, 0);
    assert_true(is_told(&options, "default_permissions"));
    assert_true(is_told(&options, "fsname=/source"));
    assert_true(is_told(&options, "subtype=kvsealfs"));
    assert_true(is_told(&options, "rw"));
    assert_int_equal(is_told(&options, "allow_other"), geteuid() == 0);
    kvs_options_destroy(&options);
}

static void c21_every_setting_is_taken(void **state)
{
    struct kvs_options options;
    assert_int_equal(PARSE(&options, "-o", "on_corrupt=quarantine,corrupt_errno=ENOENT", "/s", "-f",
                           "-ounsealed=deny,max_reread=0,buffer_memory=32M,threads=4", "/m", "-o",
                           "attr_timeout=0.5,entry_timeout=0,negative_timeout=86400,ro", "-o",
                           "passthrough=off,buffers=off,pinned_memory=1M,checksums=off", "-o",
                           "require_shared,immutable=off,grace=1.5"),
                     0);
    assert_true(options.require_shared && !options.immutable && options.grace == 1.5);
    assert_int_equal(options.on_corrupt, KVS_ON_CORRUPT_QUARANTINE);
    assert_int_equal(options.corrupt_errno, ENOENT);
    assert_int_equal(options.unsealed, KVS_UNSEALED_DENY);
    assert_int_equal(options.max_reread, 0);
    assert_int_equal(options.buffer_memory, 32 << 20);
    assert_int_equal(options.threads, 4);
    assert_int_equal(options.buffers, KVS_BUFFERS_OFF);
    assert_int_equal(options.passthrough, KVS_PASSTHROUGH_OFF);
    assert_int_equal(options.checksums, KVS_CHECKSUMS_OFF);
    assert_int_equal(options.pinned_memory, 1 << 20);
    assert_true(options.attr_timeout == 0.5 && options.entry_timeout == 0);
    assert_true(options.negative_timeout == 86400);
    assert_true(options.foreground && options.read_only);
    assert_string_equal(options.source, "/s");
    assert_string_equal(options.mountpoint, "/m");
    assert_true(is_told(&options, "ro"));
    kvs_options_destroy(&options);
}

static void c21_times_have_units(void **state)
{
    struct kvs_options options;

    assert_int_equal(PARSE(&options, "/s", "/m", "-o", "scrub_within=7d"), 0);
    assert_int_equal(options.scrub_within, 7 * 86400);
    kvs_options_destroy(&options);
    assert_int_equal(PARSE(&options, "/s", "/m", "-o", "scrub_within=90m"), 0);
    assert_int_equal(options.scrub_within, 5400);
    kvs_options_destroy(&options);
}

static void c21_the_last_of_a_kind_wins(void **state)
{
    struct kvs_options options;
    assert_int_equal(PARSE(&options, "/s", "/m", "-o", "threads=8,ro,fsname=a,on_corrupt=keep",
                           "-o", "threads=9,rw,fsname=b,on_corrupt=remove"),
                     0);
    assert_int_equal(options.threads, 9);
    assert_false(options.read_only);
    assert_int_equal(options.on_corrupt, KVS_ON_CORRUPT_REMOVE);
    assert_true(is_told(&options, "fsname=b"));
    assert_false(is_told(&options, "fsname=a"));
    assert_false(is_told(&options, "ro"));
    kvs_options_destroy(&options);
}

/* What mount(8), fstab and systemd add must not stop a mount. */
static void c21_words_of_mount_and_fstab(void **state)
{
    struct kvs_options options;
    assert_int_equal(
        PARSE(&options, "/s", "/m", "-o",
              "rw,defaults,auto,noauto,user,user=me,users,nouser,nofail,_netdev,"
              "x-systemd.requires=/s,X-mount.mkdir,comment=mine,relatime,noatime,"
              "strictatime,dev,suid,nosuid,noexec,sync,default_permissions,allow_root"),
        0);
    assert_string_equal(said, "");
    assert_true(is_told(&options, "dev"));
    assert_true(is_told(&options, "suid"));
    assert_true(is_told(&options, "nosuid"));
    assert_true(is_told(&options, "noexec"));
    assert_true(is_told(&options, "sync"));
    assert_true(is_told(&options, "allow_root"));
    assert_false(is_told(&options, "allow_other"));
    assert_null(strstr(told(&options), "systemd"));
    kvs_options_destroy(&options);
}

static void c21_commas_and_backslashes(void **state)
{
    struct kvs_options options;
    assert_int_equal(PARSE(&options, "/a,b\\c", "/m", "-o", "subtype=x\\,y\\\\z,threads=5"), 0);
    assert_non_null(strstr(told(&options), "fsname=/a\\,b\\\\c,"));
    assert_non_null(strstr(told(&options), "subtype=x\\,y\\\\z,"));
    assert_int_equal(options.threads, 5);
    kvs_options_destroy(&options);
}

static void c21_bad_options_are_refused_by_name(void **state)
{
    static const struct {
        const char *option, *expected;
    } cases[] = {
        {"rw,foo,dev", "kvsealfs: unknown option 'foo' in -o rw,foo,dev: see kvsealfs -h\n"},
        {"foo=bar", "unknown option 'foo' in -o foo=bar"},
        {"thread=8", "unknown option 'thread'"},
        {"ro=1", "unknown option 'ro'"},
        {"fsname", "unknown option 'fsname'"},
        {"remount", "unknown option 'remount'"},
        {"scrub_within=0", "bad value '0' for option 'scrub_within': allowed is a time from 1s"},
        {"scrub_within=3651d", "bad value '3651d'"},
        {"scrub_within=1.5d", "bad value '1.5d'"},
        {"scrub_within=7d,checksums=off", "option 'scrub_within' verifies checksums"},
        {"threads", "option 'threads' needs a value: a whole number from 4 to 4096"},
        {"threads=", "bad value '' for option 'threads'"},
        {"max_names=-1", "bad value '-1' for option 'max_names': allowed is a whole number from 0"},
        {"max_names=1000000001", "bad value '1000000001'"},
        {"threads=3", "bad value '3' for option 'threads': allowed is a whole number from 4"},
        {"threads=4097", "bad value '4097'"},
        {"threads=0x10", "bad value '0x10'"},
        {"threads=-8", "bad value '-8'"},
        {"threads=99999999999999999999999", "bad value"},
        {"threads=18446744073709551624", "bad value"},
        {"on_corrupt=delete",
         "bad value 'delete' for option 'on_corrupt': allowed is remove, "
         "quarantine or keep"},
        {"corrupt_errno=ebadmsg", "bad value 'ebadmsg'"},
        {"unsealed=", "bad value ''"},
        {"buffer_memory=31M", "bad value '31M' for option 'buffer_memory': allowed is a size from"},
        {"pinned_memory=1023K", "bad value '1023K'"},
        {"buffers=on", "bad value 'on' for option 'buffers': allowed is auto or off"},
        {"passthrough=on", "bad value 'on' for option 'passthrough': allowed is auto or off"},
        {"buffer_memory=1X", "bad value '1X'"},
        {"max_reread=-1", "bad value '-1'"},
        {"attr_timeout=nan", "bad value 'nan' for option 'attr_timeout': allowed is seconds"},
        {"attr_timeout=-1", "bad value '-1'"},
        {"entry_timeout=86401", "bad value '86401'"},
        {"negative_timeout=1.2.3", "bad value '1.2.3'"},
        {"negative_timeout=.", "bad value '.'"},
        {"metrics=", "bad value '' for option 'metrics': allowed is PORT, HOST:PORT or"},
        {"metrics", "option 'metrics' needs a value"},
        {"metrics=host", "bad value 'host'"},
        {"metrics=host:", "bad value 'host:'"},
        {"metrics=65536", "bad value '65536'"},
        {"metrics=::1:9457", "bad value '::1:9457'"},
        {"metrics=[::1]", "bad value '[::1]'"},
        {"metrics=[]:1", "bad value '[]:1'"},
        {"metrics=1:-1", "bad value '1:-1'"},
        {"grace=0.5", "bad value '0.5' for option 'grace': allowed is seconds from 1 to 86400"},
        {"immutable=on", "bad value 'on' for option 'immutable': allowed is auto or off"},
        {"require_shared=1", "unknown option 'require_shared'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct kvs_options options;
        int result = PARSE(&options, "/s", "/m", "-o", cases[i].option);
        kvs_options_destroy(&options);
        if (result != -EINVAL || !strstr(said, cases[i].expected) ||
            strchr(said, '\n') != said + strlen(said) - 1)
            fail_msg("-o %s: result %d, said \"%s\"", cases[i].option, result, said);
    }
}

static void c21_bad_command_lines_get_one_line(void **state)
{
    static const struct {
        const char *words[8], *expected;
    } cases[] = {
        {{"kvsealfs"}, "usage: kvsealfs SOURCE MOUNTPOINT"},
        {{"kvsealfs", "/s"}, "usage: kvsealfs SOURCE MOUNTPOINT"},
        {{"kvsealfs", "/s", "/m", "/x"}, "usage: kvsealfs SOURCE MOUNTPOINT"},
        {{"kvsealfs", "", "/m"}, "usage: kvsealfs SOURCE MOUNTPOINT"},
        {{"kvsealfs", "/s", "/m", "-o"}, "-o needs an argument"},
        {{"kvsealfs", "/s", "/m", "-z"}, "unknown option '-z'"},
        {{"kvsealfs", "/s", "/m", "--quick"}, "unknown option '--quick'"},
        {{"kvsealfs", "/s", "/m", "--grace"}, "--grace needs an argument"},
        {{"kvsealfs", "/s", "/m", "--grace=x"}, "bad value 'x' for option 'grace'"},
        {{"kvsealfs", "/s", "/m", "--ready-file", ""}, "bad value '' for --ready-file"},
        {{"kvsealfs", "/s", "/m", "--timeout", "3"}, "--timeout belongs to"},
        {{"kvsealfs", "/s", "/m", "--stay"}, "--stay and --user belong to --mount-for"},
        {{"kvsealfs", "/s", "/m", "--user=5"}, "--stay and --user belong to --mount-for"},
        {{"kvsealfs", "/s", "/m", "--hold=5"}, "--hold belongs to --mount-for with --stay"},
        {{"kvsealfs", "--mount-for", "/f", "/s", "/m", "--hold", "0"},
         "bad value '0' for --hold: allowed is seconds"},
        {{"kvsealfs", "--healthcheck"}, "--healthcheck needs an argument"},
        {{"kvsealfs", "--healthcheck", "/m", "/s"}, "usage: kvsealfs --healthcheck MOUNTPOINT"},
        {{"kvsealfs", "--healthcheck", "/m", "--timeout=0"}, "bad value '0' for --timeout"},
        {{"kvsealfs", "--healthcheck", "/m", "--fd-socket=/f"}, "exclude each other"},
        {{"kvsealfs", "--healthcheck", "/m", "--ready-file=/f"}, "--ready-file belongs to"},
        {{"kvsealfs", "--fd-socket", "/f"}, "usage: kvsealfs --fd-socket SOCKET SOURCE"},
        {{"kvsealfs", "--fd-socket", "/f", "/s", "/m"}, "usage: kvsealfs --fd-socket SOCKET"},
        {{"kvsealfs", "--fd-socket=/f", "/s", "-orequire_shared"}, "belongs to who mounts"},
        {{"kvsealfs", "/s", "/dev/fd/4", "-orequire_shared"}, "belongs to who mounts"},
        {{"kvsealfs", "--mount-for", "/f", "/s"}, "usage: kvsealfs --mount-for SOCKET"},
        {{"kvsealfs", "--mount-for=/f", "/s", "/dev/fd/4"}, "takes a directory"},
        {{"kvsealfs", "--mount-for=/f", "--user=x", "/s", "/m"}, "bad value 'x' for --user"},
        {{"kvsealfs", "--mount-for=/f", "--user=4294967295", "/s", "/m"}, "bad value"},
        {{"kvsealfs", "--mount-for=/f", "-oallow_root", "/s", "/m"}, "kept by the daemon"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct kvs_options options;
        int result = parse(&options, cases[i].words);
        kvs_options_destroy(&options);
        if (result != -EINVAL || !strstr(said, cases[i].expected) ||
            strchr(said, '\n') != said + strlen(said) - 1)
            fail_msg("case %zu: result %d, said \"%s\"", i, result, said);
    }
}

static void c21_help_and_version_need_no_operands(void **state)
{
    struct kvs_options options;
    assert_int_equal(PARSE(&options, "-h"), 0);
    assert_true(options.show_help);
    kvs_options_destroy(&options);
    assert_int_equal(PARSE(&options, "--version"), 0);
    assert_true(options.show_version);
    kvs_options_destroy(&options);
}

static void c21_roles_beside_the_daemon_that_mounts(void **state)
{
    struct kvs_options options;
    assert_int_equal(PARSE(&options, "--healthcheck", "/m"), 0);
    assert_string_equal(options.healthcheck, "/m");
    assert_true(options.timeout == 5);
    kvs_options_destroy(&options);
    assert_int_equal(PARSE(&options, "--healthcheck=/m", "--timeout", "0.25"), 0);
    assert_true(options.timeout == 0.25);
    kvs_options_destroy(&options);

    assert_int_equal(PARSE(&options, "-f", "--fd-socket", "/f", "--ready-file", "/r", "/s",
                           "--grace=3", "-oallow_root"),
                     0);
    assert_string_equal(options.fd_socket, "/f");
    assert_string_equal(options.ready_file, "/r");
    assert_string_equal(options.source, "/s");
    assert_null(options.mountpoint);
    assert_true(options.timeout == 60 && options.grace == 3);
    kvs_options_destroy(&options);

    assert_int_equal(PARSE(&options, "--mount-for", "/f", "--user", "65534", "--stay", "/s", "/m",
                           "--timeout=2", "--hold=0.5"),
                     0);
    assert_string_equal(options.mount_for, "/f");
    assert_string_equal(options.mountpoint, "/m");
    assert_int_equal(options.user, 65534);
    assert_true(options.stay && options.timeout == 2 && options.hold == 0.5);
    assert_true(is_told(&options, "fsname=/s"));
    kvs_options_destroy(&options);
}

static void c21_a_descriptor_as_mount_point(void **state)
{
    static const struct {
        const char *mountpoint;
        int expected;
    } cases[] = {
        {"/dev/fd/0", 0},    {"/dev/fd/17", 17}, {"/dev/fd/2147483647", 2147483647},
        {"/dev/fd/", -1},    {"/dev/fd/-1", -1}, {"/dev/fd/4x", -1},
        {"/dev/fd/4/x", -1}, {"dev/fd/4", -1},   {"/dev/fd/2147483648", -1},
        {"/m/dev/fd/4", -1}, {"/dev/fd", -1},    {"/dev/fd/99999999999999999999", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct kvs_options options;
        assert_int_equal(PARSE(&options, "/s", cases[i].mountpoint), 0);
        assert_int_equal(options.device_fd, cases[i].expected);
        kvs_options_destroy(&options);
    }
}

int main(void)
{
    kvs_log_init("kvsealfs");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c21_defaults),
        cmocka_unit_test(c21_every_setting_is_taken),
        cmocka_unit_test(c21_times_have_units),
        cmocka_unit_test(c21_the_last_of_a_kind_wins),
        cmocka_unit_test(c21_words_of_mount_and_fstab),
        cmocka_unit_test(c21_commas_and_backslashes),
        cmocka_unit_test(c21_bad_options_are_refused_by_name),
        cmocka_unit_test(c21_bad_command_lines_get_one_line),
        cmocka_unit_test(c21_roles_beside_the_daemon_that_mounts),
        cmocka_unit_test(c21_a_descriptor_as_mount_point),
        cmocka_unit_test(c21_help_and_version_need_no_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
