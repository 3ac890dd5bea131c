// SPDX-License-Identifier: Apache-2.0
// Pins: blocks whose pages are verified in place and locked in memory.
//
// A pin is a mapping of the block's own pages in the page cache. They are summed where they are,
// and stay there, locked, as long as the pin lives; so whoever reads the file through the page
// cache gets the bytes that were verified. That holds where only this machine's own calls change
// pages (kvs_pins_suit); a network file system drops locked pages too.
//
// A pin that nobody uses waits, least recently used first, for the next open of its block, which
// then need not sum it again. It goes when room is wanted, or after some seconds: a mapping keeps
// the space of a file that was removed.
//
// No verdict comes from here. A block that does not verify at once is left to kvs_verify().
#ifndef KVSEAL_FUSE_PINNED_H
#define KVSEAL_FUSE_PINNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kvs_pins;
struct kvs_pin;

/* 0 or -ENOMEM. `budget`: the most bytes that are locked at a time, used or waiting; `most`: the
 * largest block. Handles SIGBUS from here on: reading a pin whose file was cut is an error, not the
 * end. */
int kvs_pins_create(uint64_t budget, uint64_t most, struct kvs_pins **pins_ret);
void kvs_pins_destroy(struct kvs_pins *pins);

/* Whether the file system that `fd` is on keeps locked pages as they are. */
bool kvs_pins_suit(int fd);

/* The pin of the block that `fd` is open on (for reading, buffered, O_NOATIME where that is
 * allowed), verified now, or before and unchanged since: then *is_known_ret. What is not in the
 * page cache is read into it. NULL when there is no clean match with its record, no room, or an
 * error: kvs_verify() will say which. */
struct kvs_pin *kvs_pins_get(struct kvs_pins *pins, int fd, bool *is_known_ret);
/* One more user of a pin that has one. */
void kvs_pins_share(struct kvs_pins *pins, struct kvs_pin *pin);
void kvs_pins_put(struct kvs_pins *pins, struct kvs_pin *pin);

/* The inode has no name any more: its pin, if it has one, does not wait for another open. */
void kvs_pins_forget(struct kvs_pins *pins, dev_t dev, ino_t ino);

/* Bytes locked now, used or waiting. */
uint64_t kvs_pins_used(struct kvs_pins *pins);

size_t kvs_pin_size(const struct kvs_pin *pin);

/* Copies [offset, offset+len), which must lie inside. 0; -EIO: the pages are gone. */
int kvs_pin_read(const struct kvs_pin *pin, void *to, size_t offset, size_t len);

#endif
