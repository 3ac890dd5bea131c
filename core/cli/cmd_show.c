// SPDX-License-Identifier: Apache-2.0
// kvseal show: all there is to know about single blocks, and what a mismatch looks like.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/cli/cli.h"
#include "core/cli/tally.h"
#include "core/diagnose.h"
#include "core/examine.h"
#include "core/log.h"
#include "core/page_cache.h"
#include "core/util.h"

#define MOST_NEIGHBOURS 1000000
#define TIME_TEXT       sizeof("2026-01-01T00:00:00.000000000Z")
#define MOST_HINTS      12

/* One block, and what was found out about it. */
struct view {
    const char *path;
    const char *name; /* the last component of `path` */
    int fd;
    struct stat st;
    struct kvs_examination examination;
    uint32_t computed;
    char *hints[MOST_HINTS]; /* malloc()ed */
    unsigned hint_count;
};

static char *format_time(const struct timespec *when, char text[TIME_TEXT])
{
    char seconds[sizeof("2026-01-01T00:00:00")];
    struct tm tm;

    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", gmtime_r(&when->tv_sec, &tm));
    snprintf(text, TIME_TEXT, "%s.%09ldZ", seconds, when->tv_nsec);
    return text;
}

static const char *format_record(const struct kvs_record *record, char text[16])
{
    if (record->kind == KVS_RECORD_NONE)
        return "none";
    if (record->kind == KVS_RECORD_MALFORMED)
        return "malformed";
    snprintf(text, 16, "%08" PRIx32, record->crc);
    return text;
}

/* ---- hints ---- */

static void add_hint(struct view *view, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_hint(struct view *view, const char *format, ...)
{
    va_list arguments;

    if (view->hint_count == MOST_HINTS)
        return;
    va_start(arguments, format);
    if (vasprintf(&view->hints[view->hint_count], format, arguments) >= 0)
        view->hint_count++;
    va_end(arguments);
}

static void hint_at_content(struct view *view, const struct kvs_diagnosis *diagnosis)
{
    if (diagnosis->is_one_bit)
        add_hint(view,
                 "one flipped bit: byte %" PRIu64
                 ", bit %u "
                 "(other damage looks so by chance in %.2g %% of cases)",
                 diagnosis->byte, diagnosis->bit, 100 * diagnosis->chance);
    if (diagnosis->is_record_swapped)
        add_hint(view, "a record whose four bytes are in the other order");
    if (diagnosis->is_record_inverted)
        add_hint(view, "a record without the final inversion");
    if (diagnosis->is_extended)
        add_hint(view, "zeros appended to %" PRIu64 " bytes that match", diagnosis->true_size);
    if (diagnosis->is_empty)
        add_hint(view, "a block cut to nothing");
    else if (diagnosis->is_tail_zero && diagnosis->zeros_from == 0)
        add_hint(view, "a block whose bytes are all zero");
    else if (diagnosis->is_tail_zero)
        add_hint(view, "a zeroed tail: from byte %" PRIu64 "%s to the end", diagnosis->zeros_from,
                 diagnosis->is_page_granular ? ", the beginning of a page," : "");
}

static void hint_at_neighbours(struct view *view, int dir_fd, const struct kvs_mismatch *mismatch)
{
    struct kvs_neighbours neighbours;
    char escaped[4 * 256];

    if (kvs_diagnose_neighbours(dir_fd, view->name, mismatch, MOST_NEIGHBOURS, &neighbours) < 0)
        return;
    if (neighbours.same_record[0] != '\0')
        add_hint(view, "the record of another block: %s",
                 kvs_log_escape(neighbours.same_record, escaped, sizeof(escaped)));
    if (neighbours.same_content[0] != '\0')
        add_hint(view, "the content of another block: %s",
                 kvs_log_escape(neighbours.same_content, escaped, sizeof(escaped)));
    if (neighbours.larger_size != 0)
        add_hint(view, "a cut tail: its neighbours have %" PRIu64 " bytes", neighbours.larger_size);
}

static void diagnose(struct view *view, struct kvs_examiner *examiner)
{
    const struct kvs_verification *verification = &view->examination.verification;
    struct kvs_mismatch mismatch = {.recorded = verification->record.crc,
                                    .computed = verification->computed,
                                    .size = verification->size};
    struct kvs_diagnosis diagnosis;
    kvs_cleanup_free char *copy = strdup(view->path);
    kvs_cleanup_fd int dir_fd = -1;

    if (verification->record.kind != KVS_RECORD_SUM) {
        add_hint(view, "something else that uses the name of the record: it is not four bytes");
        return;
    }
    if (kvs_diagnose_zeros(view->fd, mismatch.size, examiner->memory, &mismatch.zeros) < 0)
        mismatch.zeros = 0;
    kvs_diagnose(&mismatch, &diagnosis);
    hint_at_content(view, &diagnosis);
    if (copy != NULL)
        dir_fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0)
        hint_at_neighbours(view, dir_fd, &mismatch);
}

/* ---- output ---- */

static void print_text(const struct view *view)
{
    const struct kvs_record *record = &view->examination.verification.record;
    size_t size = 4 * strlen(view->path) + 1;
    kvs_cleanup_free char *escaped = malloc(size);
    char text[TIME_TEXT], record_text[16];

    printf("%s\n", escaped == NULL ? "?" : kvs_log_escape(view->path, escaped, size));
    printf("  verdict   %s\n", kvs_cli_finding_word(view->examination.finding));
    printf("  record    %s\n", format_record(record, record_text));
    printf("  computed  %08" PRIx32 "\n", view->computed);
    printf("  size      %jd\n", (intmax_t)view->st.st_size);
    printf("  modified  %s\n", format_time(&view->st.st_mtim, text));
    printf("  changed   %s\n", format_time(&view->st.st_ctim, text));
    printf("  accessed  %s\n", format_time(&view->st.st_atim, text));
    if (view->examination.finding != KVS_FOUND_CORRUPT)
        return;
    printf("  hint      consistent with%s\n",
           view->hint_count == 0 ? " none of: a flipped bit, a zeroed or cut tail, a swapped "
                                   "record, a record of another block"
                                 : ":");
    for (unsigned i = 0; i < view->hint_count; i++)
        printf("            - %s\n", view->hints[i]);
    if (view->hint_count > 0)
        printf("            (a hint, no proof)\n");
}

static void print_json(const struct view *view)
{
    const struct kvs_record *record = &view->examination.verification.record;
    char text[TIME_TEXT], record_text[16];
    json_t *object = json_object();

    kvs_cli_json_set_path(object, "path", view->path);
    json_object_set_new(object, "verdict",
                        json_string(kvs_cli_finding_word(view->examination.finding)));
    json_object_set_new(object, "record",
                        record->kind == KVS_RECORD_NONE
                            ? json_null()
                            : json_string(format_record(record, record_text)));
    json_object_set_new(object, "computed", kvs_cli_json_sum(view->computed));
    json_object_set_new(object, "size", json_integer(view->st.st_size));
    json_object_set_new(object, "modified", json_string(format_time(&view->st.st_mtim, text)));
    json_object_set_new(object, "changed", json_string(format_time(&view->st.st_ctim, text)));
    json_object_set_new(object, "accessed", json_string(format_time(&view->st.st_atim, text)));
    if (view->examination.finding == KVS_FOUND_CORRUPT) {
        json_t *hints = json_array();
        for (unsigned i = 0; i < view->hint_count; i++)
            json_array_append_new(hints, json_string(view->hints[i]));
        json_object_set_new(object, "hints", hints);
    }
    kvs_cli_json_print(object);
}

/* ---- one block ---- */

/* The sum of a block that no verdict needed reading for. */
static int sum(struct view *view, struct kvs_examiner *examiner)
{
    if (view->examination.finding == KVS_FOUND_INTACT ||
        view->examination.finding == KVS_FOUND_TRANSIENT ||
        view->examination.finding == KVS_FOUND_CORRUPT) {
        view->computed = view->examination.verification.computed;
        return 0;
    }
    struct kvs_page_cache_view *cached = kvs_page_cache_view(view->fd, (uint64_t)view->st.st_size);
    int r = kvs_sum_whole(view->fd, examiner->memory, KVS_EXAMINER_MEMORY, &view->computed);
    kvs_page_cache_restore(view->fd, cached);
    return r;
}

static enum kvs_cli_status show(struct view *view, struct kvs_examiner *examiner, bool is_json)
{
    int r = fstat(view->fd, &view->st) < 0 ? -errno : 0;

    if (r < 0)
        return kvs_cli_complain(view->path, "read", r);
    kvs_examine(examiner, view->fd, &view->examination);
    r = view->examination.finding == KVS_FOUND_ERROR ? view->examination.error
                                                     : sum(view, examiner);
    if (r == -EBUSY) {
        kvs_cli_warn(view->path, "changes while it is read; try again when nobody writes to it");
        return KVS_CLI_ERROR;
    }
    if (r < 0)
        return kvs_cli_complain(view->path, "read", r);
    if (view->examination.finding == KVS_FOUND_CORRUPT)
        diagnose(view, examiner);
    if (is_json)
        print_json(view);
    else
        print_text(view);
    return view->examination.finding == KVS_FOUND_CORRUPT ? KVS_CLI_CORRUPT : KVS_CLI_OK;
}

static enum kvs_cli_status show_path(const char *path, struct kvs_examiner *examiner, bool is_json)
{
    const char *slash = strrchr(path, '/');
    struct view view = {.path = path, .name = slash != NULL ? slash + 1 : path};
    kvs_cleanup_fd int path_fd = open(path, O_PATH | O_CLOEXEC);
    kvs_cleanup_fd int fd = path_fd < 0 ? -errno : kvs_examine_open_again(path_fd);
    enum kvs_cli_status status = KVS_CLI_ERROR;

    view.fd = fd;
    if (fd >= 0)
        status = show(&view, examiner, is_json);
    else if (fd == -EINVAL)
        kvs_cli_warn(path, "is not a regular file; give block files");
    else
        kvs_cli_complain(path, "opened", fd);
    for (unsigned i = 0; i < view.hint_count; i++)
        free(view.hints[i]);
    return status;
}

static int run_show(int argc, char **argv)
{
    static const struct option options[] = {KVS_CLI_HELP, KVS_CLI_JSON, {0}};
    enum kvs_cli_status status = KVS_CLI_OK;
    struct kvs_cli_common common = {0};
    struct kvs_examiner examiner = {0};

    kvs_cli_next_option(&kvs_cmd_show, &common, argc, argv, options);
    if (optind == argc)
        kvs_cli_fail_usage(&kvs_cmd_show, "no file is given");
    if (kvs_examiner_init(&examiner) < 0) {
        fputs("kvseal: out of memory\n", stderr);
        return KVS_CLI_ERROR;
    }
    for (char **path = argv + optind; *path != NULL; path++)
        status = kvs_cli_graver(status, show_path(*path, &examiner, common.is_json));
    kvs_examiner_destroy(&examiner);
    return kvs_cli_finish(status);
}

const struct kvs_cli_command kvs_cmd_show = {
    .name = "show",
    .operands = "[OPTION...] FILE...",
    .summary = "shows record, sum, verdict and times of single blocks",
    .help =
        "      --json      one JSON object a line\n"
        "\n"
        "About a corrupt block it says what the damage is consistent with: a hint, no proof.\n"
        "Exit status: 0 nothing is wrong, 1 a block is corrupt, 2 a file could not be read.\n",
    .is_apart = true,
    .run = run_show,
};
