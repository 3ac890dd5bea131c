// SPDX-License-Identifier: Apache-2.0
// A side of the comparison: a directory that a tier can work in, and what is below it.
#include "tests/bench/side.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util.h"
#include "tests/bench/samples.h"

#define FAN 8

void side_path(char path_ret[PATH_MAX], const char *dir, uint64_t number)
{
    int length = snprintf(path_ret, PATH_MAX, "%s/%u/%016" PRIx64 ".bin", dir,
                          (unsigned)(number % FAN), number);
    if (length >= PATH_MAX)
        die("%s: the path is too long", dir);
}

void side_make_directories(const struct side *side)
{
    for (unsigned i = 0; i < FAN; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%u", side->dir, i);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            die("%s: %s", path, strerror(errno));
    }
}

void side_remove(const struct side *side, uint64_t first, uint64_t count)
{
    char path[PATH_MAX];

    for (uint64_t i = 0; i < count; i++) {
        side_path(path, side->dir, first + i);
        if (unlink(path) < 0 && errno != ENOENT)
            die("unlink %s: %s", path, strerror(errno));
    }
}

void side_sync(const struct side *side)
{
    kvs_cleanup_fd int fd = open(side->below, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) < 0)
        die("sync %s: %s", side->below, strerror(errno));
}

static int open_below(const struct side *side, uint64_t number)
{
    char path[PATH_MAX];
    side_path(path, side->below, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("%s: %s", path, strerror(errno));
    return fd;
}

void side_cool(const struct side *side, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        kvs_cleanup_fd int fd = open_below(side, first + i);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

void side_touch(const struct side *side, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        kvs_cleanup_fd int fd = open_below(side, first + i);
        if (fchmod(fd, 0644) < 0)
            die("chmod in %s: %s", side->below, strerror(errno));
    }
}

double side_daemon_cpu(const struct side *side)
{
    char path[64], text[1024];
    unsigned long long user, system;

    if (side->daemon == 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", side->daemon);
    kvs_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length <= 0)
        die("the daemon of side \"%s\" has ended", side->name);
    text[length] = '\0';
    /* Its name may hold anything, so the fields are counted from behind it. */
    const char *fields = strrchr(text, ')');
    if (fields == NULL || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                                 &user, &system) != 2)
        die("%s cannot be read", path);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}
