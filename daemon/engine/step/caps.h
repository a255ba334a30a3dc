/* The most device memory that an app may occupy. */
#ifndef GM_DAEMON_ENGINE_STEP_CAPS_H
#define GM_DAEMON_ENGINE_STEP_CAPS_H

#include "daemon/engine/state/state.h"

/* Why it may not have all of its memory there; NONE: it may. */
struct gm_reason gm_engine_why_capped(const struct gm_engine *engine, uint32_t app);

/* What of the app is beyond the GPU follows from its memory and its cap: after a change of either.
 */
void gm_engine_fit(struct gm_engine *engine, uint32_t app);
/* It has its turn, or is about to. */
bool gm_engine_has_turn(const struct gm_engine *engine, uint32_t app);
/* What is cold of the app goes beyond, as far as pinned memory has room; also in its turn. */
void gm_engine_lay_aside(struct gm_engine *engine, uint32_t app);
/* The app is to have `beyond` bytes more beyond the GPU, which fit there: what other apps have
 * there and need not comes back as far as these lack room. */
void gm_engine_reclaim_host(struct gm_engine *engine, uint32_t app, uint64_t beyond);
/* All programs of the daemon before are known: what each is promised there until it is back. */
void gm_engine_promise_lost(struct gm_engine *engine);
/* Each round: what changes without an event. */
void gm_engine_follow_caps(struct gm_engine *engine);
/* Its cap is `bytes` from now on; 0: it has none. False: that is nothing new. */
bool gm_engine_set_cap(struct gm_engine *engine, uint32_t app, uint64_t bytes);
/* ... and what follows from that, once its spares are taken. */
void gm_engine_follow_cap(struct gm_engine *engine, uint32_t app);
/* Whether it can have that cap: 0, or -errno with one line in `why`. */
int gm_engine_check_cap(const struct gm_engine *engine, uint32_t app, uint64_t bytes, char *why,
                        size_t why_size);
/* Whether pinned memory has room for what is beyond that cap of all `selected` apps (by id), in
 * whole groups. Likewise. */
int gm_engine_check_room(const struct gm_engine *engine, const bool *selected, uint64_t bytes,
                         char *why, size_t why_size);

/* Whether a chunk of so many bytes may come to the GPU for it now. */
bool gm_engine_may_occupy(const struct gm_engine *engine, uint32_t app, uint64_t bytes);

#endif
