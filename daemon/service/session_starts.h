/*
 * Programs that start: PLACE. Their answer may wait until a GPU has room, then until MPS of their
 * user has started. Writes what of a session belongs to that, and the list of waiters, from which
 * an ending session takes itself out (session_output.c). Called by session.c; calls placing.c and
 * mps.c. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_STARTS_H
#define GM_DAEMON_SERVICE_SESSION_STARTS_H

#include "common/wire.h"
#include "daemon/service/session_state.h"

/* PLACE. */
void gm_starts_place(struct gm_session *session, const struct gm_wire_message *message);

/* Place those who wait, and for whom there is room now: `starts` of session_state.h. */
void gm_starts_look(uv_timer_t *timer);

/* As gm_mps_listen wants it: MPS of this user has started, or cannot. `arg`: struct gm_sessions. */
void gm_starts_settled(void *arg, uid_t uid);

#endif
