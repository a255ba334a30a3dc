/*
 * Tells the service manager the state of this process, in the protocol of sd_notify: a datagram of
 * "NAME=value" lines to the socket that $NOTIFY_SOCKET names. The protocol is stable and so small
 * that libsystemd is not needed. Called by the daemon's main and by the keeper; calls nobody.
 */
#ifndef GM_COMMON_NOTIFY_H
#define GM_COMMON_NOTIFY_H

#include <stdint.h>

/* Send `lines`. Returns 0 or -errno; 0 also if $NOTIFY_SOCKET is not set. Never blocks. */
int gm_notify(const char *lines);

/* Nanoseconds within which this process has to say WATCHDOG=1 again and again, or the service
 * manager takes it for hung (WatchdogSec). 0: it need not. */
uint64_t gm_notify_watchdog(void);

#endif
