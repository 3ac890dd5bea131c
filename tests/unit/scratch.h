// SPDX-License-Identifier: Apache-2.0
// A directory of a test's own, in $TMPDIR.
#ifndef KVSEAL_TESTS_UNIT_SCRATCH_H
#define KVSEAL_TESTS_UNIT_SCRATCH_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[PATH_MAX];
static int dir_fd;

/* Makes the directory, empty and reached by `dir` and `dir_fd`. 0 or -1, as cmocka wants it. */
static inline int make_scratch(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(dir, sizeof(dir), "%s/kvseal-XXXXXX", base == NULL ? "/tmp" : base);
    if (mkdtemp(dir) == NULL)
        return -1;
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

/* Removes it with all that is in it, however deep. 0, or something else. */
static inline int remove_scratch(void)
{
    char command[sizeof(dir) + 16];

    close(dir_fd);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return chdir("/") < 0 ? -1 : system(command);
}

#endif
