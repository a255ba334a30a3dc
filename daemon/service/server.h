/*
 * The listening socket. Called by main; hands each connection to session.c. Loop thread only.
 *
 * A lock on PATH.lock makes sure that one daemon serves a path. Under the lock, a socket at which
 * nobody answers belonged to a dead daemon and is replaced. One that answers is another program's
 * and is left alone, like anything that is not a socket.
 *
 * The path is claimed first and listened at last. So a daemon that cannot start never had a socket,
 * and nobody connects to a daemon that is not ready.
 */
#ifndef GM_DAEMON_SERVICE_SERVER_H
#define GM_DAEMON_SERVICE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "daemon/service/session.h"

struct gm_server;

struct gm_server_config {
    const char *path;
    bool is_user;        /* socket for its owner alone (0600), else for everybody (0666) */
    bool is_default_dir; /* make the socket's directory if it is not there (0700, 0755) */
};

/*
 * Take the lock and look at what is at the path. Returns 0, or -errno with one line for a person in
 * `why` and nothing left behind.
 */
int gm_server_claim(struct gm_server **server, const struct gm_server_config *config, char *why,
                    size_t why_size);

/* Bind, listen and hand every connection to `sessions`. Returns as gm_server_claim does. */
int gm_server_listen(struct gm_server *server, uv_loop_t *loop, struct gm_sessions *sessions,
                     char *why, size_t why_size);

/*
 * Listen no more: refuse who still waits in the backlog, remove the socket and the lock. Right
 * after claim too. If it listened, the loop must run until its handles are closed before
 * gm_server_free.
 */
void gm_server_stop(struct gm_server *server);
void gm_server_free(struct gm_server *server);

#endif
