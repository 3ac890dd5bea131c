// SPDX-License-Identifier: Apache-2.0
// Which names the kernel is asked to forget: those that were looked up longest ago and that nothing
// needs.
#include "fuse/forget.h"

#include "tests/unit/nodes.h"

static struct kvs_old_names names;

/* One full turn of the hand. */
static void turn(bool by_name)
{
    names.count = 0;
    kvs_forget_pick(&fs, fs.table->node_buckets, by_name, &names);
}

static bool is_picked(const char *text)
{
    for (size_t i = 0; i < names.count; i++) {
        if (strcmp(names.entries[i].text, text) == 0)
            return true;
    }
    return false;
}

static void what_was_just_looked_up_gets_a_second_chance(void **state)
{
    make_file("a");
    make_file("b");
    struct kvs_node *a = look_up(root, "a");
    struct kvs_node *b = look_up(root, "b");
    turn(false);
    assert_int_equal(names.count, 0);
    look_up(root, "b");
    turn(false);
    assert_int_equal(names.count, 1);
    assert_string_equal(names.entries[0].text, "a");
    assert_int_equal(names.entries[0].ino, kvs_node_ino(&fs, a));
    assert_int_equal(names.entries[0].parent, FUSE_ROOT_ID);
    kvs_node_forget(&fs, b, 2);
    forget(a);
    assert_int_equal(node_count(), 1);
}

static void what_the_kernel_kept_is_asked_for_again_two_turns_later(void **state)
{
    make_file("a");
    look_up(root, "a");
    turn(false);
    turn(false);
    assert_true(is_picked("a"));
    turn(false);
    assert_false(is_picked("a"));
    turn(false);
    assert_true(is_picked("a"));
}

static void what_is_needed_is_passed_over(void **state)
{
    make_dir("d");
    make_file("d/a");
    make_file("open");
    struct kvs_node *d = look_up(root, "d");
    struct kvs_node *a = look_up(d, "a");
    kvs_node_ref(&fs, look_up(root, "open")); /* as an open handle, or an owed seal, does */
    turn(false);
    turn(false);
    assert_int_equal(names.count, 1);
    assert_true(is_picked("a"));
    forget(a);
    turn(false);
    turn(false);
    assert_int_equal(names.count, 1);
    assert_true(is_picked("d"));
}

static void by_name_no_directory_is_picked_and_each_name_is(void **state)
{
    make_dir("d");
    make_file("a");
    assert_int_equal(linkat(fs.source_fd, "a", fs.source_fd, "b", 0), 0);
    look_up(root, "d");
    look_up(root, "a");
    look_up(root, "b");
    turn(true);
    turn(true);
    assert_int_equal(names.count, 2);
    assert_true(is_picked("a"));
    assert_true(is_picked("b"));
}

/* Also while the table grows under the hand. */
static void turns_reach_every_name(void **state)
{
    char name[16];
    unsigned count = 5000, picked = 0;

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        make_file(name);
        look_up(root, name);
        kvs_forget_pick(&fs, 7, false, &names);
        names.count = 0;
    }
    /* The last ones of a chain that did not fit in wait for the next turn. */
    for (size_t left = 4 * fs.table->node_buckets; left > 0;) {
        names.count = 0;
        left -= kvs_forget_pick(&fs, KVS_MIN(left, fs.table->node_buckets), false, &names);
        for (size_t i = 0; i < names.count; i++)
            forget(kvs_node_of(&fs, names.entries[i].ino));
        picked += names.count;
    }
    assert_in_range(picked, 1, count);
    assert_int_equal(node_count(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HANDLES(what_was_just_looked_up_gets_a_second_chance),
        WITH_HANDLES(what_the_kernel_kept_is_asked_for_again_two_turns_later),
        WITH_HANDLES(what_is_needed_is_passed_over),
        NAMES_ONLY(by_name_no_directory_is_picked_and_each_name_is),
        WITH_HANDLES(turns_reach_every_name),
    };

    return cmocka_run_group_tests_name("forget", tests, NULL, NULL);
}
