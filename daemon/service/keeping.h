/*
 * The daemon's keeper (daemon/keeper): finds the one of the daemon's socket, starts one where
 * there is none, and when it is lost starts another and hands all over. One that it starts has a
 * session of its own, so that neither the end of the daemon nor of its terminal ends it.
 *
 * Owns struct gm_keeping. Made by main; calls memory/kept. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_KEEPING_H
#define GM_DAEMON_SERVICE_KEEPING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/keeper/client.h"

struct gm_kept;

struct gm_keeping {
    struct gm_kept *kept;
    char path[GM_KEEPER_PATH];
    char former[GM_KEEPER_PATH]; /* SOCKET.keeper, where one of an older version may still listen */
    pid_t child; /* a keeper that this daemon started and has not seen end; 0: none */
    bool is_complaining;
    bool is_watching;
    int watched; /* hangs up with the connection; -1: there is none */
    uv_poll_t poll;
    uv_timer_t timer;
};

/* Be the daemon of the keeper of this daemon's `socket`, and take what it holds; start it if there
 * is none, after the end of one that is ending. 0; 1: there is none, and none can be started; or
 * -errno: there is one, and it cannot be spoken to, or not all be taken. Both with one line in
 * `why`. */
int gm_keeping_begin(struct gm_keeping *keeping, struct gm_kept *kept, const char *socket,
                     char *why, size_t size);
/* After a start that failed: have a keeper end that this daemon has started. There is nothing of a
 * daemon before in it. */
void gm_keeping_undo(struct gm_keeping *keeping);
/* From now on another keeper takes the place of one that is lost. */
void gm_keeping_watch(struct gm_keeping *keeping, uv_loop_t *loop);
/* No more. Run the loop until the handles are closed. */
void gm_keeping_stop(struct gm_keeping *keeping);

#endif
