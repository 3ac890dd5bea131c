// SPDX-License-Identifier: Apache-2.0
// What becomes of a corrupt block (C13): its names, the kernel's idea of them, quarantine.
#include "tests/mount/fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SIZE            ((size_t)300000)
#define LONG_CACHES     "entry_timeout=3600,attr_timeout=3600"

/* 0 or -errno of open(2) and close(2). */
static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : kvt_close(fd);
}

/* A sealed block with one wrong bit. */
static void store_corrupt(struct kvt_env *env, const char *name)
{
    assert_int_equal(kvt_store(env, name, SIZE, 1, 0), 0);
    kvt_flip(kvt_src(env, name), 70000);
}

/* The kernel now has the name and its attributes in its caches. */
static void heat(const char *path)
{
    struct stat st;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(stat(path, &st), 0);
    }
}

/* Corrupt, refused, gone from everywhere at once, stored anew, and good. */
static void check_one_life(struct kvt_env *env)
{
    static const int accesses[] = {O_RDONLY, O_RDWR, O_RDONLY | O_DIRECT};
    for (size_t i = 0; i < COUNT_OF(accesses); i++) {
        store_corrupt(env, "a");
        heat(kvt_mnt(env, "a"));
        assert_int_equal(try_open(kvt_mnt(env, "a"), accesses[i]), -EBADMSG);
        kvt_assert_errno(ENOENT, access(kvt_mnt(env, "a"), F_OK));
        kvt_assert_gone(env, "a");
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -ENOENT);
        assert_int_equal(kvt_count_names(kvt_src(env, "")), 0);
        assert_int_equal(kvt_store(env, "a", SIZE, 2, 0), 0);
        assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
        kvt_assert_sealed_block(env, "a", SIZE, 2);
        assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    }
}

static void c13_the_name_is_gone_at_once(void **state)
{
    check_one_life(*state);
}

static void c13_the_name_is_gone_at_once_from_hot_caches(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES);
    check_one_life(env);
}

static void c13_the_name_is_gone_at_once_when_invalidated_by_name(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES ",invalidate=names");
    check_one_life(env);
}

static void check_links(struct kvt_env *env)
{
    assert_int_equal(mkdir(kvt_mnt(env, "d"), 0755), 0);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    assert_int_equal(link(kvt_mnt(env, "b"), kvt_mnt(env, "d/c")), 0);
    assert_int_equal(link(kvt_src(env, "a"), kvt_src(env, "below")), 0);
    heat(kvt_mnt(env, "a"));
    heat(kvt_mnt(env, "b"));
    heat(kvt_mnt(env, "d/c"));
    heat(kvt_mnt(env, "below"));
    kvt_flip(kvt_src(env, "a"), 70000);
    assert_int_equal(try_open(kvt_mnt(env, "b"), O_RDONLY), -EBADMSG);
    kvt_assert_errno(ENOENT, access(kvt_mnt(env, "d/c"), F_OK));
    kvt_assert_gone(env, "a");
    kvt_assert_gone(env, "b");
    kvt_assert_gone(env, "d/c");
    kvt_assert_gone(env, "below");
}

static void c13_all_known_links_are_gone(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES);
    check_links(env);
}

static void c13_all_known_links_are_gone_when_invalidated_by_name(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES ",invalidate=names");
    check_links(env);
}

/* The daemon cannot know it; when it is opened its turn comes. */
static void c13_a_link_that_nobody_looked_up_goes_when_it_is_opened(void **state)
{
    struct kvt_env *env = *state;
    store_corrupt(env, "a");
    assert_int_equal(link(kvt_src(env, "a"), kvt_src(env, "below")), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
    assert_false(kvt_is_gone(kvt_src(env, "below")));
    assert_int_equal(try_open(kvt_mnt(env, "below"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "below");
}

static void c13_a_renamed_block_is_gone_under_its_new_name(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES);
    assert_int_equal(mkdir(kvt_mnt(env, "d"), 0755), 0);
    store_corrupt(env, "a");
    assert_int_equal(rename(kvt_mnt(env, "a"), kvt_mnt(env, "d/b")), 0);
    assert_int_equal(rename(kvt_mnt(env, "d"), kvt_mnt(env, "e")), 0);
    assert_int_equal(try_open(kvt_mnt(env, "e/b"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "e/b");
}

/* Another node stored the block anew under the name while this one looked at the old inode. */
static void c13_a_name_that_was_stored_anew_stays(void **state)
{
    struct kvt_env *env = *state;
    char again[64];
    kvt_start(env, LONG_CACHES);
    store_corrupt(env, "a");
    assert_int_equal(link(kvt_src(env, "a"), kvt_src(env, "below")), 0); // keeps the inode
    int fd = kvt_open(kvt_mnt(env, "a"), O_PATH);
    assert_int_equal(kvt_write_file(kvt_src(env, "new"), O_WRONLY | O_CREAT, SIZE, 2, 0), 0);
    assert_int_equal(kvt_set_record(kvt_src(env, "new"), kvt_sum_of(kvt_src(env, "new"))), 0);
    assert_int_equal(rename(kvt_src(env, "new"), kvt_src(env, "a")), 0);
    snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
    assert_int_equal(try_open(again, O_RDONLY), -EBADMSG);
    close(fd);
    kvt_assert_sealed_block(env, "a", SIZE, 2);
    assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
}

/* Who has opened the block before it rotted goes on reading what was verified. */
static void c13_earlier_readers_are_not_disturbed(void **state)
{
    struct kvt_env *env = *state;
    kvt_not_with("buffers=off", "what was verified is read again, and is not there any more");
    unsigned char *block = kvt_block(SIZE, 1), *bytes = kvt_block(SIZE, 9);
    kvt_start(env, "passthrough=off"); // with it the reader sees the page that is changed
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    kvt_flip(kvt_src(env, "a"), 70000);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
    assert_int_equal(kvt_store(env, "a", SIZE, 2, 0), 0);
    assert_int_equal(pread(fd, bytes, SIZE, 0), SIZE);
    assert_memory_equal(bytes, block, SIZE);
    close(fd);
    free(block);
    free(bytes);
    assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
}

static void c13_truncation_of_a_corrupt_block_is_refused(void **state)
{
    struct kvt_env *env = *state;
    static const off_t sizes[] = {1, SIZE - 1, SIZE + 1};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        store_corrupt(env, "a");
        heat(kvt_mnt(env, "a"));
        kvt_assert_errno(EBADMSG, truncate(kvt_mnt(env, "a"), sizes[i]));
        kvt_assert_gone(env, "a");
    }
    store_corrupt(env, "a");
    assert_int_equal(truncate(kvt_mnt(env, "a"), 0), 0);
    kvt_assert_sealed_block(env, "a", 0, 0);
}

/* ---- several at once ---- */

struct opener {
    pthread_t thread;
    const char *path;
    atomic_bool *is_over; /* for who goes on until then */
    int error;
};

static void *open_once(void *argument)
{
    struct opener *opener = argument;
    opener->error = try_open(opener->path, O_RDONLY);
    return NULL;
}

/* Creations and removals keep the directory's lock busy, which an invalidation by name takes. */
static void *create_and_remove(void *argument)
{
    struct opener *opener = argument;
    while (!atomic_load(opener->is_over) && !opener->error) {
        int fd = open(opener->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        opener->error = fd < 0 ? -errno : kvt_close(fd);
        if (!opener->error && unlink(opener->path) != 0)
            opener->error = -errno;
    }
    return NULL;
}

static void check_crowd(struct kvt_env *env)
{
    char path[PATH_MAX], other[2][PATH_MAX + 8];
    atomic_bool is_over = false;
    struct opener creators[2], openers[8];
    snprintf(path, sizeof(path), "%s", kvt_mnt(env, "a"));
    for (size_t i = 0; i < COUNT_OF(creators); i++) {
        snprintf(other[i], sizeof(other[i]), "%s_%zu", path, i);
        creators[i] = (struct opener){.path = other[i], .is_over = &is_over};
        pthread_create(&creators[i].thread, NULL, create_and_remove, &creators[i]);
    }
    int wrong = 0;
    for (int round = 0; round < 10; round++) {
        int refused = 0;
        store_corrupt(env, "a");
        for (size_t i = 0; i < COUNT_OF(openers); i++) {
            openers[i] = (struct opener){.path = path};
            pthread_create(&openers[i].thread, NULL, open_once, &openers[i]);
        }
        for (size_t i = 0; i < COUNT_OF(openers); i++) {
            pthread_join(openers[i].thread, NULL);
            refused += openers[i].error == -EBADMSG;
            if (openers[i].error != -EBADMSG && openers[i].error != -ENOENT)
                wrong = openers[i].error ? openers[i].error : 1;
        }
        wrong = refused ? wrong : 2;
        wrong = kvt_is_gone(path) ? wrong : 3;
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < COUNT_OF(creators); i++) {
        pthread_join(creators[i].thread, NULL);
        assert_int_equal(creators[i].error, 0);
    }
    assert_int_equal(wrong, 0);
}

static void c13_many_open_it_at_once(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES);
    check_crowd(env);
}

static void c13_many_open_it_at_once_when_invalidated_by_name(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, LONG_CACHES ",invalidate=names");
    check_crowd(env);
}

/* ---- quarantine ---- */

/* The one block, or the one cause, in the source's quarantine; fails the test when there is another
 * number of them. */
static const char *find_quarantined(struct kvt_env *env, bool is_cause)
{
    static char found[2][PATH_MAX + NAME_MAX + 2];
    char directory[PATH_MAX];
    unsigned count = 0;
    snprintf(directory, sizeof(directory), "%s/.kvseal/quarantine", env->source);
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.' || is_cause != (dot && strcmp(dot, ".cause") == 0))
            continue;
        snprintf(found[is_cause], sizeof(found[0]), "%s/%s", directory, entry->d_name);
        count++;
    }
    closedir(stream);
    assert_int_equal(count, 1);
    return found[is_cause];
}

/* The block was quarantined as NAME-TIME-INODE from DIR/NAME. */
static void check_cause(struct kvt_env *env, const char *moved, const char *cause,
                        uint32_t expected, uint32_t computed)
{
    char text[4096] = "", wanted[PATH_MAX];
    const char *name = strrchr(moved, '/') + 1;
    assert_int_equal(strncmp(moved, cause, strlen(moved)), 0);
    int fd = kvt_open(cause, O_RDONLY);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    snprintf(wanted, sizeof(wanted), "path: %s/%.*s\nsize: %zu\nexpected: %08x\ncomputed: %08x\n",
             env->dir, (int)strcspn(name, "-"), name, SIZE, expected, computed);
    if (strncmp(text, wanted, strlen(wanted)) != 0)
        fail_msg("%s says:\n%sand not:\n%s", cause, text, wanted);
}

static void check_quarantine(struct kvt_env *env)
{
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    uint32_t expected = kvt_sum_of(kvt_src(env, "a"));
    kvt_flip(kvt_src(env, "a"), 70000);
    uint32_t computed = kvt_sum_of(kvt_src(env, "a"));
    assert_int_equal(link(kvt_mnt(env, "a"), kvt_mnt(env, "b")), 0);
    heat(kvt_mnt(env, "a"));
    heat(kvt_mnt(env, "b"));
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
    kvt_assert_gone(env, "b");

    const char *moved = find_quarantined(env, false), *cause = find_quarantined(env, true);
    check_cause(env, moved, cause, expected, computed);
    assert_int_equal(kvt_sum_of(moved), computed);
    assert_int_equal(kvt_record_of(moved).crc, expected);
    unlink(moved);
    unlink(cause);

    assert_int_equal(kvt_store(env, "a", SIZE, 2, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
}

/* Two processes at once: one loads the corrupt block, the other stores it anew in place. Where its
 * name was taken away before that, the new bytes have no name; after that, it stays. */
static void load_beside_a_store_in_place(struct kvt_env *env, unsigned round)
{
    const char *path = kvt_mnt(env, "a");
    int status;
    pid_t loader = fork();
    if (loader == 0) {
        int error = try_open(path, O_RDONLY);
        _exit(error == 0 || error == -EBADMSG ? 0 : -error);
    }
    assert_int_not_equal(loader, -1);
    usleep(round % 30 * 50); // at many points of the load
    int error = kvt_write_file(path, O_WRONLY | O_TRUNC, SIZE, 2, 0);
    assert_true(error == 0 || error == -ENOENT);
    bool is_stored = error == 0 && !kvt_is_gone(kvt_src(env, "a"));
    assert_int_equal(waitpid(loader, &status, 0), loader);
    assert_int_equal(status, 0);
    if (is_stored)
        kvt_assert_sealed_block(env, "a", SIZE, 2);
    else
        kvt_assert_gone(env, "a");
}

static void c13_a_block_that_was_stored_anew_in_place_stays(void **state)
{
    struct kvt_env *env = *state;
    for (unsigned round = 0; round < 300; round++) {
        store_corrupt(env, "a");
        load_beside_a_store_in_place(env, round);
        assert_int_equal(kvt_store(env, "a", SIZE, 3, 0), 0); // the refusal is over
        assert_int_equal(kvt_load(env, "a", SIZE, 3, 0), 0);
        kvt_assert_sealed_block(env, "a", SIZE, 3);
    }
}

static void c13_quarantine_keeps_the_block_and_its_cause(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=quarantine," LONG_CACHES);
    check_quarantine(env);
}

static void c13_quarantine_when_invalidated_by_name(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=quarantine,invalidate=names," LONG_CACHES);
    check_quarantine(env);
}

/* ---- kept ---- */

static void assert_kept(struct kvt_env *env, const char *name)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_open(kvt_mnt(env, name), O_RDONLY), -EBADMSG);
        assert_false(kvt_is_gone(kvt_src(env, name)));
        assert_int_equal(access(kvt_mnt(env, name), F_OK), 0);
        assert_int_equal(kvt_record_of(kvt_src(env, name)).kind, KVS_RECORD_SUM);
    }
}

static void c13_keep_leaves_it(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=keep");
    store_corrupt(env, "a");
    assert_kept(env, "a");
    assert_int_equal(kvt_store(env, "a", SIZE, 2, 0), 0); // over it
    assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
}

static void c13_a_read_only_mount_leaves_it(void **state)
{
    struct kvt_env *env = *state;
    static const char *const options[] = {"ro", "ro,on_corrupt=quarantine"};
    assert_int_equal(kvt_store(env, "good", SIZE, 2, 0), 0);
    store_corrupt(env, "a");
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        kvt_start(env, options[i]);
        assert_kept(env, "a");
        assert_int_equal(kvt_load(env, "good", SIZE, 2, 0), 0);
    }
}

static void c13_a_read_only_source_leaves_it(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "on_corrupt=remove");
    store_corrupt(env, "a");
    /* EBUSY while the daemon has still to close what was stored. */
    kvt_wait_for(mount(NULL, env->source, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    int error = try_open(kvt_mnt(env, "a"), O_RDONLY);
    bool is_gone = kvt_is_gone(kvt_mnt(env, "a")) || kvt_is_gone(kvt_src(env, "a"));
    assert_int_equal(mount(NULL, env->source, NULL, MS_REMOUNT | MS_BIND, NULL), 0);
    assert_int_equal(error, -EBADMSG);
    assert_false(is_gone);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
}

/* ---- .kvseal ---- */

/* What is there by that name is the control directory (test_control.c). */
static void c13_the_state_directory_does_not_exist_through_the_mount(void **state)
{
    struct kvt_env *env = *state;
    char hidden[PATH_MAX], below[PATH_MAX], inside[PATH_MAX];
    struct stat st;
    snprintf(below, sizeof(below), "%s/.kvseal", env->source);
    snprintf(hidden, sizeof(hidden), "%s/.kvseal", env->mnt);
    snprintf(inside, sizeof(inside), "%s/.kvseal/quarantine", env->mnt);
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    assert_true(mkdir(below, 0700) == 0 || errno == EEXIST);

    assert_int_equal(stat(below, &st), 0);
    ino_t real = st.st_ino;
    assert_int_equal(stat(hidden, &st), 0);
    assert_true(st.st_ino != real);
    kvt_assert_errno(ENOENT, stat(inside, &st));
    kvt_assert_errno(EPERM, rmdir(hidden));
    kvt_assert_errno(EISDIR, unlink(hidden));
    kvt_assert_errno(EPERM, rename(hidden, kvt_mnt(env, "b")));
    assert_int_equal(kvt_count_names(env->mnt) + 1, kvt_count_names(env->source));

    kvt_assert_errno(EEXIST, mkdir(hidden, 0755));
    kvt_assert_errno(EEXIST, mknod(hidden, S_IFREG | 0644, 0));
    kvt_assert_errno(EISDIR, open(hidden, O_WRONLY | O_CREAT, 0644));
    kvt_assert_errno(EISDIR, rename(kvt_mnt(env, "a"), hidden));
    kvt_assert_errno(EEXIST, symlink("a", hidden));
    kvt_assert_errno(EEXIST, link(kvt_mnt(env, "a"), hidden));
    assert_int_equal(mkdir(kvt_mnt(env, "d"), 0755), 0);
    kvt_assert_errno(EPERM, rename(kvt_mnt(env, "d"), hidden));
    kvt_assert_errno(EPERM,
                     renameat2(AT_FDCWD, kvt_mnt(env, "d"), AT_FDCWD, hidden, RENAME_EXCHANGE));
    assert_int_equal(rmdir(kvt_mnt(env, "d")), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    assert_int_equal(stat(below, &st), 0);
}

/* Only the one at the top is special. */
static void c13_a_directory_of_that_name_elsewhere_is_ordinary(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(mkdir(kvt_mnt(env, ".kvseal"), 0755), 0);
    assert_int_equal(kvt_store(env, ".kvseal/a", SIZE, 1, 0), 0);
    assert_int_equal(kvt_load(env, ".kvseal/a", SIZE, 1, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c13_the_name_is_gone_at_once),
        kvt_test(c13_the_name_is_gone_at_once_from_hot_caches),
        kvt_test(c13_the_name_is_gone_at_once_when_invalidated_by_name),
        kvt_test(c13_all_known_links_are_gone),
        kvt_test(c13_all_known_links_are_gone_when_invalidated_by_name),
        kvt_test(c13_a_link_that_nobody_looked_up_goes_when_it_is_opened),
        kvt_test(c13_a_renamed_block_is_gone_under_its_new_name),
        kvt_test(c13_a_name_that_was_stored_anew_stays),
        kvt_test(c13_a_block_that_was_stored_anew_in_place_stays),
        kvt_test(c13_earlier_readers_are_not_disturbed),
        kvt_test(c13_truncation_of_a_corrupt_block_is_refused),
        kvt_test(c13_many_open_it_at_once),
        kvt_test(c13_many_open_it_at_once_when_invalidated_by_name),
        kvt_test(c13_quarantine_keeps_the_block_and_its_cause),
        kvt_test(c13_quarantine_when_invalidated_by_name),
        kvt_test(c13_keep_leaves_it),
        kvt_test(c13_a_read_only_mount_leaves_it),
        kvt_test(c13_a_read_only_source_leaves_it),
        kvt_test(c13_the_state_directory_does_not_exist_through_the_mount),
        kvt_test(c13_a_directory_of_that_name_elsewhere_is_ordinary),
    };
    return kvt_main("load_corrupt", tests, COUNT_OF(tests), KVT_DISKS);
}
