// SPDX-License-Identifier: Apache-2.0
// kvclient SEQUENCE ROOT [KEY [SIZE [SEED]]] [FLAG...]: runs one client's call sequence.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/clients/client.h"

/* Besides 0. */
enum { EXIT_USAGE = 1, EXIT_ERRNO = 2, EXIT_WRONG_BYTES = 3, EXIT_SHORT_READ = 4, EXIT_SKIP = 77 };

static const struct {
    const char *name;
    client_sequence *run;
} sequences[] = {
    {"vllm-probe-direct", client_vllm_probe_direct},
    {"vllm-probe-xattr", client_vllm_probe_xattr},
    {"vllm-store", client_vllm_store},
    {"vllm-load", client_vllm_load},
    {"vllm-lookup", client_vllm_lookup},
    {"llmd-store", client_llmd_store},
    {"llmd-load", client_llmd_load},
    {"llmd-lookup", client_llmd_lookup},
    {"lmcache-fs-store", client_lmcache_fs_store},
    {"lmcache-fs-load", client_lmcache_fs_load},
    {"lmcache-disk-store", client_lmcache_disk_store},
    {"lmcache-disk-load", client_lmcache_disk_load},
    {"lmcache-gds-store", client_lmcache_gds_store},
    {"lmcache-gds-load", client_lmcache_gds_load},
    {"sglang-store", client_sglang_store},
    {"sglang-load", client_sglang_load},
    {"nixl-store", client_nixl_store},
    {"nixl-load", client_nixl_load},
    {"link-store", client_link_store},
    {"link-tmpfile-store", client_link_tmpfile_store},
    {"slots-vllm-run", client_slots_vllm_run},
    {"slots-kvbm-run", client_slots_kvbm_run},
    {"slots-check", client_slots_check},
};

static const struct {
    const char *name;
    enum client_flag flag;
} flag_names[] = {{"direct", CLIENT_DIRECT}, {"crc", CLIENT_CRC}, {"uring", CLIENT_URING}};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static int usage(void)
{
    fputs(
        "usage: kvclient SEQUENCE ROOT [KEY [SIZE [SEED]]] [direct] [crc] [uring]\n"
        "SIZE is in bytes, 1 MiB if not given; KEY has at least five characters.\n"
        "Exit: 0, 1 usage, 2 an errno (printed), 3 wrong bytes, 4 short read, 77 skipped.\n"
        "Sequences:",
        stderr);
    for (size_t i = 0; i < COUNT_OF(sequences); i++)
        fprintf(stderr, " %s", sequences[i].name);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

static unsigned find_flag(const char *word)
{
    for (size_t i = 0; i < COUNT_OF(flag_names); i++) {
        if (strcmp(flag_names[i].name, word) == 0)
            return flag_names[i].flag;
    }
    return 0;
}

static bool parse_number(const char *word, uint64_t *value_ret)
{
    char *end = NULL;
    errno = 0;
    *value_ret = strtoull(word, &end, 0);
    return errno == 0 && end != word && *end == '\0';
}

static int report(int err)
{
    if (err == 0)
        return 0;
    if (err == CLIENT_WRONG_BYTES || err == CLIENT_SHORT_READ) {
        puts(err == CLIENT_WRONG_BYTES ? "wrong bytes" : "short read");
        return err == CLIENT_WRONG_BYTES ? EXIT_WRONG_BYTES : EXIT_SHORT_READ;
    }
    puts(strerrorname_np(-err));
    return EXIT_ERRNO;
}

int main(int argc, char **argv)
{
    unsigned flags = 0;
    while (argc > 3 && find_flag(argv[argc - 1]) != 0)
        flags |= find_flag(argv[--argc]);
    const char *key = argc > 3 ? argv[3] : "";
    uint64_t size = 1024 * 1024;
    uint64_t seed = 0;
    if (argc < 3 || argc > 6 || (argc > 4 && !parse_number(argv[4], &size)) ||
        (argc > 5 && !parse_number(argv[5], &seed)))
        return usage();
    if (flags & CLIENT_URING && !client_has_uring()) {
        puts("io_uring not available");
        return EXIT_SKIP;
    }
    for (size_t i = 0; i < COUNT_OF(sequences); i++) {
        if (strcmp(sequences[i].name, argv[1]) == 0)
            return report(sequences[i].run(argv[2], key, size, seed, flags));
    }
    return usage();
}
