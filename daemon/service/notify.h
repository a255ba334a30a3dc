/*
 * Telling the service manager how the daemon is doing: the sd_notify protocol, which is one
 * datagram of "NAME=value" lines to the socket that $NOTIFY_SOCKET names.
 *
 * Spoken here and not through libsystemd: the protocol is documented as stable, it is this small,
 * and a build that links only glibc then works under Type=notify too.
 */
#ifndef GM_DAEMON_SERVICE_NOTIFY_H
#define GM_DAEMON_SERVICE_NOTIFY_H

/*
 * Send `lines` ("READY=1\nSTATUS=..."). Returns 0, also where nobody listens ($NOTIFY_SOCKET is not
 * set), or -errno. Never blocks.
 */
int gm_notify(const char *lines);

#endif
