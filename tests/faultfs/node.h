// SPDX-License-Identifier: Apache-2.0
// The inodes of the source that the kernel knows.
#ifndef KVSEAL_TESTS_FAULTFS_NODE_H
#define KVSEAL_TESTS_FAULTFS_NODE_H

#include <fuse_lowlevel.h>
#include <stdint.h>

/*
 * A node has an O_PATH descriptor, and its address is its inode number for the kernel. It goes when
 * the kernel forgot it as often as it was told of it. The root is never forgotten.
 */

/* Opens the root. 0, or -1 with errno set. */
int node_init(const char *source);

/* The control file's number. It is no node. */
#define NODE_CONTROL (~(fuse_ino_t)0)

/* -1 for the control file. */
int node_fd(fuse_ino_t ino);

/*
 * Finds or makes the node of the inode behind `fd`, an O_PATH descriptor that belongs to the table
 * from now on, or -1 with errno set. Counts as told to the kernel. 0 or -errno.
 */
int node_enter(int fd, struct fuse_entry_param *entry_ret);

void node_forget(fuse_ino_t ino, uint64_t lookups);

#endif
