/*
 * Tells the service manager the daemon's state, in the protocol of sd_notify: a datagram of
 * "NAME=value" lines to the socket that $NOTIFY_SOCKET names. The protocol is stable and so small
 * that libsystemd is not needed. Called by main; calls nothing of the daemon.
 */
#ifndef GM_DAEMON_SERVICE_NOTIFY_H
#define GM_DAEMON_SERVICE_NOTIFY_H

/* Send `lines`. Returns 0 or -errno; 0 also if $NOTIFY_SOCKET is not set. Never blocks. */
int gm_notify(const char *lines);

#endif
