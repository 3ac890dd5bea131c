// SPDX-License-Identifier: Apache-2.0
// What the daemon says of itself: all its metrics, and its status, as text that others fetch from
// the control directory or by HTTP.
#ifndef KVSEAL_FUSE_METRICS_H
#define KVSEAL_FUSE_METRICS_H

#include "fuse/fs.h"

/* Each gives malloc()ed text, and its length without the null at its end. No file operation on the
 * source or the mount: it cannot hang. 0 or -ENOMEM. */

/* Prometheus's text format. */
int kvs_metrics_render(struct kvs_fs *fs, char **text_ret, size_t *len_ret);

/* A JSON object, indented: version, libfuse, source, mountpoint, pid, state ("serving" or
 * "draining"), uptime_seconds, and `metrics` as of kvs_metrics_json(). */
int kvs_status_render(struct kvs_fs *fs, char **text_ret, size_t *len_ret);

/* Whether new requests are taken: the mount serves, no end was asked for, and a worker is free to
 * receive the next one. NULL: it is; else why not. */
const char *kvs_status_why_unready(struct kvs_fs *fs);

#endif
