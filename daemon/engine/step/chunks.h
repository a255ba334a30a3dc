/* The ends of copies, maps and unmaps; the end of freed chunks. */
#ifndef GM_DAEMON_ENGINE_STEP_CHUNKS_H
#define GM_DAEMON_ENGINE_STEP_CHUNKS_H

#include "daemon/engine/state/state.h"

/* A copy, a map or an unmap of the chunk has ended: take the steps this allows. */
void gm_engine_settle(struct gm_engine *engine, uint32_t chunk);
/* A chunk whose allocation is freed, or whose app is gone, is put away as far as possible now. */
void gm_engine_retire(struct gm_engine *engine, uint32_t chunk);
/* The mover's copies that have ended since. */
void gm_engine_take_copies(struct gm_engine *engine, const struct gm_ended *ended, uint32_t n);
/* Try again what failed of copies in and mappings, if it is time. */
void gm_engine_try_failed(struct gm_engine *engine);
/* The hashes that have ended since. */
void gm_engine_take_hashes(struct gm_engine *engine, const struct gm_ended_hash *ended, uint32_t n);
/* A copy between host tiers ended: gm_stores_done. */
void gm_engine_copied_host(struct gm_engine *engine, uint32_t chunk, int error);
/* Frames for whose DROP `app` owes an answer will not end while it is silent; and its evictions do
 * not keep pinned memory from others. */
void gm_engine_note_silence(struct gm_engine *engine, uint32_t app, bool is_silent);
/* The connection of `app` ended: its unanswered batches are void. */
void gm_engine_void_batches(struct gm_engine *engine, uint32_t app);

/* Chunks whose copies out were not done when the daemon before died leave again. */
void gm_engine_leave_again(struct gm_engine *engine);

#endif
