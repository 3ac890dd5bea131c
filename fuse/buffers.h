// SPDX-License-Identifier: Apache-2.0
// Memory for verified blocks and for requests, within one budget (`buffer_memory`).
//
// Buffers are 2 MiB-aligned anonymous mappings (huge pages where the kernel gives them). A quarter
// of the budget is never used for blocks: it is the workers' (receive buffer and scratch), who get
// at most half. Nothing ever waits for memory: who gets no buffer serves pieces (serve.h), so
// waiting can block nobody (C24).
//
// A buffer is taken for a verification, and kept by a handle through a *slot*. A kept buffer that
// nobody has pinned may be dropped whenever memory is wanted, least recently used first: its slot
// becomes NULL.
//
// Where the kernel takes passthrough, buffers are files too (memfd.h), and a kept one can be *lent*
// to it: the kernel then answers reads from that memory by itself. What is lent cannot be dropped,
// nor what was, as long as clients have it mapped; so it is at most half of the memory for blocks.
#ifndef KVSEAL_FUSE_BUFFERS_H
#define KVSEAL_FUSE_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kvs_buffers;

/* Who may have pages of a buffer still, whatever became of his mappings: vmsplice(2) takes them out
 * of these, and nothing tells it. */
enum kvs_borrowers {
    KVS_BORROWED_BY_NOBODY, /* it was never lent */
    KVS_BORROWED_BY_ONE,    /* user: only blocks that he opens come there from now on */
    KVS_BORROWED_BY_MANY,   /* nobody's blocks do */
};

struct kvs_buffer {
    void *memory;    /* aligned to 2 MiB */
    size_t capacity; /* at least what was asked for; a multiple of 2 MiB, of a file of 1 MiB
                      * (small ones: of 4 KiB) */
    int fd;          /* the same memory as a file; or -1 */
    /* While it is lent, mirror.c's: */
    uint64_t lent_size; /* where the file ends */
    bool has_ended;     /* it does not grow any more */
    /* The rest is used by buffers.c alone, protected by its lock. */
    bool was_lent; /* to be reclaimed before it is used again */
    enum kvs_borrowers borrowers;
    uid_t borrower; /* if that is one */
    unsigned pins;
    struct kvs_buffer **slot;
    struct kvs_buffer *previous, *next;
    int64_t freed_at_ms;
};

/* 0 or -ENOMEM. A helper thread gives unused memory back to the system some seconds after its last
 * use, but for 16 MiB. */
int kvs_buffers_create(uint64_t budget, struct kvs_buffers **buffers_ret);
void kvs_buffers_destroy(struct kvs_buffers *buffers);

/* A buffer with room for `size`, pinned once, for a block that `user` opens; or NULL when the
 * budget has no room even after dropping every kept, unpinned buffer. */
struct kvs_buffer *kvs_buffer_take(struct kvs_buffers *buffers, size_t size, uid_t user);

/* Keeps a pinned buffer in *slot and unpins it. *slot must be NULL before. */
void kvs_buffer_keep(struct kvs_buffers *buffers, struct kvs_buffer *buffer,
                     struct kvs_buffer **slot);

/* The buffer that *slot keeps, pinned; or NULL when it was dropped or given up. */
struct kvs_buffer *kvs_buffer_pin(struct kvs_buffers *buffers, struct kvs_buffer **slot);

/* Ends a pin. A buffer without slot and pins is free again. */
void kvs_buffer_unpin(struct kvs_buffers *buffers, struct kvs_buffer *buffer);

/* Gives up what *slot keeps (if anything): *slot is NULL afterwards; readers that pinned it finish.
 */
void kvs_buffer_give_up(struct kvs_buffers *buffers, struct kvs_buffer **slot);

/* From now on new buffers can be lent. */
void kvs_buffers_make_lendable(struct kvs_buffers *buffers);

/* Pins what *slot keeps until kvs_buffer_unpin(); its file then has `size` bytes. NULL: it was
 * dropped, it is no file, it was lent before, or too much is lent. */
struct kvs_buffer *kvs_buffer_lend(struct kvs_buffers *buffers, struct kvs_buffer **slot,
                                   size_t size, uid_t user);
/* `user` may map what is lent, too. */
void kvs_buffer_lend_also(struct kvs_buffers *buffers, struct kvs_buffer *buffer, uid_t user);

/* One more pin of a buffer that has one. */
void kvs_buffer_share(struct kvs_buffers *buffers, struct kvs_buffer *buffer);

/* Anonymous memory, aligned to 2 MiB, in huge pages where the kernel gives them and `size` has room
 * for one; munmap() gives it back. NULL: none. */
void *kvs_buffers_map(size_t size);

/* For the workers: counts `size` bytes in or out of the budget. False: no room, or half is theirs.
 */
bool kvs_buffers_reserve(struct kvs_buffers *buffers, size_t size);
void kvs_buffers_unreserve(struct kvs_buffers *buffers, size_t size);

/* Bytes counted now, for tests and status. */
uint64_t kvs_buffers_used(struct kvs_buffers *buffers);

#endif
