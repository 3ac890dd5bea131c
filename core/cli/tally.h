// SPDX-License-Identifier: Apache-2.0
// What was found, counted: the summary of a run, as a line of text or JSON, and its exit status.
#ifndef KVSEAL_CORE_CLI_TALLY_H
#define KVSEAL_CORE_CLI_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/cli/blocks.h"
#include "core/cli/cli.h"
#include "core/examine.h"

/* All zero at the start. */
struct kvs_cli_tally {
    atomic_ullong found[KVS_FINDINGS];
    atomic_ullong bytes; /* of what was judged: intact, transient, corrupt */
};

/* The word of a finding: "intact", "being written" ... */
const char *kvs_cli_finding_word(enum kvs_finding finding);

/* Counts the block. Thread-safe. */
void kvs_cli_tally_add(struct kvs_cli_tally *tally, const struct kvs_examination *examination);

/* Prints one line about all: "2 blocks, 1.00 MiB read: 1 intact, 1 corrupt". */
void kvs_cli_tally_print(const struct kvs_cli_tally *tally, const struct kvs_cli_sights *sights,
                         bool is_json);

enum kvs_cli_status kvs_cli_tally_status(const struct kvs_cli_tally *tally,
                                         const struct kvs_cli_sights *sights);

#endif
