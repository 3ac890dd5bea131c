// SPDX-License-Identifier: Apache-2.0
// kvseal: checks, seals, shows and scrubs block files without a mount. This is main() and the table
// of commands.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/cli/apart.h"
#include "core/cli/cli.h"

static const struct kvs_cli_command *const commands[] = {
    &kvs_cmd_verify, &kvs_cmd_seal,       &kvs_cmd_show,
    &kvs_cmd_scrub,  &kvs_cmd_quarantine, &kvs_cmd_status,
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int show_help(void)
{
    printf(
        "Usage: kvseal COMMAND [OPTION...] OPERAND...\n"
        "       kvseal COMMAND --help\n"
        "       kvseal --help | --version\n"
        "\n"
        "Commands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    printf(
        "\n"
        "Exit status: 0 all is well, 1 a block is corrupt, 2 not everything could be done, "
        "64 wrong usage.\n");
    return kvs_cli_finish(KVS_CLI_OK);
}

static const struct kvs_cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    }
    kvs_cli_fail_usage(NULL, "unknown command %s", name);
}

/* As many as the system lets us: a walk holds one a level, and so many jobs hold some more. */
static void allow_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    const struct kvs_cli_command *command = NULL;

    if (argc < 2)
        kvs_cli_fail_usage(NULL, "no command is given");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return show_help();
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("kvseal " KVSEAL_VERSION);
        return kvs_cli_finish(KVS_CLI_OK);
    }
    if (argv[1][0] == '-')
        kvs_cli_fail_usage(NULL, "unknown option %s", argv[1]);
    /* Who opens a file for writing while a lease is tried on it sends this. */
    signal(SIGIO, SIG_IGN);
    allow_open_files();
    command = find_command(argv[1]);
    return command->is_apart ? kvs_cli_run_apart(command, argc - 1, argv + 1)
                             : command->run(argc - 1, argv + 1);
}
