/*
 * The listening socket. Owns the socket file and its lock. Called by main; hands each connection to
 * session.c. Loop thread only.
 *
 * A lock on PATH.lock ensures that one daemon serves a path. Under the lock, a socket that refuses
 * connections belonged to a dead daemon and is replaced. A socket that answers, or a file of
 * another kind, stays untouched.
 *
 * The daemon claims the path first and listens last, so nobody can connect before it is ready.
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
    bool is_user;        /* socket for its owner alone (0600) instead of everybody (0666) */
    bool is_default_dir; /* make the socket's directory if it is missing (0700, 0755) */
};

/* Whether a socket can be made there, as far as nobody else serves it. 0, or -errno with one line
 * in `why`. Any thread. */
int gm_server_try(const struct gm_server_config *config, char *why, size_t why_size);

/* Take the lock and check the path. Returns 0; or -errno with one line in `why`, and then nothing
 * is left behind. */
int gm_server_claim(struct gm_server **server, const struct gm_server_config *config, char *why,
                    size_t why_size);

/* Bind, listen and hand every connection to `sessions`. Returns as gm_server_claim does. */
int gm_server_listen(struct gm_server *server, uv_loop_t *loop, struct gm_sessions *sessions,
                     char *why, size_t why_size);

/*
 * Stop listening: refuse the clients that wait in the backlog, remove the socket and the lock. Can
 * follow gm_server_claim directly. Before gm_server_free the loop must run until the handles are
 * closed.
 */
void gm_server_stop(struct gm_server *server);
/* The same, but the lock stays until the process ends: so no other daemon takes this one's place
 * before. */
void gm_server_leave(struct gm_server *server);
void gm_server_free(struct gm_server *server);

#endif
