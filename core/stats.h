// SPDX-License-Identifier: Apache-2.0
// Statistics: what happened since the start (counters) and how long it took (histograms), each a
// relaxed atomic.
//
// Counters come in families, as Prometheus has them: a family is a metric with up to two labels,
// and each of its counters has a value of each. fuse/metrics.c shows them all.
#ifndef KVSEAL_CORE_STATS_H
#define KVSEAL_CORE_STATS_H

#include <stddef.h>
#include <stdint.h>

/* F(family, first label or NULL, second label or NULL, what is counted) */
#define KVS_FAMILIES(F)                                                                            \
    F(loads, "path", "result", "Opens for reading, by what serves their reads and how they went.") \
    F(read_bytes, NULL, NULL, "Bytes given to clients by kvsealfs; passthrough has none of them.") \
    F(stores, "path", "result", "Seals of written blocks, by how the sum was known and the end.")  \
    F(written_bytes, NULL, NULL, "Bytes that clients wrote.")                                      \
    F(read_back_bytes, NULL, NULL, "Bytes read back to seal what did not arrive in full.")         \
    F(not_sealed_too_large, NULL, NULL, "Blocks changed in place, too large to be summed again.")  \
    F(sealed_on_load, NULL, NULL, "Blocks that had no record and got one at their first load.")    \
    F(verified_bytes, NULL, NULL, "Bytes read, summed and found to match their record.")           \
    F(checksum_failures, NULL, NULL,                                                               \
      "Loads that were refused since the block does not match its record; what vLLM counts as "    \
      "vllm:kv_offload_tiering_checksum_failures.")                                                \
    F(corruption_events, "cause", "action", "Refusals of corrupt blocks, each time that it was.")  \
    F(corrupt_blocks, "cause", NULL, "Corrupt blocks, each counted once.")                         \
    F(names_removed, NULL, NULL, "Names of corrupt blocks that were removed or quarantined.")      \
    F(transient_mismatches, NULL, NULL, "Blocks read wrong once and right the second time.")       \
    F(unstable_reads, NULL, NULL, "Blocks refused with EIO, whose readings differed every time.")  \
    F(buffers_dropped, NULL, NULL, "Verified buffers given up for memory while they were in use.") \
    F(files_opened, NULL, NULL, "Regular files opened.")                                           \
    F(files_closed, NULL, NULL, "Regular files closed.")

#define KVS_CORRUPT_ACTIONS(X, cause, word)                                                        \
    X(corrupt_##cause##_removed, corruption_events, word, "removed")                               \
    X(corrupt_##cause##_quarantined, corruption_events, word, "quarantined")                       \
    X(corrupt_##cause##_kept, corruption_events, word, "kept")                                     \
    X(corrupt_##cause##_failed, corruption_events, word, "failed")

/* X(counter, family, value of the first label, value of the second) */
#define KVS_COUNTERS(X)                                                                            \
    X(loads_passthrough, loads, "passthrough", "verified") /* the kernel */                        \
    X(loads_pinned, loads, "pinned", "verified")           /* the daemon, from locked pages */     \
    X(loads_buffer, loads, "buffer", "verified")                                                   \
    X(loads_pieces, loads, "pieces", "verified")                                                   \
    X(loads_unsealed, loads, "raw", "unsealed")                                                    \
    X(loads_being_written, loads, "raw", "being_written")                                          \
    X(loads_unchecked, loads, "raw", "unchecked") /* checksums=off */                              \
    X(loads_corrupt, loads, "none", "corrupt")                                                     \
    X(loads_denied, loads, "none", "denied") /* unsealed=deny */                                   \
    X(loads_failed, loads, "none", "failed")                                                       \
    X(read_bytes, read_bytes, NULL, NULL)                                                          \
    X(stores_arrived, stores, "arrived", "sealed") /* each byte was summed as it came */           \
    X(stores_read_back, stores, "read_back", "sealed")                                             \
    X(stores_client_sum, stores, "none", "client_sum") /* differs from the client's own (C8) */    \
    X(stores_refused, stores, "none", "refused")       /* tainted before (C3, C5) */               \
    X(stores_failed, stores, "none", "failed")                                                     \
    X(written_bytes, written_bytes, NULL, NULL)                                                    \
    X(read_back_bytes, read_back_bytes, NULL, NULL)                                                \
    X(not_sealed_too_large, not_sealed_too_large, NULL, NULL)                                      \
    X(sealed_on_load, sealed_on_load, NULL, NULL)                                                  \
    X(verified_bytes, verified_bytes, NULL, NULL)                                                  \
    X(checksum_failures, checksum_failures, NULL, NULL)                                            \
    KVS_CORRUPT_ACTIONS(X, mismatch, "mismatch")                                                   \
    KVS_CORRUPT_ACTIONS(X, malformed, "malformed_record")                                          \
    KVS_CORRUPT_ACTIONS(X, empty, "empty")                                                         \
    X(corrupt_blocks_mismatch, corrupt_blocks, "mismatch", NULL)                                   \
    X(corrupt_blocks_malformed, corrupt_blocks, "malformed_record", NULL)                          \
    X(corrupt_blocks_empty, corrupt_blocks, "empty", NULL)                                         \
    X(names_removed, names_removed, NULL, NULL)                                                    \
    X(transient, transient_mismatches, NULL, NULL)                                                 \
    X(unstable, unstable_reads, NULL, NULL)                                                        \
    X(buffers_dropped, buffers_dropped, NULL, NULL)                                                \
    X(files_opened, files_opened, NULL, NULL)                                                      \
    X(files_closed, files_closed, NULL, NULL)

enum kvs_family {
#define KVS_FAMILY_ENUM(family, label1, label2, help) KVS_FAMILY_##family,
    KVS_FAMILIES(KVS_FAMILY_ENUM)
#undef KVS_FAMILY_ENUM
};

enum kvs_stat {
#define KVS_STAT_ENUM(counter, family, value1, value2) KVS_STAT_##counter,
    KVS_COUNTERS(KVS_STAT_ENUM)
#undef KVS_STAT_ENUM
        KVS_STAT_COUNT,
};

void kvs_stats_add(enum kvs_stat stat, uint64_t amount);
uint64_t kvs_stats_get(enum kvs_stat stat);

struct kvs_stat_description {
    enum kvs_family family;
    const char *values[2]; /* of the family's labels */
};
const struct kvs_stat_description *kvs_stats_describe(enum kvs_stat stat);

/* Corrupt blocks, by how their record shows it. A block that was cut is a `mismatch` like others,
 * since the record says nothing of the size; but one that is cut to nothing is known by it. */
enum kvs_corrupt_cause {
    KVS_CAUSE_MISMATCH,
    KVS_CAUSE_MALFORMED, /* the record is not four bytes */
    KVS_CAUSE_EMPTY,     /* of size 0, and the record is not that of nothing */
};

enum kvs_corrupt_action {
    KVS_ACTION_REMOVED,
    KVS_ACTION_QUARANTINED,
    KVS_ACTION_KEPT,
    KVS_ACTION_FAILED, /* could not be removed or quarantined, and so stays */
};

enum kvs_stat kvs_stat_corruption(enum kvs_corrupt_cause cause, enum kvs_corrupt_action action);

/* One refusal of a corrupt block. `identity` tells blocks apart, with their content: one that was
 * refused before is not counted as another block (the last some thousands are remembered). */
void kvs_stats_corrupt(enum kvs_corrupt_cause cause, enum kvs_corrupt_action action,
                       uint64_t identity);

/* ---- errors of the file system below ---- */

enum kvs_backing {
    KVS_BACKING_VERIFY,
    KVS_BACKING_SEAL,
    KVS_BACKING_READ,
    KVS_BACKING_WRITE,
    KVS_BACKING_SYNC,
    KVS_BACKING_COUNT,
};
#define KVS_ERRNO_END 134 /* Linux knows none from here on; those are counted as 0 */

/* `error`: -errno. */
void kvs_stats_backing_error(enum kvs_backing backing, int error);
/* `number`: 0 .. KVS_ERRNO_END-1. */
uint64_t kvs_stats_backing_errors(enum kvs_backing backing, int number);

/* ---- how long it took ---- */

enum kvs_timing {
    KVS_TIMING_OPEN,   /* an open for reading, as the client waits for it */
    KVS_TIMING_VERIFY, /* reading and summing a block that has a record */
    KVS_TIMING_SEAL,   /* making a written block's record */
    KVS_TIMING_COUNT,
};

/* Upper bounds of the histograms' buckets, in nanoseconds, ascending; one more has no bound. */
#define KVS_TIME_BOUNDS 20
extern const uint64_t kvs_time_bounds[KVS_TIME_BOUNDS];

struct kvs_histogram {
    uint64_t counts[KVS_TIME_BOUNDS + 1]; /* each bucket's own */
    uint64_t sum_ns;
};

/* What began at `since`, as of kvs_clock_ns() (core/clock.h), is over. */
void kvs_stats_time(enum kvs_timing timing, uint64_t since);
void kvs_stats_histogram(enum kvs_timing timing, struct kvs_histogram *histogram_ret);

#endif
