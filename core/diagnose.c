// SPDX-License-Identifier: Apache-2.0
// Steps the CRC register back from the end of the block until the difference is one flipped bit.
#include "core/diagnose.h"

#include <byteswap.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/record.h"
#include "core/util.h"
#include "core/verify.h"

#define POLYNOMIAL 0x82F63B78u /* see core/crc32c.h */

/* Before a page that was zeroed: the content may well end so by itself. */
#define OWN_ZEROS 16

/* ---- one flipped bit ---- */

/*
 * A zero byte takes the register r to r >> 8 ^ step[r & 0xff] (that is r * x^8 mod P). The top
 * bytes of the 256 steps are all different, so the top byte of the result tells which it was: that
 * is the way back. `step_of` and `index_of` hold the two halves.
 */
static uint32_t step_of[256];
static uint8_t index_of[256];

/* Before main(), so that no thread can see half a table. By itself: constructors have no order. */
__attribute__((constructor)) static void fill_steps(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t step = byte;

        for (int bit = 0; bit < 8; bit++)
            step = step >> 1 ^ (step & 1 ? POLYNOMIAL : 0);
        step_of[byte] = step;
        index_of[step >> 24] = (uint8_t)byte;
    }
}

/* The register before a zero byte, from the one after it. */
static uint32_t step_back(uint32_t reg)
{
    uint8_t index = index_of[reg >> 24];

    return (reg ^ step_of[index]) << 8 | index;
}

/* A flipped bit in the last byte steps back to that bit alone, in the lowest byte. */
static bool find_bit(const struct kvs_mismatch *mismatch, struct kvs_diagnosis *diagnosis)
{
    uint32_t reg = mismatch->recorded ^ mismatch->computed;

    for (uint64_t left = mismatch->size; left > 0; left--) {
        reg = step_back(reg);
        if (reg < 256 && (reg & (reg - 1)) == 0 && reg != 0) {
            diagnosis->byte = left - 1;
            diagnosis->bit = (unsigned)__builtin_ctz(reg);
            return true;
        }
    }
    return false;
}

/* ---- zeros at the end ---- */

/* The longest content without some of the zeros that matches. */
static bool find_true_size(const struct kvs_mismatch *mismatch, uint64_t *size_ret)
{
    uint32_t reg = ~mismatch->computed;

    for (uint64_t taken = 1; taken <= mismatch->zeros; taken++) {
        reg = step_back(reg);
        if (~reg == mismatch->recorded) {
            *size_ret = mismatch->size - taken;
            return true;
        }
    }
    return false;
}

static void look_at_tail(const struct kvs_mismatch *mismatch, struct kvs_diagnosis *diagnosis)
{
    uint64_t from = mismatch->size - mismatch->zeros;
    uint64_t page = KVS_ALIGN_UP(from, (uint64_t)KVS_DIAGNOSE_PAGE);

    diagnosis->is_empty = mismatch->size == 0;
    diagnosis->is_tail_zero = mismatch->zeros >= KVS_DIAGNOSE_LEAST_ZEROS ||
                              (mismatch->size > 0 && mismatch->zeros == mismatch->size);
    diagnosis->is_page_granular = diagnosis->is_tail_zero && page < mismatch->size &&
                                  page - from < OWN_ZEROS;
    diagnosis->zeros_from = diagnosis->is_page_granular ? page : from;
}

void kvs_diagnose(const struct kvs_mismatch *mismatch, struct kvs_diagnosis *diagnosis_ret)
{
    *diagnosis_ret = (struct kvs_diagnosis){
        .chance = KVS_MIN(8.0 * (double)mismatch->size / 4294967296.0, 1.0),
        .is_record_swapped = bswap_32(mismatch->recorded) == mismatch->computed,
        .is_record_inverted = ~mismatch->recorded == mismatch->computed,
    };
    diagnosis_ret->is_one_bit = find_bit(mismatch, diagnosis_ret);
    diagnosis_ret->is_extended = find_true_size(mismatch, &diagnosis_ret->true_size);
    look_at_tail(mismatch, diagnosis_ret);
}

/* Of `len` bytes, how many of the last ones are zero. */
static size_t count_zeros(const unsigned char *bytes, size_t len)
{
    size_t zeros = 0;

    while (zeros < len && bytes[len - 1 - zeros] == 0)
        zeros++;
    return zeros;
}

int kvs_diagnose_zeros(int fd, uint64_t size, void *scratch, uint64_t *zeros_ret)
{
    uint64_t end = size;

    *zeros_ret = 0;
    while (end > 0) {
        uint64_t start = KVS_ALIGN_DOWN(end - 1, (uint64_t)KVS_PIECE_SIZE);
        size_t len = (size_t)(end - start), got = 0;
        int r = kvs_read_range(fd, scratch, start, len, &got);

        if (r < 0 || got < len)
            return r;
        size_t zeros = count_zeros(scratch, len);
        *zeros_ret += zeros;
        if (zeros < len)
            break;
        end = start;
    }
    return 0;
}

/* ---- neighbours ---- */

/* The size that most of the sealed neighbours have, by majority vote in one pass. */
struct vote {
    uint64_t size;
    unsigned lead;
};

static void count_vote(struct vote *vote, uint64_t size)
{
    if (vote->lead == 0)
        vote->size = size;
    if (vote->size == size)
        vote->lead++;
    else
        vote->lead--;
}

/* Looks at one file, without opening it: it may be any kind of thing. */
static bool look_at(int dir_fd, const char *name, struct stat *st_ret,
                    struct kvs_record *record_ret)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
    kvs_cleanup_fd int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    uint8_t bytes[KVS_RECORD_SIZE + 1];

    if (fd < 0 || fstat(fd, st_ret) < 0 || !S_ISREG(st_ret->st_mode))
        return false;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t len = getxattr(path, KVS_RECORD_NAME, bytes, sizeof(bytes));
    if (len < 0)
        return false;
    *record_ret = kvs_record_decode(bytes, (size_t)len);
    return record_ret->kind == KVS_RECORD_SUM;
}

static void compare(const struct kvs_mismatch *mismatch, const char *name, uint32_t crc,
                    uint64_t size, struct kvs_neighbours *neighbours)
{
    if (crc == mismatch->recorded && neighbours->same_record[0] == '\0')
        snprintf(neighbours->same_record, sizeof(neighbours->same_record), "%s", name);
    if (crc == mismatch->computed && size == mismatch->size && neighbours->same_content[0] == '\0')
        snprintf(neighbours->same_content, sizeof(neighbours->same_content), "%s", name);
}

static void look_at_all(DIR *directory, const char *name, const struct kvs_mismatch *mismatch,
                        unsigned most, struct kvs_neighbours *neighbours)
{
    struct dirent *entry = NULL;
    struct vote vote = {0};

    while (most > 0 && (entry = readdir(directory)) != NULL) {
        struct kvs_record record;
        struct stat st;

        if (strcmp(entry->d_name, name) == 0 ||
            !look_at(dirfd(directory), entry->d_name, &st, &record))
            continue;
        most--;
        compare(mismatch, entry->d_name, record.crc, (uint64_t)st.st_size, neighbours);
        count_vote(&vote, (uint64_t)st.st_size);
    }
    if (vote.lead > 1 && vote.size > mismatch->size)
        neighbours->larger_size = vote.size;
}

int kvs_diagnose_neighbours(int dir_fd, const char *name, const struct kvs_mismatch *mismatch,
                            unsigned most, struct kvs_neighbours *neighbours_ret)
{
    kvs_cleanup_fd int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = NULL;

    *neighbours_ret = (struct kvs_neighbours){0};
    if (fd < 0 || (directory = fdopendir(fd)) == NULL)
        return -errno;
    kvs_steal_fd(&fd); /* closedir() closes it */
    look_at_all(directory, name, mismatch, most, neighbours_ret);
    closedir(directory);
    return 0;
}
