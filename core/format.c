// SPDX-License-Identifier: Apache-2.0
// Writes sizes and durations.
#include "core/format.h"

#include <inttypes.h>
#include <stdio.h>

#define MINUTE ((uint64_t)60)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

char *kvs_format_duration(uint64_t seconds, char *text, size_t size)
{
    if (seconds >= DAY)
        snprintf(text, size, "%" PRIu64 " d %" PRIu64 " h", seconds / DAY, seconds % DAY / HOUR);
    else if (seconds >= HOUR)
        snprintf(text, size, "%" PRIu64 " h %" PRIu64 " min", seconds / HOUR,
                 seconds % HOUR / MINUTE);
    else if (seconds >= MINUTE)
        snprintf(text, size, "%" PRIu64 " min %" PRIu64 " s", seconds / MINUTE, seconds % MINUTE);
    else
        snprintf(text, size, "%" PRIu64 " s", seconds);
    return text;
}

char *kvs_format_size(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;

    /* From 999.5 on it would take four digits. */
    for (; value >= 999.5 && unit < 6; unit++)
        value /= 1024;
    if (unit == 0)
        snprintf(text, size, "%" PRIu64 " B", bytes);
    else
        snprintf(text, size, "%.*f %s",
                 value >= 99.95   ? 0
                 : value >= 9.995 ? 1
                                  : 2,
                 value, units[unit]);
    return text;
}
