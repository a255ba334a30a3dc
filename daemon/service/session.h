/*
 * Sessions: one for each connection. Owns them. server.c starts them, main opens
 * and stops the set. Calls the machine, control.c, places.c and the other files of sessions
 * (session_state.h). Loop thread only.
 *
 * Connections of no app (of mux-ctl, or before HELLO) are visitors. At most two thirds of the files
 * that are kept for them may be open (64, see files.h), all but a quarter of that for one user. One
 * more ends the oldest visitor of that user, or of the one who has most, so no user can lock others
 * out.
 *
 * What one user may ask of the daemon is bounded, see bounds.h: who asks for too much time is
 * slowed, whose connections or unread messages are too many is cut, and the log names the user once
 * a minute.
 *
 * A session is NEW until HELLO, or the last HOLDS of a program that comes back; then APP (joined to
 * the engine) or CONTROL. It ends when the peer closes, breaks the protocol or stays silent too
 * long, or by gm_session_end (session_output.h).
 */
#ifndef GM_DAEMON_SERVICE_SESSION_H
#define GM_DAEMON_SERVICE_SESSION_H

#include <stdint.h>
#include <uv.h>

#include "daemon/engine/machine.h"
#include "daemon/service/control.h"
#include "daemon/service/session_state.h"

#define GM_SESSION_FILES 4u      /* of an app: socket, stat area, pidfd, a frame */
#define GM_SESSION_ROOM 16u      /* only root has the last sixteenth, one of four at least */
#define GM_SESSION_BURST 64      /* messages read from one session at a time */
#define GM_SESSION_BEAT_MS 1000u /* apps hear that the daemon is there (gm_machine_beat) */
#define GM_SESSION_TRIM_MS 4000u /* TRIM and CONFIG are answered by then: mux-ctl waits for 5 s */
#define GM_SESSION_ANSWERS 4096  /* bytes that the kernel keeps of them for mux-ctl: a few */

/* `machine` and `control` outlive the sessions. Returns 0 or -errno. */
int gm_sessions_open(struct gm_sessions **sessions, uv_loop_t *loop, struct gm_machine *machine,
                     struct gm_control *control, uint32_t max_apps);

/* Take a new socket: non-blocking, close-on-exec. The sessions close it, also if they refuse it. */
void gm_session_start(struct gm_sessions *sessions, int fd);

/* As gm_reload_done: answers who asked for that reading. `sessions` is a struct gm_sessions. */
void gm_sessions_config_is(void *sessions, uint64_t number, bool is_refused, const char *outcome);

/* All memory has been given back, as far as it could be: tell who asked for that. */
void gm_sessions_given_back(struct gm_sessions *sessions);

/* How many apps are joined. */
uint32_t gm_sessions_apps(const struct gm_sessions *sessions);

/* End all sessions without a message: the peers see a lost daemon. Every app leaves. Run
 * the loop until the handles are closed before gm_sessions_free. */
void gm_sessions_stop(struct gm_sessions *sessions);
void gm_sessions_free(struct gm_sessions *sessions);

#endif
