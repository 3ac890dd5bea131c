// SPDX-License-Identifier: Apache-2.0
// kvseal verify: is the content what its record says?
#include <inttypes.h>
#include <stdio.h>

#include "core/cli/blocks.h"
#include "core/cli/cli.h"
#include "core/cli/tally.h"

struct run {
    struct kvs_cli_common common;
    struct kvs_cli_tally tally;
};

static void print_json(const char *path, const struct kvs_examination *examination)
{
    const struct kvs_verification *verification = &examination->verification;
    json_t *object = json_object();

    kvs_cli_json_set_path(object, "path", path);
    json_object_set_new(object, "verdict", json_string(kvs_cli_finding_word(examination->finding)));
    if (examination->finding == KVS_FOUND_CORRUPT || examination->finding == KVS_FOUND_INTACT ||
        examination->finding == KVS_FOUND_TRANSIENT) {
        json_object_set_new(object, "size", json_integer((json_int_t)verification->size));
        json_object_set_new(object, "expected",
                            verification->record.kind == KVS_RECORD_SUM
                                ? kvs_cli_json_sum(verification->record.crc)
                                : json_string("malformed"));
        json_object_set_new(object, "computed", kvs_cli_json_sum(verification->computed));
    }
    kvs_cli_json_print(object);
}

static void print_corrupt(const char *path, const struct kvs_verification *verification)
{
    if (verification->record.kind == KVS_RECORD_SUM)
        kvs_cli_print(path, "corrupt (expected %08" PRIx32 ", computed %08" PRIx32 ")",
                      verification->record.crc, verification->computed);
    else
        kvs_cli_print(path, "corrupt (malformed record, computed %08" PRIx32 ")",
                      verification->computed);
}

static void print_text(const char *path, const struct kvs_examination *examination)
{
    switch (examination->finding) {
    case KVS_FOUND_CORRUPT:
        print_corrupt(path, &examination->verification);
        break;
    case KVS_FOUND_TRANSIENT:
        kvs_cli_print(path,
                      "transient (a first reading was wrong, a second right: "
                      "suspect the memory or the storage)");
        break;
    case KVS_FOUND_UNSTABLE:
        kvs_cli_warn(path,
                     "no verdict: it reads differently each time, and nobody writes to it; "
                     "suspect the storage");
        break;
    default:
        kvs_cli_print(path, "%s", kvs_cli_finding_word(examination->finding));
    }
}

static bool is_trouble(enum kvs_finding finding)
{
    return finding == KVS_FOUND_CORRUPT || finding == KVS_FOUND_TRANSIENT ||
           finding == KVS_FOUND_UNSTABLE;
}

static void verify_block(void *context, const struct kvs_cli_block *block)
{
    struct run *run = context;
    struct kvs_examination examination;

    kvs_examine(block->examiner, block->fd, &examination);
    kvs_cli_tally_add(&run->tally, &examination);
    if (examination.finding == KVS_FOUND_ERROR)
        kvs_cli_blocks_complain(&run->common, block->path, "verified", examination.error);
    else if (!run->common.is_verbose && !is_trouble(examination.finding))
        return;
    else if (run->common.is_json)
        print_json(block->path, &examination);
    else
        print_text(block->path, &examination);
}

static int run_verify(int argc, char **argv)
{
    static const struct option options[] = {
        KVS_CLI_HELP, KVS_CLI_JSON, KVS_CLI_JOBS, KVS_CLI_VERBOSE, {0}};
    struct run run = {0};
    struct kvs_cli_blocks blocks = {.common = &run.common, .work = verify_block, .context = &run};
    struct kvs_cli_sights sights;

    kvs_cli_next_option(&kvs_cmd_verify, &run.common, argc, argv, options);
    if (optind == argc)
        kvs_cli_fail_usage(&kvs_cmd_verify, "no file or directory is given");
    if (kvs_cli_blocks_run(&blocks, argv + optind, &sights) < 0) {
        fputs("kvseal: out of memory, or of threads: try fewer --jobs\n", stderr);
        return KVS_CLI_ERROR;
    }
    kvs_cli_tally_print(&run.tally, &sights, run.common.is_json);
    return kvs_cli_finish(kvs_cli_tally_status(&run.tally, &sights));
}

const struct kvs_cli_command kvs_cmd_verify = {
    .name = "verify",
    .operands = "[OPTION...] PATH...",
    .summary = "compares blocks, or trees of them, with their records",
    .help =
        "  -v, --verbose   list every block, not only trouble\n"
        "  -j, --jobs N    threads (default: one a CPU, at least two)\n"
        "      --json      one JSON object a line\n"
        "\n"
        "Exit status: 0 nothing is wrong, 1 a block is corrupt, 2 not everything could be "
        "checked.\n",
    .is_apart = true,
    .run = run_verify,
};
