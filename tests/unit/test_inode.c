// SPDX-License-Identifier: Apache-2.0
// Nodes: how long they live, what they are called, what they cost.
#include "fuse/inode.h"

#include <malloc.h>
#include <pthread.h>

#include "tests/unit/nodes.h"

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
    struct kvs_node *file, *folder;

    assert_int_equal(kvs_node_adopt(&fs, root, "a", -1, &st, &file), 0);
    st.st_mode = S_IFDIR; /* the inode number is used again */
    assert_int_equal(kvs_node_adopt(&fs, root, "a", -1, &st, &folder), 0);
    assert_ptr_not_equal(file, folder);
    assert_named(root, "a", folder);
    assert_null(file->names);
    forget(file);
    assert_int_equal(folder->nlookup, 1);
    forget(folder);
    assert_int_equal(node_count(), 1);
}

static void an_ended_node_is_not_found(void **state)
{
    make_file("a");
    struct kvs_node *old = look_up(root, "a");
    kvs_node_end(&fs, old);
    struct kvs_node *node = look_up(root, "a");
    assert_ptr_not_equal(node, old);
    assert_named(root, "a", node);
    assert_null(old->names);
    forget(old);
    assert_ptr_equal(look_up(root, "a"), node);
    kvs_node_forget(&fs, node, 2);
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
    assert_false(kvs_names_remove(&fs, root, "unknown", node));
    assert_false(kvs_names_remove(&fs, root, "a", root));
    assert_false(kvs_names_remove(&fs, root, "a", node));
    assert_true(kvs_names_remove(&fs, root, "b", node));
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

/* Between the opening of a name and the look-up's note of it. */
static void (*meanwhile)(void);

int __real_openat64(int at_fd, const char *path, int flags, ...);
int __wrap_openat64(int at_fd, const char *path, int flags, ...);

int __wrap_openat64(int at_fd, const char *path, int flags, ...)
{
    void (*act)(void) = meanwhile;
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    int fd = __real_openat64(at_fd, path, flags, mode);
    if (act && strcmp(path, "a") == 0) {
        meanwhile = NULL;
        act();
    }
    return fd;
}

static struct kvs_node *newer;

static void replace_a(void)
{
    assert_int_equal(renameat(fs.source_fd, "a", fs.source_fd, "old"), 0);
    make_file("a");
    newer = look_up(root, "a");
}

static void move_a_away(void)
{
    move("a", "b");
    assert_int_equal(kvs_names_move(&fs, root, "a", root, "b", false), 0);
}

static void a_slow_look_up_takes_no_name_from_a_newer_file(void **state)
{
    make_file("a");
    for (int is_known = 0; is_known <= 1; is_known++) {
        struct kvs_node *old = is_known ? look_up(root, "a") : NULL;
        meanwhile = replace_a;
        struct kvs_node *node = look_up(root, "a");
        assert_ptr_equal(node, newer);
        assert_ptr_not_equal(node, old);
        assert_named(root, "a", newer);
        kvs_node_forget(&fs, newer, 2);
        if (old)
            forget(old);
    }
    assert_int_equal(node_count(), 1);
}

static void a_slow_look_up_gives_no_name_back(void **state)
{
    struct kvs_node *node;
    struct stat st;

    make_file("a");
    struct kvs_node *known = look_up(root, "a");
    meanwhile = move_a_away;
    assert_int_equal(kvs_node_lookup(&fs, root, "a", &node, &st), -ENOENT);
    assert_path(known, "b");
    assert_named(root, "a", NULL);
    forget(known);
    assert_int_equal(node_count(), 1);
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
        WITH_HANDLES(an_ended_node_is_not_found),
        NAMES_ONLY(an_ended_node_is_not_found),
        WITH_HANDLES(find_counts_no_look_up),
        WITH_HANDLES(c22_dots_are_not_looked_up),
        WITH_HANDLES(removing_the_last_name_says_so),
        WITH_HANDLES(a_rename_moves_the_name),
        WITH_HANDLES(an_exchange_swaps_both),
        WITH_HANDLES(a_rename_between_links_leaves_both),
        WITH_HANDLES(copies_hold_their_parents),
        WITH_HANDLES(names_of_directories_form_no_circle),
        WITH_HANDLES(a_directory_within_itself_has_no_name_there),
        WITH_HANDLES(a_slow_look_up_takes_no_name_from_a_newer_file),
        NAMES_ONLY(a_slow_look_up_takes_no_name_from_a_newer_file),
        WITH_HANDLES(a_slow_look_up_gives_no_name_back),
        WITH_HANDLES(two_million_names_cost_at_most_400_bytes_each),
        WITH_HANDLES(threads_see_one_table),
        NAMES_ONLY(threads_see_one_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
