// SPDX-License-Identifier: Apache-2.0
// The metrics of a run equal what an independent count of the run says: each case knows what it
// does, and exactly those counters may grow.
#include "tests/mount/fixture_metrics.h"

#define MIB  ((size_t)1 << 20)
#define SIZE ((size_t)65537)

static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : kvt_close(fd);
}

static void metrics_count_stores(void **state)
{
    struct kvt_env *env = *state;
    char *before = kvt_start_and_watch(env, "passthrough=off,max_reread=1M");
    for (unsigned i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%u", i);
        assert_int_equal(kvt_store(env, name, SIZE, i, 0), 0);
    }
    assert_growth(env, before, {STORES("arrived", "sealed"), 3}, {WRITTEN_BYTES, 3 * SIZE},
                  {OPENED, 3}, {CLOSED, 3}, {SEALED_TIMED, 3});

    kvt_watch_metrics(env, &before); /* in place: what is old is verified, then read back */
    int fd = kvt_open(kvt_mnt(env, "0"), O_WRONLY);
    kvt_put(fd, 4096, 7, 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_growth(env, before, {STORES("read_back", "sealed"), 1}, {WRITTEN_BYTES, 4096},
                  {VERIFIED_BYTES, SIZE}, {"kvseal_read_back_bytes_total", SIZE - 4096},
                  {OPENED, 1}, {CLOSED, 1}, {SEALED_TIMED, 1}, {VERIFIED_TIMED, 1});

    kvt_watch_metrics(env, &before); /* the client's own sum differs */
    fd = kvt_open(kvt_mnt(env, "own"), KVT_CREATE);
    kvt_put(fd, SIZE, 1, 0);
    assert_int_equal(kvt_set_record(kvt_mnt(env, "own"), 12345), 0);
    assert_int_equal(kvt_close(fd), -EBADMSG);
    kvt_assert_errno(EBADMSG, rename(kvt_mnt(env, "own"), kvt_mnt(env, "published")));
    assert_growth(env, before, {STORES("none", "client_sum"), 1}, {STORES("none", "refused"), 1},
                  {WRITTEN_BYTES, SIZE}, {OPENED, 1}, {CLOSED, 1}, {SEALED_TIMED, 1});

    assert_int_equal(kvt_store(env, "large", 2 * MIB, 1, 0), 0);
    kvt_watch_metrics(env, &before); /* more than max_reread: not sealed again */
    fd = kvt_open(kvt_mnt(env, "large"), O_WRONLY);
    kvt_put(fd, 4096, 7, 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_growth(env, before, {"kvseal_not_sealed_too_large_total", 1}, {WRITTEN_BYTES, 4096},
                  {OPENED, 1}, {CLOSED, 1});
}

static void metrics_count_loads_from_buffers_and_raw(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_store(env, "old", SIZE, 2, 0), 0);
    assert_int_equal(kvt_remove_record(kvt_src(env, "old")), 0);
    char *before = kvt_start_and_watch(env, "passthrough=off");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(kvt_load(env, "a", SIZE, 1, i == 0 ? KVT_DIRECT : 0), 0);
    assert_int_equal(kvt_load(env, "old", SIZE, 2, 0), 0);
    assert_int_equal(try_open(kvt_mnt(env, "nothing"), O_RDONLY), -ENOENT);
    assert_growth(env, before, {LOADS("buffer", "verified"), 3}, {LOADS("raw", "unsealed"), 1},
                  {READ_BYTES, 4 * SIZE}, {VERIFIED_BYTES, 3 * SIZE}, {OPENED, 4}, {CLOSED, 4},
                  {OPENS_TIMED, 4}, {VERIFIED_TIMED, 3});

    kvt_watch_metrics(env, &before);
    int writer = kvt_open(kvt_mnt(env, "new"), KVT_CREATE);
    kvt_put(writer, SIZE, 1, 0);
    assert_int_equal(try_open(kvt_mnt(env, "new"), O_RDONLY), 0);
    assert_int_equal(kvt_close(writer), 0);
    assert_growth(env, before, {LOADS("raw", "being_written"), 1}, {STORES("arrived", "sealed"), 1},
                  {WRITTEN_BYTES, SIZE}, {OPENED, 2}, {CLOSED, 2}, {OPENS_TIMED, 1},
                  {SEALED_TIMED, 1});
}

static void metrics_count_loads_by_pieces(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 3 * MIB, 1, 0), 0);
    char *before = kvt_start_and_watch(env, "passthrough=off,buffers=off");
    assert_int_equal(kvt_load(env, "a", 3 * MIB, 1, 0), 0);
    assert_growth(env, before, {LOADS("pieces", "verified"), 1}, {READ_BYTES, 3 * MIB},
                  {VERIFIED_BYTES, 3 * MIB}, {OPENED, 1}, {CLOSED, 1}, {OPENS_TIMED, 1},
                  {VERIFIED_TIMED, 1});
}

/* Verified once, and then known. */
static void metrics_count_loads_by_passthrough(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, NULL);
    if (kvt_metric(env, "kvseal_passthrough_enabled") != 1)
        skip();
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    usleep(100000); /* what changed just now is verified at each open */
    char *before;
    kvt_watch_metrics(env, &before);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_growth(env, before, {LOADS("passthrough", "verified"), 2}, {VERIFIED_BYTES, SIZE},
                  {OPENED, 2}, {CLOSED, 2}, {OPENS_TIMED, 2}, {VERIFIED_TIMED, 1});
    assert_true(kvt_metric(env, "kvseal_pinned_memory_bytes") >= SIZE);
}

static void metrics_count_what_unsealed_says(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "old", SIZE, 2, 0), 0);
    assert_int_equal(kvt_remove_record(kvt_src(env, "old")), 0);
    char *before = kvt_start_and_watch(env, "passthrough=off,unsealed=deny");
    assert_int_equal(try_open(kvt_mnt(env, "old"), O_RDONLY), -EACCES);
    assert_growth(env, before, {LOADS("none", "denied"), 1}, {OPENED, 1}, {CLOSED, 1},
                  {OPENS_TIMED, 1});
    before = kvt_start_and_watch(env, "passthrough=off,unsealed=seal");
    assert_int_equal(kvt_load(env, "old", SIZE, 2, 0), 0);
    assert_growth(env, before, {LOADS("buffer", "verified"), 1}, {"kvseal_sealed_on_load_total", 1},
                  {READ_BYTES, SIZE}, {VERIFIED_BYTES, SIZE}, {OPENED, 1}, {CLOSED, 1},
                  {OPENS_TIMED, 1}, {VERIFIED_TIMED, 1});
}

static void make_corrupt(struct kvt_env *env)
{
    for (const char *name = "flip\0record\0empty\0"; *name; name += strlen(name) + 1)
        assert_int_equal(kvt_store(env, name, SIZE, 1, 0), 0);
    kvt_flip(kvt_src(env, "flip"), 100);
    assert_int_equal(kvt_set_record_bytes(kvt_src(env, "record"), "abc", 3), 0);
    assert_int_equal(truncate(kvt_src(env, "empty"), 0), 0);
}

static void refuse_all(struct kvt_env *env, int times)
{
    for (int i = 0; i < times; i++) {
        assert_int_equal(try_open(kvt_mnt(env, "flip"), O_RDONLY), -EBADMSG);
        assert_int_equal(try_open(kvt_mnt(env, "record"), O_RDONLY | O_DIRECT), -EBADMSG);
        assert_int_equal(try_open(kvt_mnt(env, "empty"), O_RDONLY), -EBADMSG);
    }
}

static void metrics_count_corrupt_blocks(void **state)
{
    static const struct {
        const char *options, *mismatch, *malformed, *empty;
        int names; /* removed of each */
    } cases[] = {
        {"passthrough=off", CORRUPT("mismatch", "removed"), CORRUPT("malformed_record", "removed"),
         CORRUPT("empty", "removed"), 1},
        {"passthrough=off,on_corrupt=quarantine", CORRUPT("mismatch", "quarantined"),
         CORRUPT("malformed_record", "quarantined"), CORRUPT("empty", "quarantined"), 1},
        {"passthrough=off,on_corrupt=keep", CORRUPT("mismatch", "kept"),
         CORRUPT("malformed_record", "kept"), CORRUPT("empty", "kept"), 0},
        {"passthrough=off,ro", CORRUPT("mismatch", "kept"), CORRUPT("malformed_record", "kept"),
         CORRUPT("empty", "kept"), 0},
    };
    struct kvt_env *env = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        kvt_start(env, NULL);
        kvt_fresh_dir(env);
        make_corrupt(env);
        char *before = kvt_start_and_watch(env, cases[i].options);
        int times = cases[i].names ? 1 : 3; /* what stays is found again: another event, no block */
        refuse_all(env, times);
        assert_growth(env, before, {cases[i].mismatch, times}, {cases[i].malformed, times},
                      {cases[i].empty, times}, {CORRUPT_BLOCKS("mismatch"), 1},
                      {CORRUPT_BLOCKS("malformed_record"), 1}, {CORRUPT_BLOCKS("empty"), 1},
                      {LOADS("none", "corrupt"), 3 * times},
                      {"kvseal_checksum_failures_total", 3 * times},
                      {"kvseal_names_removed_total", 3 * cases[i].names}, {OPENED, 3 * times},
                      {CLOSED, 3 * times}, {OPENS_TIMED, 3 * times}, {VERIFIED_TIMED, 3 * times});
    }
}

/* No load failed, so vLLM would have counted none; but a corrupt block it was. */
static void metrics_count_a_refused_truncation_as_no_load(void **state)
{
    struct kvt_env *env = *state;
    make_corrupt(env);
    char *before = kvt_start_and_watch(env, "passthrough=off");
    kvt_assert_errno(EBADMSG, truncate(kvt_mnt(env, "flip"), 100));
    assert_growth(env, before, {CORRUPT("mismatch", "removed"), 1}, {CORRUPT_BLOCKS("mismatch"), 1},
                  {"kvseal_names_removed_total", 1}, {VERIFIED_TIMED, 1});
}

static void metrics_have_no_bad_names(void **state)
{
    struct kvt_env *env = *state;
    char *text = kvt_read_control(env, "metrics"), *status = kvt_read_control(env, "status");
    unsigned names = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char name[128], type[16];
        if (sscanf(line, "# TYPE %127s %15s", name, type) != 2)
            continue;
        char quoted[132];
        snprintf(quoted, sizeof(quoted), "\"%s\"", name);
        assert_non_null(strstr(status, quoted)); /* the JSON has all of them */
        names++;
    }
    assert_true(names > 30);
    assert_non_null(strstr(status, "\"state\": \"serving\""));
    assert_non_null(strstr(status, env->source));
    free(text);
    free(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(metrics_count_stores),
        kvt_test(metrics_count_loads_from_buffers_and_raw),
        kvt_test(metrics_count_loads_by_pieces),
        kvt_test(metrics_count_loads_by_passthrough),
        kvt_test(metrics_count_what_unsealed_says),
        kvt_test(metrics_count_corrupt_blocks),
        kvt_test(metrics_count_a_refused_truncation_as_no_load),
        kvt_test(metrics_have_no_bad_names),
    };
    return kvt_main("metrics", tests, COUNT_OF(tests), KVT_EXT4 | KVT_TMPFS);
}
