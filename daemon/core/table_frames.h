/* What happens to frames: see table.h. False: not legal in the state that it is in; on_turn is
 * told, and nothing has changed. */
#ifndef GM_CORE_TABLE_FRAMES_H
#define GM_CORE_TABLE_FRAMES_H

#include "daemon/core/table_rows.h"

/* A new frame of `pool`, USED without a chunk; GM_NONE: no slot or no room. */
uint32_t gm_table_add_frame(struct gm_table *table, uint32_t pool, unsigned class);
/* The same of the pinned pages that the chunk has, outside the budget. The pages are part of the
 * frame as soon as the chunk takes it: they leave the chunk with it. */
uint32_t gm_table_add_host_frame(struct gm_table *table, uint32_t chunk);
/* Its memory is gone. */
void gm_table_end_frame(struct gm_table *table, uint32_t frame);
/* Into its pool's free list; or, if an app that is lost may have it mapped, USED without a chunk
 * until that is not lost any more. The fence stays. False, of this and the next two: not legal;
 * on_turn is told, and nothing has changed. */
bool gm_table_free_frame(struct gm_table *table, uint32_t frame);
/* The app has yet to come back; or it has, and has unmapped what is not its own any more. */
void gm_table_set_lost(struct gm_table *table, uint32_t app, bool is_lost);
/* A free frame is clear when copies in up to number `clear` have ended. */
void gm_table_clean_frame(struct gm_table *table, uint32_t frame, uint64_t clear);
/* A free frame is not clear after all. */
void gm_table_soil_frame(struct gm_table *table, uint32_t frame);
/* The chunk of a frame has ended, or left it; others still map the frame: it is fixed, or
 * gm_table_is_awaited. It stays USED, without a chunk. */
void gm_table_orphan_frame(struct gm_table *table, uint32_t frame);
/* From the free list to `chunk`, which makes it dirty. */
bool gm_table_take_frame(struct gm_table *table, uint32_t frame, uint32_t chunk);
/* It is nobody's any more, and ends when nothing reaches it. If `exit_of` is an app, it waits for
 * that app's process. */
bool gm_table_condemn_frame(struct gm_table *table, uint32_t frame, uint32_t exit_of);
/* A condemned frame whose process has ended is free again, for others of the user, unless an app
 * that is lost may have it mapped: if `is_sure`, nothing of that process is on the GPU; if not,
 * only if apps that do not answer keep it from its end. */
void gm_table_keep_frame(struct gm_table *table, uint32_t frame, bool is_sure);
/* It waits for the process of another app now. `is_sure`: as in gm_table_keep_frame, of the one
 * before; if not, it is never kept as of a process that has surely ended. */
void gm_table_hand_frame(struct gm_table *table, uint32_t frame, uint32_t exit_of, bool is_sure);
/* Condemned frames wait for this app's process no more. `has_ended`: it has, so they may be kept,
 * as gm_table_keep_frame has it. */
void gm_table_release_frames(struct gm_table *table, uint32_t app, bool has_ended, bool is_sure);
/* The app is about to map it. True: it has no import of it, or drops that, and gets one. And it has
 * not got that after all. */
bool gm_table_import(struct gm_table *table, uint32_t frame, uint32_t app);
void gm_table_undo_import(struct gm_table *table, uint32_t frame, uint32_t app);
/* A condemned frame: if the app has an import of it, the frame waits. True: it is to be asked to
 * drop that. And it has dropped it, or will not answer (`has_dropped`). */
bool gm_table_drop(struct gm_table *table, uint32_t frame, uint32_t app);
void gm_table_end_drop(struct gm_table *table, uint32_t frame, uint32_t app, bool has_dropped);
/* The handle of a condemned frame is destroyed, and the driver keeps the memory. */
void gm_table_destroy_frame(struct gm_table *table, uint32_t frame);

/* ---- for the files of the table and for tests ---- */

/* The state after `turn`; GM_TURN_ILLEGAL: it is not legal. on_turn is told of both. */
static inline uint8_t gm_table_next(const struct gm_table *table, struct gm_turn turn,
                                    bool is_possible)
{
    turn.to = is_possible ? gm_model_next((enum gm_model)turn.model, turn.from, turn.event)
                          : GM_TURN_ILLEGAL;
    if (table->on_turn)
        table->on_turn(table->on_turn_arg, &turn);
    return turn.to;
}

/* A frame as the ledger has it, in its slot, which is unused: USED without a chunk. False: no pool
 * is left. */
bool gm_table_adopt_frame(struct gm_table *table, uint32_t slot, const struct gm_ledger_frame *is);
/* Into the ledger, as it is now. */
void gm_table_commit_frame(const struct gm_table *table, uint32_t frame);
/* The one setter of a frame's state. False: the event is not legal in it. */
bool gm_table_turn_frame(struct gm_table *table, uint32_t frame, enum gm_frame_event event);
/* A settled chunk's frame is fixed, as part of `share`. */
void gm_table_fix_frame(struct gm_table *table, uint32_t frame, uint32_t share);
/* The app falls silent, or answers again: frames that wait for it know. */
void gm_table_note_silence(struct gm_table *table, uint32_t app);
/* The pool of `uid`, else an unused one, else GM_NONE. */
uint32_t gm_table_find_pool(struct gm_table *table, uint32_t uid);

#endif
