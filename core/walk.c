// SPDX-License-Identifier: Apache-2.0
// A depth-first walk with a stack of open directories, each with its sorted names.
#include "core/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/corrupt.h"
#include "core/temporary.h"
#include "core/util.h"

/* The names of a directory: one after the other in `text`, each behind a byte of its d_type. */
struct names {
    char *text;
    size_t used, room;
    size_t *places; /* where each name begins in `text`, sorted by the name's bytes */
    size_t count, places_room;
};

struct level {
    int fd;
    struct names names;
    size_t next;        /* which name is looked at next */
    size_t path_length; /* of the directory's own path */
};

struct walker {
    const struct kvs_walk *walk;
    struct level *levels;
    size_t depth, levels_room;
    char *path; /* of what is looked at */
    size_t path_room;
};

/* Makes room for `wanted` elements of `size` bytes. -ENOMEM leaves it as it was. */
static int grow(void *memory_in_out, size_t *room, size_t wanted, size_t size)
{
    void **memory = memory_in_out, *larger = NULL;
    size_t more = KVS_MAX(*room * 2, 16);

    if (wanted <= *room)
        return 0;
    more = KVS_MAX(more, wanted);
    larger = reallocarray(*memory, more, size);
    if (larger == NULL)
        return -ENOMEM;
    *memory = larger;
    *room = more;
    return 0;
}

/* ---- names ---- */

static int add_name(struct names *names, const struct dirent *entry)
{
    size_t size = strlen(entry->d_name) + 1;

    if (grow(&names->text, &names->room, names->used + 1 + size, 1) < 0 ||
        grow(&names->places, &names->places_room, names->count + 1, sizeof(size_t)) < 0)
        return -ENOMEM;
    names->text[names->used++] = (char)entry->d_type;
    names->places[names->count++] = names->used;
    memcpy(names->text + names->used, entry->d_name, size);
    names->used += size;
    return 0;
}

static int compare_places(const void *a, const void *b, void *text)
{
    return strcmp((char *)text + *(const size_t *)a, (char *)text + *(const size_t *)b);
}

/* A directory that changes while it is listed may give a name twice. */
static void drop_doubles(struct names *names)
{
    size_t kept = 0;

    for (size_t i = 0; i < names->count; i++) {
        if (kept == 0 || compare_places(&names->places[kept - 1], &names->places[i], names->text))
            names->places[kept++] = names->places[i];
    }
    names->count = kept;
}

static void free_names(struct names *names)
{
    free(names->text);
    free(names->places);
}

/* 0 or -errno of readdir(3), or -ENOMEM; `names` is the caller's in any case. */
static int list(DIR *directory, struct names *names)
{
    struct dirent *entry = NULL;
    int r = 0;

    while (r == 0 && (errno = 0, entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = add_name(names, entry);
    }
    if (r == 0 && errno != 0)
        return -errno;
    if (names->count > 0)
        qsort_r(names->places, names->count, sizeof(size_t), compare_places, names->text);
    drop_doubles(names);
    return r;
}

/* Without moving the directory's access time, where that is allowed. */
static int open_directory(int dir_fd, const char *name)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir_fd, name, flags | O_NOATIME);

    if (fd < 0 && errno == EPERM)
        fd = openat(dir_fd, name, flags);
    return fd < 0 ? -errno : fd;
}

static int read_names(int fd, struct names *names)
{
    kvs_cleanup_fd int own_fd = open_directory(fd, ".");
    DIR *directory = NULL;

    if (own_fd < 0)
        return own_fd;
    directory = fdopendir(own_fd);
    if (directory == NULL)
        return -errno;
    kvs_steal_fd(&own_fd); /* closedir() closes it */
    int r = list(directory, names);
    closedir(directory);
    return r;
}

/* ---- order ---- */

/* Bytes of the first component. */
static size_t component_length(const char *path)
{
    return strcspn(path, "/");
}

static int compare_components(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int order = memcmp(a, b, KVS_MIN(a_length, b_length));

    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

int kvs_walk_compare(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        size_t a_length = component_length(a), b_length = component_length(b);
        int order = compare_components(a, a_length, b, b_length);

        if (order != 0)
            return order;
        a += a_length + (a[a_length] == '/');
        b += b_length + (b[b_length] == '/');
    }
    return (*a != '\0') - (*b != '\0');
}

/* ---- the walk ---- */

static struct level *top(struct walker *walker)
{
    return &walker->levels[walker->depth - 1];
}

static int report(struct walker *walker, struct kvs_walk_entry *entry)
{
    const char *slash = strrchr(walker->path, '/');

    entry->path = walker->path;
    entry->name = slash != NULL ? slash + 1 : walker->path;
    entry->dir_fd = walker->depth > 0 ? top(walker)->fd : -1;
    return walker->walk->visit(walker->walk->context, entry);
}

/* What is not there any more, or is another thing now, is not an error. */
static int report_failure(struct walker *walker, int error)
{
    bool is_gone = error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -ESTALE;
    struct kvs_walk_entry entry = {.kind = is_gone ? KVS_WALK_GONE : KVS_WALK_ERROR,
                                   .error = is_gone ? 0 : error};

    return report(walker, &entry);
}

/* Sets the path to the name of the present directory. */
static int set_path(struct walker *walker, const char *name)
{
    size_t length = top(walker)->path_length;
    size_t size = strlen(name) + 1;

    if (grow(&walker->path, &walker->path_room, length + 1 + size, 1) < 0)
        return -ENOMEM;
    if (length > 0)
        walker->path[length++] = '/';
    memcpy(walker->path + length, name, size);
    return 0;
}

/* The part of `after` below the present directory, or NULL where it is elsewhere. */
static const char *after_below(const struct walker *walker, size_t path_length)
{
    const char *after = walker->walk->after;

    if (after == NULL || strncmp(after, walker->path, path_length) != 0)
        return NULL;
    if (path_length == 0)
        return after;
    return after[path_length] == '/' ? after + path_length + 1 : NULL;
}

/* The first name that is not before the cursor's component. */
static size_t find_start(const struct walker *walker, const struct level *level)
{
    const char *after = after_below(walker, level->path_length);
    size_t low = 0, high = level->names.count;

    if (after == NULL || *after == '\0')
        return 0;
    size_t length = component_length(after);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *name = level->names.text + level->names.places[middle];
        if (compare_components(name, strlen(name), after, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Puts a directory, whose path is set, on the stack. */
static int push(struct walker *walker, int fd)
{
    struct level level = {.fd = fd, .path_length = strlen(walker->path)};
    int r = grow(&walker->levels, &walker->levels_room, walker->depth + 1, sizeof(level));

    if (r == 0)
        r = read_names(fd, &level.names);
    if (r < 0) {
        free_names(&level.names);
        close(fd);
        return r == -ENOMEM ? r : report_failure(walker, r);
    }
    level.next = find_start(walker, &level);
    walker->levels[walker->depth++] = level;
    return 0;
}

static void pop(struct walker *walker)
{
    struct level *level = top(walker);

    close(level->fd);
    free_names(&level->names);
    walker->depth--;
}

/* Asks nobody but the kernel: a mount that hangs must not be touched to be seen. */
static int look_at_directory(int dir_fd, const char *name, bool *is_mount_ret)
{
    struct statx stx;
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;

    if (statx(dir_fd, name, flags, STATX_TYPE, &stx) < 0)
        return -errno;
    *is_mount_ret = (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    return 0;
}

static int enter(struct walker *walker, const char *name)
{
    struct kvs_walk_entry mount = {.kind = KVS_WALK_MOUNT};
    int dir_fd = top(walker)->fd;
    bool is_mount = false;
    int fd = -1;

    if (strcmp(name, KVS_STATE_DIR) == 0)
        return 0;
    int r = look_at_directory(dir_fd, name, &is_mount);
    if (r == 0 && is_mount)
        return report(walker, &mount);
    if (r == 0)
        r = fd = open_directory(dir_fd, name);
    return r < 0 ? report_failure(walker, r) : push(walker, fd);
}

static bool is_temporary(const char *name)
{
    return kvs_temporary_is(name, KVS_ASIDE_PREFIX) || kvs_temporary_is(name, KVS_PROBE_PREFIX);
}

static enum kvs_walk_kind kind_of(const char *name, mode_t mode)
{
    if (!S_ISREG(mode))
        return KVS_WALK_OTHER;
    return is_temporary(name) ? KVS_WALK_TEMPORARY : KVS_WALK_FILE;
}

/* Is the path the cursor itself? A directory never is: what is in it comes after it. */
static bool is_done(const struct walker *walker)
{
    return walker->walk->after != NULL && strcmp(walker->path, walker->walk->after) == 0;
}

/* Looks at the name whose path is set. */
static int look(struct walker *walker, const char *name, unsigned char type)
{
    struct kvs_walk_entry entry = {0};
    struct stat st;

    if (type == DT_DIR)
        return enter(walker, name);
    if (fstatat(top(walker)->fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return report_failure(walker, -errno);
    if (S_ISDIR(st.st_mode))
        return enter(walker, name);
    if (is_done(walker))
        return 0;
    entry.kind = kind_of(name, st.st_mode);
    entry.stat = &st;
    return report(walker, &entry);
}

static int step(struct walker *walker)
{
    struct level *level = top(walker);

    if (level->names.places == NULL || level->next == level->names.count) { /* empty, or done */
        pop(walker);
        return 0;
    }
    const char *name = level->names.text + level->names.places[level->next++];
    int r = set_path(walker, name);
    /* Entering a directory adds a level, and may move the others: `level` is not used after. */
    return r < 0 ? r : look(walker, name, (unsigned char)name[-1]);
}

int kvs_walk(int root_fd, const struct kvs_walk *walk)
{
    struct walker walker = {.walk = walk};
    int fd = -1;
    int r = grow(&walker.path, &walker.path_room, 1, 1);

    if (r < 0)
        return r;
    walker.path[0] = '\0';
    fd = open_directory(root_fd, ".");
    r = fd < 0 ? report_failure(&walker, fd) : push(&walker, fd);
    while (r == 0 && walker.depth > 0)
        r = step(&walker);
    while (walker.depth > 0)
        pop(&walker);
    free(walker.levels);
    free(walker.path);
    return r;
}
