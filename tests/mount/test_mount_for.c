// SPDX-License-Identifier: Apache-2.0
// A daemon without any privileges, and the mounter that hands it the mount (--fd-socket,
// --mount-for): everything works, ends cleanly, and heals.
#include "tests/mount/fixture_process.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* One pod: what its containers share. */
struct pod {
    const char *source, *mnt, *run, *socket, *log, *ready;
    char file[PATH_MAX]; /* a block's path through the mount */
};

static struct pod make_pod(struct kvt_env *env)
{
    struct pod pod = {.source = kvt_work_dir(env, "pod-source", 0755),
                      .mnt = kvt_work_dir(env, "pod-mnt", 0755),
                      .run = kvt_work_dir(env, "pod-run", 0777),
                      .socket = kvt_work_path(env, "pod-run/socket"),
                      .ready = kvt_work_path(env, "pod-run/ready"),
                      .log = kvt_work_path(env, "pod.log")};
    assert_int_equal(chmod(env->work, 0755), 0);
    assert_int_equal(chown(pod.source, KVT_NOBODY, KVT_NOBODY), 0);
    snprintf(pod.file, sizeof(pod.file), "%s/a", pod.mnt);
    unlink(pod.log);
    return pod;
}

static pid_t start_mounter(const struct pod *pod, bool stays)
{
    return kvt_launch(pod->log, 0, -1, "-f", "--mount-for", pod->socket, "--user", "65534",
                      pod->source, pod->mnt, stays ? "--stay" : NULL, NULL);
}

static pid_t start_daemon(const struct pod *pod)
{
    return kvt_launch(pod->log, KVT_NOBODY, -1, "-f", "--fd-socket", pod->socket, "--ready-file",
                      pod->ready, pod->source, NULL);
}

static void await_ready(const struct pod *pod, pid_t daemon)
{
    char own[32];
    snprintf(own, sizeof(own), "%d\n", (int)daemon);
    kvt_wait_for(kvt_file_has(pod->ready, own));
    assert_true(kvt_is_fuse(pod->mnt));
}

/* Stores, loads and refuses, as any client may see it. */
static void use(const struct pod *pod, unsigned seed)
{
    char below[PATH_MAX], name[PATH_MAX];
    snprintf(name, sizeof(name), "%s/block-%u", pod->mnt, seed);
    snprintf(below, sizeof(below), "%s/block-%u", pod->source, seed);
    assert_int_equal(kvt_write_file(name, KVT_CREATE, MIB + 5, seed, 0), 0);
    kvt_assert_sealed(below);
    assert_int_equal(kvt_load_path(name, MIB + 5, seed, 0), 0);
    assert_int_equal(kvt_load_path(name, MIB + 5, seed, KVT_DIRECT), 0);
    struct stat st;
    assert_int_equal(stat(below, &st), 0);
    assert_int_equal(st.st_uid, KVT_NOBODY); // without CHOWN and SETUID
    kvt_flip(below, 4711);
    kvt_assert_errno(EBADMSG, open(name, O_RDONLY));
    kvt_assert_errno(ENOENT, open(name, O_RDONLY));
    assert_true(kvt_is_gone(below));
}

static void assert_no_capability(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    assert_true(kvt_file_has(path, "CapEff:\t0000000000000000\n"));
    assert_true(kvt_file_has(path, "CapBnd:\t0000000000000000\n"));
    assert_true(kvt_file_has(path, "Uid:\t65534\t65534\t65534\t65534\n"));
}

static void a_daemon_without_privileges_serves(void **state)
{
    for (int is_daemon_first = 0; is_daemon_first <= 1; is_daemon_first++) {
        struct pod pod = make_pod(*state);
        pid_t daemon = is_daemon_first ? start_daemon(&pod) : 0;
        if (is_daemon_first)
            kvt_wait_for(kvt_file_has(pod.log, "no passthrough")); // it is about to connect
        pid_t mounter = start_mounter(&pod, true);
        if (!is_daemon_first) {
            kvt_wait_for(access(pod.socket, F_OK) == 0);
            daemon = start_daemon(&pod);
        }
        await_ready(&pod, daemon);
        assert_no_capability(daemon);
        use(&pod, 1);
        assert_int_equal(
            kvt_end_of(kvt_launch(pod.log, KVT_NOBODY, -1, "--healthcheck", pod.mnt, NULL)), 0);

        int fd = kvt_open(pod.file, KVT_CREATE); // a block that is being written at the end
        kvt_put(fd, MIB, 3, 0);
        assert_int_equal(kvt_terminate(daemon), 0);
        close(fd);
        kvt_assert_unsealed(kvt_work_path(*state, "pod-source/a"));
        kvt_wait_for(!kvt_is_mounted(pod.mnt));
        assert_true(kvt_is_gone(pod.ready));
        assert_int_equal(kvt_terminate(mounter), 0);
        assert_true(kvt_is_gone(pod.socket));
        assert_int_equal(unlink(kvt_work_path(*state, "pod-source/a")), 0);
        assert_int_equal(rmdir(pod.mnt), 0); // nothing is left that could keep a pod
    }
}

/* The mount of a killed daemon goes at once, nobody can write below, and the next one heals it. */
static void a_mounter_that_stays_heals(void **state)
{
    struct pod pod = make_pod(*state);
    pid_t mounter = start_mounter(&pod, true);
    for (unsigned i = 0; i < 5; i++) {
        pid_t daemon = start_daemon(&pod);
        await_ready(&pod, daemon);
        use(&pod, i);
        assert_int_equal( // the second mount is like the first: open to others, and kvsealfs's
            kvt_end_of(kvt_launch(pod.log, KVT_NOBODY, -1, "--healthcheck", pod.mnt, NULL)), 0);
        uint64_t start = kvt_now_ms();
        kill(daemon, SIGKILL);
        assert_int_equal(kvt_end_of(daemon), 128 + SIGKILL);
        kvt_wait_for(!kvt_is_mounted(pod.mnt));
        print_message("the dead mount went within %ju ms\n", (uintmax_t)(kvt_now_ms() - start));
        kvt_assert_errno(ENOENT, open(pod.file, O_RDONLY));
        kvt_assert_errno(EPERM, open(pod.file, KVT_CREATE, 0644));
    }
    assert_int_equal(kvt_terminate(mounter), 0);
    assert_int_equal(rmdir(pod.mnt), 0);
}

/* Without --stay it ends with the hand-over, and what the daemon leaves is dead but covered. */
static void a_mounter_that_ends_leaves_the_mount(void **state)
{
    struct pod pod = make_pod(*state);
    for (unsigned i = 0; i < 3; i++) { // the next one replaces the dead mount
        pid_t daemon = start_daemon(&pod), mounter = start_mounter(&pod, false);
        assert_int_equal(kvt_end_of(mounter), 0);
        assert_true(kvt_is_gone(pod.socket));
        await_ready(&pod, daemon);
        use(&pod, i);
        assert_int_equal(kvt_terminate(daemon), 0);
        kvt_assert_errno(ENOTCONN, open(pod.file, KVT_CREATE, 0644));
    }
    assert_int_equal(umount2(pod.mnt, MNT_DETACH), 0);
    assert_int_equal(rmdir(pod.mnt), 0);
}

/* A mounter that was killed is replaced while its daemon serves on; the end leaves nothing. */
static void a_killed_mounter_is_replaced(void **state)
{
    struct pod pod = make_pod(*state);
    pid_t mounter = start_mounter(&pod, true), daemon = start_daemon(&pod);
    await_ready(&pod, daemon);
    kill(mounter, SIGKILL);
    kvt_end_of(mounter);
    use(&pod, 1);
    mounter = start_mounter(&pod, true);
    assert_int_equal(kvt_end_of(start_daemon(&pod)), 1); // the old one serves
    use(&pod, 2);
    kill(daemon, SIGKILL);
    kvt_end_of(daemon);
    daemon = start_daemon(&pod);
    await_ready(&pod, daemon);
    use(&pod, 3);
    kill(mounter, SIGKILL);
    kvt_end_of(mounter);
    mounter = start_mounter(&pod, true);
    assert_int_equal(kvt_end_of(start_daemon(&pod)), 1);
    assert_int_equal(kvt_terminate(daemon), 0);
    assert_int_equal(kvt_terminate(mounter), 0);
    assert_false(kvt_is_mounted(pod.mnt));
    assert_int_equal(rmdir(pod.mnt), 0);
}

/* A daemon that comes while another one serves is sent away, and changes nothing for that one. */
static void a_second_daemon_is_sent_away(void **state)
{
    struct pod pod = make_pod(*state);
    pid_t mounter = start_mounter(&pod, true), daemon = start_daemon(&pod);
    await_ready(&pod, daemon);
    assert_int_equal(kvt_end_of(start_daemon(&pod)), 1);
    use(&pod, 1);
    kill(daemon, SIGKILL);
    kvt_end_of(daemon);
    kvt_wait_for(!kvt_is_mounted(pod.mnt)); // it was watched on

    daemon = start_daemon(&pod);
    await_ready(&pod, daemon);
    assert_int_equal(kvt_end_of(start_daemon(&pod)), 1);
    assert_int_equal(kvt_terminate(mounter), 0); // takes the mount away, which ends the daemon
    assert_int_equal(kvt_end_of(daemon), 0);
    assert_false(kvt_is_mounted(pod.mnt));
    assert_int_equal(rmdir(pod.mnt), 0);
}

/* Its look whether somebody listens is not taken for a daemon's. */
static void a_second_mounter_ends_and_the_first_waits_on(void **state)
{
    struct pod pod = make_pod(*state);
    pid_t mounter = start_mounter(&pod, false);
    kvt_wait_for(access(pod.socket, F_OK) == 0);
    assert_int_equal(kvt_end_of(start_mounter(&pod, false)), 1);
    assert_true(kvt_file_has(pod.log, "Address already in use"));
    pid_t daemon = start_daemon(&pod);
    await_ready(&pod, daemon);
    assert_int_equal(kvt_end_of(mounter), 0);
    assert_int_equal(umount2(pod.mnt, 0), 0);
    assert_int_equal(kvt_end_of(daemon), 0);
}

static void only_the_named_user_gets_the_mount(void **state)
{
    struct pod pod = make_pod(*state);
    pid_t mounter = start_mounter(&pod, true);
    kvt_wait_for(access(pod.socket, F_OK) == 0);
    pid_t stranger = kvt_launch(pod.log, 1000, -1, "-f", "--fd-socket", pod.socket, pod.source,
                                "-o", "ro", NULL);
    assert_int_equal(kvt_end_of(stranger), 1);
    assert_true(kvt_file_has(pod.log, "Permission denied"));
    assert_int_equal(chmod(pod.socket, 0666), 0); // as where it could not be given away
    stranger = kvt_launch(pod.log, 1000, -1, "-f", "--fd-socket", pod.socket, pod.source, "-o",
                          "ro", NULL);
    assert_int_equal(kvt_end_of(stranger), 1);
    assert_true(kvt_file_has(pod.log, "turned a process of user 1000 away"));
    assert_false(kvt_is_mounted(pod.mnt));
    pid_t daemon = start_daemon(&pod);
    await_ready(&pod, daemon);
    assert_int_equal(kvt_terminate(daemon), 0);
    assert_int_equal(kvt_terminate(mounter), 0);
}

static void nobody_waits_for_ever(void **state)
{
    struct pod pod = make_pod(*state);
    assert_int_equal(kvt_end_of(kvt_launch(pod.log, 0, -1, "--mount-for", pod.socket, "--timeout",
                                           "0.2", pod.source, pod.mnt, NULL)),
                     1);
    assert_true(kvt_file_has(pod.log, "no daemon connected to"));
    assert_int_equal(kvt_end_of(kvt_launch(pod.log, KVT_NOBODY, -1, "-f", "--fd-socket", pod.socket,
                                           "--timeout", "0.2", pod.source, NULL)),
                     1);
    assert_true(kvt_file_has(pod.log, "no kvsealfs --mount-for came to listen there"));
    assert_int_equal(kvt_end_of(kvt_launch(pod.log, 0, -1, "--mount-for", pod.socket, pod.source,
                                           kvt_work_path(*state, "missing"), NULL)),
                     1);
    assert_true(kvt_file_has(pod.log, "No such file or directory"));
    assert_false(kvt_is_mounted(pod.mnt));
}

/* A process that waits ends when it is asked to. */
/* Before it has a handler, the signal itself ends it. */
static bool handles_terminate(pid_t pid)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof(line), status))
        sscanf(line, "SigCgt: %llx", &caught);
    if (status)
        fclose(status);
    return caught & 1ULL << (SIGTERM - 1);
}

static void who_waits_can_be_ended(void **state)
{
    struct pod pod = make_pod(*state);
    pid_t daemon = start_daemon(&pod);
    kvt_wait_for(handles_terminate(daemon)); // it is about to connect
    assert_int_equal(kvt_terminate(daemon), 1);
    for (int stays = 0; stays <= 1; stays++) {
        pid_t mounter = start_mounter(&pod, stays);
        kvt_wait_for(access(pod.socket, F_OK) == 0);
        assert_int_equal(kvt_terminate(mounter), stays ? 0 : 1);
        assert_true(kvt_is_gone(pod.socket));
    }
    assert_false(kvt_is_mounted(pod.mnt));
}

static void an_inherited_descriptor_is_served(void **state)
{
    struct pod pod = make_pod(*state);
    char data[128];
    int device = kvt_open("/dev/fuse", O_RDWR);
    snprintf(data, sizeof(data),
             "fd=%d,rootmode=40000,user_id=65534,group_id=65534,allow_other,default_permissions",
             device);
    assert_int_equal(mount("src", pod.mnt, "fuse.kvsealfs", MS_NOSUID | MS_NODEV, data), 0);
    pid_t daemon = kvt_launch(pod.log, KVT_NOBODY, device, "-f", pod.source, "/dev/fd/3",
                              "--ready-file", pod.ready, NULL);
    close(device);
    await_ready(&pod, daemon);
    use(&pod, 1);
    assert_int_equal(umount2(pod.mnt, 0), 0);
    assert_int_equal(kvt_end_of(daemon), 0);

    int null = kvt_open("/dev/null", O_RDWR);
    assert_int_equal(kvt_end_of(kvt_launch(pod.log, 0, null, "-f", pod.source, "/dev/fd/3", NULL)),
                     1);
    assert_int_equal(kvt_end_of(kvt_launch(pod.log, 0, -1, "-f", pod.source, "/dev/fd/9", NULL)),
                     1);
    assert_true(kvt_file_has(pod.log, "/dev/fd/3 is not a descriptor of /dev/fuse"));
    assert_true(kvt_file_has(pod.log, "/dev/fd/9 is not a descriptor of /dev/fuse"));
    close(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(a_daemon_without_privileges_serves),
        kvt_test(a_mounter_that_stays_heals),
        kvt_test(a_mounter_that_ends_leaves_the_mount),
        kvt_test(a_killed_mounter_is_replaced),
        kvt_test(a_second_daemon_is_sent_away),
        kvt_test(a_second_mounter_ends_and_the_first_waits_on),
        kvt_test(only_the_named_user_gets_the_mount),
        kvt_test(nobody_waits_for_ever),
        kvt_test(who_waits_can_be_ended),
        kvt_test(an_inherited_descriptor_is_served),
    };
    return kvt_main("mount for a daemon without privileges", tests,
                    sizeof(tests) / sizeof(tests[0]), KVT_DIR);
}
