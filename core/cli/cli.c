// SPDX-License-Identifier: Apache-2.0
// Options that commands have in common, and messages.
#include "core/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/progress.h"
#include "core/log.h"
#include "core/parse.h"
#include "core/util.h"

#define MOST_OPTIONS 32

_Noreturn void kvs_cli_fail_usage(const struct kvs_cli_command *command, const char *format, ...)
{
    const char *space = command != NULL ? " " : "";
    const char *name = command != NULL ? command->name : "";
    va_list arguments;

    fprintf(stderr, "kvseal%s%s: ", space, name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see kvseal%s%s --help\n", space, name);
    exit(KVS_CLI_USAGE);
}

static _Noreturn void show_help(const struct kvs_cli_command *command)
{
    printf("Usage: kvseal %s %s\n\nIt %s.\n\n%s", command->name, command->operands,
           command->summary, command->help);
    exit(kvs_cli_finish(KVS_CLI_OK));
}

static unsigned need_jobs(const struct kvs_cli_command *command)
{
    uint64_t jobs = 0;

    if (kvs_parse_count(optarg, &jobs) < 0 || jobs < 1 || jobs > KVS_CLI_MOST_JOBS)
        kvs_cli_fail_usage(command, "--jobs takes a number from 1 to %d, not \"%s\"",
                           KVS_CLI_MOST_JOBS, optarg);
    return (unsigned)jobs;
}

uint64_t kvs_cli_need_size(const struct kvs_cli_command *command, const char *option)
{
    uint64_t size = 0;

    if (kvs_parse_size(optarg, &size) < 0)
        kvs_cli_fail_usage(command, "%s takes a size such as 64M or 1.5G, not \"%s\"", option,
                           optarg);
    return size;
}

uint64_t kvs_cli_need_duration(const struct kvs_cli_command *command, const char *option)
{
    uint64_t seconds = 0;

    if (kvs_parse_duration(optarg, &seconds) < 0)
        kvs_cli_fail_usage(command, "%s takes a time such as 90m, 36h or 7d, not \"%s\"", option,
                           optarg);
    return seconds;
}

/* The letters of the options, for getopt_long(); ':' first: a missing value is told apart. */
static void list_letters(const struct option *options, char letters[2 * MOST_OPTIONS + 2])
{
    *letters++ = ':';
    for (; options->name != NULL; options++) {
        if (!isalnum(options->val) || options->val == 'J')
            continue;
        *letters++ = (char)options->val;
        if (options->has_arg == required_argument)
            *letters++ = ':';
    }
    *letters = '\0';
}

int kvs_cli_next_option(const struct kvs_cli_command *command, struct kvs_cli_common *common,
                        int argc, char **argv, const struct option *options)
{
    char letters[2 * MOST_OPTIONS + 2];
    int option = 0;

    list_letters(options, letters);
    opterr = 0;
    while ((option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        switch (option) {
        case 'h':
            show_help(command);
        case 'J':
            common->is_json = true;
            break;
        case 'j':
            common->jobs = need_jobs(command);
            break;
        case 'v':
            common->is_verbose = true;
            break;
        case ':':
            kvs_cli_fail_usage(command, "option %s needs a value", argv[optind - 1]);
        case '?':
            kvs_cli_fail_usage(command, "unknown option %s", argv[optind - 1]);
        default:
            return option;
        }
    }
    return -1;
}

const char *kvs_cli_advice(int error)
{
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
        return "check the path";
    case ELOOP:
        return "its symbolic links lead in a circle";
    case EACCES:
    case EPERM:
        return "run as its owner or as root";
    case EROFS:
        return "mount the file system writable";
    case EOPNOTSUPP:
        return "use a file system that stores user extended attributes";
    case EIO:
        return "the storage below fails: see the kernel's log";
    case ENOSPC:
    case EDQUOT:
        return "make room";
    case EMFILE:
    case ENFILE:
        return "allow more open files (ulimit -n)";
    case ENOTCONN:
        return "the file system's daemon is gone: mount it again";
    default:
        return "see errno(3) and the kernel's log";
    }
}

__attribute__((format(printf, 4, 0))) static void
say(FILE *stream, const char *before, const char *path, const char *format, va_list arguments)
{
    size_t size = 4 * strlen(path) + 1;
    kvs_cleanup_free char *name = malloc(size);
    kvs_cleanup_free char *message = NULL;

    if (vasprintf(&message, format, arguments) < 0)
        message = NULL;
    kvs_cli_output_begin();
    fprintf(stream, "%s%s: %s\n", before, name == NULL ? "?" : kvs_log_escape(path, name, size),
            message == NULL ? "out of memory" : message);
    kvs_cli_output_end();
}

void kvs_cli_print(const char *path, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(stdout, "", path, format, arguments);
    va_end(arguments);
}

void kvs_cli_warn(const char *path, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(stderr, "kvseal: ", path, format, arguments);
    va_end(arguments);
}

enum kvs_cli_status kvs_cli_complain(const char *path, const char *verb, int error)
{
    kvs_cli_warn(path, "cannot be %s: %s; %s", verb, strerror(-error), kvs_cli_advice(error));
    return KVS_CLI_ERROR;
}

enum kvs_cli_status kvs_cli_graver(enum kvs_cli_status a, enum kvs_cli_status b)
{
    if (a == KVS_CLI_OK || b == KVS_CLI_OK)
        return a == KVS_CLI_OK ? b : a;
    return KVS_MIN(a, b);
}

enum kvs_cli_status kvs_cli_finish(enum kvs_cli_status status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fputs("kvseal: standard output cannot be written; give it room or another place\n", stderr);
    return kvs_cli_graver(status, KVS_CLI_ERROR);
}
