// SPDX-License-Identifier: Apache-2.0
// Shows the product at work: stores blocks through a mount as vLLM's tier does, loads them back,
// flips one bit underneath, and checks that the load fails, the block is gone and can be stored
// again.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/record.h"
#include "core/util.h"
#include "tests/clients/client.h"

static const struct block_size {
    const char *name;
    size_t bytes;
    unsigned count;
} sizes[] = {
    {"256 KiB", (size_t)256 << 10, 64},
    {"1 MiB", (size_t)1 << 20, 64},
    {"4 MiB", (size_t)4 << 20, 32},
    {"16 MiB", (size_t)16 << 20, 8},
};

static void fail(const char *what, int error)
{
    fprintf(stderr, "demo: %s: %s\n", what,
            error == CLIENT_WRONG_BYTES ? "wrong bytes" : strerror(-error));
    exit(1);
}

static void check(const char *what, int error)
{
    if (error != 0)
        fail(what, error);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* What vLLM does with one size: seconds for all stores, and for all loads. */
static void store_and_load(const char *root, const struct block_size *size, unsigned flags,
                           double *store_ret, double *load_ret)
{
    char key[32];
    double start = now();

    for (unsigned i = 0; i < size->count; i++) {
        snprintf(key, sizeof(key), "%08x%08x", (unsigned)size->bytes, i);
        check("store", client_vllm_store(root, key, size->bytes, i, flags));
    }
    *store_ret = now() - start;
    start = now();
    for (unsigned i = 0; i < size->count; i++) {
        snprintf(key, sizeof(key), "%08x%08x", (unsigned)size->bytes, i);
        check("load", client_vllm_load(root, key, size->bytes, i, flags));
    }
    *load_ret = now() - start;
}

static void show_speed(const char *mount, unsigned flags)
{
    double store = 0, load = 0;

    printf("  %-8s %6s %12s %14s\n", "block", "count", "make, store", "load, compare");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        double gigabytes = (double)sizes[i].bytes * sizes[i].count / 1e9;
        store_and_load(mount, &sizes[i], flags, &store, &load);
        printf("  %-8s %6u %7.2f GB/s %9.2f GB/s\n", sizes[i].name, sizes[i].count,
               gigabytes / store, gigabytes / load);
    }
}

static void flip_bit(const char *path, off_t offset)
{
    kvs_cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;

    if (fd < 0 || pread(fd, &byte, 1, offset) != 1)
        fail(path, -errno);
    byte ^= 0x10;
    if (pwrite(fd, &byte, 1, offset) != 1 || fsync(fd) < 0)
        fail(path, -errno);
}

static void show_record(const char *path)
{
    struct kvs_record record;
    kvs_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        fail(path, -errno);
    check(path, kvs_record_read(fd, &record));
    if (record.kind != KVS_RECORD_SUM)
        fail("the stored block has no record", -ENODATA);
    printf("  its record, " KVS_RECORD_NAME ": %08x\n", record.crc);
}

static void show_corruption(const char *source, const char *mount, unsigned flags)
{
    const char *key = "0010000000000007"; /* one of the 1 MiB blocks */
    size_t size = (size_t)1 << 20;
    char below[4096];

    check("path", client_fanned_path(below, source, key, ".bin"));
    printf("one 1 MiB block\n");
    show_record(below);
    flip_bit(below, 123456);
    printf("  one bit of it flipped underneath, at the same size\n");

    int error = client_vllm_load(mount, key, size, 7, flags);
    if (error != -EBADMSG)
        fail("the load of the flipped block did not fail with EBADMSG", error);
    printf("  load:  EBADMSG (%s)\n", strerror(EBADMSG));

    error = client_vllm_lookup(mount, key, size, 7, flags);
    if (error != -ENOENT || access(below, F_OK) == 0)
        fail("the corrupt block is still there", error);
    printf("  look-up: ENOENT, a miss: the block is gone\n");

    check("store again", client_vllm_store(mount, key, size, 7, flags));
    check("load again", client_vllm_load(mount, key, size, 7, flags));
    printf("  stored again, loaded again: right bytes\n");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: demo SOURCE MOUNTPOINT\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    unsigned flags = client_vllm_probe_direct(argv[2], NULL, 0, 0, 0) == 0 ? CLIENT_DIRECT : 0;
    printf("vLLM's call sequence through the mount, %s\n", flags != 0 ? "O_DIRECT" : "buffered");
    show_speed(argv[2], flags);
    show_corruption(argv[1], argv[2], flags);
    return 0;
}
