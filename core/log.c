// SPDX-License-Identifier: Apache-2.0
// Writes log lines, counts repeated ones, and makes names printable.
#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE      4096
#define WINDOW_SECONDS 10

/* One window of WINDOW_SECONDS for a kind. */
struct window {
    time_t start;
    unsigned int lines; /* logged in it; 0: no window yet */
    unsigned long left_out;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct window windows[KVS_LOG_KINDS]; /* protected by `lock` */
static const char *program = "kvseal";
static atomic_bool use_syslog;
static atomic_bool debug;

void kvs_log_init(const char *name)
{
    program = name;
}

void kvs_log_to_syslog(void)
{
    openlog(program, LOG_PID, LOG_DAEMON);
    atomic_store(&use_syslog, true);
}

void kvs_log_debug(int on)
{
    atomic_store(&debug, on != 0);
}

/* May a line of this kind be logged now? *left_out_ret: how many were not, before this one. */
static bool admit_line(enum kvs_log_kind kind, unsigned long *left_out_ret)
{
    struct timespec now;
    struct window *window = &windows[kind];
    bool admitted = true;

    *left_out_ret = 0;
    if (kind == KVS_LOG_ALWAYS)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    if (window->lines == 0 || now.tv_sec - window->start >= WINDOW_SECONDS) {
        *left_out_ret = window->left_out;
        *window = (struct window){.start = now.tv_sec};
    }
    if (window->lines < KVS_LOG_BURST) {
        window->lines++;
    } else {
        window->left_out++;
        admitted = false;
    }
    pthread_mutex_unlock(&lock);
    return admitted;
}

static size_t append(char line[LINE_SIZE], size_t used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static size_t append_list(char line[LINE_SIZE], size_t used, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Appends as much as fits; one byte stays free for the newline. Returns the length now. */
static size_t append_list(char line[LINE_SIZE], size_t used, const char *format, va_list arguments)
{
    size_t room = LINE_SIZE - 1 - used;
    int len = vsnprintf(line + used, room, format, arguments);

    if (len < 0)
        return used;
    return (size_t)len < room ? used + (size_t)len : LINE_SIZE - 2;
}

static size_t append(char line[LINE_SIZE], size_t used, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    used = append_list(line, used, format, arguments);
    va_end(arguments);
    return used;
}

/* A line stays one line, whatever names came into it unescaped: those of mount points, say. */
static void take_out_control(char *line)
{
    for (; *line != '\0'; line++) {
        if ((unsigned char)*line < 0x20 || *line == 0x7F)
            *line = '?';
    }
}

void kvs_log(enum kvs_log_kind kind, int priority, const char *format, ...)
{
    char line[LINE_SIZE] = "";
    unsigned long left_out = 0;
    size_t used = 0;
    bool to_syslog = atomic_load(&use_syslog);
    va_list arguments;

    if ((priority == LOG_DEBUG && !atomic_load(&debug)) || !admit_line(kind, &left_out))
        return;
    if (!to_syslog)
        used = append(line, used, "%s: ", program);
    if (left_out > 0)
        used = append(line, used, "(%lu lines like this one were left out) ", left_out);
    va_start(arguments, format);
    used = append_list(line, used, format, arguments);
    va_end(arguments);
    take_out_control(line);
    if (to_syslog) {
        syslog(priority, "%s", line);
        return;
    }
    line[used++] = '\n';
    /* Nobody could be told that the log cannot be written. */
    if (write(STDERR_FILENO, line, used) < 0)
        return;
}

/* How many bytes at `text` are one printable UTF-8 character; 0 if they are none. */
static size_t printable_length(const unsigned char *text)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = text[0];
    size_t len = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    uint32_t code = len == 1 ? lead : lead & (0xFFu >> (len + 1));

    if (len == 1)
        return lead >= 0x20 && lead < 0x7F && strchr("\\\"'", lead) == NULL ? 1 : 0;
    if (lead >= 0xF8)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((text[i] & 0xC0) != 0x80) /* stops at the terminating zero, too */
            return 0;
        code = code << 6 | (text[i] & 0x3F);
    }
    if (code < smallest[len] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    return code < 0xA0 ? 0 : len; /* U+0080..U+009F are control characters */
}

char *kvs_log_escape(const char *text, char *escaped, size_t size)
{
    const unsigned char *next = (const unsigned char *)text;
    size_t used = 0;
    size_t cut = 0; /* the last place where "..." would fit */

    if (size == 0)
        return escaped;
    while (*next != 0) {
        size_t len = printable_length(next);
        char unit[5];

        if (len > 0)
            snprintf(unit, sizeof(unit), "%.*s", (int)len, (const char *)next);
        else
            snprintf(unit, sizeof(unit), "\\x%02x", *next);
        if (used + strlen(unit) >= size) {
            if (size > 3)
                memcpy(escaped + cut, "...", sizeof("..."));
            else
                escaped[0] = '\0';
            return escaped;
        }
        memcpy(escaped + used, unit, strlen(unit));
        used += strlen(unit);
        next += len > 0 ? len : 1;
        if (used + 3 < size)
            cut = used;
    }
    escaped[used] = '\0';
    return escaped;
}

/* -1: not a digit that kvs_log_escape() writes. */
static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

int kvs_log_unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        if (*from != '\\') {
            *to = *from++;
            continue;
        }
        int high = from[1] == 'x' ? hex_value(from[2]) : -1;
        int low = high >= 0 ? hex_value(from[3]) : -1;
        if (low < 0 || high + low == 0)
            return -EINVAL;
        *to = (char)(high << 4 | low);
        from += 4;
    }
    *to = '\0';
    return 0;
}
