// SPDX-License-Identifier: Apache-2.0
// CRC32C in plain C, sixteen bytes a step ("slicing by 16").
#include "core/crc32c.h"

#include <endian.h>
#include <string.h>

#define POLYNOMIAL 0x82F63B78u
#define SLICES     16

/*
 * slices[k][b] is what byte b adds to the register when k more bytes follow it. So sixteen bytes
 * need sixteen look-ups that do not wait for each other, instead of a chain of sixteen.
 */
static uint32_t slices[SLICES][256];

/* Before main(), so that no thread can see half a table. */
__attribute__((constructor)) static void fill_slices(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        slices[0][byte] = crc;
    }
    for (int k = 1; k < SLICES; k++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = slices[k - 1][byte];

            slices[k][byte] = crc >> 8 ^ slices[0][crc & 0xff];
        }
    }
}

static uint32_t load_little_endian(const unsigned char *p)
{
    uint32_t word;

    memcpy(&word, p, sizeof(word));
    return le32toh(word);
}

/* What four bytes add when `following` more bytes of the step come after them. */
static uint32_t look_up(uint32_t word, int following)
{
    return slices[following + 3][word & 0xff] ^ slices[following + 2][word >> 8 & 0xff] ^
           slices[following + 1][word >> 16 & 0xff] ^ slices[following][word >> 24];
}

uint32_t kvs_crc32c_portable(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *p = data;

    crc = ~crc;
    for (; len >= SLICES; p += SLICES, len -= SLICES) {
        crc = look_up(crc ^ load_little_endian(p), 12) ^ look_up(load_little_endian(p + 4), 8) ^
              look_up(load_little_endian(p + 8), 4) ^ look_up(load_little_endian(p + 12), 0);
    }
    for (; len > 0; p++, len--)
        crc = crc >> 8 ^ slices[0][(crc ^ *p) & 0xff];
    return ~crc;
}
