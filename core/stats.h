// SPDX-License-Identifier: Apache-2.0
// Counters: what happened since the start, each a relaxed atomic.
#ifndef KVSEAL_CORE_STATS_H
#define KVSEAL_CORE_STATS_H

#include <stdint.h>

/* X(name, "what it counts") */
#define KVS_STATS(X)                                                                               \
    X(sealed, "blocks sealed")                                                                     \
    X(seal_failures, "seals that failed")                                                          \
    X(verified, "blocks verified on open, intact")                                                 \
    X(verified_bytes, "bytes verified on open")                                                    \
    X(unsealed, "blocks opened that had no record")                                                \
    X(corrupt, "blocks found corrupt")                                                             \
    X(removed, "names of corrupt blocks removed or quarantined")                                   \
    X(transient, "first readings that were bad where the second was good")                         \
    X(unstable, "blocks whose readings differed or that kept changing")                            \
    X(backing_errors, "errors of the file system below while verifying or sealing")                \
    X(client_sums_refused, "blocks whose client's own sum differed from the content")              \
    X(untracked, "files too large to be summed again after a change in place")                     \
    X(read_back_bytes, "bytes read back to seal what did not arrive in full")                      \
    X(served_raw, "opens served unverified: being written or unsealed")                            \
    X(served_buffer, "opens served from a verified buffer")                                        \
    X(served_passthrough, "opens served by the kernel from verified, locked pages")                \
    X(served_pieces, "opens served piece by piece, checked again")                                 \
    X(buffers_dropped, "verified buffers given up for memory")

enum kvs_stat {
#define KVS_STAT_ENUM(name, help) KVS_STAT_##name,
    KVS_STATS(KVS_STAT_ENUM)
#undef KVS_STAT_ENUM
        KVS_STAT_COUNT,
};

void kvs_stats_add(enum kvs_stat stat, uint64_t amount);
uint64_t kvs_stats_get(enum kvs_stat stat);
const char *kvs_stats_name(enum kvs_stat stat);
const char *kvs_stats_help(enum kvs_stat stat);

#endif
