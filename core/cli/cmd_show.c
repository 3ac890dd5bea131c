// SPDX-License-Identifier: Apache-2.0
// kvseal show: the record, the sum of the content, and the size.
#include "core/cli/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static enum kvs_cli_status show_file(struct kvs_cli_file *file)
{
    struct kvs_record record = {0};
    struct stat st = {0};
    char shown[sizeof("malformed")] = "none";
    uint32_t crc = 0;
    int r = fstat(file->fd, &st) < 0 ? -errno : kvs_record_read(file->fd, &record);

    if (r == 0)
        r = kvs_sum_agreed(file->fd, 0, (uint64_t)st.st_size, file->reading.memory,
                           file->reading.capacity, &crc);
    if (r < 0)
        return kvs_cli_complain(file->name, "read", r);
    if (record.kind == KVS_RECORD_SUM)
        snprintf(shown, sizeof(shown), "%08" PRIx32, record.crc);
    else if (record.kind == KVS_RECORD_MALFORMED)
        snprintf(shown, sizeof(shown), "malformed");
    printf("%s: record %s, computed %08" PRIx32 ", size %jd\n", file->name, shown, crc,
           (intmax_t)st.st_size);
    return KVS_CLI_OK;
}

static int run(int argc, char **argv)
{
    return kvs_cli_run_on_files(&kvs_cmd_show, show_file, argc, argv);
}

const struct kvs_cli_command kvs_cmd_show = {
    .name = "show",
    .operands = "FILE...",
    .summary = "prints record, computed sum and size of files",
    .help = "",
    .run = run,
};
