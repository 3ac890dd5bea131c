// SPDX-License-Identifier: Apache-2.0
// Mounts as /proc tells of them: an O_PATH descriptor names the mount that it leads into, and asks
// the file system behind it nothing.
#ifndef KVSEAL_FUSE_MOUNTINFO_H
#define KVSEAL_FUSE_MOUNTINFO_H

#include <stdbool.h>

struct kvs_mount_entry {
    int id;
    char *mountpoint; /* unescaped */
    char *type;       /* "ext4", "fuse.kvsealfs" */
    bool is_shared;   /* what is mounted below it is seen in other mount namespaces */
};

/* One line of /proc/self/mountinfo, which is altered. 0; -EINVAL: it is none; -ENOMEM. After 0
 * kvs_mount_entry_free(). */
int kvs_mount_entry_parse(char *line, struct kvs_mount_entry *entry_ret);
void kvs_mount_entry_free(struct kvs_mount_entry *entry);

/* The mount that `fd` leads into. 0 or -errno (-ENOENT: no /proc, or it was detached). */
int kvs_mount_entry_find(int fd, struct kvs_mount_entry *entry_ret);

/* The kernel's number of the mount that `path` leads into now, or -errno. */
int kvs_mount_id(const char *path);

enum kvs_occupant {
    KVS_OCCUPANT_ORDINARY, /* a directory, or a file system that is not FUSE's */
    KVS_OCCUPANT_FUSE,
    KVS_OCCUPANT_KVSEALFS,
};

/* The canonical path (`path_ret`: PATH_MAX bytes) of a directory's descriptor, and what is mounted
 * right there. 0 or -errno. */
int kvs_mount_identify(int fd, char *path_ret, enum kvs_occupant *occupant_ret);

#endif
