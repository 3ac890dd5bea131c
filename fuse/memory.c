// SPDX-License-Identifier: Apache-2.0
// How much memory there is for us, and defaults that fit it.
//
// In a container /proc/self/cgroup may name the group as the host sees it while /sys/fs/cgroup
// shows the container's own group as its root: so every ancestor of the path is looked for, and
// those that are not there are passed over.
#include "fuse/memory.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"

#define MIB ((uint64_t)1 << 20)

#define LEAST_BUFFER_MEMORY (32 * MIB)
#define USUAL_BUFFER_MEMORY (1024 * MIB)
#define LEAST_PINNED_MEMORY MIB
#define USUAL_PINNED_MEMORY (256 * MIB)
/* Code, stacks and tables besides. */
#define OTHER_MEMORY (64 * MIB)

/* Where limits are found. */
static const struct hierarchy {
    const char *controller; /* as in /proc/self/cgroup; "": cgroup v2 */
    const char *mountpoint;
    const char *file;
} hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max"},
    {"", "/sys/fs/cgroup", "memory.high"},
    {"", "/sys/fs/cgroup/unified", "memory.max"},
    {"", "/sys/fs/cgroup/unified", "memory.high"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
};

/* At most size - 1 bytes of ROOT/PATH, terminated; "" where it cannot be read. */
static void read_text(const char *root, const char *path, char *text, size_t size)
{
    char name[PATH_MAX];
    text[0] = 0;
    if (snprintf(name, sizeof(name), "%s%s", root, path) >= (int)sizeof(name))
        return;
    kvs_cleanup_fd int fd = open(name, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t got = 1;
    while (fd >= 0 && got > 0 && len < size - 1) {
        got = read(fd, text + len, size - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    text[len] = 0;
}

uint64_t kvs_memory_parse_limit(const char *text)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return UINT64_MAX;
    errno = 0;
    uint64_t bytes = strtoull(text, &end, 10);
    return errno || (*end && *end != '\n') ? UINT64_MAX : bytes;
}

uint64_t kvs_memory_parse_total(const char *text)
{
    static const char name[] = "MemTotal:";
    const char *line = text;
    while (line && strncmp(line, name, sizeof(name) - 1) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        return UINT64_MAX;
    char *unit;
    errno = 0;
    unsigned long long kib = strtoull(line + sizeof(name) - 1, &unit, 10);
    if (errno || strncmp(unit, " kB", 3) != 0 || kib > UINT64_MAX / 1024)
        return UINT64_MAX;
    return kib * 1024;
}

/* Whether the list "cpu,memory" of this length has the word; an empty list has "". */
static bool list_has(const char *list, size_t len, const char *word)
{
    size_t word_len = strlen(word);
    if (word_len == 0 || len == 0)
        return word_len == len;
    for (const char *item = list, *end = list + len; item < end;) {
        const char *comma = memchr(item, ',', (size_t)(end - item));
        size_t item_len = (size_t)((comma ? comma : end) - item);
        if (item_len == word_len && !memcmp(item, word, word_len))
            return true;
        item += item_len + 1;
    }
    return false;
}

/* "0::/path" or "4:cpu,memory:/path" */
int kvs_memory_parse_group(const char *text, const char *controller, char *path_ret, size_t size)
{
    for (const char *line = text; *line;) {
        size_t line_len = strcspn(line, "\n");
        const char *list = memchr(line, ':', line_len);
        const char *path = list ? memchr(list + 1, ':', line_len - (size_t)(list + 1 - line))
                                : NULL;
        if (path && list_has(list + 1, (size_t)(path - list - 1), controller)) {
            path++;
            size_t len = line_len - (size_t)(path - line);
            if (len >= size)
                return -ENAMETOOLONG;
            memcpy(path_ret, path, len);
            path_ret[len] = 0;
            if (path_ret[0] != '/' || strstr(path_ret, "/..")) /* outside of our namespace */
                snprintf(path_ret, size, "/");
            return 0;
        }
        line += line_len + (line[line_len] == '\n');
    }
    return -ENOENT;
}

/* The least of the group's own limit and of those above it. */
static uint64_t group_limit(const char *root, const struct hierarchy *hierarchy, char *group)
{
    uint64_t least = UINT64_MAX;
    for (char *slash = group + strlen(group); slash; slash = strrchr(group, '/')) {
        char path[PATH_MAX], text[64];
        *slash = 0;
        if (snprintf(path, sizeof(path), "%s%s/%s", hierarchy->mountpoint, group, hierarchy->file) <
            (int)sizeof(path)) {
            read_text(root, path, text, sizeof(text));
            uint64_t limit = kvs_memory_parse_limit(text);
            least = KVS_MIN(least, limit);
        }
    }
    return least;
}

uint64_t kvs_memory_limit(const char *root)
{
    char text[16384], group[PATH_MAX];
    read_text(root, "/proc/meminfo", text, sizeof(text));
    uint64_t least = kvs_memory_parse_total(text);
    read_text(root, "/proc/self/cgroup", text, sizeof(text));
    for (size_t i = 0; i < sizeof(hierarchies) / sizeof(*hierarchies); i++) {
        if (kvs_memory_parse_group(text, hierarchies[i].controller, group, sizeof(group)))
            continue;
        uint64_t limit = group_limit(root, &hierarchies[i], group);
        least = KVS_MIN(least, limit);
    }
    return least;
}

/* Fills in a size that was not given. True: it is less than usual. */
static bool choose(uint64_t *size, uint64_t share, uint64_t least, uint64_t usual)
{
    if (*size)
        return false;
    share = KVS_MIN(share, usual);
    *size = KVS_MAX(share, least);
    return *size < usual;
}

void kvs_memory_choose(struct kvs_options *options, uint64_t limit)
{
    bool is_less = choose(&options->buffer_memory, limit / 4, LEAST_BUFFER_MEMORY,
                          USUAL_BUFFER_MEMORY);
    is_less |= choose(&options->pinned_memory, limit / 8, LEAST_PINNED_MEMORY, USUAL_PINNED_MEMORY);
    unsigned long long limit_mib = limit / MIB, buffer_mib = options->buffer_memory / MIB,
                       pinned_mib = options->pinned_memory / MIB;
    uint64_t room = limit > OTHER_MEMORY ? limit - OTHER_MEMORY : 0;
    bool fits = options->buffer_memory <= room &&
                options->pinned_memory <= room - options->buffer_memory;
    if (!fits)
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING,
                "the memory limit of %lluM is too small for buffer_memory=%lluM, "
                "pinned_memory=%lluM and %lluM besides",
                limit_mib, buffer_mib, pinned_mib, (unsigned long long)(OTHER_MEMORY / MIB));
    else if (is_less)
        kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE,
                "memory limit %lluM: buffer_memory=%lluM, pinned_memory=%lluM", limit_mib,
                buffer_mib, pinned_mib);
}
