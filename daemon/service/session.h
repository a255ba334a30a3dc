/*
 * Sessions: connections. server.c accepts them, main makes the set of them; they call the engine
 * and control. The engine calls gm_session_send and gm_session_end through its outlet. Loop thread
 * only.
 *
 * Connections that are no app's (of mux-ctl, of newcomers before their HELLO) are visitors. When
 * there are too many, two thirds of the files kept for them (64, see files.h), the oldest of the
 * user who has most makes room. So nobody is locked out by somebody else's connections.
 *
 * Life of a session: NEW until its HELLO, then APP (joined to the engine) or CONTROL. It ends when
 * the peer closes, when it breaks the protocol, when it is silent for too long, or by
 * gm_session_end. Ending is two steps: marked at once (nothing more is read or sent), buried from
 * the loop. The burial is the one place that calls gm_engine_leave, once for each joined app, so
 * the engine never sees a leave inside one of its own calls.
 *
 * Output that the socket does not take is queued (with duplicates of its fds) and sent when it can
 * be. A session whose queue grows beyond its bound is ended: its peer does not read.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_H
#define GM_DAEMON_SERVICE_SESSION_H

#include <stdint.h>
#include <uv.h>

#include "daemon/service/control.h"
#include "daemon/engine/engine.h"

#define GM_SESSION_FILES 4u                /* of an app: its socket, its pidfd, two frames */
#define GM_SESSION_OTHERS 4u               /* one user has not the last quarter of --max-apps */
#define GM_SESSION_ROOM 16u                /* only root has the last sixteenth */
#define GM_SESSION_PATIENCE_MS 5000u       /* until HELLO; mux-ctl: until its next question */
#define GM_SESSION_BURST 64                /* messages read of one session before others' turn */
#define GM_SESSION_QUEUE_BYTES (64u << 20) /* output that may wait for a peer to read */
#define GM_SESSION_QUEUE_MESSAGES 16384u
#define GM_SESSION_BEAT_MS 1000u /* apps hear that the daemon is there (gm_engine_beat) */
#define GM_SESSION_RETRY_MS 10u  /* the kernel lacks room for messages or fds; TRIM is under way */
#define GM_SESSION_TRIM_MS 4000u /* TRIM is answered by then: mux-ctl waits for 5 s */

struct gm_session;
struct gm_sessions;

/*
 * `control` answers mux-ctl. Both outlive the sessions. Returns 0 or -errno.
 */
int gm_sessions_open(struct gm_sessions **sessions, uv_loop_t *loop, struct gm_engine *engine,
                     struct gm_control *control, uint32_t max_apps);

/* A socket that was just accepted: non-blocking, close-on-exec. It is the sessions' from here on,
 * also if it is refused because there are too many. */
void gm_session_start(struct gm_sessions *sessions, int fd);

/* As gm_engine_outlet.send and .end. */
int gm_session_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                    const void *entries, uint32_t count, const int *fds, int n_fds);
void gm_session_end(struct gm_session *session, enum gm_refusal reason, const char *text);

/* How many apps are joined. */
uint32_t gm_sessions_apps(const struct gm_sessions *sessions);

/*
 * End all, without a word to the peers: to them it is a lost daemon. Afterwards every app has left
 * the engine; the loop must run until its handles are closed, then gm_sessions_free.
 */
void gm_sessions_stop(struct gm_sessions *sessions);
void gm_sessions_free(struct gm_sessions *sessions);

#endif
