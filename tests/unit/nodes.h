// SPDX-License-Identifier: Apache-2.0
// What the tests of nodes share: a source directory with a table, and short words for both.
#ifndef KVSEAL_TESTS_NODES_H
#define KVSEAL_TESTS_NODES_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/util.h"
#include "fuse/names.h"
#include "fuse/reach.h"
#include "fuse/table.h"
#include "tests/unit/scratch.h"

static struct kvs_fs fs;
static struct kvs_node *root;

static inline int set_up(void **state)
{
    if (make_scratch() < 0 || kvs_table_create(dir_fd, &fs.table) != 0)
        return -1;
    fs.source_fd = dir_fd;
    root = kvs_node_of(&fs, FUSE_ROOT_ID);
    return 0;
}

static inline int tear_down(void **state)
{
    kvs_table_destroy(fs.table);
    return remove_scratch();
}

static inline void make_file(const char *path)
{
    int fd = openat(fs.source_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, path, strlen(path)), strlen(path));
    close(fd);
}

static inline void make_dir(const char *path)
{
    assert_int_equal(mkdirat(fs.source_fd, path, 0700), 0);
}

static inline void move(const char *from, const char *to)
{
    assert_int_equal(renameat(fs.source_fd, from, fs.source_fd, to), 0);
}

static inline struct kvs_node *look_up(struct kvs_node *parent, const char *name)
{
    struct kvs_node *node = NULL;
    struct stat st;

    assert_int_equal(kvs_node_lookup(&fs, parent, name, &node, &st), 0);
    assert_int_equal(node->ino, st.st_ino);
    return node;
}

static inline void forget(struct kvs_node *node)
{
    kvs_node_forget(&fs, node, 1);
}

static inline uint64_t node_count(void)
{
    uint64_t nodes, names;

    kvs_table_count(fs.table, &nodes, &names);
    return nodes;
}

static inline uint64_t name_count(void)
{
    uint64_t nodes, names;

    kvs_table_count(fs.table, &nodes, &names);
    return names;
}

static inline void assert_path(struct kvs_node *node, const char *expected)
{
    kvs_cleanup_free char *path = kvs_names_path(&fs, node);

    assert_string_equal(path, expected);
}

static inline void assert_named(struct kvs_node *parent, const char *name,
                                const struct kvs_node *expected)
{
    struct kvs_node *node = kvs_names_find(&fs, parent, name);

    assert_ptr_equal(node, expected);
    if (node)
        kvs_node_unref(&fs, node);
}

/* The content says which file it is: each holds its first path. */
static inline void assert_content(struct kvs_node *node, const char *expected)
{
    char content[64] = "";
    int fd = kvs_node_open(&fs, node, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, content, sizeof(content) - 1), strlen(expected));
    assert_string_equal(content, expected);
    close(fd);
}

/* As on a file system whose handles are not trusted. */
static inline int set_up_names_only(void **state)
{
    int error = set_up(state);

    if (error == 0)
        kvs_table_use_handles(fs.table, KVS_HANDLES_NONE);
    return error;
}

#define WITH_HANDLES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define NAMES_ONLY(test)   cmocka_unit_test_setup_teardown(test, set_up_names_only, tear_down)

#endif
