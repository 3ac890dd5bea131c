// SPDX-License-Identifier: Apache-2.0
// --mount-for: the privileged side of a mount whose daemon has no privileges.
#ifndef KVSEAL_FUSE_MOUNTER_H
#define KVSEAL_FUSE_MOUNTER_H

#include "fuse/options.h"

/* Listens on options->mount_for. When a daemon connects: replaces a dead mount on
 * options->mountpoint, mounts, and sends the descriptor. Then it ends; with options->stay it takes
 * the mount away when that daemon is gone, and waits for the next one, until SIGTERM, SIGINT or
 * SIGHUP. The exit status: 0, or 1 after one line in the log. */
int kvs_mounter_run(struct kvs_options *options);

#endif
