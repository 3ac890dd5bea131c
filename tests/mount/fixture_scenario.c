// SPDX-License-Identifier: Apache-2.0
// Scenarios: run twice, compared line by line.
#include "tests/mount/fixture_scenario.h"

#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define SHOWN     ((size_t)2000) /* bytes before a difference */
#define TEXT_SIZE ((size_t)1 << 20)

/* What a scenario and its children write down: shared memory, as a crash must not lose it. */
static struct notes {
    size_t length;
    char text[TEXT_SIZE];
} * notes;

static const char untrue[] = "DOES NOT HOLD: ";

void kvt_note(const char *format, ...)
{
    va_list arguments;
    size_t room = TEXT_SIZE - notes->length;
    va_start(arguments, format);
    int length = vsnprintf(notes->text + notes->length, room, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length + 1 >= room)
        abort();
    notes->length += (size_t)length;
    notes->text[notes->length++] = '\n';
    notes->text[notes->length] = 0;
}

long kvt_note_result(const char *call, long result)
{
    if (result == -1)
        kvt_note("%s = -1 %s", call, strerrorname_np(errno));
    else
        kvt_note("%s = %ld", call, result);
    return result;
}

static void note_attributes(const char *what, const struct stat *st)
{
    bool has_size = S_ISREG(st->st_mode) || S_ISLNK(st->st_mode);
    kvt_note("%s: mode %o, %lu links, %u:%u, size %jd, device %u:%u", what, st->st_mode,
             S_ISDIR(st->st_mode) ? 0 : (unsigned long)st->st_nlink, st->st_uid, st->st_gid,
             has_size ? (intmax_t)st->st_size : 0, major(st->st_rdev), minor(st->st_rdev));
}

void kvt_note_stat(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        kvt_note("lstat %s: %s", path, strerrorname_np(errno));
    else
        note_attributes(path, &st);
}

void kvt_note_fstat(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        kvt_note("fstat: %s", strerrorname_np(errno));
    else
        note_attributes("fstat", &st);
}

void kvt_note_content(const char *path)
{
    static unsigned char bytes[1 << 16];
    uint32_t crc = 0;
    size_t length = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0) {
        crc = crc * 31 + kvt_crc32c(bytes, (size_t)n); // both sides read in the same pieces
        length += (size_t)n;
    }
    if (fd < 0 || n < 0)
        kvt_note("content of %s: %s", path, strerrorname_np(errno));
    else
        kvt_note("content of %s: %zu bytes, %08x", path, length, crc);
    if (fd >= 0)
        close(fd);
}

void kvt_make(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    ssize_t length = (ssize_t)strlen(text);
    kvt_holds(fd >= 0 && write(fd, text, strlen(text)) == length && close(fd) == 0);
}

void kvt_give(const char *path, mode_t mode, uid_t uid, gid_t gid)
{
    kvt_holds(chown(path, uid, gid) == 0 && chmod(path, mode) == 0);
}

void kvt_make_file(const char *path, mode_t mode, uid_t uid, gid_t gid)
{
    kvt_make(path, "some text");
    kvt_give(path, mode, uid, gid);
}

void kvt_make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid)
{
    kvt_holds(mkdir(path, 0700) == 0);
    kvt_give(path, mode, uid, gid);
}

/* Waits for a child and writes down how it ended, unless that was well. */
static void join(pid_t pid)
{
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        kvt_note("%sno child: %s", untrue, strerror(errno));
    else if (status != 0)
        kvt_note("ended with status %x", status);
}

void kvt_as_whom(uid_t uid, gid_t gid, size_t count, const gid_t *groups, void (*act)(void))
{
    pid_t pid = fork();
    if (pid != 0) {
        join(pid);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setgroups(count, groups) != 0 || setresgid(gid, gid, gid) != 0 ||
        setresuid(uid, uid, uid) != 0)
        kvt_note("%scannot become %u:%u", untrue, uid, gid);
    else
        act();
    _exit(0);
}

void kvt_as(uid_t uid, gid_t gid, void (*act)(void))
{
    kvt_as_whom(uid, gid, 0, NULL, act);
}

void kvt_as_owner(void (*act)(void))
{
    kvt_as(KVT_OWNER, KVT_GROUP, act);
}

void kvt_as_member(void (*act)(void))
{
    kvt_as_whom(KVT_OTHER, KVT_GROUP, 1, (gid_t[]){KVT_SECOND}, act);
}

void kvt_as_stranger(void (*act)(void))
{
    kvt_as(3000, 3000, act);
}

/* Gives what was written down, malloc()ed. */
static char *run_in(const char *directory, void (*scenario)(void))
{
    if (mkdir(directory, 0777) != 0 || chmod(directory, 0777) != 0)
        fail_msg("mkdir %s: %s", directory, strerror(errno));
    notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (notes == MAP_FAILED)
        fail_msg("no memory");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 1; i < NSIG; i++)
            signal(i, SIG_DFL); // cmocka would go on with the next test
        umask(022);
        if (chdir(directory) != 0)
            kvt_note("%schdir: %s", untrue, strerror(errno));
        else
            scenario();
        _exit(0);
    }
    join(pid);
    char *text = strdup(notes->text);
    munmap(notes, sizeof(*notes));
    return text;
}

static void compare(const char *below, const char *mounted)
{
    size_t at = 0, line = 0;
    while (below[at] && below[at] == mounted[at]) {
        if (below[at++] == '\n')
            line = at;
    }
    if (below[at] == mounted[at])
        return;
    const char *shown = below + (line > SHOWN ? line - SHOWN : 0);
    fprintf(stderr, "%.*s---- then below:\n%.*s\n---- and through the mount:\n%.*s\n----\n",
            (int)(below + line - shown), shown, (int)strcspn(below + line, "\n"), below + line,
            (int)strcspn(mounted + line, "\n"), mounted + line); // print_error() cuts it
    fail_msg("the mount differs from the file system below");
}

void kvt_same_as_below(struct kvt_env *env, void (*scenario)(void))
{
    char *below = run_in(kvt_src(env, KVT_BELOW), scenario);
    char *mounted = run_in(kvt_mnt(env, KVT_MOUNTED), scenario);
    if (getenv("KVT_SHOW_NOTES"))
        print_message("%s", below);
    compare(below, mounted);
    if (!*below || strstr(below, untrue))
        fail_msg("%s", *below ? strstr(below, untrue) : "the scenario saw nothing");
    free(below);
    free(mounted);
}
