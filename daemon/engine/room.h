/* What programs can have: asks core/room. */
#ifndef GM_DAEMON_ENGINE_ROOM_H
#define GM_DAEMON_ENGINE_ROOM_H

#include "daemon/engine/state.h"

/* Tell the scheduler what room there is: the budget, less what programs keep that do not answer. */
void gm_engine_update_room(struct gm_engine *engine);
/* Put on the ctl pages what the GPU has for each program and what it could allocate now. After
 * every change of what is committed or shared, before the program hears of it. */
void gm_engine_tell_room(struct gm_engine *engine);
/* ... of a client that is no app of this engine yet. */
void gm_engine_tell_newcomer(const struct gm_engine *engine, struct gm_client *client);
/* Read what programs and processes say, for the sums of users: once a round, and before an app asks
 * for memory or for a cap. */
void gm_engine_count_users(struct gm_engine *engine);
/* What core/room answers from; an app is its group. */
struct gm_room_input gm_engine_room_input(const struct gm_engine *engine, uint32_t app);

/* Bytes that can be mapped on the host, once other GPUs have given back what they only keep. */
uint64_t gm_engine_host_soon(const struct gm_engine *engine);
struct gm_room_sums gm_engine_sums(const struct gm_engine *engine, uint32_t app);

/* What all tiers can still hold. */
uint64_t gm_engine_left(const struct gm_engine *engine);
/* What a program that has nothing yet could allocate now. */
uint64_t gm_engine_newcomer_room(const struct gm_engine *engine, bool is_oversize);

#endif
