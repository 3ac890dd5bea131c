// SPDX-License-Identifier: Apache-2.0
// What the metrics say of a file system that fails: each failure in its counter, and only there.
#include "tests/mount/fixture_metrics.h"

#define SIZE ((size_t)65537)

static void fail_call(struct kvt_env *env, const char *kind, int number, int error)
{
    char line[64];
    snprintf(line, sizeof(line), "%s %d errno %d\n", kind, number, error);
    kvt_fault(env, line);
}

static void metrics_count_transient_mismatches(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    char *before = kvt_start_and_watch(env, "passthrough=off");
    kvt_fault(env, "read 1 flip 100\n");
    assert_int_equal(kvt_load(env, "a", SIZE, 1, KVT_DIRECT), 0);
    assert_true(kvt_fault_report_has(env, "hit 1"));
    kvt_fault(env, "clear\n");
    assert_growth(env, before, {"kvseal_transient_mismatches_total", 1},
                  {LOADS("buffer", "verified"), 1}, {READ_BYTES, SIZE}, {VERIFIED_BYTES, SIZE},
                  {OPENED, 1}, {CLOSED, 1}, {OPENS_TIMED, 1}, {VERIFIED_TIMED, 1});
}

static void metrics_count_unstable_reads(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    char *before = kvt_start_and_watch(env, "passthrough=off");
    kvt_fault(env, "read 1 flip 100\nread 2 flip 5\nread 2 flip 100\nread 1 flip 9\n");
    int fd = open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT);
    bool has_failed = fd < 0 && errno == EIO;
    kvt_fault(env, "clear\n");
    assert_true(has_failed);
    assert_growth(env, before, {"kvseal_unstable_reads_total", 1}, {LOADS("none", "failed"), 1},
                  {OPENED, 1}, {CLOSED, 1}, {OPENS_TIMED, 1});
}

static void metrics_count_errors_of_verifying(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    char *before = kvt_start_and_watch(env, "passthrough=off");
    fail_call(env, "read", 1, EIO);
    int fd = open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT);
    bool has_failed = fd < 0 && errno == EIO;
    kvt_fault(env, "clear\n");
    assert_true(has_failed);
    assert_growth(env, before, {BACKING("verify", "EIO"), 1}, {LOADS("none", "failed"), 1},
                  {OPENED, 1}, {CLOSED, 1}, {OPENS_TIMED, 1});
}

static void metrics_count_errors_of_reading(void **state)
{
    struct kvt_env *env = *state;
    char byte;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_remove_record(kvt_src(env, "a")), 0);
    kvt_drop_cache(kvt_src(env, "a"));
    char *before = kvt_start_and_watch(env, "passthrough=off");
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    for (int i = 1; i <= 4; i++) { /* the kernel above faultfs tries page by page again */
        fail_call(env, "read", i, EIO);
    }
    bool has_failed = read(fd, &byte, 1) < 0 && errno == EIO;
    kvt_fault(env, "clear\n");
    assert_true(has_failed);
    assert_int_equal(kvt_close(fd), 0);
    assert_growth(env, before, {BACKING("read", "EIO"), 1}, {LOADS("raw", "unsealed"), 1},
                  {OPENED, 1}, {CLOSED, 1}, {OPENS_TIMED, 1});
}

/* The block is tainted: its close is refused, and so is a publish. */
static void metrics_count_errors_of_writing(void **state)
{
    struct kvt_env *env = *state;
    char *before = kvt_start_and_watch(env, "passthrough=off");
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    unsigned char *block = kvt_block(4096, 1);
    fail_call(env, "write", 1, ENOSPC);
    int error = kvt_write(fd, block, 4096, 0, 0);
    free(block);
    kvt_fault(env, "clear\n");
    assert_int_equal(error, -ENOSPC);
    assert_int_equal(kvt_close(fd), -ENOSPC);
    assert_growth(env, before, {BACKING("write", "ENOSPC"), 1}, {STORES("none", "refused"), 1},
                  {OPENED, 1}, {CLOSED, 1});
}

/* Tried again, and done, when the file is released. */
static void metrics_count_errors_of_sealing(void **state)
{
    struct kvt_env *env = *state;
    char *before = kvt_start_and_watch(env, "passthrough=off");
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    kvt_put(fd, SIZE, 1, 0);
    fail_call(env, "setxattr", 1, ENOSPC);
    int error = kvt_close(fd);
    kvt_fault(env, "clear\n");
    assert_int_equal(error, -ENOSPC);
    assert_growth(env, before, {BACKING("seal", "ENOSPC"), 1}, {STORES("none", "failed"), 1},
                  {STORES("arrived", "sealed"), 1}, {WRITTEN_BYTES, SIZE}, {OPENED, 1}, {CLOSED, 1},
                  {SEALED_TIMED, 2});
}

static void metrics_count_errors_of_syncing(void **state)
{
    struct kvt_env *env = *state;
    char *before = kvt_start_and_watch(env, "passthrough=off");
    int fd = kvt_open(kvt_mnt(env, "a"), KVT_CREATE);
    kvt_put(fd, SIZE, 1, 0);
    fail_call(env, "fsync", 1, EIO);
    int result = fsync(fd);
    kvt_fault(env, "clear\n");
    assert_int_equal(result, -1);
    assert_int_equal(kvt_close(fd), -EIO);
    assert_growth(env, before, {BACKING("sync", "EIO"), 1}, {STORES("none", "refused"), 1},
                  {WRITTEN_BYTES, SIZE}, {OPENED, 1}, {CLOSED, 1});
}

static void metrics_count_blocks_that_could_not_be_removed(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    kvt_flip(kvt_under(env, "a"), 100);
    kvt_drop_cache(kvt_src(env, "a"));
    char *before = kvt_start_and_watch(env, "passthrough=off");
    fail_call(env, "rename", 1, EACCES);
    int fd = open(kvt_mnt(env, "a"), O_RDONLY);
    bool is_refused = fd < 0 && errno == EBADMSG;
    kvt_fault(env, "clear\n");
    assert_true(is_refused);
    assert_growth(env, before, {CORRUPT("mismatch", "failed"), 1}, {CORRUPT_BLOCKS("mismatch"), 1},
                  {LOADS("none", "corrupt"), 1}, {"kvseal_checksum_failures_total", 1}, {OPENED, 1},
                  {CLOSED, 1}, {OPENS_TIMED, 1}, {VERIFIED_TIMED, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(metrics_count_transient_mismatches),
        kvt_test(metrics_count_unstable_reads),
        kvt_test(metrics_count_errors_of_verifying),
        kvt_test(metrics_count_errors_of_reading),
        kvt_test(metrics_count_errors_of_writing),
        kvt_test(metrics_count_errors_of_sealing),
        kvt_test(metrics_count_errors_of_syncing),
        kvt_test(metrics_count_blocks_that_could_not_be_removed),
    };
    return kvt_main("metrics_faults", tests, COUNT_OF(tests), KVT_FAULTFS);
}
