// SPDX-License-Identifier: Apache-2.0
// Directories below a source, reached by path without following a symbolic link, and never out of
// it or into another mount.
#ifndef KVSEAL_CORE_BENEATH_H
#define KVSEAL_CORE_BENEATH_H

/* Opens the directory (O_PATH) that `path`, relative to `root_fd`, lies in. *name_ret: the last
 * component, within `path`. >= 0 a descriptor that the caller closes; -ENOENT, -ENOTDIR, -ELOOP
 * (a symbolic link), -EXDEV or another -errno of openat2(2). */
int kvs_beneath_open_parent(int root_fd, const char *path, const char **name_ret);

#endif
