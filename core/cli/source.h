// SPDX-License-Identifier: Apache-2.0
// A source directory as an operand: the commands that work on a whole cache.
#ifndef KVSEAL_CORE_CLI_SOURCE_H
#define KVSEAL_CORE_CLI_SOURCE_H

#include "core/cli/cli.h"

/* Opens the directory. A kvsealfs mount is refused: what belongs to kvseal is not to be seen
 * through it. >= 0 a descriptor, or -1 after one line that says what and why. */
int kvs_cli_open_source(const char *path);

#endif
