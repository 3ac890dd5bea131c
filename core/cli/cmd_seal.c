// SPDX-License-Identifier: Apache-2.0
// kvseal seal: gives records to blocks that have none.
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "core/cli/blocks.h"
#include "core/cli/cli.h"
#include "core/cli/progress.h"
#include "core/format.h"
#include "core/page_cache.h"
#include "core/seal_beside.h"

struct run {
    struct kvs_cli_common common;
    bool is_dry;
    atomic_ullong sealed, bytes, has_record, busy, errors;
};

static void print_json(const struct run *run, const char *path, uint64_t size, uint32_t crc)
{
    json_t *object = json_pack("{s:s, s:I}", "action", run->is_dry ? "would seal" : "sealed",
                               "size", (json_int_t)size);

    kvs_cli_json_set_path(object, "path", path);
    if (!run->is_dry)
        json_object_set_new(object, "computed", kvs_cli_json_sum(crc));
    kvs_cli_json_print(object);
}

static void count_sealed(struct run *run, const struct kvs_cli_block *block, uint32_t crc)
{
    atomic_fetch_add(&run->sealed, 1);
    atomic_fetch_add(&run->bytes, block->size);
    if (run->common.is_json && (run->common.is_verbose || run->is_dry))
        print_json(run, block->path, block->size, crc);
    else if (run->is_dry)
        kvs_cli_print(block->path, "would be sealed");
    else if (run->common.is_verbose)
        kvs_cli_print(block->path, "sealed (%08" PRIx32 ")", crc);
}

/* Without leaving it in the page cache. */
static int seal(const struct kvs_cli_block *block, uint32_t *crc_ret)
{
    struct kvs_page_cache_view *view = kvs_page_cache_view(block->fd, block->size);
    int r = kvs_seal_beside(block->fd, block->examiner->memory, KVS_EXAMINER_MEMORY, crc_ret);
    kvs_page_cache_restore(block->fd, view);
    return r;
}

static void seal_block(void *context, const struct kvs_cli_block *block)
{
    struct run *run = context;
    uint32_t crc = 0;
    int r = run->is_dry ? kvs_seal_beside_check(block->fd) : seal(block, &crc);

    switch (r) {
    case 0:
        count_sealed(run, block, crc);
        break;
    case -EEXIST:
        atomic_fetch_add(&run->has_record, 1);
        break;
    case -EBUSY:
        atomic_fetch_add(&run->busy, 1);
        if (run->common.is_verbose && !run->common.is_json)
            kvs_cli_print(block->path, "being written");
        break;
    default:
        atomic_fetch_add(&run->errors, 1);
        kvs_cli_blocks_complain(&run->common, block->path, "sealed", r);
    }
}

static void print_summary(const struct run *run, const struct kvs_cli_sights *sights)
{
    uint64_t errors = atomic_load(&run->errors) + sights->errors + sights->refused;
    char size[KVS_FORMAT_SIZE];

    if (run->common.is_json) {
        kvs_cli_json_print(json_pack(
            "{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "summary",
            run->is_dry ? "would_seal" : "sealed", (json_int_t)atomic_load(&run->sealed), "bytes",
            (json_int_t)atomic_load(&run->bytes), "has_record",
            (json_int_t)atomic_load(&run->has_record), "busy", (json_int_t)atomic_load(&run->busy),
            "gone", (json_int_t)sights->gone, "errors", (json_int_t)errors, "others",
            (json_int_t)sights->others, "mounts", (json_int_t)sights->mounts));
        return;
    }
    kvs_cli_output_begin();
    printf("%llu %s, %s; %llu had a record already", atomic_load(&run->sealed),
           run->is_dry ? "would be sealed" : "sealed",
           kvs_format_size(atomic_load(&run->bytes), size, sizeof(size)),
           atomic_load(&run->has_record));
    if (atomic_load(&run->busy) > 0)
        printf(", %llu being written", atomic_load(&run->busy));
    if (errors > 0)
        printf(", %" PRIu64 " could not be sealed", errors);
    putchar('\n');
    kvs_cli_output_end();
}

static int run_seal(int argc, char **argv)
{
    static const struct option options[] = {KVS_CLI_HELP,
                                            KVS_CLI_JSON,
                                            KVS_CLI_JOBS,
                                            KVS_CLI_VERBOSE,
                                            {"dry-run", no_argument, NULL, 'n'},
                                            {0}};
    struct run run = {0};
    struct kvs_cli_blocks blocks = {.common = &run.common, .work = seal_block, .context = &run};
    struct kvs_cli_sights sights;

    while (kvs_cli_next_option(&kvs_cmd_seal, &run.common, argc, argv, options) == 'n')
        run.is_dry = true;
    if (optind == argc)
        kvs_cli_fail_usage(&kvs_cmd_seal, "no file or directory is given");
    if (kvs_cli_blocks_run(&blocks, argv + optind, &sights) < 0) {
        fputs("kvseal: out of memory, or of threads: try fewer --jobs\n", stderr);
        return KVS_CLI_ERROR;
    }
    print_summary(&run, &sights);
    return kvs_cli_finish(
        atomic_load(&run.errors) + sights.errors + sights.refused > 0 ? KVS_CLI_ERROR : KVS_CLI_OK);
}

const struct kvs_cli_command kvs_cmd_seal = {
    .name = "seal",
    .operands = "[OPTION...] PATH...",
    .summary = "gives records to blocks that have none",
    .help =
        "  -n, --dry-run   say what would be sealed, and seal nothing\n"
        "  -v, --verbose   list every block that is sealed\n"
        "  -j, --jobs N    threads (default: one a CPU, at least two)\n"
        "      --json      one JSON object a line\n"
        "\n"
        "A block that has a record is left alone, whatever the record says.\n"
        "Exit status: 0 all is done, 2 not everything could be sealed.\n",
    .is_apart = true,
    .run = run_seal,
};
