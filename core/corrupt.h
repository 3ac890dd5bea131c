// SPDX-License-Identifier: Apache-2.0
// What happens to a corrupt block (C13): its names go, into quarantine or for good, or they stay.
#ifndef KVSEAL_CORE_CORRUPT_H
#define KVSEAL_CORE_CORRUPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/state_dir.h"
#include "core/verify.h"

enum kvs_on_corrupt {
    KVS_ON_CORRUPT_REMOVE,
    KVS_ON_CORRUPT_QUARANTINE,
    KVS_ON_CORRUPT_KEEP,
};

/* Removes the name `name` in `dir_fd` if it still is the inode (dev, ino) (it is moved aside first,
 * under a name that no reader looks for, looked at again, and moved back if it turned out to be
 * another file: a block that was stored anew meanwhile is never removed). 0 the name is gone;
 * -ENOENT it was gone or another file already; -errno could not (EROFS, EACCES ...): nothing was
 * lost. */
int kvs_corrupt_remove(int dir_fd, const char *name, dev_t dev, ino_t ino);

/* Moves the name into `source_fd`/.kvseal/quarantine as a unique name, made up from the block's
 * name, time and inode, with the cause beside it in `NAME.cause` (path, size, expected and computed
 * sum, UTC time; one `key: value` a line, the path escaped as in logs). Makes the directories
 * (0700). Only the first name of an inode has to be moved; further names are removed. Returns as
 * above. */
int kvs_corrupt_quarantine(int source_fd, int dir_fd, const char *name, dev_t dev, ino_t ino,
                           const char *path, const struct kvs_verification *cause);

/* Whether it is a name that kvs_corrupt_remove() moves blocks to on their way out, `.kvseal-` and
 * 16 hexadecimal digits. Nobody else should make such names. */
bool kvs_corrupt_is_aside(const char *name);

/* Ends what a kill has left under such a name: a regular file with a record whose ctime, which the
 * move has set, is KVS_ASIDE_AGE_S old. It is verified first, since it may have been moved by
 * mistake, and not have been given back: a corrupt one is removed, a good one goes into quarantine.
 * `reading`: as for kvs_verify(). 0 it is gone; -EAGAIN it is younger, in use, or not ours; -errno.
 */
int kvs_corrupt_sweep(int source_fd, int dir_fd, const char *name, struct kvs_reading *reading);
#define KVS_ASIDE_AGE_S 600 /* clocks of nodes differ */

#endif
