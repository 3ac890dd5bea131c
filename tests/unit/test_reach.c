// SPDX-License-Identifier: Apache-2.0
// Reaching a node's inode: by handle, by name, through who has it open; and never another one.
#include "fuse/reach.h"

#include "fuse/file.h"
#include "tests/unit/nodes.h"

static void handles_need_no_name(void **state)
{
    make_dir("d");
    make_file("d/a");
    assert_int_equal(symlinkat("target", fs.source_fd, "link"), 0);
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *a = look_up(d, "a");
    struct kvs_node *link = look_up(root, "link");
    if (a->handle_len == 0) {
        print_message("no file handles here (%s): not checked\n", dir);
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

/* Without CAP_DAC_READ_SEARCH. */
static void handles_that_may_not_be_opened_tell_files_apart(void **state)
{
    kvs_table_use_handles(fs.table, KVS_HANDLES_COMPARE);
    make_file("a");
    struct kvs_node *old = look_up(root, "a");
    ino_t ino = old->ino;
    if (old->handle_len == 0) {
        print_message("no file handles here: not checked\n");
    } else {
        assert_content(old, "a");
        assert_int_equal(unlinkat(fs.source_fd, "a", 0), 0);
        make_file("a");
        struct kvs_node *node = look_up(root, "a");
        assert_ptr_not_equal(node, old);
        print_message("%s\n", node->ino == ino ? "the same number" : "not the same number here");
        assert_content(node, "a");
        assert_int_equal(kvs_node_open(&fs, old, O_PATH), -ESTALE);
        forget(node);
    }
    forget(old);
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

static void what_is_let_go_is_not_kept(void **state)
{
    make_file("a");
    struct kvs_node *node = look_up(root, "a");
    int fd = openat(fs.source_fd, "a", O_PATH | O_CLOEXEC);
    kvs_node_keep(&fs, node, fd);
    assert_int_equal(fs.table->kept_count, 1);
    kvs_node_let_go(&fs, node);
    kvs_node_let_go(&fs, node);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(fs.table->kept_count, 0);
    forget(node);
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        WITH_HANDLES(handles_need_no_name),
        NAMES_ONLY(names_lead_to_the_inode),
        WITH_HANDLES(handles_that_may_not_be_opened_tell_files_apart),
        NAMES_ONLY(any_known_name_will_do),
        NAMES_ONLY(a_name_of_another_inode_is_not_opened),
        NAMES_ONLY(c22_a_symlink_swapped_in_is_not_followed),
        WITH_HANDLES(an_unlinked_file_is_reached_through_who_has_it_open),
        NAMES_ONLY(an_unlinked_file_is_reached_through_who_has_it_open),
        WITH_HANDLES(what_is_let_go_is_not_kept),
        WITH_HANDLES(a_replaced_file_is_kept_until_it_is_forgotten),
        NAMES_ONLY(a_replaced_file_is_kept_until_it_is_forgotten),
        NAMES_ONLY(a_path_longer_than_the_kernel_takes_is_walked),
        WITH_HANDLES(special_files_are_only_located),
        NAMES_ONLY(special_files_are_only_located),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
