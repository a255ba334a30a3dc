/* mux-ctl set. */
#ifndef GM_DAEMON_ENGINE_STEP_SET_H
#define GM_DAEMON_ENGINE_STEP_SET_H

#include "daemon/engine/state/state.h"

/* Whether this GPU and its host memory can have what is asked for: 0, or -errno with one line in
 * `why`. All GPUs are asked before one is changed. */
int gm_engine_check_set(struct gm_engine *engine, const struct gm_set_request *request, char *why,
                        size_t why_size);
/* What gm_engine_set does. */
int gm_engine_apply_set(struct gm_engine *engine, const struct gm_set_request *request,
                        struct gm_set_done *done, char *why, size_t why_size);
/* mux-ctl prefetch: its memory is to come ahead of its turn, though nobody expects that. */
bool gm_engine_is_asked_ahead(const struct gm_engine *engine, uint32_t app);

#endif
