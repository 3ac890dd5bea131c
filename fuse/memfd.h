// SPDX-License-Identifier: Apache-2.0
// Memory that is a file too (memfd_create): mapped here, and lent to the kernel, which answers
// reads from it without asking anybody.
#ifndef KVSEAL_FUSE_MEMFD_H
#define KVSEAL_FUSE_MEMFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is mapped for a file of `size` bytes: whole huge pages, where it is cut out of them. */
size_t kvs_memfd_room(size_t size);

/* A file of `size` bytes (a multiple of 4096) at `memory`, which mmap() gave, unused until now.
 * From half a huge page on it is cut out of huge pages, where the kernel gives them, whatever
 * `shmem_enabled` says, and `memory` has to be aligned to them and have kvs_memfd_room().
 * munmap() and close() give it back. >= 0 the descriptor, or -errno: the memory has no use. */
int kvs_memfd_create(void *memory, size_t size);

/* Whether nobody else has it open, or mapped through an open of his own. */
bool kvs_memfd_is_unshared(int fd);

/* Whether anybody read it since kvs_memfd_watch_reads(). */
void kvs_memfd_watch_reads(int fd);
bool kvs_memfd_was_read(int fd);

#endif
