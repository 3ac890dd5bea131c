// SPDX-License-Identifier: Apache-2.0
// The daemon under test: start, wait until it serves, end it in every way, read its log.
#include "tests/mount/fixture_internal.h"

#include <dirent.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>

/* ---- programs ---- */

const char *kvt_program(const char *relative)
{
    static __thread char path[2 * PATH_MAX];
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        fail_msg("/proc/self/exe: %s", strerror(errno));
    self[length] = 0;
    *strrchr(self, '/') = 0;
    snprintf(path, sizeof(path), "%s/%s", self, relative);
    return path;
}

pid_t kvt_spawn(char *const argv[], int output)
{
    pid_t pid = fork();
    if (pid < 0)
        fail_msg("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        close_range(STDERR_FILENO + 1, ~0U, 0); // files that the test has open below the mount
        execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    return pid;
}

bool kvt_wait_exit(pid_t pid, unsigned seconds, int *status_ret)
{
    uint64_t deadline = kvt_now_ms() + seconds * 1000ULL;
    pid_t ended;
    while ((ended = waitpid(pid, status_ret, WNOHANG)) == 0 && kvt_now_ms() < deadline)
        usleep(5000);
    return ended == pid;
}

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int kvt_run(const char *output, const char *program, ...)
{
    char *argv[32] = {(char *)program};
    va_list arguments;
    va_start(arguments, program);
    for (size_t i = 1; i < 31 && (argv[i] = va_arg(arguments, char *)); i++)
        ;
    va_end(arguments);
    int status,
        fd = open(output ? output : "/dev/null", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    pid_t pid = kvt_spawn(argv, fd);
    close(fd);
    if (waitpid(pid, &status, 0) != pid)
        return 127;
    return exit_status(status);
}

/* ---- the log ---- */

/* All of it, terminated; the caller frees it. */
static char *read_log(struct kvt_env *env)
{
    struct stat st = {0};
    int fd = open(env->log, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        fstat(fd, &st);
    char *text = calloc(1, (size_t)st.st_size + 1);
    if (fd >= 0) {
        if (read(fd, text, (size_t)st.st_size) < 0)
            text[0] = 0;
        close(fd);
    }
    return text;
}

void kvt_show_log(struct kvt_env *env)
{
    char *text = read_log(env);
    fprintf(stderr, "---- kvsealfs%s%s said:\n%s----\n", env->options[0] ? " -o " : "",
            env->options, text); // print_error() cuts it
    free(text);
}

static void keep_log(struct kvt_env *env)
{
    if (!getenv("KVT_KEEP_LOG"))
        return;
    FILE *file = fopen(getenv("KVT_KEEP_LOG"), "ae");
    char *text = read_log(env);
    if (file) {
        fprintf(file, "---- %s %s -o %s\n%s", kvt_source_name(env->kind), env->dir, env->options,
                text);
        fclose(file);
    }
    free(text);
}

bool kvt_log_has(struct kvt_env *env, const char *text)
{
    char *log = read_log(env);
    bool found = strstr(log, text) != NULL;
    free(log);
    return found;
}

bool kvt_log_contains(struct kvt_env *env, const char *text)
{
    uint64_t deadline = kvt_now_ms() + KVT_PATIENCE_SEC * 1000;
    while (!kvt_log_has(env, text)) {
        if (kvt_now_ms() > deadline)
            return false;
        usleep(5000);
    }
    return true;
}

/* ---- start ---- */

bool kvt_is_forced(const char *option)
{
    const char *forced = getenv("KVSEAL_TEST_OPTIONS");
    size_t length = strlen(option);
    for (const char *item = forced; item; item = strchr(item, ',')) {
        item += *item == ',';
        if (strncmp(item, option, length) == 0 && (item[length] == 0 || item[length] == ','))
            return true;
    }
    return false;
}

static pid_t spawn_daemon(struct kvt_env *env, const char *options, const char *source,
                          const char *mnt)
{
    const char *more = getenv("KVSEAL_TEST_OPTIONS");
    char all[4 * PATH_MAX];
    snprintf(all, sizeof(all), "%s%s%s", options ? options : "",
             options && *options && more && *more ? "," : "", more ? more : "");
    char *argv[8] = {(char *)kvt_program("../../fuse/kvsealfs"), "-f"};
    size_t count = 2;
    if (*all) {
        argv[count++] = "-o";
        argv[count++] = all;
    }
    argv[count++] = (char *)source;
    argv[count] = (char *)mnt;
    int fd = open(env->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        fail_msg("%s: %s", env->log, strerror(errno));
    pid_t pid = kvt_spawn(argv, fd);
    close(fd);
    return pid;
}

bool kvt_is_mounted(const char *path)
{
    char line[2 * PATH_MAX], point[PATH_MAX];
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool found = false;
    while (mounts && !found && fgets(line, sizeof(line), mounts))
        found = sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && strcmp(point, path) == 0;
    if (mounts)
        fclose(mounts);
    return found;
}

/* Whether the last mount at `mnt` is kvsealfs's and answers. The type is asked again with the
 * answer: a dead mount may have been detached in between. */
static bool is_served(const char *mnt)
{
    char line[2 * PATH_MAX], point[PATH_MAX];
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool is_kvsealfs = false;
    while (mounts && fgets(line, sizeof(line), mounts)) {
        if (sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && strcmp(point, mnt) == 0)
            is_kvsealfs = strstr(line, " - fuse.kvsealfs ") != NULL;
    }
    if (mounts)
        fclose(mounts);
    struct statfs fs; // unlike stat(2)'s, its answer is never a cached one
    return is_kvsealfs && statfs(mnt, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

bool kvt_daemon_died(struct kvt_env *env)
{
    int status;
    if (!env->daemon)
        return false;
    // One that has crashed may take a while to end, for its report.
    bool ended = kvt_wait_exit(env->daemon, 0, &status) ||
                 (!is_served(env->mnt) && kvt_wait_exit(env->daemon, KVT_PATIENCE_SEC, &status));
    if (!ended)
        return false;
    print_error("kvsealfs ended with status %d\n", exit_status(status));
    env->daemon = 0;
    return true;
}

void kvt_start(struct kvt_env *env, const char *options)
{
    if (!options)
        options = "";
    if (env->daemon && strcmp(options, env->options) == 0 && !kvt_daemon_died(env))
        return;
    if (env->daemon)
        kvt_stop(env);
    snprintf(env->options, sizeof(env->options), "%s", options);
    env->daemon = spawn_daemon(env, options, env->source, env->mnt);
    uint64_t deadline = kvt_now_ms() + KVT_PATIENCE_SEC * 1000;
    int status;
    while (!is_served(env->mnt)) {
        if (kvt_wait_exit(env->daemon, 0, &status) || kvt_now_ms() > deadline) {
            kvt_show_log(env);
            fail_msg("kvsealfs does not serve %s", env->mnt);
        }
        usleep(2000);
    }
}

int kvt_start_fails(struct kvt_env *env, const char *options, const char *source, const char *mnt)
{
    int status;
    pid_t pid = spawn_daemon(env, options, source, mnt);
    if (!kvt_wait_exit(pid, KVT_PATIENCE_SEC, &status)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        umount2(mnt, MNT_DETACH);
        kvt_show_log(env);
        fail_msg("kvsealfs started");
    }
    return exit_status(status);
}

/* ---- stop ---- */

/* What no daemon may ever say. */
static void check_log(struct kvt_env *env)
{
    static const char *const bad[] = {"ERROR", "Sanitizer", "runtime error:", "\nfuse: "};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (kvt_log_has(env, bad[i])) {
            kvt_show_log(env);
            fail_msg("the log has: %s", bad[i]);
        }
    }
}

static void await_end(struct kvt_env *env)
{
    int status;
    pid_t pid = env->daemon;
    env->daemon = 0;
    if (!kvt_wait_exit(pid, KVT_PATIENCE_SEC, &status)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        umount2(env->mnt, MNT_DETACH);
        kvt_show_log(env);
        fail_msg("kvsealfs did not end");
    }
    keep_log(env);
    if (status != 0) {
        umount2(env->mnt, MNT_DETACH);
        kvt_show_log(env);
        fail_msg("kvsealfs ended with status %d", exit_status(status));
    }
    check_log(env);
    if (kvt_is_mounted(env->mnt) && strcmp(env->mnt, env->source) != 0)
        fail_msg("kvsealfs left %s mounted", env->mnt);
}

void kvt_stop(struct kvt_env *env)
{
    if (!env->daemon) {
        if (kvt_is_mounted(env->mnt))
            umount2(env->mnt, MNT_DETACH); // of a killed one
        return;
    }
    kill(env->daemon, SIGTERM);
    await_end(env);
}

void kvt_stop_by_umount(struct kvt_env *env)
{
    if (umount2(env->mnt, 0) != 0)
        fail_msg("umount %s: %s", env->mnt, strerror(errno));
    await_end(env);
}

void kvt_kill(struct kvt_env *env)
{
    int status;
    kill(env->daemon, SIGKILL);
    waitpid(env->daemon, &status, 0);
    env->daemon = 0;
}

void kvt_remount(struct kvt_env *env)
{
    char options[sizeof(env->options)];
    strcpy(options, env->options);
    if (env->daemon)
        kvt_stop(env);
    kvt_start(env, options);
}

/* ---- looking at it ---- */

unsigned kvt_count_fds(pid_t pid)
{
    char path[64], target[PATH_MAX];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    if (!fds)
        return 0;
    for (const struct dirent *entry = readdir(fds); entry; entry = readdir(fds)) {
        ssize_t len = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        count += len > 0 && strncmp(target, "/memfd:", strlen("/memfd:")) != 0;
    }
    closedir(fds);
    return count;
}

size_t kvt_resident_mib(pid_t pid)
{
    char path[64], line[256];
    size_t kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    while (status && !kib && fgets(line, sizeof(line), status))
        sscanf(line, "VmRSS: %zu kB", &kib);
    if (status)
        fclose(status);
    return kib / 1024;
}

void kvt_fault(struct kvt_env *env, const char *commands)
{
    if (write(env->fault_fd, commands, strlen(commands)) != (ssize_t)strlen(commands))
        fail_msg("faultfs does not take: %s", commands);
}

bool kvt_fault_report_has(struct kvt_env *env, const char *line)
{
    char report[8192] = "\n", wanted[128];
    if (pread(env->fault_fd, report + 1, sizeof(report) - 2, 0) < 0)
        fail_msg("faultfs gives no report: %s", strerror(errno));
    snprintf(wanted, sizeof(wanted), "\n%s\n", line);
    return strstr(report, wanted) != NULL;
}
