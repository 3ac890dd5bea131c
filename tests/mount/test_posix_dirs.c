// SPDX-License-Identifier: Apache-2.0
// Large directories: every name is listed once, also when others go meanwhile (C19).
#include "tests/mount/fixture.h"

#include <dirent.h>
#include <sys/mount.h>

#define MANY  100000
#define MOST  1000000
#define LINKS 50000 /* ext4 allows 65,000 */

/* n0000000, n0000001 ...: links of one file, which cost less than files. */
static void make_names(const char *directory, unsigned count)
{
    char name[16], file[16];
    int dir = kvt_open(directory, O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "n%07u", i);
        if (i % LINKS == 0)
            strcpy(file, name);
        int error = i % LINKS == 0 ? mknodat(dir, name, S_IFREG | 0644, 0)
                                   : linkat(dir, file, dir, name, 0);
        if (error != 0)
            fail_msg("%s: %s", name, strerror(errno));
    }
    close(dir);
}

/* -1: none of make_names()'s. */
static int number_of(const char *name)
{
    unsigned number;
    return sscanf(name, "n%7u", &number) == 1 ? (int)number : -1;
}

static void c19_many_names_are_listed_once(void **state)
{
    struct kvt_env *env = *state;
    bool *seen = calloc(MANY, sizeof(*seen));
    unsigned dots = 0, count = 0;
    make_names(kvt_src(env, ""), MANY);
    DIR *stream = opendir(kvt_mnt(env, ""));
    for (int round = 0; round < 2; round++) {
        memset(seen, 0, MANY * sizeof(*seen));
        dots = count = 0;
        for (struct dirent *entry; (entry = readdir(stream));) {
            int number = number_of(entry->d_name);
            if (number < 0) {
                dots++;
                continue;
            }
            assert_true(number < MANY && !seen[number]);
            assert_true(entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN);
            seen[number] = true;
            count++;
        }
        assert_int_equal(dots, 2);
        assert_int_equal(count, MANY);
        rewinddir(stream);
    }
    closedir(stream);
    free(seen);
}

static void c19_names_that_stay_are_listed_while_others_go(void **state)
{
    struct kvt_env *env = *state;
    const unsigned total = 21000;
    unsigned char *times = calloc(total, 1);
    make_names(kvt_src(env, ""), total);
    DIR *stream = opendir(kvt_mnt(env, ""));
    int dir = dirfd(stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        int number = number_of(entry->d_name);
        if (number < 0)
            continue;
        times[number]++;
        if (number % 3 == 0) // what was just listed, as an evictor does
            assert_int_equal(unlinkat(dir, entry->d_name, 0), 0);
    }
    closedir(stream);
    for (unsigned i = 0; i < total; i++)
        assert_int_equal(times[i], 1);
    assert_int_equal(kvt_count_names(kvt_mnt(env, "")), total - total / 3);
    free(times);
}

static void c19_positions_of_a_directory_can_be_gone_back_to(void **state)
{
    struct kvt_env *env = *state;
    const unsigned total = 5000;
    static struct {
        long position;
        char name[16];
    } at[5002];
    make_names(kvt_src(env, ""), total);
    DIR *stream = opendir(kvt_mnt(env, ""));
    unsigned count = 0;
    for (struct dirent *entry;; count++) {
        long position = telldir(stream);
        if (!(entry = readdir(stream)))
            break;
        assert_true(count < total + 2);
        at[count].position = position;
        snprintf(at[count].name, sizeof(at[0].name), "%.15s", entry->d_name);
    }
    assert_int_equal(count, total + 2);
    for (unsigned i = 0; i < 500; i++) {
        unsigned which = (i * 7919) % count;
        seekdir(stream, at[which].position);
        for (unsigned next = which; next < which + 3 && next < count; next++)
            assert_string_equal(readdir(stream)->d_name, at[next].name);
    }
    closedir(stream);
}

static void c19_a_listing_begun_anew_sees_what_is_new(void **state)
{
    struct kvt_env *env = *state;
    DIR *stream = opendir(kvt_mnt(env, ""));
    while (readdir(stream))
        ;
    assert_int_equal(kvt_store(env, "mounted", 10, 1, 0), 0);
    assert_int_equal(kvt_write_file(kvt_src(env, "below"), KVT_CREATE, 10, 1, 0), 0);
    rewinddir(stream);
    unsigned count = 0;
    while (readdir(stream))
        count++;
    assert_int_equal(count, 4);
    closedir(stream);
}

/* d_ino and d_type agree with stat(2), and "." and ".." are there. */
static void c19_entries_say_what_stat_says(void **state)
{
    struct kvt_env *env = *state;
    assert_int_equal(kvt_store(env, "file", 10, 1, 0), 0);
    assert_int_equal(mkdir(kvt_mnt(env, "dir"), 0755), 0);
    assert_int_equal(symlink("x", kvt_mnt(env, "link")), 0);
    assert_int_equal(mkfifo(kvt_mnt(env, "fifo"), 0644), 0);
    DIR *stream = opendir(kvt_mnt(env, ""));
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(stream)); count++) {
        struct stat st;
        if (entry->d_name[0] == '.')
            continue;
        assert_int_equal(fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(entry->d_ino, st.st_ino);
        assert_int_equal(entry->d_type, IFTODT(st.st_mode));
    }
    assert_int_equal(count, 6);
    closedir(stream);
}

static void c19_a_million_names(void **state)
{
    struct kvt_env *env = *state;
    kvt_only_on(env, KVT_TMPFS);
    assert_int_equal(mount(NULL, env->source, NULL, MS_REMOUNT, "nr_inodes=2000000"), 0);
    make_names(kvt_src(env, ""), MOST);
    assert_int_equal(kvt_count_names(kvt_mnt(env, "")), MOST);
    assert_int_equal(access(kvt_mnt(env, "n0999999"), F_OK), 0);
    assert_int_equal(kvt_store(env, "one more", 1000, 1, 0), 0);
    assert_int_equal(kvt_load(env, "one more", 1000, 1, 0), 0);

    char name[16];
    int dir = kvt_open(kvt_src(env, ""), O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < MOST; i++) { // faster than the fixture would
        snprintf(name, sizeof(name), "n%07u", i);
        assert_int_equal(unlinkat(dir, name, 0), 0);
    }
    close(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c19_many_names_are_listed_once),
        kvt_test(c19_names_that_stay_are_listed_while_others_go),
        kvt_test(c19_positions_of_a_directory_can_be_gone_back_to),
        kvt_test(c19_a_listing_begun_anew_sees_what_is_new),
        kvt_test(c19_entries_say_what_stat_says),
        kvt_test(c19_a_million_names),
    };
    return kvt_main("posix dirs", tests, sizeof(tests) / sizeof(tests[0]), KVT_TMPFS | KVT_EXT4);
}
