// SPDX-License-Identifier: Apache-2.0
// Opens a source directory, and tells it from a mount.
#include "core/cli/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/log.h"
#include "core/util.h"

/* Whether /proc/self/mountinfo has the device as one of kvsealfs. */
static bool is_kvsealfs(dev_t dev)
{
    char device[32];
    kvs_cleanup_free char *line = NULL;
    size_t room = 0;
    bool is_found = false;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");

    if (mounts == NULL)
        return false;
    snprintf(device, sizeof(device), " %u:%u ", major(dev), minor(dev));
    while (!is_found && getline(&line, &room, mounts) > 0)
        is_found = strstr(line, device) != NULL && strstr(line, " - fuse.kvsealfs ") != NULL;
    fclose(mounts);
    return is_found;
}

int kvs_cli_open_source(const char *path)
{
    struct stat st;
    kvs_cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
        kvs_cli_complain(path, "opened", -errno);
        return -1;
    }
    if (is_kvsealfs(st.st_dev)) {
        char escaped[4096];

        fprintf(stderr,
                "kvseal: %s: is a kvsealfs mount; give the source directory that it shows, and the "
                "daemon scrubs by itself with -o scrub_within\n",
                kvs_log_escape(path, escaped, sizeof(escaped)));
        return -1;
    }
    return kvs_steal_fd(&fd);
}
