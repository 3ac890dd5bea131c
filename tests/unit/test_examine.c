// SPDX-License-Identifier: Apache-2.0
// Judging blocks beside whoever uses them: what is busy, gone or fresh is not corrupt.
#include "core/examine.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/lease.h"
#include "core/page_cache.h"
#include "core/seal_beside.h"
#include "core/sigbus.h"
#include "core/util.h"

#define SIZE ((size_t)3 * KVS_PIECE_SIZE + 77)

static char path[4096];
static unsigned char content[SIZE];
static struct kvs_examiner examiner;

/* Sums of mapped blocks, waits, and what happens before each. */
static unsigned mapped, waits;
static void (*before_mapped)(void), (*before_wait)(void);

bool __real_kvs_sigbus_guard(const void *memory, size_t len, void (*work)(void *), void *argument);
bool __wrap_kvs_sigbus_guard(const void *memory, size_t len, void (*work)(void *), void *argument);
bool __wrap_kvs_sigbus_guard(const void *memory, size_t len, void (*work)(void *), void *argument)
{
    mapped++;
    if (before_mapped != NULL)
        before_mapped();
    return __real_kvs_sigbus_guard(memory, len, work, argument);
}

int __real_nanosleep(const struct timespec *time, struct timespec *left_ret);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left_ret);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left_ret)
{
    waits++;
    if (before_wait != NULL)
        before_wait();
    return __real_nanosleep(time, left_ret);
}

/* The first byte of the next reading that does not map is wrong. */
static bool misreads;
static void (*before_misread)(void);

ssize_t __real_pread64(int fd, void *buffer, size_t len, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t len, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t len, off_t offset)
{
    ssize_t got = __real_pread64(fd, buffer, len, offset);

    if (misreads) {
        misreads = false;
        *(unsigned char *)buffer ^= 1;
        if (before_misread != NULL)
            before_misread();
    }
    return got;
}

static int open_own(int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    return fd;
}

/* A sealed block, in the page cache; and the descriptor to examine it by. */
static int make_block(void)
{
    int fd = open_own(O_CREAT | O_TRUNC | O_RDWR);

    assert_int_equal(pwrite(fd, content, SIZE, 0), SIZE);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, content, SIZE)), 0);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    fd = kvs_examine_open(AT_FDCWD, path);
    assert_true(fd >= 0);
    return fd;
}

static void damage(off_t offset)
{
    kvs_cleanup_fd int fd = open_own(O_WRONLY);

    assert_int_equal(pwrite(fd, "damage", 6, offset), 6);
}

static void drop(int fd)
{
    assert_int_equal(fdatasync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
}

static enum kvs_finding examine(int fd)
{
    struct kvs_examination examination;

    memset(&examination, 0xff, sizeof(examination));
    kvs_examine(&examiner, fd, &examination);
    assert_int_equal(examination.finding == KVS_FOUND_ERROR, examination.error != 0);
    return examination.finding;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What the examiner has mapped cannot be dropped. */
static void let_go(void)
{
    kvs_examiner_destroy(&examiner);
    assert_int_equal(kvs_examiner_init(&examiner), 0);
}

static void intact_hot_and_cold(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
    assert_int_equal(mapped, 1);
    let_go();
    drop(fd);
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
    assert_int_equal(mapped, 1);
    assert_int_equal(kvs_page_cache_look(fd, 0, SIZE), KVS_CACHED_NONE);
}

static size_t count_mappings(void)
{
    char line[4096];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, path) != NULL;
    fclose(maps);
    return count;
}

/* More of them than fit into the window. */
static void cached_blocks_stay_mapped_for_a_while(void **state)
{
    kvs_cleanup_fd int fd = make_block();
    size_t most = 0;

    for (int i = 0; i < 50; i++) {
        assert_int_equal(examine(fd), KVS_FOUND_INTACT);
        most = KVS_MAX(most, count_mappings());
    }
    assert_in_range(most, 2, 20);
    drop(fd); /* what is mapped stays */
    assert_int_equal(kvs_page_cache_look(fd, 0, SIZE), KVS_CACHED_ALL);
    damage(5);
    assert_int_equal(examine(fd), KVS_FOUND_CORRUPT);
    assert_int_equal(count_mappings(), 0);
}

static void what_is_not_cached_lets_the_others_go(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
    assert_int_equal(count_mappings(), 1);
    assert_int_equal(unlink(path), 0);
    kvs_cleanup_fd int cold_fd = make_block();
    drop(cold_fd);
    assert_int_equal(examine(cold_fd), KVS_FOUND_INTACT);
    assert_int_equal(count_mappings(), 0);
}

static void larger_than_the_window(void **state)
{
    const size_t size = (size_t)65 << 20;
    kvs_cleanup_free char *large = calloc(1, size);
    kvs_cleanup_fd int fd = open_own(O_CREAT | O_TRUNC | O_RDWR);

    assert_non_null(large);
    assert_int_equal(pwrite(fd, large, size, 0), size);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c_zeros(size)), 0);
    assert_int_equal(kvs_page_cache_look(fd, 0, size), KVS_CACHED_ALL);
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
    assert_int_equal(count_mappings(), 0);
}

static void c15_a_fresh_mismatch_is_waited_for(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    damage(SIZE - 10);
    int64_t start = now_ms();
    assert_int_equal(examine(fd), KVS_FOUND_CORRUPT);
    assert_true(now_ms() - start >= KVS_SETTLE_MS - 100);
    assert_true(waits > 0);
    waits = 0;
    assert_int_equal(examine(fd), KVS_FOUND_CORRUPT);
    assert_int_equal(waits, 0);
}

static void seal_it(void)
{
    kvs_cleanup_fd int fd = open_own(O_RDWR);
    static unsigned char now[SIZE];
    assert_int_equal(pread(fd, now, SIZE, 0), SIZE);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, now, SIZE)), 0);
}

static void c15_what_is_sealed_while_it_is_waited_for_is_intact(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    damage(5);
    before_wait = seal_it;
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
}

static void c15_a_wrong_reading_and_a_right_one_are_a_transient(void **state)
{
    kvs_cleanup_fd int fd = make_block();
    struct kvs_examination examination;

    drop(fd);
    misreads = true;
    kvs_examine(&examiner, fd, &examination);
    assert_int_equal(examination.finding, KVS_FOUND_TRANSIENT);
    assert_true(examination.verification.is_transient);
    assert_int_equal(examination.verification.computed, kvs_crc32c(0, content, SIZE));
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
}

static void touch_it(void)
{
    assert_int_equal(chmod(path, 0640), 0);
}

static void c15_another_reading_of_what_changed_is_no_transient(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    drop(fd);
    misreads = true;
    before_misread = touch_it;
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
}

static void change_it(void)
{
    damage(100);
}

static void c15_what_changes_while_it_is_waited_for_is_busy(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    damage(5);
    before_wait = change_it;
    assert_int_equal(examine(fd), KVS_FOUND_BUSY);
}

static void c15_what_is_open_for_writing_is_busy(void **state)
{
    kvs_cleanup_fd int fd = make_block();
    kvs_cleanup_fd int writer = open_own(O_WRONLY);

    assert_true(writer >= 0);
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
    damage(5);
    assert_int_equal(examine(fd), KVS_FOUND_BUSY);
}

static void what_has_no_name_is_gone(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    damage(5);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(examine(fd), KVS_FOUND_GONE);
}

static void cut_it(void)
{
    assert_int_equal(truncate(path, 100), 0);
}

/* The pages of the mapping go while they are summed. */
static void a_block_that_is_cut_meanwhile_is_survived(void **state)
{
    kvs_cleanup_fd int fd = make_block();

    kvs_sigbus_handle(); /* cmocka has set its own */
    before_mapped = cut_it;
    assert_int_equal(examine(fd), KVS_FOUND_CORRUPT); /* and stays so, unheard of by anybody */
}

static void only_regular_files_are_opened(void **state)
{
    assert_int_equal(kvs_examine_open(AT_FDCWD, "/dev/null"), -EINVAL);
    assert_int_equal(kvs_examine_open(AT_FDCWD, "/"), -EINVAL);
    assert_int_equal(kvs_examine_open(AT_FDCWD, "/proc/self/exe"), -ELOOP);
    assert_int_equal(kvs_examine_open(AT_FDCWD, path), -ENOENT);
}

static void sealing_adds_a_record_and_never_changes_one(void **state)
{
    kvs_cleanup_fd int fd = make_block();
    struct kvs_record record;
    uint32_t crc = 0;

    damage(5);
    assert_int_equal(kvs_seal_beside(fd, examiner.memory, KVS_EXAMINER_MEMORY, &crc), -EEXIST);
    assert_int_equal(kvs_record_read(fd, &record), 0);
    assert_int_equal(record.crc, kvs_crc32c(0, content, SIZE));
    kvs_cleanup_fd int writer = open_own(O_RDWR);
    assert_int_equal(kvs_record_remove(writer), 0);
    assert_int_equal(kvs_lease_take(fd), -EAGAIN);
    assert_int_equal(kvs_seal_beside_check(fd), -EBUSY);
    assert_int_equal(kvs_seal_beside(fd, examiner.memory, KVS_EXAMINER_MEMORY, &crc), -EBUSY);
    close(kvs_steal_fd(&writer));
    assert_int_equal(kvs_seal_beside_check(fd), 0);
    assert_int_equal(kvs_seal_beside(fd, examiner.memory, KVS_EXAMINER_MEMORY, &crc), 0);
    assert_int_equal(examine(fd), KVS_FOUND_INTACT);
    assert_int_equal(kvs_record_add(fd, 1), -EEXIST);
}

static int set_up(void **state)
{
    mapped = waits = 0;
    before_mapped = before_wait = before_misread = NULL;
    misreads = false;
    return 0;
}

static int tear_down(void **state)
{
    let_go();
    unlink(path);
    return 0;
}

static int set_up_all(void **state)
{
    const char *base = getenv("TMPDIR");
    uint32_t seed = 7;

    signal(SIGIO, SIG_IGN);
    for (size_t i = 0; i < SIZE; i++) {
        seed = seed * 1664525u + 1013904223u;
        content[i] = (unsigned char)(seed >> 24);
    }
    snprintf(path, sizeof(path), "%s/examine-XXXXXX", base == NULL ? "/tmp" : base);
    int fd = mkstemp(path);
    if (fd < 0 || !kvs_page_cache_is_local(fd)) {
        fprintf(stderr, "%s is not on a disk of this machine\n", path);
        return -1;
    }
    close(fd);
    unlink(path);
    return kvs_examiner_init(&examiner);
}

static int tear_down_all(void **state)
{
    kvs_examiner_destroy(&examiner);
    return 0;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(intact_hot_and_cold),
        CASE(cached_blocks_stay_mapped_for_a_while),
        CASE(what_is_not_cached_lets_the_others_go),
        CASE(larger_than_the_window),
        CASE(c15_a_fresh_mismatch_is_waited_for),
        CASE(c15_what_is_sealed_while_it_is_waited_for_is_intact),
        CASE(c15_a_wrong_reading_and_a_right_one_are_a_transient),
        CASE(c15_another_reading_of_what_changed_is_no_transient),
        CASE(c15_what_changes_while_it_is_waited_for_is_busy),
        CASE(c15_what_is_open_for_writing_is_busy),
        CASE(what_has_no_name_is_gone),
        CASE(a_block_that_is_cut_meanwhile_is_survived),
        CASE(only_regular_files_are_opened),
        CASE(sealing_adds_a_record_and_never_changes_one),
    };
#undef CASE

    return cmocka_run_group_tests_name("examine", tests, set_up_all, tear_down_all);
}
