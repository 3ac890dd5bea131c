// SPDX-License-Identifier: Apache-2.0
// Command line and mount options of kvsealfs.
#ifndef KVSEAL_FUSE_OPTIONS_H
#define KVSEAL_FUSE_OPTIONS_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/corrupt.h"

enum kvs_unsealed {
    KVS_UNSEALED_ALLOW, /* a block without a record loads (C12) */
    KVS_UNSEALED_SEAL,  /* ... and is sealed after its first full read */
    KVS_UNSEALED_DENY,  /* ... is refused: EACCES */
};

enum kvs_invalidate {
    KVS_INVALIDATE_AUTO,  /* all at once where the kernel can (6.16), otherwise by name */
    KVS_INVALIDATE_NAMES, /* by name, as older kernels need it */
};

enum kvs_passthrough_use {
    KVS_PASSTHROUGH_AUTO, /* buffered loads, where it can be had */
    KVS_PASSTHROUGH_OFF,
};

enum kvs_buffers_use {
    KVS_BUFFERS_AUTO, /* a verified block is kept in memory while it is open, where there is room */
    KVS_BUFFERS_OFF,  /* never: reads check their pieces again */
};

enum kvs_checksums {
    KVS_CHECKSUMS_ON,
    KVS_CHECKSUMS_OFF, /* to measure what they cost: nothing is sealed or verified */
};

struct kvs_options {
    char *source;     /* as given */
    char *mountpoint; /* as given; NULL with --fd-socket */
    int device_fd;    /* N of a mount point /dev/fd/N, or -1 */
    bool foreground;  /* -f, -d */
    bool debug;       /* -d: libfuse's and our debug log */
    bool show_help;
    bool show_version;
    bool read_only; /* -o ro */

    char *ready_file;  /* --ready-file (ready.h); NULL: not given, as with those that follow */
    char *healthcheck; /* --healthcheck: the mount point to ask (healthcheck.h) */
    char *fd_socket;   /* --fd-socket: where the mount comes from (fd_socket.h) */
    char *mount_for;   /* --mount-for: where it is to go to (mounter.h) */
    uid_t user;        /* --user: whom that is for; default our own */
    bool stay;         /* --stay: for one after the other */
    double hold;       /* --hold: seconds that the mount waits for the next (holder.h) */
    double timeout;    /* --timeout: seconds, default 5 for --healthcheck, 60 otherwise */

    enum kvs_on_corrupt on_corrupt;       /* default KVS_ON_CORRUPT_REMOVE */
    int corrupt_errno;                    /* EBADMSG (default), EIO or ENOENT */
    enum kvs_unsealed unsealed;           /* default KVS_UNSEALED_ALLOW */
    uint64_t max_reread;                  /* bytes, default 1 GiB (C6) */
    uint64_t buffer_memory;               /* bytes, at least 32 MiB; 0: not given (memory.h) */
    enum kvs_buffers_use buffers;         /* default KVS_BUFFERS_AUTO */
    enum kvs_checksums checksums;         /* default KVS_CHECKSUMS_ON */
    enum kvs_passthrough_use passthrough; /* default KVS_PASSTHROUGH_AUTO */
    uint64_t pinned_memory;               /* bytes, at least 1 MiB; 0: not given (memory.h) */
    double attr_timeout;                  /* seconds, default 1 */
    double entry_timeout;                 /* seconds, default 1 */
    double negative_timeout;              /* seconds, default 0 */
    enum kvs_invalidate invalidate;       /* default KVS_INVALIDATE_AUTO */
    unsigned max_names;                   /* default 250000; 0: no limit */
    uint64_t scrub_within;                /* seconds; 0 (default): no scrub */
    unsigned threads;                     /* most workers, default 512, 4..4096 */
    char *metrics;                        /* ADDRESS as of kvs_http_parse(), or NULL: none */
    double grace;                         /* seconds, default 10: how long the end may take */
    bool require_shared;                  /* others have to see the mount (mount.h) */
    int immutable;                        /* bool, default true: guard the mount point (guard.h) */

    struct fuse_args session_args; /* what libfuse gets: -o fsname=..., allow_other, ... */
};

/* Parses argv, in the forms of the command line, `mount -t fuse.kvsealfs` and fstab (which add rw,
 * dev, suid, noauto, _netdev, x-* ...). 0; or -EINVAL after one clear line on stderr that says
 * what, where and what to do. kvs_options_destroy() in every case. */
int kvs_options_parse(int argc, char **argv, struct kvs_options *options_ret);
void kvs_options_destroy(struct kvs_options *options);
void kvs_options_print_help(const char *program);

#endif
