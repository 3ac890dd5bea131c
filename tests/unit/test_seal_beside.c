// SPDX-License-Identifier: Apache-2.0
// Sealing beside a writer that a coarse clock hides: its change has the same times as the one
// before.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/record.h"
#include "core/seal_beside.h"
#include "core/verify.h"
#include "tests/unit/scratch.h"

#define SECOND 1000000000L

static char *scratch;
static long tick;             /* of the clock that the file system has, nanoseconds */
static int leases, change_at; /* before which lease the block is changed; 0: never */

static void write_block(const char *content)
{
    int fd = open("a", O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

static void coarsen(struct timespec *time)
{
    time->tv_nsec -= time->tv_nsec % tick;
}

int __real_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st)
{
    int r = __real_fstat64(fd, st);

    coarsen(&st->st_mtim);
    coarsen(&st->st_ctim);
    return r;
}

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    va_list arguments;
    long argument = 0;

    va_start(arguments, command);
    argument = va_arg(arguments, long);
    va_end(arguments);
    if (command == F_SETLEASE && argument == F_RDLCK && ++leases == change_at)
        write_block("other");
    return __real_fcntl64(fd, command, argument);
}

/* To a moment with half a tick ahead, and more of it behind than the clock of files lags. */
static void wait_for_tick(void)
{
    struct timespec now;

    do {
        clock_gettime(CLOCK_REALTIME, &now);
    } while (now.tv_nsec % tick < tick * 3 / 10 || now.tv_nsec % tick > tick * 4 / 10);
}

static int seal(void)
{
    uint32_t crc = 0;
    int fd = open("a", O_RDONLY);

    assert_true(fd >= 0);
    leases = 0;
    int r = kvs_seal_beside(fd, scratch, KVS_PIECE_SIZE, &crc);
    close(fd);
    return r;
}

static bool has_record(void)
{
    struct kvs_record record;
    int fd = open("a", O_RDONLY);

    assert_int_equal(kvs_record_read(fd, &record), 0);
    close(fd);
    return record.kind != KVS_RECORD_NONE;
}

/* The change comes behind the readings. On a busy machine it may miss the tick: more than once. */
static void change_in_one_tick(long length)
{
    tick = length;
    for (int i = 0; i < 20; i++) {
        unlink("a");
        wait_for_tick();
        write_block("bytes");
        change_at = 2;
        assert_int_equal(seal(), -EBUSY);
        assert_false(has_record());
        if (tick == SECOND)
            break;
    }
    change_at = 0;
    assert_int_equal(seal(), 0);
    assert_true(has_record());
}

static void a_change_in_the_same_tick_is_seen(void **state)
{
    change_in_one_tick(SECOND / 50);
}

static void a_change_in_the_same_second_is_seen_where_there_are_only_those(void **state)
{
    change_in_one_tick(SECOND);
}

/* And is what is sealed, when it comes before the readings; seen in another tick, it is let be. */
static void a_change_before_the_readings_is_sealed(void **state)
{
    struct kvs_record record;
    int r = -EBUSY;

    tick = SECOND / 50;
    for (int i = 0; r == -EBUSY && i < 100; i++) {
        unlink("a");
        wait_for_tick();
        write_block("bytes");
        change_at = 1;
        r = seal();
    }
    assert_int_equal(r, 0);
    int fd = open("a", O_RDONLY);
    assert_int_equal(kvs_record_read(fd, &record), 0);
    close(fd);
    assert_int_equal(record.crc, kvs_crc32c(0, "other", 5));
}

static int set_up(void **state)
{
    signal(SIGIO, SIG_IGN);
    change_at = 0;
    tick = 1;
    scratch = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);
    return scratch == NULL || make_scratch() != 0 || chdir(dir) < 0;
}

static int tear_down(void **state)
{
    free(scratch);
    return remove_scratch();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_change_in_the_same_tick_is_seen),
        CASE(a_change_in_the_same_second_is_seen_where_there_are_only_those),
        CASE(a_change_before_the_readings_is_sealed),
    };

    return cmocka_run_group_tests_name("seal_beside", tests, NULL, NULL);
}
