// SPDX-License-Identifier: Apache-2.0
// faultfs SOURCE MOUNTPOINT: a passthrough file system that fails where it is told to.
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/faultfs/fault.h"
#include "tests/faultfs/node.h"
#include "tests/faultfs/ops.h"

/*
 * Tests mount this below kvsealfs and steer it through the file `.faultfs` at the root of the
 * mount, which readdir does not list; fault.h has its commands. Nothing is cached: no attribute or
 * entry has a life-time and every open is direct, so that each call of the layer above comes
 * through here and is counted. Calls on the control file itself are not, but the kernel asks for
 * the root's attributes on the way to it: open it once and keep it open.
 */

static struct fuse_session *session;

static bool is_stopping(void)
{
    return fuse_session_exited(session) != 0;
}

static int serve(void)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_max_threads(config, 512); // hung calls hold theirs
    int err = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    return err < 0 ? err : 0; // a signal is a good end
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: faultfs SOURCE MOUNTPOINT\n");
        return 1;
    }
    if (node_init(argv[1]) < 0) {
        perror(argv[1]);
        return 1;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(0);
    fault_init(is_stopping);
    char *words[] = {argv[0], "-o",
                     "default_permissions,allow_other,fsname=faultfs,subtype=faultfs", NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    int status = 1;
    session = fuse_session_new(&args, &ops_table, sizeof(ops_table), NULL);
    fuse_opt_free_args(&args);
    if (!session)
        return 1;
    if (fuse_set_signal_handlers(session) == 0 && fuse_session_mount(session, argv[2]) == 0) {
        puts("ready");
        fflush(stdout);
        status = serve() == 0 ? 0 : 1;
        fuse_session_unmount(session);
    }
    fuse_session_destroy(session);
    return status;
}
