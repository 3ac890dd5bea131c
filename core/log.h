// SPDX-License-Identifier: Apache-2.0
// The log: one line an event, to stderr or syslog, repeated events rate-limited with a count of
// what was left out.
#ifndef KVSEAL_CORE_LOG_H
#define KVSEAL_CORE_LOG_H

#include <stddef.h>
#include <syslog.h>

/* Kinds of events that are rate-limited on their own: at most KVS_LOG_BURST lines a kind in ten
 * seconds; the first line of the kind after that says how many were left out. KVS_LOG_ALWAYS is
 * never limited. */
enum kvs_log_kind {
    KVS_LOG_ALWAYS,
    KVS_LOG_CORRUPT,
    KVS_LOG_TRANSIENT,
    KVS_LOG_SEAL_FAILED,
    KVS_LOG_CLIENT_SUM,
    KVS_LOG_UNTRACKED,
    KVS_LOG_BACKING_ERROR,
    KVS_LOG_OTHER,
    KVS_LOG_KINDS,
};

#define KVS_LOG_BURST 10

/* `name` stands before each line on stderr ("kvsealfs: ...") and is syslog's ident; it must live
 * on. */
void kvs_log_init(const char *name);

/* From now on to syslog (a daemon has no stderr). Callable once the daemon went to the background.
 */
void kvs_log_to_syslog(void);

/* `priority`: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG (LOG_DEBUG only after
 * kvs_log_debug(true)). Thread-safe; one write(2) a line. No newline in the format. */
void kvs_log(enum kvs_log_kind kind, int priority, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void kvs_log_debug(int on);

/* Copies `text` to `escaped` with control characters, backslashes, quotes and bytes that are not
 * valid UTF-8 as \xNN; cut with "..." where `size` does not suffice (4*strlen+1 always does).
 * Returns `escaped`. */
char *kvs_log_escape(const char *text, char *escaped, size_t size);

/* The inverse, in place. 0; or -EINVAL when it is not the whole text of an escape: a backslash that
 * begins no \xNN, or one that stands for the end of a string. A text that was cut cannot be told
 * from one that ends in "...". */
int kvs_log_unescape(char *text);

#endif
