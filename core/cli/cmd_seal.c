// SPDX-License-Identifier: Apache-2.0
// kvseal seal: gives a record to a file that has none.
#include "core/cli/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static enum kvs_cli_status set_record(struct kvs_cli_file *file)
{
    uint32_t crc = 0;
    int r = kvs_seal_whole(file->fd, file->reading.memory, file->reading.capacity, &crc);

    if (r == -EBUSY) {
        fprintf(stderr,
                "kvseal: %s: not sealed: it changed while it was read; "
                "try again when nobody writes to it\n",
                file->name);
        return KVS_CLI_ERROR;
    }
    if (r < 0)
        return kvs_cli_complain(file->name, "sealed", r);
    printf("%s: sealed (%08" PRIx32 ")\n", file->name, crc);
    return KVS_CLI_OK;
}

static enum kvs_cli_status seal_file(struct kvs_cli_file *file)
{
    struct kvs_verification verification;
    enum kvs_cli_status status = kvs_cli_judge(file, &verification);

    if (status != KVS_CLI_OK)
        return status;
    switch (verification.verdict) {
    case KVS_UNSEALED:
        return set_record(file);
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

static int run(int argc, char **argv)
{
    return kvs_cli_run_on_files(&kvs_cmd_seal, seal_file, argc, argv);
}

const struct kvs_cli_command kvs_cmd_seal = {
    .name = "seal",
    .operands = "FILE...",
    .summary = "gives a record to files that have none",
    .help = "",
    .run = run,
};
