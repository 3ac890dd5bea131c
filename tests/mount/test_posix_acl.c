// SPDX-License-Identifier: Apache-2.0
// POSIX access lists through the mount are enforced, inherited and kept as below it (C19).
#include "tests/mount/fixture_scenario.h"

#include <sys/xattr.h>

#define ACCESS  "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

/* As the kernel takes them: a version, then (tag, permissions, id) each, little-endian. */
struct access_list {
    uint32_t version;
    struct {
        uint16_t tag, permissions;
        uint32_t id;
    } entries[6];
};
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, NAMED_GROUP = 8, MASK = 16, OTHERS = 32 };

static int set_list(const char *path, const char *name, int user, int group, int mask)
{
    struct access_list list = {2,
                               {{USER_OBJ, 7, UINT32_MAX},
                                {USER, (uint16_t)user, KVT_OTHER},
                                {GROUP_OBJ, 5, UINT32_MAX},
                                {NAMED_GROUP, (uint16_t)group, KVT_SECOND},
                                {MASK, (uint16_t)mask, UINT32_MAX},
                                {OTHERS, 0, UINT32_MAX}}};
    return setxattr(path, name, &list, sizeof(list), 0);
}

static void note_list(const char *path, const char *name)
{
    struct access_list list = {0};
    ssize_t size = getxattr(path, name, &list, sizeof(list));
    kvt_note("%s of %s: %zd bytes%s%s", name, path, size, size < 0 ? " " : "",
             size < 0 ? strerrorname_np(errno) : "");
    for (ssize_t i = 0; i < (size - 4) / 8; i++)
        kvt_note("  %u %u %u", list.entries[i].tag, list.entries[i].permissions,
                 list.entries[i].id);
}

static void try_listed(void)
{
    kvt_try(open("listed", O_RDONLY));
    kvt_try(open("listed", O_WRONLY));
    kvt_try(access("listed", X_OK));
    kvt_try(set_list("listed", ACCESS, 7, 7, 7));
    kvt_try(removexattr("listed", ACCESS));
    kvt_try(set_list("dir", DEFAULT, 7, 7, 7));
}

static void see_access_lists(void)
{
    static const int permissions[][3] = {{4, 0, 7}, {6, 2, 7}, {7, 7, 4}, {0, 6, 7}, {7, 0, 0}};
    kvt_make_file("listed", 0640, KVT_OWNER, KVT_GROUP);
    kvt_make_dir("dir", 0750, KVT_OWNER, KVT_GROUP);
    for (size_t i = 0; i < sizeof(permissions) / sizeof(permissions[0]); i++) {
        const int *of = permissions[i];
        kvt_try(set_list("listed", ACCESS, of[0], of[1], of[2]));
        note_list("listed", ACCESS);
        kvt_note_stat("listed");
        kvt_as_member(try_listed);
        kvt_as_whom(3000, 3000, 1, (gid_t[]){KVT_SECOND}, try_listed);
        kvt_as_stranger(try_listed);
        kvt_try(chmod("listed", 0710)); // is the mask's
        note_list("listed", ACCESS);
    }
    kvt_as_owner(try_listed);
    note_list("listed", ACCESS);
    note_list("dir", DEFAULT);
    kvt_try(set_list("listed", DEFAULT, 7, 7, 7)); // no directory
    kvt_try(setxattr("listed", ACCESS, "bad", 3, 0));
    kvt_try(removexattr("listed", ACCESS));
    note_list("listed", ACCESS);
    kvt_note_stat("listed");
}

static void c19_access_lists_are_enforced(void **state)
{
    kvt_same_as_below(*state, see_access_lists);
}

static void create_and_note_lists(void)
{
    umask(077);
    kvt_try(open("file", O_CREAT | O_EXCL | O_WRONLY, 0666));
    kvt_try(mkdir("sub", 0777));
    kvt_try(mkfifo("fifo", 0620));
    kvt_note_fstat((int)kvt_try(open(".", O_TMPFILE | O_RDWR, 0666)));
    kvt_note_stat("file");
    kvt_note_stat("sub");
    kvt_note_stat("fifo");
    note_list("file", ACCESS);
    note_list("sub", ACCESS);
    note_list("sub", DEFAULT);
    note_list("fifo", ACCESS);
    unlink("file");
    unlink("fifo");
    rmdir("sub");
}

static void see_default_lists(void)
{
    kvt_make_dir("dir", 02777, 5, KVT_SECOND);
    kvt_try(set_list("dir", DEFAULT, 6, 5, 7));
    kvt_try(chmod("dir", 02777));
    kvt_holds(chdir("dir") == 0);
    create_and_note_lists();
    kvt_as_owner(create_and_note_lists);
    kvt_as_member(create_and_note_lists);
    kvt_try(removexattr(".", DEFAULT));
    kvt_as_owner(create_and_note_lists);
}

static void c19_default_access_lists_replace_the_umask(void **state)
{
    kvt_same_as_below(*state, see_default_lists);
}

/* Set-group-ID goes when somebody outside the group sets a list. */
static void set_own_list(void)
{
    kvt_try(set_list("file", ACCESS, 7, 7, 7));
    kvt_note_stat("file");
}

static void see_lists_and_setgid(void)
{
    kvt_make_file("file", 02775, KVT_OTHER, 3000);
    kvt_as_member(set_own_list);
    kvt_give("file", 02775, KVT_OTHER, KVT_SECOND);
    kvt_as_member(set_own_list);
    kvt_give("file", 02775, KVT_OTHER, 3000);
    set_own_list();
}

static void c19_access_lists_and_setgid(void **state)
{
    kvt_same_as_below(*state, see_lists_and_setgid);
}

static void c09_an_access_list_leaves_the_record(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "a", 5000, 1, 0), 0);
    assert_int_equal(set_list(kvt_mnt(env, "a"), ACCESS, 4, 4, 4), 0);
    kvt_assert_sealed_block(env, "a", 5000, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c19_access_lists_are_enforced),
        kvt_test(c19_default_access_lists_replace_the_umask),
        kvt_test(c19_access_lists_and_setgid),
        kvt_test(c09_an_access_list_leaves_the_record),
    };
    return kvt_main("posix acl", tests, sizeof(tests) / sizeof(tests[0]), KVT_DISKS | KVT_DIR);
}
