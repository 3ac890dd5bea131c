// SPDX-License-Identifier: Apache-2.0
// The daemon's metrics and health by HTTP (`-o metrics=ADDRESS`): /metrics for Prometheus, /healthz
// (the process answers) and /readyz (the mount takes requests).
#ifndef KVSEAL_FUSE_METRICS_HTTP_H
#define KVSEAL_FUSE_METRICS_HTTP_H

#include "fuse/fs.h"

struct kvs_http;

#define KVS_HTTP_HOST_SIZE 256
#define KVS_HTTP_PORT_SIZE 6

/* HOST:PORT, [IPV6]:PORT, :PORT or PORT; without a host it is 127.0.0.1. Port 0 is any free one. 0
 * or -EINVAL. */
int kvs_http_parse(const char *address, char host_ret[KVS_HTTP_HOST_SIZE],
                   char port_ret[KVS_HTTP_PORT_SIZE]);

/* Listens there; connections wait until kvs_http_start(). 0 or -errno, after one line that says
 * what is wrong. */
int kvs_http_listen(const char *address, int *fd_ret);

/* Answers on a thread of its own, once a connection; where there are too many, the oldest one is
 * cut off, so that slow clients hold nobody up. Logs where. Owns `fd`, also when it fails. `fs`
 * must serve, or be about to, until kvs_http_stop(). 0 or -errno, said. */
int kvs_http_start(struct kvs_fs *fs, int fd, struct kvs_http **http_ret);
void kvs_http_stop(struct kvs_http *http); /* NULL: nothing */

#endif
