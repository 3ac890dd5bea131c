// SPDX-License-Identifier: Apache-2.0
// Makes and knows such names.
#include "core/temporary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define DIGITS 16

int kvs_temporary_make(char name_ret[KVS_TEMPORARY_SIZE], const char *prefix)
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof(random), 0) < 0)
        return -errno;
    snprintf(name_ret, KVS_TEMPORARY_SIZE, "%s%016" PRIx64, prefix, random);
    return 0;
}

bool kvs_temporary_is(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(name, prefix, len) == 0 && strspn(name + len, "0123456789abcdef") == DIGITS &&
           name[len + DIGITS] == '\0';
}
