// SPDX-License-Identifier: Apache-2.0
// Memory that is a file: who has it, and who read it.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/buffers.h"
#include "fuse/memfd.h"

#define MIB  ((size_t)1 << 20)
#define SIZE (4 * MIB)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static char *memory;
static int fd = -1;
static size_t bytes_left = SIZE_MAX; /* that MADV_POPULATE_WRITE makes */

static bool has_leases = true;

int __real_fcntl64(int file, int command, ...);
int __wrap_fcntl64(int file, int command, ...);

int __wrap_fcntl64(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    if (command == F_SETLEASE && !has_leases) {
        errno = EINVAL;
        return -1;
    }
    return __real_fcntl64(file, command, argument);
}

int __real_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice);

int __wrap_madvise(void *at, size_t size, int advice)
{
    if (advice == MADV_POPULATE_WRITE && size > bytes_left) {
        errno = ENOMEM;
        return -1;
    }
    return __real_madvise(at, size, advice);
}

static int set_up(void **state)
{
    memory = kvs_buffers_map(SIZE);
    fd = memory != NULL ? kvs_memfd_create(memory, SIZE) : -1;
    return fd >= 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    close(fd);
    munmap(memory, SIZE);
    return 0;
}

/* As the kernel does it for a handle that reads it. */
static int open_again(int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_CLOEXEC);
    assert_true(again >= 0);
    return again;
}

static void memory_and_file_are_one(void **state)
{
    char byte = 0;
    assert_int_equal(lseek(fd, 0, SEEK_END), SIZE);
    memory[SIZE - 1] = 'a';
    assert_int_equal(pread(fd, &byte, 1, SIZE - 1), 1);
    assert_int_equal(byte, 'a');
    assert_int_equal(pwrite(fd, "b", 1, 5), 1);
    assert_int_equal(memory[5], 'b');
}

/* A large one has large pages: what it was made for. */
static void it_has_huge_pages(void **state)
{
    unsigned long huge_kib = 0;
    char line[256];
    bool is_it = false;
    memset(memory, 1, SIZE);
    FILE *smaps = fopen("/proc/self/smaps", "re");
    assert_non_null(smaps);
    while (fgets(line, sizeof(line), smaps)) {
        unsigned long start = 0, kib = 0;
        if (sscanf(line, "%lx-", &start) == 1 && strchr(line, '-') && strchr(line, ' '))
            is_it = start == (unsigned long)memory;
        if (is_it && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
            huge_kib = kib;
    }
    fclose(smaps);
    if (huge_kib == 0) {
        print_message("the kernel gives none here\n");
        skip();
    }
    assert_int_equal(huge_kib, SIZE / 1024);
}

static void it_is_shared_while_somebody_has_it_open_or_mapped(void **state)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_DIRECT};
    assert_true(kvs_memfd_is_unshared(fd));
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        int again = open_again(flags[i]);
        assert_false(kvs_memfd_is_unshared(fd));
        close(again);
        assert_true(kvs_memfd_is_unshared(fd));
    }
    int again = open_again(O_RDONLY);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, again, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    close(again);
    assert_false(kvs_memfd_is_unshared(fd));
    munmap(map, 4096);
    assert_true(kvs_memfd_is_unshared(fd));
}

static void reads_are_noticed(void **state)
{
    char byte;
    for (int i = 0; i < 2; i++) {
        kvs_memfd_watch_reads(fd);
        int again = open_again(O_RDONLY | O_DIRECT);
        assert_false(kvs_memfd_was_read(fd));
        assert_int_equal(pread(again, &byte, 1, 0), 1);
        assert_true(kvs_memfd_was_read(fd));
        close(again);
    }
}

/* It is refused, and nobody is killed at a page that is not there. */
static void it_has_all_its_pages_or_is_refused(void **state)
{
    static const size_t sizes[] = {4096, MIB, 2 * MIB, SIZE};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *other = kvs_buffers_map(2 * SIZE);
        struct stat st;
        assert_non_null(other);
        bytes_left = 0;
        assert_int_equal(kvs_memfd_create(other, sizes[i]), -ENOMEM);
        bytes_left = SIZE_MAX;
        munmap(other, 2 * SIZE);
        other = kvs_buffers_map(2 * SIZE);
        assert_non_null(other);
        int file = kvs_memfd_create(other, sizes[i]);
        assert_true(file >= 0);
        assert_int_equal(fstat(file, &st), 0);
        assert_int_equal((size_t)st.st_blocks * 512, sizes[i]);
        close(file);
        munmap(other, 2 * SIZE);
    }
}

/* Where nobody can tell who has it, it could be lent once and never be used again. */
static void without_leases_it_is_refused(void **state)
{
    char *other = kvs_buffers_map(MIB * 2);
    assert_non_null(other);
    has_leases = false;
    assert_int_equal(kvs_memfd_create(other, 4096), -EOPNOTSUPP);
    has_leases = true;
    munmap(other, MIB * 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_and_file_are_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_has_huge_pages, set_up, tear_down),
        cmocka_unit_test(it_has_all_its_pages_or_is_refused),
        cmocka_unit_test(without_leases_it_is_refused),
        cmocka_unit_test_setup_teardown(it_is_shared_while_somebody_has_it_open_or_mapped, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(reads_are_noticed, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("memfd", tests, NULL, NULL);
}
