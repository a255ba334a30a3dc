/* How much memory a program may have, as its settings say. */
#ifndef GM_DAEMON_ENGINE_STEP_SIZES_H
#define GM_DAEMON_ENGINE_STEP_SIZES_H

#include "daemon/engine/state/state.h"

/* Host memory can be mapped to programs, so one may have more than the budget. */
bool gm_engine_has_host_frames(const struct gm_engine *engine);
/* GPUMUX_OVERSIZE as a setting. False: not said, or no word of it. */
bool gm_engine_read_oversize(uint32_t wish, struct gm_settings *said);
/* Set whether a new client may have more memory than the budget, as rules and its wishes have it.
 */
void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client);
/* What was said of its size has changed, for memory that it asks for from now on. */
void gm_engine_resize(struct gm_engine *engine, uint32_t app);
/* The cap that holds. False: that is nothing new. */
bool gm_engine_take_said_cap(struct gm_engine *engine, uint32_t app);
/* ... and what follows from it. */
void gm_engine_recap(struct gm_engine *engine, uint32_t app);

#endif
