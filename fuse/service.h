// SPDX-License-Identifier: Apache-2.0
// What the service manager is told of the daemon's life (sd_notify(3)).
//
// All of this does nothing where no service manager asked for it ($NOTIFY_SOCKET), and in a build
// without libsystemd. Nothing fails: a manager that cannot be reached changes nothing for clients.
#ifndef KVSEAL_FUSE_SERVICE_H
#define KVSEAL_FUSE_SERVICE_H

/* The mount serves. Both paths become the unit's status line. */
void kvs_service_ready(const char *source, const char *mountpoint);

/* The loop takes requests: call it every few seconds, and only if that is true. Without it the
 * watchdog, where one is set (WatchdogSec= of more than five seconds), ends the daemon. */
void kvs_service_alive(void);

/* The end begins: requests that run, and then the last seals, have `grace_ms` each. The manager's
 * patience is extended to that and a little more. */
void kvs_service_stopping(unsigned grace_ms);

#endif
