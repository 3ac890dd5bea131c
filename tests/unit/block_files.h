// SPDX-License-Identifier: Apache-2.0
// What the tests of verification share: sealed files on the disk and in memory, opened both ways.
#ifndef KVSEAL_TESTS_UNIT_BLOCK_FILES_H
#define KVSEAL_TESTS_UNIT_BLOCK_FILES_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/verify.h"

#define MAX_SIZE ((size_t)4 << 20)

static const size_t sizes[] = {
    0,
    1,
    4095,
    4096,
    4097,
    KVS_PIECE_SIZE - 1,
    KVS_PIECE_SIZE,
    KVS_PIECE_SIZE + 1,
    3 * KVS_PIECE_SIZE + 5,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static unsigned char content[MAX_SIZE];
static void *memory;

/* One file system and one way to open files there. */
struct ground {
    const char *word;
    char dir[4096];
    int flags;
    bool is_usable;
};
static struct ground grounds[] = {
    {.word = "disk, buffered"},
    {.word = "disk, direct", .flags = O_DIRECT},
    {.word = "memory, buffered"},
    {.word = "memory, direct", .flags = O_DIRECT},
};
#define GROUNDS (sizeof(grounds) / sizeof(grounds[0]))

static char path[5000]; /* of the present file */

/* Makes a file with the first `size` bytes of `content` and their sum as the record. */
static inline int make_block(const struct ground *ground, size_t size)
{
    int fd = -1;
    int reader = -1;

    snprintf(path, sizeof(path), "%s/block", ground->dir);
    fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), size);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, content, size)), 0);
    close(fd);
    reader = open(path, O_RDONLY | O_NOATIME | ground->flags);
    assert_true(reader >= 0);
    return reader;
}

static inline void drop_block(int fd)
{
    close(fd);
    assert_int_equal(unlink(path), 0);
}

/* Changes a byte of the file underneath, as a bad device would: mtime does not tell. */
static inline void flip_byte(off_t offset)
{
    int fd = open(path, O_RDWR);
    struct stat st;
    unsigned char byte = 0;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    assert_int_equal(futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}), 0);
    close(fd);
}

static inline int verify(int fd, size_t capacity, struct kvs_verification *verification)
{
    struct kvs_reading reading = {.memory = memory, .capacity = capacity};

    return kvs_verify(fd, &reading, verification);
}

static inline void assert_verdict(int fd, enum kvs_verdict verdict, bool is_transient)
{
    struct kvs_verification verification;

    assert_int_equal(verify(fd, MAX_SIZE, &verification), 0);
    assert_int_equal(verification.verdict, verdict);
    assert_int_equal(verification.is_transient, is_transient);
}

/* Runs a case on every ground that this machine has. */
static inline void on_every_ground(void (*run)(const struct ground *ground))
{
    for (size_t i = 0; i < GROUNDS; i++) {
        if (!grounds[i].is_usable)
            continue;
        print_message("  %s\n", grounds[i].word);
        run(&grounds[i]);
    }
}

static inline void prepare_ground(struct ground *ground, const char *base)
{
    int fd = -1;

    snprintf(ground->dir, sizeof(ground->dir), "%s/verify-XXXXXX", base);
    if (mkdtemp(ground->dir) == NULL) {
        print_message("left out: %s: no directory in %s\n", ground->word, base);
        return;
    }
    snprintf(path, sizeof(path), "%s/block", ground->dir);
    fd = open(path, O_CREAT | O_RDWR | ground->flags, 0600);
    unlink(path);
    ground->is_usable = fd >= 0 && kvs_record_write(fd, 0) == 0;
    if (!ground->is_usable)
        print_message("left out: %s: no direct I/O or no records in %s\n", ground->word, base);
    if (fd >= 0)
        close(fd);
}

static inline int set_up(void **state)
{
    const char *base = getenv("TMPDIR");
    uint32_t seed = 1;

    memory = aligned_alloc(KVS_IO_ALIGN, MAX_SIZE);
    if (memory == NULL)
        return -1;
    for (size_t i = 0; i < MAX_SIZE; i++) {
        seed = seed * 1664525u + 1013904223u;
        content[i] = (unsigned char)(seed >> 24);
    }
    prepare_ground(&grounds[0], base == NULL ? "/tmp" : base);
    prepare_ground(&grounds[1], base == NULL ? "/tmp" : base);
    prepare_ground(&grounds[2], "/dev/shm");
    prepare_ground(&grounds[3], "/dev/shm");
    return grounds[0].is_usable ? 0 : -1;
}

static inline int tear_down(void **state)
{
    free(memory);
    for (size_t i = 0; i < GROUNDS; i++) {
        unlink(path); /* a failed test's */
        rmdir(grounds[i].dir);
    }
    return 0;
}

#endif
