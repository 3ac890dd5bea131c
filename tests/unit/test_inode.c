// SPDX-License-Identifier: Apache-2.0
// Nodes: how long they live, what they are called, how they are reached, what they cost.
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
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
#include "fuse/file.h"
#include "fuse/names.h"
#include "fuse/reach.h"
#include "fuse/table.h"

#ifndef __has_feature /* clang's way to tell */
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_COUNTS 0
#define MANY_NAMES    20000
#else
#define MEMORY_COUNTS 1
#define MANY_NAMES    2000000
#endif

static char source[] = "/tmp/kvseal-inode-XXXXXX";
static struct kvs_fs fs;
static struct kvs_node *root;

static int set_up(void **state)
{
    strcpy(source + strlen(source) - 6, "XXXXXX");
    if (!mkdtemp(source))
        return -1;
    fs.source_fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fs.source_fd < 0 || kvs_table_create(fs.source_fd, &fs.table) != 0)
        return -1;
    root = kvs_node_of(&fs, FUSE_ROOT_ID);
    return 0;
}

static int tear_down(void **state)
{
    char command[sizeof(source) + 16];

    kvs_table_destroy(fs.table);
    close(fs.source_fd);
    snprintf(command, sizeof(command), "rm -rf %s", source);
    return system(command);
}

static void make_file(const char *path)
{
    int fd = openat(fs.source_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, path, strlen(path)), strlen(path));
    close(fd);
}

static void make_dir(const char *path)
{
    assert_int_equal(mkdirat(fs.source_fd, path, 0700), 0);
}

static void move(const char *from, const char *to)
{
    assert_int_equal(renameat(fs.source_fd, from, fs.source_fd, to), 0);
}

static struct kvs_node *look_up(struct kvs_node *parent, const char *name)
{
    struct kvs_node *node = NULL;
    struct stat st;

    assert_int_equal(kvs_node_lookup(&fs, parent, name, &node, &st), 0);
    assert_int_equal(node->ino, st.st_ino);
    return node;
}

static void forget(struct kvs_node *node)
{
    kvs_node_forget(&fs, node, 1);
}

static uint64_t node_count(void)
{
    uint64_t nodes, names;

    kvs_table_count(fs.table, &nodes, &names);
    return nodes;
}

static uint64_t name_count(void)
{
    uint64_t nodes, names;

    kvs_table_count(fs.table, &nodes, &names);
    return names;
}

static void assert_path(struct kvs_node *node, const char *expected)
{
    kvs_cleanup_free char *path = kvs_names_path(&fs, node);

    assert_string_equal(path, expected);
}

static void assert_named(struct kvs_node *parent, const char *name, const struct kvs_node *expected)
{
    struct kvs_node *node = kvs_names_find(&fs, parent, name);

    assert_ptr_equal(node, expected);
    if (node)
        kvs_node_unref(&fs, node);
}

/* The content says which file it is: each holds its first path. */
static void assert_content(struct kvs_node *node, const char *expected)
{
    char content[64] = "";
    int fd = kvs_node_open(&fs, node, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, content, sizeof(content) - 1), strlen(expected));
    assert_string_equal(content, expected);
    close(fd);
}

/* Life-times */

static void a_file_is_one_node(void **state)
{
    make_file("a");
    assert_int_equal(linkat(fs.source_fd, "a", fs.source_fd, "b", 0), 0);
    struct kvs_node *node = look_up(root, "a");
    assert_ptr_equal(look_up(root, "a"), node);
    assert_ptr_equal(look_up(root, "b"), node);
    assert_int_equal(node->nlookup, 3);
    assert_int_equal(node_count(), 2);
    assert_int_equal(name_count(), 2);
    assert_ptr_equal(kvs_node_of(&fs, kvs_node_ino(&fs, node)), node);

    kvs_node_forget(&fs, node, 2);
    assert_int_equal(node_count(), 2);
    forget(node);
    assert_int_equal(node_count(), 1);
    assert_int_equal(name_count(), 0);
    assert_int_equal(root->refs, 0);
}

static void a_reference_keeps_a_node(void **state)
{
    make_file("a");
    struct kvs_node *node = look_up(root, "a");
    kvs_node_ref(&fs, node);
    forget(node);
    assert_int_equal(node_count(), 2);
    assert_ptr_equal(look_up(root, "a"), node);
    kvs_node_unref(&fs, node);
    assert_int_equal(node_count(), 2);
    forget(node);
    assert_int_equal(node_count(), 1);
}

static void names_keep_their_parents(void **state)
{
    make_dir("d");
    make_dir("d/e");
    make_file("d/e/f");
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *e = look_up(d, "e");
    struct kvs_node *f = look_up(e, "f");
    forget(d);
    forget(e);
    assert_int_equal(node_count(), 4);
    assert_path(f, "d/e/f");
    assert_content(f, "d/e/f");
    forget(f);
    assert_int_equal(node_count(), 1);
    assert_int_equal(name_count(), 0);
}

static void the_root_is_never_freed(void **state)
{
    kvs_node_forget(&fs, root, 1000);
    kvs_node_ref(&fs, root);
    kvs_node_unref(&fs, root);
    assert_int_equal(node_count(), 1);
    assert_int_equal(kvs_node_ino(&fs, root), FUSE_ROOT_ID);
    assert_path(root, ".");
    int fd = kvs_node_open(&fs, root, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    close(fd);
}

/* Freeing a path of 100,000 directories must not need a stack of that depth. */
static void a_deep_path_is_freed(void **state)
{
    struct kvs_node *at = root;
    struct stat st = {.st_mode = S_IFDIR, .st_dev = 77};

    for (st.st_ino = 2; st.st_ino < 100000; st.st_ino++) {
        struct kvs_node *next;
        assert_int_equal(kvs_node_adopt(&fs, at, "d", -1, &st, &next), 0);
        if (at != root)
            forget(at);
        at = next;
    }
    assert_int_equal(kvs_node_open(&fs, at, O_PATH), -ESTALE);
    forget(at);
    assert_int_equal(node_count(), 1);
    assert_int_equal(name_count(), 0);
}

static void another_type_is_another_node(void **state)
{
    struct stat st = {.st_mode = S_IFREG, .st_dev = 77, .st_ino = 5};
    struct kvs_node *file, *dir;

    assert_int_equal(kvs_node_adopt(&fs, root, "a", -1, &st, &file), 0);
    st.st_mode = S_IFDIR; /* the inode number is used again */
    assert_int_equal(kvs_node_adopt(&fs, root, "a", -1, &st, &dir), 0);
    assert_ptr_not_equal(file, dir);
    assert_named(root, "a", dir);
    assert_null(file->names);
    forget(file);
    assert_int_equal(dir->nlookup, 1);
    forget(dir);
    assert_int_equal(node_count(), 1);
}

static void find_counts_no_look_up(void **state)
{
    struct stat st;

    make_file("a");
    int fd = openat(fs.source_fd, "a", O_PATH);
    assert_int_equal(fstat(fd, &st), 0);
    assert_null(kvs_node_find(&fs, fd, &st));
    struct kvs_node *node = look_up(root, "a");
    assert_ptr_equal(kvs_node_find(&fs, fd, &st), node);
    assert_int_equal(node->nlookup, 1);
    forget(node);
    assert_int_equal(node_count(), 2);
    kvs_node_unref(&fs, node);
    assert_int_equal(node_count(), 1);
    close(fd);
}

static void c22_dots_are_not_looked_up(void **state)
{
    struct kvs_node *node;
    struct stat st;

    assert_int_equal(kvs_node_lookup(&fs, root, "..", &node, &st), -EINVAL);
    assert_int_equal(kvs_node_lookup(&fs, root, "../..", &node, &st), -EINVAL);
    assert_int_equal(kvs_node_lookup(&fs, root, "none", &node, &st), -ENOENT);
    assert_int_equal(node_count(), 1);
}

/* Names */

static void removing_the_last_name_says_so(void **state)
{
    make_file("a");
    struct kvs_node *node = look_up(root, "a");
    assert_int_equal(kvs_names_add(&fs, root, "b", node), 0);
    assert_false(kvs_names_remove(&fs, root, "unknown"));
    assert_false(kvs_names_remove(&fs, root, "a"));
    assert_true(kvs_names_remove(&fs, root, "b"));
    assert_path(node, "?");
    forget(node);
    assert_int_equal(name_count(), 0);
}

static void a_rename_moves_the_name(void **state)
{
    make_dir("d");
    make_file("a");
    make_file("d/b");
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *a = look_up(root, "a");
    struct kvs_node *b = look_up(d, "b");
    assert_int_equal(kvs_names_move(&fs, root, "a", d, "b", false), 0);
    assert_path(a, "d/b");
    assert_null(b->names);
    assert_named(root, "a", NULL);
    assert_named(d, "b", a);

    /* What is not known replaces what is known: nothing is known there now. */
    assert_int_equal(kvs_names_move(&fs, root, "unknown", d, "b", false), 0);
    assert_named(d, "b", NULL);
    assert_int_equal(name_count(), 1);
    forget(a);
    forget(b);
    forget(d);
    assert_int_equal(node_count(), 1);
}

static void an_exchange_swaps_both(void **state)
{
    make_dir("d");
    make_file("a");
    make_file("d/b");
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *a = look_up(root, "a");
    struct kvs_node *b = look_up(d, "b");
    assert_int_equal(kvs_names_move(&fs, root, "a", d, "b", true), 0);
    assert_path(a, "d/b");
    assert_path(b, "a");
    assert_int_equal(kvs_names_move(&fs, root, "unknown", d, "b", true), 0);
    assert_path(a, "unknown");
    forget(a);
    forget(b);
    forget(d);
    assert_int_equal(node_count(), 1);
}

static void a_rename_between_links_leaves_both(void **state)
{
    make_file("a");
    struct kvs_node *node = look_up(root, "a");
    assert_int_equal(kvs_names_add(&fs, root, "b", node), 0);
    assert_int_equal(kvs_names_move(&fs, root, "a", root, "b", false), 0);
    assert_named(root, "a", node);
    assert_named(root, "b", node);
    forget(node);
}

static void copies_hold_their_parents(void **state)
{
    struct kvs_names_copy *copy;

    make_dir("d");
    make_file("d/a");
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *node = look_up(d, "a");
    assert_int_equal(kvs_names_add(&fs, root, "b", node), 0);
    assert_int_equal(kvs_names_copy(&fs, node, &copy), 0);
    forget(d);
    forget(node);
    assert_int_equal(name_count(), 1);
    assert_int_equal(copy->count, 2);
    assert_string_equal(copy->entries[0].text, "b");
    assert_ptr_equal(copy->entries[0].parent, root);
    assert_string_equal(copy->entries[1].text, "a");
    assert_ptr_equal(copy->entries[1].parent, d);
    kvs_names_copy_free(&fs, copy);
    assert_int_equal(node_count(), 1);
}

/* Another program swaps a directory and the one in it while one of our clients stands in there. */
static void names_of_directories_form_no_circle(void **state)
{
    make_dir("b");
    make_dir("b/a");
    struct kvs_node *b = look_up(root, "b");
    struct kvs_node *a = look_up(b, "a");
    move("b/a", "a");
    move("b", "a/b");
    assert_ptr_equal(look_up(a, "b"), b);
    assert_path(b, "?/b");
    assert_ptr_equal(look_up(root, "a"), a);
    assert_path(b, "a/b");
    assert_int_equal(name_count(), 2);
    kvs_node_forget(&fs, a, 2);
    kvs_node_forget(&fs, b, 2);
    assert_int_equal(node_count(), 1);
}

static void a_directory_within_itself_has_no_name_there(void **state)
{
    struct stat st;

    make_dir("d"); /* a bind mount can make d/d the same directory */
    struct kvs_node *d = look_up(root, "d"), *again;
    int fd = openat(fs.source_fd, "d", O_PATH);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(kvs_node_adopt(&fs, d, "d", fd, &st, &again), 0);
    assert_ptr_equal(again, d);
    assert_path(d, "d");
    kvs_node_forget(&fs, d, 2);
    assert_int_equal(node_count(), 1);
    close(fd);
}

/* Reaching */

static void handles_need_no_name(void **state)
{
    make_dir("d");
    make_file("d/a");
    assert_int_equal(symlinkat("target", fs.source_fd, "link"), 0);
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *a = look_up(d, "a");
    struct kvs_node *link = look_up(root, "link");
    if (a->handle_len == 0) {
        print_message("no file handles here (%s): not checked\n", source);
    } else {
        char target[16] = "";
        move("d/a", "b");
        move("d", "e");
        move("link", "other");
        make_file("link");
        assert_content(a, "d/a");
        int fd = kvs_node_open(&fs, d, O_RDONLY | O_DIRECTORY);
        assert_true(fd >= 0);
        close(fd);
        fd = kvs_node_open(&fs, link, O_PATH);
        assert_true(fd >= 0);
        assert_int_equal(readlinkat(fd, "", target, sizeof(target)), strlen("target"));
        close(fd);
    }
    forget(link);
    forget(a);
    forget(d);
}

/* From here on: names only, as on a file system whose handles are not trusted. */

static int set_up_names_only(void **state)
{
    int error = set_up(state);

    if (error == 0)
        kvs_table_use_handles(fs.table, false);
    return error;
}

static void names_lead_to_the_inode(void **state)
{
    char target[16] = "";

    make_dir("d");
    make_dir("d/e");
    make_file("d/e/a");
    assert_int_equal(symlinkat("target", fs.source_fd, "d/link"), 0);
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *e = look_up(d, "e");
    struct kvs_node *a = look_up(e, "a");
    struct kvs_node *link = look_up(d, "link");
    assert_int_equal(a->handle_len, 0);
    assert_content(a, "d/e/a");
    int fd = kvs_node_open(&fs, link, O_PATH);
    assert_int_equal(readlinkat(fd, "", target, sizeof(target)), strlen("target"));
    close(fd);
    forget(link);
    forget(a);
    forget(e);
    forget(d);
}

static void any_known_name_will_do(void **state)
{
    make_file("a");
    assert_int_equal(linkat(fs.source_fd, "a", fs.source_fd, "b", 0), 0);
    struct kvs_node *node = look_up(root, "a");
    forget(look_up(root, "b"));
    assert_int_equal(unlinkat(fs.source_fd, "b", 0), 0);
    assert_content(node, "a");
    assert_int_equal(linkat(fs.source_fd, "a", fs.source_fd, "b", 0), 0);
    assert_int_equal(unlinkat(fs.source_fd, "a", 0), 0);
    assert_content(node, "a");
    forget(node);
}

static void a_name_of_another_inode_is_not_opened(void **state)
{
    make_file("a");
    make_file("b");
    struct kvs_node *node = look_up(root, "a");
    move("a", "kept");
    move("b", "a");
    assert_int_equal(kvs_node_open(&fs, node, O_RDONLY), -ESTALE);
    assert_int_equal(kvs_node_open(&fs, node, O_PATH), -ESTALE);
    forget(node);
}

static void c22_a_symlink_swapped_in_is_not_followed(void **state)
{
    char outside[] = "/tmp/kvseal-outside-XXXXXX";

    /* The other way to the same inode leads through a link out of the source and back in. */
    assert_non_null(mkdtemp(outside));
    make_dir("d");
    make_file("d/a");
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *a = look_up(d, "a");
    move("d", "kept");
    assert_int_equal(symlinkat("kept", fs.source_fd, "d"), 0);
    assert_int_equal(kvs_node_open(&fs, a, O_RDONLY), -ESTALE);
    assert_int_equal(kvs_node_open(&fs, d, O_PATH), -ESTALE);
    assert_int_equal(unlinkat(fs.source_fd, "d", 0), 0);
    assert_int_equal(symlinkat(outside, fs.source_fd, "d"), 0);
    assert_int_equal(kvs_node_open(&fs, a, O_RDONLY), -ESTALE);
    assert_int_equal(unlinkat(fs.source_fd, "d", 0), 0);
    move("kept", "d");
    move("d/a", "d/b");
    assert_int_equal(symlinkat("b", fs.source_fd, "d/a"), 0);
    assert_int_equal(kvs_node_open(&fs, a, O_RDONLY), -ESTALE);
    forget(a);
    forget(d);
    rmdir(outside);
}

static void an_unlinked_file_is_reached_through_who_has_it_open(void **state)
{
    make_file("a");
    struct kvs_node *node = look_up(root, "a");
    struct kvs_handle handle = {.fd = openat(fs.source_fd, "a", O_RDWR | O_CLOEXEC)};
    struct kvs_file file = {.node = node, .handles = &handle};
    assert_int_equal(unlinkat(fs.source_fd, "a", 0), 0);
    if (node->handle_len == 0)
        assert_int_equal(kvs_node_open(&fs, node, O_RDONLY), -ESTALE);
    node->file = &file;
    assert_content(node, "a");
    int fd = kvs_node_open(&fs, node, O_PATH);
    assert_int_equal(fcntl(fd, F_GETFL) & O_PATH, O_PATH);
    close(fd);
    node->file = NULL;
    forget(node);
    close(handle.fd);
}

static void a_replaced_file_is_kept_until_it_is_forgotten(void **state)
{
    make_file("a");
    struct kvs_node *node = look_up(root, "a");
    int fd = openat(fs.source_fd, "a", O_PATH | O_CLOEXEC);
    int another = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    assert_int_equal(unlinkat(fs.source_fd, "a", 0), 0);
    make_file("b");
    move("b", "a");
    kvs_node_keep(&fs, node, fd);
    kvs_node_keep(&fs, node, another); /* one is enough */
    assert_int_equal(fcntl(another, F_GETFD), -1);
    assert_content(node, "a");
    forget(node);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(node_count(), 1);
}

static void a_path_longer_than_the_kernel_takes_is_walked(void **state)
{
    struct kvs_node *at = root;
    char name[201];

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (int depth = 0; depth < 50; depth++) { /* 10,000 bytes */
        int fd = kvs_node_open(&fs, at, O_PATH | O_DIRECTORY);
        assert_true(fd >= 0);
        assert_int_equal(mkdirat(fd, name, 0700), 0);
        close(fd);
        struct kvs_node *next = look_up(at, name);
        if (at != root)
            forget(at);
        at = next;
    }
    forget(at);
    assert_int_equal(node_count(), 1);
}

static void special_files_are_only_located(void **state)
{
    assert_int_equal(mkfifoat(fs.source_fd, "fifo", 0600), 0);
    struct kvs_node *fifo = look_up(root, "fifo");
    assert_int_equal(kvs_node_open(&fs, fifo, O_RDONLY), -EINVAL);
    int fd = kvs_node_open(&fs, fifo, O_PATH);
    assert_true(fd >= 0);
    close(fd);
    forget(fifo);
}

/* Cost */

static void two_million_names_cost_at_most_400_bytes_each(void **state)
{
    struct stat st = {.st_mode = S_IFREG, .st_dev = 77};
    struct kvs_node **nodes = calloc(MANY_NAMES, sizeof(*nodes));
    char name[80];

    assert_non_null(nodes);
    struct mallinfo2 before = mallinfo2();
    for (size_t i = 0; i < MANY_NAMES; i++) {
        snprintf(name, sizeof(name), "%064zx.bin", i); /* 68 bytes, as clients name blocks */
        st.st_ino = 100 + i;
        assert_int_equal(kvs_node_adopt(&fs, root, name, -1, &st, &nodes[i]), 0);
    }
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(name_count(), MANY_NAMES);
    if (MEMORY_COUNTS) {
        /* A node of the source's own device also holds a file handle. */
        size_t bytes = (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) /
                           MANY_NAMES +
                       KVS_HANDLE_MAX;
        print_message("a name costs %zu bytes\n", bytes);
        assert_in_range(bytes, 1, 400);
    }
    for (size_t i = 0; i < MANY_NAMES; i++)
        forget(nodes[i]);
    assert_int_equal(node_count(), 1);
    assert_int_equal(name_count(), 0);
    free(nodes);
}

/* Concurrency */

#define THREADS 8
#define FILES   16

static void *hammer(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;

    for (int i = 0; i < 3000; i++) {
        char name[16], other[16];
        struct kvs_node *node;
        struct stat st;
        seed = seed * 1103515245 + 12345;
        snprintf(name, sizeof(name), "%u", seed / 65536 % FILES);
        snprintf(other, sizeof(other), "%u", seed / 1048576 % FILES);
        if (kvs_node_lookup(&fs, root, name, &node, &st) != 0 || node->ino != st.st_ino)
            return "lookup";
        if (i % 3 == 0)
            kvs_names_move(&fs, root, name, root, other, i % 2);
        if (i % 5 == 0)
            free(kvs_names_path(&fs, node));
        int fd = kvs_node_open(&fs, node, O_RDONLY);
        if (fd < 0 && fd != -ESTALE)
            return "open";
        kvs_close_fd(&fd);
        kvs_node_forget(&fs, node, 1);
    }
    return NULL;
}

static void threads_see_one_table(void **state)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        make_file(name);
    }
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(node_count(), 1);
    assert_int_equal(name_count(), 0);
    assert_int_equal(root->refs, 0);
}

#define WITH_HANDLES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define NAMES_ONLY(test)   cmocka_unit_test_setup_teardown(test, set_up_names_only, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        WITH_HANDLES(a_file_is_one_node),
        NAMES_ONLY(a_file_is_one_node),
        WITH_HANDLES(a_reference_keeps_a_node),
        WITH_HANDLES(names_keep_their_parents),
        NAMES_ONLY(names_keep_their_parents),
        WITH_HANDLES(the_root_is_never_freed),
        WITH_HANDLES(a_deep_path_is_freed),
        WITH_HANDLES(another_type_is_another_node),
        WITH_HANDLES(find_counts_no_look_up),
        WITH_HANDLES(c22_dots_are_not_looked_up),
        WITH_HANDLES(removing_the_last_name_says_so),
        WITH_HANDLES(a_rename_moves_the_name),
        WITH_HANDLES(an_exchange_swaps_both),
        WITH_HANDLES(a_rename_between_links_leaves_both),
        WITH_HANDLES(copies_hold_their_parents),
        WITH_HANDLES(names_of_directories_form_no_circle),
        WITH_HANDLES(a_directory_within_itself_has_no_name_there),
        WITH_HANDLES(handles_need_no_name),
        NAMES_ONLY(names_lead_to_the_inode),
        NAMES_ONLY(any_known_name_will_do),
        NAMES_ONLY(a_name_of_another_inode_is_not_opened),
        NAMES_ONLY(c22_a_symlink_swapped_in_is_not_followed),
        WITH_HANDLES(an_unlinked_file_is_reached_through_who_has_it_open),
        NAMES_ONLY(an_unlinked_file_is_reached_through_who_has_it_open),
        WITH_HANDLES(a_replaced_file_is_kept_until_it_is_forgotten),
        NAMES_ONLY(a_replaced_file_is_kept_until_it_is_forgotten),
        NAMES_ONLY(a_path_longer_than_the_kernel_takes_is_walked),
        WITH_HANDLES(special_files_are_only_located),
        NAMES_ONLY(special_files_are_only_located),
        WITH_HANDLES(two_million_names_cost_at_most_400_bytes_each),
        WITH_HANDLES(threads_see_one_table),
        NAMES_ONLY(threads_see_one_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
