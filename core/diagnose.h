// SPDX-License-Identifier: Apache-2.0
// What a mismatch looks like: hints at what may have happened to a block, never proofs.
//
// CRC32C is linear: record xor computed sum depends on the damage alone, not on the content. The
// sum of one flipped bit is a power of x modulo P, a different one for each place in a block of up
// to 256 MiB; so if one bit is flipped, this tells which. But any damage may by chance have the sum
// of some flipped bit: for a block of n bytes one in 2^32 / 8n does (`chance`). Two flipped bits
// never have, nor any even number of them: P is divisible by x + 1.
#ifndef KVSEAL_CORE_DIAGNOSE_H
#define KVSEAL_CORE_DIAGNOSE_H

#include <stdbool.h>
#include <stdint.h>

/* A block that does not match its record: the record's sum, that of its content, its bytes, and how
 * many of the last ones are zero (kvs_diagnose_zeros()). */
struct kvs_mismatch {
    uint32_t recorded, computed;
    uint64_t size, zeros;
};

/* The least number of zero bytes at the end that is worth a hint. */
#define KVS_DIAGNOSE_LEAST_ZEROS 64
#define KVS_DIAGNOSE_PAGE        4096

struct kvs_diagnosis {
    bool is_one_bit; /* consistent with bit `bit` (0: least significant) of byte `byte` flipped */
    uint64_t byte;
    unsigned bit;
    double chance; /* that other damage looks so, 0 ... 1 */

    bool is_record_swapped;  /* the record has its four bytes in the other order */
    bool is_record_inverted; /* the record lacks the final inversion */

    bool is_extended; /* the first `true_size` bytes match: zeros were appended */
    uint64_t true_size;

    bool is_empty;       /* nothing is left */
    bool is_tail_zero;   /* zeros from `zeros_from` to the end; not proven by the sum */
    uint64_t zeros_from; /* < size; 0: all is zero */
    bool
        is_page_granular; /* and that is the beginning of a page. (A page that was never written may
                             have zeros of the content's own before it: these are not counted) */
};

/* recorded != computed. O(size) steps of some nanoseconds for one bit; reads nothing. */
void kvs_diagnose(const struct kvs_mismatch *mismatch, struct kvs_diagnosis *diagnosis_ret);

/* How many of the last of `size` bytes are zero, from 0 to `size`; `scratch`: KVS_IO_ALIGN-aligned,
 * KVS_PIECE_SIZE bytes. Reads from the end as far as it is zero. 0, or -errno of pread. */
int kvs_diagnose_zeros(int fd, uint64_t size, void *scratch, uint64_t *zeros_ret);

/* What the other blocks of its directory tell about a block. Names of up to 255 bytes, "" for none.
 */
struct kvs_neighbours {
    char same_record[256];  /* has the record that this block has */
    char same_content[256]; /* has a record that this block's content matches */
    uint64_t larger_size; /* the size of most sealed neighbours, if this block is smaller; else 0 */
};

/* Looks at the records and sizes of the other regular files in the directory, up to `most` of them.
 * 0 or -errno of reading the directory; files that cannot be looked at are left out. `dir_fd`: open
 * for reading; `name` is left out. */
int kvs_diagnose_neighbours(int dir_fd, const char *name, const struct kvs_mismatch *mismatch,
                            unsigned most, struct kvs_neighbours *neighbours_ret);

#endif
