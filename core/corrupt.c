// SPDX-License-Identifier: Apache-2.0
// Takes the names of a corrupt block away without ever taking those of another file.
#include "core/corrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/lease.h"
#include "core/log.h"
#include "core/state_dir.h"
#include "core/temporary.h"
#include "core/util.h"

/*
 * Between a look at a name and its removal another node may store the block anew under that name,
 * and unlink would take the good block. So the name is first renamed to one that nobody uses, and
 * the inode is looked at there. Another file goes back. If by then there is a third file under the
 * name, it was stored last and stays, and the one in our hands is removed: exactly what the third
 * one's rename would have done to it, had we not been there.
 */

#define NAME_SIZE   256
#define NAME_TRIES  16
#define CUT_NAME_AT 160 /* leaves room for what quarantine adds */

/* A name in a directory. */
struct place {
    int dir_fd;
    const char *name;
};

/* Does the name lead to the inode? 1 yes; 0 to another one; -errno (-ENOENT: to none). */
static int is_inode(const struct place *place, dev_t dev, ino_t ino)
{
    struct stat st;

    if (fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return st.st_dev == dev && st.st_ino == ino;
}

/* Renames; -EEXIST when there is a `to`. */
static int move_name(const struct place *from, const struct place *to)
{
    struct stat st;

    if (renameat2(from->dir_fd, from->name, to->dir_fd, to->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    /* Without RENAME_NOREPLACE below (NFS, some FUSE) a look before has to do. */
    if (fstatat(to->dir_fd, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return renameat(from->dir_fd, from->name, to->dir_fd, to->name) < 0 ? -errno : 0;
}

/* Undoes a move; see above for when the name is taken meanwhile. */
static int move_back(const struct place *moved, const struct place *original)
{
    int r = move_name(moved, original);

    if (r == -EEXIST)
        r = unlinkat(moved->dir_fd, moved->name, 0) < 0 ? -errno : 0;
    return r;
}

/* Moves the name if it is the inode. -ENOENT: it is not; -EEXIST: there is a `to`. */
static int move_inode(const struct place *from, const struct place *to, dev_t dev, ino_t ino)
{
    int r = is_inode(from, dev, ino);

    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    r = move_name(from, to);
    if (r < 0)
        return r;
    r = is_inode(to, dev, ino);
    if (r > 0)
        return 0;
    if (r == 0)
        r = -ENOENT;
    if (move_back(to, from) < 0)
        kvs_log(KVS_LOG_OTHER, LOG_ERR, "a file that was moved aside as %s could not be moved back",
                to->name);
    return r;
}

int kvs_corrupt_remove(int dir_fd, const char *name, dev_t dev, ino_t ino)
{
    char aside_name[KVS_TEMPORARY_SIZE];
    const struct place original = {dir_fd, name};
    const struct place aside = {dir_fd, aside_name};
    int r = -EEXIST;

    for (int i = 0; r == -EEXIST && i < NAME_TRIES; i++) {
        r = kvs_temporary_make(aside_name, KVS_ASIDE_PREFIX);
        if (r < 0)
            return r;
        r = move_inode(&original, &aside, dev, ino);
    }
    if (r == 0 && unlinkat(dir_fd, aside_name, 0) < 0) {
        r = -errno;
        move_back(&aside, &original);
    }
    return r;
}

bool kvs_corrupt_is_aside(const char *name)
{
    return kvs_temporary_is(name, KVS_ASIDE_PREFIX);
}

/* NAME-TIME-INODE, with a number behind it from the second try on. */
static void make_quarantine_name(char made[NAME_SIZE], const char *name, ino_t ino, int number)
{
    size_t len = strlen(name);
    char when[sizeof("20260101T000000Z")] = "";
    time_t now = time(NULL);
    struct tm tm;

    if (len > CUT_NAME_AT) {
        len = CUT_NAME_AT;
        while (len > 0 && (name[len] & 0xC0) == 0x80) /* not within a UTF-8 character */
            len--;
    }
    strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    if (number == 0)
        snprintf(made, NAME_SIZE, "%.*s-%s-%ju", (int)len, name, when, (uintmax_t)ino);
    else
        snprintf(made, NAME_SIZE, "%.*s-%s-%ju-%d", (int)len, name, when, (uintmax_t)ino, number);
}

/* Writes NAME.cause beside the block. */
static int write_cause(int quarantine_fd, const char *name, const char *path,
                       const struct kvs_verification *cause)
{
    char file[NAME_SIZE + sizeof(".cause")];
    char expected[sizeof("malformed")] = "malformed";
    char when[sizeof("2026-01-01T00:00:00Z")] = "";
    char escaped[4 * PATH_MAX];
    kvs_cleanup_fd int fd = -1;
    time_t now = time(NULL);
    struct tm tm;

    snprintf(file, sizeof(file), "%s.cause", name);
    fd = openat(quarantine_fd, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (cause->record.kind == KVS_RECORD_SUM)
        snprintf(expected, sizeof(expected), "%08" PRIx32, cause->record.crc);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    if (dprintf(fd,
                "path: %s\nsize: %" PRIu64 "\nexpected: %s\ncomputed: %08" PRIx32 "\ntime: %s\n",
                kvs_log_escape(path, escaped, sizeof(escaped)), cause->size, expected,
                cause->computed, when) < 0)
        return -errno;
    return 0;
}

int kvs_corrupt_quarantine(int source_fd, int dir_fd, const char *name, dev_t dev, ino_t ino,
                           const char *path, const struct kvs_verification *cause)
{
    char moved_name[NAME_SIZE];
    kvs_cleanup_fd int quarantine_fd = kvs_quarantine_open(source_fd);
    const struct place original = {dir_fd, name};
    const struct place moved = {quarantine_fd, moved_name};
    int r = -EEXIST;
    int cause_result = 0;

    if (quarantine_fd < 0)
        return quarantine_fd;
    for (int i = 0; r == -EEXIST && i < NAME_TRIES; i++) {
        make_quarantine_name(moved_name, name, ino, i);
        r = move_inode(&original, &moved, dev, ino);
    }
    if (r < 0)
        return r;
    cause_result = write_cause(quarantine_fd, moved_name, path, cause);
    if (cause_result < 0)
        kvs_log(KVS_LOG_BACKING_ERROR, LOG_WARNING, "the cause of a quarantined block is lost: %s",
                strerror(-cause_result));
    return 0;
}

/* ---- what a kill left behind ---- */

/* Where it is not found again by the name that it had, which nobody knows any more. */
static int keep_good(int source_fd, int dir_fd, const char *name,
                     const struct kvs_verification *found)
{
    int r = kvs_corrupt_quarantine(source_fd, dir_fd, name, found->stat.st_dev, found->stat.st_ino,
                                   "?", found);

    if (r == 0)
        kvs_log(KVS_LOG_OTHER, LOG_WARNING,
                "a good block whose name was lost in a kill is kept in %s: see kvseal quarantine "
                "list",
                KVS_QUARANTINE_DIR);
    return r;
}

int kvs_corrupt_sweep(int source_fd, int dir_fd, const char *name, struct kvs_reading *reading)
{
    kvs_cleanup_fd int fd = -1;
    struct kvs_verification found;
    struct stat st;

    /* Looked at before it is opened: opening a FIFO would wait. */
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!kvs_corrupt_is_aside(name) || !S_ISREG(st.st_mode) ||
        time(NULL) - st.st_ctime < KVS_ASIDE_AGE_S)
        return -EAGAIN;
    fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = kvs_verify(fd, reading, &found);
    if (r < 0)
        return r;
    if (found.verdict == KVS_UNSEALED || kvs_lease_is_open_for_writing(fd))
        return -EAGAIN;
    if (found.verdict == KVS_INTACT)
        return keep_good(source_fd, dir_fd, name, &found);
    return unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
}
