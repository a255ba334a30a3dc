/*
 * The post: the socket of the daemon, for those who send. Nobody waits to send: what the socket
 * does not take is lost (gm_post_tell), or the link thread sends it later (gm_post_send). So that
 * is little: a thread has one request open, and the daemon's own messages are answered once.
 *
 * The socket is shut down after a loss and never closed: another thread may be about to send on it,
 * and its number must not become somebody else's file.
 *
 * Owns the socket's number and the messages that wait. Any thread, but for what is said. Calls
 * work.
 */
#ifndef GM_SHIM_POST_H
#define GM_SHIM_POST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"

/* Boot, or the link thread after a loss: the socket. It gets the number of the one before. */
void gm_post_open(int fd);
int gm_post_fd(void);

/* Send a message that must not get lost. */
void gm_post_send(enum gm_msg_type type, const void *body);

/* Send a message that may get lost: while the daemon does not read, it is. Any signal handler. */
void gm_post_tell(enum gm_msg_type type, const void *body);

/* Link thread: whether messages wait; send them, as far as there is room. False: the connection is
 * lost. */
bool gm_post_has_letters(void);
bool gm_post_flush(void);

/* Link thread: the connection is lost, and with it what waits and what is sent from now on. */
void gm_post_cut(void);

/* The forked child, or a boot that fails: close the socket. */
void gm_post_close(void);

#endif
