// SPDX-License-Identifier: Apache-2.0
// The progress bar on a terminal's stderr: bytes done of those there are, rate, and time left.
#ifndef KVSEAL_CORE_CLI_PROGRESS_H
#define KVSEAL_CORE_CLI_PROGRESS_H

#include <stdint.h>

struct kvs_cli_progress;

/* Starts a bar for the files and trees of a NULL-terminated list, which must live until the end;
 * their bytes are counted meanwhile. NULL, which the others take too: stderr is no terminal, or
 * there is no thread for it. */
struct kvs_cli_progress *kvs_cli_progress_start(char **operands);

/* The bytes that there are, and those that are done. */
struct kvs_cli_amounts {
    uint64_t done, total;
};

/* Starts a bar for work that counts by itself: `look` is called by a thread of the bar, until the
 * end. NULL as above. */
struct kvs_cli_progress *kvs_cli_progress_watch(void (*look)(void *context,
                                                             struct kvs_cli_amounts *amounts_ret),
                                                void *context);

/* So many bytes more are done. Thread-safe. */
void kvs_cli_progress_add(struct kvs_cli_progress *progress, uint64_t bytes);

/* Takes the bar away, and frees it. */
void kvs_cli_progress_end(struct kvs_cli_progress *progress);

/* Around each line of output, so that neither another line nor the bar gets into it. Not nested. */
void kvs_cli_output_begin(void);
void kvs_cli_output_end(void);

#endif
