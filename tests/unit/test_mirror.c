// SPDX-License-Identifier: Apache-2.0
// Lent memory follows its file, as far as there is memory.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/util.h"
#include "core/verify.h"
#include "fuse/fs.h"
#include "fuse/mirror.h"
#include "fuse/worker.h"

#define MIB ((size_t)1 << 20)

static int below = -1; /* the file */
static unsigned writes_left;
static char *scratch;

int __wrap_kvs_file_open_to_read(struct kvs_fs *fs, struct kvs_file *file);
void *__wrap_kvs_worker_scratch(void);
ssize_t __real_pwrite64(int fd, const void *data, size_t len, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t len, off_t offset);

int __wrap_kvs_file_open_to_read(struct kvs_fs *fs, struct kvs_file *file)
{
    return dup(below);
}

void *__wrap_kvs_worker_scratch(void)
{
    return scratch;
}

/* A control group has no more memory, say. */
ssize_t __wrap_pwrite64(int fd, const void *data, size_t len, off_t offset)
{
    if (writes_left == 0) {
        errno = ENOMEM;
        return -1;
    }
    writes_left--;
    return __real_pwrite64(fd, data, len, offset);
}

struct lent {
    struct kvs_fs fs;
    struct kvs_file file;
    struct kvs_buffer *slot;
};

static int set_up(void **state)
{
    struct lent *lent = calloc(1, sizeof(*lent));

    scratch = kvs_buffers_map(KVS_SCRATCH_SIZE);
    below = memfd_create("below", MFD_CLOEXEC);
    if (lent == NULL || scratch == NULL || below < 0 ||
        kvs_buffers_create(32 * MIB, &lent->fs.buffers) != 0)
        return -1;
    pthread_mutex_init(&lent->file.mode_lock, NULL);
    pthread_mutex_init(&lent->file.mirror_lock, NULL);
    kvs_buffers_make_lendable(lent->fs.buffers);
    kvs_buffer_keep(lent->fs.buffers, kvs_buffer_take(lent->fs.buffers, 6 * MIB, 0), &lent->slot);
    lent->file.mode.lent = kvs_buffer_lend(lent->fs.buffers, &lent->slot, MIB, 0);
    atomic_store(&lent->file.is_lent, true);
    *state = lent;
    return lent->file.mode.lent != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    struct lent *lent = *state;

    kvs_buffer_give_up(lent->fs.buffers, &lent->slot);
    kvs_buffer_unpin(lent->fs.buffers, lent->file.mode.lent);
    kvs_buffers_destroy(lent->fs.buffers);
    pthread_mutex_destroy(&lent->file.mirror_lock);
    pthread_mutex_destroy(&lent->file.mode_lock);
    munmap(scratch, KVS_SCRATCH_SIZE);
    close(below);
    free(lent);
    return 0;
}

/* The file has 4 MiB now; this many of the writes that let the memory grow succeed. */
static void grow(struct lent *lent, unsigned writes)
{
    char *block = malloc(4 * MIB);

    assert_non_null(block);
    for (size_t i = 0; i < 4 * MIB; i++)
        block[i] = (char)(i % 251);
    writes_left = 4;
    assert_int_equal(__real_pwrite64(below, block, 4 * MIB, 0), 4 * MIB);
    free(block);
    kvs_mirror_follow(&lent->fs, &lent->file, 0, MIB);
    writes_left = writes;
    kvs_mirror_follow(&lent->fs, &lent->file, MIB, 3 * MIB);
}

static void assert_is_the_file_up_to(const struct lent *lent, size_t size)
{
    const struct kvs_buffer *buffer = lent->file.mode.lent;
    const char *file = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, below, 0);

    assert_ptr_not_equal(file, MAP_FAILED);
    assert_int_equal(lseek(buffer->fd, 0, SEEK_END), size);
    assert_memory_equal(buffer->memory, file, size);
    munmap((void *)file, 4 * MIB);
}

static void it_grows_with_its_file(void **state)
{
    grow(*state, 3);
    assert_is_the_file_up_to(*state, 4 * MIB);
}

static void without_memory_to_grow_it_ends(void **state)
{
    struct lent *lent = *state;

    grow(lent, 1);
    assert_is_the_file_up_to(lent, 2 * MIB);
    writes_left = 3;
    kvs_mirror_follow(&lent->fs, &lent->file, 0, 4 * MIB);
    assert_is_the_file_up_to(lent, 2 * MIB); /* and does not grow again, with a gap */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_grows_with_its_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_memory_to_grow_it_ends, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("mirror", tests, NULL, NULL);
}
