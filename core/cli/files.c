// SPDX-License-Identifier: Apache-2.0
// kvseal: checks, seals and shows block files without a mount.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/cli.h"
#include "core/log.h"
#include "core/util.h"

struct command {
    const char *name;
    enum kvs_cli_status (*run)(struct kvs_cli_file *file);
};

static const struct command commands[] = {
    {"verify", kvs_cmd_verify},
    {"seal", kvs_cmd_seal},
    {"show", kvs_cmd_show},
};

static const char usage[] =
    "Usage: kvseal verify FILE...   compare files with their records\n"
    "       kvseal seal FILE...     give a record to files that have none\n"
    "       kvseal show FILE...     print record, computed sum and size\n"
    "       kvseal --help | --version\n"
    "\n"
    "Exit status: 0 all is well, 1 a file is corrupt, 2 an error, 3 a file has no record.\n";

enum kvs_cli_status kvs_cli_complain(const char *name, const char *verb, int error)
{
    const char *advice = "see errno(3) and the kernel's log";

    switch (-error) {
    case ENOENT:
    case ENOTDIR:
        advice = "check the path";
        break;
    case EACCES:
    case EPERM:
        advice = "run as its owner or as root";
        break;
    case EOPNOTSUPP:
        advice = "use a file system that stores user extended attributes";
        break;
    case EIO:
        advice = "the storage below fails, or it changed while it was read: see the kernel's log";
        break;
    case ENOSPC:
    case EDQUOT:
        advice = "make room";
        break;
    }
    fprintf(stderr, "kvseal: %s: cannot be %s: %s; %s\n", name, verb, strerror(-error), advice);
    return KVS_CLI_ERROR;
}

/* Opens a regular file; anything else (a device, a FIFO) is looked at but never opened. */
static int open_file(const char *path, const char *name)
{
    char again[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
    struct stat st;
    kvs_cleanup_fd int path_fd = open(path, O_PATH | O_CLOEXEC);
    int fd = -1;

    if (path_fd < 0 || fstat(path_fd, &st) < 0) {
        kvs_cli_complain(name, "opened", -errno);
        return -1;
    }
    if (!S_ISREG(st.st_mode)) {
        fprintf(stderr,
                "kvseal: %s: is not a regular file; give block files "
                "(all below DIR: find DIR -type f -exec kvseal verify {} +)\n",
                name);
        return -1;
    }
    snprintf(again, sizeof(again), "/proc/self/fd/%d", path_fd);
    fd = open(again, O_RDONLY | O_NOATIME | O_CLOEXEC);
    if (fd < 0 && errno == EPERM)
        fd = open(again, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        kvs_cli_complain(name, "opened", -errno);
    return fd;
}

static enum kvs_cli_status run_on_file(const struct command *command, const char *path,
                                       const struct kvs_reading *reading)
{
    size_t size = 4 * strlen(path) + 1;
    kvs_cleanup_free char *name = malloc(size);
    struct kvs_cli_file file = {.fd = -1, .reading = *reading};
    kvs_cleanup_fd int fd = -1;

    if (name == NULL) {
        fputs("kvseal: out of memory\n", stderr);
        return KVS_CLI_ERROR;
    }
    file.name = kvs_log_escape(path, name, size);
    fd = open_file(path, name);
    file.fd = fd;
    return fd < 0 ? KVS_CLI_ERROR : command->run(&file);
}

static enum kvs_cli_status graver(enum kvs_cli_status a, enum kvs_cli_status b)
{
    if (a == KVS_CLI_OK || b == KVS_CLI_OK)
        return a == KVS_CLI_OK ? b : a;
    return KVS_MIN(a, b);
}

static enum kvs_cli_status run_on_files(const struct command *command, char **paths)
{
    enum kvs_cli_status status = KVS_CLI_OK;
    kvs_cleanup_free void *memory = NULL;
    struct kvs_reading reading = {.capacity = KVS_PIECE_SIZE};

    memory = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);
    if (memory == NULL) {
        fputs("kvseal: out of memory\n", stderr);
        return KVS_CLI_ERROR;
    }
    reading.memory = memory;
    for (; *paths != NULL; paths++)
        status = graver(status, run_on_file(command, *paths, &reading));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("kvseal: standard output cannot be written; give it room or another place\n", stderr);
        status = graver(status, KVS_CLI_ERROR);
    }
    return status;
}

static enum kvs_cli_status fail_usage(const char *problem, const char *what)
{
    fprintf(stderr, "kvseal: %s%s; see kvseal --help\n", problem, what);
    return KVS_CLI_ERROR;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    const char *name = NULL;
    int option = 0;

    opterr = 0;
    /* Options may stand anywhere; "--" ends them. */
    while ((option = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
        switch (option) {
        case 'h':
            fputs(usage, stdout);
            return KVS_CLI_OK;
        case 'V':
            puts("kvseal " KVSEAL_VERSION);
            return KVS_CLI_OK;
        default:
            return fail_usage("unknown option ", argv[optind - 1]);
        }
    }
    if (optind == argc)
        return fail_usage("no command is given", "");
    name = argv[optind];
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        if (optind + 1 == argc)
            return fail_usage("no file is given to ", name);
        return run_on_files(&commands[i], argv + optind + 1);
    }
    return fail_usage("unknown command ", name);
}
