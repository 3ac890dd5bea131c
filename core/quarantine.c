// SPDX-License-Identifier: Apache-2.0
// Reads the causes that corrupt.c writes, and moves or removes what they are about.
#include "core/quarantine.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "core/beneath.h"
#include "core/log.h"
#include "core/state_dir.h"
#include "core/util.h"

#define CAUSE_SUFFIX    ".cause"
#define CAUSE_NAME_SIZE (NAME_MAX + sizeof(CAUSE_SUFFIX))
#define CAUSE_SIZE      (4 * PATH_MAX + 256) /* more than corrupt.c ever writes */

void kvs_quarantined_destroy(struct kvs_quarantined *block)
{
    free(block->name);
    free(block->path);
    *block = (struct kvs_quarantined){0};
}

int kvs_quarantine_open_existing(int source_fd)
{
    static const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, source_fd, KVS_QUARANTINE_DIR, &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

/* ---- reading a cause ---- */

static bool is_cause(const char *name)
{
    size_t len = strlen(name);
    size_t suffix = sizeof(CAUSE_SUFFIX) - 1;

    return len > suffix && strcmp(name + len - suffix, CAUSE_SUFFIX) == 0;
}

/* Of a block; a cause is its own. */
static void make_cause_name(char made[CAUSE_NAME_SIZE], const char *name)
{
    snprintf(made, CAUSE_NAME_SIZE, "%s%s", name, is_cause(name) ? "" : CAUSE_SUFFIX);
}

/* The text of NAME.cause; false: there is none. */
static bool read_cause(int quarantine_fd, const char *name, char text[CAUSE_SIZE])
{
    char file[CAUSE_NAME_SIZE];
    kvs_cleanup_fd int fd = -1;
    ssize_t len = 0;

    make_cause_name(file, name);
    fd = openat(quarantine_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    len = read(fd, text, CAUSE_SIZE - 1);
    if (len < 0)
        return false;
    text[len] = '\0';
    return true;
}

/* What stands behind "KEY: " at the beginning of a line; malloc()ed, or NULL. */
static char *find_value(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; *line != '\0'; line++) {
        size_t line_len = strcspn(line, "\n");

        if (line[line_len] == '\0')
            return NULL; /* cut */
        if (strncmp(line, key, len) == 0 && strncmp(line + len, ": ", 2) == 0)
            return strndup(line + len + 2, line_len - len - 2);
        line += line_len;
    }
    return NULL;
}

static bool parse_sum(const char *text, uint32_t *sum_ret)
{
    if (text == NULL || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return false;
    *sum_ret = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

static bool parse_expected(const char *text, struct kvs_record *expected_ret)
{
    expected_ret->kind = KVS_RECORD_SUM;
    if (text == NULL || strcmp(text, "malformed") != 0)
        return parse_sum(text, &expected_ret->crc);
    expected_ret->kind = KVS_RECORD_MALFORMED;
    return true;
}

static bool parse_time(const char *text, int64_t *time_ret)
{
    struct tm tm = {0};
    const char *end = text != NULL ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm) : NULL;

    if (end == NULL || *end != '\0')
        return false;
    *time_ret = timegm(&tm);
    return true;
}

/* The daemon writes "?" in place of what it does not know of a path. */
static bool is_known_path(const char *path)
{
    size_t len = strcspn(path, "/");

    while (!(len == 1 && *path == '?') && len > 0) {
        path += len;
        if (*path == '\0')
            return true;
        path++;
        len = strcspn(path, "/");
    }
    return false;
}

static void parse_cause(const char *text, struct kvs_quarantined *block)
{
    kvs_cleanup_free char *expected = find_value(text, "expected");
    kvs_cleanup_free char *computed = find_value(text, "computed");
    kvs_cleanup_free char *when = find_value(text, "time");
    int64_t time = 0;

    block->path = find_value(text, "path");
    if (block->path != NULL && (kvs_log_unescape(block->path) < 0 || !is_known_path(block->path))) {
        free(block->path);
        block->path = NULL;
    }
    block->has_cause = parse_expected(expected, &block->expected) &&
                       parse_sum(computed, &block->computed) && parse_time(when, &time);
    if (block->has_cause)
        block->time = time;
}

/* ---- the list ---- */

/* A cause whose block is gone. */
static bool is_orphan(int quarantine_fd, const char *name)
{
    char block_name[NAME_MAX + 1];
    struct stat st;

    if (!is_cause(name))
        return false;
    snprintf(block_name, sizeof(block_name), "%.*s",
             (int)(strlen(name) - (sizeof(CAUSE_SUFFIX) - 1)), name);
    return fstatat(quarantine_fd, block_name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* 0; -ENOENT: no file has this name (any more); -ENOMEM. */
static int look_at(int quarantine_fd, const char *name, struct kvs_quarantined *block_ret)
{
    kvs_cleanup_free char *text = NULL;
    struct stat st;

    *block_ret = (struct kvs_quarantined){0};
    if (fstatat(quarantine_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return -ENOENT;
    text = malloc(CAUSE_SIZE);
    block_ret->name = strdup(name);
    if (text == NULL || block_ret->name == NULL) {
        kvs_quarantined_destroy(block_ret);
        return -ENOMEM;
    }
    block_ret->size = (uint64_t)st.st_size;
    block_ret->time = st.st_ctim.tv_sec;
    if (read_cause(quarantine_fd, name, text))
        parse_cause(text, block_ret);
    return 0;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct kvs_quarantined *one = a;
    const struct kvs_quarantined *other = b;

    if (one->time != other->time)
        return one->time < other->time ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int read_files(DIR *dir, bool are_orphans, struct kvs_quarantined **blocks, size_t *count)
{
    struct dirent *entry = NULL;

    while ((errno = 0, entry = readdir(dir)) != NULL) {
        struct kvs_quarantined *more = NULL;
        int r = 0;

        if (are_orphans ? !is_orphan(dirfd(dir), entry->d_name) : is_cause(entry->d_name))
            continue;
        more = reallocarray(*blocks, *count + 1, sizeof(**blocks));
        if (more == NULL)
            return -ENOMEM;
        *blocks = more;
        r = look_at(dirfd(dir), entry->d_name, &more[*count]);
        if (r == 0)
            ++*count;
        else if (r != -ENOENT)
            return r;
    }
    return -errno;
}

static int list_files(int quarantine_fd, bool are_orphans, struct kvs_quarantined **blocks_ret,
                      size_t *count_ret)
{
    int fd = openat(quarantine_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;

    *blocks_ret = NULL;
    *count_ret = 0;
    if (dir == NULL) {
        r = -errno;
        kvs_close_fd(&fd);
        return r;
    }
    r = read_files(dir, are_orphans, blocks_ret, count_ret);
    closedir(dir);
    if (r < 0) {
        kvs_quarantine_free(*blocks_ret, *count_ret);
        return r;
    }
    if (*count_ret > 0)
        qsort(*blocks_ret, *count_ret, sizeof(**blocks_ret), compare_blocks);
    return 0;
}

int kvs_quarantine_list(int quarantine_fd, struct kvs_quarantined **blocks_ret, size_t *count_ret)
{
    return list_files(quarantine_fd, false, blocks_ret, count_ret);
}

int kvs_quarantine_list_orphans(int quarantine_fd, struct kvs_quarantined **causes_ret,
                                size_t *count_ret)
{
    return list_files(quarantine_fd, true, causes_ret, count_ret);
}

void kvs_quarantine_free(struct kvs_quarantined *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        kvs_quarantined_destroy(&blocks[i]);
    free(blocks);
}

/* ---- out of it ---- */

/* Never over another file: where there is no RENAME_NOREPLACE (NFS, some FUSE), by a second link.
 */
static int move_to(int from_fd, const char *from, int to_fd, const char *to)
{
    if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    if (linkat(from_fd, from, to_fd, to, 0) < 0 || unlinkat(from_fd, from, 0) < 0)
        return -errno;
    return 0;
}

static void remove_cause(int quarantine_fd, const char *name)
{
    char file[CAUSE_NAME_SIZE];

    make_cause_name(file, name);
    unlinkat(quarantine_fd, file, 0);
}

int kvs_quarantine_restore(int source_fd, int quarantine_fd, const struct kvs_quarantined *block)
{
    const char *name = NULL;
    kvs_cleanup_fd int dir_fd = -1;
    int r = 0;

    if (block->path == NULL)
        return -EINVAL;
    dir_fd = kvs_beneath_open_parent(source_fd, block->path, &name);
    if (dir_fd < 0)
        return dir_fd == -ENOTDIR || dir_fd == -ELOOP ? -ENOENT : dir_fd;
    r = move_to(quarantine_fd, block->name, dir_fd, name);
    if (r == 0)
        remove_cause(quarantine_fd, block->name);
    return r;
}

int kvs_quarantine_remove(int quarantine_fd, const struct kvs_quarantined *block)
{
    if (unlinkat(quarantine_fd, block->name, 0) < 0)
        return -errno;
    remove_cause(quarantine_fd, block->name);
    return 0;
}
