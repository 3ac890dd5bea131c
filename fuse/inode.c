// SPDX-License-Identifier: Apache-2.0
// The table of nodes: finding, counting and freeing them, all under one lock.
#include "fuse/inode.h"

#include <fcntl.h>
#include <string.h>

#include "core/util.h"
#include "fuse/ids.h"
#include "fuse/reach.h"
#include "fuse/table.h"

#define FIRST_BUCKETS 1024
#define KEPT_MAX      1024 /* descriptors in kvs_node_keep() */
#define MOST_LOOKUPS  16

/* What a node is found by. */
struct key {
    dev_t dev;
    ino_t ino;
    uint32_t type; /* S_IFMT of its mode */
    uint32_t handle_type;
    uint32_t handle_len;
    unsigned char handle[KVS_HANDLE_MAX];
};

static struct key key_of(struct kvs_fs *fs, int fd, const struct stat *st)
{
    struct key key = {.dev = st->st_dev, .ino = st->st_ino, .type = st->st_mode & S_IFMT};

    key.handle_len = sizeof(key.handle);
    kvs_reach_handle_of(fs, fd, key.dev, &key.handle_type, key.handle, &key.handle_len);
    return key;
}

static size_t bucket_of(dev_t dev, ino_t ino, size_t buckets)
{
    uint64_t hash = (ino ^ (dev << 32)) * UINT64_C(0x9e3779b97f4a7c15);

    hash ^= hash >> 32;
    return hash & (buckets - 1);
}

static struct kvs_node *make_node(const struct key *key)
{
    struct kvs_node *node = calloc(1, sizeof(*node) + key->handle_len);

    if (!node)
        return NULL;
    node->dev = key->dev;
    node->ino = key->ino;
    node->mode = key->type;
    node->handle_type = key->handle_type;
    node->handle_len = key->handle_len;
    memcpy(node->handle, key->handle, key->handle_len);
    node->kept_fd = -1;
    return node;
}

static struct kvs_node *find_node(const struct kvs_table *table, const struct key *key)
{
    struct kvs_node *node = table->nodes[bucket_of(key->dev, key->ino, table->node_buckets)];

    while (node && !(node->ino == key->ino && node->dev == key->dev && node->mode == key->type &&
                     node->handle_type == key->handle_type && node->handle_len == key->handle_len &&
                     memcmp(node->handle, key->handle, key->handle_len) == 0 && !node->is_ended))
        node = node->hash_next;
    return node;
}

/* Where there is no memory to grow, chains become longer. */
static void grow_nodes(struct kvs_table *table)
{
    size_t buckets = 2 * table->node_buckets;
    struct kvs_node **nodes = calloc(buckets, sizeof(struct kvs_node *));

    if (!nodes)
        return;
    for (size_t i = 0; i < table->node_buckets; i++) {
        for (struct kvs_node *node = table->nodes[i], *next; node; node = next) {
            size_t to = bucket_of(node->dev, node->ino, buckets);
            next = node->hash_next;
            node->hash_next = nodes[to];
            nodes[to] = node;
        }
    }
    free(table->nodes);
    table->nodes = nodes;
    table->node_buckets = buckets;
}

static void insert_node(struct kvs_table *table, struct kvs_node *node)
{
    if (table->node_count >= table->node_buckets)
        grow_nodes(table);

    size_t bucket = bucket_of(node->dev, node->ino, table->node_buckets);
    node->hash_next = table->nodes[bucket];
    table->nodes[bucket] = node;
    table->node_count++;
}

static void take_out_node(struct kvs_table *table, struct kvs_node *node)
{
    struct kvs_node **at = &table->nodes[bucket_of(node->dev, node->ino, table->node_buckets)];

    while (*at != node)
        at = &(*at)->hash_next;
    *at = node->hash_next;
    table->node_count--;
}

static bool is_needed(const struct kvs_table *table, const struct kvs_node *node)
{
    return node->nlookup > 0 || node->refs > 0 || node == table->root;
}

static void move_out(struct kvs_table *table, struct kvs_node *node, struct kvs_node **list)
{
    take_out_node(table, node);
    node->hash_next = *list;
    *list = node;
}

void kvs_table_reap(struct kvs_table *table, struct kvs_node *node)
{
    struct kvs_node *dying = NULL; /* a list, not a recursion: paths may be long */

    if (!is_needed(table, node))
        move_out(table, node, &dying);
    while (dying) {
        node = dying;
        dying = node->hash_next;
        while (node->names) {
            struct kvs_node *parent = kvs_table_drop_name(table, node->names);
            if (!is_needed(table, parent))
                move_out(table, parent, &dying);
        }
        if (node->kept_fd >= 0)
            table->kept_count--;
        table->reaped_count++;
        node->hash_next = table->dead;
        table->dead = node;
    }
}

void kvs_table_unlock(struct kvs_table *table)
{
    struct kvs_node *dead = table->dead;

    table->dead = NULL;
    pthread_mutex_unlock(&table->lock);
    while (dead) {
        struct kvs_node *node = dead;
        dead = node->hash_next;
        kvs_close_fd(&node->kept_fd);
        kvs_ids_remove(table->ids, KVS_ID_NODE, node->number);
        free(node);
    }
}

int kvs_table_create(int source_fd, struct kvs_table **table_ret)
{
    struct stat st;

    if (fstat(source_fd, &st) < 0)
        return -errno;

    struct kvs_table *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    pthread_mutex_init(&table->lock, NULL);
    pthread_cond_init(&table->crowded, NULL);
    pthread_cond_init(&table->ending, NULL);
    table->max_names = UINT64_MAX;
    table->node_buckets = table->name_buckets = FIRST_BUCKETS;
    table->nodes = calloc(FIRST_BUCKETS, sizeof(struct kvs_node *));
    table->names = calloc(FIRST_BUCKETS, sizeof(struct kvs_name *));
    table->root = make_node(
        &(struct key){.dev = st.st_dev, .ino = st.st_ino, .type = st.st_mode & S_IFMT});
    if (!table->nodes || !table->names || !table->root) {
        kvs_table_destroy(table);
        return -ENOMEM;
    }
    table->source_dev = st.st_dev;
    table->handles = kvs_reach_probe_handles(source_fd);
    *table_ret = table;
    return 0;
}

void kvs_table_destroy(struct kvs_table *table)
{
    for (size_t i = 0; table->names && i < table->name_buckets; i++) {
        while (table->names[i])
            kvs_table_drop_name(table, table->names[i]);
    }
    for (size_t i = 0; table->nodes && i < table->node_buckets; i++) {
        for (struct kvs_node *node = table->nodes[i], *next; node; node = next) {
            next = node->hash_next;
            kvs_close_fd(&node->kept_fd);
            free(node);
        }
    }
    free(table->names);
    free(table->nodes);
    free(table->root);
    pthread_cond_destroy(&table->ending);
    pthread_cond_destroy(&table->crowded);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

pthread_mutex_t *kvs_table_lock(struct kvs_table *table)
{
    return &table->lock;
}

void kvs_table_count(struct kvs_table *table, uint64_t *nodes_ret, uint64_t *names_ret)
{
    pthread_mutex_lock(&table->lock);
    *nodes_ret = table->node_count + 1; /* the root */
    *names_ret = table->name_count;
    kvs_table_unlock(table);
}

void kvs_table_limit(struct kvs_table *table, uint64_t max_names)
{
    table->max_names = max_names > 0 ? max_names : UINT64_MAX;
}

void kvs_table_use_handles(struct kvs_table *table, enum kvs_handles use)
{
    table->handles = use;
}

struct kvs_node *kvs_node_of(struct kvs_fs *fs, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? fs->table->root : (struct kvs_node *)(uintptr_t)ino;
}

fuse_ino_t kvs_node_ino(struct kvs_fs *fs, const struct kvs_node *node)
{
    if (node == fs->table->root)
        return FUSE_ROOT_ID;
    return node->number ? node->number : kvs_id_of(fs, node);
}

/* As kvs_node_adopt. -EAGAIN: (parent, name) names neither `*known` nor this node any more. */
static int adopt(struct kvs_fs *fs, struct kvs_node *parent, const char *name, int fd,
                 const struct stat *st, struct kvs_node *const *known, struct kvs_node **node_ret)
{
    struct kvs_table *table = fs->table;
    struct key key = key_of(fs, fd, st);
    int error = 0;

    pthread_mutex_lock(&table->lock);
    struct kvs_node *node = find_node(table, &key);
    if (!node) {
        node = make_node(&key);
        if (node)
            insert_node(table, node);
        else
            error = -ENOMEM;
    }
    if (node) {
        node->nlookup++;
        node->age = KVS_NODE_NEW;
        struct kvs_node *named = known ? kvs_table_find_name(table, parent, name) : NULL;
        if (known && named != *known && named != node)
            error = -EAGAIN;
        else if (parent)
            error = kvs_table_add_name(table, parent, name, node);
        if (error != 0) {
            node->nlookup--;
            kvs_table_reap(table, node);
        }
    }
    kvs_table_unlock(table);
    *node_ret = error != 0 ? NULL : node;
    return error;
}

int kvs_node_adopt(struct kvs_fs *fs, struct kvs_node *parent, const char *name, int fd,
                   const struct stat *st, struct kvs_node **node_ret)
{
    return adopt(fs, parent, name, fd, st, NULL, node_ret);
}

int kvs_table_restore(struct kvs_table *table, const struct kvs_node *saved,
                      const unsigned char *handle, struct kvs_node **node_ret)
{
    struct key key = {.dev = saved->dev,
                      .ino = saved->ino,
                      .type = saved->mode,
                      .handle_type = saved->handle_type,
                      .handle_len = saved->handle_len};

    memcpy(key.handle, handle, key.handle_len);
    if (!saved->is_ended && find_node(table, &key))
        return -EEXIST;
    struct kvs_node *node = make_node(&key);
    if (!node)
        return -ENOMEM;
    node->nlookup = saved->nlookup;
    int error = kvs_ids_add(table->ids, KVS_ID_NODE, saved->number, node);
    if (error != 0) {
        free(node);
        return error;
    }
    node->number = saved->number;
    node->is_ended = saved->is_ended;
    insert_node(table, node);
    *node_ret = node;
    return 0;
}

struct kvs_node *kvs_node_find(struct kvs_fs *fs, int fd, const struct stat *st)
{
    struct key key = key_of(fs, fd, st);

    pthread_mutex_lock(&fs->table->lock);
    struct kvs_node *node = find_node(fs->table, &key);
    if (node)
        node->refs++;
    kvs_table_unlock(fs->table);
    return node;
}

static int open_and_adopt(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                          struct kvs_node *const *known, struct kvs_node **node_ret,
                          struct stat *st_ret)
{
    kvs_cleanup_fd int parent_fd = -1;
    kvs_cleanup_fd int fd = -1;

    parent_fd = kvs_node_open(fs, parent, O_PATH | O_DIRECTORY);
    if (parent_fd < 0)
        return parent_fd;
    fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st_ret) < 0)
        return -errno;
    return adopt(fs, parent, name, fd, st_ret, known, node_ret);
}

/* The kernel looks up what it knows already beside operations that give the name to another file:
 * what was seen before must not be noted after what they noted. */
int kvs_node_lookup(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                    struct kvs_node **node_ret, struct stat *st_ret)
{
    int error = -EAGAIN;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/'))
        return -EINVAL;
    for (int i = 1; i < MOST_LOOKUPS && error == -EAGAIN; i++) {
        struct kvs_node *known = kvs_names_find(fs, parent, name);
        error = open_and_adopt(fs, parent, name, &known, node_ret, st_ret);
        if (known)
            kvs_node_unref(fs, known);
    }
    return error == -EAGAIN ? open_and_adopt(fs, parent, name, NULL, node_ret, st_ret) : error;
}

void kvs_node_forget(struct kvs_fs *fs, struct kvs_node *node, uint64_t nlookup)
{
    pthread_mutex_lock(&fs->table->lock);
    node->nlookup -= KVS_MIN(nlookup, node->nlookup);
    kvs_table_reap(fs->table, node);
    kvs_table_unlock(fs->table);
}

void kvs_node_ref(struct kvs_fs *fs, struct kvs_node *node)
{
    pthread_mutex_lock(&fs->table->lock);
    node->refs++;
    kvs_table_unlock(fs->table);
}

void kvs_node_unref(struct kvs_fs *fs, struct kvs_node *node)
{
    pthread_mutex_lock(&fs->table->lock);
    node->refs--;
    kvs_table_reap(fs->table, node);
    kvs_table_unlock(fs->table);
}

void kvs_node_end(struct kvs_fs *fs, struct kvs_node *node)
{
    pthread_mutex_lock(&fs->table->lock);
    node->is_ended = true;
    pthread_mutex_unlock(&fs->table->lock);
}

void kvs_node_keep(struct kvs_fs *fs, struct kvs_node *node, int fd)
{
    pthread_mutex_lock(&fs->table->lock);
    bool has_room = node->kept_fd < 0 && fs->table->kept_count < KEPT_MAX;
    if (has_room) {
        node->kept_fd = fd;
        fs->table->kept_count++;
    }
    kvs_table_unlock(fs->table);
    if (!has_room)
        close(fd);
}

void kvs_node_let_go(struct kvs_fs *fs, struct kvs_node *node)
{
    pthread_mutex_lock(&fs->table->lock);
    int fd = node->kept_fd;
    if (fd >= 0)
        fs->table->kept_count--;
    node->kept_fd = -1;
    kvs_table_unlock(fs->table);
    kvs_close_fd(&fd);
}
