// SPDX-License-Identifier: Apache-2.0
// Follows all threads of a process with ptrace(2), from system call to system call.
//
// A call is counted as it is entered. A process that is killed there does not make that call, so
// what it leaves is what the call before left: no point is missed, and nothing has to be remembered
// of a thread.
#include "tests/crash/tracer.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/mount/fixture.h"

#define OPTIONS       (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)
#define SYSCALL_STOP  (SIGTRAP | 0x80)
#define FAILED_CLIENT 3

static const uint64_t changing[] = {
    SYS_pwrite64,  SYS_write,     SYS_writev,    SYS_fsetxattr, SYS_fremovexattr,
    SYS_ftruncate, SYS_fallocate, SYS_renameat2, SYS_rename,    SYS_renameat,
    SYS_unlinkat,  SYS_unlink,    SYS_linkat,    SYS_mkdirat,   SYS_mkdir,
};

static const uint64_t idle[] = {
    SYS_futex,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_sched_yield,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_ppoll,
    SYS_poll,
    SYS_clone3,
    SYS_clone,
    SYS_rseq,
    SYS_unshare,
    SYS_prctl,
    SYS_set_robust_list,
    SYS_capget,
    SYS_capset,
    SYS_gettid,
    SYS_getpid,
    SYS_restart_syscall,
    SYS_clock_nanosleep,
    SYS_umask,
    SYS_exit,
};

static bool is_one_of(uint64_t call, const uint64_t *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (call == calls[i])
            return true;
    }
    return false;
}

static bool is_counted(pid_t thread, enum kvt_calls calls)
{
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) < 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return false;
    uint64_t call = info.entry.nr;
    if (calls == KVT_ALL_CALLS)
        return !is_one_of(call, idle, sizeof(idle) / sizeof(idle[0]));
    return is_one_of(call, changing, sizeof(changing) / sizeof(changing[0])) ||
           (call == SYS_openat && (info.entry.args[2] & O_CREAT));
}

/* One pass over the threads there are now; how many were new. */
static unsigned seize_threads(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        fail_msg("%s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(tasks));) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        /* EPERM: it is ours already. ESRCH: it is gone. */
        if (thread <= 0 || ptrace(PTRACE_SEIZE, thread, 0, OPTIONS) < 0)
            continue;
        ptrace(PTRACE_INTERRUPT, thread, 0, 0); /* from this stop on, each call stops */
        count++;
    }
    closedir(tasks);
    return count;
}

/* Lets a stopped thread go on. */
static void resume(pid_t thread, int status)
{
    int signal = WSTOPSIG(status);
    if (signal == SYSCALL_STOP || status >> 16 != 0)
        signal = 0; /* a stop that ptrace made; else a signal on its way */
    ptrace(PTRACE_SYSCALL, thread, 0, signal);
}

static pid_t start_client(int (*client)(void *), void *argument)
{
    pid_t pid = fork();
    if (pid < 0)
        fail_msg("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(client(argument) == 0 ? 0 : FAILED_CLIENT);
}

/* Waits for the end of both, whatever the threads still report. */
static void reap(pid_t pid, pid_t client)
{
    int status;
    for (pid_t ended; pid || client;) {
        ended = waitpid(-1, &status, __WALL);
        if (ended < 0)
            fail_msg("waitpid: %s", strerror(errno));
        if (WIFSTOPPED(status))
            continue;
        pid = ended == pid ? 0 : pid;
        client = ended == client ? 0 : client;
    }
}

unsigned kvt_kill_at(pid_t pid, enum kvt_calls calls, unsigned nth, int (*client)(void *),
                     void *argument, bool *done_ret)
{
    unsigned count = 0;
    int status;
    while (seize_threads(pid) > 0)
        ;
    pid_t client_pid = start_client(client, argument);
    *done_ret = false;
    while (count < nth && !*done_ret) {
        pid_t stopped = waitpid(-1, &status, __WALL);
        if (stopped < 0 || (stopped == pid && !WIFSTOPPED(status)))
            fail_msg("the process under trace ended by itself");
        if (stopped == client_pid) {
            if (status != 0)
                fail_msg("what should have worked did not: status %x", (unsigned)status);
            *done_ret = true;
            client_pid = 0;
        } else if (WIFSTOPPED(status)) {
            if (WSTOPSIG(status) == SYSCALL_STOP && is_counted(stopped, calls))
                count++;
            if (count < nth)
                resume(stopped, status);
        }
    }
    kill(pid, SIGKILL);
    reap(pid, client_pid);
    return count;
}
