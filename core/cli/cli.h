// SPDX-License-Identifier: Apache-2.0
// What the commands of the kvseal tool share: how a command is declared, its options and messages,
// exit statuses, and lines of JSON.
//
// A command is one file, cmd_NAME.c, with one `const struct kvs_cli_command kvs_cmd_NAME`, which
// the table in kvseal.c names. Its run() reads its options with kvs_cli_next_option() and returns
// the exit status.
#ifndef KVSEAL_CORE_CLI_CLI_H
#define KVSEAL_CORE_CLI_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum kvs_cli_status {
    KVS_CLI_OK = 0,
    KVS_CLI_CORRUPT = 1, /* a corrupt block was found */
    KVS_CLI_ERROR = 2,   /* not everything could be done */
    KVS_CLI_USAGE = 64,  /* the command line is wrong; nothing was done */
};

struct kvs_cli_command {
    const char *name;
    const char *operands; /* of the usage line: "[OPTION...] PATH..." */
    const char *summary;  /* one line, no full stop */
    const char *help;     /* lines about its own options and operands, each ends with a newline */
    bool is_apart;        /* reads files that may hang: runs in a process of its own (apart.h) */
    bool ends_itself;     /* at SIGINT and SIGTERM, while it runs */
    /* argv[0] is the command's name. Returns an enum kvs_cli_status. */
    int (*run)(int argc, char **argv);
};

extern const struct kvs_cli_command kvs_cmd_verify;
extern const struct kvs_cli_command kvs_cmd_seal;
extern const struct kvs_cli_command kvs_cmd_show;
extern const struct kvs_cli_command kvs_cmd_status;
extern const struct kvs_cli_command kvs_cmd_scrub;
extern const struct kvs_cli_command kvs_cmd_quarantine;

/* ---- options ---- */

/* Options that commands have in common, to stand in their tables for getopt_long(3). Every command
 * has KVS_CLI_HELP; kvs_cli_next_option() takes all of these by itself. */
#define KVS_CLI_HELP                                                                               \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }
#define KVS_CLI_JSON                                                                               \
    {                                                                                              \
        "json", no_argument, NULL, 'J'                                                             \
    }
#define KVS_CLI_JOBS                                                                               \
    {                                                                                              \
        "jobs", required_argument, NULL, 'j'                                                       \
    }
#define KVS_CLI_VERBOSE                                                                            \
    {                                                                                              \
        "verbose", no_argument, NULL, 'v'                                                          \
    }

/* What they set. */
struct kvs_cli_common {
    bool is_json;    /* one JSON object a line on standard output, and nothing else there */
    bool is_verbose; /* also what is in order */
    unsigned jobs;   /* threads, 1 ... KVS_CLI_MOST_JOBS; 0: not given */
};

#define KVS_CLI_MOST_JOBS 1024

/* The next of the command's own options (its `val`, the value in optarg), or -1 when only operands
 * are left, from argv[optind] on. Options may stand anywhere; "--" ends them. An option with a
 * printable `val` can be given by that letter too, but for KVS_CLI_JSON. --help prints help and
 * ends the process with 0, a wrong option with KVS_CLI_USAGE. */
int kvs_cli_next_option(const struct kvs_cli_command *command, struct kvs_cli_common *common,
                        int argc, char **argv, const struct option *options);

/* "kvseal verify: MESSAGE; see kvseal verify --help" on stderr, and the end, with KVS_CLI_USAGE.
 * `command` NULL: of kvseal itself. */
_Noreturn void kvs_cli_fail_usage(const struct kvs_cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The value of an option, or kvs_cli_fail_usage(). `option` as in "--rate". */
uint64_t kvs_cli_need_size(const struct kvs_cli_command *command, const char *option);
uint64_t kvs_cli_need_duration(const struct kvs_cli_command *command, const char *option);

/* ---- messages: whole lines, from any thread; paths are escaped (kvs_log_escape) ---- */

/* "PATH: MESSAGE" on standard output. */
void kvs_cli_print(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "kvseal: PATH: MESSAGE" on stderr. */
void kvs_cli_warn(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "kvseal: PATH: cannot be VERB: why; what to do" on stderr; `verb` as in "read", `error` -errno.
 * Returns KVS_CLI_ERROR. */
enum kvs_cli_status kvs_cli_complain(const char *path, const char *verb, int error);

/* What to do about -errno `error`, as the end of such a message. */
const char *kvs_cli_advice(int error);

/* The graver of two statuses: KVS_CLI_CORRUPT, then KVS_CLI_ERROR, then KVS_CLI_OK. */
enum kvs_cli_status kvs_cli_graver(enum kvs_cli_status a, enum kvs_cli_status b);

/* Flushes standard output. The status, or a graver one (with a message) where it cannot be
 * written. */
enum kvs_cli_status kvs_cli_finish(enum kvs_cli_status status);

/* ---- JSON (json.c) ---- */

/* Sets object[key] to the path when that is UTF-8; else object[key + "_base64"] to its bytes. So
 * each path is given exactly, by exactly one of the two. Paths cannot hold NUL. */
void kvs_cli_json_set_path(json_t *object, const char *key, const char *path);

/* A sum as people write it: "e3069283". */
json_t *kvs_cli_json_sum(uint32_t crc);

/* Prints the object as one line on standard output; takes over the reference. Thread-safe. */
void kvs_cli_json_print(json_t *object);

#endif
