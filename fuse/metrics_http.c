// SPDX-License-Identifier: Apache-2.0
// A small HTTP server over libmicrohttpd.
#include "fuse/metrics_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "core/util.h"
#include "fuse/metrics.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

/*
 * Nobody may hold the others up, or take memory, for long. A time limit alone would not do: who
 * sends a byte from time to time is not idle, and who is cut off comes back. So a connection has
 * one answer, and when there are too many the oldest one goes: an honest client is served long
 * before it would be that.
 */
#define MOST_CONNECTIONS 32
#define MOST_ENDING      32 /* besides: cut off, but the library has still to notice */
#define TIMEOUT_S        10
#define CONNECTION_BYTES ((size_t)16 << 10)

struct kvs_http {
    struct kvs_fs *fs;
    struct MHD_Daemon *daemon;
    /* The oldest first; the server's thread alone uses them. */
    struct MHD_Connection *connections[MOST_CONNECTIONS];
    size_t count;
};

/* ---- the address ---- */

static bool is_port(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len < KVS_HTTP_PORT_SIZE && strspn(text, "0123456789") == len &&
           strtoul(text, NULL, 10) <= 65535;
}

int kvs_http_parse(const char *address, char host_ret[KVS_HTTP_HOST_SIZE],
                   char port_ret[KVS_HTTP_PORT_SIZE])
{
    const char *colon = strrchr(address, ':');
    const char *port = colon != NULL ? colon + 1 : address;
    const char *host = address;
    size_t len = colon != NULL ? (size_t)(colon - address) : 0;

    if (!is_port(port))
        return -EINVAL;
    if (len > 0 && host[0] == '[') {
        if (len < 3 || host[len - 1] != ']')
            return -EINVAL;
        host++;
        len -= 2;
    } else if (memchr(host, ':', len) != NULL) {
        return -EINVAL; /* an IPv6 address, which stands between brackets */
    }
    if (len >= KVS_HTTP_HOST_SIZE)
        return -EINVAL;
    if (len == 0) {
        host = "127.0.0.1";
        len = strlen(host);
    }
    memcpy(host_ret, host, len);
    host_ret[len] = '\0';
    memcpy(port_ret, port, strlen(port) + 1);
    return 0;
}

/* A socket that listens, or -errno. */
static int listen_at(const struct addrinfo *where)
{
    const int on = 1;
    kvs_cleanup_fd int fd = socket(
        where->ai_family, where->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, where->ai_protocol);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* after a restart, at once */
    if (bind(fd, where->ai_addr, where->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return kvs_steal_fd(&fd);
}

int kvs_http_listen(const char *address, int *fd_ret)
{
    char host[KVS_HTTP_HOST_SIZE], port[KVS_HTTP_PORT_SIZE];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;

    if (kvs_http_parse(address, host, port) < 0)
        return -EINVAL;
    int problem = getaddrinfo(host, port, &hints, &found);
    if (problem != 0) {
        complain("metrics=%s: no such host: %s", address, gai_strerror(problem));
        return -EADDRNOTAVAIL;
    }
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *where = found; where != NULL && fd < 0; where = where->ai_next)
        fd = listen_at(where);
    freeaddrinfo(found);
    if (fd < 0) {
        complain("metrics=%s: cannot listen there: %s; choose another address or port", address,
                 strerror(-fd));
        return fd;
    }
    *fd_ret = fd;
    return 0;
}

static void log_address(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    bool is_ipv6 = address.ss_family == AF_INET6;
    kvs_log(KVS_LOG_ALWAYS, LOG_INFO, "metrics at http://%s%s%s:%s/metrics", is_ipv6 ? "[" : "",
            host, is_ipv6 ? "]" : "", port);
}

/* ---- answers ---- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
                             struct MHD_Response *response)
{
    if (response == NULL)
        return MHD_NO; /* no memory: the connection is closed */
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status,
                                  const char *text)
{
    return reply(connection, status, "text/plain; charset=utf-8",
                 MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                 MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result reply_metrics(struct kvs_fs *fs, struct MHD_Connection *connection)
{
    char *text = NULL;
    size_t len = 0;

    if (kvs_metrics_render(fs, &text, &len) != 0)
        return reply_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    return reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                 MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result reply_ready(struct kvs_fs *fs, struct MHD_Connection *connection)
{
    const char *why_not = kvs_status_why_unready(fs);
    char text[128];

    if (why_not == NULL)
        return reply_text(connection, MHD_HTTP_OK, "ready\n");
    snprintf(text, sizeof(text), "not ready: %s\n", why_not);
    return reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

/* Called with the headers first, then with each part of a body, which is ignored, and at its end.
 */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body,
                              size_t *body_size, void **has_begun)
{
    struct kvs_http *http = context;

    if (*has_begun == NULL || *body_size > 0) {
        *has_begun = http;
        *body_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD only\n");
    if (strcmp(url, "/metrics") == 0)
        return reply_metrics(http->fs, connection);
    if (strcmp(url, "/healthz") == 0)
        return reply_text(connection, MHD_HTTP_OK, "ok\n");
    if (strcmp(url, "/readyz") == 0)
        return reply_ready(http->fs, connection);
    return reply_text(connection, MHD_HTTP_NOT_FOUND,
                      "not found: there are /metrics, /healthz and /readyz\n");
}

/* ---- connections ---- */

static void drop_connection(struct kvs_http *http, size_t index)
{
    http->count--;
    for (size_t i = index; i < http->count; i++)
        http->connections[i] = http->connections[i + 1];
}

/* The library closes it as soon as it finds no more to read there. */
static void cut_off_oldest(struct kvs_http *http)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        http->connections[0], MHD_CONNECTION_INFO_CONNECTION_FD);

    if (info != NULL)
        shutdown(info->connect_fd, SHUT_RDWR);
    drop_connection(http, 0);
}

static void note_connection(void *context, struct MHD_Connection *connection, void **unused,
                            enum MHD_ConnectionNotificationCode what)
{
    struct kvs_http *http = context;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        if (http->count == MOST_CONNECTIONS)
            cut_off_oldest(http);
        http->connections[http->count++] = connection;
        return;
    }
    for (size_t i = 0; i < http->count; i++) {
        if (http->connections[i] == connection) {
            drop_connection(http, i);
            return;
        }
    }
}

/* ---- the server ---- */

/* Signals are the main thread's. */
static struct MHD_Daemon *start_daemon(struct kvs_http *http, int fd)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, http,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(MOST_CONNECTIONS + MOST_ENDING), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, http, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return daemon;
}

int kvs_http_start(struct kvs_fs *fs, int fd, struct kvs_http **http_ret)
{
    struct kvs_http *http = calloc(1, sizeof(*http));

    if (http != NULL) {
        http->fs = fs;
        http->daemon = start_daemon(http, fd);
    }
    if (http == NULL || http->daemon == NULL) {
        complain("cannot serve metrics: out of memory or threads");
        close(fd);
        free(http);
        return -ENOMEM;
    }
    log_address(fd);
    *http_ret = http;
    return 0;
}

void kvs_http_stop(struct kvs_http *http)
{
    if (http == NULL)
        return;
    MHD_stop_daemon(http->daemon); /* closes the socket */
    free(http);
}
