// SPDX-License-Identifier: Apache-2.0
// Plays a tier of an LLM server: stores and loads whole blocks, as vLLM's fs tier does.
#include "tests/bench/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/record.h"
#include "core/util.h"
#include "tests/bench/sums.h"

/* A tier's blocks come from and go to ever other memory, so nobody's is in the CPU's caches. */
#define LEAST_POOL ((size_t)128 << 20)

static unsigned char *pool;
static size_t pool_size;

void tier_prepare(size_t most_size, unsigned most_threads)
{
    uint64_t noise = 88172645463325252u;

    pool_size = KVS_MAX(LEAST_POOL, most_size * most_threads);
    pool = mmap(NULL, pool_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool == MAP_FAILED)
        die("no memory for the blocks: %s", strerror(errno));
    madvise(pool, pool_size, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < pool_size; at += sizeof(noise)) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        memcpy(pool + at, &noise, sizeof(noise));
    }
}

static unsigned char *choose_memory(const struct tier_job *job, unsigned thread, uint64_t number)
{
    size_t slots = pool_size / job->size / job->threads; /* of one thread */
    return pool + (thread * slots + number % slots) * job->size;
}

/* Both ends of a block say which it is. */
static void stamp(unsigned char *block, size_t size, uint64_t number)
{
    memcpy(block, &number, sizeof(number));
    memcpy(block + size - sizeof(number), &number, sizeof(number));
}

static bool is_stamped(const unsigned char *block, size_t size, uint64_t number)
{
    return memcmp(block, &number, sizeof(number)) == 0 &&
           memcmp(block + size - sizeof(number), &number, sizeof(number)) == 0;
}

__attribute__((noreturn)) static void fail(const struct tier_job *job, const char *what,
                                           const char *path)
{
    die("side \"%s\": %s %s%s: %s", job->side->name, what, path, job->direct ? " (O_DIRECT)" : "",
        errno ? strerror(errno) : "wrong bytes, or too few");
}

static void store(const struct tier_job *job, unsigned char *block, uint64_t number)
{
    char path[PATH_MAX], tmp[PATH_MAX + 8];
    uint8_t value[KVS_RECORD_SIZE];

    side_path(path, job->side->dir, number);
    snprintf(tmp, sizeof(tmp), "%s.tmp", path);
    stamp(block, job->size, number);
    kvs_cleanup_fd int fd = open(tmp, O_CREAT | O_EXCL | O_WRONLY | (job->direct ? O_DIRECT : 0),
                                 0644);
    if (fd < 0)
        fail(job, "creating", tmp);
    errno = 0;
    if (write(fd, block, job->size) != (ssize_t)job->size)
        fail(job, "writing", tmp);
    if (job->side->sums) {
        kvs_record_encode(stream_crc32c(block, job->size), value);
        if (fsetxattr(fd, KVS_RECORD_NAME, value, sizeof(value), 0) < 0)
            fail(job, "setting the record of", tmp);
    }
    if (close(kvs_steal_fd(&fd)) < 0)
        fail(job, "closing", tmp);
    if (rename(tmp, path) < 0)
        fail(job, "renaming", tmp);
}

static void load(const struct tier_job *job, unsigned char *block, uint64_t number)
{
    char path[PATH_MAX];
    uint8_t value[KVS_RECORD_SIZE], expected[KVS_RECORD_SIZE];

    side_path(path, job->side->dir, number);
    stamp(block, job->size, ~number);
    kvs_cleanup_fd int fd = open(path, O_RDONLY | (job->direct ? O_DIRECT : 0));
    if (fd < 0)
        fail(job, "opening", path);
    errno = 0;
    if (read(fd, block, job->size) != (ssize_t)job->size || !is_stamped(block, job->size, number))
        fail(job, "reading", path);
    if (job->side->sums) {
        if (fgetxattr(fd, KVS_RECORD_NAME, expected, sizeof(expected)) != sizeof(expected))
            fail(job, "getting the record of", path);
        kvs_record_encode(stream_crc32c(block, job->size), value);
        errno = 0;
        if (memcmp(value, expected, sizeof(value)) != 0)
            fail(job, "summing", path);
    }
    if (close(kvs_steal_fd(&fd)) < 0)
        fail(job, "closing", path);
}

static void move_block(void *context, unsigned thread, uint64_t op)
{
    const struct tier_job *job = context;
    uint64_t number = job->first + (job->blocks != 0 ? op % job->blocks : op);
    unsigned char *block = choose_memory(job, thread, op);

    if (job->is_store)
        store(job, block, number);
    else
        load(job, block, number);
}

void tier_run(const struct tier_job *job, struct parallel_result *result_ret)
{
    const struct parallel work = {
        .threads = job->threads,
        .seconds = job->seconds,
        .least_ops = job->least_ops,
        .most_ops = job->most_ops,
        .op = move_block,
        .context = (void *)job,
    };
    parallel_run(&work, result_ret);
}

void tier_fill(const struct side *side, size_t size, uint64_t first, uint64_t count, bool direct)
{
    const struct tier_job job = {
        .side = side,
        .is_store = true,
        .direct = direct,
        .size = size,
        .threads = (unsigned)KVS_MIN(count, 4),
        .first = first,
        .least_ops = count,
        .most_ops = count,
    };
    struct parallel_result result;

    if (job.size * job.threads > pool_size)
        die("too little memory was prepared");
    tier_run(&job, &result);
    samples_free(&result.latencies);
}
