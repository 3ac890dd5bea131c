// SPDX-License-Identifier: Apache-2.0
// Buffered loads by kernel passthrough: verified, locked pages (C11), and no open that the kernel
// refuses, whatever handles meet on an inode.
#include "tests/mount/fixture.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB             ((size_t)1 << 20)
#define SIZE            (3 * MIB + 12345)
#define ROOM_KIB        ((SIZE + 4095) / 4096 * 4)

/* 0 or -errno of open(2) and close(2). */
static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : kvt_close(fd);
}

static size_t locked_kib(struct kvt_env *env)
{
    char path[64], line[256];
    size_t kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)env->daemon);
    FILE *status = fopen(path, "re");
    assert_non_null(status);
    while (fgets(line, sizeof(line), status))
        sscanf(line, "VmLck: %zu kB", &kib);
    fclose(status);
    return kib;
}

static unsigned idle_fds; /* of a daemon without open files */

/* A daemon that serves by passthrough; skips where it says that it cannot. */
static void start(struct kvt_env *env, const char *options)
{
    kvt_not_with("pinned_memory=1M", "it has no room for these blocks");
    kvt_start(env, options);
    idle_fds = kvt_count_fds(env->daemon);
    for (int i = 0; i < 20; i++) { // it may be busy with a look-up
        usleep(1000);
        unsigned fds = kvt_count_fds(env->daemon);
        idle_fds = fds < idle_fds ? fds : idle_fds;
    }
    uint64_t deadline = kvt_now_ms() + KVT_PATIENCE_SEC * 1000;
    while (!kvt_log_has(env, "buffered loads: ") && kvt_now_ms() < deadline) {
        assert_int_equal(kvt_store(env, "probe", 4096, 1, 0), 0);
        assert_int_equal(kvt_load(env, "probe", 4096, 1, 0), 0);
        assert_int_equal(unlink(kvt_mnt(env, "probe")), 0);
        usleep(1000);
    }
    assert_true(kvt_log_has(env, "buffered loads: "));
    if (!kvt_log_has(env, "buffered loads: by kernel passthrough")) {
        print_message("no passthrough here\n");
        skip();
    }
}

/* A stored block that nobody has open (RELEASE comes some time after close(2), and until then a
 * handle keeps its mode), and whose times are so old that its pin may be used again. */
static void store_settled(struct kvt_env *env, const char *name)
{
    assert_int_equal(kvt_store(env, name, SIZE, 1, 0), 0);
    kvt_wait_for(kvt_count_fds(env->daemon) <= idle_fds);
    usleep(50000);
}

static void check_bytes(int fd, size_t size, unsigned seed)
{
    unsigned char *block = kvt_block(size, seed), *bytes = kvt_block(size, seed + 1);
    assert_int_equal(pread(fd, bytes, size, 0), size);
    assert_memory_equal(bytes, block, size);
    free(block);
    free(bytes);
}

/* Flips a bit on the device, below the page cache. */
static void rot_on_device(struct kvt_env *env, const char *name, size_t offset)
{
    _Alignas(8) char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)] = {0};
    struct fiemap *map = (struct fiemap *)room;
    *map = (struct fiemap){.fm_start = offset, .fm_length = 1, .fm_extent_count = 1};
    char image[PATH_MAX];
    unsigned char byte;
    int fd = kvt_open(kvt_src(env, name), O_RDONLY);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(ioctl(fd, FS_IOC_FIEMAP, map), 0);
    assert_int_equal(map->fm_mapped_extents, 1);
    close(fd);
    off_t at = (off_t)(map->fm_extents[0].fe_physical + offset - map->fm_extents[0].fe_logical);
    snprintf(image, sizeof(image), "%s/image", env->work);
    fd = kvt_open(image, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* ---- loads ---- */

static void c11_pages_are_locked_while_a_load_is_open(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    assert_int_equal(locked_kib(env), 0);
    int first = kvt_open(kvt_mnt(env, "a"), O_RDONLY),
        second = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(locked_kib(env), ROOM_KIB);
    check_bytes(first, SIZE, 1);
    check_bytes(second, SIZE, 1);
    close(first);
    check_bytes(second, SIZE, 1);
    close(second);
    int again = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(locked_kib(env), ROOM_KIB);
    check_bytes(again, SIZE, 1);
    close(again);
    assert_int_equal(unlink(kvt_mnt(env, "a")), 0);
    kvt_wait_for(locked_kib(env) == 0); // its space is given back
}

static void c11_a_cold_block_is_read_into_locked_pages(void **state)
{
    struct kvt_env *env = *state;
    kvt_only_on(env, KVT_DISKS & ~KVT_TMPFS);
    start(env, NULL);
    store_settled(env, "a");
    kvt_drop_cache(kvt_src(env, "a"));
    int cold = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(locked_kib(env), ROOM_KIB);
    check_bytes(cold, SIZE, 1);
    close(cold);
}

static void c11_every_way_to_read_gives_the_bytes(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (size_t size = 1; size <= SIZE; size = size * 37 + 4095) {
        assert_int_equal(kvt_store(env, "a", size, 1, 0), 0);
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        readahead(fd, 0, size); // comes to the daemon
        check_bytes(fd, size, 1);
        unsigned char *block = kvt_block(size, 1);
        void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        close(fd);
        assert_memory_equal(map, block, size);
        munmap(map, size);
        free(block);
    }
}

static void c11_rot_below_locked_pages_is_not_served(void **state)
{
    struct kvt_env *env = *state;
    kvt_only_on(env, KVT_EXT4 | KVT_XFS);
    start(env, NULL);
    store_settled(env, "a");
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    rot_on_device(env, "a", 2 * MIB + 5);
    kvt_drop_cache(kvt_src(env, "a"));
    check_bytes(fd, SIZE, 1);
    close(fd);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0); // the pages are the verified ones still
    kvt_remount(env);
    kvt_drop_cache(kvt_src(env, "a"));
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    kvt_assert_gone(env, "a");
}

static void c10_what_changed_since_is_summed_again(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (int is_open = 0; is_open < 2; is_open++) {
        store_settled(env, "a");
        int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        if (!is_open)
            close(fd);
        kvt_flip(kvt_src(env, "a"), MIB);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
        kvt_assert_gone(env, "a");
        if (is_open)
            close(fd);

        store_settled(env, "a");
        fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        if (!is_open)
            close(fd);
        kvt_set_record(kvt_src(env, "a"), 7);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
        kvt_assert_gone(env, "a");
        if (is_open)
            close(fd);
    }
    assert_int_equal(kvt_store(env, "a", SIZE, 3, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 3, 0), 0);
}

static void c10_an_exact_replacement_below_is_taken(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(kvt_write_file(kvt_src(env, "a"), O_WRONLY, SIZE, 2, 0), 0);
    assert_int_equal(kvt_set_record(kvt_src(env, "a"), kvt_sum_of(kvt_src(env, "a"))), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
    close(fd);
    assert_int_equal(kvt_load(env, "a", SIZE, 2, 0), 0);
}

/* Who cuts or empties the file below takes the pages away, locked or not. */
static void c11_a_cut_below_does_not_end_the_daemon(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    assert_int_equal(kvt_store(env, "b", SIZE, 2, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(truncate(kvt_src(env, "a"), MIB), 0);
    readahead(fd, 0, SIZE);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 2 * MIB), 0);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), -EBADMSG);
    assert_int_equal(truncate(kvt_src(env, "b"), 0), 0);
    assert_int_equal(try_open(kvt_mnt(env, "b"), O_RDONLY), -EBADMSG);
    close(fd);
    assert_int_equal(kvt_store(env, "a", SIZE, 3, 0), 0);
    assert_int_equal(kvt_load(env, "a", SIZE, 3, 0), 0);
}

static void c11_locked_memory_is_bounded(void **state)
{
    struct kvt_env *env = *state;
    int fds[24];
    char name[16];
    start(env, "pinned_memory=8M");
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT_OF(fds); i++) {
            snprintf(name, sizeof(name), "%u", i);
            if (round == 0)
                assert_int_equal(kvt_store(env, name, MIB + 1, i, 0), 0);
            fds[i] = kvt_open(kvt_mnt(env, name), O_RDONLY);
            assert_in_range(locked_kib(env), MIB / 1024, 8 * MIB / 1024);
        }
        for (unsigned i = 0; i < COUNT_OF(fds); i++) {
            check_bytes(fds[i], MIB + 1, i);
            close(fds[i]);
        }
    }
    assert_int_equal(kvt_store(env, "large", 3 * MIB, 1, 0), 0); // more than a quarter
    assert_int_equal(kvt_load(env, "large", 3 * MIB, 1, 0), 0);
}

/* Who joins without room for a pin may map the pages that another one's pin keeps. */
static void c11_pages_stay_locked_while_anybody_may_map_them(void **state)
{
    struct kvt_env *env = *state;
    static const char *const names[] = {"a", "b", "c", "d"};
    int fds[COUNT_OF(names)];
    start(env, "pinned_memory=8M");
    for (unsigned i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(kvt_store(env, names[i], 2 * MIB, i, 0), 0);
        fds[i] = kvt_open(kvt_mnt(env, names[i]), O_RDONLY);
    }
    assert_int_equal(locked_kib(env), 8 * MIB / 1024);
    assert_int_equal(chmod(kvt_mnt(env, "a"), 0600), 0); // its pin is no longer known
    int joined = kvt_open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT);
    close(fds[0]);
    kvt_wait_for(kvt_count_fds(env->daemon) == idle_fds + COUNT_OF(names));
    assert_int_equal(locked_kib(env), 8 * MIB / 1024);
    void *map = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, joined, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    munmap(map, 2 * MIB);
    close(joined);
    kvt_wait_for(locked_kib(env) == 6 * MIB / 1024);
    for (unsigned i = 1; i < COUNT_OF(names); i++)
        close(fds[i]);
}

static void c11_switched_off_it_locks_nothing(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "passthrough=off");
    assert_int_equal(kvt_store(env, "a", SIZE, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    check_bytes(fd, SIZE, 1);
    assert_int_equal(locked_kib(env), 0);
    close(fd);
    assert_true(kvt_log_contains(env, "no passthrough: switched off"));
}

/* ---- others beside a load ---- */

static const int joiners[] = {
    O_WRONLY,          O_RDWR,           O_WRONLY | O_DIRECT,           O_RDWR | O_DIRECT,
    O_WRONLY | O_SYNC, O_RDWR | O_TRUNC, O_WRONLY | O_TRUNC | O_DIRECT, O_RDWR | O_APPEND};

static void c07_a_writer_that_writes_nothing_leaves_it_sealed(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    struct stat before, after;
    assert_int_equal(stat(kvt_src(env, "a"), &before), 0);
    for (size_t i = 0; i < COUNT_OF(joiners); i++) {
        if (joiners[i] & O_TRUNC)
            continue;
        int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        int writer = kvt_open(kvt_mnt(env, "a"), joiners[i]);
        bool can_map = (joiners[i] & O_ACCMODE) == O_RDWR;
        assert_int_equal(kvt_record_of(kvt_src(env, "a")).kind,
                         can_map ? KVS_RECORD_NONE : KVS_RECORD_SUM);
        check_bytes(reader, SIZE, 1);
        assert_int_equal(kvt_close(writer), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
        check_bytes(reader, SIZE, 1);
        assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
        close(reader);
    }
    assert_int_equal(stat(kvt_src(env, "a"), &after), 0);
    assert_int_equal(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

static void c11_readers_see_what_a_joined_writer_wrote(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    for (size_t i = 0; i < COUNT_OF(joiners); i++) {
        store_settled(env, "a");
        int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        int writer = kvt_open(kvt_mnt(env, "a"), joiners[i]);
        kvt_put(writer, MIB, 2, 0);
        struct stat st;
        assert_int_equal(stat(kvt_src(env, "a"), &st), 0);
        off_t at = joiners[i] & O_APPEND ? st.st_size - (off_t)MIB : 0;
        unsigned char *block = kvt_block(MIB, 2), *bytes = kvt_block(MIB, 9);
        assert_int_equal(pread(reader, bytes, MIB, at), MIB);
        assert_memory_equal(bytes, block, MIB);
        assert_int_equal(kvt_close(writer), 0);
        kvt_assert_sealed(kvt_src(env, "a"));
        assert_int_equal(pread(reader, bytes, MIB, at), MIB);
        assert_memory_equal(bytes, block, MIB);
        close(reader);
        free(block);
        free(bytes);
        assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    }
}

/* The mapping outlives the handle, and the daemon sees nothing of what goes through it. */
static void c11_unseen_mapped_writes_are_sealed(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    int writer = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0), bytes[5];
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map + MIB, "first", 5);
    assert_int_equal(kvt_close(writer), 0);
    memcpy(map + MIB, "later", 5);
    assert_int_equal(pread(reader, bytes, 5, MIB), 5);
    assert_memory_equal(bytes, "later", 5);
    int late = kvt_open(kvt_mnt(env, "a"), O_RDONLY); // no false alarm (C15)
    assert_int_equal(pread(late, bytes, 5, MIB), 5);
    assert_memory_equal(bytes, "later", 5);
    close(late);
    munmap(map, SIZE);
    close(reader);
    kvt_wait_for(try_open(kvt_mnt(env, "a"), O_RDONLY) == 0 &&
                 kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_SUM);
    kvt_assert_sealed(kvt_src(env, "a"));
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    assert_false(kvt_log_has(env, "corrupt block"));
}

/* As long as the mapping may write, there is no record that could become wrong. */
static void c04_a_mapping_that_stays_keeps_it_unsealed(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    int writer = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(kvt_close(writer), 0);
    close(reader);
    kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_NONE);
    memcpy(map, "mapped", 6);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    munmap(map, SIZE);
    kvt_stop(env); // seals what is owed (C23)
    kvt_assert_sealed(kvt_src(env, "a"));
}

static void c04_truncation_by_a_joined_writer_drops_the_record_again(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    int writer = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    assert_int_equal(kvt_close(dup(writer)), 0);
    kvt_assert_sealed_block(env, "a", SIZE, 1); // for now
    assert_int_equal(ftruncate(writer, 4096), 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    kvt_put(writer, 4096, 2, 0);
    kvt_assert_unsealed(kvt_src(env, "a"));
    assert_int_equal(kvt_close(writer), 0);
    close(reader);
    kvt_wait_for(kvt_record_of(kvt_src(env, "a")).kind == KVS_RECORD_SUM);
    kvt_assert_sealed_block(env, "a", 4096, 2);
}

static void c23_killed_beside_a_joined_writer_leaves_it_unsealed(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    int writer = kvt_open(kvt_mnt(env, "a"), O_RDWR);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map, "mapped", 6);
    kvt_kill(env);
    kvt_assert_unsealed(kvt_src(env, "a"));
    munmap(map, SIZE);
    close(writer);
    close(reader);
    kvt_remount(env);
    assert_int_equal(try_open(kvt_mnt(env, "a"), O_RDONLY), 0);
}

static void c11_direct_readers_join(void **state)
{
    struct kvt_env *env = *state;
    start(env, NULL);
    store_settled(env, "a");
    int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, KVT_DIRECT), 0);
    int direct = kvt_open(kvt_mnt(env, "a"), O_RDONLY | O_DIRECT);
    close(reader);
    check_bytes(direct, SIZE, 1);
    assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
    close(direct);
    kvt_assert_sealed(kvt_src(env, "a"));
}

/* A mapping of a handle of another mode shuts passthrough out: nobody may notice. */
static void c11_loads_beside_others_are_served_by_the_daemon(void **state)
{
    struct kvt_env *env = *state;
    static const int others[] = {O_RDONLY | O_DIRECT, O_WRONLY, O_RDWR, O_WRONLY | O_DIRECT};
    start(env, NULL);
    store_settled(env, "a");
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        int other = kvt_open(kvt_mnt(env, "a"), others[i]);
        bool is_mapped = (others[i] & O_ACCMODE) != O_WRONLY;
        void *map = is_mapped ? mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other, 0) : NULL;
        assert_ptr_not_equal(map, MAP_FAILED);
        int reader = kvt_open(kvt_mnt(env, "a"), O_RDONLY);
        check_bytes(reader, SIZE, 1);
        assert_int_equal(kvt_close(other), 0);
        assert_int_equal(kvt_load(env, "a", SIZE, 1, 0), 0);
        kvt_assert_sealed(kvt_src(env, "a")); // untouched: no writer joined a passthrough
        if (is_mapped)
            munmap(map, SIZE);
        close(reader);
    }
}

/* ---- all at once ---- */

#define STORM_SIZE      ((size_t)100000)
#define STORM_PROCESSES 6
#define STORM_ROUNDS    400

/* One open of whatever kind, by one of the processes. 0; -errno; 1: short, 2: wrong bytes. */
static int open_in_storm(const char *path, unsigned dice, const unsigned char *block,
                         unsigned char *bytes)
{
    static const int kinds[] = {O_RDONLY, O_RDONLY, O_RDONLY,           O_RDONLY | O_DIRECT,
                                O_RDWR,   O_WRONLY, O_WRONLY | O_DIRECT};
    int flags = kinds[dice % COUNT_OF(kinds)], error = 0;
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    bool is_writer = (flags & O_ACCMODE) != O_RDONLY;
    if (is_writer && dice & 1024) // the same bytes again: whoever reads sees no difference
        error = kvt_write(fd, block, STORM_SIZE / 4096 * 4096, 0, 0);
    if (!error && (flags & O_ACCMODE) != O_WRONLY && dice & 2048) {
        void *map = mmap(NULL, STORM_SIZE, PROT_READ, MAP_SHARED, fd, 0);
        error = map == MAP_FAILED ? -errno : memcmp(map, block, STORM_SIZE) != 0 ? 2 : 0;
        if (map != MAP_FAILED)
            munmap(map, STORM_SIZE);
    }
    if (!error && (flags & O_ACCMODE) != O_WRONLY) {
        ssize_t n = pread(fd, bytes, STORM_SIZE, 0);
        error = n < 0                                   ? -errno
                : n != (ssize_t)STORM_SIZE              ? 1
                : memcmp(bytes, block, STORM_SIZE) != 0 ? 2
                                                        : 0;
    }
    int close_error = kvt_close(fd);
    return error ? error : close_error;
}

static void run_in_storm(const char *paths[2], unsigned number)
{
    unsigned char *block = kvt_block(STORM_SIZE, 1), *bytes = kvt_block(STORM_SIZE, 2);
    uint32_t state = number + 1;
    int error = 0;
    for (unsigned i = 0; i < STORM_ROUNDS && !error; i++) {
        state = state * 1664525 + 1013904223;
        error = open_in_storm(paths[state >> 31], state >> 12, block, bytes);
        if (error)
            fprintf(stderr, "round %u, dice %#x: %s\n", i, state >> 12,
                    error == 1   ? "a short read"
                    : error == 2 ? "wrong bytes"
                                 : strerror(-error));
    }
    _exit(error ? 1 : 0);
}

static void c11_no_open_is_refused_in_a_storm(void **state)
{
    struct kvt_env *env = *state;
    pid_t pids[STORM_PROCESSES];
    unsigned failures = 0;
    kvt_start(env, NULL);
    unsigned fds_before = kvt_count_fds(env->daemon);
    assert_int_equal(kvt_store(env, "a", STORM_SIZE, 1, 0), 0);
    assert_int_equal(kvt_store(env, "b", STORM_SIZE, 1, 0), 0);
    const char *paths[2] = {kvt_mnt(env, "a"), kvt_mnt(env, "b")};
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        pids[i] = fork();
        assert_int_not_equal(pids[i], -1);
        if (pids[i] == 0)
            run_in_storm(paths, i);
    }
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        failures += status != 0;
    }
    assert_int_equal(failures, 0);
    assert_false(kvt_log_has(env, "corrupt block"));
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        assert_int_equal(kvt_load_path(paths[i], STORM_SIZE, 1, 0), 0);
    kvt_wait_for(kvt_count_fds(env->daemon) <= fds_before);
    kvt_stop(env);
    kvt_assert_sealed_block(env, "a", STORM_SIZE, 1);
    kvt_assert_sealed_block(env, "b", STORM_SIZE, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c11_pages_are_locked_while_a_load_is_open),
        kvt_test(c11_a_cold_block_is_read_into_locked_pages),
        kvt_test(c11_every_way_to_read_gives_the_bytes),
        kvt_test(c11_rot_below_locked_pages_is_not_served),
        kvt_test(c10_what_changed_since_is_summed_again),
        kvt_test(c10_an_exact_replacement_below_is_taken),
        kvt_test(c11_a_cut_below_does_not_end_the_daemon),
        kvt_test(c11_locked_memory_is_bounded),
        kvt_test(c11_pages_stay_locked_while_anybody_may_map_them),
        kvt_test(c11_switched_off_it_locks_nothing),
        kvt_test(c07_a_writer_that_writes_nothing_leaves_it_sealed),
        kvt_test(c11_readers_see_what_a_joined_writer_wrote),
        kvt_test(c11_unseen_mapped_writes_are_sealed),
        kvt_test(c04_a_mapping_that_stays_keeps_it_unsealed),
        kvt_test(c04_truncation_by_a_joined_writer_drops_the_record_again),
        kvt_test(c23_killed_beside_a_joined_writer_leaves_it_unsealed),
        kvt_test(c11_direct_readers_join),
        kvt_test(c11_loads_beside_others_are_served_by_the_daemon),
        kvt_test(c11_no_open_is_refused_in_a_storm),
    };
    return kvt_main("passthrough", tests, COUNT_OF(tests), KVT_DISKS);
}
