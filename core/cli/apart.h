// SPDX-License-Identifier: Apache-2.0
// Runs a command in a process of its own.
//
// What hangs in a file system below may be beyond any signal, and a process ends only when all of
// its calls do. So a child reads, and can be left behind.
#ifndef KVSEAL_CORE_CLI_APART_H
#define KVSEAL_CORE_CLI_APART_H

#include "core/cli/cli.h"

/* Runs the command in a child, which dies with this process, and waits for its end; where there is
 * no other process to be had, here. SIGINT and SIGTERM are passed on to a command that ends by
 * itself then, and when it has not in 5 seconds it is killed and left behind. Returns the exit
 * status: of the command, or as noted, and not everything was done. */
int kvs_cli_run_apart(const struct kvs_cli_command *command, int argc, char **argv);

/* In the command: what its exit status is to be at least, should it be left behind. */
void kvs_cli_note_status(enum kvs_cli_status status);

#endif
