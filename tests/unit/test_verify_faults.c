// SPDX-License-Identifier: Apache-2.0
// Verification with readings that fail, differ, are cut short, or race with changes.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/piece_reads.h"
#include "core/verify.h"
#include "tests/unit/block_files.h"

/* Called after each pread with its result; gives the result that the code under test sees. */
struct read_call {
    int fd;
    unsigned char *buffer;
    size_t len;
    off_t offset;
    ssize_t result;
    int reading; /* 1 for the first that begins at offset 0, 2 for the second ... */
    int number;  /* of this call, from 1 */
};
static ssize_t (*on_read)(const struct read_call *call);
static int readings;
static int reads;
static int record_error;

ssize_t __real_pread64(int fd, void *buffer, size_t len, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t len, off_t offset);
ssize_t __real_fgetxattr(int fd, const char *name, void *value, size_t size);
ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t size);

ssize_t __wrap_pread64(int fd, void *buffer, size_t len, off_t offset)
{
    ssize_t result = __real_pread64(fd, buffer, len, offset);
    struct read_call call;

    readings += offset == 0;
    reads++;
    if (on_read == NULL)
        return result;
    call = (struct read_call){fd, buffer, len, offset, result, readings, reads};
    return on_read(&call);
}

ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t size)
{
    if (record_error == 0)
        return __real_fgetxattr(fd, name, value, size);
    errno = record_error;
    return -1;
}

/* What these tests do, they do to pread; test_piece_reads has the other way to read. */
int __wrap_kvs_read_pieces(int fd, void *buffer, size_t len, kvs_piece_arrived *arrived,
                           void *context, bool *ended_early_ret);
int __wrap_kvs_read_pieces(int fd, void *buffer, size_t len, kvs_piece_arrived *arrived,
                           void *context, bool *ended_early_ret)
{
    return -ENOTSUP;
}

static void set_on_read(ssize_t (*hook)(const struct read_call *call))
{
    on_read = hook;
    readings = 0;
    reads = 0;
}

static bool is_direct(int fd)
{
    return (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
}

/* Stores the block anew in place, record and all, while its first reading is under way. */
static ssize_t rewrite_in_first_reading(const struct read_call *call)
{
    if (call->number == 1) {
        int fd = open(path, O_WRONLY);

        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, content + 7, 20000, 0), 20000);
        assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, content + 7, 20000)), 0);
        close(fd);
    }
    return call->result;
}

static void check_rewritten(const struct ground *ground)
{
    int fd = make_block(ground, 10000);

    set_on_read(rewrite_in_first_reading);
    assert_verdict(fd, KVS_INTACT, false);
    assert_int_equal(readings, 2);
    assert_memory_equal(memory, content + 7, 20000);
    set_on_read(NULL);
    drop_block(fd);
}

static void c15_a_block_that_changes_is_read_again(void **state)
{
    on_every_ground(check_rewritten);
}

static ssize_t change_record_in_every_reading(const struct read_call *call)
{
    assert_int_equal(kvs_record_write(call->fd, (uint32_t)call->number), 0);
    return call->result;
}

static ssize_t grow_in_every_reading(const struct read_call *call)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size + 1), 0);
    return call->result;
}

static ssize_t shrink_in_every_reading(const struct read_call *call)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    return call->result;
}

static ssize_t move_mtime_in_every_reading(const struct read_call *call)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000 + call->number}};

    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    return call->result;
}

static void check_unsteady(const struct ground *ground)
{
    ssize_t (*const hooks[])(const struct read_call *) = {
        change_record_in_every_reading,
        grow_in_every_reading,
        shrink_in_every_reading,
        move_mtime_in_every_reading,
    };

    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        struct kvs_verification verification;
        int fd = make_block(ground, 10000);

        set_on_read(hooks[i]);
        assert_int_equal(verify(fd, MAX_SIZE, &verification), -EIO);
        assert_int_equal(readings, 3);
        assert_true(verification.is_unstable);
        set_on_read(NULL);
        drop_block(fd);
    }
}

static void c15_a_block_that_keeps_changing_is_an_error(void **state)
{
    on_every_ground(check_unsteady);
}

static ssize_t spoil_first_reading(const struct read_call *call)
{
    if (call->reading == 1 && call->result > 0)
        call->buffer[call->result / 2] ^= 1;
    return call->result;
}

static void check_transient(const struct ground *ground)
{
    for (size_t i = 0; i < SIZES; i++) {
        uint32_t *sums = NULL;
        struct kvs_reading reading = {
            .memory = memory, .capacity = MAX_SIZE, .piece_sums_ret = &sums};
        struct kvs_verification verification;
        int fd = make_block(ground, sizes[i]);

        set_on_read(spoil_first_reading);
        assert_int_equal(kvs_verify(fd, &reading, &verification), 0);
        assert_int_equal(verification.verdict, KVS_INTACT);
        assert_int_equal(verification.is_transient, sizes[i] > 0);
        assert_int_equal(verification.computed, verification.record.crc);
        assert_memory_equal(memory, content, sizes[i]);
        assert_int_equal(
            sums[0], kvs_crc32c(0, content, sizes[i] < KVS_PIECE_SIZE ? sizes[i] : KVS_PIECE_SIZE));
        free(sums);
        set_on_read(NULL);
        drop_block(fd);
    }
}

static void c15_a_bad_first_reading_is_transient(void **state)
{
    on_every_ground(check_transient);
}

static ssize_t spoil_each_reading_anew(const struct read_call *call)
{
    if (call->result > 0)
        call->buffer[0] ^= (unsigned char)call->reading;
    return call->result;
}

static void check_differing(const struct ground *ground)
{
    struct kvs_verification verification;
    int fd = make_block(ground, 10000);

    set_on_read(spoil_each_reading_anew);
    assert_int_equal(verify(fd, MAX_SIZE, &verification), -EIO);
    assert_int_equal(readings, 2);
    assert_true(verification.is_unstable);
    set_on_read(NULL);
    drop_block(fd);
}

static void c15_two_bad_readings_that_differ_are_an_error(void **state)
{
    on_every_ground(check_differing);
}

static int second_is_direct;

static ssize_t note_second_reading(const struct read_call *call)
{
    if (call->reading == 2)
        second_is_direct = is_direct(call->fd);
    return call->result;
}

static void c15_the_second_reading_is_direct(void **state)
{
    int fd = -1;

    if (!grounds[1].is_usable) {
        print_message("skipped: no direct I/O in %s\n", grounds[1].dir);
        skip();
    }
    fd = make_block(&grounds[0], 10000);
    flip_byte(5);
    second_is_direct = -1;
    set_on_read(note_second_reading);
    assert_verdict(fd, KVS_CORRUPT, false);
    assert_int_equal(second_is_direct, 1);
    set_on_read(NULL);
    drop_block(fd);
}

static int error_to_give;
static int error_in_reading;

static ssize_t fail_in_a_reading(const struct read_call *call)
{
    if (call->reading != error_in_reading)
        return spoil_first_reading(call);
    errno = error_to_give;
    return -1;
}

static void check_errors(const struct ground *ground)
{
    static const int errors[] = {EIO, ESTALE, EBADMSG, ENOMEM};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct kvs_verification verification;
        int fd = make_block(ground, 10000);

        error_to_give = errors[i];
        for (error_in_reading = 1; error_in_reading <= 2; error_in_reading++) {
            set_on_read(fail_in_a_reading);
            assert_int_equal(verify(fd, MAX_SIZE, &verification), -errors[i]);
            assert_false(verification.is_unstable);
        }
        set_on_read(NULL);
        record_error = errors[i];
        assert_int_equal(verify(fd, MAX_SIZE, &verification), -errors[i]);
        record_error = 0;
        set_on_read(NULL);
        drop_block(fd);
    }
}

static void c14_errors_below_pass_through(void **state)
{
    on_every_ground(check_errors);
}

static ssize_t expect_aligned(const struct read_call *call)
{
    assert_int_equal(call->offset % KVS_IO_ALIGN, 0);
    assert_int_equal(call->len % KVS_IO_ALIGN, 0);
    return call->result;
}

static ssize_t interrupt_and_cut(const struct read_call *call)
{
    expect_aligned(call);
    if (call->number % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    if (call->result > 8192)
        return call->number % 2 == 0 ? 3 * 4096 : call->result - 100;
    return call->result;
}

static void check_cut(const struct ground *ground)
{
    for (size_t i = 0; i < SIZES; i++) {
        int fd = make_block(ground, sizes[i]);

        set_on_read(interrupt_and_cut);
        assert_verdict(fd, KVS_INTACT, false);
        assert_memory_equal(memory, content, sizes[i]);
        set_on_read(NULL);
        drop_block(fd);
    }
}

static void c16_short_and_interrupted_reads_are_continued(void **state)
{
    on_every_ground(check_cut);
}

static ssize_t refuse_direct(const struct read_call *call)
{
    if (!is_direct(call->fd))
        return call->result;
    errno = EINVAL;
    return -1;
}

static void check_refused_direct(const struct ground *ground)
{
    int fd = make_block(ground, 10000);

    set_on_read(refuse_direct);
    assert_verdict(fd, KVS_INTACT, false);
    flip_byte(9999);
    assert_verdict(fd, KVS_CORRUPT, false);
    set_on_read(NULL);
    drop_block(fd);
}

static void c20_refused_direct_reads_become_buffered(void **state)
{
    on_every_ground(check_refused_direct);
}

static void check_ranges(const struct ground *ground)
{
    static const struct {
        uint64_t offset, len;
    } ranges[] = {
        {0, 0},          {0, 1},       {0, 3 * KVS_PIECE_SIZE + 5},
        {1, 4095},       {1, 4096},    {4095, KVS_PIECE_SIZE},
        {4097, 2500000}, {3145733, 0}, {3145732, 1},
    };
    const size_t size = 3 * KVS_PIECE_SIZE + 5;
    int fd = make_block(ground, size);
    uint32_t crc = 0;

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        uint32_t expected = kvs_crc32c(0, content + ranges[i].offset, ranges[i].len);

        set_on_read(expect_aligned);
        assert_int_equal(
            kvs_sum_agreed(fd, ranges[i].offset, ranges[i].len, memory, KVS_PIECE_SIZE, &crc), 0);
        assert_int_equal(crc, expected);
        set_on_read(spoil_first_reading);
        assert_int_equal(
            kvs_sum_agreed(fd, ranges[i].offset, ranges[i].len, memory, KVS_PIECE_SIZE, &crc), 0);
        assert_int_equal(crc, expected);
    }
    set_on_read(NULL);
    assert_int_equal(kvs_sum_agreed(fd, 0, size + 1, memory, MAX_SIZE, &crc), -EIO);
    assert_int_equal(kvs_sum_agreed(fd, 2 * size, 1, memory, MAX_SIZE, &crc), -EIO);
    set_on_read(spoil_each_reading_anew);
    assert_int_equal(kvs_sum_agreed(fd, 0, size, memory, MAX_SIZE, &crc), -EIO);
    assert_int_equal(readings, 3);
    set_on_read(NULL);
    drop_block(fd);
}

static void c15_a_sum_needs_two_readings_that_agree(void **state)
{
    on_every_ground(check_ranges);
}

/* A failed test leaves its hooks. */
static int reset(void **state)
{
    set_on_read(NULL);
    record_error = 0;
    return 0;
}

/* A device is slower when it waits for the next request while a piece is summed. */
static void check_requests(const struct ground *ground)
{
    const size_t size = 3 * KVS_PIECE_SIZE + 5;
    struct kvs_verification verification;
    int fd = make_block(ground, size);

    set_on_read(NULL);
    assert_verdict(fd, KVS_INTACT, false);
    assert_int_equal(reads, is_direct(fd) ? 1 : 4);
    set_on_read(NULL);
    assert_int_equal(verify(fd, KVS_PIECE_SIZE, &verification), 0);
    assert_int_equal(reads, 4);
    drop_block(fd);
}

static void direct_blocks_are_read_at_once_where_there_is_room(void **state)
{
    on_every_ground(check_requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(c15_a_block_that_changes_is_read_again, reset),
        cmocka_unit_test_setup(c15_a_block_that_keeps_changing_is_an_error, reset),
        cmocka_unit_test_setup(c15_a_bad_first_reading_is_transient, reset),
        cmocka_unit_test_setup(c15_two_bad_readings_that_differ_are_an_error, reset),
        cmocka_unit_test_setup(c15_the_second_reading_is_direct, reset),
        cmocka_unit_test_setup(c14_errors_below_pass_through, reset),
        cmocka_unit_test_setup(c16_short_and_interrupted_reads_are_continued, reset),
        cmocka_unit_test_setup(c20_refused_direct_reads_become_buffered, reset),
        cmocka_unit_test_setup(c15_a_sum_needs_two_readings_that_agree, reset),
        cmocka_unit_test_setup(direct_blocks_are_read_at_once_where_there_is_room, reset),
    };

    return cmocka_run_group_tests_name("verify_faults", tests, set_up, tear_down);
}
