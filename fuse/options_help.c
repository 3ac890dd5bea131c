// SPDX-License-Identifier: Apache-2.0
// What kvsealfs -h prints.
#include <stdio.h>

#include "core/record.h"
#include "fuse/options.h"

void kvs_options_print_help(const char *program)
{
    printf(
        "usage: %s SOURCE MOUNTPOINT [-o OPTION,...] [-f] [-d]\n"
        "\n"
        "Shows SOURCE at MOUNTPOINT (which may be the same directory). Each block file gets its\n"
        "CRC32C in the attribute %s as it is stored, and is verified\n"
        "against it when it is opened for reading.\n"
        "\n"
        "  -f             stay in the foreground, log to stderr\n"
        "  -d             the same, with debug output\n"
        "  -h, --help     this text\n"
        "  -V, --version  the version\n"
        "  --ready-file PATH   a file that is there while the mount serves\n"
        "  --grace SECONDS     how long the end may take after SIGTERM (10)\n"
        "\n"
        "%s --healthcheck MOUNTPOINT [--timeout SECONDS]\n"
        "  exits 0 when a live kvsealfs answers there in time (5 seconds), else 1\n"
        "\n"
        "A daemon without privileges, and who mounts for it; either may start first:\n"
        "%s --fd-socket SOCKET SOURCE [--timeout SECONDS] [-o OPTION,...] [-f] [-d]\n"
        "  serves the mount that it is given at SOCKET; SOURCE /dev/fd/N: that it inherited\n"
        "%s --mount-for SOCKET [--user UID] [--stay [--hold SECONDS]] [--timeout SECONDS]\n"
        "         [-o OPTION,...] NAME MOUNTPOINT\n"
        "  mounts when a daemon of this user comes to SOCKET within the time (60 seconds), and\n"
        "  ends; --stay: takes the mount away after it, and waits for the next one; --hold: the\n"
        "  mount waits so long too, and the calls of its clients with it\n"
        "\n",
        program, KVS_RECORD_NAME, program, program, program);
    fputs(
        "-o options (what applies when it is not given):\n"
        "  on_corrupt=remove|quarantine|keep   what happens to a corrupt block (remove)\n"
        "  corrupt_errno=EBADMSG|EIO|ENOENT    what opening a corrupt block fails with (EBADMSG)\n"
        "  unsealed=allow|seal|deny            a block without a record (allow)\n"
        "  max_reread=SIZE                     the most to read back in order to seal (1G)\n"
        "  buffer_memory=SIZE                  memory for blocks and requests, from 32M (1G)\n"
        "  buffers=auto|off                    verified blocks kept in memory while open (auto)\n"
        "  checksums=on|off                    off: seal and verify nothing, to measure (on)\n"
        "  passthrough=auto|off                buffered loads by the kernel itself (auto)\n"
        "  pinned_memory=SIZE                  memory for their locked pages, from 1M (256M)\n"
        "  attr_timeout=SECONDS                attributes kept by the kernel (1)\n"
        "  entry_timeout=SECONDS               names kept by the kernel (1)\n"
        "  negative_timeout=SECONDS            missing names kept by the kernel (0)\n"
        "  invalidate=auto|names               how the kernel forgets a removed block (auto)\n"
        "  max_names=NUMBER                    most names that are remembered, 0: all (250000)\n"
        "  scrub_within=TIME                   verify the whole source again in this time (off)\n"
        "  threads=NUMBER                      most requests served at once, 4 to 4096 (512)\n"
        "  metrics=[HOST:]PORT                 /metrics, /healthz, /readyz by HTTP (none)\n"
        "  grace=SECONDS                       the same as --grace (10)\n"
        "  require_shared                      fail where others would not see the mount\n"
        "  immutable=auto|off                  an empty mount point is made immutable under the\n"
        "                                      mount, and given back at the end (auto)\n"
        "  ro                                  read only: corrupt blocks are refused, none goes\n"
        "  allow_other, allow_root             who else may use it (root's mount: allow_other)\n"
        "  fsname=NAME, subtype=NAME           as shown by mount(8) (SOURCE, kvsealfs)\n"
        "  dev, suid, noexec, sync ...         as in mount(8)\n"
        "SIZE takes K, M, G or T. \"\\,\" stands for a comma in a value. Where\n"
        "memory is limited, the defaults of the two memories fit it. See kvsealfs(8).\n",
        stdout);
}
