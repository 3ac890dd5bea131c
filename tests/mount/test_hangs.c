// SPDX-License-Identifier: Apache-2.0
// C24: something hangs in the file system below, or everybody comes at once. And C23: the end comes
// while requests are in flight.
#include "tests/mount/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* ---- many clients ---- */

struct client {
    struct kvt_env *env;
    unsigned number;
    unsigned rounds;
    int error; /* of the first call that failed */
};

/* kvt_store() and kvt_load() fail the test, which only its own thread can: here they must not. */
static int store_and_load(struct kvt_env *env, unsigned number, unsigned round)
{
    char temporary[PATH_MAX], path[PATH_MAX];
    const size_t size = 16384 + number;
    snprintf(temporary, sizeof(temporary), "%s/%s/c%u.tmp", env->mnt, env->dir, number);
    snprintf(path, sizeof(path), "%s/%s/c%u-%u", env->mnt, env->dir, number, round);
    int error = kvt_write_file(temporary, KVT_CREATE, size, number + round, 0);
    if (error || rename(temporary, path) != 0)
        return error ? error : -errno;
    unsigned char *block = kvt_block(size, number + round), *bytes = malloc(size + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, bytes, size + 1);
    error = length < 0                                             ? -errno
            : (size_t)length != size || memcmp(bytes, block, size) ? -EUCLEAN
                                                                   : 0;
    if (fd >= 0)
        close(fd);
    free(block);
    free(bytes);
    return error;
}

static void *run_client(void *argument)
{
    struct client *client = argument;
    for (unsigned round = 0; round < client->rounds && !client->error; round++)
        client->error = store_and_load(client->env, client->number, round);
    return NULL;
}

static void join_all(const pthread_t threads[], unsigned count)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 3 * KVT_PATIENCE_SEC;
    for (unsigned i = 0; i < count; i++) {
        if (pthread_timedjoin_np(threads[i], NULL, &deadline) != 0)
            fail_msg("client %u makes no progress", i);
    }
}

/* Each of `count` threads stores and loads blocks of its own; all must be done in time. */
static void run_clients(struct kvt_env *env, unsigned count, unsigned rounds)
{
    pthread_t threads[400];
    static struct client clients[400];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (unsigned i = 0; i < count; i++) {
        clients[i] = (struct client){env, i, rounds, 0};
        assert_int_equal(pthread_create(&threads[i], &attributes, run_client, &clients[i]), 0);
    }
    pthread_attr_destroy(&attributes);
    join_all(threads, count);
    for (unsigned i = 0; i < count; i++) {
        if (clients[i].error)
            fail_msg("client %u: %s", i, strerror(-clients[i].error));
    }
}

/* ---- one that hangs ---- */

/* What the client does that is going to hang: in a directory of its own, which it may lock. */
static int store_victim(struct kvt_env *env)
{
    return kvt_write_file(kvt_mnt(env, "victim/new"), KVT_CREATE, 2 * MIB, 1, 0);
}

static int load_victim(struct kvt_env *env)
{
    return kvt_load(env, "victim/old", 2 * MIB, 2, 0);
}

static int look_for_victim(struct kvt_env *env)
{
    return access(kvt_mnt(env, "victim/absent"), F_OK) != 0 && errno == ENOENT ? 0 : -1;
}

static pid_t start_victim(struct kvt_env *env, const char *fault, int (*act)(struct kvt_env *))
{
    assert_int_equal(mkdir(kvt_src(env, "victim"), 0755), 0);
    assert_int_equal(kvt_write_file(kvt_mnt(env, "victim/old"), KVT_CREATE, 2 * MIB, 2, 0), 0);
    kvt_remount(env);
    kvt_drop_cache(kvt_src(env, "victim/old"));
    /* All have to pass here: where the kernel looks for a directory's name the first time, it lets
     * one of them ask, and the others wait for it. */
    assert_int_equal(access(kvt_mnt(env, "victim"), F_OK), 0);
    kvt_fault(env, fault);
    pid_t pid = fork();
    if (pid == 0)
        _exit(act(env) == 0 ? 0 : 1);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    return pid;
}

static void assert_victim_ends_well(pid_t pid)
{
    int status;
    kvt_wait_for(waitpid(pid, &status, WNOHANG) == pid);
    assert_int_equal(status, 0);
}

static void others_go_on(struct kvt_env *env, const char *fault, int (*act)(struct kvt_env *))
{
    pid_t victim = start_victim(env, fault, act);
    run_clients(env, 50, 2);
    assert_int_equal(waitpid(victim, NULL, WNOHANG), 0); // it still hangs
    kvt_fault(env, "release\n");
    assert_victim_ends_well(victim);
}

static void c24_a_hung_read_stops_nobody_else(void **state)
{
    others_go_on(*state, "read 1 hang\n", load_victim);
}

static void c24_a_hung_write_stops_nobody_else(void **state)
{
    others_go_on(*state, "write 2 hang\n", store_victim);
    kvt_assert_sealed_block((struct kvt_env *)*state, "victim/new", 2 * MIB, 1);
}

static void c24_a_hung_setxattr_stops_nobody_else(void **state)
{
    others_go_on(*state, "setxattr 1 hang\n", store_victim);
    kvt_assert_sealed_block((struct kvt_env *)*state, "victim/new", 2 * MIB, 1);
}

static void c24_a_hung_flush_stops_nobody_else(void **state)
{
    others_go_on(*state, "flush 1 hang\n", store_victim);
    kvt_assert_sealed_block((struct kvt_env *)*state, "victim/new", 2 * MIB, 1);
}

static void c24_a_hung_lookup_stops_nobody_else(void **state)
{
    others_go_on(*state, "lookup 1 hang\n", look_for_victim);
}

/* ---- many that hang ---- */

#define VICTIMS 400

static void *read_victim_link(void *path)
{
    char text[16];
    return readlink(path, text, sizeof(text)) == 3 ? NULL : path;
}

/* In a process of its own: the exit status says whether all were answered well. */
static pid_t start_victims(unsigned count, void *(*act)(void *), char *paths, size_t path_size)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    static pthread_t threads[VICTIMS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    int failed = 0;
    for (unsigned i = 0; i < count; i++)
        failed |= pthread_create(&threads[i], &attributes, act, paths + i * path_size);
    for (unsigned i = 0; i < count && !failed; i++) {
        void *result = NULL;
        failed |= pthread_join(threads[i], &result) || result;
    }
    _exit(failed ? 1 : 0);
}

static bool have_all_arrived(struct kvt_env *env, const char *kind, unsigned count)
{
    char line[64];
    snprintf(line, sizeof(line), "%s %u", kind, count);
    return kvt_fault_report_has(env, line);
}

/* While they wait for the link's text, others store and load. */
static void hang_at_links(struct kvt_env *env, const char *options)
{
    char path[PATH_MAX];
    kvt_start(env, options);
    assert_int_equal(symlink("abc", kvt_mnt(env, "link")), 0);
    snprintf(path, sizeof(path), "%s", kvt_mnt(env, "link"));
    kvt_fault(env, "clear\nreadlink 1 hang-always\n");
    pid_t victims = start_victims(VICTIMS, read_victim_link, path, 0);
    kvt_wait_for(have_all_arrived(env, "readlink", VICTIMS));
    run_clients(env, 16, 2);
    assert_int_equal(waitpid(victims, NULL, WNOHANG), 0); // they still hang
    kvt_fault(env, "clear\nrelease\n");
    assert_victim_ends_well(victims);
}

static void c24_400_hung_requests_stop_nobody_else(void **state)
{
    hang_at_links(*state, NULL);
}

static void c24_400_hung_requests_stop_nobody_else_with_little_memory(void **state)
{
    hang_at_links(*state, "buffer_memory=32M");
}

#define WRITERS 200

static void *write_a_megabyte(void *path)
{
    unsigned char *block = kvt_block(MIB, 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool is_good = fd >= 0 && write(fd, block, MIB) == (ssize_t)MIB && close(fd) == 0;
    free(block);
    return is_good ? NULL : path;
}

static void c24_200_hung_writes_stop_no_load(void **state)
{
    struct kvt_env *env = *state;
    static char paths[WRITERS][PATH_MAX];
    for (unsigned i = 0; i < WRITERS; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/%s/w%u", env->mnt, env->dir, i);
    kvt_start(env, "buffer_memory=64M"); // they alone would fill it
    assert_int_equal(kvt_store(env, "other", 2 * MIB, 2, 0), 0);
    kvt_fault(env, "clear\nwrite 1 hang-always\n");
    pid_t writers = start_victims(WRITERS, write_a_megabyte, paths[0], sizeof(paths[0]));
    kvt_wait_for(have_all_arrived(env, "write", WRITERS));
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(kvt_load(env, "other", 2 * MIB, 2, i % 2 ? KVT_DIRECT : 0), 0);
    assert_int_equal(waitpid(writers, NULL, WNOHANG), 0);
    kvt_fault(env, "clear\nrelease\n");
    assert_victim_ends_well(writers);
    for (unsigned i = 0; i < WRITERS; i++)
        kvt_assert_sealed(paths[i]);
}

/* ---- everybody at once ---- */

static void c24_400_clients_make_progress(void **state)
{
    run_clients(*state, 400, 3);
}

static void c24_400_clients_make_progress_with_8_threads(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "threads=8");
    run_clients(env, 400, 3);
}

static void c24_400_clients_make_progress_with_little_memory(void **state)
{
    struct kvt_env *env = *state;
    kvt_start(env, "buffer_memory=32M");
    run_clients(env, 400, 3);
}

#define FILES   10
#define LOADERS 100

struct loader {
    struct kvt_env *env;
    unsigned char *const *blocks;
    unsigned number;
    int error;
};

static int load_file(const struct loader *loader, unsigned number, unsigned char *bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s/f%u", loader->env->mnt, loader->env->dir, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC | (loader->number % 2 ? O_DIRECT : 0));
    ssize_t length = fd < 0 ? -1 : read(fd, bytes, 4 * MIB);
    int error = length < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    if (!error &&
        ((size_t)length != 4 * MIB || memcmp(bytes, loader->blocks[number], 4 * MIB) != 0))
        error = -EUCLEAN;
    return error;
}

static void *load_all(void *argument)
{
    struct loader *loader = argument;
    unsigned char *bytes = aligned_alloc(4096, 4 * MIB);
    for (unsigned i = 0; i < FILES && !loader->error; i++)
        loader->error = load_file(loader, (loader->number + i) % FILES, bytes);
    free(bytes);
    return NULL;
}

static void c24_100_loads_share_little_memory(void **state)
{
    struct kvt_env *env = *state;
    static struct loader loaders[LOADERS];
    unsigned char *blocks[FILES];
    pthread_t threads[LOADERS];
    char name[16];
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(kvt_store(env, name, 4 * MIB, i, 0), 0);
        blocks[i] = kvt_block(4 * MIB, i);
    }
    kvt_start(env, "buffer_memory=32M");
    for (unsigned i = 0; i < LOADERS; i++) {
        loaders[i] = (struct loader){env, blocks, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, load_all, &loaders[i]), 0);
    }
    join_all(threads, LOADERS);
    for (unsigned i = 0; i < LOADERS; i++)
        assert_int_equal(loaders[i].error, 0);
    for (unsigned i = 0; i < FILES; i++)
        free(blocks[i]);
}

/* ---- the end comes while a request is in flight ---- */

/* The answer to write(2) alone counts: close(2) may find the mount gone. */
static int write_victim(struct kvt_env *env)
{
    int fd = kvt_open(kvt_mnt(env, "victim/new"), KVT_CREATE);
    unsigned char *block = kvt_block(MIB, 1);
    return write(fd, block, MIB) == (ssize_t)MIB ? 0 : -1;
}

static void c23_a_request_in_flight_finishes(void **state)
{
    struct kvt_env *env = *state;
    int status;
    pid_t daemon, victim = start_victim(env, "write 1 hang\n", write_victim);
    daemon = env->daemon;
    kill(daemon, SIGTERM);
    kvt_fault(env, "release\n");
    assert_victim_ends_well(victim);
    kvt_wait_for(waitpid(daemon, &status, WNOHANG) == daemon);
    env->daemon = 0;
    assert_int_equal(status, 0);
    assert_false(kvt_is_mounted(env->mnt));
    kvt_assert_block(kvt_src(env, "victim/new"), MIB, 1);
    if (kvt_record_of(kvt_src(env, "victim/new")).kind != KVS_RECORD_NONE)
        kvt_assert_sealed(kvt_src(env, "victim/new")); // its close(2) came through
}

/* Three quarters of it are the hung request's; the rest would be the last seals'. */
static void c23_the_grace_bounds_the_end(void **state)
{
    struct kvt_env *env = *state;
    int status;
    kvt_start(env, "grace=2");
    pid_t daemon, victim = start_victim(env, "write 1 hang\n", write_victim);
    daemon = env->daemon;
    uint64_t start = kvt_now_ms();
    kill(daemon, SIGTERM);
    kvt_wait_for(!kvt_is_mounted(env->mnt));
    assert_in_range(kvt_now_ms() - start, 1500, 7000); // 7500: those of the default
    env->daemon = 0;
    assert_true(kvt_log_has(env, "1 requests hang 1500 ms after the end was asked for"));
    kvt_fault(env, "release\n");
    kvt_wait_for(waitpid(daemon, &status, WNOHANG) == daemon);
    assert_int_equal(WEXITSTATUS(status), 1);
    kvt_wait_for(waitpid(victim, &status, WNOHANG) == victim);
}

/* A notification by name waits for the directory's lock, which a hung RENAME holds. */
static void c23_the_end_comes_with_a_stuck_notification(void **state)
{
    struct kvt_env *env = *state;
    int status;
    kvt_start(env, "invalidate=names");
    assert_int_equal(kvt_store(env, "rotten", 4096, 1, 0), 0);
    kvt_flip(kvt_under(env, "rotten"), 7);
    int rotten = open(kvt_mnt(env, "rotten"), O_PATH | O_CLOEXEC);
    int fd = kvt_open(kvt_mnt(env, "new.tmp"), KVT_CREATE);
    kvt_put(fd, 4096, 2, 0);

    kvt_fault(env, "clear\nsetxattr 1 hang\n");
    pid_t victim = fork();
    if (victim == 0)
        _exit(rename(kvt_mnt(env, "new.tmp"), kvt_mnt(env, "new")) == 0 ? 0 : 1);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", rotten); // no look-up, which would wait, too
    kvt_assert_errno(EBADMSG, open(path, O_RDONLY));

    pid_t daemon = env->daemon;
    kill(daemon, SIGTERM);
    kvt_wait_for(!kvt_is_mounted(env->mnt));
    env->daemon = 0;
    kvt_fault(env, "release\n"); // the hung call below is the last that keeps it
    kvt_wait_for(waitpid(daemon, &status, WNOHANG) == daemon);
    assert_true(WIFEXITED(status));
    kvt_wait_for(waitpid(victim, &status, WNOHANG) == victim);
    assert_int_equal(status, 256); // its mount is gone
    close(fd);
    close(rotten);
}

/* Whoever unmounts and removes the directory then does not wait for what hangs. */
static void c23_an_unmount_gives_the_directory_back_at_once(void **state)
{
    struct kvt_env *env = *state;
    int status;
    assert_int_equal(kvt_store(env, "block", 4096, 1, 0), 0);
    int fd = kvt_open(kvt_mnt(env, "block"), O_RDONLY);
    kvt_fault(env, "clear\nflush 1 hang\n");
    close(fd); // the daemon's own close(2), which nobody waits for, hangs
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
    pid_t daemon = env->daemon;
    assert_int_equal(umount2(env->mnt, 0), 0);
    uint64_t start = kvt_now_ms();
    kvt_wait_for(rmdir(env->mnt) == 0);
    assert_in_range(kvt_now_ms() - start, 0, 5000); // less than the grace
    assert_int_equal(waitpid(daemon, &status, WNOHANG), 0);
    kvt_fault(env, "release\n");
    kvt_wait_for(waitpid(daemon, &status, WNOHANG) == daemon);
    env->daemon = 0;
    assert_int_equal(status, 0);
    assert_int_equal(mkdir(env->mnt, 0755), 0);
}

static const struct CMUnitTest with_faults[] = {
    kvt_test(c24_a_hung_read_stops_nobody_else),
    kvt_test(c24_a_hung_write_stops_nobody_else),
    kvt_test(c24_a_hung_setxattr_stops_nobody_else),
    kvt_test(c24_a_hung_lookup_stops_nobody_else),
    kvt_test(c24_a_hung_flush_stops_nobody_else),
    kvt_test(c23_a_request_in_flight_finishes),
    kvt_test(c23_the_grace_bounds_the_end),
    kvt_test(c24_400_hung_requests_stop_nobody_else),
    kvt_test(c24_400_hung_requests_stop_nobody_else_with_little_memory),
    kvt_test(c24_200_hung_writes_stop_no_load),
    kvt_test(c23_the_end_comes_with_a_stuck_notification),
    kvt_test(c23_an_unmount_gives_the_directory_back_at_once),
};

static const struct CMUnitTest without_faults[] = {
    kvt_test(c24_400_clients_make_progress),
    kvt_test(c24_400_clients_make_progress_with_8_threads),
    kvt_test(c24_400_clients_make_progress_with_little_memory),
    kvt_test(c24_100_loads_share_little_memory),
};

#define COUNT_OF(array) (sizeof(array) / sizeof(array[0]))

int main(void)
{
    int failed = kvt_main("hangs", with_faults, COUNT_OF(with_faults), KVT_FAULTFS);
    return kvt_main("crowds", without_faults, COUNT_OF(without_faults), KVT_TMPFS) || failed;
}
