// SPDX-License-Identifier: Apache-2.0
// kvsealfs: start-up checks, mount, background, shut-down.
//
// Order matters: a dead mount goes before the source is opened (it may hide it, C21), the source is
// opened before the mount covers it (C22), the process forks before any thread exists, and the
// parent leaves with 0 only when the mount answers.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"
#include "fuse/attach.h"
#include "fuse/buffers.h"
#include "fuse/capabilities.h"
#include "fuse/forget.h"
#include "fuse/healthcheck.h"
#include "fuse/ids.h"
#include "fuse/inode.h"
#include "fuse/memory.h"
#include "fuse/metrics_http.h"
#include "fuse/mounter.h"
#include "fuse/ops.h"
#include "fuse/ready.h"
#include "fuse/refuse.h"
#include "fuse/scrubber.h"
#include "fuse/seal.h"
#include "fuse/serve_passthrough.h"
#include "fuse/service.h"
#include "fuse/source.h"
#include "fuse/takeover.h"
#include "fuse/worker.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/* The part of the grace that requests which hang leave to the last seals: one in so many (C23). */
#define SEALS_SHARE 4
/* How long a read of the scrubber may hold it up, within that grace or a little more. */
#define LAST_READ_MS       2000
#define LEAST_LAST_READ_MS 100
/* How long notifications of the kernel may hold it up then, once the connection is gone. */
#define LAST_NOTIFICATIONS_MS 5000

__attribute__((format(printf, 2, 0))) static void log_from_libfuse(enum fuse_log_level level,
                                                                   const char *format, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof(text), format, ap);
    text[strcspn(text, "\n")] = 0;
    kvs_log(level == FUSE_LOG_DEBUG ? KVS_LOG_ALWAYS : KVS_LOG_OTHER, (int)level, "libfuse: %s",
            text);
}

/* A mounter that holds a mount keeps as many descriptors as its daemon had. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* INIT is the kernel's first request; when it is answered, the mount serves. 0 or -errno. */
static int answer_init(struct fuse_session *session)
{
    struct fuse_buf request = {0};
    int received;
    do
        received = fuse_session_receive_buf(session, &request);
    while (received == -EINTR && !fuse_session_exited(session));
    if (received > 0)
        fuse_session_process_buf(session, &request);
    free(request.mem);
    if (received < 0)
        return received;
    return fuse_session_exited(session) ? -ECANCELED : 0;
}

/* The child becomes a daemon and lets the parent go. */
static void leave_terminal(int ready_fd)
{
    setsid();
    if (chdir("/") < 0)
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING, "cannot leave the working directory: %s",
                strerror(errno));
    kvs_log_to_syslog();
    kvs_cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    if (write(ready_fd, "", 1) != 1)
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING, "whoever started this is gone");
    close(ready_fd);
}

/* What one mount needs besides `fs`. */
struct life {
    struct kvs_attachment attachment;
    struct kvs_takeover takeover; /* of a mount that is held */
    struct kvs_ready ready;
};

/* Everything up to the mount that can fail. 0 or -errno, said. */
static int prepare(struct kvs_fs *fs, struct life *life)
{
    struct kvs_options *options = &fs->options;
    int error = kvs_ready_prepare(options->ready_file, &life->ready);
    error = error ? error : kvs_attach_prepare(options, &life->attachment);
    if (error)
        return error;
    fs->source_fd = kvs_source_open(options->source);
    if (fs->source_fd < 0)
        return fs->source_fd;
    error = kvs_attach_check_source(&life->attachment, fs->source_fd);
    if (!error && !options->read_only)
        error = kvs_source_check_records(fs->source_fd, options->source);
    if (error)
        return error;
    signal(SIGIO, SIG_IGN); /* a lease that somebody breaks (seal.c) */
    kvs_memory_choose(options, kvs_memory_limit(""));
    kvs_capabilities_reduce();
    error = kvs_table_create(fs->source_fd, &fs->table);
    if (!error)
        kvs_table_limit(fs->table, options->max_names);
    if (!error)
        error = kvs_buffers_create(options->buffer_memory, &fs->buffers);
    if (!error)
        error = kvs_passthrough_create(fs);
    if (error) {
        complain("cannot start: %s", strerror(-error));
        return error;
    }
    return options->metrics ? kvs_http_listen(options->metrics, &fs->metrics_fd) : 0;
}

/* The descriptors are needed no more: the session has its own. 0 or -errno, said. */
static int begin_held(struct kvs_fs *fs, struct life *life)
{
    struct kvs_attachment *attachment = &life->attachment;
    life->takeover.connection = attachment->connection_fd;
    int error = kvs_takeover_begin(fs, &life->takeover, attachment->device_fd,
                                   attachment->state_fd);
    close(kvs_steal_fd(&attachment->device_fd));
    close(kvs_steal_fd(&attachment->state_fd));
    return error;
}

/* Gets the mount, and answers the kernel's first request. 0 or -errno, said. */
static int start_session(struct kvs_fs *fs, struct life *life)
{
    fs->session = fuse_session_new(&fs->options.session_args, &kvs_operations,
                                   sizeof(kvs_operations), fs);
    if (!fs->session || fuse_set_signal_handlers(fs->session)) {
        complain("cannot make a FUSE session");
        return -EINVAL;
    }
    int error = kvs_attach_mount(&life->attachment, fs->session, fs->source_fd);
    if (error)
        return error;
    if (life->attachment.state_fd >= 0)
        return begin_held(fs, life);
    error = answer_init(fs->session);
    if (error)
        complain("the mount on %s ended before it served: %s", life->attachment.mountpoint,
                 strerror(-error));
    return error;
}

/* A notification that is under way waits for a directory's lock, and the client that holds it for
 * an answer that nobody gives any more; nor does the kernel end the connection by itself while
 * somebody writes to it: then it is cut. */
static void unmount(struct kvs_fs *fs, struct life *life)
{
    bool must_cut = !kvs_refuse_await_end(0) || fs->forgetter;
    kvs_attach_unmount(&life->attachment, fs->session, must_cut);
}

/* What hangs in the file system below keeps a thread that uses `fs`: then nothing is freed. */
static void destroy(struct kvs_fs *fs)
{
    if (fs->session) {
        fuse_remove_signal_handlers(fs->session);
        fuse_session_destroy(fs->session);
    }
    kvs_scrubber_destroy(fs);
    if (fs->table)
        kvs_table_destroy(fs->table);
    if (fs->ids)
        kvs_ids_destroy(fs->ids);
    if (fs->passthrough)
        kvs_passthrough_destroy(fs);
    if (fs->buffers)
        kvs_buffers_destroy(fs->buffers);
    if (fs->source_fd >= 0)
        close(fs->source_fd);
    if (fs->metrics_fd >= 0)
        close(fs->metrics_fd);
    kvs_options_destroy(&fs->options);
}

/* Whoever unmounted may want to remove the directory, and does not wait for the last seals. */
static void notice_unmount(void *attachment)
{
    kvs_attach_notice_unmount(attachment);
}

/* Serves to the end, and seals what is owed then, all of it within the grace. 0 or -errno, said;
 * -ETIMEDOUT: something hangs. */
static int serve_requests(struct kvs_fs *fs, struct life *life)
{
    const char *mountpoint = life->attachment.mountpoint;
    unsigned grace_ms = (unsigned)(fs->options.grace * 1000), left_ms = grace_ms;
    int error = kvs_forget_start(fs);
    if (!error)
        error = kvs_workers_run(fs, notice_unmount, &life->attachment,
                                grace_ms - grace_ms / SEALS_SHARE, &left_ms);
    (void)kvs_forget_stop(fs); /* what hangs then ends with the mount */
    if (error)
        complain("%s is no longer served: %s", mountpoint, strerror(-error));
    kvs_ready_end(&life->ready);
    kvs_attach_notice_unmount(&life->attachment); /* `umount -f` cuts first */
    bool is_scrub_over = kvs_scrubber_end(
        fs, KVS_MAX(KVS_MIN(left_ms, LAST_READ_MS), LEAST_LAST_READ_MS));
    int seal_error = kvs_worker_run_once(fs, kvs_seal_all, left_ms + grace_ms / SEALS_SHARE);
    if (seal_error)
        complain("%s: blocks may be left unsealed: %s", mountpoint, strerror(-seal_error));
    if (!is_scrub_over) {
        complain("%s: a read of the scrub hangs", mountpoint);
        return -ETIMEDOUT;
    }
    return seal_error == -ETIMEDOUT || !error ? seal_error : error;
}

/* From now on the mount answers, and says so. 0 or -errno, said. */
static int announce(struct kvs_fs *fs, struct life *life)
{
    fs->mountpoint = life->attachment.mountpoint;
    atomic_store(&fs->is_serving, true);
    int error = 0;
    if (fs->metrics_fd >= 0)
        error = kvs_http_start(fs, kvs_steal_fd(&fs->metrics_fd), &fs->http);
    return error ? error : kvs_ready_announce(&life->ready);
}

/* The whole life of a mount; returns the exit status. `ready_fd`: -1 in the foreground. */
static int serve(struct kvs_fs *fs, int ready_fd)
{
    struct life life = {.attachment = KVS_ATTACHMENT_INIT, .ready.directory_fd = -1};
    clock_gettime(CLOCK_REALTIME, &fs->started);
    int error = prepare(fs, &life);
    error = error ? error : start_session(fs, &life);
    error = error ? error : announce(fs, &life);
    if (!error) {
        if (ready_fd >= 0)
            leave_terminal(ready_fd);
        kvs_log(KVS_LOG_ALWAYS, LOG_INFO, "serving %s at %s", fs->options.source,
                life.attachment.mountpoint);
        kvs_service_ready(fs->options.source, life.attachment.mountpoint);
        int scrub_error = kvs_scrubber_start(fs);
        if (scrub_error) /* whoever waits for blocks waits for them more than for this */
            complain("the scrub cannot be started: %s", strerror(-scrub_error));
        error = serve_requests(fs, &life);
    }
    kvs_http_stop(fs->http);
    kvs_ready_end(&life.ready);
    unmount(fs, &life);
    /* A notification uses nothing of it, and may wait for whoever takes it. */
    if (fs->is_held && !error)
        kvs_takeover_hand_over(fs, &life.takeover);
    if (error != -ETIMEDOUT && kvs_refuse_await_end(fs->is_held ? 0 : LAST_NOTIFICATIONS_MS) &&
        kvs_forget_stop(fs) == 0)
        destroy(fs);
    if (fs->is_held && error == -ETIMEDOUT) /* our exit, and so our clients, may wait for it */
        kvs_takeover_give_up(&life.takeover);
    kvs_takeover_destroy(&life.takeover);
    kvs_attach_end(&life.attachment);
    return error ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Serves in a child; the parent returns when the mount serves, or with the child's status. */
static int serve_in_background(struct kvs_fs *fs)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        complain("cannot go to the background: %s", strerror(errno));
        return EXIT_FAILURE;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        return serve(fs, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        complain("cannot go to the background: %s", strerror(errno));
        close(ends[0]);
        return EXIT_FAILURE;
    }
    char byte;
    ssize_t got;
    do
        got = read(ends[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got == 1)
        return EXIT_SUCCESS;
    int status;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status))
        return WEXITSTATUS(status);
    complain("ended before it served");
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    kvs_log_init("kvsealfs");
    fuse_set_log_func(log_from_libfuse);
    static struct kvs_fs fs = {.source_fd = -1, .metrics_fd = -1};
    int status = EXIT_FAILURE;
    if (kvs_options_parse(argc, argv, &fs.options))
        goto out;
    status = EXIT_SUCCESS;
    raise_file_limit();
    if (fs.options.show_help) {
        kvs_options_print_help("kvsealfs");
    } else if (fs.options.show_version) {
        printf("kvsealfs %s (libfuse %s)\n", KVSEAL_VERSION, fuse_pkgversion());
    } else if (fs.options.healthcheck) {
        status = kvs_healthcheck(fs.options.healthcheck, fs.options.timeout);
    } else if (fs.options.mount_for) {
        status = kvs_mounter_run(&fs.options);
    } else { /* what hangs then may still use them */
        kvs_log_debug(fs.options.debug);
        return fs.options.foreground ? serve(&fs, -1) : serve_in_background(&fs);
    }
out:
    kvs_options_destroy(&fs.options);
    return status;
}
