// SPDX-License-Identifier: Apache-2.0
// Runs a command on each of the files it was given.
#ifndef KVSEAL_CORE_CLI_FILES_H
#define KVSEAL_CORE_CLI_FILES_H

#include "core/cli/cli.h"
#include "core/verify.h"

/* One file on the command line. */
struct kvs_cli_file {
    const char *name; /* escaped, for messages */
    int fd;           /* readable; its reads leave the access time alone where that is allowed */
    struct kvs_reading reading; /* memory for one piece */
};

/* Does one file, prints one line about it, and gives its status. */
typedef enum kvs_cli_status kvs_cli_work(struct kvs_cli_file *file);

/* Runs the work on the files of the command line. The gravest status. */
int kvs_cli_run_on_files(const struct kvs_cli_command *command, kvs_cli_work *work, int argc,
                         char **argv);

/* Verifies the file; complains where there is no verdict. */
enum kvs_cli_status kvs_cli_judge(struct kvs_cli_file *file,
                                  struct kvs_verification *verification_ret);

/* Prints the line of a corrupt file. Returns KVS_CLI_CORRUPT. */
enum kvs_cli_status kvs_cli_print_corrupt(const struct kvs_cli_file *file,
                                          const struct kvs_verification *verification);

#endif
