// SPDX-License-Identifier: Apache-2.0
// Questions to a file system that may hang: asked by a child, waited for with a limit.
#include "fuse/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"

/* Whoever reads our standard output to its end must not wait for a stuck child. */
_Noreturn static void answer(int to_parent, int (*question)(void *), void *argument)
{
    if (to_parent != STDIN_FILENO)
        dup2(to_parent, STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    int result = question(argument);
    _exit(write(STDIN_FILENO, &result, sizeof(result)) == sizeof(result) ? 0 : 1);
}

int kvs_ask(int (*question)(void *argument), void *argument, int limit_ms)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    kvs_cleanup_fd int from_child = ends[0];
    pid_t child = fork();
    if (child == 0)
        answer(ends[1], question, argument);
    int error = child < 0 ? -errno : 0;
    close(ends[1]);
    if (error)
        return error;
    struct pollfd pollfd = {.fd = from_child, .events = POLLIN};
    int ready, result;
    do
        ready = poll(&pollfd, 1, limit_ms);
    while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        kill(child, SIGKILL);
        return -ETIMEDOUT;
    }
    if (read(from_child, &result, sizeof(result)) != sizeof(result))
        result = -EIO;
    waitpid(child, NULL, 0);
    return result;
}
