// SPDX-License-Identifier: Apache-2.0
// What real clients call on a cache directory, one function for each sequence.
#ifndef KVSEAL_TESTS_CLIENTS_CLIENT_H
#define KVSEAL_TESTS_CLIENTS_CLIENT_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Content follows from a seed, so a load checks every byte that it got against the seed that was
 * stored. Every sequence returns 0, a -errno that a system call gave, or one of these two:
 */
#define CLIENT_WRONG_BYTES (-EILSEQ)   /* the load succeeded with bytes that were not stored */
#define CLIENT_SHORT_READ  (-EMSGSIZE) /* fewer bytes than asked for */

enum client_flag {
    CLIENT_DIRECT = 1 << 0, /* O_DIRECT */
    CLIENT_CRC = 1 << 1,    /* vLLM's own checksum_blocks */
    CLIENT_URING = 1 << 2,  /* NIXL: io_uring instead of libaio */
};

/* `root` exists; `key` has at least five characters, as a hash in hex has. */
typedef int client_sequence(const char *root, const char *key, size_t size, uint64_t seed,
                            unsigned flags);

/*
 * vLLM's fs tier and its pull request 57912. The probe takes no key, size and seed; a lookup only a
 * key. A store of a key that exists does nothing and returns 0. A load unlinks the block when it is
 * shorter than `size` and, with CLIENT_CRC, when its record is not its sum: that is -EBADMSG.
 */
client_sequence client_vllm_probe_direct;
client_sequence client_vllm_probe_xattr;
client_sequence client_vllm_store;
client_sequence client_vllm_load;
client_sequence client_vllm_lookup;

/* llm-d: renames while the file is open. Its load reads the last `size` bytes of the file. */
client_sequence client_llmd_store;
client_sequence client_llmd_load;
client_sequence client_llmd_lookup;

/* LMCache: fs (two threads store one key through one temporary name), LocalDisk, GDS by mmap. */
client_sequence client_lmcache_fs_store;
client_sequence client_lmcache_fs_load;
client_sequence client_lmcache_disk_store;
client_sequence client_lmcache_disk_load;
client_sequence client_lmcache_gds_store;
client_sequence client_lmcache_gds_load; /* a page that cannot be read is a SIGBUS, as there */

/* SGLang: HiCacheFile, and HiCacheNixl, which works on the final name in place. */
client_sequence client_sglang_store;
client_sequence client_sglang_load;
client_sequence client_nixl_store;
client_sequence client_nixl_load; /* a short read is wrong bytes: NIXL does not look */

/* Whether this machine lets us use io_uring. */
bool client_has_uring(void);

/* A fork of vLLM: link + unlink instead of rename; and an O_TMPFILE that gets a name. */
client_sequence client_link_store;
client_sequence client_link_tmpfile_store;

/*
 * Slot files of `size` bytes in slots of CLIENT_SLOT, `size` a multiple of that. A run makes the
 * file, rewrites random slots and checks them all; a check does the last step alone. The first
 * kind is vLLM's, the second Dynamo's (O_DIRECT set later, fallocate).
 */
#define CLIENT_SLOT ((size_t)65536)
client_sequence client_slots_vllm_run;
client_sequence client_slots_kvbm_run;
client_sequence client_slots_check;

/*
 * Where a client keeps a key. Fanned: vLLM, llm-d and link (".bin"), NIXL (".bin"), LMCache GDS
 * (".kvcache.safetensors"). Flat: LMCache fs (".data") and LocalDisk (".pt"), SGLang (".bin"),
 * slots
 * (".slots"). 0, -EINVAL for a short key, or -ENAMETOOLONG.
 */
int client_fanned_path(char path_ret[PATH_MAX], const char *root, const char *key,
                       const char *suffix);
int client_flat_path(char path_ret[PATH_MAX], const char *root, const char *key,
                     const char *suffix);

/* ---- what the sequences share ---- */

/* The content from `offset` on of the file that `seed` stands for. */
void client_fill(void *data, size_t size, uint64_t offset, uint64_t seed);

/* 0 or CLIENT_WRONG_BYTES. */
int client_check(const void *data, size_t size, uint64_t offset, uint64_t seed);

/* Page-aligned memory of zeros, or NULL. The caller frees it. */
void *client_make_buffer(size_t size);

/* The same, filled with content from offset 0. */
void *client_make_block(size_t size, uint64_t seed);

/* Plain C, so that it is no relation of the sums under test. */
uint32_t client_crc32c(const void *data, size_t size);

/* Looks upwards for a directory that exists, then makes those below it. 0 or -errno. */
int client_make_parents(const char *path);

/* One write(2). 0, -errno, or -EIO when it was short. */
int client_write_once(int fd, const void *data, size_t size);

/* One read(2). 0, -errno or CLIENT_SHORT_READ. */
int client_read_once(int fd, void *data, size_t size);

/* Closes and reports it: 0 or -errno. `fd` is -1 afterwards. */
int client_close(int *fd);

uint64_t client_random(void);

/* Opens a file and checks that it is `size` bytes of `seed`, read by one read(2). */
int client_load_whole(const char *path, int open_flags, size_t size, uint64_t seed);

#endif
