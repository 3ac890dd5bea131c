// SPDX-License-Identifier: Apache-2.0
// Counts, and puts them into words.
#include "core/cli/tally.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/cli/progress.h"
#include "core/format.h"

static const struct {
    const char *word, *key;
} findings[KVS_FINDINGS] = {
    [KVS_FOUND_INTACT] = {"intact", "intact"},
    [KVS_FOUND_TRANSIENT] = {"transient", "transient"},
    [KVS_FOUND_UNSEALED] = {"unsealed", "unsealed"},
    [KVS_FOUND_CORRUPT] = {"corrupt", "corrupt"},
    [KVS_FOUND_BUSY] = {"being written", "busy"},
    [KVS_FOUND_GONE] = {"gone", "gone"},
    [KVS_FOUND_UNSTABLE] = {"unstable", "unstable"},
    [KVS_FOUND_ERROR] = {"not readable", "errors"},
};

const char *kvs_cli_finding_word(enum kvs_finding finding)
{
    return findings[finding].word;
}

void kvs_cli_tally_add(struct kvs_cli_tally *tally, const struct kvs_examination *examination)
{
    atomic_fetch_add(&tally->found[examination->finding], 1);
    if (examination->finding == KVS_FOUND_INTACT || examination->finding == KVS_FOUND_TRANSIENT ||
        examination->finding == KVS_FOUND_CORRUPT)
        atomic_fetch_add(&tally->bytes, examination->verification.size);
}

/* With what the walk met. */
static uint64_t count(const struct kvs_cli_tally *tally, const struct kvs_cli_sights *sights,
                      enum kvs_finding finding)
{
    uint64_t number = atomic_load(&tally->found[finding]);

    if (finding == KVS_FOUND_CORRUPT)
        number += sights->refused;
    if (finding == KVS_FOUND_GONE)
        number += sights->gone;
    if (finding == KVS_FOUND_ERROR)
        number += sights->errors;
    return number;
}

static uint64_t count_all(const struct kvs_cli_tally *tally, const struct kvs_cli_sights *sights)
{
    uint64_t number = 0;

    for (int i = 0; i < KVS_FINDINGS; i++)
        number += count(tally, sights, i);
    return number;
}

static void print_json(const struct kvs_cli_tally *tally, const struct kvs_cli_sights *sights)
{
    json_t *summary = json_object();

    json_object_set_new(summary, "blocks", json_integer((json_int_t)count_all(tally, sights)));
    json_object_set_new(summary, "bytes", json_integer((json_int_t)atomic_load(&tally->bytes)));
    for (int i = 0; i < KVS_FINDINGS; i++)
        json_object_set_new(summary, findings[i].key,
                            json_integer((json_int_t)count(tally, sights, i)));
    json_object_set_new(summary, "others", json_integer((json_int_t)sights->others));
    json_object_set_new(summary, "mounts", json_integer((json_int_t)sights->mounts));
    kvs_cli_json_print(json_pack("{s:o}", "summary", summary));
}

static void print_count(const char **separator, uint64_t number, const char *word)
{
    if (number == 0)
        return;
    printf("%s%" PRIu64 " %s", *separator, number, word);
    *separator = ", ";
}

void kvs_cli_tally_print(const struct kvs_cli_tally *tally, const struct kvs_cli_sights *sights,
                         bool is_json)
{
    uint64_t blocks = count_all(tally, sights);
    char size[KVS_FORMAT_SIZE];
    const char *separator = ": ";

    if (is_json) {
        print_json(tally, sights);
        return;
    }
    kvs_cli_output_begin();
    printf("%" PRIu64 " block%s, %s read", blocks, blocks == 1 ? "" : "s",
           kvs_format_size(atomic_load(&tally->bytes), size, sizeof(size)));
    for (int i = 0; i < KVS_FINDINGS; i++)
        print_count(&separator, count(tally, sights, i), findings[i].word);
    separator = "; left out: ";
    print_count(&separator, sights->others, "not regular");
    print_count(&separator, sights->mounts, "mounted below");
    putchar('\n');
    kvs_cli_output_end();
}

enum kvs_cli_status kvs_cli_tally_status(const struct kvs_cli_tally *tally,
                                         const struct kvs_cli_sights *sights)
{
    if (count(tally, sights, KVS_FOUND_CORRUPT) > 0)
        return KVS_CLI_CORRUPT;
    return count(tally, sights, KVS_FOUND_ERROR) + count(tally, sights, KVS_FOUND_UNSTABLE) > 0
               ? KVS_CLI_ERROR
               : KVS_CLI_OK;
}
