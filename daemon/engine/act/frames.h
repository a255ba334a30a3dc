/* Makes frames, and destroys them, as it is posted. */
#ifndef GM_DAEMON_ENGINE_ACT_FRAMES_H
#define GM_DAEMON_ENGINE_ACT_FRAMES_H

#include "daemon/engine/state/actions.h"

/* For CREATE, ADOPT and DESTROY. */
void gm_engine_create_frame(struct gm_engine *engine, struct gm_action *action);
void gm_engine_adopt_frame(struct gm_engine *engine, struct gm_action *action);
void gm_engine_destroy_frame(struct gm_engine *engine, struct gm_action *action);

#endif
