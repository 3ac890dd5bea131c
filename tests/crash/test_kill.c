// SPDX-License-Identifier: Apache-2.0
// C4, C23: the daemon is killed at each of its system calls while a client stores, changes or loads
// a block. Afterwards the source is judged without it, and then loaded through a new mount.
#include "tests/mount/fixture.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/mount.h>

#include "core/corrupt.h"
#include "core/util.h"
#include "core/verify.h"
#include "tests/crash/tracer.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define SIZE      (MIB + 512 * KIB) /* two WRITE requests */
#define OLD_SEED  1
#define NEW_SEED  2
#define BLOCK     "b"
#define TEMPORARY "b_1.tmp"

#define LEAST_KILLS 10 /* a sequence */

/* What is left of a name. */
enum outcome {
    ABSENT = 1,
    OLD = 2, /* sealed, with the content from before */
    NEW = 4, /* sealed, with the content that the client made of it */
    UNSEALED = 8,
    CORRUPT = 16, /* record and content differ */
    WRONG = 32,   /* sealed, with any other content: what must never be */
};

#define OUTCOMES 6
static const char *const outcome_words[OUTCOMES] = {"absent",   "old",     "new",
                                                    "unsealed", "corrupt", "wrong"};

struct sequence {
    const char *options;
    int (*act)(struct kvt_env *env, const struct sequence *sequence); /* what the client does */
    int flags;                                                        /* of its open(2) */
    bool is_new, is_corrupt;   /* the block is not there before; has one bit flipped */
    size_t size;               /* of the new content: the old one cut or grown ... */
    size_t from, len;          /* ... and with new bytes here */
    unsigned block, others;    /* what may be left of the block, and of any other name */
    enum outcome block_at_end; /* when the client came to its end */
};

struct run {
    struct kvt_env *env;
    const struct sequence *sequence;
    enum kvt_calls calls;
    unsigned counts[OUTCOMES];
    unsigned kills;
};

/* ---- contents ---- */

static unsigned char *old_content(const struct sequence *sequence)
{
    unsigned char *block = kvt_block(SIZE, OLD_SEED);
    if (sequence->is_corrupt)
        block[SIZE / 2] ^= 1;
    return block;
}

static unsigned char *new_content(const struct sequence *sequence)
{
    size_t room = KVS_ALIGN_UP(KVS_MAX(SIZE, sequence->size), KVS_IO_ALIGN);
    unsigned char *content = aligned_alloc(KVS_IO_ALIGN, room);
    unsigned char *old = old_content(sequence), *new = kvt_block(sequence->size, NEW_SEED);
    assert_non_null(content);
    memset(content, 0, room);
    memcpy(content, old, KVS_MIN(SIZE, sequence->size));
    memcpy(content + sequence->from, new + sequence->from, sequence->len);
    free(old);
    free(new);
    return content;
}

static bool is_content(const void *bytes, size_t size, unsigned char *wanted, size_t wanted_size)
{
    bool is_same = size == wanted_size && memcmp(bytes, wanted, size) == 0;
    free(wanted);
    return is_same;
}

static void make_old_block(struct kvt_env *env, const struct sequence *sequence)
{
    if (sequence->is_new)
        return;
    unsigned char *good = kvt_block(SIZE, OLD_SEED), *content = old_content(sequence);
    int fd = kvt_open(kvt_src(env, BLOCK), KVT_CREATE);
    assert_int_equal(kvt_write(fd, content, SIZE, 0, 0), 0);
    assert_int_equal(kvt_close(fd), 0);
    assert_int_equal(kvt_set_record(kvt_src(env, BLOCK), kvt_crc32c(good, SIZE)), 0);
    free(good);
    free(content);
}

/* ---- what the client does; 0: all went as it does when nobody is killed ---- */

static int write_new(int fd, const struct sequence *sequence)
{
    unsigned char *content = new_content(sequence);
    int error = kvt_write(fd, content + sequence->from, sequence->len, (off_t)sequence->from, 0);
    free(content);
    return error;
}

static int store(struct kvt_env *env, const struct sequence *sequence)
{
    int fd = open(kvt_mnt(env, TEMPORARY), KVT_CREATE | sequence->flags, 0644);
    if (fd < 0 || write_new(fd, sequence) != 0 || close(fd) != 0)
        return -1;
    return rename(kvt_mnt(env, TEMPORARY), kvt_mnt(env, BLOCK));
}

static int store_renamed_before_close(struct kvt_env *env, const struct sequence *sequence)
{
    int fd = open(kvt_mnt(env, TEMPORARY), KVT_CREATE | sequence->flags, 0644);
    if (fd < 0 || write_new(fd, sequence) != 0 ||
        rename(kvt_mnt(env, TEMPORARY), kvt_mnt(env, BLOCK)) != 0)
        return -1;
    return close(fd);
}

static int change_in_place(struct kvt_env *env, const struct sequence *sequence)
{
    int fd = open(kvt_mnt(env, BLOCK), O_WRONLY | sequence->flags);
    if (fd < 0 || write_new(fd, sequence) != 0)
        return -1;
    return close(fd);
}

/* Some bytes of a corrupt block, so that close(2) refuses it. */
static int change_corrupt(struct kvt_env *env, const struct sequence *sequence)
{
    return change_in_place(env, sequence) != 0 && errno == EBADMSG ? 0 : -1;
}

static int cut_or_grow(struct kvt_env *env, const struct sequence *sequence)
{
    return truncate(kvt_mnt(env, BLOCK), (off_t)sequence->size);
}

static int load_corrupt(struct kvt_env *env, const struct sequence *sequence)
{
    return open(kvt_mnt(env, BLOCK), O_RDONLY) < 0 && errno == EBADMSG ? 0 : -1;
}

static int run_client(void *argument)
{
    struct run *run = argument;
    return run->sequence->act(run->env, run->sequence);
}

/* ---- what is left ---- */

static enum outcome judge(const char *path, const struct sequence *sequence)
{
    struct kvs_verification found;
    struct kvs_reading reading = {.memory = aligned_alloc(KVS_IO_ALIGN, 4 * MIB),
                                  .capacity = 4 * MIB};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum outcome outcome = ABSENT;
    assert_non_null(reading.memory);
    if (fd < 0) {
        assert_int_equal(errno, ENOENT);
        goto out;
    }
    assert_int_equal(kvs_verify(fd, &reading, &found), 0);
    close(fd);
    if (found.verdict == KVS_UNSEALED)
        outcome = UNSEALED;
    else if (found.verdict == KVS_CORRUPT)
        outcome = CORRUPT;
    else if (is_content(reading.memory, found.size, new_content(sequence), sequence->size))
        outcome = NEW;
    else if (!sequence->is_new && !sequence->is_corrupt &&
             is_content(reading.memory, found.size, old_content(sequence), SIZE))
        outcome = OLD;
    else
        outcome = WRONG;
out:
    free(reading.memory);
    return outcome;
}

static const char *word_of(enum outcome outcome)
{
    return outcome_words[__builtin_ctz(outcome)];
}

/* Judges every file of a directory but the block itself; how many there were. */
static unsigned judge_others(const char *directory, const struct sequence *sequence, unsigned may)
{
    char path[2 * PATH_MAX];
    unsigned count = 0;
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        const char *name = entry->d_name, *dot = strrchr(name, '.');
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, BLOCK) == 0 ||
            (dot && strcmp(dot, ".cause") == 0))
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, name);
        enum outcome outcome = judge(path, sequence);
        if (!(outcome & may))
            fail_msg("%s is left %s", path, word_of(outcome));
        count++;
    }
    if (stream)
        closedir(stream);
    return count;
}

static const char *quarantine_of(struct kvt_env *env)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/" KVS_QUARANTINE_DIR, env->source);
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    return remove(path);
}

/* Nothing is lost: the block is where it was or in quarantine, once. */
static void judge_quarantine(struct kvt_env *env, const struct sequence *sequence,
                             enum outcome block)
{
    unsigned count = judge_others(quarantine_of(env), sequence, CORRUPT);
    bool quarantines = sequence->options && strstr(sequence->options, "quarantine");
    assert_int_equal(count, quarantines && block == ABSENT);
}

/* Loads the block through a new mount: it gives what was judged. */
static void load_what_is_left(struct kvt_env *env, const struct sequence *sequence,
                              enum outcome left)
{
    char bytes[1];
    kvt_start(env, sequence->options);
    int fd = open(kvt_mnt(env, BLOCK), O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    assert_int_equal(error, left == ABSENT ? ENOENT : left == CORRUPT ? EBADMSG : 0);
    if (fd < 0) {
        kvt_assert_gone(env, BLOCK);
        return;
    }
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(read(fd, bytes, 1), st.st_size > 0);
    close(fd);
    if (left == NEW || left == OLD) {
        unsigned char *content = left == NEW ? new_content(sequence) : old_content(sequence);
        kvt_assert_content(kvt_mnt(env, BLOCK), content, left == NEW ? sequence->size : SIZE);
        free(content);
    }
}

/* ---- one sequence ---- */

/* In a fresh directory, killed at the nth call. False: the client came to its end. */
static bool run_once(struct run *run, unsigned nth, unsigned *calls_ret)
{
    struct kvt_env *env = run->env;
    const struct sequence *sequence = run->sequence;
    bool is_done;
    kvt_fresh_dir(env);
    nftw(quarantine_of(env), remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    make_old_block(env, sequence);
    kvt_start(env, sequence->options);
    *calls_ret = kvt_kill_at(env->daemon, run->calls, nth, run_client, run, &is_done);
    env->daemon = 0;
    assert_int_equal(umount2(env->mnt, MNT_DETACH), 0);

    enum outcome left = judge(kvt_src(env, BLOCK), sequence);
    run->counts[__builtin_ctz(left)]++;
    run->kills += !is_done;
    if (!(left & sequence->block))
        fail_msg("killed at call %u: the block is left %s", nth, word_of(left));
    if (is_done && left != sequence->block_at_end)
        fail_msg("the client had come to its end: the block is left %s", word_of(left));
    judge_others(kvt_src(env, ""), sequence, sequence->others);
    judge_quarantine(env, sequence, left);
    load_what_is_left(env, sequence, left);
    nftw(kvt_src(env, ""), remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    return !is_done;
}

/* At how many calls there is time to kill until `deadline`; at least at `least`. */
static unsigned affordable(uint64_t start, uint64_t deadline, unsigned runs, unsigned least)
{
    uint64_t now = kvt_now_ms();
    uint64_t count = now < deadline ? (deadline - now) * runs / (now - start + 1) : 0;
    return count > least ? (unsigned)count : least;
}

/* At every call of these in turn; at every k-th where there is no time for more, but at `least` of
 * them. */
static void kill_at_calls(struct run *run, enum kvt_calls calls, unsigned budget_ms, unsigned least)
{
    unsigned count, ignored, before = run->kills;
    uint64_t start = kvt_now_ms();
    run->calls = calls;
    bool is_killed = run_once(run, UINT_MAX, &count);
    assert_false(is_killed);

    /* It goes on behind the last call of the first run: their number varies. */
    is_killed = true;
    for (unsigned nth = 1, runs = 1; is_killed || nth < count; runs++) {
        is_killed = run_once(run, nth, &ignored);
        unsigned left = nth < count ? count - nth : 0, kills = run->kills - before;
        nth += KVS_MAX(
            left / affordable(start, start + budget_ms, runs, kills < least ? least - kills : 1),
            1);
    }
    print_message("%s %u calls, killed at %u of them in %ju ms\n",
                  calls == KVT_ALL_CALLS ? "all" : "changing", count, run->kills - before,
                  (uintmax_t)(kvt_now_ms() - start));
}

/* What the calls that change something leave is what matters: none of them is left out on a tmpfs.
 * The others are there in case that the list of them is wrong. */
static void run_sequence(struct kvt_env *env, const struct sequence *sequence)
{
    struct run run = {.env = env, .sequence = sequence};
    bool is_disk = env->kind != KVT_TMPFS;
    kill_at_calls(&run, KVT_CHANGING_CALLS, is_disk ? 1500 : 6000, is_disk ? 6 : UINT_MAX);
    kill_at_calls(&run, KVT_ALL_CALLS, is_disk ? 1000 : 4000, 6);
    print_message("left:");
    for (size_t i = 0; i < OUTCOMES; i++) {
        if (run.counts[i])
            print_message(" %u %s", run.counts[i], outcome_words[i]);
    }
    print_message("\n");
    assert_true(run.kills >= LEAST_KILLS);
}

/* All of the content is new. */
#define ALL_NEW .size = SIZE, .len = SIZE

static void c23_killed_during_a_store(void **state)
{
    run_sequence(*state,
                 &(struct sequence){ALL_NEW, .act = store, .is_new = true, .block = ABSENT | NEW,
                                    .others = UNSEALED | NEW, .block_at_end = NEW});
}

static void c23_killed_during_a_direct_store(void **state)
{
    run_sequence(*state, &(struct sequence){ALL_NEW, .act = store, .flags = O_DIRECT,
                                            .is_new = true, .block = ABSENT | NEW,
                                            .others = UNSEALED | NEW, .block_at_end = NEW});
}

static void c23_killed_during_a_store_renamed_before_close(void **state)
{
    run_sequence(*state,
                 &(struct sequence){ALL_NEW, .act = store_renamed_before_close, .block = OLD | NEW,
                                    .others = UNSEALED | NEW, .block_at_end = NEW});
}

static void c04_killed_during_a_change_of_some_bytes(void **state)
{
    run_sequence(*state, &(struct sequence){.act = change_in_place,
                                            .size = SIZE,
                                            .from = MIB - 7,
                                            .len = 100000,
                                            .block = OLD | NEW | UNSEALED,
                                            .block_at_end = NEW});
}

static void c04_killed_during_a_rewrite_in_place(void **state)
{
    run_sequence(*state, &(struct sequence){ALL_NEW, .act = change_in_place,
                                            .block = OLD | NEW | UNSEALED, .block_at_end = NEW});
}

static void c04_killed_during_a_rewrite_with_o_trunc(void **state)
{
    run_sequence(*state, &(struct sequence){ALL_NEW, .act = change_in_place, .flags = O_TRUNC,
                                            .block = OLD | NEW | UNSEALED, .block_at_end = NEW});
}

static void c04_killed_during_a_truncation(void **state)
{
    run_sequence(*state, &(struct sequence){.act = cut_or_grow,
                                            .size = MIB + 9,
                                            .block = OLD | NEW | UNSEALED,
                                            .block_at_end = NEW});
}

static void c04_killed_while_growing(void **state)
{
    run_sequence(*state, &(struct sequence){.act = cut_or_grow,
                                            .size = SIZE + MIB - 9,
                                            .block = OLD | NEW | UNSEALED,
                                            .block_at_end = NEW});
}

static void c05_killed_during_a_change_of_a_corrupt_block(void **state)
{
    run_sequence(*state, &(struct sequence){.act = change_corrupt,
                                            .is_corrupt = true,
                                            .size = SIZE,
                                            .len = MIB,
                                            .block = ABSENT | CORRUPT,
                                            .others = CORRUPT,
                                            .block_at_end = ABSENT});
}

static void c05_killed_during_a_rewrite_of_a_corrupt_block(void **state)
{
    run_sequence(*state, &(struct sequence){ALL_NEW, .act = change_in_place, .is_corrupt = true,
                                            .block = CORRUPT | NEW, .block_at_end = NEW});
}

static void c13_killed_while_a_corrupt_block_is_removed(void **state)
{
    run_sequence(*state, &(struct sequence){ALL_NEW, .act = load_corrupt, .is_corrupt = true,
                                            .block = ABSENT | CORRUPT, .others = CORRUPT,
                                            .block_at_end = ABSENT});
}

static void c13_killed_while_a_corrupt_block_goes_to_quarantine(void **state)
{
    run_sequence(*state, &(struct sequence){ALL_NEW, .options = "on_corrupt=quarantine",
                                            .act = load_corrupt, .is_corrupt = true,
                                            .block = ABSENT | CORRUPT, .others = CORRUPT,
                                            .block_at_end = ABSENT});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c23_killed_during_a_store),
        kvt_test(c23_killed_during_a_direct_store),
        kvt_test(c23_killed_during_a_store_renamed_before_close),
        kvt_test(c04_killed_during_a_change_of_some_bytes),
        kvt_test(c04_killed_during_a_rewrite_in_place),
        kvt_test(c04_killed_during_a_rewrite_with_o_trunc),
        kvt_test(c04_killed_during_a_truncation),
        kvt_test(c04_killed_while_growing),
        kvt_test(c05_killed_during_a_change_of_a_corrupt_block),
        kvt_test(c05_killed_during_a_rewrite_of_a_corrupt_block),
        kvt_test(c13_killed_while_a_corrupt_block_is_removed),
        kvt_test(c13_killed_while_a_corrupt_block_goes_to_quarantine),
    };
    return kvt_main("kill", tests, sizeof(tests) / sizeof(tests[0]), KVT_TMPFS | KVT_EXT4);
}
