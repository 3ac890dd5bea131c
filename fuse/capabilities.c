// SPDX-License-Identifier: Apache-2.0
// The capabilities that are kept, each with what goes missing without it.
#include "fuse/capabilities.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"

/* CAP_SYS_RESOURCE is dropped on purpose: with it the daemon would write past its clients' quotas
 * and into the reserve of a full disk. */
static const struct needed {
    cap_value_t capability;
    const char *name;
    const char *without;
} needed[] = {
    {CAP_SYS_ADMIN, "SYS_ADMIN", "mounts by fusermount3, no trusted attributes, no passthrough"},
    {CAP_DAC_OVERRIDE, "DAC_OVERRIDE", "only what the daemon's user may reach"},
    {CAP_DAC_READ_SEARCH, "DAC_READ_SEARCH", "files found by name, not by handle"},
    {CAP_CHOWN, "CHOWN", "no chown"},
    {CAP_FOWNER, "FOWNER", "loads move access times as a plain read does, no chmod for others"},
    {CAP_FSETID, "FSETID", "no set-group-ID for root"},
    {CAP_SETUID, "SETUID", "new files belong to the daemon's user"},
    {CAP_SETGID, "SETGID", "new files belong to the daemon's group"},
    {CAP_IPC_LOCK, "IPC_LOCK", "no passthrough"},
    {CAP_LINUX_IMMUTABLE, "LINUX_IMMUTABLE", "an empty mount point stays writable"},
    {CAP_MKNOD, "MKNOD", "no device nodes"},
    {CAP_SETFCAP, "SETFCAP", "no file capabilities"},
};
#define NEEDED_COUNT (sizeof(needed) / sizeof(*needed))

/* Permitted and effective become `kept`; nothing is inherited. 0 or -1 with errno. */
static int set_capabilities(const cap_value_t *kept, int count)
{
    cap_t capabilities = cap_init();
    if (!capabilities)
        return -1;
    int result = 0;
    if (count > 0 && (cap_set_flag(capabilities, CAP_PERMITTED, count, kept, CAP_SET) ||
                      cap_set_flag(capabilities, CAP_EFFECTIVE, count, kept, CAP_SET)))
        result = -1;
    result = result ? result : cap_set_proc(capabilities);
    cap_free(capabilities);
    return result;
}

void kvs_capabilities_reduce(void)
{
    cap_t present = cap_get_proc();
    if (!present) {
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING, "cannot read the capabilities: %s", strerror(errno));
        return;
    }
    cap_value_t kept[NEEDED_COUNT];
    int count = 0;
    char missing[1024] = "";
    size_t len = 0;
    for (size_t i = 0; i < NEEDED_COUNT; i++) {
        cap_flag_value_t value = CAP_CLEAR;
        cap_get_flag(present, needed[i].capability, CAP_PERMITTED, &value);
        if (value == CAP_SET)
            kept[count++] = needed[i].capability;
        else if (len < sizeof(missing))
            len += (size_t)snprintf(missing + len, sizeof(missing) - len, "%s%s (%s)",
                                    len ? ", " : "", needed[i].name, needed[i].without);
    }
    cap_free(present);
    if (set_capabilities(kept, count))
        kvs_log(KVS_LOG_ALWAYS, LOG_WARNING, "cannot drop capabilities: %s", strerror(errno));
    if (len)
        kvs_log(KVS_LOG_ALWAYS, LOG_NOTICE, "capabilities missing: %s", missing);
}

bool kvs_capabilities_have(cap_value_t capability)
{
    cap_t present = cap_get_proc();
    cap_flag_value_t value = CAP_CLEAR;

    if (present) {
        cap_get_flag(present, capability, CAP_EFFECTIVE, &value);
        cap_free(present);
    }
    return value == CAP_SET;
}
