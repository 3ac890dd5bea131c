// SPDX-License-Identifier: Apache-2.0
// One block, checked as a scrubber has to: without judging what is being written, and without a
// trace in its times or in the page cache.
#ifndef KVSEAL_CORE_SCRUB_CHECK_H
#define KVSEAL_CORE_SCRUB_CHECK_H

#include "core/scrub.h"

/* One word for what came of a block, as it is printed, in JSON and in metrics: "intact" ... */
const char *kvs_scrub_word(enum kvs_scrub_outcome outcome);

/* Opens `block`->name, verifies it, and treats it (host->treat) when it is corrupt; then
 * host->report. `reading` has memory for a piece, and its before_piece keeps the pace.
 * block->outcome and the rest are set, the descriptor is closed again. 0; or what before_piece
 * ended it with: then there is no outcome, and no report. */
int kvs_scrub_check(struct kvs_scrub_block *block, struct kvs_reading *reading, uint64_t min_age,
                    const struct kvs_scrub_host *host);

/* The treatment of a corrupt block by who has no daemon's locks: `on_corrupt`, after a last look
 * whether it is that block still. Returns as host->treat; or -errno: it could not be, and nothing
 * was lost. */
int kvs_scrub_treat(int source_fd, enum kvs_on_corrupt on_corrupt,
                    const struct kvs_scrub_block *block);

#endif
