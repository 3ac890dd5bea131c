// SPDX-License-Identifier: Apache-2.0
// Lines of JSON.
#include "core/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/progress.h"
#include "core/util.h"

/* RFC 4648. `encoded`: room for 4 * ((size + 2) / 3) + 1. */
static void encode_base64(const unsigned char *bytes, size_t size, char *encoded)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < size; i += 3) {
        size_t count = KVS_MIN(size - i, 3);
        uint32_t group = 0;

        for (size_t k = 0; k < 3; k++)
            group = group << 8 | (k < count ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *encoded++ = k <= count ? digits[group >> (18 - 6 * k) & 63] : '=';
    }
    *encoded = '\0';
}

void kvs_cli_json_set_path(json_t *object, const char *key, const char *path)
{
    json_t *text = json_string(path); /* NULL when it is not UTF-8 */
    kvs_cleanup_free char *encoded = NULL;
    char other_key[64];
    size_t size = strlen(path);

    if (text != NULL) {
        json_object_set_new(object, key, text);
        return;
    }
    encoded = malloc(4 * ((size + 2) / 3) + 1);
    if (encoded == NULL)
        return;
    encode_base64((const unsigned char *)path, size, encoded);
    snprintf(other_key, sizeof(other_key), "%s_base64", key);
    json_object_set_new(object, other_key, json_string(encoded));
}

json_t *kvs_cli_json_sum(uint32_t crc)
{
    return json_sprintf("%08" PRIx32, crc);
}

void kvs_cli_json_print(json_t *object)
{
    kvs_cleanup_free char *line = json_dumps(object, JSON_COMPACT);

    json_decref(object);
    if (line == NULL) {
        fputs("kvseal: out of memory\n", stderr);
        exit(KVS_CLI_ERROR); /* a line that is missing would be a wrong answer */
    }
    kvs_cli_output_begin();
    fprintf(stdout, "%s\n", line);
    kvs_cli_output_end();
}
