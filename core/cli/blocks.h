// SPDX-License-Identifier: Apache-2.0
// Runs work on every block that the command line names: files, and trees of them, by several
// threads.
#ifndef KVSEAL_CORE_CLI_BLOCKS_H
#define KVSEAL_CORE_CLI_BLOCKS_H

#include <stdint.h>
#include <sys/stat.h>

#include "core/cli/cli.h"
#include "core/examine.h"

/* One block, for the thread that works on it. */
struct kvs_cli_block {
    const char *path;              /* as it is to be shown: the operand, "/", the way below it */
    int fd;                        /* as of kvs_examine_open(); closed after the work */
    uint64_t size;                 /* when it was found */
    struct kvs_examiner *examiner; /* the thread's own */
};

/* What there was besides blocks. */
struct kvs_cli_sights {
    uint64_t others;      /* symbolic links, FIFOs, sockets, devices */
    uint64_t mounts;      /* not entered */
    uint64_t temporaries; /* kvseal's own names */
    uint64_t gone;        /* removed while they were looked for */
    uint64_t errors;      /* could not be read; each was complained about */
    uint64_t refused;     /* on a mount that found them corrupt at open; each was told */
};

struct kvs_cli_blocks {
    const struct kvs_cli_common *common;
    /* Called for each block, by one of the threads. */
    void (*work)(void *context, const struct kvs_cli_block *block);
    void *context;
};

/* Runs the work on all blocks of the operands (the list ends with NULL): a file, or all below a
 * directory (core/walk.h); an operand may be a symbolic link. 0 or -ENOMEM, -EAGAIN. */
int kvs_cli_blocks_run(const struct kvs_cli_blocks *blocks, char **operands,
                       struct kvs_cli_sights *sights_ret);

/* Tells of a block that cannot be worked on: a line of JSON, or kvs_cli_complain(). */
void kvs_cli_blocks_complain(const struct kvs_cli_common *common, const char *path,
                             const char *verb, int error);

#endif
