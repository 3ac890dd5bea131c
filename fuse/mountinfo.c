// SPDX-License-Identifier: Apache-2.0
// Mounts as /proc tells of them.
#include "fuse/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"

void kvs_mount_entry_free(struct kvs_mount_entry *entry)
{
    free(entry->mountpoint);
    free(entry->type);
    *entry = (struct kvs_mount_entry){0};
}

static int mount_id_of(int fd)
{
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(name, "re");
    if (!info)
        return -errno;
    char line[128];
    int id = -ENOTSUP;
    while (id < 0 && fgets(line, sizeof(line), info)) {
        if (!strncmp(line, "mnt_id:", 7))
            id = (int)strtol(line + 7, NULL, 10);
    }
    fclose(info);
    return id;
}

int kvs_mount_id(const char *path)
{
    kvs_cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? -errno : mount_id_of(fd);
}

/* mountinfo writes space, tab, newline and backslash as three octal digits: "\040". */
static void unescape(char *text)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        if (in[0] == '\\' && in[1] >= '0' && in[1] <= '3' && in[2] >= '0' && in[2] <= '7' &&
            in[3] >= '0' && in[3] <= '7') {
            *out++ = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + in[3] - '0');
            in += 3;
        } else {
            *out++ = *in;
        }
    }
    *out = 0;
}

/* "36 35 98:0 /root /mount/point rw,noatime shared:1 master:2 - ext3 /dev/sda1 rw" */
int kvs_mount_entry_parse(char *line, struct kvs_mount_entry *entry_ret)
{
    char *rest = NULL, *field = strtok_r(line, " \n", &rest), *end;
    long id = field ? strtol(field, &end, 10) : -1;
    if (!field || *end || id < 0 || id > INT_MAX)
        return -EINVAL;
    for (int i = 0; i < 4 && field; i++)
        field = strtok_r(NULL, " \n", &rest);
    char *mountpoint = field;
    bool is_shared = false;
    while (field && strcmp(field, "-") != 0) {
        is_shared = is_shared || !strncmp(field, "shared:", 7);
        field = strtok_r(NULL, " \n", &rest);
    }
    char *type = field ? strtok_r(NULL, " \n", &rest) : NULL;
    if (!type)
        return -EINVAL;
    unescape(mountpoint);
    *entry_ret = (struct kvs_mount_entry){.id = (int)id,
                                          .mountpoint = strdup(mountpoint),
                                          .type = strdup(type),
                                          .is_shared = is_shared};
    if (entry_ret->mountpoint && entry_ret->type)
        return 0;
    kvs_mount_entry_free(entry_ret);
    return -ENOMEM;
}

int kvs_mount_entry_find(int fd, struct kvs_mount_entry *entry_ret)
{
    int id = mount_id_of(fd);
    if (id < 0)
        return id;
    FILE *table = fopen("/proc/self/mountinfo", "re");
    if (!table)
        return -ENOENT; /* no /proc */
    kvs_cleanup_free char *line = NULL;
    size_t size = 0;
    int error = -ENOENT;
    while (error == -ENOENT && getline(&line, &size, table) > 0) {
        if (strtol(line, NULL, 10) == id)
            error = kvs_mount_entry_parse(line, entry_ret);
    }
    fclose(table);
    return error;
}

static enum kvs_occupant occupant_of(const struct kvs_mount_entry *entry, const char *path)
{
    if (strcmp(entry->mountpoint, path) != 0)
        return KVS_OCCUPANT_ORDINARY;
    if (!strcmp(entry->type, "fuse.kvsealfs"))
        return KVS_OCCUPANT_KVSEALFS;
    bool is_fuse = !strcmp(entry->type, "fuse") || !strncmp(entry->type, "fuse.", 5) ||
                   !strcmp(entry->type, "fuseblk");
    return is_fuse ? KVS_OCCUPANT_FUSE : KVS_OCCUPANT_ORDINARY;
}

int kvs_mount_identify(int fd, char *path_ret, enum kvs_occupant *occupant_ret)
{
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, path_ret, PATH_MAX - 1);
    if (len < 0)
        return -errno;
    path_ret[len] = 0;
    struct kvs_mount_entry entry = {0};
    int error = kvs_mount_entry_find(fd, &entry);
    if (error)
        return error;
    *occupant_ret = occupant_of(&entry, path_ret);
    kvs_mount_entry_free(&entry);
    return 0;
}
