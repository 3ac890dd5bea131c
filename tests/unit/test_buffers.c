// SPDX-License-Identifier: Apache-2.0
// Buffers: alignment, the budget and its quarter for the workers, reuse, who is dropped first.
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/buffers.h"

#define MIB ((size_t)1 << 20)

static int set_up(void **state)
{
    return kvs_buffers_create(32 * MIB, (struct kvs_buffers **)state);
}

static int tear_down(void **state)
{
    kvs_buffers_destroy(*state);
    return 0;
}

static void buffers_are_aligned_and_large_enough(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, MIB, 2 * MIB, 2 * MIB + 1, 8 * MIB};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct kvs_buffer *buffer = kvs_buffer_take(*state, sizes[i], 0);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t)buffer->memory % (2 * MIB), 0);
        assert_true(buffer->capacity > 0 && buffer->capacity >= sizes[i]);
        assert_int_equal(buffer->capacity % (sizes[i] >= 2 * MIB ? 2 * MIB : 4096), 0);
        memset(buffer->memory, 1, buffer->capacity);
        kvs_buffer_unpin(*state, buffer);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* True when what was freed is used again: the best fit, and nothing that wastes half of it. */
static bool reuses(struct kvs_buffers *buffers)
{
    struct kvs_buffer *large = kvs_buffer_take(buffers, 8 * MIB, 0);
    struct kvs_buffer *small = kvs_buffer_take(buffers, 4 * MIB, 0);
    const void *large_memory = large->memory, *small_memory = small->memory;
    kvs_buffer_unpin(buffers, small);
    kvs_buffer_unpin(buffers, large);

    struct kvs_buffer *fitting = kvs_buffer_take(buffers, 4 * MIB, 0);
    struct kvs_buffer *roomy = kvs_buffer_take(buffers, 4 * MIB, 0);
    bool is_reused = fitting->memory == small_memory && roomy->memory == large_memory;
    kvs_buffer_unpin(buffers, roomy);
    struct kvs_buffer *tiny = kvs_buffer_take(buffers, 4096, 0);
    is_reused = is_reused && tiny->memory != large_memory;
    kvs_buffer_unpin(buffers, tiny);
    kvs_buffer_unpin(buffers, fitting);
    return is_reused;
}

static void a_free_buffer_is_used_again(void **state)
{
    for (int i = 0; i < 20; i++) {
        double start = seconds();
        bool is_reused = reuses(*state);
        if (seconds() - start < 1) { /* else it may have gone back to the system meanwhile */
            assert_true(is_reused);
            return;
        }
    }
    fail_msg("the machine never ran for one second on end");
}

static void c24_a_quarter_is_never_used_for_blocks(void **state)
{
    struct kvs_buffer *all[3];
    for (int i = 0; i < 3; i++) {
        all[i] = kvs_buffer_take(*state, 8 * MIB, 0);
        assert_non_null(all[i]);
    }
    assert_null(kvs_buffer_take(*state, 4096, 0));
    assert_true(kvs_buffers_reserve(*state, 8 * MIB));
    assert_false(kvs_buffers_reserve(*state, 1));
    kvs_buffers_unreserve(*state, 8 * MIB);
    for (int i = 0; i < 3; i++)
        kvs_buffer_unpin(*state, all[i]);
    assert_null(kvs_buffer_take(*state, 26 * MIB, 0));
    assert_null(kvs_buffer_take(*state, SIZE_MAX, 0));
}

static void reserving_may_use_half_and_drops_what_nobody_pins(void **state)
{
    struct kvs_buffer *slots[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        kvs_buffer_keep(*state, kvs_buffer_take(*state, 12 * MIB, 0), &slots[i]);
    assert_ptr_equal(kvs_buffer_pin(*state, &slots[0]), slots[0]);

    assert_true(kvs_buffers_reserve(*state, 12 * MIB));
    assert_non_null(slots[0]);
    assert_null(slots[1]);
    assert_false(kvs_buffers_reserve(*state, 5 * MIB)); /* more than half */
    assert_non_null(slots[0]);
    assert_true(kvs_buffers_reserve(*state, 4 * MIB));
    assert_false(kvs_buffers_reserve(*state, 1));
    assert_int_equal(kvs_buffers_used(*state), 28 * MIB);

    kvs_buffer_unpin(*state, slots[0]);
    kvs_buffer_give_up(*state, &slots[0]);
    kvs_buffers_unreserve(*state, 16 * MIB);
    assert_true(kvs_buffers_used(*state) <= 12 * MIB);
}

static void the_least_recently_used_is_dropped_first(void **state)
{
    struct kvs_buffer *slots[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; i++)
        kvs_buffer_keep(*state, kvs_buffer_take(*state, 8 * MIB, 0), &slots[i]);
    kvs_buffer_unpin(*state, kvs_buffer_pin(*state, &slots[0]));

    const void *memory = slots[1]->memory;
    struct kvs_buffer *taken = kvs_buffer_take(*state, 8 * MIB, 0);
    assert_non_null(taken);
    assert_ptr_equal(taken->memory, memory); /* as good as a free one */
    assert_null(taken->slot);
    assert_non_null(slots[0]);
    assert_null(slots[1]);
    assert_non_null(slots[2]);
    assert_null(kvs_buffer_pin(*state, &slots[1]));

    kvs_buffer_unpin(*state, taken);
    for (int i = 0; i < 3; i++)
        kvs_buffer_give_up(*state, &slots[i]);
}

static void free_memory_goes_before_kept_buffers(void **state)
{
    struct kvs_buffer *slot = NULL;
    kvs_buffer_keep(*state, kvs_buffer_take(*state, 8 * MIB, 0), &slot);
    struct kvs_buffer *other = kvs_buffer_take(*state, 2 * MIB, 0);
    kvs_buffer_unpin(*state, other);
    struct kvs_buffer *taken = kvs_buffer_take(*state, 16 * MIB, 0);
    assert_non_null(taken);
    assert_non_null(slot);
    kvs_buffer_unpin(*state, taken);
    kvs_buffer_give_up(*state, &slot);
}

static void a_pinned_buffer_outlives_its_slot(void **state)
{
    struct kvs_buffer *slot = NULL;
    struct kvs_buffer *buffer = kvs_buffer_take(*state, 24 * MIB, 0);
    kvs_buffer_keep(*state, buffer, &slot);
    assert_ptr_equal(kvs_buffer_pin(*state, &slot), buffer);
    kvs_buffer_give_up(*state, &slot);
    assert_null(slot);
    assert_null(kvs_buffer_take(*state, 4096, 0)); /* its memory is still a reader's */
    kvs_buffer_unpin(*state, buffer);
    buffer = kvs_buffer_take(*state, 4096, 0);
    assert_non_null(buffer);
    kvs_buffer_unpin(*state, buffer);
}

static void unused_memory_goes_back_to_the_system(void **state)
{
    struct kvs_buffer *old = kvs_buffer_take(*state, 8 * MIB, 0);
    struct kvs_buffer *new = kvs_buffer_take(*state, 12 * MIB, 0);
    kvs_buffer_unpin(*state, old);
    kvs_buffer_unpin(*state, new);
    for (int i = 0; i < 2000 && kvs_buffers_used(*state) > 12 * MIB; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(kvs_buffers_used(*state), 12 * MIB); /* and no less */
    nanosleep(&(struct timespec){.tv_sec = 11}, NULL);
    assert_ptr_equal(kvs_buffer_take(*state, 12 * MIB, 0), new);
    kvs_buffer_unpin(*state, new);
}

#define THREADS 8
#define ROUNDS  2000

/* Takes, keeps, pins and gives up; a buffer that two had at once would show the other's bytes. */
static void *work(void *argument)
{
    struct kvs_buffers *buffers = argument;
    struct kvs_buffer *slot = NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct kvs_buffer *buffer = kvs_buffer_take(buffers, (2 + i % 3 * 2) * MIB, 0);
        if (!buffer)
            continue;
        *(unsigned *)buffer->memory = i;
        kvs_buffer_keep(buffers, buffer, &slot);
        if (i % 7 == 0 && kvs_buffers_reserve(buffers, 8 * MIB))
            kvs_buffers_unreserve(buffers, 8 * MIB);
        buffer = kvs_buffer_pin(buffers, &slot);
        bool is_mine = !buffer || *(unsigned *)buffer->memory == i;
        kvs_buffer_give_up(buffers, &slot);
        if (buffer)
            kvs_buffer_unpin(buffers, buffer);
        if (!is_mine)
            return argument;
    }
    return NULL;
}

static void threads_share_the_budget(void **state)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, *state), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(kvs_buffers_used(*state) <= 24 * MIB);
    assert_true(kvs_buffers_reserve(*state, 16 * MIB)); /* everything was free again */
    struct kvs_buffer *rest = kvs_buffer_take(*state, 16 * MIB, 0);
    assert_non_null(rest);
    kvs_buffer_unpin(*state, rest);
    kvs_buffers_unreserve(*state, 16 * MIB);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static void what_is_lent_is_used_again_when_nobody_has_it(void **state)
{
    struct kvs_buffer *slot = NULL;
    char path[64];
    kvs_buffers_make_lendable(*state);
    kvs_buffer_keep(*state, kvs_buffer_take(*state, 4 * MIB, 0), &slot);
    struct kvs_buffer *lent = kvs_buffer_lend(*state, &slot, 3 * MIB + 5, 0);
    assert_ptr_equal(lent, slot);
    assert_int_equal(lseek(lent->fd, 0, SEEK_END), 3 * MIB + 5);
    assert_null(kvs_buffer_lend(*state, &slot, 4096, 0)); /* once */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", lent->fd);
    int kernels = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(kernels >= 0);
    kvs_buffer_give_up(*state, &slot);
    kvs_buffer_unpin(*state, lent);

    struct kvs_buffer *other = kvs_buffer_take(*state, 4 * MIB, 0);
    assert_ptr_not_equal(other, lent);
    close(kernels);
    struct kvs_buffer *again = kvs_buffer_take(*state, 4 * MIB, 0);
    if (again == lent) { /* it was not given back to the system meanwhile */
        assert_int_equal(lseek(again->fd, 0, SEEK_END), 4 * MIB);
        memset(again->memory, 1, again->capacity);
    }
    kvs_buffer_unpin(*state, again);
    kvs_buffer_unpin(*state, other);
}

static void what_is_lent_is_not_dropped_and_is_bounded(void **state)
{
    struct kvs_buffer *slots[3] = {0}, *lent[3];
    kvs_buffers_make_lendable(*state); /* 32 MiB: 24 for blocks, 12 of them to lend */
    for (int i = 0; i < 3; i++) {
        kvs_buffer_keep(*state, kvs_buffer_take(*state, 6 * MIB, 0), &slots[i]);
        lent[i] = kvs_buffer_lend(*state, &slots[i], 6 * MIB, 0);
        assert_true((lent[i] != NULL) == (i < 2));
    }
    struct kvs_buffer *large = kvs_buffer_take(*state, 12 * MIB, 0);
    assert_non_null(large);
    assert_null(slots[2]); /* dropped for it */
    assert_null(kvs_buffer_take(*state, 4096, 0));
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(slots[i], lent[i]);
        kvs_buffer_give_up(*state, &slots[i]);
        kvs_buffer_unpin(*state, lent[i]);
    }
    kvs_buffer_unpin(*state, large);
    large = kvs_buffer_take(*state, 24 * MIB, 0);
    assert_non_null(large);
    kvs_buffer_unpin(*state, large);
}

/* Pages that a client took out of its mapping are nobody else's. */
static void what_was_lent_is_used_again_for_the_same_user(void **state)
{
    struct kvs_buffer *slot = NULL;
    kvs_buffers_make_lendable(*state);
    for (int borrowers = 1; borrowers <= 2; borrowers++) {
        kvs_buffer_keep(*state, kvs_buffer_take(*state, 4 * MIB, 1000), &slot);
        struct kvs_buffer *lent = kvs_buffer_lend(*state, &slot, 4 * MIB, 1000);
        assert_non_null(lent);
        const void *memory = lent->memory;
        if (borrowers == 2)
            kvs_buffer_lend_also(*state, lent, 1001);
        kvs_buffer_give_up(*state, &slot);
        kvs_buffer_unpin(*state, lent);
        struct kvs_buffer *others = kvs_buffer_take(*state, 4 * MIB, 1001);
        assert_ptr_not_equal(others->memory, memory);
        struct kvs_buffer *own = kvs_buffer_take(*state, 4 * MIB, 1000);
        assert_true((own->memory == memory) == (borrowers == 1));
        kvs_buffer_unpin(*state, own);
        kvs_buffer_unpin(*state, others);
    }
    /* Nor where all memory is in use. */
    kvs_buffer_keep(*state, kvs_buffer_take(*state, 12 * MIB, 1000), &slot);
    assert_non_null(kvs_buffer_lend(*state, &slot, 12 * MIB, 1000));
    struct kvs_buffer *lent = slot, *others = kvs_buffer_take(*state, 12 * MIB, 1001);
    kvs_buffer_give_up(*state, &slot);
    kvs_buffer_unpin(*state, lent);
    struct kvs_buffer *last = kvs_buffer_take(*state, 12 * MIB, 1001);
    assert_non_null(last);
    assert_int_equal(last->borrowers, KVS_BORROWED_BY_NOBODY);
    kvs_buffer_unpin(*state, last);
    kvs_buffer_unpin(*state, others);
}

/* A client may have it mapped as long as it likes: that is not memory beside the budget. */
static void what_a_client_has_mapped_counts(void **state)
{
    struct kvs_buffer *slots[3] = {0};
    char path[64];
    void *maps[2];
    kvs_buffers_make_lendable(*state); /* 12 MiB to lend */
    for (int i = 0; i < 2; i++) {
        kvs_buffer_keep(*state, kvs_buffer_take(*state, 6 * MIB, 0), &slots[i]);
        struct kvs_buffer *lent = kvs_buffer_lend(*state, &slots[i], 6 * MIB, 0);
        assert_non_null(lent);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", lent->fd);
        int kernels = open(path, O_RDONLY | O_CLOEXEC);
        maps[i] = mmap(NULL, 4096, PROT_READ, MAP_SHARED, kernels, 0);
        assert_ptr_not_equal(maps[i], MAP_FAILED);
        close(kernels);
        kvs_buffer_unpin(*state, lent);
        kvs_buffer_give_up(*state, &slots[i]);
    }
    sleep(11); /* what is unused has gone back to the system */
    assert_int_equal(kvs_buffers_used(*state), 12 * MIB);
    kvs_buffer_keep(*state, kvs_buffer_take(*state, 6 * MIB, 0), &slots[2]);
    assert_null(kvs_buffer_lend(*state, &slots[2], 6 * MIB, 0));
    for (int i = 0; i < 2; i++)
        munmap(maps[i], 4096);
    kvs_buffer_give_up(*state, &slots[2]);
    struct kvs_buffer *large = kvs_buffer_take(*state, 24 * MIB, 0);
    assert_non_null(large);
    kvs_buffer_unpin(*state, large);
    for (int i = 0; i < 2000 && kvs_buffers_used(*state) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(kvs_buffers_used(*state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(buffers_are_aligned_and_large_enough),
        TEST(a_free_buffer_is_used_again),
        TEST(c24_a_quarter_is_never_used_for_blocks),
        TEST(reserving_may_use_half_and_drops_what_nobody_pins),
        TEST(the_least_recently_used_is_dropped_first),
        TEST(free_memory_goes_before_kept_buffers),
        TEST(a_pinned_buffer_outlives_its_slot),
        TEST(unused_memory_goes_back_to_the_system),
        TEST(threads_share_the_budget),
        TEST(what_is_lent_is_used_again_when_nobody_has_it),
        TEST(what_is_lent_is_not_dropped_and_is_bounded),
        TEST(what_was_lent_is_used_again_for_the_same_user),
        TEST(what_a_client_has_mapped_counts),
    };
    return cmocka_run_group_tests_name("buffers", tests, NULL, NULL);
}
