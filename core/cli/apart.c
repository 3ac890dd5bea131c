// SPDX-License-Identifier: Apache-2.0
// A parent that reads nothing, and so can always end.
#include "core/cli/apart.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_SECONDS 5

static enum kvs_cli_status *noted; /* of both processes; NULL: there is one */

void kvs_cli_note_status(enum kvs_cli_status status)
{
    if (noted != NULL)
        *noted = kvs_cli_graver(*noted, status);
}

static bool share_status(void)
{
    void *memory = mmap(NULL, sizeof(*noted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);

    noted = memory == MAP_FAILED ? NULL : memory;
    return noted != NULL;
}

/* Until the child has ended, as `status_ret` says; or -ETIMEDOUT: it did not, though it was told
 * to. `signals`: SIGCHLD and what to tell it of, all blocked. */
static int wait_for_child(pid_t child, const sigset_t *signals, int *status_ret)
{
    static const struct timespec patience = {.tv_sec = PATIENCE_SECONDS};
    const struct timespec *limit = NULL;

    while (waitpid(child, status_ret, WNOHANG) == 0) {
        int number = sigtimedwait(signals, NULL, limit);

        if (number < 0 && errno == EAGAIN)
            return -ETIMEDOUT;
        if (number > 0 && number != SIGCHLD) {
            kill(child, number);
            limit = &patience;
        }
    }
    return 0;
}

static int supervise(pid_t child, const sigset_t *signals)
{
    int status = 0;

    if (wait_for_child(child, signals, &status) == 0)
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    kill(child, SIGKILL);
    fputs("kvseal: stopped, but a call hangs in the file system below: process ", stderr);
    fprintf(stderr, "%d ends when that does\n", (int)child);
    return (int)kvs_cli_graver(*noted, KVS_CLI_ERROR);
}

int kvs_cli_run_apart(const struct kvs_cli_command *command, int argc, char **argv)
{
    pid_t parent = getpid();
    pid_t child = -1;
    sigset_t signals, old;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    if (command->ends_itself) {
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGTERM);
    }
    signal(SIGCHLD, SIG_DFL); /* ignored, its status would be lost */
    sigprocmask(SIG_BLOCK, &signals, &old);
    if (share_status())
        child = fork();
    if (child > 0)
        return supervise(child, &signals);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(KVS_CLI_ERROR);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return command->run(argc, argv);
}
