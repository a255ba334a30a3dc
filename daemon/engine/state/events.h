/* What happens: counted, and handed to the views. */
#ifndef GM_DAEMON_ENGINE_STATE_EVENTS_H
#define GM_DAEMON_ENGINE_STATE_EVENTS_H

#include "daemon/engine/state/state.h"

/* Something happened: count it and have the views told. */
void gm_engine_emit(struct gm_engine *engine, const struct gm_event *event);
/* ... of an event without fields. */
void gm_engine_happened(struct gm_engine *engine, uint32_t app, enum gm_event_kind kind);
/* A copy of the chunk begins, or has ended; it goes where the chunk's state says. */
void gm_engine_tell_copy(struct gm_engine *engine, uint32_t chunk);
void gm_engine_tell_copied(struct gm_engine *engine, uint32_t chunk, bool has_failed);
/* What changes in the table is emitted. */
void gm_engine_watch_table(struct gm_engine *engine);

#endif
