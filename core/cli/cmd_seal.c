// SPDX-License-Identifier: Apache-2.0
// kvseal seal: gives a record to a file that has none.
#include "core/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

/* Is the content still what it was at `before`? (Setting the record moves ctime, not mtime.) */
static bool is_unchanged(int fd, const struct stat *before)
{
    struct stat now;

    return fstat(fd, &now) == 0 && now.st_size == before->st_size &&
           now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static enum kvs_cli_status complain_of_change(const struct kvs_cli_file *file)
{
    fprintf(stderr,
            "kvseal: %s: not sealed: it changed while it was read; "
            "try again when nobody writes to it\n",
            file->name);
    return KVS_CLI_ERROR;
}

static enum kvs_cli_status set_record(struct kvs_cli_file *file, const struct stat *before)
{
    uint32_t crc = 0;
    int r = kvs_sum_agreed(file->fd, 0, (uint64_t)before->st_size, file->reading.memory,
                           file->reading.capacity, &crc);

    if (!is_unchanged(file->fd, before))
        return complain_of_change(file);
    if (r == 0)
        r = kvs_record_write(file->fd, crc);
    if (r < 0)
        return kvs_cli_complain(file->name, "sealed", r);
    if (!is_unchanged(file->fd, before)) {
        r = kvs_record_remove(file->fd);
        if (r < 0)
            kvs_cli_complain(file->name, "unsealed again", r);
        return complain_of_change(file);
    }
    printf("%s: sealed (%08" PRIx32 ")\n", file->name, crc);
    return KVS_CLI_OK;
}

enum kvs_cli_status kvs_cmd_seal(struct kvs_cli_file *file)
{
    struct kvs_verification verification;
    enum kvs_cli_status status = kvs_cli_judge(file, &verification);

    if (status != KVS_CLI_OK)
        return status;
    switch (verification.verdict) {
    case KVS_UNSEALED:
        return set_record(file, &verification.stat);
    case KVS_CORRUPT:
        /* A new record would turn corrupt bytes into valid ones. */
        kvs_cli_print_corrupt(file, &verification);
        fprintf(stderr,
                "kvseal: %s: not sealed: it has a record that does not match; "
                "remove the file, so that it is stored again\n",
                file->name);
        return KVS_CLI_CORRUPT;
    case KVS_INTACT:
        break;
    }
    printf("%s: intact\n", file->name);
    return KVS_CLI_OK;
}
