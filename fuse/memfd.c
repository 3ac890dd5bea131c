// SPDX-License-Identifier: Apache-2.0
// memfd_create(2), and what a lease and an access time tell of its users.
#include "fuse/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util.h"
#include "core/verify.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/* A lease counts the opens of a file, but not the one that memfd_create() itself made. */
static int open_counted(int fd)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int counted = open(path, O_RDWR | O_CLOEXEC);
    return counted < 0 ? -errno : counted;
}

/* Page faults give a memfd huge pages only where the administrator says so; whoever asks for them
 * by name gets them. It takes a page to collapse around. */
static int make_huge(char *memory, size_t size)
{
    for (size_t at = 0; at < size; at += KVS_HUGE_PAGE)
        if (madvise(memory + at, 1, MADV_POPULATE_WRITE) < 0)
            return -errno;
    madvise(memory, size, MADV_COLLAPSE);
    return 0;
}

/* Its pages are made now: nothing reserves them, and where there are none (a strict commit limit)
 * whoever touches one is killed. */
static int make_pages(char *memory, size_t size)
{
    int error = size >= KVS_HUGE_PAGE ? make_huge(memory, size) : 0;

    if (error == 0 && madvise(memory, size, MADV_POPULATE_WRITE) < 0)
        error = -errno;
    return error;
}

/* Addresses are plenty. */
size_t kvs_memfd_room(size_t size)
{
    return size >= KVS_HUGE_PAGE / 2 ? KVS_ALIGN_UP(size, KVS_HUGE_PAGE) : size;
}

int kvs_memfd_create(void *memory, size_t size)
{
    kvs_cleanup_fd int uncounted = memfd_create("kvseal", MFD_CLOEXEC | MFD_NOEXEC_SEAL);

    if (uncounted < 0)
        return -errno;
    kvs_cleanup_fd int fd = open_counted(uncounted);
    if (fd < 0)
        return fd;
    if (!kvs_memfd_is_unshared(fd)) /* no leases here (fs.leases-enable): it never would be */
        return -EOPNOTSUPP;
    size_t room = kvs_memfd_room(size);
    if (ftruncate(fd, (off_t)room) < 0 ||
        mmap(memory, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return -errno;
    int error = make_pages(memory, room);
    if (error != 0)
        return error;
    if (room > size && ftruncate(fd, (off_t)size) < 0)
        return -errno;
    return kvs_steal_fd(&fd);
}

bool kvs_memfd_is_unshared(int fd)
{
    if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        return false;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return true;
}

void kvs_memfd_watch_reads(int fd)
{
    const struct timespec never[2] = {{.tv_sec = 0}, {.tv_nsec = UTIME_OMIT}};

    futimens(fd, never);
}

bool kvs_memfd_was_read(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_atim.tv_sec != 0;
}
