// SPDX-License-Identifier: Apache-2.0
// Runs a command on each of the files it was given.
#include "core/cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/util.h"

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

static enum kvs_cli_status run_on_file(kvs_cli_work *work, const char *path,
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
    return fd < 0 ? KVS_CLI_ERROR : work(&file);
}

int kvs_cli_run_on_files(const struct kvs_cli_command *command, kvs_cli_work *work, int argc,
                         char **argv)
{
    static const struct option options[] = {KVS_CLI_HELP, {0}};
    struct kvs_cli_common common = {0};
    enum kvs_cli_status status = KVS_CLI_OK;
    kvs_cleanup_free void *memory = NULL;
    struct kvs_reading reading = {.capacity = KVS_PIECE_SIZE};

    kvs_cli_next_option(command, &common, argc, argv, options);
    if (optind == argc)
        kvs_cli_fail_usage(command, "no file is given");
    memory = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);
    if (memory == NULL) {
        fputs("kvseal: out of memory\n", stderr);
        return KVS_CLI_ERROR;
    }
    reading.memory = memory;
    for (char **path = argv + optind; *path != NULL; path++)
        status = kvs_cli_graver(status, run_on_file(work, *path, &reading));
    return kvs_cli_finish(status);
}
