// SPDX-License-Identifier: Apache-2.0
// Sources: a tmpfs, file systems on loop images, plain directories, faultfs.
#include "tests/mount/fixture_internal.h"

#include <ftw.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#define DISK_SIZE ((off_t)400 << 20) /* sparse; xfs takes no less than 300 MiB */

const char *kvt_source_name(enum kvt_source_kind kind)
{
    switch (kind) {
    case KVT_TMPFS:
        return "tmpfs";
    case KVT_EXT4:
        return "ext4";
    case KVT_XFS:
        return "xfs";
    case KVT_BTRFS:
        return "btrfs";
    case KVT_DIR:
        return "dir";
    case KVT_FAULTFS:
        return "faultfs";
    default:
        return "?";
    }
}

static bool kernel_has(const char *filesystem)
{
    char line[128], name[64];
    FILE *list = fopen("/proc/filesystems", "re");
    bool found = false;
    while (list && !found && fgets(line, sizeof(line), list))
        found = sscanf(line, "nodev %63s", name) != 1 && sscanf(line, "%63s", name) == 1 &&
                strcmp(name, filesystem) == 0;
    if (list)
        fclose(list);
    return found;
}

/* A file system on a sparse image. The loop device goes when it is unmounted (autoclear). */
static const char *mount_image(struct kvt_env *env, const char *filesystem)
{
    static char reason[PATH_MAX + 64];
    char image[PATH_MAX], mkfs[32], output[PATH_MAX];
    snprintf(image, sizeof(image), "%s/image", env->work);
    snprintf(output, sizeof(output), "%s/mkfs.log", env->work);
    snprintf(mkfs, sizeof(mkfs), "mkfs.%s", filesystem);
    int fd = open(image, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, DISK_SIZE) != 0 || close(fd) != 0)
        return strerror(errno);
    int status = kvt_run(output, mkfs, "-q", image, NULL);
    if (status == 0)
        status = kvt_run(output, "mount", "-o", "loop", "-t", filesystem, image, env->source, NULL);
    if (status == 0)
        return NULL;
    kvt_run("/dev/stderr", "cat", output, NULL);
    snprintf(reason, sizeof(reason), "%s has no file system: status %d", image, status);
    return reason;
}

static const char *mount_faultfs(struct kvt_env *env)
{
    char *argv[] = {(char *)kvt_program("../faultfs/faultfs"), env->under, env->source, NULL};
    char ready[8] = "", control[PATH_MAX];
    int out[2];
    if (mkdir(env->under, 0755) != 0 || pipe2(out, O_CLOEXEC) != 0)
        return strerror(errno);
    env->faultfs = kvt_spawn(argv, out[1]);
    close(out[1]);
    ssize_t length = read(out[0], ready, sizeof(ready) - 1);
    close(out[0]);
    if (length < 5 || strncmp(ready, "ready", 5) != 0)
        return "faultfs does not start";
    snprintf(control, sizeof(control), "%s/.faultfs", env->source);
    env->fault_fd = open(control, O_RDWR | O_CLOEXEC);
    return env->fault_fd >= 0 ? NULL : "faultfs has no control file";
}

/* A source that should be there and is not is a failure, not a reason to skip. */
static const char *must_work(const char *reason)
{
    if (!reason)
        return NULL;
    fprintf(stderr, "the source cannot be made: %s\n", reason);
    exit(1);
}

const char *kvt_source_make(struct kvt_env *env)
{
    const char *name = kvt_source_name(env->kind);
    snprintf(env->source, sizeof(env->source), "%s/source", env->work);
    snprintf(env->under, sizeof(env->under), "%s/%s", env->work,
             env->kind == KVT_FAULTFS ? "under" : "source");
    if (mkdir(env->source, 0755) != 0)
        return must_work(strerror(errno));
    switch (env->kind) {
    case KVT_TMPFS:
        return must_work(mount("tmpfs", env->source, "tmpfs", 0, "mode=755,size=400m") == 0
                             ? NULL
                             : strerror(errno));
    case KVT_EXT4:
    case KVT_XFS:
    case KVT_BTRFS:
        if (!kernel_has(name))
            return "the kernel does not have this file system";
        return must_work(mount_image(env, name));
    case KVT_FAULTFS:
        return must_work(mount_faultfs(env));
    default:
        return NULL;
    }
}

void kvt_source_remove(struct kvt_env *env)
{
    int status;
    if (env->fault_fd >= 0)
        close(env->fault_fd);
    kvt_unmount_below(env->work);
    if (env->faultfs) {
        kill(env->faultfs, SIGKILL);
        kvt_wait_exit(env->faultfs, KVT_PATIENCE_SEC, &status);
    }
    kvt_remove_tree(env->work);
}

static bool is_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);
    return strncmp(path, directory, length) == 0 && (path[length] == 0 || path[length] == '/');
}

void kvt_unmount_below(const char *directory)
{
    char line[2 * PATH_MAX], point[PATH_MAX], last[PATH_MAX] = "";
    do { // the last line is the mount that was made last
        last[0] = 0;
        FILE *mounts = fopen("/proc/self/mountinfo", "re");
        while (mounts && fgets(line, sizeof(line), mounts)) {
            if (sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && is_below(point, directory))
                strcpy(last, point);
        }
        if (mounts)
            fclose(mounts);
    } while (last[0] && umount2(last, MNT_DETACH) == 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    if (remove(path) == 0)
        return 0;
    /* A mount point that a killed daemon left guarded. */
    int flags = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        ioctl(fd, FS_IOC_SETFLAGS, &flags);
        close(fd);
    }
    return remove(path);
}

void kvt_remove_tree(const char *directory)
{
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
