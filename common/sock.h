/*
 * Sockets: send and receive one message with its fds, and find the daemon's socket. Called by the
 * shim, mux-ctl and the daemon; calls wire.c. No state, no allocation.
 *
 * All functions retry on EINTR, never raise SIGPIPE and set close-on-exec on every fd they make.
 */
#ifndef GM_COMMON_SOCK_H
#define GM_COMMON_SOCK_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/wire.h"

#define GM_SOCKET_NAME "gpumux.sock"
#define GM_SOCKET_SYSTEM_FOLDER "/run/gpumux"
#define GM_SOCKET_SYSTEM GM_SOCKET_SYSTEM_FOLDER "/" GM_SOCKET_NAME
#define GM_SOCKET_USER "gpumux/" GM_SOCKET_NAME /* below $XDG_RUNTIME_DIR */

/*
 * The `n`-th place to look for the daemon's socket, n from 0: $GPUMUX_SOCKET alone if it is set,
 * else the system's, then the user's. Writes a path of at most `size` bytes and returns 0; -ENOENT
 * when there is no n-th place, -ENAMETOOLONG when it does not fit.
 */
int gm_sock_path(unsigned n, char *path, size_t size);

/* A daemon accepts a full backlog of 128 within milliseconds; a busy machine needs longer. */
#define GM_SOCK_PATIENCE_S 1

/* Connect to `path`. Returns a blocking SEQPACKET fd, or -errno: -EAGAIN if the backlog stays full
 * for GM_SOCK_PATIENCE_S. */
int gm_sock_connect(const char *path);

/* Connect to the first place that answers, and write it to `path` if that is not NULL. Returns an
 * fd, or the -errno of the last place. */
int gm_sock_connect_any(char *path, size_t size);

/*
 * Send one encoded message of `length` bytes with `n_fds` fds. Returns 0 or -errno; -EAGAIN on a
 * non-blocking socket that is full. Atomic: all or nothing. Safe from several threads.
 */
int gm_sock_send(int fd, const void *bytes, size_t length, const int *fds, int n_fds);

/* What gm_sock_send said means: try again later. Nobody reads, or the kernel has no memory for more
 * now. */
static inline bool gm_sock_is_full(int error)
{
    return error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM;
}

/*
 * Receive one message into `buffer`. Returns its length, 0 at the end of the connection, -errno
 * otherwise; -EMSGSIZE if it was longer than `size` or its fds were cut off (the fds that did come
 * are closed). `fds` has room for GM_WIRE_FDS; *n_fds says how many came, which are then the
 * caller's.
 */
ssize_t gm_sock_receive(int fd, void *buffer, size_t size, int *fds, int *n_fds);

/* The same, but losing the fds because of the limit of open files is no error: then *has_lost is
 * true and *n_fds is 0. */
ssize_t gm_sock_receive_part(int fd, void *buffer, size_t size, int *fds, int *n_fds,
                             bool *has_lost);

/* The same, and the message stays in the socket, so that fds which are lost are there for the next
 * look. Each look brings its own. gm_sock_skip drops the message. */
ssize_t gm_sock_peek(int fd, void *buffer, size_t size, int *fds, int *n_fds, bool *has_lost);
void gm_sock_skip(int fd);

/*
 * Receive one message of a peer that one does not trust, and no fds: what comes along is dropped in
 * the kernel and never gets a number here. A file of the peer's own, as on its FUSE mount, may keep
 * its closer waiting (flush). Returns as gm_sock_receive; -EMSGSIZE also if there were fds.
 */
ssize_t gm_sock_receive_bare(int fd, void *buffer, size_t size);

/*
 * Who sends fds to `fd`, or to a connection that is accepted from it, gets -EPERM: else the kernel
 * drops them in the receiver's call, and to drop the last one of a socket may take as long as its
 * owner says (SO_LINGER). Linux 6.16 and later; before, nothing happens.
 */
void gm_sock_refuse_fds(int fd);

/* Encode and send in one step, with gm_wire_encode's arguments. Returns 0 or -errno. */
int gm_sock_send_message(int fd, enum gm_msg_type type, const void *body, const void *entries,
                         uint32_t count, const int *fds, int n_fds);

#endif
