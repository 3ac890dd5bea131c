// SPDX-License-Identifier: Apache-2.0
// Reads and writes the cursor file of a scrubber.
#include "core/cursor.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/crc32c.h"
#include "core/log.h"
#include "core/state_dir.h"
#include "core/util.h"
#include "core/walk.h"

/*
 *     kvseal-scrub 1
 *     began 1764467096
 *     passes 3
 *     min_age 30
 *     position ab/cd.bin
 *     tail 1764460000                   what lies behind the last `checked`; 0: never
 *     checked 1764467000 ab/cd.bin      up to this path, at this time
 *     suspect ab/x.bin
 *     crc 1a2b3c4d                      of all lines above
 *     at 5d2f1a77 1764467100 ab/ce.bin  appended: the sum of what follows it
 *     at 90ab12cd 0 ab/cf.bin           ... 0: passed, but not checked
 *
 * Paths are escaped as in logs.
 */
#define FIRST_LINE "kvseal-scrub 1\n"
#define CRC_WORD   "crc "
#define CRC_LEN    (sizeof(CRC_WORD) - 1 + 8 + 1) /* with the newline */
#define MOST_BYTES ((off_t)256 << 20)

static int start_anew(struct kvs_cursor *cursor, int64_t now)
{
    free(cursor->position);
    kvs_coverage_destroy(&cursor->coverage);
    for (size_t i = 0; i < cursor->suspect_count; i++)
        free(cursor->suspects[i]);
    cursor->suspect_count = 0;
    cursor->passes = cursor->min_age = 0;
    cursor->began = now;
    cursor->position = strdup("");
    return cursor->position == NULL ? -ENOMEM : 0;
}

int kvs_cursor_open_nowhere(struct kvs_cursor *cursor, int64_t now, int64_t grain)
{
    *cursor = (struct kvs_cursor){.grain = grain, .state_fd = -1, .file_fd = -1, .lock_fd = -1};
    return start_anew(cursor, now);
}

/* ---- reading ---- */

/* A whole decimal number, and nothing else up to `*end_ret`. */
static bool parse_number(const char *text, char **end_ret, int64_t *number_ret)
{
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number_ret = strtoll(text, end_ret, 10);
    return errno == 0;
}

static bool parse_count(const char *text, int64_t *number_ret)
{
    char *end = NULL;

    return parse_number(text, &end, number_ret) && *end == '\0';
}

/* "TIME PATH", the path unescaped in place. */
static bool parse_time_and_path(char *text, int64_t *time_ret, char **path_ret)
{
    if (!parse_number(text, path_ret, time_ret) || **path_ret != ' ')
        return false;
    (*path_ret)++;
    return kvs_log_unescape(*path_ret) == 0;
}

/* What stands behind the word, or NULL. */
static char *behind(char *line, const char *word)
{
    size_t len = strlen(word);

    return strncmp(line, word, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}

/* One line of the snapshot. 0, -ENOMEM, -EBADMSG. */
static int parse_line(struct kvs_cursor *cursor, char *line)
{
    char *rest = NULL;
    char *path = NULL;
    int64_t number = 0;
    bool is_good = false;
    int r = 0;

    if ((rest = behind(line, "began")) != NULL) {
        is_good = parse_count(rest, &cursor->began);
    } else if ((rest = behind(line, "passes")) != NULL) {
        is_good = parse_count(rest, &number);
        cursor->passes = (uint64_t)number;
    } else if ((rest = behind(line, "min_age")) != NULL) {
        is_good = parse_count(rest, &number);
        cursor->min_age = (uint64_t)number;
    } else if ((rest = behind(line, "tail")) != NULL) {
        is_good = parse_count(rest, &cursor->coverage.tail_since);
    } else if ((rest = behind(line, "position")) != NULL) {
        is_good = kvs_log_unescape(rest) == 0;
        free(cursor->position);
        cursor->position = strdup(rest);
        r = cursor->position == NULL ? -ENOMEM : 0;
    } else if ((rest = behind(line, "checked")) != NULL) {
        is_good = parse_time_and_path(rest, &number, &path);
        if (is_good)
            r = kvs_coverage_append(&cursor->coverage, path, number);
    } else if ((rest = behind(line, "suspect")) != NULL) {
        is_good = kvs_log_unescape(rest) == 0;
        r = kvs_cursor_suspect(cursor, rest);
    }
    if (r == -ENOMEM)
        return r;
    return is_good && r == 0 ? 0 : -EBADMSG;
}

static int parse_lines(struct kvs_cursor *cursor, char *text)
{
    int r = 0;

    for (char *line = text, *end = NULL; r == 0 && *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL)
            return -EBADMSG;
        *end = '\0';
        r = parse_line(cursor, line);
    }
    return r;
}

/* Eight hexadecimal digits. */
static bool parse_sum(const char *text, uint32_t *sum_ret)
{
    char digits[9] = "";

    memcpy(digits, text, strnlen(text, 8));
    *sum_ret = (uint32_t)strtoul(digits, NULL, 16);
    return strspn(digits, "0123456789abcdef") == 8;
}

/* Moves the position ("": the end was reached); what lies between was checked then, 0: was not. */
static int move(struct kvs_cursor *cursor, const char *position, int64_t time)
{
    char *copy = strdup(position);
    int r = 0;

    if (copy == NULL)
        return -ENOMEM;
    if (time != 0)
        r = kvs_coverage_advance(&cursor->coverage, cursor->position,
                                 *position != '\0' ? position : NULL, time, cursor->grain);
    free(cursor->position);
    cursor->position = copy;
    return r;
}

/* The appended lines, as far as they are whole: the rest was being written at the end. */
static int replay(struct kvs_cursor *cursor, char *text)
{
    int r = 0;

    for (char *line = text, *end = NULL; r == 0; line = end + 1) {
        char *sum = behind(line, "at");
        uint32_t crc = 0;
        int64_t time = 0;
        char *path = NULL;

        end = strchr(line, '\n');
        if (end == NULL || sum == NULL)
            return 0;
        *end = '\0';
        if (!parse_sum(sum, &crc) || sum[8] != ' ' ||
            kvs_crc32c(0, sum + 9, strlen(sum + 9)) != crc ||
            !parse_time_and_path(sum + 9, &time, &path))
            return 0;
        r = move(cursor, path, time);
    }
    return r;
}

/* The whole file. 0, -ENOMEM, -EBADMSG. */
static int parse_file(struct kvs_cursor *cursor, char *text)
{
    char *before = strstr(text, "\n" CRC_WORD);
    char *crc_line = before != NULL ? before + 1 : text;
    uint32_t crc = 0;
    int r = 0;

    if (before == NULL || strlen(crc_line) < CRC_LEN || crc_line[CRC_LEN - 1] != '\n' ||
        !parse_sum(crc_line + sizeof(CRC_WORD) - 1, &crc) ||
        kvs_crc32c(0, text, (size_t)(crc_line - text)) != crc ||
        strncmp(text, FIRST_LINE, sizeof(FIRST_LINE) - 1) != 0)
        return -EBADMSG;
    *crc_line = '\0';
    r = parse_lines(cursor, text + sizeof(FIRST_LINE) - 1);
    return r < 0 ? r : replay(cursor, crc_line + CRC_LEN);
}

/* The file's text, malloc()ed. -EBADMSG: it is none. */
static int read_file(struct kvs_cursor *cursor, char **text_ret)
{
    kvs_cleanup_fd int fd = openat(cursor->state_fd, cursor->name,
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    kvs_cleanup_free char *text = NULL;
    struct stat st;
    size_t size = 0;
    size_t done = 0;

    if (fd < 0)
        return errno == ELOOP ? -EBADMSG : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > MOST_BYTES)
        return -EBADMSG;
    size = (size_t)st.st_size;
    text = calloc(1, size + 1);
    if (text == NULL)
        return -ENOMEM;
    while (done < size) {
        ssize_t n = read(fd, text + done, size - done);

        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *text_ret = text;
    text = NULL;
    return 0;
}

static int load(struct kvs_cursor *cursor, int64_t now, enum kvs_cursor_state *state_ret)
{
    kvs_cleanup_free char *text = NULL;
    int r = read_file(cursor, &text);

    *state_ret = r == -ENOENT ? KVS_CURSOR_NEW : KVS_CURSOR_GOOD;
    if (r == -ENOENT)
        return 0;
    if (r == 0 && text != NULL)
        r = parse_file(cursor, text);
    if (r == -EBADMSG) {
        *state_ret = KVS_CURSOR_DAMAGED;
        r = start_anew(cursor, now);
    }
    return r;
}

/* ---- the lock ---- */

static void read_owner(int lock_fd, char owner_ret[KVS_OWNER_SIZE])
{
    char text[64] = "";

    if (pread(lock_fd, text, sizeof(text) - 1, 0) <= 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    kvs_log_escape(text, owner_ret, KVS_OWNER_SIZE);
}

static int take_lock(struct kvs_cursor *cursor, char owner_ret[KVS_OWNER_SIZE])
{
    char name[sizeof(cursor->name) + sizeof(".lock")];
    char host[HOST_NAME_MAX + 1] = "";
    char text[HOST_NAME_MAX + 32];
    int len = 0;

    snprintf(name, sizeof(name), "%s.lock", cursor->name);
    cursor->lock_fd = openat(cursor->state_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                             0600);
    if (cursor->lock_fd < 0)
        return -errno;
    if (flock(cursor->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return -errno;
        read_owner(cursor->lock_fd, owner_ret);
        return -EBUSY;
    }
    /* For whoever is kept out; that it cannot be written keeps nobody in. */
    gethostname(host, sizeof(host) - 1);
    len = snprintf(text, sizeof(text), "%s pid %d\n", host, (int)getpid());
    if (ftruncate(cursor->lock_fd, 0) == 0 && pwrite(cursor->lock_fd, text, (size_t)len, 0) < 0)
        return 0;
    return 0;
}

int kvs_cursor_open(struct kvs_cursor *cursor, int source_fd, unsigned shard, unsigned shards,
                    int64_t now, int64_t grain, enum kvs_cursor_state *state_ret,
                    char owner_ret[KVS_OWNER_SIZE])
{
    int r = kvs_cursor_open_nowhere(cursor, now, grain);

    owner_ret[0] = '\0';
    if (r < 0)
        return r;
    snprintf(cursor->name, sizeof(cursor->name), "scrub-%u-of-%u", shard, shards);
    cursor->state_fd = kvs_state_dir_open(source_fd);
    if (cursor->state_fd < 0)
        return cursor->state_fd;
    r = take_lock(cursor, owner_ret);
    return r < 0 ? r : load(cursor, now, state_ret);
}

/* ---- changing ---- */

int kvs_cursor_suspect(struct kvs_cursor *cursor, const char *path)
{
    char *copy = NULL;

    for (size_t i = 0; i < cursor->suspect_count; i++) {
        if (strcmp(cursor->suspects[i], path) == 0)
            return 0;
    }
    if (cursor->suspect_count == KVS_SUSPECTS)
        return 0;
    copy = strdup(path);
    if (copy == NULL)
        return -ENOMEM;
    cursor->suspects[cursor->suspect_count++] = copy;
    return 0;
}

void kvs_cursor_clear(struct kvs_cursor *cursor, const char *path)
{
    for (size_t i = 0; i < cursor->suspect_count; i++) {
        if (strcmp(cursor->suspects[i], path) != 0)
            continue;
        free(cursor->suspects[i]);
        cursor->suspect_count--;
        memmove(&cursor->suspects[i], &cursor->suspects[i + 1],
                (cursor->suspect_count - i) * sizeof(char *));
        return;
    }
}

/* malloc()ed, or NULL. */
static char *escape(const char *path)
{
    size_t size = 4 * strlen(path) + 1;
    char *escaped = malloc(size);

    return escaped == NULL ? NULL : kvs_log_escape(path, escaped, size);
}

/* One write(2): it is there as a whole, or not at all, when this process is killed. */
static int append_position(const struct kvs_cursor *cursor, int64_t now)
{
    kvs_cleanup_free char *path = escape(cursor->position);
    kvs_cleanup_free char *line = NULL;
    size_t head = sizeof("at 00000000 ") - 1;
    char sum[9];
    int len = 0;
    ssize_t written = 0;

    if (path == NULL)
        return -ENOMEM;
    len = asprintf(&line, "at 00000000 %" PRId64 " %s\n", now, path);
    if (len < 0) {
        line = NULL;
        return -ENOMEM;
    }
    snprintf(sum, sizeof(sum), "%08" PRIx32, kvs_crc32c(0, line + head, (size_t)len - head - 1));
    memcpy(line + 3, sum, 8);
    written = write(cursor->file_fd, line, (size_t)len);
    if (written < 0)
        return -errno;
    return written < len ? -ENOSPC : 0;
}

int kvs_cursor_advance(struct kvs_cursor *cursor, const char *position, int64_t now)
{
    int r = move(cursor, position != NULL ? position : "", now);

    return r == 0 && cursor->file_fd >= 0 ? append_position(cursor, now) : r;
}

int kvs_cursor_skip(struct kvs_cursor *cursor, const char *position)
{
    return kvs_cursor_advance(cursor, position, 0);
}

/* ---- writing ---- */

/* "WORD [TIME ]PATH"; `time` < 0: none. */
static void print_path(FILE *stream, const char *word, int64_t time, const char *path,
                       bool *is_whole)
{
    kvs_cleanup_free char *escaped = escape(path);

    if (escaped == NULL)
        *is_whole = false;
    else if (time < 0)
        fprintf(stream, "%s %s\n", word, escaped);
    else
        fprintf(stream, "%s %" PRId64 " %s\n", word, time, escaped);
}

/* malloc()ed, or NULL. */
static char *make_snapshot(const struct kvs_cursor *cursor, size_t *len_ret)
{
    const struct kvs_coverage *coverage = &cursor->coverage;
    char *text = NULL;
    FILE *stream = open_memstream(&text, len_ret);
    bool is_whole = true;

    if (stream == NULL)
        return NULL;
    fprintf(stream,
            FIRST_LINE "began %" PRId64 "\npasses %" PRIu64 "\nmin_age %" PRIu64 "\ntail %" PRId64
                       "\n",
            cursor->began, cursor->passes, cursor->min_age, coverage->tail_since);
    print_path(stream, "position", -1, cursor->position, &is_whole);
    for (size_t i = 0; i < coverage->count; i++)
        print_path(stream, "checked", coverage->stretches[i].since, coverage->stretches[i].end,
                   &is_whole);
    for (size_t i = 0; i < cursor->suspect_count; i++)
        print_path(stream, "suspect", -1, cursor->suspects[i], &is_whole);
    fflush(stream);
    fprintf(stream, CRC_WORD "%08" PRIx32 "\n", kvs_crc32c(0, text, *len_ret));
    is_whole = !ferror(stream) && is_whole;
    if (fclose(stream) != 0 || !is_whole) {
        free(text);
        return NULL;
    }
    return text;
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);

        if (n < 0)
            return -errno;
        text += n;
        len -= (size_t)n;
    }
    return 0;
}

int kvs_cursor_save(struct kvs_cursor *cursor)
{
    size_t len = 0;
    kvs_cleanup_free char *text = NULL;
    char new_name[sizeof(cursor->name) + sizeof(".new")];
    kvs_cleanup_fd int fd = -1;
    int r = 0;

    if (cursor->state_fd < 0)
        return 0;
    text = make_snapshot(cursor, &len);
    if (text == NULL)
        return -ENOMEM;
    snprintf(new_name, sizeof(new_name), "%s.new", cursor->name);
    fd = openat(cursor->state_fd, new_name,
                O_WRONLY | O_APPEND | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = write_all(fd, text, len);
    if (r == 0 && (fdatasync(fd) < 0 ||
                   renameat(cursor->state_fd, new_name, cursor->state_fd, cursor->name) < 0))
        r = -errno;
    if (r < 0) {
        unlinkat(cursor->state_fd, new_name, 0);
        return r;
    }
    kvs_close_fd(&cursor->file_fd);
    cursor->file_fd = kvs_steal_fd(&fd);
    return 0;
}

void kvs_cursor_close(struct kvs_cursor *cursor)
{
    free(cursor->position);
    kvs_coverage_destroy(&cursor->coverage);
    for (size_t i = 0; i < cursor->suspect_count; i++)
        free(cursor->suspects[i]);
    kvs_close_fd(&cursor->file_fd);
    kvs_close_fd(&cursor->lock_fd); /* gives the lock back */
    kvs_close_fd(&cursor->state_fd);
    *cursor = (struct kvs_cursor){.state_fd = -1, .file_fd = -1, .lock_fd = -1};
}
