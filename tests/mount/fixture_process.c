// SPDX-License-Identifier: Apache-2.0
// Running kvsealfs in its other roles, and as somebody without privileges.
#include "tests/mount/fixture_process.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>

static void become(uid_t user)
{
    if (user == 0)
        return;
    for (int capability = 0; capability <= CAP_LAST_CAP; capability++)
        prctl(PR_CAPBSET_DROP, capability);
    if (setgroups(0, NULL) != 0 || setgid(user) != 0 || setuid(user) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // becoming another user took it away
}

/* The program is opened before the user changes, who may not reach the build directory. */
pid_t kvt_launch(const char *log, uid_t user, int inherited, ...)
{
    char *argv[32] = {"kvsealfs"};
    va_list arguments;
    va_start(arguments, inherited);
    for (size_t i = 1; i < 31 && (argv[i] = va_arg(arguments, char *)); i++)
        ;
    va_end(arguments);
    int program = kvt_open(kvt_program("../../fuse/kvsealfs"), O_RDONLY | O_CLOEXEC);
    int output = kvt_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        program = fcntl(program, F_DUPFD_CLOEXEC, 10);
        if (inherited == 3)
            fcntl(3, F_SETFD, 0);
        else if (inherited >= 0)
            dup2(inherited, 3);
        close_range(inherited >= 0 ? 4 : 3, (unsigned)program - 1, 0);
        close_range((unsigned)program + 1, ~0U, 0);
        become(user);
        fexecve(program, argv, environ);
        _exit(127);
    }
    close(program);
    close(output);
    assert_true(pid > 0);
    return pid;
}

int kvt_end_of(pid_t pid)
{
    int status;
    pid_t ended = 0;
    kvt_wait_for((ended = waitpid(pid, &status, WNOHANG)) != 0);
    assert_true(ended > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int kvt_terminate(pid_t pid)
{
    kill(pid, SIGTERM);
    return kvt_end_of(pid);
}

bool kvt_is_fuse(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

bool kvt_file_has(const char *path, const char *text)
{
    char content[16384] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, content, sizeof(content) - 1);
    close(fd);
    return len >= 0 && strstr(content, text) != NULL;
}

const char *kvt_work_path(struct kvt_env *env, const char *name)
{
    static char paths[16][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 16];
    snprintf(path, sizeof(paths[0]), "%s/%s", env->work, name);
    return path;
}

const char *kvt_work_dir(struct kvt_env *env, const char *name, mode_t mode)
{
    const char *path = kvt_work_path(env, name);
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || chmod(path, mode) != 0)
        fail_msg("mkdir %s: %s", path, strerror(errno));
    return path;
}
