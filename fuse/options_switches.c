// SPDX-License-Identifier: Apache-2.0
// The command line: switches, what they mean together, and what stands beside them.
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/parse.h"
#include "core/util.h"
#include "fuse/options.h"
#include "fuse/options_internal.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

#define GIB ((uint64_t)1 << 30)

/* "/dev/fd/4" -> 4; anything else -> -1. */
static int parse_device_fd(const char *mountpoint)
{
    static const char prefix[] = "/dev/fd/";
    uint64_t fd;
    if (strncmp(mountpoint, prefix, sizeof(prefix) - 1) != 0 ||
        kvs_parse_count(mountpoint + sizeof(prefix) - 1, &fd) || fd > INT_MAX)
        return -1;
    return (int)fd;
}

/* What stands beside the switches. */
static int take_operands(struct kvs_options *options, int count, char **operands)
{
    const char *usage =
        options->healthcheck ? "--healthcheck MOUNTPOINT [--timeout SECONDS]"
        : options->fd_socket ? "--fd-socket SOCKET SOURCE [-o OPTION,...] [-f]"
        : options->mount_for
            ? "--mount-for SOCKET [--user UID] [--stay] [--hold SECONDS] NAME MOUNTPOINT"
            : "SOURCE MOUNTPOINT [-o OPTION,...] [-f] [-d]";
    int wanted = options->healthcheck ? 0 : options->fd_socket ? 1 : 2;
    bool is_right = count == wanted;
    for (int i = 0; is_right && i < count; i++)
        is_right = *operands[i];
    if (!is_right) {
        complain("usage: kvsealfs %s: see kvsealfs -h", usage);
        return -EINVAL;
    }
    options->source = count > 0 ? strdup(operands[0]) : NULL;
    options->mountpoint = count > 1 ? strdup(operands[1]) : NULL;
    if ((count > 0 && !options->source) || (count > 1 && !options->mountpoint))
        return -ENOMEM;
    if (count > 1)
        options->device_fd = parse_device_fd(options->mountpoint);
    return 0;
}

/* Switches that mean nothing together. */
static int check_combination(const struct kvs_parsing *parsing)
{
    const struct kvs_options *options = parsing->options;
    int roles = !!options->healthcheck + !!options->fd_socket + !!options->mount_for;
    bool gets_mount = options->fd_socket || options->device_fd >= 0;
    const char *problem = NULL;
    if (roles > 1)
        problem = "--healthcheck, --fd-socket and --mount-for exclude each other";
    else if (parsing->has_timeout && roles == 0)
        problem = "--timeout belongs to --healthcheck, --fd-socket or --mount-for";
    else if ((options->stay || parsing->has_user) && !options->mount_for)
        problem = "--stay and --user belong to --mount-for";
    else if (options->hold > 0 && !options->stay)
        problem = "--hold belongs to --mount-for with --stay";
    else if (options->ready_file && (options->healthcheck || options->mount_for))
        problem = "--ready-file belongs to the daemon that serves";
    else if (options->require_shared && gets_mount)
        problem = "-o require_shared belongs to who mounts: kvsealfs --mount-for";
    else if (options->mount_for && options->device_fd >= 0)
        problem = "--mount-for takes a directory to mount on";
    else if (options->mount_for && parsing->allow_root)
        problem = "-o allow_root is kept by the daemon: give it to kvsealfs --fd-socket";
    if (!problem)
        return 0;
    complain("%s: see kvsealfs -h", problem);
    return -EINVAL;
}

enum long_switch {
    SWITCH_READY_FILE = 256,
    SWITCH_HEALTHCHECK,
    SWITCH_FD_SOCKET,
    SWITCH_MOUNT_FOR,
    SWITCH_USER,
    SWITCH_STAY,
    SWITCH_HOLD,
    SWITCH_TIMEOUT,
    SWITCH_GRACE,
};

static const struct option long_options[] = {
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {"ready-file", required_argument, NULL, SWITCH_READY_FILE},
    {"healthcheck", required_argument, NULL, SWITCH_HEALTHCHECK},
    {"fd-socket", required_argument, NULL, SWITCH_FD_SOCKET},
    {"mount-for", required_argument, NULL, SWITCH_MOUNT_FOR},
    {"user", required_argument, NULL, SWITCH_USER},
    {"stay", no_argument, NULL, SWITCH_STAY},
    {"hold", required_argument, NULL, SWITCH_HOLD},
    {"timeout", required_argument, NULL, SWITCH_TIMEOUT},
    {"grace", required_argument, NULL, SWITCH_GRACE},
    {NULL, 0, NULL, 0},
};

static int bad_value(const char *name, const char *value, const char *allowed)
{
    complain("bad value '%s' for %s: allowed is %s", value, name, allowed);
    return -EINVAL;
}

static int take_path(const char *name, char **field, const char *value)
{
    return *value ? kvs_options_replace_text(field, value) : bad_value(name, value, "a path");
}

static int take_user(struct kvs_parsing *parsing, const char *value)
{
    uint64_t user;
    if (kvs_parse_count(value, &user) || user >= UINT32_MAX)
        return bad_value("--user", value, "a user's number, as in 65534");
    parsing->options->user = (uid_t)user;
    parsing->has_user = true;
    return 0;
}

static int take_seconds(const char *name, double *field, const char *value)
{
    double seconds;
    if (kvs_options_parse_seconds(value, &seconds) || seconds < 0.001 || seconds > 86400)
        return bad_value(name, value, "seconds from 0.001 to 86400");
    *field = seconds;
    return 0;
}

/* The same as -o grace=SECONDS. */
static int take_grace(struct kvs_parsing *parsing, const char *value)
{
    kvs_cleanup_free char *item = NULL;
    if (asprintf(&item, "grace=%s", value) < 0) {
        item = NULL;
        return -ENOMEM;
    }
    return kvs_options_apply_item(parsing, item);
}

/* One switch, with its argument in `optarg`. */
static int apply_switch(struct kvs_parsing *parsing, int letter)
{
    struct kvs_options *options = parsing->options;
    switch (letter) {
    case 'o':
        return kvs_options_apply_list(parsing, optarg);
    case 'd':
        options->debug = true;
        options->foreground = true;
        return 0;
    case 'f':
        options->foreground = true;
        return 0;
    case 'h':
        options->show_help = true;
        return 0;
    case 'V':
        options->show_version = true;
        return 0;
    case SWITCH_READY_FILE:
        return take_path("--ready-file", &options->ready_file, optarg);
    case SWITCH_HEALTHCHECK:
        return take_path("--healthcheck", &options->healthcheck, optarg);
    case SWITCH_FD_SOCKET:
        return take_path("--fd-socket", &options->fd_socket, optarg);
    case SWITCH_MOUNT_FOR:
        return take_path("--mount-for", &options->mount_for, optarg);
    case SWITCH_USER:
        return take_user(parsing, optarg);
    case SWITCH_STAY:
        options->stay = true;
        return 0;
    case SWITCH_HOLD:
        return take_seconds("--hold", &options->hold, optarg);
    case SWITCH_TIMEOUT:
        parsing->has_timeout = true;
        return take_seconds("--timeout", &options->timeout, optarg);
    case SWITCH_GRACE:
        return take_grace(parsing, optarg);
    }
    return -EINVAL;
}

static int parse_switches(int argc, char **argv, struct kvs_parsing *parsing)
{
    int error = 0;
    int letter;
    optind = 0; /* start anew: the tests parse many times */
    opterr = 0;
    while (!error && (letter = getopt_long(argc, argv, ":o:fdhV", long_options, NULL)) != -1) {
        if (letter == ':' && optopt < SWITCH_READY_FILE)
            complain("-%c needs an argument: see kvsealfs -h", optopt);
        else if (letter == ':')
            complain("%s needs an argument: see kvsealfs -h", argv[optind - 1]);
        else if (letter == '?' && optopt && optopt < SWITCH_READY_FILE)
            complain("unknown option '-%c': see kvsealfs -h", optopt);
        else if (letter == '?')
            complain("unknown option '%s': see kvsealfs -h", argv[optind - 1]);
        error = letter == ':' || letter == '?' ? -EINVAL : apply_switch(parsing, letter);
    }
    return error;
}

/* What contradicts itself is refused rather than left out. */
static int check_scrub(const struct kvs_options *options)
{
    if (options->scrub_within == 0 || options->checksums == KVS_CHECKSUMS_ON)
        return 0;
    complain("option 'scrub_within' verifies checksums: it cannot be had with checksums=off");
    return -EINVAL;
}

int kvs_options_parse(int argc, char **argv, struct kvs_options *options_ret)
{
    *options_ret = (struct kvs_options){
        .on_corrupt = KVS_ON_CORRUPT_REMOVE,
        .corrupt_errno = EBADMSG,
        .unsealed = KVS_UNSEALED_ALLOW,
        .max_reread = GIB,
        .passthrough = KVS_PASSTHROUGH_AUTO,
        .attr_timeout = 1,
        .entry_timeout = 1,
        .threads = 512,
        .max_names = 250000,
        .grace = 10,
        .immutable = true,
        .device_fd = -1,
        .user = geteuid(),
        .session_args = FUSE_ARGS_INIT(0, NULL),
    };
    struct kvs_parsing parsing = {.options = options_ret};
    int error = parse_switches(argc, argv, &parsing);
    if (!error && !options_ret->show_help && !options_ret->show_version) {
        error = take_operands(options_ret, argc - optind, argv + optind);
        error = error ? error : check_combination(&parsing);
        error = error ? error : check_scrub(options_ret);
        if (!parsing.has_timeout)
            options_ret->timeout = options_ret->healthcheck ? 5 : 60;
        if (!error && !options_ret->healthcheck)
            error = kvs_options_make_session_args(&parsing);
    }
    free(parsing.fsname);
    free(parsing.subtype);
    free(parsing.passed);
    if (error == -ENOMEM)
        complain("out of memory while reading the options");
    return error ? -EINVAL : 0;
}

void kvs_options_destroy(struct kvs_options *options)
{
    free(options->source);
    free(options->mountpoint);
    free(options->metrics);
    free(options->ready_file);
    free(options->healthcheck);
    free(options->fd_socket);
    free(options->mount_for);
    fuse_opt_free_args(&options->session_args);
    *options = (struct kvs_options){0};
}
