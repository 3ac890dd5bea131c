// SPDX-License-Identifier: Apache-2.0
// kvseal quarantine: lists, restores and purges the corrupt blocks that were set aside.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/cli/cli.h"
#include "core/cli/source.h"
#include "core/format.h"
#include "core/log.h"
#include "core/quarantine.h"
#include "core/util.h"
#include "core/verify.h"

struct run {
    struct kvs_cli_common common;
    bool is_forced;
    bool has_age;
    uint64_t older_than; /* seconds */
    const char *source;
    int source_fd;
    int quarantine_fd; /* -1: there is no quarantine, and so no block */
    char **names;      /* the operands behind SOURCE */
    struct kvs_quarantined *blocks;
    size_t count;
};

/* ---- what is said of a block ---- */

static void format_time(int64_t time, char text[sizeof("2026-01-01T00:00:00Z")])
{
    time_t seconds = (time_t)time;
    struct tm tm;

    strftime(text, sizeof("2026-01-01T00:00:00Z"), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
}

static void print_json(const struct kvs_quarantined *block, const char *action)
{
    json_t *object = json_object();
    char when[sizeof("2026-01-01T00:00:00Z")];

    format_time(block->time, when);
    kvs_cli_json_set_path(object, "name", block->name);
    if (block->path != NULL)
        kvs_cli_json_set_path(object, "path", block->path);
    json_object_set_new(object, "time", json_string(when));
    json_object_set_new(object, "size", json_integer((json_int_t)block->size));
    if (block->has_cause) {
        json_object_set_new(object, "expected",
                            block->expected.kind == KVS_RECORD_SUM
                                ? kvs_cli_json_sum(block->expected.crc)
                                : json_string("malformed"));
        json_object_set_new(object, "computed", kvs_cli_json_sum(block->computed));
    }
    if (action != NULL)
        json_object_set_new(object, "action", json_string(action));
    kvs_cli_json_print(object);
}

static void print_escaped(const char *text)
{
    size_t size = 4 * strlen(text) + 1;
    kvs_cleanup_free char *escaped = malloc(size);

    fputs(escaped != NULL ? kvs_log_escape(text, escaped, size) : "?", stdout);
}

static void print_block(const struct kvs_quarantined *block)
{
    char when[sizeof("2026-01-01T00:00:00Z")];
    char expected[sizeof("malformed")] = "malformed";

    format_time(block->time, when);
    if (block->expected.kind == KVS_RECORD_SUM)
        snprintf(expected, sizeof(expected), "%08" PRIx32, block->expected.crc);
    print_escaped(block->name);
    printf("  %s  %" PRIu64 " bytes  ", when, block->size);
    if (block->has_cause)
        printf("expected %s, computed %08" PRIx32 "  ", expected, block->computed);
    else
        printf("cause not known  ");
    print_escaped(block->path != NULL ? block->path : "?");
    putchar('\n');
}

/* "NAME: ACTION[ PATH]" */
static void say(const struct run *run, const struct kvs_quarantined *block, const char *action,
                const char *path)
{
    if (run->common.is_json) {
        print_json(block, action);
        return;
    }
    print_escaped(block->name);
    printf(": %s", action);
    if (path != NULL) {
        printf(" to ");
        print_escaped(path);
    }
    putchar('\n');
}

static enum kvs_cli_status complain(const char *name, const char *why)
{
    char escaped[4 * 256 + 1];

    fflush(stdout);
    fprintf(stderr, "kvseal: %s: %s\n", kvs_log_escape(name, escaped, sizeof(escaped)), why);
    return KVS_CLI_ERROR;
}

/* ---- list ---- */

static enum kvs_cli_status list(const struct run *run)
{
    uint64_t bytes = 0;
    char size[KVS_FORMAT_SIZE];

    for (size_t i = 0; i < run->count; i++) {
        bytes += run->blocks[i].size;
        if (run->common.is_json)
            print_json(&run->blocks[i], NULL);
        else
            print_block(&run->blocks[i]);
    }
    if (!run->common.is_json)
        printf("%zu in quarantine, %s\n", run->count, kvs_format_size(bytes, size, sizeof(size)));
    return KVS_CLI_OK;
}

/* ---- restore ---- */

/* Whether its content is what its record says by now (a bad cable was changed, say). */
static enum kvs_cli_status check(const struct run *run, const struct kvs_quarantined *block)
{
    kvs_cleanup_fd int fd = openat(run->quarantine_fd, block->name,
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    kvs_cleanup_free void *memory = aligned_alloc(KVS_IO_ALIGN, KVS_PIECE_SIZE);
    struct kvs_reading reading = {.memory = memory, .capacity = KVS_PIECE_SIZE};
    struct kvs_verification found = {0};
    int r = fd < 0 ? -errno : memory == NULL ? -ENOMEM : kvs_verify(fd, &reading, &found);

    if (r < 0)
        return kvs_cli_complain(block->name, "verified", r);
    if (found.verdict == KVS_UNSEALED)
        return complain(block->name,
                        "not restored: it has no record, so nothing says that it is good; --force "
                        "restores it all the same");
    if (found.verdict == KVS_INTACT)
        return KVS_CLI_OK;
    complain(block->name,
             "not restored: it is still corrupt; --force restores it all the same, and the next "
             "load or scrub finds it again");
    return KVS_CLI_CORRUPT;
}

static enum kvs_cli_status restore_block(const struct run *run, const struct kvs_quarantined *block)
{
    enum kvs_cli_status status = KVS_CLI_OK;
    int r = 0;

    if (block->path == NULL)
        return complain(block->name,
                        "not restored: its path is not known; move it from .kvseal/quarantine by "
                        "hand, or purge it");
    if (!run->is_forced)
        status = check(run, block);
    if (status != KVS_CLI_OK)
        return status;
    r = kvs_quarantine_restore(run->source_fd, run->quarantine_fd, block);
    if (r == -EEXIST)
        return complain(block->name,
                        "not restored: its path is in use by a newer file; purge this one");
    if (r == -ENOENT)
        return complain(block->name, "not restored: its directory is gone; make it first");
    if (r < 0)
        return kvs_cli_complain(block->name, "restored", r);
    say(run, block, "restored", block->path);
    return KVS_CLI_OK;
}

static const struct kvs_quarantined *find_name(const struct run *run, const char *name)
{
    for (size_t i = 0; i < run->count; i++) {
        if (strcmp(run->blocks[i].name, name) == 0)
            return &run->blocks[i];
    }
    return NULL;
}

/* By its name, or as the list shows it: with what a terminal cannot show escaped. */
static const struct kvs_quarantined *find(const struct run *run, const char *name)
{
    const struct kvs_quarantined *block = find_name(run, name);
    kvs_cleanup_free char *shown = block == NULL ? strdup(name) : NULL;

    if (shown != NULL && kvs_log_unescape(shown) == 0)
        block = find_name(run, shown);
    return block;
}

static enum kvs_cli_status restore(const struct run *run)
{
    enum kvs_cli_status status = KVS_CLI_OK;

    for (char **name = run->names; *name != NULL; name++) {
        const struct kvs_quarantined *block = find(run, *name);

        status = kvs_cli_graver(status, block != NULL ? restore_block(run, block)
                                                      : complain(*name,
                                                                 "is not in quarantine; see kvseal "
                                                                 "quarantine list"));
    }
    return status;
}

/* ---- purge ---- */

static bool is_old_enough(const struct run *run, const struct kvs_quarantined *block)
{
    int64_t age = (int64_t)time(NULL) - block->time;

    return !run->has_age || (age > 0 && (uint64_t)age >= run->older_than);
}

static enum kvs_cli_status purge_files(const struct run *run, const struct kvs_quarantined *files,
                                       size_t count)
{
    enum kvs_cli_status status = KVS_CLI_OK;

    for (size_t i = 0; i < count; i++) {
        const struct kvs_quarantined *file = &files[i];
        int r = is_old_enough(run, file) ? kvs_quarantine_remove(run->quarantine_fd, file) : 1;

        if (r == 0)
            say(run, file, "purged", NULL);
        else if (r < 0 && r != -ENOENT)
            status = kvs_cli_complain(file->name, "purged", r);
    }
    return status;
}

/* Blocks, and what is left of others. */
static enum kvs_cli_status purge(const struct run *run)
{
    enum kvs_cli_status status = purge_files(run, run->blocks, run->count);
    struct kvs_quarantined *causes = NULL;
    size_t count = 0;
    int r = 0;

    if (run->quarantine_fd >= 0)
        r = kvs_quarantine_list_orphans(run->quarantine_fd, &causes, &count);
    if (r < 0)
        return kvs_cli_complain(run->source, "looked through for what is left of blocks", r);
    status = kvs_cli_graver(status, purge_files(run, causes, count));
    kvs_quarantine_free(causes, count);
    return status;
}

/* ---- the command line ---- */

static const struct action {
    const char *word;
    enum kvs_cli_status (*act)(const struct run *run);
    bool has_names, has_force, has_age;
} actions[] = {
    {.word = "list", .act = list},
    {.word = "restore", .act = restore, .has_names = true, .has_force = true},
    {.word = "purge", .act = purge, .has_age = true},
};

static const struct action *need_action(const char *word)
{
    for (size_t i = 0; word != NULL && i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(word, actions[i].word) == 0)
            return &actions[i];
    }
    kvs_cli_fail_usage(&kvs_cmd_quarantine, "say list, restore or purge%s%s",
                       word != NULL ? ", not " : "", word != NULL ? word : "");
}

static void read_options(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {
        {"force", no_argument, NULL, 'f'},
        {"older-than", required_argument, NULL, 'o'},
        KVS_CLI_JSON,
        KVS_CLI_HELP,
        {0},
    };
    int option = 0;

    while ((option = kvs_cli_next_option(&kvs_cmd_quarantine, &run->common, argc, argv, options)) !=
           -1) {
        if (option == 'f') {
            run->is_forced = true;
        } else {
            run->has_age = true;
            run->older_than = kvs_cli_need_duration(&kvs_cmd_quarantine, "--older-than");
        }
    }
}

static void check_usage(const struct run *run, const struct action *action, int operands)
{
    if (run->is_forced && !action->has_force)
        kvs_cli_fail_usage(&kvs_cmd_quarantine, "--force belongs to restore");
    if (run->has_age && !action->has_age)
        kvs_cli_fail_usage(&kvs_cmd_quarantine, "--older-than belongs to purge");
    if (action->has_names ? operands < 2 : operands != 1)
        kvs_cli_fail_usage(&kvs_cmd_quarantine, "%s takes a source directory%s", action->word,
                           action->has_names ? " and names, as list shows them" : " alone");
}

static enum kvs_cli_status read_quarantine(struct run *run)
{
    int r = 0;

    run->quarantine_fd = kvs_quarantine_open_existing(run->source_fd);
    if (run->quarantine_fd == -ENOENT)
        return KVS_CLI_OK;
    r = run->quarantine_fd < 0 ? run->quarantine_fd
                               : kvs_quarantine_list(run->quarantine_fd, &run->blocks, &run->count);
    return r < 0 ? kvs_cli_complain(run->source, "looked through for quarantined blocks", r)
                 : KVS_CLI_OK;
}

static int run_quarantine(int argc, char **argv)
{
    struct run run = {.quarantine_fd = -1};
    const struct action *action = NULL;
    kvs_cleanup_fd int source_fd = -1;
    enum kvs_cli_status status = KVS_CLI_OK;

    read_options(&run, argc, argv);
    action = need_action(argv[optind]);
    check_usage(&run, action, argc - optind - 1);
    run.source = argv[optind + 1];
    run.names = argv + optind + 2;
    source_fd = kvs_cli_open_source(run.source);
    if (source_fd < 0)
        return KVS_CLI_ERROR;
    run.source_fd = source_fd;
    status = read_quarantine(&run);
    if (status == KVS_CLI_OK)
        status = action->act(&run);
    kvs_quarantine_free(run.blocks, run.count);
    kvs_close_fd(&run.quarantine_fd);
    return kvs_cli_finish(status);
}

const struct kvs_cli_command kvs_cmd_quarantine = {
    .name = "quarantine",
    .operands = "list|restore|purge [OPTION...] SOURCE [NAME...]",
    .summary = "lists, restores and purges corrupt blocks that were set aside",
    .help =
        "  list SOURCE             name, time, size, both sums and path of each\n"
        "  restore SOURCE NAME...  moves them back to their paths, if they are good by now\n"
        "    -f, --force           also those that are not\n"
        "  purge SOURCE            removes them for good\n"
        "    -o, --older-than TIME only those that are in there for so long, such as 7d\n"
        "      --json              one JSON object a line\n",
    .is_apart = true,
    .run = run_quarantine,
};
