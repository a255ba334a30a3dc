/* Making, passing on and destroying frames. */
#ifndef GM_DAEMON_ENGINE_STEP_FRAMES_H
#define GM_DAEMON_ENGINE_STEP_FRAMES_H

#include "daemon/engine/state/state.h"

/* Have a free frame more made in `pool`. False: there is no room for it. */
bool gm_engine_ask_free_frame(struct gm_engine *engine, uint32_t pool, unsigned class);
/* Have a new frame made in the budget for `chunk`; if it can be, gm_engine_take_made has it in the
 * next round. */
void gm_engine_ask_frame(struct gm_engine *engine, uint32_t chunk);
/* What came of either; `chunk` is GM_NONE for the first. */
void gm_engine_created(struct gm_engine *engine, uint32_t frame, uint32_t chunk,
                       const struct gm_made *made);
/* The new frame that was made for the chunk, used by nobody; GM_NONE: there is none. */
uint32_t gm_engine_take_made(struct gm_engine *engine, uint32_t chunk);
/* The run is over: frames that no chunk took are free ones of their pools. */
void gm_engine_leave_made(struct gm_engine *engine);
/* The host frame of the unit that the chunk lies in, whole; GM_NONE: it has none yet. If it can be
 * had the chunk is mapped when it is there. */
uint32_t gm_engine_ask_host_frame(struct gm_engine *engine, uint32_t chunk);
/* The pages of the chunk are none of its own any more. */
void gm_engine_forget_host_frame(struct gm_engine *engine, uint32_t chunk);
/* What came of it. */
void gm_engine_adopted(struct gm_engine *engine, uint32_t frame, uint32_t chunk,
                       const struct gm_made *made);
/* `frame` is nobody's any more and ends as soon as no copy reads it, no shim holds an import and,
 * if `exit_of` is an app, that app's process is gone with whatever it still ran on the GPU. */
void gm_engine_condemn(struct gm_engine *engine, uint32_t frame, uint32_t exit_of);
/*
 * A program of the daemon before has left before it said what it has mapped, or before it unmapped
 * that; and its process, which has yet to end, may have the frame mapped, in which data of another
 * program is. Nobody else gets such a frame.
 */
bool gm_engine_is_mapped_by_left(const struct gm_engine *engine, uint32_t frame);
/* As gm_table_leave_frame; a frame that nobody else gets is condemned. */
void gm_engine_leave_frame(struct gm_engine *engine, uint32_t chunk, uint64_t fence);
/* As gm_table_free_frame, likewise. */
void gm_engine_free_frame(struct gm_engine *engine, uint32_t frame);
/* An ended program left this condemned frame behind: a copy of what it had open lives on in another
 * process. */
bool gm_engine_is_left_behind(const struct gm_engine *engine, uint32_t frame);
/* Bytes that a program which does not answer keeps from the others. */
uint64_t gm_engine_withheld(const struct gm_engine *engine, uint32_t app);
/* ... and condemned frames that end when it has answered. */
uint64_t gm_engine_held(const struct gm_engine *engine, uint32_t app);
/* Condemn free frames as long as more than `kept` bytes of frames are there to stay. */
void gm_engine_give_back_frames(struct gm_engine *engine, uint64_t kept);
/* ... of this user, and of users who have no program. */
void gm_engine_give_back_frames_of(struct gm_engine *engine, uid_t uid, uint64_t kept);
/* A run of the engine begins: as many frames may be made as in any. */
void gm_engine_begin_frames(struct gm_engine *engine);
/* Why the driver refused the last frame, once; NONE: it did not. */
enum gm_why gm_engine_take_refusal(struct gm_engine *engine);
/* Have condemned frames destroyed that nothing holds back. */
void gm_engine_reap(struct gm_engine *engine);
/* One is. `is_kept`: the driver has not given its memory back. */
void gm_engine_destroyed(struct gm_engine *engine, uint32_t frame, bool is_kept);
/* Have the free frames destroyed of users that have no app any more: their pools are needed. False:
 * none can be now. */
bool gm_engine_drop_idle_pools(struct gm_engine *engine);

#endif
