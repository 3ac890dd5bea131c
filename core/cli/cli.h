// SPDX-License-Identifier: Apache-2.0
// What the commands of the kvseal tool share.
#ifndef KVSEAL_CORE_CLI_CLI_H
#define KVSEAL_CORE_CLI_CLI_H

#include <stddef.h>

#include "core/verify.h"

/* Exit statuses, the gravest first: with several files the gravest of all counts. */
enum kvs_cli_status {
    KVS_CLI_CORRUPT = 1,
    KVS_CLI_ERROR = 2,
    KVS_CLI_UNSEALED = 3,
    KVS_CLI_OK = 0,
};

/* One file on the command line. */
struct kvs_cli_file {
    const char *name; /* escaped, for messages */
    int fd;           /* readable; its reads leave the access time alone where that is allowed */
    struct kvs_reading reading; /* memory for one piece */
};

/* Each command does one file, prints one line about it, and gives its status. */
enum kvs_cli_status kvs_cmd_verify(struct kvs_cli_file *file);
enum kvs_cli_status kvs_cmd_seal(struct kvs_cli_file *file);
enum kvs_cli_status kvs_cmd_show(struct kvs_cli_file *file);

/* Prints that the file cannot be `verb`ed ("read", "sealed" ...) because of -errno `error`, and
 * what to do. Returns KVS_CLI_ERROR. */
enum kvs_cli_status kvs_cli_complain(const char *name, const char *verb, int error);

/* Verifies the file; complains where there is no verdict. */
enum kvs_cli_status kvs_cli_judge(struct kvs_cli_file *file,
                                  struct kvs_verification *verification_ret);

/* Prints the line of a corrupt file. Returns KVS_CLI_CORRUPT. */
enum kvs_cli_status kvs_cli_print_corrupt(const struct kvs_cli_file *file,
                                          const struct kvs_verification *verification);

#endif
