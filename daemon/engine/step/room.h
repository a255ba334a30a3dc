/* What programs can have: asks core/room. */
#ifndef GM_DAEMON_ENGINE_STEP_ROOM_H
#define GM_DAEMON_ENGINE_STEP_ROOM_H

#include "daemon/engine/state/state.h"

/* The budget of the GPU as programs are told it, and as allocations are admitted by it. One that
 * was given is an upper limit, of which the device may have less now. */
static inline uint64_t gm_engine_offered(const struct gm_engine *engine)
{
    return engine->is_budget_auto ? engine->table->budget : engine->config.budget;
}

/* Bytes of the GPU without which programs have more than all tiers hold. */
uint64_t gm_engine_owed(const struct gm_engine *engine);

/* The cap that counts for the app; 0: none. */
uint64_t gm_engine_cap(const struct gm_engine *engine, uint32_t app);
/* Whether it may occupy less of the GPU than the budget, by a cap or a total for its user. */
bool gm_engine_is_capped(const struct gm_engine *engine, uint32_t app);
/* Bytes that the app has on the GPU or is to have there, and that it may have, beside what is
 * fixed. */
uint64_t gm_engine_bytes_for_gpu(const struct gm_engine *engine, uint32_t app);
uint64_t gm_engine_places_room(const struct gm_engine *engine, uint32_t app);
/* It does not answer, or stands still: engine.room is without what it keeps. */
bool gm_engine_is_absent(const struct gm_engine *engine, uint32_t app);
/* Bytes of it that must leave the GPU. */
uint64_t gm_engine_above_cap(const struct gm_engine *engine, uint32_t app);
/* Whether the app may now. False where the GPU cannot map host memory. */
bool gm_engine_is_oversize(const struct gm_engine *engine, uint32_t app);

/* Tell the scheduler what room there is: the budget, less what programs keep that do not answer. */
void gm_engine_update_room(struct gm_engine *engine);
/* After what is beyond of an app, which is its group, or of any has changed. gm_engine_tell_room
 * does it for all, too. */
void gm_engine_count_aside_of(struct gm_engine *engine, uint32_t app);
void gm_engine_count_aside(struct gm_engine *engine);
/* Put on the ctl pages what the GPU has for each program and what it could allocate now. After
 * every change of what is committed or shared, before the program hears of it. */
void gm_engine_tell_room(struct gm_engine *engine);
/* ... of a client that is no app of this engine yet. */
void gm_engine_tell_newcomer(const struct gm_engine *engine, struct gm_client *client);
/* Read what programs and processes say, for the sums of users, and count what follows: once a
 * round, and before an app asks for memory or for a cap. */
void gm_engine_count_users(struct gm_engine *engine);
/* What core/room answers from; an app is its group. */
struct gm_room_input gm_engine_room_input(const struct gm_engine *engine, uint32_t app);

/* Files that are left when any other app runs, if the app keeps none but those that it keeps now.
 */
uint64_t gm_engine_spare_files(const struct gm_engine *engine, uint32_t app);

/* Bytes that can be mapped on the host, once other GPUs have given back what they only keep. */
uint64_t gm_engine_host_soon(const struct gm_engine *engine);
struct gm_room_sums gm_engine_sums(const struct gm_engine *engine, uint32_t app);

/* What all tiers can still hold. */
uint64_t gm_engine_left(const struct gm_engine *engine);
/* What a program that has nothing yet could allocate now. */
uint64_t gm_engine_newcomer_room(const struct gm_engine *engine, bool is_oversize);

/* Whether it can have any; and the allocation that a word of it says is one. GM_NONE: it says none.
 */
bool gm_engine_has_spares(const struct gm_engine *engine, uint32_t app);
uint32_t gm_engine_spare_of(const struct gm_engine *engine, uint32_t app, uint64_t word);
/* Bytes that `app` freed and keeps, as it says. */
uint64_t gm_engine_spare_bytes(const struct gm_engine *engine, uint32_t app);

/* The last of the client's GPUs answers for what none has, as all others have sent what they have
 * to unmap: whether another one is to do that, as it is behind this one or has an allocation there.
 */
bool gm_engine_is_of_another(const struct gm_engine *engine, uint32_t app, uint64_t va);

#endif
