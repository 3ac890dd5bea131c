// SPDX-License-Identifier: Apache-2.0
// What faultfs answers to the kernel.
#ifndef KVSEAL_TESTS_FAULTFS_OPS_H
#define KVSEAL_TESTS_FAULTFS_OPS_H

#include <fuse_lowlevel.h>

extern const struct fuse_lowlevel_ops ops_table;

#endif
