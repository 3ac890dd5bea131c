// SPDX-License-Identifier: Apache-2.0
// kvseal show: the record, the sum of the content, and the size.
#include "core/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum kvs_cli_status kvs_cmd_show(struct kvs_cli_file *file)
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
