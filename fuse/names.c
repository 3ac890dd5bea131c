// SPDX-License-Identifier: Apache-2.0
// The names that nodes are known by, hashed by (parent, text).
#include "fuse/names.h"

#include <string.h>

#include "core/util.h"
#include "fuse/table.h"

static size_t bucket_of(const struct kvs_node *parent, const char *text, size_t buckets)
{
    uint64_t hash = (uint64_t)(uintptr_t)parent * UINT64_C(0x9e3779b97f4a7c15);

    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3); /* FNV-1a */
    hash ^= hash >> 32;
    return hash & (buckets - 1);
}

static struct kvs_name *find_name(const struct kvs_table *table, const struct kvs_node *parent,
                                  const char *text)
{
    struct kvs_name *name = table->names[bucket_of(parent, text, table->name_buckets)];

    while (name && !(name->parent == parent && strcmp(name->text, text) == 0))
        name = name->hash_next;
    return name;
}

/* Where there is no memory to grow, chains become longer. */
static void grow_names(struct kvs_table *table)
{
    size_t buckets = 2 * table->name_buckets;
    struct kvs_name **names = calloc(buckets, sizeof(struct kvs_name *));

    if (!names)
        return;
    for (size_t i = 0; i < table->name_buckets; i++) {
        for (struct kvs_name *name = table->names[i], *next; name; name = next) {
            size_t to = bucket_of(name->parent, name->text, buckets);
            next = name->hash_next;
            name->hash_next = names[to];
            names[to] = name;
        }
    }
    free(table->names);
    table->names = names;
    table->name_buckets = buckets;
}

static int insert_name(struct kvs_table *table, struct kvs_node *parent, const char *text,
                       struct kvs_node *node)
{
    size_t size = strlen(text) + 1;
    struct kvs_name *name = malloc(sizeof(*name) + size);

    if (!name)
        return -ENOMEM;
    if (table->name_count >= table->name_buckets)
        grow_names(table);

    size_t bucket = bucket_of(parent, text, table->name_buckets);
    name->hash_next = table->names[bucket];
    table->names[bucket] = name;
    if (table->name_count++ == table->max_names)
        pthread_cond_signal(&table->crowded);
    name->node_next = node->names;
    node->names = name;
    name->parent = parent;
    parent->refs++;
    name->node = node;
    memcpy(name->text, text, size);
    return 0;
}

struct kvs_node *kvs_table_drop_name(struct kvs_table *table, struct kvs_name *name)
{
    struct kvs_node *parent = name->parent;
    struct kvs_name **at = &table->names[bucket_of(parent, name->text, table->name_buckets)];

    while (*at != name)
        at = &(*at)->hash_next;
    *at = name->hash_next;
    table->name_count--;
    at = &name->node->names;
    while (*at != name)
        at = &(*at)->node_next;
    *at = name->node_next;
    parent->refs--;
    free(name);
    return parent;
}

/* A directory that is seen at (parent, ...) is not at its old place any more, nor can `parent` be
 * below it: whatever says so is out of date. Keeps the promise of table.h. */
static void unname_directory(struct kvs_table *table, const struct kvs_node *parent,
                             struct kvs_node *directory)
{
    while (directory->names)
        kvs_table_reap(table, kvs_table_drop_name(table, directory->names));
    if (directory->refs == 0) /* nothing is known below it */
        return;
    for (const struct kvs_node *above = parent; above->names; above = above->names->parent) {
        if (above->names->parent == directory) {
            kvs_table_drop_name(table, above->names);
            return;
        }
    }
}

int kvs_table_add_name(struct kvs_table *table, struct kvs_node *parent, const char *text,
                       struct kvs_node *node)
{
    struct kvs_name *name = find_name(table, parent, text);

    if ((name && name->node == node) || parent == node) /* in itself: a bind mount */
        return 0;
    if (name)
        kvs_table_drop_name(table, name);
    if (S_ISDIR(node->mode)) {
        parent->refs++; /* it may be kept by the names that go here */
        unname_directory(table, parent, node);
        parent->refs--;
    }
    return insert_name(table, parent, text, node);
}

struct kvs_node *kvs_table_find_name(const struct kvs_table *table, const struct kvs_node *parent,
                                     const char *text)
{
    const struct kvs_name *name = find_name(table, parent, text);

    return name ? name->node : NULL;
}

struct kvs_node *kvs_names_find(struct kvs_fs *fs, struct kvs_node *parent, const char *name)
{
    pthread_mutex_lock(&fs->table->lock);
    struct kvs_node *node = kvs_table_find_name(fs->table, parent, name);
    if (node)
        node->refs++;
    kvs_table_unlock(fs->table);
    return node;
}

int kvs_names_add(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                  struct kvs_node *node)
{
    pthread_mutex_lock(&fs->table->lock);
    int error = kvs_table_add_name(fs->table, parent, name, node);
    kvs_table_unlock(fs->table);
    return error;
}

bool kvs_names_remove(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                      struct kvs_node *node)
{
    bool was_last = false;

    pthread_mutex_lock(&fs->table->lock);
    struct kvs_name *found = find_name(fs->table, parent, name);
    if (found && found->node == node) {
        kvs_table_reap(fs->table, kvs_table_drop_name(fs->table, found));
        was_last = !node->names;
    }
    kvs_table_unlock(fs->table);
    return was_last;
}

/* Takes a name away and gives what it named, referenced. */
static struct kvs_node *take_named(struct kvs_table *table, struct kvs_node *parent,
                                   const char *text)
{
    struct kvs_name *name = find_name(table, parent, text);
    struct kvs_node *node = name ? name->node : NULL;

    if (node) {
        node->refs++;
        kvs_table_drop_name(table, name);
    }
    return node;
}

static void give_back(struct kvs_table *table, struct kvs_node *node)
{
    if (node) {
        node->refs--;
        kvs_table_reap(table, node);
    }
}

int kvs_names_move(struct kvs_fs *fs, struct kvs_node *parent, const char *name,
                   struct kvs_node *new_parent, const char *new_name, bool exchange)
{
    struct kvs_table *table = fs->table;
    int error = 0;

    pthread_mutex_lock(&table->lock);
    /* The caller keeps both parents alive; this keeps them through a moment without names. */
    parent->refs++;
    new_parent->refs++;
    struct kvs_node *moved = take_named(table, parent, name);
    struct kvs_node *replaced = take_named(table, new_parent, new_name);
    if (moved)
        error = kvs_table_add_name(table, new_parent, new_name, moved);
    /* Two names of one inode: rename(2) leaves both. */
    if (replaced && (exchange || replaced == moved)) {
        int error_back = kvs_table_add_name(table, parent, name, replaced);
        error = error != 0 ? error : error_back;
    }
    give_back(table, moved);
    give_back(table, replaced);
    give_back(table, parent);
    give_back(table, new_parent);
    kvs_table_unlock(table);
    return error;
}

static size_t count_names(const struct kvs_node *node)
{
    size_t count = 0;

    for (const struct kvs_name *name = node->names; name; name = name->node_next)
        count++;
    return count;
}

int kvs_names_copy(struct kvs_fs *fs, struct kvs_node *node, struct kvs_names_copy **copy_ret)
{
    int error = 0;

    pthread_mutex_lock(&fs->table->lock);
    struct kvs_names_copy *copy = calloc(1, sizeof(*copy) +
                                                count_names(node) * sizeof(copy->entries[0]));
    if (!copy)
        error = -ENOMEM;
    for (struct kvs_name *name = node->names; name && error == 0; name = name->node_next) {
        struct kvs_names_copy_entry *entry = &copy->entries[copy->count];
        entry->text = strdup(name->text);
        if (!entry->text) {
            error = -ENOMEM;
            break;
        }
        entry->parent = name->parent;
        entry->parent->refs++;
        copy->count++;
    }
    kvs_table_unlock(fs->table);
    if (error != 0 && copy) {
        kvs_names_copy_free(fs, copy);
        copy = NULL;
    }
    *copy_ret = copy;
    return error;
}

void kvs_names_copy_free(struct kvs_fs *fs, struct kvs_names_copy *copy)
{
    for (size_t i = 0; i < copy->count; i++) {
        kvs_node_unref(fs, copy->entries[i].parent);
        free(copy->entries[i].text);
    }
    free(copy);
}

/* One step up: the last component of the node's path, and its parent (NULL: nothing above). */
static const char *step_up(const struct kvs_table *table, const struct kvs_node *node,
                           const struct kvs_node **parent_ret)
{
    *parent_ret = node->names ? node->names->parent : NULL;
    if (*parent_ret == table->root)
        *parent_ret = NULL;
    if (node->names)
        return node->names->text;
    return node == table->root ? "." : "?";
}

char *kvs_names_path(struct kvs_fs *fs, struct kvs_node *node)
{
    const struct kvs_node *at, *parent;

    pthread_mutex_lock(&fs->table->lock);
    size_t size = strlen(step_up(fs->table, node, &parent)) + 1;
    for (at = parent; at; at = parent)
        size += strlen(step_up(fs->table, at, &parent)) + 1;

    char *path = malloc(size);
    char *end = path ? path + size : NULL; /* filled from the end */
    for (at = node; path && at; at = parent) {
        const char *text = step_up(fs->table, at, &parent);
        size_t len = strlen(text);
        *--end = at == node ? '\0' : '/';
        end -= len;
        memcpy(end, text, len);
    }
    kvs_table_unlock(fs->table);
    return path;
}
