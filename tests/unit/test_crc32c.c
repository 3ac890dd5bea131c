// SPDX-License-Identifier: Apache-2.0
// CRC32C: vectors, every length and alignment, page ends, joined sums, speed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/crc32c_lanes.h"
#include "tests/unit/random.h"

#define MAX_LEN 4096

#ifndef __has_feature /* clang's way to tell */
#define __has_feature(feature) 0
#endif
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&    \
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define SPEED_COUNTS 1
#else
#define SPEED_COUNTS 0
#endif

typedef uint32_t crc_function(uint32_t crc, const void *data, size_t len);

/* Also on CPUs where kvs_crc32c has something better. */
static uint32_t sum_by_lanes(uint32_t crc, const void *data, size_t len)
{
    size_t done = kvs_crc32c_lanes_work() ? kvs_crc32c_lanes(&crc, data, len) : 0;

    return kvs_crc32c_portable(crc, (const char *)data + done, len - done);
}

/* Every implementation passes the same tests. */
static const struct {
    const char *name;
    crc_function *sum;
} implementations[] = {
    {"kvs_crc32c", kvs_crc32c},
    {"kvs_crc32c_portable", kvs_crc32c_portable},
    {"kvs_crc32c_lanes", sum_by_lanes},
};

#define FOR_EACH(i)                                                                                \
    for (size_t i = 0; i < sizeof(implementations) / sizeof(implementations[0]); i++)

static void fill_random(unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)(next_random() >> 32);
}

/* The definition, a bit at a time. */
static uint32_t sum_bitwise(uint32_t crc, unsigned char byte)
{
    crc = ~crc ^ byte;
    for (int bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    return ~crc;
}

/* The straightforward table that the portable code has to beat. */
static uint32_t sum_bytewise(uint32_t crc, const unsigned char *p, size_t len)
{
    static uint32_t table[256];

    for (uint32_t byte = 0; table[255] == 0 && byte < 256; byte++)
        table[byte] = ~sum_bitwise(~0u, (unsigned char)byte);
    crc = ~crc;
    for (; len > 0; p++, len--)
        crc = crc >> 8 ^ table[(crc ^ *p) & 0xff];
    return ~crc;
}

/* A page-aligned buffer between two pages that must not be touched. */
static unsigned char *map_guarded(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = mmap(NULL, len + 2 * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(map + page + len, page, PROT_NONE), 0);
    return map + page;
}

static void unmap_guarded(unsigned char *data, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    assert_int_equal(munmap(data - page, len + 2 * page), 0);
}

static void c06_vectors(void **state)
{
    unsigned char zeros[32] = {0};
    unsigned char ones[32];
    unsigned char rising[32];
    unsigned char falling[32];
    /* RFC 3720, B.4: an iSCSI SCSI Read (10) command */
    static const unsigned char command[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    const struct {
        const void *data;
        size_t len;
        uint32_t crc;
    } vectors[] = {
        {"", 0, 0},
        {"a", 1, 0xC1D04330},
        {"123456789", 9, 0xE3069283},
        {zeros, 32, 0x8A9136AA},
        {ones, 32, 0x62A8AB43},
        {rising, 32, 0x46DD794E},
        {falling, 32, 0x113FDB5C},
        {command, 48, 0xD9963A56},
    };

    memset(ones, 0xff, sizeof(ones));
    for (int i = 0; i < 32; i++) {
        rising[i] = (unsigned char)i;
        falling[i] = (unsigned char)(31 - i);
    }
    print_message("kvs_crc32c is %s\n", kvs_crc32c_name());
    FOR_EACH(i)
    {
        for (size_t v = 0; v < sizeof(vectors) / sizeof(vectors[0]); v++)
            assert_int_equal(implementations[i].sum(0, vectors[v].data, vectors[v].len),
                             vectors[v].crc);
    }
}

/* One buffer a start, so the reference grows by one byte for every length. */
static void c06_every_length_at_every_alignment(void **state)
{
    unsigned char *data = map_guarded(2 * MAX_LEN);

    fill_random(data, 2 * MAX_LEN);
    for (size_t alignment = 0; alignment < 64; alignment++) {
        const unsigned char *start = data + alignment;
        uint32_t reference = 0;

        for (size_t len = 0; len <= MAX_LEN; len++) {
            if (len > 0)
                reference = sum_bitwise(reference, start[len - 1]);
            FOR_EACH(i)
            {
                if (implementations[i].sum(0, start, len) != reference)
                    fail_msg("%s: %zu bytes at alignment %zu", implementations[i].name, len,
                             alignment);
            }
        }
    }
    unmap_guarded(data, 2 * MAX_LEN);
}

/* A buffer that ends, or begins, at the edge of the address space we have. */
static void c06_no_byte_outside_is_read(void **state)
{
    unsigned char *data = map_guarded(MAX_LEN);

    fill_random(data, MAX_LEN);
    for (size_t len = 0; len <= MAX_LEN; len++) {
        uint32_t first = sum_bytewise(0, data, len);
        uint32_t last = sum_bytewise(0, data + MAX_LEN - len, len);

        FOR_EACH(i)
        {
            assert_int_equal(implementations[i].sum(0, data, len), first);
            assert_int_equal(implementations[i].sum(0, data + MAX_LEN - len, len), last);
        }
    }
    unmap_guarded(data, MAX_LEN);
}

/* Where one lane, and one round of them, ends and the next begins; where prefetching does. */
static void c06_lengths_around_the_lanes(void **state)
{
    enum { KIB = 1024, MOST = 1100 * KIB };
    static const size_t lengths[] = {6 * KIB,   8 * KIB,   16 * KIB,  48 * KIB,  64 * KIB,
                                     65 * KIB,  128 * KIB, 192 * KIB, 256 * KIB, 320 * KIB,
                                     500 * KIB, 512 * KIB, 576 * KIB, 1024 * KIB};
    unsigned char *data = map_guarded(MOST);

    fill_random(data, MOST);
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (int delta = -9; delta <= 9; delta++) {
            size_t len = lengths[l] + (size_t)delta;
            const unsigned char *last = data + MOST - len; /* every alignment */
            uint32_t crc = (uint32_t)next_random();
            uint32_t reference = sum_bytewise(crc, last, len);

            FOR_EACH(i)
            {
                if (implementations[i].sum(crc, last, len) != reference)
                    fail_msg("%s: %zu bytes", implementations[i].name, len);
            }
        }
    }
    unmap_guarded(data, MOST);
}

static void c06_lanes_take_all_they_can(void **state)
{
    static const unsigned char data[3 * KVS_CRC32C_LANES_LEAST];
    uint32_t crc = 0;

    if (!kvs_crc32c_lanes_work()) {
        print_message("this CPU has no CRC32 instruction\n");
        skip();
    }
    assert_int_equal(kvs_crc32c_lanes(&crc, data, KVS_CRC32C_LANES_LEAST - 1), 0);
    assert_int_equal(crc, 0);
    assert_int_equal(kvs_crc32c_lanes(&crc, data, sizeof(data) - 1), 2 * KVS_CRC32C_LANES_LEAST);
    assert_int_equal(crc, kvs_crc32c_zeros(2 * KVS_CRC32C_LANES_LEAST));
}

static void c06_sums_run_on(void **state)
{
    unsigned char data[1024];

    fill_random(data, sizeof(data));
    FOR_EACH(i)
    {
        uint32_t whole = implementations[i].sum(0, data, sizeof(data));

        for (size_t cut = 0; cut <= sizeof(data); cut++) {
            uint32_t crc = implementations[i].sum(0, data, cut);

            crc = implementations[i].sum(crc, data + cut, sizeof(data) - cut);
            assert_int_equal(crc, whole);
        }
    }
}

/* ISA-L counts in int: 2 GiB + 7 bytes, all of them one page of zeros. */
static void c06_more_than_an_int_of_bytes(void **state)
{
    size_t len = ((size_t)2 << 30) + 7;
    void *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_true(data != MAP_FAILED);
    assert_int_equal(kvs_crc32c(0, data, len), kvs_crc32c_zeros(len));
    munmap(data, len);
}

static void c06_combine_equals_direct(void **state)
{
    static unsigned char data[65536];
    static uint32_t prefix[sizeof(data) + 1];

    fill_random(data, sizeof(data));
    for (size_t i = 0; i < sizeof(data); i++)
        prefix[i + 1] = sum_bytewise(prefix[i], &data[i], 1);
    for (int round = 0; round < 100000; round++) {
        size_t end = next_random() % (sizeof(data) + 1);
        size_t cut = next_random() % (end + 1);
        uint32_t right = kvs_crc32c(0, data + cut, end - cut);

        assert_int_equal(kvs_crc32c_combine(prefix[cut], right, end - cut), prefix[end]);
    }
}

static void c06_combine_of_lengths_no_buffer_has(void **state)
{
    assert_int_equal(kvs_crc32c_combine(0, 0x12345678, 1), 0x12345678);
    assert_int_equal(kvs_crc32c_combine(0x12345678, 0, 0), 0x12345678);
    for (int round = 0; round < 1000; round++) {
        uint32_t a = (uint32_t)next_random();
        uint32_t b = (uint32_t)next_random();
        uint32_t c = (uint32_t)next_random();
        uint64_t len_b = next_random() >> (1 + next_random() % 60);
        uint64_t len_c = next_random() >> (1 + next_random() % 60);
        uint32_t left = kvs_crc32c_combine(kvs_crc32c_combine(a, b, len_b), c, len_c);
        uint32_t right = kvs_crc32c_combine(a, kvs_crc32c_combine(b, c, len_c), len_b + len_c);

        assert_int_equal(left, right);
    }
}

static void c06_zeros_equal_direct(void **state)
{
    static const unsigned char data[MAX_LEN];

    for (size_t len = 0; len <= MAX_LEN; len++)
        assert_int_equal(kvs_crc32c_zeros(len), kvs_crc32c(0, data, len));
    for (int round = 0; round < 1000; round++) {
        uint64_t a = next_random() >> (1 + next_random() % 60);
        uint64_t b = next_random() >> (1 + next_random() % 60);

        assert_int_equal(kvs_crc32c_combine(kvs_crc32c_zeros(a), kvs_crc32c_zeros(b), b),
                         kvs_crc32c_zeros(a + b));
    }
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The best of a few runs each. On a busy machine they get better with the rounds, never worse. */
static void c06_portable_is_three_times_a_byte_table(void **state)
{
    static unsigned char data[65536];
    double bytewise = 1e9;
    double sliced = 1e9;

    if (!SPEED_COUNTS) {
        print_message("not measured: this build is not optimised, or instrumented\n");
        skip();
    }
    fill_random(data, sizeof(data));
    for (int round = 0; round < 5000; round++) {
        double start = seconds_now();
        uint32_t reference = sum_bytewise(0, data, sizeof(data));
        double between = seconds_now();
        uint32_t sum = kvs_crc32c_portable(0, data, sizeof(data));
        double end = seconds_now();

        assert_int_equal(sum, reference);
        bytewise = between - start < bytewise ? between - start : bytewise;
        sliced = end - between < sliced ? end - between : sliced;
        if (round >= 50 && bytewise >= 3 * sliced)
            break;
    }
    print_message("portable: %.1f GB/s, %.1f times one byte-wise table\n",
                  sizeof(data) / sliced / 1e9, bytewise / sliced);
    assert_true(bytewise >= 3 * sliced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c06_vectors),
        cmocka_unit_test(c06_every_length_at_every_alignment),
        cmocka_unit_test(c06_no_byte_outside_is_read),
        cmocka_unit_test(c06_lengths_around_the_lanes),
        cmocka_unit_test(c06_lanes_take_all_they_can),
        cmocka_unit_test(c06_sums_run_on),
        cmocka_unit_test(c06_more_than_an_int_of_bytes),
        cmocka_unit_test(c06_combine_equals_direct),
        cmocka_unit_test(c06_combine_of_lengths_no_buffer_has),
        cmocka_unit_test(c06_zeros_equal_direct),
        cmocka_unit_test(c06_portable_is_three_times_a_byte_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
