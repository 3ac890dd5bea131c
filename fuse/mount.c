// SPDX-License-Identifier: Apache-2.0
// The mount point, looked at through /proc: an O_PATH descriptor names the mount that it leads
// into, and asks the file system behind it nothing.
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/* How long a file system on the mount point may take to answer. */
#define ANSWER_MS 2000
/* Dead mounts that lie on each other; more than any crash loop left so far. */
#define MOST_DEAD_MOUNTS 256

struct mount_entry {
    char *mountpoint; /* as in /proc/self/mountinfo, unescaped */
    char *type;
};

static void free_entry(struct mount_entry *entry)
{
    free(entry->mountpoint);
    free(entry->type);
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

/* "36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/sda1 rw": whether it is that of
 * `id`. */
static bool parse_entry(char *line, int id, struct mount_entry *entry_ret)
{
    char *rest = line;
    if (strtol(rest, &rest, 10) != id)
        return false;
    char *mountpoint = NULL;
    for (int i = 0; i < 4 && rest; i++) {
        rest += strspn(rest, " ");
        mountpoint = rest;
        rest = strchr(rest, ' ');
    }
    char *dash = rest ? strstr(rest, " - ") : NULL;
    if (!dash)
        return false;
    *rest = 0;
    unescape(mountpoint);
    entry_ret->mountpoint = strdup(mountpoint);
    entry_ret->type = strndup(dash + 3, strcspn(dash + 3, " \n"));
    return true;
}

/* The mount that `fd` leads into. 0 or -errno. */
static int find_entry(int fd, struct mount_entry *entry_ret)
{
    int id = mount_id_of(fd);
    if (id < 0)
        return id;
    FILE *table = fopen("/proc/self/mountinfo", "re");
    if (!table)
        return -ENOENT; /* no /proc */
    kvs_cleanup_free char *line = NULL;
    size_t size = 0;
    bool found = false;
    while (!found && getline(&line, &size, table) > 0)
        found = parse_entry(line, id, entry_ret);
    fclose(table);
    if (!found)
        return -ENOENT;
    if (entry_ret->mountpoint && entry_ret->type)
        return 0;
    free_entry(entry_ret);
    return -ENOMEM;
}

/* Asks the file system at `path` for a sign of life, from a child that may hang. 0, -errno of the
 * answer, or -ETIMEDOUT. */
static int ask(const char *path)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    kvs_cleanup_fd int from_child = ends[0];
    pid_t child = fork();
    if (child == 0) {
        struct statfs st;
        int answer = statfs(path, &st) < 0 ? -errno : 0;
        _exit(write(ends[1], &answer, sizeof(answer)) == sizeof(answer) ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0)
        return -EAGAIN;
    struct pollfd pollfd = {.fd = from_child, .events = POLLIN};
    int ready;
    do
        ready = poll(&pollfd, 1, ANSWER_MS);
    while (ready < 0 && errno == EINTR);
    int answer = -ETIMEDOUT;
    if (ready > 0) {
        if (read(from_child, &answer, sizeof(answer)) != sizeof(answer))
            answer = -EIO;
        waitpid(child, NULL, 0);
    } else {
        kill(child, SIGKILL); /* and not waited for: it may be stuck in the kernel */
    }
    return answer;
}

static int detach(const char *path)
{
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        return 0;
    int error = -errno;
    if (error != -EPERM)
        return error;
    /* An ordinary user's mount goes the way it came. */
    char *const argv[] = {"fusermount3", "-u", "-z", "-q", "--", (char *)path, NULL};
    pid_t child;
    int status;
    if (posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) != 0 ||
        waitpid(child, &status, 0) < 0 || status != 0)
        return error;
    return 0;
}

/* What is mounted right on `path`, the canonical path of `fd`. */
enum occupant {
    OCCUPANT_ORDINARY, /* a directory, or a file system that is not FUSE's */
    OCCUPANT_FUSE,
    OCCUPANT_KVSEALFS,
};

/* 0 or -errno. */
static int identify(int fd, const char *path, enum occupant *occupant_ret)
{
    struct mount_entry entry = {0};
    int error = find_entry(fd, &entry);
    if (error)
        return error;
    bool is_root = !strcmp(entry.mountpoint, path);
    bool is_fuse = !strcmp(entry.type, "fuse") || !strncmp(entry.type, "fuse.", 5) ||
                   !strcmp(entry.type, "fuseblk");
    bool is_ours = !strcmp(entry.type, "fuse.kvsealfs");
    free_entry(&entry);
    *occupant_ret = !is_root || !is_fuse ? OCCUPANT_ORDINARY
                    : is_ours            ? OCCUPANT_KVSEALFS
                                         : OCCUPANT_FUSE;
    return 0;
}

/* Opens the mount point and finds its canonical path (PATH_MAX bytes) and what is mounted there.
 * 0 or -errno, said. */
static int look_up(const char *mountpoint, char *path, enum occupant *occupant_ret)
{
    kvs_cleanup_fd int fd = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        int error = -errno;
        complain("mount point %s: %s", mountpoint, strerror(-error));
        return error;
    }
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, path, PATH_MAX - 1);
    int error = len < 0 ? -errno : 0;
    path[len < 0 ? 0 : len] = 0;
    error = error ? error : identify(fd, path, occupant_ret);
    if (error)
        complain("mount point %s: cannot be looked up in /proc: %s", mountpoint, strerror(-error));
    return error;
}

/* One look at the mount point. 0: it can be used; 1: a dead mount was detached, look again;
 * or -errno, said. */
static int look_once(const char *mountpoint, char *path)
{
    enum occupant occupant = OCCUPANT_ORDINARY;
    int error = look_up(mountpoint, path, &occupant);
    if (error || occupant == OCCUPANT_ORDINARY)
        return error;
    error = ask(path);
    if (error == -ENOTCONN || error == -ECONNABORTED) {
        error = detach(path);
        if (error) {
            complain("mount point %s: a dead mount is there and cannot be detached: %s", mountpoint,
                     strerror(-error));
            return error;
        }
        kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE, "detached a dead mount from %s", path);
        return 1;
    }
    if (error == -ETIMEDOUT) {
        complain("mount point %s: what is mounted there does not answer: detach it with umount -l",
                 mountpoint);
        return error;
    }
    if (occupant == OCCUPANT_KVSEALFS) {
        complain("mount point %s: already served by another kvsealfs", mountpoint);
        return -EBUSY;
    }
    return 0;
}

int kvs_mount_prepare(const char *mountpoint, char **path_ret)
{
    char path[PATH_MAX];
    for (int i = 0; i < MOST_DEAD_MOUNTS; i++) {
        int result = look_once(mountpoint, path);
        if (result < 0)
            return result;
        if (result == 0) {
            *path_ret = strdup(path);
            return *path_ret ? 0 : -ENOMEM;
        }
    }
    complain("mount point %s: dead mounts keep coming back", mountpoint);
    return -EBUSY;
}
