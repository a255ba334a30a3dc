/*
 * A session's way out: messages to its peer, what waits because the peer does not read, lines of
 * the log about it, and its end. Called by the other files of sessions, and by the engine through
 * its outlet. Calls the machine (bury), bounds.c and the socket. Loop thread only.
 *
 * Ending has two steps: mark (read and send nothing more), then bury, from the loop. Only bury
 * calls gm_machine_leave, so a leave never happens inside a call of the engine.
 *
 * Output that the socket does not take is queued, with duplicates of its fds. If the queue grows
 * beyond its bound, the peer does not read, and the session ends.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_OUTPUT_H
#define GM_DAEMON_SERVICE_SESSION_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/log.h"
#include "common/wire.h"
#include "daemon/service/bounds.h"
#include "daemon/service/session_state.h"

#define GM_SESSION_QUEUE_BYTES (64u << 20) /* output that may wait for a peer to read */
#define GM_SESSION_QUEUE_MESSAGES 16384u

/* A line of the log about it. */
void gm_session_say(const struct gm_session *session, enum gm_log_level level, const char *format,
                    ...) __attribute__((format(printf, 3, 4)));

/* ---- output ---- */

/* As gm_engine_outlet.send and .end. */
int gm_session_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                    const void *entries, uint32_t count, const int *fds, int n_fds);
void gm_session_end(struct gm_session *session, enum gm_refusal reason, const char *text);
/* It speaks these versions of the protocol, and the daemon none of them. */
void gm_session_end_version(struct gm_session *session, uint16_t oldest, uint16_t newest);

/* Whether the daemon reads what it sends. mux-ctl reads an answer before it asks anew: until it
 * has, nothing more is read, so its answers never pile up. A program is always heard. */
bool gm_session_is_heard(const struct gm_session *session);

/* Have the loop watch its socket for what is wanted now. */
void gm_session_watch(struct gm_session *session);

/* Its timer fires in so many milliseconds, and not before. */
void gm_session_await(struct gm_session *session, uint64_t ms);

/* Send as much of the queue as the socket takes. May mark the session as ending. */
void gm_session_flush(struct gm_session *session);

/* ---- where it stands ---- */

/* It stands in line or in `asking` no more. */
void gm_session_step_out(struct gm_session *session);

/* It is no visitor any more. */
void gm_session_settle(struct gm_session *session);

/* It waits at its start no more, and is a visitor again. */
void gm_session_wait_ends(struct gm_session *session);

/* ---- ending ---- */

/* Its process has ended. If another one has the connection, the session ends now; returns a new
 * descriptor of the connection, which hangs up when nobody has it any more. -1: nobody has. */
int gm_session_keep(struct gm_session *session);

/* End a session whose peer cannot be told. */
void gm_session_lose(struct gm_session *session, enum gm_log_level level, const char *text);

/* End a session as its user is above a bound. Its peer is told each time. */
void gm_session_cut(struct gm_session *session, enum gm_bound_kind kind, const char *text);

/* A user is above a bound. The log has one line about that in a while. */
void gm_session_tell(const struct gm_session *session, enum gm_bound_kind kind, const char *text);

/* Send REFUSED, to a peer that has no session yet, too. */
void gm_session_refuse(int fd, enum gm_refusal reason, const char *text);

/* Mark a session as ending: read and send nothing more. bury follows from the loop. */
void gm_session_mark(struct gm_session *session);

/* Tell the engine, close the socket and free the session. */
void gm_session_bury(struct gm_session *session);

#endif
