/*
 * Programs of the daemon before: REJOIN, then HOLDS. A peer is what it says if the process, its
 * start, its user and the nonce of its WELCOME are those that the daemon before knew: so nobody
 * gets what another one has. What it holds is collected, as much as it could have got, and handed
 * to gm_takeover. Writes what of a session belongs to that. Called by session.c. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_REJOIN_H
#define GM_DAEMON_SERVICE_SESSION_REJOIN_H

#include <stdbool.h>

#include "common/wire.h"
#include "daemon/service/session_state.h"

/* REJOIN, the first message. It may end the session. */
void gm_rejoin_begin(struct gm_session *session, const struct gm_msg_rejoin *body);

/* HOLDS. True: it has said all, and its program is an app again. It may end the session. */
bool gm_rejoin_holds(struct gm_session *session, const struct gm_wire_message *message);

/* HELLO: its process does not come back as what it was. */
void gm_rejoin_anew(const struct gm_session *session);

#endif
