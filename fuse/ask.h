// SPDX-License-Identifier: Apache-2.0
// Questions to a file system that may hang: asked by a child, waited for with a limit.
#ifndef KVSEAL_FUSE_ASK_H
#define KVSEAL_FUSE_ASK_H

/* Runs `question` in a child process that has no descriptor of ours open, standard ones included,
 * and gives what it returns; -ETIMEDOUT: there was no answer after `limit_ms`. The child is killed
 * then and not waited for: it may be stuck in the kernel until the file system answers or ends.
 * -errno where no child could be made. Call it before threads are started. */
int kvs_ask(int (*question)(void *argument), void *argument, int limit_ms);

#endif
