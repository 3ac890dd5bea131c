// SPDX-License-Identifier: Apache-2.0
// Reading and writing through the mount in every way that there is (C19).
#include "tests/mount/fixture_scenario.h"

#include <linux/fs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define KIB (1 << 10)
#define MIB (1 << 20)

static unsigned char *bytes; /* MIB of them, the same on both sides */

static int make_block(const char *path, size_t size)
{
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    free(bytes);
    bytes = kvt_block(MIB, 7);
    kvt_holds(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    return fd;
}

/* All of the mount's test directory is sealed when nobody writes any more. */
static void assert_all_sealed(struct kvt_env *env, size_t count, const char *const *names)
{
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof(name), KVT_MOUNTED "/%s", names[i]);
        kvt_wait_for(kvt_record_of(kvt_src(env, name)).kind == KVS_RECORD_SUM);
        kvt_assert_sealed(kvt_src(env, name));
    }
}

#define assert_sealed_there(env, ...)                                                              \
    assert_all_sealed(env, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                 \
                      (const char *[]){__VA_ARGS__})

/* ---- plain ---- */

static void see_reads_and_writes(void)
{
    char some[64];
    char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = make_block("file", 100 * KIB + 1);
    kvt_try(lseek(fd, 0, SEEK_CUR));
    kvt_try(lseek(fd, -10, SEEK_END));
    kvt_try(read(fd, some, sizeof(some))); // what is left
    kvt_try(read(fd, some, sizeof(some)));
    kvt_try(pread(fd, some, sizeof(some), 1 << 30));
    kvt_try(pread(fd, some, sizeof(some), -1));
    kvt_try(pread(fd, some, 0, 5));
    kvt_try(pread(fd, nowhere, 64, 0));
    kvt_try(pwrite(fd, nowhere, 64, 0));
    kvt_try(write(fd, some, 0));
    kvt_try(pwrite(fd, "far", 3, 300 * KIB));
    kvt_try(pwrite(fd, "near", 4, 5));
    kvt_try(lseek(fd, -1, SEEK_SET));
    kvt_try(lseek(fd, 5, 77));
    kvt_try(write(fd, "x", 1));
    kvt_note_fstat(fd);
    kvt_try(close(fd));
    kvt_note_content("file");
    struct iovec parts[] = {{bytes, 10}, {bytes + 100, 0}, {bytes + 50, 5000}, {bytes + 7, 1}};
    fd = open("vector", O_CREAT | O_RDWR, 0644);
    kvt_try(writev(fd, parts, 4));
    kvt_try(pwritev(fd, parts, 4, 20000));
    kvt_try(pwritev2(fd, parts, 4, 30000, RWF_DSYNC));
    kvt_try(pwritev2(fd, parts, 1, 0, RWF_APPEND));
    kvt_try(pwritev2(fd, parts, 4, 9, RWF_SYNC));
    char got[3][100];
    struct iovec room[] = {{got[0], 10}, {got[1], 100}, {got[2], 1}};
    kvt_try(preadv(fd, room, 3, 20000));
    kvt_holds(memcmp(got[0], bytes, 10) == 0 && memcmp(got[1], bytes + 50, 100) == 0);
    kvt_try(preadv2(fd, room, 3, 0, 0));
    kvt_try(preadv2(fd, room, 3, 0, 1 << 20));
    kvt_try(readv(fd, room, 3));
    kvt_try(close(fd));
    kvt_note_content("vector");
    fd = open("once", O_CREAT | O_WRONLY | O_TRUNC, 0644);
    for (int i = 0; i < 5; i++)
        kvt_holds(write(fd, bytes, MIB - 13) == MIB - 13);
    kvt_try(close(fd));
    kvt_note_content("once");
    fd = open("sync", O_CREAT | O_WRONLY | O_SYNC, 0644);
    kvt_try(write(fd, bytes, 12345));
    kvt_try(fcntl(fd, F_GETFL) & (O_SYNC | O_DSYNC));
    kvt_try(close(fd));
    kvt_note_content("sync");
    fd = open("sync", O_RDWR | O_DSYNC);
    kvt_try(pwrite(fd, "dsync", 5, 100));
    kvt_try(fsync(fd) + fdatasync(fd) + syncfs(fd));
    kvt_try(sync_file_range(fd, 0, 100, SYNC_FILE_RANGE_WRITE));
    kvt_try(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    kvt_try(readahead(fd, 0, 4096));
    kvt_try(close(fd));
    kvt_try(fsync(open("sync", O_RDONLY)));
    kvt_try(fsync(open(".", O_RDONLY)));
}

static void c19_reads_and_writes(void **state)
{
    kvt_same_as_below(*state, see_reads_and_writes);
    assert_sealed_there(*state, "file", "vector", "once", "sync");
}

static void see_limits(void)
{
    int fd = make_block("file", 1000);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){5000, 5000});
    kvt_try(pwrite(fd, bytes, 3000, 4000)); // as far as the limit
    kvt_try(pwrite(fd, bytes, 1, 5000));
    kvt_try(ftruncate(fd, 6000));
    kvt_try(fallocate(fd, 0, 0, 6000));
    kvt_note_fstat(fd);
    kvt_try(close(fd));
    kvt_note_content("file");
}

static void c19_file_size_limit(void **state)
{
    kvt_same_as_below(*state, see_limits);
    assert_sealed_there(*state, "file");
}

/* ---- sizes and holes ---- */

static void see_truncation(void)
{
    static const off_t sizes[] = {50000, 50001, 4096, 4097, 1, 70000, 0, 0, 123, -1};
    int fd = make_block("file", 60000);
    int reader = open("file", O_RDONLY);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        kvt_try(ftruncate(fd, sizes[i]));
        kvt_note_fstat(reader);
        kvt_note_content("file");
        kvt_holds(pwrite(fd, "!", 1, sizes[i] / 2) == 1 || sizes[i] < 0);
        kvt_try(truncate("file", sizes[i] + 1));
        kvt_note_content("file");
    }
    kvt_try(ftruncate(reader, 0));
    kvt_try(close(fd));
    kvt_try(truncate("file", 999));
    kvt_try(truncate("file", (off_t)1 << 40));
    kvt_note_stat("file");
    kvt_try(truncate("file", 888));
    fd = open("file", O_WRONLY | O_TRUNC);
    kvt_note_fstat(fd);
    kvt_try(write(fd, "anew", 4));
    kvt_try(close(fd));
    kvt_note_content("file");
}

static void c19_truncation(void **state)
{
    kvt_same_as_below(*state, see_truncation);
    assert_sealed_there(*state, "file");
}

/* Of what was written and synced: allocated space is data or not, as the page cache has it. */
static void note_map(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END), at = 0;
    for (int i = 0; i < 20 && at >= 0 && at < size; i++) {
        off_t data = lseek(fd, at, SEEK_DATA);
        at = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        kvt_note("data %jd to %jd", (intmax_t)data, (intmax_t)at);
    }
    kvt_try(lseek(fd, size, SEEK_DATA));
    kvt_try(lseek(fd, size + 1, SEEK_HOLE));
}

static void see_holes(void)
{
    static const struct {
        int mode;
        off_t offset, length;
    } calls[] = {
        {0, 0, 300 * KIB},
        {0, 500 * KIB, 64 * KIB},
        {FALLOC_FL_KEEP_SIZE, 0, 2 * MIB},
        {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 64 * KIB, 64 * KIB},
        {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5, 70000},
        {FALLOC_FL_PUNCH_HOLE, 0, 4096},
        {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 500 * KIB, 10 * MIB},
        {FALLOC_FL_ZERO_RANGE, 10, 100},
        {FALLOC_FL_ZERO_RANGE, 200 * KIB, 600 * KIB},
        {FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 700 * KIB, MIB},
        {0, -1, 5},
        {0, 5, 0},
    };
    int fd = make_block("file", 256 * KIB);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        kvt_note("---- mode %x, %jd, %jd", calls[i].mode, (intmax_t)calls[i].offset,
                 (intmax_t)calls[i].length);
        kvt_try(fallocate(fd, calls[i].mode, calls[i].offset, calls[i].length));
        kvt_note_fstat(fd);
        kvt_note_content("file");
        kvt_holds(pwrite(fd, "between", 7, 130000) == 7);
    }
    kvt_try(close(fd));
    kvt_try(fallocate(open("file", O_RDONLY), 0, 0, MIB));
    fd = open("sparse", O_CREAT | O_RDWR, 0644);
    kvt_try(pwrite(fd, bytes, 4096, MIB));
    kvt_try(pwrite(fd, bytes, 10, 3 * MIB));
    kvt_try(fsync(fd));
    note_map(fd);
    kvt_try(pwrite(fd, bytes, MIB, 2 * MIB));
    kvt_try(fsync(fd));
    kvt_try(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * MIB + 128 * KIB, 64 * KIB));
    note_map(fd);
    kvt_try(ftruncate(fd, 8 * MIB));
    note_map(fd);
    kvt_try(lseek(fd, 0, SEEK_DATA));
    kvt_try(close(fd));
    struct stat st;
    kvt_holds(stat("sparse", &st) == 0 && st.st_blocks < 4096);
    kvt_note_content("sparse");
}

static void c19_holes_and_allocation(void **state)
{
    kvt_same_as_below(*state, see_holes);
    assert_sealed_there(*state, "file", "sparse");
}

/* ---- copies inside the kernel ---- */

/* Reflinks may stop at the end of a file system's block. */
static void copy_within(int fd, off_t in, off_t out, size_t size)
{
    ssize_t n = 1;
    for (size_t done = 0; done < size && n > 0; done += (size_t)n)
        n = copy_file_range(fd, &in, fd, &out, size - done, 0);
    kvt_note("%zd", n < 0 ? n : 0);
}

static void see_copies(void)
{
    off_t in = 5, out = 7;
    int from = make_block("from", 300 * KIB), to = open("to", O_CREAT | O_RDWR, 0644);
    kvt_try(copy_file_range(from, &in, to, &out, 200 * KIB, 0));
    kvt_note("at %jd, %jd", (intmax_t)in, (intmax_t)out);
    kvt_try(copy_file_range(from, &in, to, &out, MIB, 0)); // up to the end
    kvt_try(copy_file_range(from, &in, to, &out, MIB, 0));
    kvt_try(copy_file_range(from, &in, to, &out, 1, 1));
    copy_within(to, 0, 100 * KIB, 50 * KIB);
    copy_within(to, 0, 10, 100 * KIB); // overlaps
    kvt_try(close(to));
    kvt_note_content("to");

    in = 99;
    to = open("sent", O_CREAT | O_WRONLY, 0644);
    kvt_try(sendfile(to, from, &in, 100 * KIB));
    kvt_try(close(to));
    kvt_note_content("sent");

    int ends[2];
    kvt_holds(pipe(ends) == 0);
    to = open("spliced", O_CREAT | O_WRONLY, 0644);
    in = 1000, out = 0;
    for (int i = 0; i < 4; i++) {
        kvt_try(splice(from, &in, ends[1], NULL, 16 * KIB, 0));
        kvt_try(splice(ends[0], NULL, to, &out, 16 * KIB, 0));
    }
    kvt_try(close(to));
    kvt_note_content("spliced");
    to = open("gift", O_CREAT | O_WRONLY, 0644);
    struct iovec pages = {bytes, 8 * KIB};
    kvt_try(vmsplice(ends[1], &pages, 1, 0));
    kvt_try(splice(ends[0], NULL, to, NULL, 8 * KIB, 0));
    kvt_try(close(to));
    kvt_note_content("gift");
}

static void c19_copies_inside_the_kernel(void **state)
{
    struct kvt_env *env = *state;
    kvt_same_as_below(env, see_copies);
    assert_sealed_there(env, "from", "to", "sent", "spliced", "gift");
    // Between the file systems, in both directions.
    int below = kvt_open(kvt_src(env, KVT_BELOW "/from"), O_RDONLY);
    int mounted = kvt_open(kvt_mnt(env, "in"), O_RDWR | O_CREAT);
    assert_int_equal(sendfile(mounted, below, NULL, MIB), 300 * KIB);
    assert_int_equal(kvt_close(mounted), 0);
    kvt_assert_sealed(kvt_src(env, "in"));
    assert_int_equal(kvt_sum_of(kvt_src(env, "in")), kvt_sum_of(kvt_src(env, KVT_BELOW "/from")));
    close(below);
}

/* ---- mappings ---- */

static void see_mappings(void)
{
    int fd = make_block("file", 100 * KIB + 77);
    kvt_holds(close(fd) == 0);
    fd = open("file", O_RDWR);
    char *shared = mmap(NULL, 128 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 128 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    kvt_holds(shared != MAP_FAILED && private != MAP_FAILED);
    kvt_holds(memcmp(shared, bytes, 100 * KIB + 77) == 0 && shared[100 * KIB + 78] == 0);
    memcpy(private + 10, "mine alone", 10);
    memcpy(shared + 20000, "for all", 7);
    shared[100 * KIB + 79] = 'x'; // beyond the end: of nobody
    kvt_try(msync(shared, 128 * KIB, MS_SYNC));
    kvt_note_content("file");
    char got[7];
    kvt_try(pread(fd, got, 7, 20000));
    kvt_holds(memcmp(got, "for all", 7) == 0);
    kvt_try(pwrite(fd, "written", 7, 40000)); // seen in the mapping
    kvt_holds(memcmp(shared + 40000, "written", 7) == 0);
    kvt_try(close(fd));
    memcpy(shared + 60000, "after close", 11);
    kvt_try(munmap(shared, 128 * KIB));
    kvt_try(munmap(private, 128 * KIB));
    kvt_note_content("file");

    fd = open("file", O_RDONLY);
    kvt_holds(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    kvt_note("%s", strerrorname_np(errno));
    private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 96 * KIB);
    kvt_holds(private != MAP_FAILED && memcmp(private, bytes + 96 * KIB, 4096) == 0);
    kvt_holds(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 77) == MAP_FAILED);
    fd = open("file", O_WRONLY);
    kvt_holds(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    kvt_note("%s", strerrorname_np(errno));
    pid_t pid = fork();
    if (pid == 0) { // beyond the last page
        char *far = mmap(NULL, MIB, PROT_READ, MAP_SHARED, open("file", O_RDONLY), 0);
        _exit(far[512 * KIB]);
    }
    int status;
    kvt_holds(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    kvt_note("signal %d", WTERMSIG(status));
}

static void c19_mappings(void **state)
{
    kvt_same_as_below(*state, see_mappings);
    assert_sealed_there(*state, "file");
}

static void see_truncation_at_open(void)
{
    static const int flags[] = {O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC, O_RDWR | O_TRUNC,
                                O_RDONLY | O_TRUNC | O_DIRECT};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        kvt_holds(close(make_block("file", 60000)) == 0);
        int fd = open("file", flags[i]);
        kvt_try(fd >= 0);
        kvt_note_fstat(fd);
        kvt_note_content("file");
        kvt_try(close(fd));
    }
}

static void c19_truncation_at_open(void **state)
{
    kvt_same_as_below(*state, see_truncation_at_open);
    assert_sealed_there(*state, "file");
}

static void see_mapping_and_direct_writes(void)
{
    int fd = make_block("file", 64 * KIB);
    kvt_holds(close(fd) == 0);
    fd = open("file", O_RDWR);
    int direct = open("file", O_WRONLY | O_DIRECT);
    kvt_holds(direct >= 0);
    char *map = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 10; i++) {
        off_t at = i * 4096;
        memset(map + at + 8192, 'm', 10);
        kvt_holds(pwrite(direct, bytes + 512 * KIB + at, 4096, at) == 4096);
        kvt_try(msync(map, 64 * KIB, MS_SYNC));
        kvt_try(fsync(direct));
    }
    kvt_holds(memcmp(map, bytes + 512 * KIB, 4096) == 0);
    kvt_try(close(direct));
    kvt_try(munmap(map, 64 * KIB));
    kvt_try(close(fd));
    kvt_note_content("file");
}

static void c19_msync_after_a_direct_write(void **state)
{
    kvt_same_as_below(*state, see_mapping_and_direct_writes);
    assert_sealed_there(*state, "file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c19_reads_and_writes),
        kvt_test(c19_file_size_limit),
        kvt_test(c19_truncation),
        kvt_test(c19_truncation_at_open),
        kvt_test(c19_holes_and_allocation),
        kvt_test(c19_copies_inside_the_kernel),
        kvt_test(c19_mappings),
        kvt_test(c19_msync_after_a_direct_write),
    };
    return kvt_main("posix io", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS | KVT_DIR);
}
