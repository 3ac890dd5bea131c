// SPDX-License-Identifier: Apache-2.0
// The block state machine: what an event may do to a block and to its record (C1-C8). Pure: no I/O.
#ifndef KVSEAL_CORE_BLOCK_H
#define KVSEAL_CORE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verify.h"

/*
 * A block is one regular file. Four states:
 *
 *   CLEAN      Not changed through the mount since it was sealed, verified or first seen. What
 *              the disk says, a record or none, is the truth.
 *   MODIFIED   Changed; the record is gone (C4), or it is the client's own sum (C8). A seal is
 *              owed.
 *   TAINTED    Changed, and the content holds something that must never be sealed: a write
 *              failed (C3), the bytes under a partial change were corrupt already (C5), or the
 *              client's own sum disagrees (C8). Only a full rewrite, or truncation to zero,
 *              leads out.
 *   UNTRACKED  A file larger than max_reread that is changed in place (C6): unsealed, no errors,
 *              also after a failed write. Sealed again only when all of it arrived through the
 *              mount.
 *
 *   CLEAN     -- created, first change ------------------> MODIFIED
 *   CLEAN     -- first change of a corrupt block --------> TAINTED
 *   CLEAN     -- first change, too large ----------------> UNTRACKED
 *   MODIFIED  -- sealed ---------------------------------> CLEAN
 *   MODIFIED  -- write failed, client sum differs -------> TAINTED
 *   MODIFIED  -- too much to be read back ---------------> UNTRACKED
 *   TAINTED   -- rewritten in full (at seal), emptied ---> MODIFIED
 *   UNTRACKED -- emptied --------------------------------> MODIFIED
 *   UNTRACKED -- all arrived, sealed --------------------> CLEAN
 *
 * The record on disk follows: it is removed before the first change, so that a crash leaves
 * "unsealed". A tainted block keeps the record that it has, until it is sealed or changed again
 * after it was emptied: a crash then leaves "corrupt", and never wrong bytes that load as an
 * unsealed block.
 */
enum kvs_block_state {
    KVS_BLOCK_CLEAN,
    KVS_BLOCK_MODIFIED,
    KVS_BLOCK_TAINTED,
    KVS_BLOCK_UNTRACKED,
};

enum kvs_taint {
    KVS_TAINT_NONE,
    KVS_TAINT_WRITE_FAILED, /* a write, truncate ... failed or came up short below */
    KVS_TAINT_CORRUPT_BASE, /* changed in part while corrupt: close() applies C13 */
    KVS_TAINT_CLIENT_SUM,   /* the client's own sum is not that of the file's content: kept (C8) */
};

/* One block. Zero-initialised is CLEAN. The owner's lock protects it. */
struct kvs_block {
    enum kvs_block_state state;
    enum kvs_taint taint;
    int error;                /* TAINTED: positive errno that every seal gives */
    bool changed_since_taint; /* TAINTED: an empty file counts as rewritten only then */
    bool has_client_sum;      /* the client set a record after its last write (C8) */
    uint32_t client_sum;
    bool may_have_record; /* not CLEAN: a record may be on the disk */
};

/* What has to be done before a change may reach the file. */
enum kvs_block_need {
    KVS_NEED_NOTHING,
    KVS_NEED_VERIFY, /* verify the content, then kvs_block_verified_for_change() says how to go on
                      */
    KVS_NEED_REMOVE_RECORD, /* then kvs_block_change_begins() */
};

/* `drops_all`: nothing of the old content survives (O_TRUNC, truncate to 0; C5).
 * `size` is the present size; above `max_reread` a block is not verified (C6). */
enum kvs_block_need kvs_block_need_before_change(const struct kvs_block *block, bool drops_all,
                                                 uint64_t size, uint64_t max_reread);

/* A CLEAN block was verified for its first change. Corrupt: it becomes TAINTED (EBADMSG), its
 * record stays, and the change may go on: KVS_NEED_NOTHING. The caller also restarts the digest.
 * Otherwise KVS_NEED_REMOVE_RECORD. */
enum kvs_block_need kvs_block_verified_for_change(struct kvs_block *block,
                                                  enum kvs_verdict verdict);

/* The record is gone (or the block keeps it, see above) and the change is about to be made. */
void kvs_block_change_begins(struct kvs_block *block, bool drops_all, uint64_t size,
                             uint64_t max_reread);

void kvs_block_created(struct kvs_block *block);

/* All content was dropped (the truncation has succeeded): whatever was wrong with it is gone too.
 */
void kvs_block_emptied(struct kvs_block *block);

/* A change failed with errno `error` (positive), or came up short: EIO. The first taint stays.
 * The caller also restarts the digest: only what is written from now on counts as rewritten. */
void kvs_block_change_failed(struct kvs_block *block, int error);

/* The client set (or removed) the record itself while the block is being written (C8). */
void kvs_block_client_record(struct kvs_block *block, bool set, uint32_t sum);

enum kvs_seal_step {
    KVS_SEAL_NOTHING, /* nothing is owed (CLEAN), or the block stays unsealed (UNTRACKED) */
    KVS_SEAL_SUM,     /* sum the content, then kvs_block_summed() */
    KVS_SEAL_REFUSE,  /* fail with block->error */
};

/* What a flush or publish has to do. `rewritten`: every byte of the present content was written
 * since the last taint; `known`: all of it arrived through the mount, nothing has to be read back;
 * `unknown_len`: how many bytes would have to be read back. May move TAINTED to MODIFIED
 * (rewritten) and MODIFIED to UNTRACKED (unknown_len above max_reread; *untracked_ret true: count
 * it, and remove the record if `may_have_record`, unless it is the client's own sum). */
enum kvs_seal_step kvs_block_seal_begins(struct kvs_block *block, bool rewritten, bool known,
                                         uint64_t unknown_len, uint64_t max_reread,
                                         bool *untracked_ret);

/* The content's sum is known. False: the client's own sum differs: the block is TAINTED now and
 * keeps the client's record; the caller also restarts the digest. True: the record may be written
 * (or is there already). If that fails the block still owes its seal. */
bool kvs_block_summed(struct kvs_block *block, uint32_t sum);

/* The record is on the file and equals its content. */
void kvs_block_sealed(struct kvs_block *block);

/* The same, but changes may follow unseen: a seal is still owed. */
void kvs_block_sealed_for_now(struct kvs_block *block);

#endif
