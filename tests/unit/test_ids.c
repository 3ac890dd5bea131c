// SPDX-License-Identifier: Apache-2.0
// The kernel's numbers after a takeover: ours, those of earlier daemons, and those nobody knows.
#include "fuse/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>

#include "fuse/control.h"

#define OLD ((uint64_t)1 << KVS_EPOCH_SHIFT | 0x1000)

static struct kvs_fs fs = {.epoch = 2};
static char node, handle, ours; /* what the numbers stand for */

struct request {
    struct fuse_in_header header;
    union {
        struct fuse_getattr_in getattr;
        struct fuse_setattr_in setattr;
        struct fuse_read_in read;
        struct fuse_rename2_in rename;
        struct fuse_link_in link;
        struct {
            struct fuse_batch_forget_in head;
            struct fuse_forget_one each[3];
        } forgets;
    } body;
};

static int resolve(struct request *request, uint32_t opcode, uint64_t nodeid)
{
    bool is_moot;
    request->header = (struct fuse_in_header){.opcode = opcode, .nodeid = nodeid};
    int error = kvs_ids_resolve(&fs, request, &is_moot);
    return is_moot ? -ENOENT : error;
}

static void nodes_are_found(void **state)
{
    struct request request;
    const struct {
        uint64_t number;
        const void *expected; /* NULL: nothing is changed */
        int error;
    } cases[] = {
        {0, NULL, 0},
        {FUSE_ROOT_ID, NULL, 0},
        {KVS_CONTROL_STATUS, NULL, 0},
        {kvs_id_of(&fs, &ours), &ours, 0},
        {OLD, &node, 0},
        {OLD + 8, NULL, -ESTALE},
        {(uintptr_t)&ours, NULL, -ESTALE}, /* of the first daemon */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(resolve(&request, FUSE_LOOKUP, cases[i].number), cases[i].error);
        uint64_t expected = cases[i].expected ? (uintptr_t)cases[i].expected : cases[i].number;
        assert_int_equal(request.header.nodeid, expected);
    }
    assert_int_equal(resolve(&request, FUSE_FORGET, OLD + 8), -ENOENT);
}

static void second_nodes_are_found(void **state)
{
    struct request request = {.body.rename = {.newdir = OLD}};
    assert_int_equal(resolve(&request, FUSE_RENAME2, OLD), 0);
    assert_int_equal(request.body.rename.newdir, (uintptr_t)&node);
    request.body.link.oldnodeid = OLD + 8;
    assert_int_equal(resolve(&request, FUSE_LINK, OLD), -ESTALE);
    request.body.forgets.head = (struct fuse_batch_forget_in){.count = 3};
    request.body.forgets.each[0] = (struct fuse_forget_one){OLD, 5};
    request.body.forgets.each[1] = (struct fuse_forget_one){OLD + 8, 6};
    request.body.forgets.each[2] = (struct fuse_forget_one){kvs_id_of(&fs, &ours), 7};
    assert_int_equal(resolve(&request, FUSE_BATCH_FORGET, 0), 0);
    assert_int_equal(request.body.forgets.each[0].nodeid, (uintptr_t)&node);
    assert_int_equal(request.body.forgets.each[1].nodeid, FUSE_ROOT_ID);
    assert_int_equal(request.body.forgets.each[1].nlookup, 0);
    assert_int_equal(request.body.forgets.each[2].nodeid, (uintptr_t)&ours);
}

/* A node and a handle may have had the same address in turn. */
static void handles_are_found(void **state)
{
    struct request request = {.body.read = {.fh = OLD}};
    assert_int_equal(resolve(&request, FUSE_READ, OLD), 0);
    assert_int_equal(request.body.read.fh, (uintptr_t)&handle);
    request.body.read.fh = OLD + 8;
    assert_int_equal(resolve(&request, FUSE_WRITE, OLD), -ESTALE);
    assert_int_equal(resolve(&request, FUSE_RELEASE, OLD), -ENOENT);
    assert_int_equal(resolve(&request, FUSE_READ, KVS_CONTROL_STATUS), 0);
    assert_int_equal(request.body.read.fh, KVS_CONTROL_NO_HANDLE);

    request.body.getattr = (struct fuse_getattr_in){.fh = OLD};
    assert_int_equal(resolve(&request, FUSE_GETATTR, OLD), 0);
    assert_int_equal(request.body.getattr.fh, OLD);
    request.body.getattr.getattr_flags = FUSE_GETATTR_FH;
    assert_int_equal(resolve(&request, FUSE_GETATTR, OLD), 0);
    assert_int_equal(request.body.getattr.fh, (uintptr_t)&handle);
    request.body.setattr = (struct fuse_setattr_in){.valid = FATTR_FH, .fh = OLD};
    assert_int_equal(resolve(&request, FUSE_SETATTR, OLD), 0);
    assert_int_equal(request.body.setattr.fh, (uintptr_t)&handle);
}

/* Whether the daemon that was killed has made it, nobody knows. ESTALE would make the kernel ask
 * anew. */
static void an_exchange_is_not_made_twice(void **state)
{
    struct request request = {.body.rename = {.newdir = OLD, .flags = RENAME_EXCHANGE}};
    bool is_moot;
    assert_int_equal(resolve(&request, FUSE_RENAME2, OLD), 0);
    request.header = (struct fuse_in_header){
        .opcode = FUSE_RENAME2, .nodeid = OLD, .unique = (uint64_t)1 << 63 | 2};
    request.body.rename.newdir = OLD;
    assert_int_equal(kvs_ids_resolve(&fs, &request, &is_moot), -EIO);
    assert_false(is_moot);
    request.body.rename.flags = RENAME_NOREPLACE;
    assert_int_equal(kvs_ids_resolve(&fs, &request, &is_moot), 0);
}

static void what_goes_is_not_found_any_more(void **state)
{
    struct request request;
    assert_int_equal(kvs_ids_add(fs.ids, KVS_ID_NODE, OLD, &ours), -EEXIST);
    kvs_ids_remove(fs.ids, KVS_ID_NODE, OLD);
    kvs_ids_remove(fs.ids, KVS_ID_NODE, OLD);
    kvs_ids_remove(NULL, KVS_ID_NODE, 0);
    assert_int_equal(resolve(&request, FUSE_LOOKUP, OLD), -ESTALE);
}

static int set_up(void **state)
{
    fs.ids = kvs_ids_create();
    return kvs_ids_add(fs.ids, KVS_ID_NODE, OLD, &node) |
           kvs_ids_add(fs.ids, KVS_ID_HANDLE, OLD, &handle);
}

static int tear_down(void **state)
{
    kvs_ids_destroy(fs.ids);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_nodes_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handles_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_exchange_is_not_made_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_goes_is_not_found_any_more, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ids", tests, NULL, NULL);
}
