// SPDX-License-Identifier: Apache-2.0
// The source directory at the start: opened, and looked at whether it will do (C21).
#ifndef KVSEAL_FUSE_SOURCE_H
#define KVSEAL_FUSE_SOURCE_H

/* Each of these gives -errno after one clear line in the log. `source`: the name in messages. */

/* A descriptor of the directory. Open it before the mount covers it (C22). */
int kvs_source_open(const char *source);

/* A mount point (canonical path) below its own source would lead the daemon into itself: -EINVAL.
 */
int kvs_source_check_nesting(int source_fd, const char *source, const char *mountpoint);

/* Whether records can be kept in the source. 0 also where that could not be tried for lack of room:
 * a full cache must come up, so that its evictor can make room. */
int kvs_source_check_records(int source_fd, const char *source);

#endif
