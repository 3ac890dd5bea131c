// SPDX-License-Identifier: Apache-2.0
// The directory at the top of a source that belongs to kvseal, and what is in it.
#ifndef KVSEAL_CORE_STATE_DIR_H
#define KVSEAL_CORE_STATE_DIR_H

#define KVS_STATE_DIR      ".kvseal"
#define KVS_QUARANTINE_DIR ".kvseal/quarantine"

/* Opens the directory, made first (0700) where it is missing. Follows no symbolic link. >= 0 a
 * descriptor that the caller closes, or -errno: of mkdirat and openat. */
int kvs_state_dir_open(int source_fd);
int kvs_quarantine_open(int source_fd);

#endif
