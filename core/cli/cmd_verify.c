// SPDX-License-Identifier: Apache-2.0
// kvseal verify: is the content what its record says?
#include "core/cli/files.h"

#include <inttypes.h>
#include <stdio.h>

enum kvs_cli_status kvs_cli_judge(struct kvs_cli_file *file,
                                  struct kvs_verification *verification_ret)
{
    int r = kvs_verify(file->fd, &file->reading, verification_ret);

    if (r < 0 && verification_ret->is_unstable) {
        fprintf(stderr,
                "kvseal: %s: no verdict: it reads differently each time; "
                "try again when nobody writes to it, then suspect the storage\n",
                file->name);
        return KVS_CLI_ERROR;
    }
    return r < 0 ? kvs_cli_complain(file->name, "verified", r) : KVS_CLI_OK;
}

enum kvs_cli_status kvs_cli_print_corrupt(const struct kvs_cli_file *file,
                                          const struct kvs_verification *verification)
{
    if (verification->record.kind == KVS_RECORD_SUM)
        printf("%s: corrupt (expected %08" PRIx32 ", computed %08" PRIx32 ")\n", file->name,
               verification->record.crc, verification->computed);
    else
        printf("%s: corrupt (malformed record, computed %08" PRIx32 ")\n", file->name,
               verification->computed);
    return KVS_CLI_CORRUPT;
}

static enum kvs_cli_status verify_file(struct kvs_cli_file *file)
{
    struct kvs_verification verification;
    enum kvs_cli_status status = kvs_cli_judge(file, &verification);

    if (status != KVS_CLI_OK)
        return status;
    switch (verification.verdict) {
    case KVS_CORRUPT:
        return kvs_cli_print_corrupt(file, &verification);
    case KVS_UNSEALED:
        printf("%s: unsealed\n", file->name);
        return KVS_CLI_OK;
    case KVS_INTACT:
        break;
    }
    printf("%s: %s\n", file->name, verification.is_transient ? "transient" : "intact");
    return KVS_CLI_OK;
}

static int run(int argc, char **argv)
{
    return kvs_cli_run_on_files(&kvs_cmd_verify, verify_file, argc, argv);
}

const struct kvs_cli_command kvs_cmd_verify = {
    .name = "verify",
    .operands = "FILE...",
    .summary = "compares files with their records",
    .help = "",
    .run = run,
};
