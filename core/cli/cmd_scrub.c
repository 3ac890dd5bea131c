// SPDX-License-Identifier: Apache-2.0
// kvseal scrub: goes round a source at a pace, from where the last run stopped.
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "core/cli/apart.h"
#include "core/cli/cli.h"
#include "core/cli/progress.h"
#include "core/cli/source.h"
#include "core/format.h"
#include "core/log.h"
#include "core/parse.h"
#include "core/priority.h"
#include "core/scrub.h"
#include "core/scrub_check.h"
#include "core/util.h"

#define DEFAULT_RATE ((uint64_t)50 << 20)
#define MOST_SHARDS  65536
#define MOST_SECONDS ((uint64_t)3650 * 24 * 3600)

struct run {
    struct kvs_cli_common common;
    struct kvs_scrub_options options;
    enum kvs_on_corrupt on_corrupt;
    bool is_continuous;
    const char *source;
    char shown[4096]; /* the same, escaped */
    int source_fd;
    bool is_corrupt_found, is_incomplete;
};

static const struct {
    const char *word, *done;
} treatments[] = {
    [KVS_ON_CORRUPT_REMOVE] = {"remove", "removed"},
    [KVS_ON_CORRUPT_QUARANTINE] = {"quarantine", "quarantined"},
    [KVS_ON_CORRUPT_KEEP] = {"keep", "kept"},
};
#define TREATMENTS (sizeof(treatments) / sizeof(treatments[0]))

/* ---- what is said of a block ---- */

static bool is_worth_a_line(const struct run *run, enum kvs_scrub_outcome outcome)
{
    switch (outcome) {
    case KVS_SCRUB_CORRUPT:
    case KVS_SCRUB_TRANSIENT:
    case KVS_SCRUB_UNSTABLE:
    case KVS_SCRUB_ERROR:
        return true;
    case KVS_SCRUB_GONE:
        return false;
    default:
        return run->common.is_verbose;
    }
}

static const char *treatment_of(const struct run *run, const struct kvs_scrub_block *block)
{
    return block->error < 0 ? "kept" : treatments[run->on_corrupt].done;
}

static void print_json(const struct run *run, const struct kvs_scrub_block *block)
{
    const struct kvs_verification *found = block->verification;
    json_t *object = json_object();

    kvs_cli_json_set_path(object, "path", block->path);
    json_object_set_new(object, "verdict", json_string(kvs_scrub_word(block->outcome)));
    if (block->outcome == KVS_SCRUB_CORRUPT) {
        json_object_set_new(object, "expected",
                            found->record.kind == KVS_RECORD_SUM
                                ? kvs_cli_json_sum(found->record.crc)
                                : json_string("malformed"));
        json_object_set_new(object, "computed", kvs_cli_json_sum(found->computed));
        json_object_set_new(object, "action", json_string(treatment_of(run, block)));
    }
    if (block->error < 0)
        json_object_set_new(object, "error", json_string(strerror(-block->error)));
    kvs_cli_json_print(object);
}

static void print_corrupt(const struct run *run, const struct kvs_scrub_block *block,
                          const char *path)
{
    const struct kvs_verification *found = block->verification;
    char expected[sizeof("expected 00000000")] = "malformed record";

    if (found->record.kind == KVS_RECORD_SUM)
        snprintf(expected, sizeof(expected), "expected %08" PRIx32, found->record.crc);
    printf("%s: corrupt (%s, computed %08" PRIx32 "): %s\n", path, expected, found->computed,
           treatment_of(run, block));
}

static void print_line(const struct run *run, const struct kvs_scrub_block *block)
{
    size_t size = 4 * strlen(block->path) + 1;
    kvs_cleanup_free char *escaped = malloc(size);
    const char *path = escaped != NULL ? kvs_log_escape(block->path, escaped, size) : "?";

    if (block->outcome == KVS_SCRUB_CORRUPT)
        print_corrupt(run, block, path);
    else if (block->outcome == KVS_SCRUB_UNSTABLE)
        fprintf(stderr,
                "kvseal: %s: no verdict: it reads differently each time; suspect the storage; it "
                "is checked again first in the next round\n",
                path);
    else if (block->outcome != KVS_SCRUB_ERROR)
        printf("%s: %s\n", path, kvs_scrub_word(block->outcome));
}

static void report(void *context, const struct kvs_scrub_block *block)
{
    struct run *run = context;
    static const char *const verbs[] = {
        [KVS_ON_CORRUPT_REMOVE] = "removed",
        [KVS_ON_CORRUPT_QUARANTINE] = "quarantined",
        [KVS_ON_CORRUPT_KEEP] = "kept",
    };

    if (block->outcome == KVS_SCRUB_CORRUPT) {
        run->is_corrupt_found = true;
        kvs_cli_note_status(KVS_CLI_CORRUPT);
    }
    if (block->outcome == KVS_SCRUB_UNSTABLE || block->error < 0)
        run->is_incomplete = true;
    if (!is_worth_a_line(run, block->outcome))
        return;
    if (run->common.is_json) {
        print_json(run, block);
    } else {
        kvs_cli_output_begin();
        print_line(run, block);
        kvs_cli_output_end();
    }
    if (block->error < 0)
        kvs_cli_complain(*block->path != '\0' ? block->path : run->source,
                         block->outcome == KVS_SCRUB_CORRUPT ? verbs[run->on_corrupt] : "read",
                         block->error);
    fflush(stdout);
}

static int treat(void *context, const struct kvs_scrub_block *block)
{
    struct run *run = context;

    return kvs_scrub_treat(run->source_fd, run->on_corrupt, block);
}

/* ---- what is said at the end of a round ---- */

static void summarize_json(const struct kvs_scrub_progress *progress, bool is_whole)
{
    json_t *summary = json_object();
    json_t *blocks = json_object();
    json_t *line = json_object();

    for (int i = 0; i < KVS_SCRUB_OUTCOMES; i++)
        json_object_set_new(blocks, kvs_scrub_word(i),
                            json_integer((json_int_t)progress->blocks[i]));
    json_object_set_new(summary, "complete", json_boolean(is_whole));
    json_object_set_new(summary, "blocks", blocks);
#define SET(name) json_object_set_new(summary, #name, json_integer((json_int_t)progress->name))
    SET(bytes_read);
    SET(bytes_total);
    SET(bytes_verified);
    SET(bytes_unsealed);
    SET(window);
    SET(oldest_age);
    SET(suspects);
    SET(stale_removed);
#undef SET
    json_object_set_new(line, "summary", summary);
    kvs_cli_json_print(line);
}

static void summarize(const struct kvs_scrub_progress *progress, bool is_whole)
{
    double share = progress->bytes_total > 0
                       ? 100.0 * (double)progress->bytes_verified / (double)progress->bytes_total
                       : 100;
    char read[KVS_FORMAT_SIZE], total[KVS_FORMAT_SIZE], window[32], age[32];

    printf("%s: %s read;", is_whole ? "scrubbed" : "stopped",
           kvs_format_size(progress->bytes_read, read, sizeof(read)));
    for (int i = 0; i < KVS_SCRUB_OUTCOMES; i++) {
        if (progress->blocks[i] > 0)
            printf(" %" PRIu64 " %s,", progress->blocks[i], kvs_scrub_word(i));
    }
    printf(" %.1f %% of %s verified within %s, oldest %s\n", share,
           kvs_format_size(progress->bytes_total, total, sizeof(total)),
           kvs_format_duration(progress->window, window, sizeof(window)),
           kvs_format_duration(progress->oldest_age, age, sizeof(age)));
}

/* ---- the run ---- */

static struct kvs_scrub *running; /* for the signal handler */

static void stop(int number)
{
    kvs_scrub_stop(running);
}

static void look_at_round(void *context, struct kvs_cli_amounts *amounts_ret)
{
    struct kvs_scrub_progress progress;

    kvs_scrub_progress(context, &progress);
    amounts_ret->done = progress.pass_bytes;
    amounts_ret->total = progress.pass_bytes + progress.pass_ahead;
}

/* One round, with a bar on a terminal. */
static int scrub_round(struct kvs_scrub *scrub)
{
    struct kvs_cli_progress *bar = kvs_cli_progress_watch(look_at_round, scrub);
    int r = kvs_scrub_pass(scrub);

    kvs_cli_progress_end(bar);
    return r;
}

static int scrub_rounds(struct run *run, struct kvs_scrub *scrub)
{
    struct sigaction action = {.sa_handler = stop};
    int r = 0;

    running = scrub;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    do {
        struct kvs_scrub_progress progress;

        r = scrub_round(scrub);
        kvs_scrub_progress(scrub, &progress);
        if (run->common.is_json)
            summarize_json(&progress, r == 0);
        else
            summarize(&progress, r == 0);
        fflush(stdout);
        if (r == 0 && run->is_continuous)
            r = kvs_scrub_rest(scrub);
    } while (r == 0 && run->is_continuous);
    return r;
}

/* Says why it does not start, or that it starts anew. */
static int open_scrub(struct run *run, const struct kvs_scrub_host *host,
                      struct kvs_scrub **scrub_ret)
{
    enum kvs_cursor_state state = KVS_CURSOR_NEW;
    char owner[KVS_OWNER_SIZE];
    int r = kvs_scrub_open(run->source_fd, &run->options, host, &state, owner, scrub_ret);

    if (r == -EROFS || r == -EACCES || r == -EPERM) {
        fprintf(stderr,
                "kvseal: %s: the position cannot be kept in %s: %s; every run begins at the "
                "start\n",
                run->shown, KVS_STATE_DIR, strerror(-r));
        run->options.keeps_no_cursor = true;
        r = kvs_scrub_open(run->source_fd, &run->options, host, &state, owner, scrub_ret);
    }
    if (r == -EBUSY)
        fprintf(stderr,
                "kvseal: %s: shard %u/%u is being scrubbed already, by %s; wait for it, or end "
                "it\n",
                run->shown, run->options.shard, run->options.shards,
                *owner != '\0' ? owner : "another process");
    else if (r < 0)
        kvs_cli_complain(run->source, "scrubbed", r);
    if (r == 0 && state == KVS_CURSOR_DAMAGED)
        fprintf(stderr,
                "kvseal: %s: the saved position of shard %u/%u in %s is damaged; the scrub begins "
                "anew, no block is lost\n",
                run->shown, run->options.shard, run->options.shards, KVS_STATE_DIR);
    return r;
}

static enum kvs_cli_status scrub_source(struct run *run)
{
    const struct kvs_scrub_host host = {.context = run, .treat = treat, .report = report};
    struct kvs_scrub *scrub = NULL;
    int r = open_scrub(run, &host, &scrub);

    if (r < 0)
        return KVS_CLI_ERROR;
    kvs_priority_lower();
    r = scrub_rounds(run, scrub);
    kvs_scrub_close(scrub);
    if (r < 0 && r != -ECANCELED)
        kvs_cli_complain(run->source, "scrubbed", r);
    if (run->is_corrupt_found)
        return KVS_CLI_CORRUPT;
    if (r == -ECANCELED && run->is_continuous)
        r = 0; /* it has no other end */
    return r < 0 || run->is_incomplete ? KVS_CLI_ERROR : KVS_CLI_OK;
}

/* ---- the command line ---- */

static void need_shard(struct kvs_scrub_options *options)
{
    kvs_cleanup_free char *shard = strdup(optarg);
    char *slash = shard != NULL ? strchr(shard, '/') : NULL;
    uint64_t i = 0, n = 0;

    if (slash != NULL)
        *slash = '\0';
    if (slash == NULL || kvs_parse_count(shard, &i) < 0 || kvs_parse_count(slash + 1, &n) < 0 ||
        i < 1 || i > n || n > MOST_SHARDS)
        kvs_cli_fail_usage(&kvs_cmd_scrub,
                           "--shard takes I/N such as 1/4, I from 1 to N, not \"%s\"", optarg);
    options->shard = (unsigned)i;
    options->shards = (unsigned)n;
}

static enum kvs_on_corrupt need_treatment(void)
{
    for (size_t i = 0; i < TREATMENTS; i++) {
        if (strcmp(optarg, treatments[i].word) == 0)
            return (enum kvs_on_corrupt)i;
    }
    kvs_cli_fail_usage(&kvs_cmd_scrub, "--on-corrupt takes keep, quarantine or remove, not \"%s\"",
                       optarg);
}

static uint64_t need_time(const char *option, uint64_t least)
{
    uint64_t seconds = kvs_cli_need_duration(&kvs_cmd_scrub, option);

    if (seconds < least || seconds > MOST_SECONDS)
        kvs_cli_fail_usage(&kvs_cmd_scrub, "%s takes %s to 3650d", option, least > 0 ? "1s" : "0");
    return seconds;
}

static void read_options(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {
        {"rate", required_argument, NULL, 'r'},
        {"within", required_argument, NULL, 'w'},
        {"shard", required_argument, NULL, 's'},
        {"on-corrupt", required_argument, NULL, 'C'},
        {"continuous", no_argument, NULL, 'c'},
        {"min-age", required_argument, NULL, 'a'},
        KVS_CLI_JSON,
        KVS_CLI_VERBOSE,
        KVS_CLI_HELP,
        {0},
    };
    int option = 0;

    while ((option = kvs_cli_next_option(&kvs_cmd_scrub, &run->common, argc, argv, options)) !=
           -1) {
        switch (option) {
        case 'r':
            run->options.rate = kvs_cli_need_size(&kvs_cmd_scrub, "--rate");
            if (run->options.rate == 0)
                kvs_cli_fail_usage(&kvs_cmd_scrub, "--rate takes more than 0");
            break;
        case 'w':
            run->options.within = need_time("--within", 1);
            break;
        case 's':
            need_shard(&run->options);
            break;
        case 'C':
            run->on_corrupt = need_treatment();
            break;
        case 'c':
            run->is_continuous = true;
            break;
        case 'a':
            run->options.min_age = need_time("--min-age", 0);
            break;
        }
    }
}

/* Told once, not for each block. */
static bool has_attributes(int fd)
{
    return fgetxattr(fd, KVS_RECORD_NAME, NULL, 0) >= 0 || errno != EOPNOTSUPP;
}

static int run_scrub(int argc, char **argv)
{
    struct run run = {
        .options = {.shard = 1, .shards = 1, .min_age = KVS_SCRUB_MIN_AGE},
        .on_corrupt = KVS_ON_CORRUPT_KEEP,
    };
    kvs_cleanup_fd int source_fd = -1;

    read_options(&run, argc, argv);
    if (argc - optind != 1)
        kvs_cli_fail_usage(&kvs_cmd_scrub, "give one source directory");
    if (run.options.rate > 0 && run.options.within > 0)
        kvs_cli_fail_usage(&kvs_cmd_scrub, "give --rate or --within, not both");
    if (run.options.rate == 0 && run.options.within == 0)
        run.options.rate = DEFAULT_RATE;
    run.options.sweeps = run.on_corrupt != KVS_ON_CORRUPT_KEEP;
    run.source = argv[optind];
    kvs_log_escape(run.source, run.shown, sizeof(run.shown));
    source_fd = kvs_cli_open_source(run.source);
    run.source_fd = source_fd;
    if (source_fd >= 0 && !has_attributes(source_fd))
        return kvs_cli_complain(run.source, "scrubbed", -EOPNOTSUPP);
    return kvs_cli_finish(source_fd < 0 ? KVS_CLI_ERROR : scrub_source(&run));
}

const struct kvs_cli_command kvs_cmd_scrub = {
    .name = "scrub",
    .operands = "[OPTION...] SOURCE",
    .summary = "verifies a whole source at a pace, goes on where it stopped last",
    .help =
        "  -r, --rate SIZE        bytes a second, such as 200M (50M)\n"
        "  -w, --within TIME      instead: get round in this time, such as 7d\n"
        "  -s, --shard I/N        only the I-th of N parts, so that N nodes share a source\n"
        "  -C, --on-corrupt WHAT  keep, quarantine or remove corrupt blocks (keep)\n"
        "  -c, --continuous       round and round, until it is stopped\n"
        "  -a, --min-age TIME     leave out what changed in this time (30s)\n"
        "  -v, --verbose          a line for each block, not only for trouble\n"
        "      --json             one JSON object a line\n",
    .is_apart = true,
    .ends_itself = true,
    .run = run_scrub,
};
