// SPDX-License-Identifier: Apache-2.0
// The transitions of the block state machine.
#include "core/block.h"

#include <errno.h>

static void taint(struct kvs_block *block, enum kvs_taint cause, int error)
{
    block->state = KVS_BLOCK_TAINTED;
    block->taint = cause;
    block->error = error;
    block->changed_since_taint = false;
}

static void clear_taint(struct kvs_block *block)
{
    block->state = KVS_BLOCK_MODIFIED;
    block->taint = KVS_TAINT_NONE;
    block->error = 0;
    block->changed_since_taint = false;
}

enum kvs_block_need kvs_block_need_before_change(const struct kvs_block *block, bool drops_all,
                                                 uint64_t size, uint64_t max_reread)
{
    switch (block->state) {
    case KVS_BLOCK_CLEAN:
        return drops_all || size > max_reread ? KVS_NEED_REMOVE_RECORD : KVS_NEED_VERIFY;
    case KVS_BLOCK_TAINTED:
        return KVS_NEED_NOTHING;
    case KVS_BLOCK_MODIFIED:
    case KVS_BLOCK_UNTRACKED:
        break;
    }
    return block->may_have_record ? KVS_NEED_REMOVE_RECORD : KVS_NEED_NOTHING;
}

enum kvs_block_need kvs_block_verified_for_change(struct kvs_block *block, enum kvs_verdict verdict)
{
    /* Another change may have begun while this one waited for the verdict. */
    if (block->state != KVS_BLOCK_CLEAN)
        return kvs_block_need_before_change(block, false, 0, 0);
    if (verdict != KVS_CORRUPT)
        return KVS_NEED_REMOVE_RECORD;
    taint(block, KVS_TAINT_CORRUPT_BASE, EBADMSG);
    block->may_have_record = true;
    return KVS_NEED_NOTHING;
}

void kvs_block_change_begins(struct kvs_block *block, bool drops_all, uint64_t size,
                             uint64_t max_reread)
{
    if (block->state == KVS_BLOCK_CLEAN)
        block->state = !drops_all && size > max_reread ? KVS_BLOCK_UNTRACKED : KVS_BLOCK_MODIFIED;
    block->has_client_sum = false;
    block->changed_since_taint = true;
    if (block->state != KVS_BLOCK_TAINTED)
        block->may_have_record = false;
}

void kvs_block_created(struct kvs_block *block)
{
    *block = (struct kvs_block){.state = KVS_BLOCK_MODIFIED};
}

void kvs_block_emptied(struct kvs_block *block)
{
    clear_taint(block);
    block->has_client_sum = false;
}

void kvs_block_change_failed(struct kvs_block *block, int error)
{
    block->changed_since_taint = false;
    if (block->state == KVS_BLOCK_CLEAN || block->state == KVS_BLOCK_MODIFIED)
        taint(block, KVS_TAINT_WRITE_FAILED, error);
}

void kvs_block_client_record(struct kvs_block *block, bool set, uint32_t sum)
{
    /* The record of a CLEAN block is the disk's affair. */
    if (block->state == KVS_BLOCK_CLEAN)
        return;
    block->has_client_sum = set;
    block->client_sum = set ? sum : 0;
    block->may_have_record = set;
}

enum kvs_seal_step kvs_block_seal_begins(struct kvs_block *block, bool rewritten, bool known,
                                         uint64_t unknown_len, uint64_t max_reread,
                                         bool *untracked_ret)
{
    *untracked_ret = false;
    if (block->state == KVS_BLOCK_TAINTED) {
        if (!rewritten || !block->changed_since_taint)
            return KVS_SEAL_REFUSE;
        clear_taint(block);
    }
    if (block->state == KVS_BLOCK_CLEAN)
        return KVS_SEAL_NOTHING;
    if (block->state == KVS_BLOCK_MODIFIED && !known && unknown_len > max_reread) {
        block->state = KVS_BLOCK_UNTRACKED;
        *untracked_ret = true;
    }
    return block->state == KVS_BLOCK_MODIFIED || known ? KVS_SEAL_SUM : KVS_SEAL_NOTHING;
}

bool kvs_block_summed(struct kvs_block *block, uint32_t sum)
{
    block->may_have_record = true;
    if (!block->has_client_sum || block->client_sum == sum)
        return true;
    taint(block, KVS_TAINT_CLIENT_SUM, EBADMSG);
    return false;
}

void kvs_block_sealed(struct kvs_block *block)
{
    *block = (struct kvs_block){.state = KVS_BLOCK_CLEAN};
}

void kvs_block_sealed_for_now(struct kvs_block *block)
{
    *block = (struct kvs_block){.state = KVS_BLOCK_MODIFIED, .may_have_record = true};
}
