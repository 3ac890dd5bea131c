// SPDX-License-Identifier: Apache-2.0
// A hash table of O_PATH descriptors, by device and inode number.
#include "tests/faultfs/node.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKETS 4096

struct node {
    int fd;
    dev_t dev;
    ino_t ino;
    uint64_t lookups;  /* protected by table.lock */
    struct node *next; /* of its bucket; protected by table.lock */
};

static int root_fd = -1;
static struct {
    pthread_mutex_t lock;
    struct node *buckets[BUCKETS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

int node_init(const char *source)
{
    root_fd = open(source, O_PATH | O_DIRECTORY);
    return root_fd < 0 ? -1 : 0;
}

int node_fd(fuse_ino_t ino)
{
    if (ino == NODE_CONTROL)
        return -1;
    return ino == FUSE_ROOT_ID ? root_fd : ((struct node *)ino)->fd;
}

/* The node in the table that is the same inode as `fresh`: `fresh` itself when there was none. */
static struct node *find_or_insert(struct node *fresh)
{
    pthread_mutex_lock(&table.lock);
    struct node **bucket = &table.buckets[fresh->ino % BUCKETS];
    struct node *node = *bucket;
    while (node && (node->ino != fresh->ino || node->dev != fresh->dev))
        node = node->next;
    if (!node) {
        node = fresh;
        node->next = *bucket;
        *bucket = node;
    }
    node->lookups++;
    pthread_mutex_unlock(&table.lock);
    return node;
}

int node_enter(int fd, struct fuse_entry_param *entry_ret)
{
    if (fd < 0)
        return -errno;
    *entry_ret = (struct fuse_entry_param){0};
    struct stat *attr = &entry_ret->attr;
    struct node *fresh = calloc(1, sizeof(*fresh));
    if (!fresh || fstatat(fd, "", attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0) {
        int err = fresh ? -errno : -ENOMEM;
        free(fresh);
        close(fd);
        return err;
    }
    *fresh = (struct node){.fd = fd, .dev = attr->st_dev, .ino = attr->st_ino};
    struct node *node = find_or_insert(fresh);
    if (node != fresh) {
        close(fd);
        free(fresh);
    }
    entry_ret->ino = (fuse_ino_t)node;
    return 0;
}

void node_forget(fuse_ino_t ino, uint64_t lookups)
{
    if (ino == FUSE_ROOT_ID || ino == NODE_CONTROL)
        return;
    struct node *node = (struct node *)ino;
    pthread_mutex_lock(&table.lock);
    node->lookups -= lookups;
    bool is_last = node->lookups == 0;
    if (is_last) {
        struct node **link = &table.buckets[node->ino % BUCKETS];
        while (*link != node)
            link = &(*link)->next;
        *link = node->next;
    }
    pthread_mutex_unlock(&table.lock);
    if (is_last) {
        close(node->fd);
        free(node);
    }
}
