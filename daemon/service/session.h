/*
 * A session: one connection. server.c accepts and owns it; engine.c sends through it.
 *
 * Output that the socket does not take is queued (with duplicates of its fds) and sent when it can
 * be. A session whose queue grows beyond its bound is ended: its peer does not read.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_H
#define GM_DAEMON_SERVICE_SESSION_H

#include "common/wire.h"

struct gm_session;

/*
 * Send one message, with gm_wire_encode's arguments; `fds` stay the caller's. Returns 0 (sent or
 * queued) or -errno, and then the session is ending: gm_engine_leave follows from the loop, never
 * from inside this call.
 */
int gm_session_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                    const void *entries, uint32_t count, const int *fds, int n_fds);

/*
 * End the session for a reason: logs `text`, sends REFUSED and closes from the loop;
 * gm_engine_leave follows then, never from inside this call.
 */
void gm_session_end(struct gm_session *session, enum gm_refusal reason, const char *text);

#endif
