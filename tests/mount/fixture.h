// SPDX-License-Identifier: Apache-2.0
// What every mount test shares: sources on real file systems, the daemon, blocks and how to look at
// them from above and from below.
#ifndef KVSEAL_TESTS_MOUNT_FIXTURE_H
#define KVSEAL_TESTS_MOUNT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/record.h"

/*
 * A test program is an array of cmocka tests and one line:
 *
 *     static void c01_close_seals(void **state)
 *     {
 *         struct kvt_env *env = *state;
 *         assert_int_equal(kvt_store(env, "a.bin", 4096, 1, 0), 0);
 *         kvt_assert_sealed(kvt_src(env, "a.bin"));
 *     }
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = {kvt_test(c01_close_seals)};
 *         return kvt_main("store", tests, 1, KVT_TMPFS | KVT_EXT4);
 *     }
 *
 * kvt_main() forks: the tests run in the child, in a mount namespace of their own. The parent kills
 * it after KVT_TIME_LIMIT seconds, unmounts and removes what is left. So nothing that a test mounts
 * below env->work outlives it, and no hang holds up the caller.
 *
 * While writing tests: KVT_ONLY='c01*' runs some of them, KVT_SOURCE=ext4 runs on one source (where
 * that is one of the test's), and KVT_KEEP_LOG=FILE appends the daemon's log to a file.
 * KVSEAL_TEST_OPTIONS=threads=8,... are mount options for every daemon.
 */

#define KVT_TIME_LIMIT   540
#define KVT_PATIENCE_SEC 40 /* the longest wait for any one condition */

/* Sanitizers are slow, and use memory of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVT_IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVT_IS_SANITIZED true
#endif
#endif
#ifndef KVT_IS_SANITIZED
#define KVT_IS_SANITIZED false
#endif

enum kvt_source_kind {
    KVT_TMPFS = 1,
    KVT_EXT4 = 2,
    KVT_XFS = 4,
    KVT_BTRFS = 8,
    KVT_DIR = 16,     /* a plain directory below $TMPDIR */
    KVT_FAULTFS = 32, /* faultfs over a plain directory */
    KVT_DISKS = KVT_TMPFS | KVT_EXT4 | KVT_XFS | KVT_BTRFS,
};

struct kvt_env {
    enum kvt_source_kind kind;
    char work[1024];            /* private directory of this group of tests */
    char source[1088];          /* WORK/source: what kvsealfs is mounted over */
    char under[1088];           /* the source's files below faultfs; elsewhere the same as source */
    char mnt[1088];             /* WORK/mnt: the kvsealfs mount */
    char log[1088];             /* the daemon's stderr since its last start */
    char dir[32];               /* the test's own directory, relative to source and mnt */
    char options[4 * NAME_MAX]; /* of the daemon that runs, without KVSEAL_TEST_OPTIONS */
    pid_t daemon;               /* 0: none runs */
    pid_t faultfs;
    int fault_fd; /* faultfs's control file, or -1 */
};

/* Runs all tests on each of the sources (a mask of kvt_source_kind). Gives main()'s result. A
 * source that this machine cannot make (no such file system in the kernel, no mkfs) is skipped,
 * loudly. Under sanitizers ext4 stands for all KVT_DISKS. */
int kvt_main(const char *name, const struct CMUnitTest *tests, size_t count, unsigned sources);

/* Each test has a fresh directory, and a daemon with default options that earlier tests may have
 * used. A test that called kvt_start() with other options, or ended the daemon, leaves a new one
 * to the next test. The teardown fails the test when the daemon died unasked. */
#define kvt_test(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, kvt_setup_test, kvt_teardown_test)
int kvt_setup_test(void **state);
int kvt_teardown_test(void **state);

/* Leaves a test on sources where it means nothing: kvt_only_on(env, KVT_EXT4 | KVT_XFS). */
#define kvt_only_on(env, kinds)                                                                    \
    do {                                                                                           \
        if (!((env)->kind & (unsigned)(kinds)))                                                    \
            skip();                                                                                \
    } while (0)

/* Leaves a test that cannot hold where KVSEAL_TEST_OPTIONS has this option, and says why:
 * kvt_not_with("buffers=off", "what rots after the open is no longer there"). */
#define kvt_not_with(option, why)                                                                  \
    do {                                                                                           \
        if (kvt_is_forced(option)) {                                                               \
            print_message("not with %s: %s\n", option, why);                                       \
            skip();                                                                                \
        }                                                                                          \
    } while (0)
bool kvt_is_forced(const char *option);

const char *kvt_source_name(enum kvt_source_kind kind);

/* ---- the daemon (fixture_daemon.c); all of these fail the test when they fail ---- */

/* A daemon with these mount options ("on_corrupt=keep,threads=64", or NULL) serves env->mnt. One
 * that already does, with the same options, goes on; another one is stopped first. */
void kvt_start(struct kvt_env *env, const char *options);

/* SIGTERM, then waits. It must exit with 0, unmount, and have logged no sanitizer report and no
 * error of libfuse. Nothing where none runs. */
void kvt_stop(struct kvt_env *env);

/* kvt_stop() by umount(2) instead of the signal. No file below the mount may be open. */
void kvt_stop_by_umount(struct kvt_env *env);

/* SIGKILL and waits. The dead mount stays there; kvt_start() replaces it. */
void kvt_kill(struct kvt_env *env);

/* Stops (unless it was killed) and starts with the same options: all caches are empty. */
void kvt_remount(struct kvt_env *env);

/* Runs kvsealfs -f [-o OPTIONS] SOURCE MNT for a start that has to fail, its stderr in env->log,
 * and gives its exit status. Fails the test if it is still there after KVT_PATIENCE_SEC. */
int kvt_start_fails(struct kvt_env *env, const char *options, const char *source, const char *mnt);

/* The path of a program of this build, relative to the test program's directory
 * ("../../fuse/kvsealfs"). */
const char *kvt_program(const char *relative);

/* Runs a program to its end (NULL-terminated arguments after its name), both outputs appended to
 * `output` (a path, or NULL: /dev/null). Its exit status; 128 + signal; or 127. */
int kvt_run(const char *output, const char *program, ...) __attribute__((sentinel));

/* Whether the log has the text now; and within KVT_PATIENCE_SEC. */
bool kvt_log_has(struct kvt_env *env, const char *text);
bool kvt_log_contains(struct kvt_env *env, const char *text);

unsigned kvt_count_fds(pid_t pid);  /* open files; its buffers (memfd) are none */
size_t kvt_resident_mib(pid_t pid); /* 0: it is not there any more */
bool kvt_is_mounted(const char *path);

/* KVT_FAULTFS: commands for faultfs ("setxattr 1 errno ENOSPC\n", "clear\n"; see
 * tests/faultfs/fault.h), and whether its report has this line ("hit 1"). */
void kvt_fault(struct kvt_env *env, const char *commands);
bool kvt_fault_report_has(struct kvt_env *env, const char *line);

/* ---- names and waiting ---- */

/* Path of a name in the test's directory through the mount, in the source, and below faultfs. The
 * last 16 results of a thread stay valid. */
const char *kvt_mnt(struct kvt_env *env, const char *name);
const char *kvt_src(struct kvt_env *env, const char *name);
const char *kvt_under(struct kvt_env *env, const char *name);

/* A fresh, empty directory becomes env->dir (each test has one already). Made in the source. */
void kvt_fresh_dir(struct kvt_env *env);

/* Waits until the expression is true; fails the test after KVT_PATIENCE_SEC. */
#define kvt_wait_for(expression)                                                                   \
    do {                                                                                           \
        uint64_t kvt_deadline = kvt_now_ms() + KVT_PATIENCE_SEC * 1000;                            \
        while (!(expression)) {                                                                    \
            if (kvt_now_ms() > kvt_deadline)                                                       \
                fail_msg("in %d s it never came true: %s", KVT_PATIENCE_SEC, #expression);         \
            usleep(5000);                                                                          \
        }                                                                                          \
    } while (0)
uint64_t kvt_now_ms(void);

/* The call has to give -1 and this errno. */
#define kvt_assert_errno(expected, call)                                                           \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_int_equal(call, -1);                                                                \
        assert_int_equal(errno, expected);                                                         \
    } while (0)

/* ---- blocks (fixture_blocks.c) ---- */

/* Bytes that depend on seed and position alone. */
void kvt_fill(void *buffer, size_t size, unsigned seed);
/* Page-aligned memory filled so; freed with free(). Its room is `size` rounded up to whole pages,
 * at least one. */
unsigned char *kvt_block(size_t size, unsigned seed);

/* open(2) flags of who stores a block. */
#define KVT_CREATE (O_CREAT | O_EXCL | O_WRONLY | O_TRUNC)

enum kvt_flags {
    KVT_DIRECT = 1, /* O_DIRECT; the last unaligned bytes without it, as dd does */
};

/* open(2) with mode 0644; fails the test. */
int kvt_open(const char *path, int flags);
/* close(2): 0 or -errno. */
int kvt_close(int fd);
/* Writes all of it at `offset` in pieces of `chunk` bytes (0: one call). 0 or -errno.
 * With O_DIRECT `data`, `offset` and `chunk` are aligned; the end may not be. */
int kvt_write(int fd, const void *data, size_t size, off_t offset, size_t chunk);

/* Writes kvt_block(size, seed) at `offset` of an open file, in one call; fails the test. */
void kvt_put(int fd, size_t size, unsigned seed, off_t offset);

/* Writes kvt_block(size, seed) to a path with these open flags (O_WRONLY | O_CREAT | O_TRUNC ...),
 * in pieces of `chunk`, and closes it. 0 or -errno of the first call that failed. */
int kvt_write_file(const char *path, int flags, size_t size, unsigned seed, size_t chunk);

/* Stores a block as vLLM does: NAME_1.tmp, O_CREAT|O_EXCL|O_WRONLY|O_TRUNC, one write, close,
 * rename. 0 or -errno of the first call that failed, and then the temporary file is removed. */
int kvt_store(struct kvt_env *env, const char *name, size_t size, unsigned seed, int flags);

/* Loads a block as vLLM does: O_RDONLY, one read, close. 0, or -errno of open or read. Other bytes,
 * or fewer, than kvt_block(size, seed) fail the test. */
int kvt_load(struct kvt_env *env, const char *name, size_t size, unsigned seed, int flags);
/* The same by path, through the mount or from below. */
int kvt_load_path(const char *path, size_t size, unsigned seed, int flags);

/* The file has exactly these bytes; those of kvt_block(size, seed). */
void kvt_assert_content(const char *path, const void *data, size_t size);
void kvt_assert_block(const char *path, size_t size, unsigned seed);

/* Flips one bit of the file below the mount; its record stays. The page cache is written and
 * dropped. */
void kvt_flip(const char *path, off_t offset);
/* Writes the file's pages to the device and drops them, so that the next read is a real one. */
void kvt_drop_cache(const char *path);

/* A CRC32C of our own, straight from the definition, and that of a file's content. */
uint32_t kvt_crc32c(const void *data, size_t size);
uint32_t kvt_sum_of(const char *path);

/* Record of a path, by getxattr(2). */
struct kvs_record kvt_record_of(const char *path);
/* Sets four bytes big-endian / any bytes / removes. 0 or -errno. */
int kvt_set_record(const char *path, uint32_t crc);
int kvt_set_record_bytes(const char *path, const void *bytes, size_t size);
int kvt_remove_record(const char *path);

#define kvt_assert_sealed(path)   kvt_assert_sealed_at(path, __FILE__, __LINE__)
#define kvt_assert_unsealed(path) kvt_assert_unsealed_at(path, __FILE__, __LINE__)
/* Record and content agree; there is no record. */
void kvt_assert_sealed_at(const char *path, const char *file, int line);
void kvt_assert_unsealed_at(const char *path, const char *file, int line);

/* The name has, in the source, the bytes of kvt_block(size, seed) and their record. */
#define kvt_assert_sealed_block(env, name, size, seed)                                             \
    do {                                                                                           \
        kvt_assert_block(kvt_src(env, name), size, seed);                                          \
        kvt_assert_sealed(kvt_src(env, name));                                                     \
    } while (0)

/* Whether lstat(2) gives ENOENT. */
bool kvt_is_gone(const char *path);
/* The name is gone through the mount, in the source and from readdir, now. */
void kvt_assert_gone(struct kvt_env *env, const char *name);
/* How many names the directory has (without "." and ".."). */
unsigned kvt_count_names(const char *directory);

#endif
