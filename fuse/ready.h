// SPDX-License-Identifier: Apache-2.0
// --ready-file: a file that is there exactly while the mount serves.
#ifndef KVSEAL_FUSE_READY_H
#define KVSEAL_FUSE_READY_H

/* Its directory is opened before the mount, which may cover it. */
struct kvs_ready {
    const char *path; /* NULL: none is wanted */
    int directory_fd;
};

/* Removes a file that a killed daemon left. `path` is NULL, or lives on. 0; or -errno after one
 * line in the log. kvs_ready_end() in every case. */
int kvs_ready_prepare(const char *path, struct kvs_ready *ready_ret);

/* Makes the file, with our process id. 0; or -errno after one line in the log. */
int kvs_ready_announce(struct kvs_ready *ready);

/* Removes it. Does nothing the second time. */
void kvs_ready_end(struct kvs_ready *ready);

#endif
