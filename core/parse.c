// SPDX-License-Identifier: Apache-2.0
// Reads numbers with their units, and takes nothing that is not meant.
#include "core/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int kvs_parse_size(const char *text, uint64_t *size_ret)
{
    static const char units[] = "KMGT";
    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long whole = strtoull(text, &end, 10);
    if (errno)
        return -ERANGE;
    double fraction = 0;
    bool has_fraction = end[0] == '.';
    if (has_fraction) {
        double scale = 0.1;
        for (end++; isdigit((unsigned char)*end); end++) {
            fraction += scale * (*end - '0');
            scale /= 10;
        }
    }
    uint64_t unit = 1;
    const char *letter = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (letter) {
        unit <<= 10 * (letter - units + 1);
        end++;
    }
    if (*end || (has_fraction && unit == 1))
        return -EINVAL;
    uint64_t size;
    if (__builtin_mul_overflow((uint64_t)whole, unit, &size) ||
        __builtin_add_overflow(size, (uint64_t)(fraction * (double)unit), &size))
        return -ERANGE;
    *size_ret = size;
    return 0;
}

int kvs_parse_count(const char *text, uint64_t *count_ret)
{
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return -EINVAL;
    errno = 0;
    unsigned long long count = strtoull(text, NULL, 10);
    if (errno)
        return -ERANGE;
    *count_ret = count;
    return 0;
}

int kvs_parse_duration(const char *text, uint64_t *seconds_ret)
{
    static const struct {
        char letter;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    uint64_t unit = 1;
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno)
        return -ERANGE;
    for (size_t i = 0; *end && i < sizeof(units) / sizeof(*units); i++) {
        if (*end == units[i].letter && end[1] == '\0') {
            unit = units[i].seconds;
            end++;
        }
    }
    if (*end)
        return -EINVAL;
    if (number > UINT64_MAX / unit)
        return -ERANGE;
    *seconds_ret = number * unit;
    return 0;
}
