// SPDX-License-Identifier: Apache-2.0
// Tells the service manager: ready, alive, stopping.
#include "fuse/service.h"

#include <stdio.h>

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

#include "core/log.h"

/* Taking the mount away, after the drain. */
#define UNMOUNT_MS 5000

void kvs_service_ready(const char *source, const char *mountpoint)
{
    /* A newline would end the status and begin another message. */
    char shown_source[512], shown_mountpoint[512];
    kvs_log_escape(source, shown_source, sizeof(shown_source));
    kvs_log_escape(mountpoint, shown_mountpoint, sizeof(shown_mountpoint));
    sd_notifyf(0, "READY=1\nSTATUS=Serving %s at %s", shown_source, shown_mountpoint);
}

void kvs_service_alive(void)
{
    sd_notify(0, "WATCHDOG=1");
}

void kvs_service_stopping(unsigned grace_ms)
{
    unsigned long long patience_us = (2ULL * grace_ms + UNMOUNT_MS) * 1000;
    sd_notifyf(0,
               "STOPPING=1\nSTATUS=Finishing requests and sealing blocks\nEXTEND_TIMEOUT_USEC=%llu",
               patience_us);
}

#else

void kvs_service_ready(const char *source, const char *mountpoint)
{
}

void kvs_service_alive(void)
{
}

void kvs_service_stopping(unsigned grace_ms)
{
}

#endif
