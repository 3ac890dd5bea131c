// SPDX-License-Identifier: Apache-2.0
// Random operations on a digest and on a model of the file: the digest never claims too much.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc32c.h"

/* The digest itself is compiled here, with memory that can run out. */
static size_t allocations_left = SIZE_MAX;

static void *reallocate(void *memory, size_t size)
{
    if (allocations_left == 0)
        return NULL;
    allocations_left--;
    return realloc(memory, size);
}

#define realloc reallocate
#include "core/digest.c"
#include "tests/unit/random.h"
#undef realloc

#define MODEL_SIZE  ((size_t)200)
#define MODEL_STEPS 100000
#define IN_FLIGHT   4

static size_t random_below(size_t limit)
{
    return (size_t)((next_random() >> 16) % limit);
}

/*
 * The model: a small file as an array of bytes, with what a digest may claim about each. Every
 * operation changes both; what the digest claims then has to hold.
 */
struct model {
    size_t size;
    unsigned char bytes[MODEL_SIZE]; /* zero from `size` on */
    bool written[MODEL_SIZE];
    struct {
        struct kvs_digest_write write;
        size_t offset, len;
        unsigned char data[MODEL_SIZE];
        bool active, applied, stale;
    } flights[IN_FLIGHT];
    size_t sums_known; /* how often the digest knew: the test must not pass by knowing nothing */
    size_t full_writes_known;
};

/* The kernel does the write at some moment between begin and end. */
static void model_apply(struct model *m, size_t slot)
{
    size_t end = m->flights[slot].offset + m->flights[slot].len;

    if (!m->flights[slot].active || m->flights[slot].applied)
        return;
    memcpy(m->bytes + m->flights[slot].offset, m->flights[slot].data, m->flights[slot].len);
    if (m->size < end)
        m->size = end;
    m->flights[slot].applied = true;
}

/* The end of the file and of all writes that began. */
static size_t model_reach(const struct model *m)
{
    size_t reach = m->size;

    for (size_t i = 0; i < IN_FLIGHT; i++) {
        size_t end = m->flights[i].offset + m->flights[i].len;

        if (m->flights[i].active && end > reach)
            reach = end;
    }
    return reach;
}

static void model_mark_written(struct model *m, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        m->written[i] = true;
}

static void model_begin(struct model *m, struct kvs_digest *d, size_t slot)
{
    size_t offset = random_below(4) == 0 ? m->size % MODEL_SIZE : random_below(MODEL_SIZE);
    size_t len = 1 + random_below(random_below(4) == 0 ? MODEL_SIZE : 20);
    size_t reach = model_reach(m);

    if (len > MODEL_SIZE - offset)
        len = MODEL_SIZE - offset;
    if (offset > reach) {
        kvs_digest_extend(d, reach, offset);
        model_mark_written(m, reach, offset);
    }
    m->flights[slot].offset = offset;
    m->flights[slot].len = len;
    m->flights[slot].active = true;
    m->flights[slot].applied = m->flights[slot].stale = false;
    for (size_t i = 0; i < len; i++)
        m->flights[slot].data[i] = (unsigned char)next_random();
    kvs_digest_begin(d, offset, len, &m->flights[slot].write);
}

static void model_end(struct model *m, struct kvs_digest *d, size_t slot)
{
    size_t offset = m->flights[slot].offset;
    size_t len = m->flights[slot].len;

    if (random_below(16) == 0 && !m->flights[slot].applied) { /* failed, and may have grown */
        m->flights[slot].active = false;
        kvs_digest_end(d, &m->flights[slot].write, 0, 0, false);
        return;
    }
    model_apply(m, slot);
    m->flights[slot].active = false;
    bool summed = random_below(16) != 0;
    kvs_digest_end(d, &m->flights[slot].write, len,
                   summed ? kvs_crc32c(0, m->flights[slot].data, len) : 0, summed);
    if (!m->flights[slot].stale)
        model_mark_written(m, offset, offset + len);
}

static void model_truncate(struct model *m, struct kvs_digest *d)
{
    size_t size = random_below(4) == 0 ? 0 : random_below(MODEL_SIZE + 1);

    if (size >= m->size) {
        size_t reach = model_reach(m);

        m->size = size;
        if (size > reach) {
            kvs_digest_extend(d, reach, size);
            model_mark_written(m, reach, size);
        }
        return;
    }
    kvs_digest_truncate(d, size);
    memset(m->bytes + size, 0, MODEL_SIZE - size);
    memset(m->written + size, 0, (MODEL_SIZE - size) * sizeof(m->written[0]));
    m->size = size;
}

static void model_restart(struct model *m, struct kvs_digest *d)
{
    kvs_digest_restart(d);
    memset(m->written, 0, sizeof(m->written));
    for (size_t i = 0; i < IN_FLIGHT; i++)
        m->flights[i].stale = true;
}

/* Reads a gap back; now and then a write reaches the file, or ends, before the read is reported. */
static void model_learn(struct model *m, struct kvs_digest *d)
{
    uint64_t changes = kvs_digest_changes(d);
    uint64_t offset;
    uint64_t len;

    if (!kvs_digest_next_gap(d, random_below(m->size + 1), m->size, &offset, &len))
        return;
    uint32_t crc = kvs_crc32c(0, m->bytes + offset, len);
    size_t slot = random_below(IN_FLIGHT);
    if (random_below(8) == 0)
        model_apply(m, slot);
    else if (random_below(8) == 0 && m->flights[slot].active)
        model_end(m, d, slot);
    kvs_digest_learn(d, offset, len, crc, changes);
}

static void model_check(struct model *m, struct kvs_digest *d)
{
    uint32_t crc;
    bool written = true;

    if (kvs_digest_sum(d, m->size, &crc)) {
        assert_int_equal(crc, kvs_crc32c(0, m->bytes, m->size));
        m->sums_known += m->size > 0;
    }
    for (size_t i = 0; i < m->size; i++)
        written = written && m->written[i];
    if (kvs_digest_is_written(d, m->size)) {
        assert_true(written);
        m->full_writes_known += m->size > 0;
    }
    for (size_t i = 1; i < d->summed.count; i++)
        assert_true(d->summed.ranges[i - 1].end <= d->summed.ranges[i].offset);
}

static void model_step(struct model *m, struct kvs_digest *d)
{
    size_t slot = random_below(IN_FLIGHT);

    switch (random_below(24)) {
    case 0:
        model_truncate(m, d);
        break;
    case 1:
        if (random_below(8) == 0)
            model_restart(m, d);
        break;
    case 2:
        if (random_below(8) == 0)
            kvs_digest_forget_sums(d);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        model_learn(m, d);
        break;
    case 7:
    case 8:
        model_apply(m, slot);
        break;
    default:
        if (m->flights[slot].active)
            model_end(m, d, slot);
        else if (random_below(16) == 0)
            model_begin(m, d, slot);
    }
}

static void run_model(struct model *m, struct kvs_digest *d, int steps)
{
    for (int step = 0; step < steps; step++) {
        model_step(m, d);
        model_check(m, d);
    }
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        if (m->flights[i].active)
            model_end(m, d, i);
    }
}

static void c06_never_claims_what_a_model_denies(void **state)
{
    static struct model m;
    struct kvs_digest d;

    kvs_digest_init(&d);
    run_model(&m, &d, MODEL_STEPS);
    kvs_digest_destroy(&d);
    print_message("%d steps: sum known after %zu, written in full after %zu\n", MODEL_STEPS,
                  m.sums_known, m.full_writes_known);
    assert_true(m.sums_known > MODEL_STEPS / 20);
    assert_true(m.full_writes_known > MODEL_STEPS / 20);
}

/* From no memory at all to lists of a few ranges. */
static void c06_no_memory_means_less_known_never_wrong(void **state)
{
    for (size_t allocations = 0; allocations < 6; allocations++) {
        static struct model m;
        struct kvs_digest d;

        memset(&m, 0, sizeof(m));
        kvs_digest_init(&d);
        allocations_left = allocations;
        run_model(&m, &d, MODEL_STEPS / 5);
        allocations_left = SIZE_MAX;
        kvs_digest_destroy(&d);
        if (allocations == 0)
            assert_int_equal(m.sums_known + m.full_writes_known, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c06_never_claims_what_a_model_denies),
        cmocka_unit_test(c06_no_memory_means_less_known_never_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
