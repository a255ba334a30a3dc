/*
 * STATUS, LOG and TRACE. Who asks stands in `asking`, and after the messages of a round all who ask
 * for the same get one document, made then. What root and the daemon's own user ask for is made in
 * the same round. For others one is made when the last one lies GM_SESSION_DOCUMENTS times as long
 * ago as it took: however many ask, documents take a small part of the loop.
 *
 * Called by session.c; calls control.c, which makes them. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_DOCUMENTS_H
#define GM_DAEMON_SERVICE_SESSION_DOCUMENTS_H

#include <stdint.h>

#include "common/wire.h"
#include "daemon/service/session_state.h"

#define GM_SESSION_DOCUMENTS                                                                       \
    10u /* a status of 256 apps takes 5 to 10 ms: others get one in 0.1 s */

/* It asks for the status, or for the log or trace since then: `answer` is the message that has it.
 */
void gm_documents_ask(struct gm_session *session, enum gm_msg_type answer, uint64_t since);

/* Answer those whose turn it is, at the end of a round. */
void gm_documents_answer(struct gm_sessions *all);

#endif
