/* What programs are told: posted for act/. */
#ifndef GM_DAEMON_ENGINE_STATE_SAY_H
#define GM_DAEMON_ENGINE_STATE_SAY_H

#include "daemon/engine/state/state.h"

/* Send the program of the app a message of this type. */
void gm_engine_say(struct gm_engine *engine, uint32_t app, enum gm_msg_type type, const void *body);
/* ... with entries, and with files, which stay open until it is sent: as gm_engine_outlet.send. */
void gm_engine_say_all(struct gm_engine *engine, uint32_t app, enum gm_msg_type type,
                       const void *body, const void *entries, uint32_t n, const int *fds,
                       int n_fds);
/* End its session: as gm_engine_outlet.end. From then on nothing is said in it. */
void gm_engine_cut_off(struct gm_engine *engine, uint32_t app, enum gm_refusal reason,
                       const char *text);
/* It has another one. */
void gm_engine_connected(struct gm_engine *engine, uint32_t app);

#endif
