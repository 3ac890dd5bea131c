// SPDX-License-Identifier: Apache-2.0
// What is known of one file's content from the bytes that passed through us.
#ifndef KVSEAL_CORE_DIGEST_H
#define KVSEAL_CORE_DIGEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A digest answers two questions about a file: was all of it written anew, and what is its sum? It
 * keeps two sorted lists of ranges:
 *
 *   written   rewritten since the last restart. Bytes for which several writes raced count too:
 *             whichever won, none of the old content is left.
 *   summed    content that is certain, with its sum. A sum cannot be cut: a change to a part
 *             forgets the whole piece. So neighbours are joined at once, but only within one
 *             KVS_DIGEST_UNIT, until there are too many. Holes are the exception; they are kept
 *             as pieces of their own, and cut.
 *
 * A write takes three steps: kvs_digest_begin, the write itself, kvs_digest_end. In between its
 * range has no sum. Two writes in flight that overlap are torn: nobody knows who won, neither
 * leaves a sum.
 *
 * Knowledge may be lost, never made up. No call fails: when memory runs out, or when there are more
 * than KVS_DIGEST_MAX ranges in a list that do not join, the list is emptied. Lost sums are read
 * back from the file; lost `written` ranges mean that only another full rewrite counts.
 *
 * Every function locks the digest; callers need no lock, and hold none for it.
 */

#define KVS_DIGEST_MAX  4096 /* ranges a list */
#define KVS_DIGEST_UNIT ((uint64_t)1 << 20)

struct kvs_digest_range {
    uint64_t offset;
    uint64_t end; /* the first byte after it */
    uint32_t crc;
    bool cuttable; /* `written` and holes: `crc` is not used */
};

struct kvs_digest_list {
    struct kvs_digest_range *ranges; /* sorted; no two overlap */
    size_t count;
    size_t capacity;
};

/* One write in flight. The caller's memory, from kvs_digest_begin until kvs_digest_end. */
struct kvs_digest_write {
    struct kvs_digest_write *next, *previous;
    uint64_t offset;
    uint64_t end;
    bool torn;  /* leaves no sum */
    bool stale; /* began before a restart: does not count as written */
};

/* All fields: protected by `lock`, used by digest.c alone. */
struct kvs_digest {
    pthread_mutex_t lock;
    struct kvs_digest_list written;
    struct kvs_digest_list summed;
    struct kvs_digest_write *in_flight;
    uint64_t changes;
};

/* Nothing is known. */
void kvs_digest_init(struct kvs_digest *d);

/* No write may be in flight. */
void kvs_digest_destroy(struct kvs_digest *d);

/*
 * A write (or anything else that changes content) of [offset, offset + len) is about to reach the
 * file: forgets the sums there. A len that reaches beyond UINT64_MAX means "to the end".
 */
void kvs_digest_begin(struct kvs_digest *d, uint64_t offset, uint64_t len,
                      struct kvs_digest_write *w);

/*
 * That write is over: its first `len_written` bytes are in the file. `crc` is the sum of these when
 * `summed`. 0 = nothing was written, or the write failed (then see kvs_digest_restart).
 */
void kvs_digest_end(struct kvs_digest *d, struct kvs_digest_write *w, uint64_t len_written,
                    uint32_t crc, bool summed);

/* How many changes (begun, ended, truncations ...) there were so far; for kvs_digest_learn. */
uint64_t kvs_digest_changes(struct kvs_digest *d);

/*
 * The range was read back from the file and has this sum. `changes` is what kvs_digest_changes gave
 * before the read: ignored if anything changed since, or if a write in flight overlaps. Replaces
 * the pieces it overlaps, so read exactly what kvs_digest_next_gap asks for.
 */
void kvs_digest_learn(struct kvs_digest *d, uint64_t offset, uint64_t len, uint32_t crc,
                      uint64_t changes);

/*
 * A write failed, and nobody knows what is in the file: forgets everything. Only what begins from
 * now on counts; writes in flight leave neither a sum nor a written range.
 */
void kvs_digest_restart(struct kvs_digest *d);

/* The content may have changed unseen: forgets the sums, also those of writes in flight. */
void kvs_digest_forget_sums(struct kvs_digest *d);

/*
 * The file was cut to `size`. Forgets what lies beyond, and the sum of a piece that crosses. With 0
 * nothing is left that was not written: only what comes from now on counts.
 */
void kvs_digest_truncate(struct kvs_digest *d, uint64_t size);

/*
 * The file grew by a hole (a truncate to a larger size, a write beyond its end): zeros, written and
 * summed, except where something was written or is being written. Tell it before the write that
 * makes the hole begins, with `from` the end of the file and of all writes that began so far.
 */
void kvs_digest_extend(struct kvs_digest *d, uint64_t from, uint64_t to);

/*
 * What is known, for a process that goes on with this file; no write is in flight. The ranges are
 * the digest's.
 */
void kvs_digest_save(struct kvs_digest *d, struct kvs_digest_list *written_ret,
                     struct kvs_digest_list *summed_ret);

/* The same there. What is not in order is not taken, nor is what there is no memory for. */
void kvs_digest_restore(struct kvs_digest *d, const struct kvs_digest_list *written,
                        const struct kvs_digest_list *summed);

/* Was every byte of [0, size) written since the last restart? True for 0. */
bool kvs_digest_is_written(struct kvs_digest *d, uint64_t size);

/*
 * The sum of a file of that size, if pieces cover [0, size) exactly: a piece beyond it means that
 * the size is not what we think. 0 for the empty file.
 */
bool kvs_digest_sum(struct kvs_digest *d, uint64_t size, uint32_t *crc_ret);

/* The first range in [from, size) without a sum; false if there is none. */
bool kvs_digest_next_gap(struct kvs_digest *d, uint64_t from, uint64_t size, uint64_t *offset_ret,
                         uint64_t *len_ret);

#endif
