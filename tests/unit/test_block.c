// SPDX-License-Identifier: Apache-2.0
// The block state machine: every state against every event, and a random walk with invariants.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/block.h"

#define MAX_REREAD 1000u
#define SMALL      10u
#define LARGE      (MAX_REREAD + 1)
#define CLIENT_SUM 0x11111111u
#define OTHER_SUM  0x22222222u

/* The blocks that events can meet. */
enum sample {
    CLEAN,
    MODIFIED,
    MODIFIED_WITH_CLIENT_SUM,
    MODIFIED_SEAL_FAILED, /* the content was summed, the record could not be written */
    WRITE_FAILED,
    CORRUPT_BASE,
    CLIENT_SUM_REFUSED,
    EMPTIED_AFTER_TAINT, /* modified, but the record of the corrupt content is still there */
    UNTRACKED,
    SAMPLES,
};

static const char *const sample_names[SAMPLES] = {
    "clean",        "modified",     "modified with client sum", "modified, seal failed",
    "write failed", "corrupt base", "client sum refused",       "emptied after taint",
    "untracked",
};

static struct kvs_block make_sample(enum sample sample)
{
    struct kvs_block block = {0};

    switch (sample) {
    case CLEAN:
    case SAMPLES:
        break;
    case MODIFIED:
        kvs_block_created(&block);
        break;
    case MODIFIED_WITH_CLIENT_SUM:
        kvs_block_created(&block);
        kvs_block_client_record(&block, true, CLIENT_SUM);
        break;
    case MODIFIED_SEAL_FAILED:
        kvs_block_created(&block);
        assert_true(kvs_block_summed(&block, OTHER_SUM));
        break;
    case WRITE_FAILED:
        kvs_block_created(&block);
        kvs_block_change_failed(&block, ENOSPC);
        break;
    case CORRUPT_BASE:
    case EMPTIED_AFTER_TAINT:
        assert_int_equal(kvs_block_verified_for_change(&block, KVS_CORRUPT), KVS_NEED_NOTHING);
        if (sample == EMPTIED_AFTER_TAINT)
            kvs_block_emptied(&block);
        break;
    case CLIENT_SUM_REFUSED:
        kvs_block_created(&block);
        kvs_block_client_record(&block, true, CLIENT_SUM);
        assert_false(kvs_block_summed(&block, OTHER_SUM));
        break;
    case UNTRACKED:
        kvs_block_change_begins(&block, false, LARGE, MAX_REREAD);
        break;
    }
    return block;
}

static void c04_every_state_knows_what_a_change_needs(void **state)
{
    static const struct {
        enum kvs_block_need small, large, drops_all;
        enum kvs_block_state after_small, after_large, after_drops_all;
    } table[SAMPLES] = {
        [CLEAN] = {KVS_NEED_VERIFY, KVS_NEED_REMOVE_RECORD, KVS_NEED_REMOVE_RECORD,
                   KVS_BLOCK_MODIFIED, KVS_BLOCK_UNTRACKED, KVS_BLOCK_MODIFIED},
        [MODIFIED] = {KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_BLOCK_MODIFIED,
                      KVS_BLOCK_MODIFIED, KVS_BLOCK_MODIFIED},
        [MODIFIED_WITH_CLIENT_SUM] = {KVS_NEED_REMOVE_RECORD, KVS_NEED_REMOVE_RECORD,
                                      KVS_NEED_REMOVE_RECORD, KVS_BLOCK_MODIFIED,
                                      KVS_BLOCK_MODIFIED, KVS_BLOCK_MODIFIED},
        [MODIFIED_SEAL_FAILED] = {KVS_NEED_REMOVE_RECORD, KVS_NEED_REMOVE_RECORD,
                                  KVS_NEED_REMOVE_RECORD, KVS_BLOCK_MODIFIED, KVS_BLOCK_MODIFIED,
                                  KVS_BLOCK_MODIFIED},
        [WRITE_FAILED] = {KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_BLOCK_TAINTED,
                          KVS_BLOCK_TAINTED, KVS_BLOCK_TAINTED},
        [CORRUPT_BASE] = {KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_BLOCK_TAINTED,
                          KVS_BLOCK_TAINTED, KVS_BLOCK_TAINTED},
        [CLIENT_SUM_REFUSED] = {KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_NEED_NOTHING,
                                KVS_BLOCK_TAINTED, KVS_BLOCK_TAINTED, KVS_BLOCK_TAINTED},
        [EMPTIED_AFTER_TAINT] = {KVS_NEED_REMOVE_RECORD, KVS_NEED_REMOVE_RECORD,
                                 KVS_NEED_REMOVE_RECORD, KVS_BLOCK_MODIFIED, KVS_BLOCK_MODIFIED,
                                 KVS_BLOCK_MODIFIED},
        [UNTRACKED] = {KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_NEED_NOTHING, KVS_BLOCK_UNTRACKED,
                       KVS_BLOCK_UNTRACKED, KVS_BLOCK_UNTRACKED},
    };

    for (int i = 0; i < SAMPLES; i++) {
        struct kvs_block small = make_sample(i);
        struct kvs_block large = small;
        struct kvs_block emptied = small;

        print_message("  %s\n", sample_names[i]);
        assert_int_equal(kvs_block_need_before_change(&small, false, SMALL, MAX_REREAD),
                         table[i].small);
        assert_int_equal(kvs_block_need_before_change(&large, false, LARGE, MAX_REREAD),
                         table[i].large);
        assert_int_equal(kvs_block_need_before_change(&emptied, true, LARGE, MAX_REREAD),
                         table[i].drops_all);
        assert_int_equal(kvs_block_need_before_change(&emptied, true, SMALL, MAX_REREAD),
                         table[i].drops_all);
        kvs_block_change_begins(&small, false, SMALL, MAX_REREAD);
        kvs_block_change_begins(&large, false, LARGE, MAX_REREAD);
        kvs_block_change_begins(&emptied, true, LARGE, MAX_REREAD);
        assert_int_equal(small.state, table[i].after_small);
        assert_int_equal(large.state, table[i].after_large);
        assert_int_equal(emptied.state, table[i].after_drops_all);
        kvs_block_emptied(&emptied);
        assert_int_equal(emptied.state, KVS_BLOCK_MODIFIED);
        assert_int_equal(emptied.error, 0);
    }
}

static void c05_a_corrupt_block_keeps_its_record_while_it_is_changed(void **state)
{
    static const struct {
        enum kvs_verdict verdict;
        enum kvs_block_need need;
    } table[] = {
        {KVS_INTACT, KVS_NEED_REMOVE_RECORD},
        {KVS_UNSEALED, KVS_NEED_REMOVE_RECORD},
        {KVS_CORRUPT, KVS_NEED_NOTHING},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct kvs_block block = make_sample(CLEAN);

        assert_int_equal(kvs_block_verified_for_change(&block, table[i].verdict), table[i].need);
        assert_int_equal(block.state,
                         table[i].verdict == KVS_CORRUPT ? KVS_BLOCK_TAINTED : KVS_BLOCK_CLEAN);
    }
}

static void c05_a_late_verdict_does_not_judge_what_others_changed(void **state)
{
    struct kvs_block block = make_sample(MODIFIED);

    assert_int_equal(kvs_block_verified_for_change(&block, KVS_CORRUPT), KVS_NEED_NOTHING);
    assert_int_equal(block.state, KVS_BLOCK_MODIFIED);
}

static void c03_a_failed_change_taints_and_the_first_taint_stays(void **state)
{
    for (int i = 0; i < SAMPLES; i++) {
        struct kvs_block before = make_sample(i);
        struct kvs_block block = before;

        print_message("  %s\n", sample_names[i]);
        kvs_block_change_begins(&block, false, SMALL, MAX_REREAD);
        kvs_block_change_failed(&block, EIO);
        if (i == UNTRACKED) {
            assert_int_equal(block.state, KVS_BLOCK_UNTRACKED);
            continue;
        }
        assert_int_equal(block.state, KVS_BLOCK_TAINTED);
        if (before.state == KVS_BLOCK_TAINTED) {
            assert_int_equal(block.taint, before.taint);
            assert_int_equal(block.error, before.error);
        } else {
            assert_int_equal(block.taint, KVS_TAINT_WRITE_FAILED);
            assert_int_equal(block.error, EIO);
        }
    }
}

static void c03_every_state_knows_what_a_seal_does(void **state)
{
    static const struct {
        enum kvs_seal_step plain, rewritten, too_large;
        bool untracked; /* when too much would have to be read back */
    } table[SAMPLES] = {
        [CLEAN] = {KVS_SEAL_NOTHING, KVS_SEAL_NOTHING, KVS_SEAL_NOTHING, false},
        [MODIFIED] = {KVS_SEAL_SUM, KVS_SEAL_SUM, KVS_SEAL_NOTHING, true},
        [MODIFIED_WITH_CLIENT_SUM] = {KVS_SEAL_SUM, KVS_SEAL_SUM, KVS_SEAL_NOTHING, true},
        [MODIFIED_SEAL_FAILED] = {KVS_SEAL_SUM, KVS_SEAL_SUM, KVS_SEAL_NOTHING, true},
        [WRITE_FAILED] = {KVS_SEAL_REFUSE, KVS_SEAL_SUM, KVS_SEAL_REFUSE, false},
        [CORRUPT_BASE] = {KVS_SEAL_REFUSE, KVS_SEAL_SUM, KVS_SEAL_REFUSE, false},
        [CLIENT_SUM_REFUSED] = {KVS_SEAL_REFUSE, KVS_SEAL_SUM, KVS_SEAL_REFUSE, false},
        [EMPTIED_AFTER_TAINT] = {KVS_SEAL_SUM, KVS_SEAL_SUM, KVS_SEAL_NOTHING, true},
        [UNTRACKED] = {KVS_SEAL_NOTHING, KVS_SEAL_SUM, KVS_SEAL_NOTHING, false},
    };
    bool untracked = false;

    for (int i = 0; i < SAMPLES; i++) {
        struct kvs_block block = make_sample(i);

        print_message("  %s\n", sample_names[i]);
        assert_int_equal(kvs_block_seal_begins(&block, false, false, SMALL, MAX_REREAD, &untracked),
                         table[i].plain);
        assert_false(untracked);
        assert_int_equal(kvs_block_seal_begins(&block, false, false, LARGE, MAX_REREAD, &untracked),
                         table[i].too_large);
        assert_int_equal(untracked, table[i].untracked);

        block = make_sample(i);
        if (block.state == KVS_BLOCK_TAINTED) /* rewriting is a change */
            kvs_block_change_begins(&block, false, SMALL, MAX_REREAD);
        assert_int_equal(kvs_block_seal_begins(&block, true, true, 0, MAX_REREAD, &untracked),
                         table[i].rewritten);
        assert_false(untracked);
    }
}

static void c03_an_empty_file_whose_only_write_failed_is_not_sealed(void **state)
{
    struct kvs_block block = make_sample(WRITE_FAILED);
    bool untracked = false;

    /* Of an empty file every byte was written anew; nobody wanted it empty, though. */
    assert_int_equal(kvs_block_seal_begins(&block, true, true, 0, MAX_REREAD, &untracked),
                     KVS_SEAL_REFUSE);
    assert_int_equal(block.error, ENOSPC);
    kvs_block_change_begins(&block, false, 0, MAX_REREAD);
    kvs_block_change_failed(&block, EIO);
    assert_int_equal(kvs_block_seal_begins(&block, true, true, 0, MAX_REREAD, &untracked),
                     KVS_SEAL_REFUSE);
    assert_int_equal(block.error, ENOSPC);
}

static void c06_an_untracked_block_is_tracked_again_when_emptied_or_complete(void **state)
{
    struct kvs_block block = make_sample(UNTRACKED);
    bool untracked = false;

    assert_int_equal(kvs_block_seal_begins(&block, false, true, 0, MAX_REREAD, &untracked),
                     KVS_SEAL_SUM);
    assert_true(kvs_block_summed(&block, OTHER_SUM));
    kvs_block_sealed(&block);
    assert_int_equal(block.state, KVS_BLOCK_CLEAN);

    block = make_sample(UNTRACKED);
    kvs_block_change_begins(&block, true, LARGE, MAX_REREAD);
    kvs_block_emptied(&block);
    assert_int_equal(kvs_block_seal_begins(&block, true, true, 0, MAX_REREAD, &untracked),
                     KVS_SEAL_SUM);
}

static void c08_the_clients_own_sum_is_compared(void **state)
{
    struct kvs_block block = make_sample(MODIFIED_WITH_CLIENT_SUM);
    bool untracked = false;

    assert_true(kvs_block_summed(&block, CLIENT_SUM));
    kvs_block_sealed(&block);
    assert_int_equal(block.state, KVS_BLOCK_CLEAN);

    block = make_sample(CLIENT_SUM_REFUSED);
    assert_int_equal(block.taint, KVS_TAINT_CLIENT_SUM);
    assert_int_equal(block.error, EBADMSG);
    /* Another sum does not help: the bytes have to come again. */
    kvs_block_client_record(&block, true, OTHER_SUM);
    assert_int_equal(kvs_block_seal_begins(&block, false, true, 0, MAX_REREAD, &untracked),
                     KVS_SEAL_REFUSE);
    kvs_block_change_begins(&block, false, SMALL, MAX_REREAD);
    assert_int_equal(kvs_block_seal_begins(&block, true, true, 0, MAX_REREAD, &untracked),
                     KVS_SEAL_SUM);
    assert_true(kvs_block_summed(&block, 0x33333333));
}

static void c08_a_later_change_or_removal_drops_the_clients_sum(void **state)
{
    struct kvs_block block = make_sample(MODIFIED_WITH_CLIENT_SUM);

    kvs_block_change_begins(&block, false, SMALL, MAX_REREAD);
    assert_true(kvs_block_summed(&block, OTHER_SUM));

    block = make_sample(MODIFIED_WITH_CLIENT_SUM);
    kvs_block_client_record(&block, false, 0);
    assert_int_equal(kvs_block_need_before_change(&block, false, SMALL, MAX_REREAD),
                     KVS_NEED_NOTHING);
    assert_true(kvs_block_summed(&block, OTHER_SUM));
}

/* What is true of the file, whatever the block thinks. */
struct truth {
    bool is_bad;      /* holds content that must not be sealed */
    bool is_changed;  /* since the last seal */
    bool has_record;  /* on the disk */
    bool has_written; /* something, since it became bad */
};

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static void step_change(struct kvs_block *block, struct truth *truth, uint32_t dice)
{
    bool drops_all = dice % 4 == 0;
    bool fails = dice / 4 % 5 == 0;
    uint64_t size = dice / 20 % 3 == 0 ? LARGE : SMALL;
    enum kvs_block_need need = kvs_block_need_before_change(block, drops_all, size, MAX_REREAD);

    if (need == KVS_NEED_VERIFY) {
        bool is_corrupt = truth->has_record && dice / 60 % 4 == 0;

        need = kvs_block_verified_for_change(block, is_corrupt ? KVS_CORRUPT : KVS_INTACT);
        truth->is_bad |= is_corrupt;
        truth->has_written &= !is_corrupt;
    }
    if (need == KVS_NEED_REMOVE_RECORD) {
        assert_false(truth->is_bad); /* a crash here would leave wrong bytes unsealed */
        truth->has_record = false;
    }
    assert_true(!truth->has_record || truth->is_bad);
    kvs_block_change_begins(block, drops_all, size, MAX_REREAD);
    truth->is_changed = true;
    if (fails) {
        kvs_block_change_failed(block, EIO);
        truth->is_bad |= block->state != KVS_BLOCK_UNTRACKED;
        truth->has_written = false;
        return;
    }
    truth->has_written = true;
    if (drops_all) {
        kvs_block_emptied(block);
        truth->is_bad = false;
    }
}

static void step_seal(struct kvs_block *block, struct truth *truth, uint32_t dice)
{
    bool rewritten = dice % 3 == 0;
    bool known = rewritten || dice / 3 % 2 == 0;
    uint64_t unknown_len = known ? 0 : dice / 6 % 4 == 0 ? LARGE : SMALL;
    bool untracked = false;
    enum kvs_seal_step step = kvs_block_seal_begins(block, rewritten, known, unknown_len,
                                                    MAX_REREAD, &untracked);

    if (rewritten && truth->has_written)
        truth->is_bad = false;
    if (step == KVS_SEAL_REFUSE) {
        assert_true(truth->is_bad);
        assert_int_not_equal(block->error, 0);
    }
    if (step == KVS_SEAL_NOTHING)
        assert_true(!truth->is_changed || block->state == KVS_BLOCK_UNTRACKED);
    if (untracked && !block->has_client_sum && block->may_have_record)
        truth->has_record = false;
    if (step != KVS_SEAL_SUM)
        return;
    assert_false(truth->is_bad);
    if (!kvs_block_summed(block, dice / 24 % 2 == 0 ? CLIENT_SUM : OTHER_SUM)) {
        truth->is_bad = true;
        truth->has_written = false;
        return;
    }
    truth->has_record = true; /* also where the call then fails */
    if (dice / 48 % 4 != 0) {
        kvs_block_sealed(block);
        truth->is_changed = false;
    }
}

static void c04_c05_no_walk_seals_bad_content_or_leaves_a_stale_record(void **state)
{
    uint32_t seed = 1;

    for (int walk = 0; walk < 2000; walk++) {
        struct kvs_block block = {0};
        struct truth truth = {.has_record = walk % 2 == 0, .has_written = true};

        for (int i = 0; i < 100; i++) {
            uint32_t dice = next_random(&seed);

            switch (next_random(&seed) % 4) {
            case 0:
            case 1:
                step_change(&block, &truth, dice);
                break;
            case 2:
                step_seal(&block, &truth, dice);
                break;
            case 3:
                if (block.state == KVS_BLOCK_CLEAN)
                    break;
                kvs_block_client_record(&block, dice % 2, CLIENT_SUM);
                truth.has_record = dice % 2;
                break;
            }
            assert_int_equal(block.state == KVS_BLOCK_TAINTED, truth.is_bad);
            assert_int_equal(block.taint != KVS_TAINT_NONE, truth.is_bad);
            if (block.state != KVS_BLOCK_CLEAN && truth.has_record)
                assert_true(block.may_have_record);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c04_every_state_knows_what_a_change_needs),
        cmocka_unit_test(c05_a_corrupt_block_keeps_its_record_while_it_is_changed),
        cmocka_unit_test(c05_a_late_verdict_does_not_judge_what_others_changed),
        cmocka_unit_test(c03_a_failed_change_taints_and_the_first_taint_stays),
        cmocka_unit_test(c03_every_state_knows_what_a_seal_does),
        cmocka_unit_test(c03_an_empty_file_whose_only_write_failed_is_not_sealed),
        cmocka_unit_test(c06_an_untracked_block_is_tracked_again_when_emptied_or_complete),
        cmocka_unit_test(c08_the_clients_own_sum_is_compared),
        cmocka_unit_test(c08_a_later_change_or_removal_drops_the_clients_sum),
        cmocka_unit_test(c04_c05_no_walk_seals_bad_content_or_leaves_a_stale_record),
    };

    return cmocka_run_group_tests_name("block", tests, NULL, NULL);
}
