// SPDX-License-Identifier: Apache-2.0
// --healthcheck: whether a live kvsealfs serves a mount point, asked from outside with a time
// limit.
#ifndef KVSEAL_FUSE_HEALTHCHECK_H
#define KVSEAL_FUSE_HEALTHCHECK_H

/* The exit status: 0 when the daemon itself answered within `limit_s` seconds; 1 after one line on
 * stderr that says why not. Needs no rights but to use the mount; never hangs. */
int kvs_healthcheck(const char *mountpoint, double limit_s);

#endif
