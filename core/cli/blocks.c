// SPDX-License-Identifier: Apache-2.0
// One thread walks and opens; the others work.
#include "core/cli/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/cli/progress.h"
#include "core/queue.h"
#include "core/util.h"
#include "core/walk.h"

/* Open blocks in the queue: enough that no thread waits for the walk, nor is it woken for each. */
#define WAITING_PER_JOB 4
#define LEAST_WAITING   32

struct item {
    char *path;
    int fd;
    uint64_t size;
};

struct run {
    const struct kvs_cli_blocks *blocks;
    struct kvs_cli_sights *sights; /* of the thread that walks */
    struct kvs_queue *queue;
    struct kvs_examiner *examiners; /* one a worker */
    struct kvs_cli_progress *progress;
    const char *operand; /* that is walked */
};

static void work_on(void *context, unsigned worker, void *argument)
{
    struct run *run = context;
    struct item *item = argument;
    struct kvs_cli_block block = {.path = item->path,
                                  .fd = item->fd,
                                  .size = item->size,
                                  .examiner = &run->examiners[worker]};

    run->blocks->work(run->blocks->context, &block);
    close(item->fd);
    free(item->path);
    kvs_cli_progress_add(run->progress, item->size);
}

/* A mount of ours refuses corrupt blocks by itself. Elsewhere EBADMSG is the file system's own
 * (C14).
 */
static bool is_refused(int dir_fd, int error)
{
    struct statfs st;

    return error == -EBADMSG && fstatfs(dir_fd, &st) == 0 &&
           (unsigned long)st.f_type == FUSE_SUPER_MAGIC;
}

static void tell_refused(struct run *run, const char *path)
{
    json_t *object = NULL;

    run->sights->refused++;
    if (!run->blocks->common->is_json) {
        kvs_cli_print(path, "corrupt (refused by the mount it was opened on)");
        return;
    }
    object = json_pack("{s:s, s:s}", "verdict", "corrupt", "by", "mount");
    kvs_cli_json_set_path(object, "path", path);
    kvs_cli_json_print(object);
}

void kvs_cli_blocks_complain(const struct kvs_cli_common *common, const char *path,
                             const char *verb, int error)
{
    json_t *object = NULL;

    if (!common->is_json) {
        kvs_cli_complain(path, verb, error);
        return;
    }
    object = json_pack("{s:s, s:s, s:s}", "verdict", "error", "errno", strerrorname_np(-error),
                       "error", strerror(-error));
    kvs_cli_json_set_path(object, "path", path);
    kvs_cli_json_print(object);
}

static void complain(struct run *run, const char *path, int error)
{
    run->sights->errors++;
    kvs_cli_blocks_complain(run->blocks->common, path, "read", error);
}

/* Puts a block, open or -errno of its opening, into the queue. Takes over both. */
static void give(struct run *run, char *path, int fd, int dir_fd)
{
    struct item item = {.path = path, .fd = fd};
    struct stat st;

    if (fd >= 0) {
        item.size = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
        kvs_queue_put(run->queue, &item);
        return;
    }
    if (fd == -ENOENT || fd == -ELOOP || fd == -ESTALE || fd == -EINVAL)
        run->sights->gone++; /* or is another thing now */
    else if (is_refused(dir_fd, fd))
        tell_refused(run, path);
    else
        complain(run, path, fd);
    free(path);
}

/* "DIR/", "DIR" and "ab/cd" give "DIR/ab/cd". NULL: no memory. */
static char *join(const char *operand, const char *below)
{
    size_t length = strlen(operand);
    char *path = NULL;
    const char *slash = length > 0 && operand[length - 1] == '/' ? "" : "/";

    if (*below == '\0')
        return strdup(operand);
    return asprintf(&path, "%s%s%s", operand, slash, below) < 0 ? NULL : path;
}

static int visit(void *context, const struct kvs_walk_entry *entry)
{
    struct run *run = context;
    struct kvs_cli_sights *sights = run->sights;
    char *path = NULL;

    switch (entry->kind) {
    case KVS_WALK_OTHER:
        sights->others++;
        return 0;
    case KVS_WALK_MOUNT:
        sights->mounts++;
        return 0;
    case KVS_WALK_TEMPORARY:
        sights->temporaries++;
        return 0;
    case KVS_WALK_GONE:
        sights->gone++;
        return 0;
    case KVS_WALK_FILE:
    case KVS_WALK_ERROR:
        break;
    }
    path = join(run->operand, entry->path);
    if (path == NULL)
        return -ENOMEM;
    if (entry->kind == KVS_WALK_FILE) {
        give(run, path, kvs_examine_open(entry->dir_fd, entry->name), entry->dir_fd);
        return 0;
    }
    complain(run, path, entry->error);
    free(path);
    return 0;
}

static int walk_tree(struct run *run, int fd)
{
    struct kvs_walk walk = {.visit = visit, .context = run};

    return kvs_walk(fd, &walk);
}

static void refuse_kind(struct run *run, const char *operand)
{
    run->sights->errors++;
    if (run->blocks->common->is_json)
        kvs_cli_blocks_complain(run->blocks->common, operand, "read", -EINVAL);
    else
        kvs_cli_warn(operand,
                     "is neither a file nor a directory; give block files or their directories");
}

static int run_directory(struct run *run, const char *operand, int path_fd)
{
    kvs_cleanup_fd int fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        complain(run, operand, -errno);
        return 0;
    }
    /* Told once here, not for each block. */
    if (fgetxattr(fd, KVS_RECORD_NAME, NULL, 0) < 0 && errno == EOPNOTSUPP) {
        complain(run, operand, -errno);
        return 0;
    }
    return walk_tree(run, fd);
}

static int run_operand(struct run *run, const char *operand)
{
    /* Looked at before it is opened: opening a device may do things. */
    kvs_cleanup_fd int path_fd = open(operand, O_PATH | O_CLOEXEC);
    struct stat st;

    run->operand = operand;
    if (path_fd < 0 || fstat(path_fd, &st) < 0) {
        complain(run, operand, -errno);
        return 0;
    }
    if (S_ISDIR(st.st_mode))
        return run_directory(run, operand, path_fd);
    if (!S_ISREG(st.st_mode)) {
        refuse_kind(run, operand);
        return 0;
    }
    char *path = strdup(operand);
    if (path == NULL)
        return -ENOMEM;
    give(run, path, kvs_examine_open_again(path_fd), path_fd);
    return 0;
}

static void free_examiners(struct kvs_examiner *examiners, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        kvs_examiner_destroy(&examiners[i]);
    free(examiners);
}

static struct kvs_examiner *make_examiners(unsigned count)
{
    struct kvs_examiner *examiners = calloc(count, sizeof(*examiners));
    int r = examiners == NULL ? -ENOMEM : 0;

    for (unsigned i = 0; r == 0 && i < count; i++)
        r = kvs_examiner_init(&examiners[i]);
    if (r == 0 || examiners == NULL)
        return examiners;
    free_examiners(examiners, count);
    return NULL;
}

/* At least two: one sums while the other waits for the device. */
static unsigned count_jobs(const struct kvs_cli_common *common)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    return common->jobs != 0 ? common->jobs
                             : (unsigned)KVS_MIN(KVS_MAX(cpus, 2), KVS_CLI_MOST_JOBS);
}

int kvs_cli_blocks_run(const struct kvs_cli_blocks *blocks, char **operands,
                       struct kvs_cli_sights *sights_ret)
{
    unsigned jobs = count_jobs(blocks->common);
    struct run run = {.blocks = blocks, .sights = sights_ret, .examiners = make_examiners(jobs)};
    struct kvs_queue_work work = {.work = work_on,
                                  .context = &run,
                                  .item_size = sizeof(struct item),
                                  .workers = jobs,
                                  .capacity = KVS_MAX(WAITING_PER_JOB * jobs, LEAST_WAITING)};
    int r = run.examiners == NULL ? -ENOMEM : kvs_queue_create(&work, &run.queue);

    *sights_ret = (struct kvs_cli_sights){0};
    if (r == 0) {
        run.progress = kvs_cli_progress_start(operands);
        for (; r == 0 && *operands != NULL; operands++)
            r = run_operand(&run, *operands);
        kvs_queue_destroy(run.queue);
        kvs_cli_progress_end(run.progress);
    }
    if (run.examiners != NULL)
        free_examiners(run.examiners, jobs);
    return r;
}
