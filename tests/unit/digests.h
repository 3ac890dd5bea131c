// SPDX-License-Identifier: Apache-2.0
// What the tests of the digest share: a file's content, random orders, and short words for both.
#ifndef KVSEAL_TESTS_DIGESTS_H
#define KVSEAL_TESTS_DIGESTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/digest.h"
#include "tests/unit/random.h"

#define CHUNK     ((size_t)512)
#define CHUNKS    ((size_t)256)
#define FILE_SIZE (CHUNK * CHUNKS)

static unsigned char content[FILE_SIZE];
static inline size_t random_below(size_t limit)
{
    return (size_t)((next_random() >> 16) % limit);
}

/* Every test has a digest that knows nothing, and content of its own. */
static inline int set_up(void **state)
{
    static struct kvs_digest digest;

    random_state = RANDOM_SEED;
    for (size_t i = 0; i < FILE_SIZE; i++)
        content[i] = (unsigned char)(next_random() >> 32);
    kvs_digest_init(&digest);
    *state = &digest;
    return 0;
}

static inline int tear_down(void **state)
{
    kvs_digest_destroy(*state);
    return 0;
}

static inline void end_write(struct kvs_digest *d, struct kvs_digest_write *w, size_t len)
{
    kvs_digest_end(d, w, len, kvs_crc32c(0, content + w->offset, len), true);
}

static inline void write_range(struct kvs_digest *d, size_t offset, size_t len)
{
    struct kvs_digest_write w;

    kvs_digest_begin(d, offset, len, &w);
    end_write(d, &w, len);
}

static inline void learn_range(struct kvs_digest *d, size_t offset, size_t len)
{
    kvs_digest_learn(d, offset, len, kvs_crc32c(0, content + offset, len), kvs_digest_changes(d));
}

static inline void assert_sum_of(struct kvs_digest *d, size_t size)
{
    uint32_t crc = 1;

    assert_true(kvs_digest_sum(d, size, &crc));
    assert_int_equal(crc, kvs_crc32c(0, content, size));
}

static inline void assert_no_sum(struct kvs_digest *d, size_t size)
{
    uint32_t crc;

    assert_false(kvs_digest_sum(d, size, &crc));
}

static inline void assert_gap(struct kvs_digest *d, size_t from, size_t size, size_t offset,
                              size_t len)
{
    uint64_t gap_offset = 0;
    uint64_t gap_len = 0;

    assert_true(kvs_digest_next_gap(d, from, size, &gap_offset, &gap_len));
    assert_int_equal(gap_offset, offset);
    assert_int_equal(gap_len, len);
}

static inline void assert_no_gap(struct kvs_digest *d, size_t from, size_t size)
{
    uint64_t offset;
    uint64_t len;

    assert_false(kvs_digest_next_gap(d, from, size, &offset, &len));
}

/* What seal does: reads back what has no sum. */
static inline void learn_gaps(struct kvs_digest *d, size_t size)
{
    uint64_t offset = 0;
    uint64_t len;

    while (kvs_digest_next_gap(d, offset, size, &offset, &len))
        learn_range(d, (size_t)offset, (size_t)len);
}

static inline void shuffle(size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t other = random_below(i);
        size_t swapped = order[i - 1];

        order[i - 1] = order[other];
        order[other] = swapped;
    }
}

#define digest_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
