// SPDX-License-Identifier: Apache-2.0
// Pins: what is verified and locked, for how long, and what becomes of it when the file changes.
#include "fuse/pinned.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/record.h"
#include "tests/unit/scratch.h"

#define MIB  ((size_t)1 << 20)
#define SIZE (MIB + 17)

static char content[4 * MIB];
static struct kvs_pins *pins;

static int make_block(const char *name, size_t size)
{
    char path[sizeof(dir) + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), size);
    assert_int_equal(kvs_record_write(fd, kvs_crc32c(0, content, size)), 0);
    return fd;
}

/* Until its times are so old that a later change is certain to show. */
static void settle(void)
{
    usleep(50000);
}

static struct kvs_pin *get(int fd, bool must_be_known)
{
    bool is_known = false;
    struct kvs_pin *pin = kvs_pins_get(pins, fd, &is_known);
    if (pin)
        assert_int_equal(is_known, must_be_known);
    return pin;
}

static size_t locked_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    assert_non_null(status);
    while (fgets(line, sizeof(line), status))
        sscanf(line, "VmLck: %zu kB", &kib);
    fclose(status);
    return kib;
}

static int setup(void **state)
{
    if (make_scratch() < 0)
        return -1;
    for (size_t i = 0; i < sizeof(content); i++)
        content[i] = (char)(i * 31 + i / 4096);
    return 0;
}

static int teardown(void **state)
{
    if (pins)
        kvs_pins_destroy(pins);
    pins = NULL;
    return remove_scratch();
}

/* Records and locked memory are not to be had everywhere. In the test itself, since cmocka sets
 * signal handlers of its own for each. */
static void make_pins(void)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    bool is_usable = kvs_pins_suit(fd) && kvs_record_probe(fd) == 0 && geteuid() == 0;
    close(fd);
    if (!is_usable)
        skip();
    assert_int_equal(kvs_pins_create(4 * MIB, 3 * MIB, &pins), 0);
}

static void c11_a_pin_is_used_again_while_nothing_changed(void **state)
{
    make_pins();
    int fd = make_block("a", SIZE);
    settle();
    struct kvs_pin *first = get(fd, false), *second = get(fd, true);
    assert_non_null(first);
    assert_ptr_equal(first, second);
    assert_int_equal(kvs_pin_size(first), SIZE);
    char bytes[100];
    assert_int_equal(kvs_pin_read(first, bytes, SIZE - 100, 100), 0);
    assert_memory_equal(bytes, content + SIZE - 100, 100);
    kvs_pins_put(pins, first);
    kvs_pins_put(pins, second);
    assert_true(locked_kib() > 0);
    struct kvs_pin *third = get(fd, true);
    assert_ptr_equal(first, third);
    kvs_pins_put(pins, third);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    kvs_pins_forget(pins, st.st_dev, st.st_ino);
    assert_int_equal(locked_kib(), 0);
    close(fd);
}

static void c11_a_block_that_changed_just_now_is_not_known_later(void **state)
{
    make_pins();
    int fd = make_block("a", SIZE);
    struct kvs_pin *pin = get(fd, false);
    struct stat st;
    assert_non_null(pin);
    kvs_pins_put(pins, pin);
    assert_int_equal(fstat(fd, &st), 0);
    kvs_pins_forget(pins, st.st_dev, st.st_ino); // where it took long, it was settled
    assert_int_equal(locked_kib(), 0);
    close(fd);
}

static void c11_what_changed_is_summed_again(void **state)
{
    make_pins();
    int fd = make_block("a", SIZE);
    settle();
    struct kvs_pin *old = get(fd, false);
    assert_non_null(old);
    assert_int_equal(pwrite(fd, "x", 1, 5), 1);
    assert_null(get(fd, false)); // does not match its record
    assert_int_equal(pwrite(fd, content + 5, 1, 5), 1);
    struct kvs_pin *fresh = get(fd, false);
    assert_non_null(fresh);
    assert_ptr_not_equal(old, fresh);
    kvs_pins_put(pins, old);
    kvs_pins_put(pins, fresh);
    assert_int_equal(kvs_record_write(fd, 1), 0);
    assert_null(get(fd, false));
    assert_int_equal(kvs_record_remove(fd), 0);
    assert_null(get(fd, false));
    assert_int_equal(locked_kib(), 0);
    close(fd);
}

static void c11_a_pin_that_was_cut_is_an_error(void **state)
{
    make_pins();
    int fd = make_block("a", SIZE);
    struct kvs_pin *pin = get(fd, false);
    char bytes[100];
    assert_non_null(pin);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(kvs_pin_read(pin, bytes, MIB, 100), -EIO);
    assert_int_equal(kvs_pin_read(pin, bytes, 0, 100), 0);
    kvs_pins_put(pins, pin);
    close(fd);
}

static void c11_the_budget_holds(void **state)
{
    make_pins();
    int fds[6];
    struct kvs_pin *used[3];
    for (unsigned i = 0; i < 6; i++) {
        char name[] = {(char)('a' + i), 0};
        fds[i] = make_block(name, SIZE);
    }
    settle();
    for (unsigned i = 0; i < 3; i++)
        assert_non_null(used[i] = get(fds[i], false));
    assert_null(get(fds[3], false)); // all is in use
    kvs_pins_put(pins, used[1]);
    kvs_pins_put(pins, used[0]);
    kvs_pins_put(pins, get(fds[3], false)); // instead of the one that waited longest
    kvs_pins_put(pins, get(fds[0], true));
    assert_true(locked_kib() <= 4 * MIB / 1024);
    kvs_pins_put(pins, get(fds[1], false));
    kvs_pins_put(pins, used[2]);
    int large = make_block("large", 3 * MIB + 1);
    assert_null(get(large, false));
    close(large);
    for (unsigned i = 0; i < 6; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(c11_a_pin_is_used_again_while_nothing_changed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(c11_a_block_that_changed_just_now_is_not_known_later, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(c11_what_changed_is_summed_again, setup, teardown),
        cmocka_unit_test_setup_teardown(c11_a_pin_that_was_cut_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(c11_the_budget_holds, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
