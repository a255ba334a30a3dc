/* Copies under way, and their ends. */
#ifndef GM_DAEMON_ENGINE_STEP_COPIES_H
#define GM_DAEMON_ENGINE_STEP_COPIES_H

#include "daemon/engine/state/state.h"

/* Whether one more copy can be submitted that way, beside those to come. */
bool gm_engine_has_room(const struct gm_engine *engine, enum gm_way way);
/* The chunk is being evicted and its owner has unmapped it: copy it out and free its frame. Late
 * answers may find no room in the mover: those chunks wait, as if their copies were under way. */
void gm_engine_copy_out(struct gm_engine *engine, uint32_t chunk);
/* Clear free frames that held data: memory that a program has not written reads as zero, and an
 * allocation is not to wait for that. */
void gm_engine_clear_frames(struct gm_engine *engine);
/* Once more: copy the chunk from pinned memory to the frame that it has, or clear that. */
void gm_engine_copy_in(struct gm_engine *engine, uint32_t chunk);
/* Clear the pages of the chunk, which is CLEARING. */
void gm_engine_clear_pages(struct gm_engine *engine, uint32_t chunk);
/* Begin to copy the chunk, settled below the GPU, to the pages at `to_page` of `to`. */
void gm_engine_copy_below(struct gm_engine *engine, uint32_t chunk, enum gm_tier to,
                          uint32_t to_page);
/* Bytes that are being copied in memory or, if one of the two is the disk, from and to it. */
uint64_t gm_engine_copied_below(const struct gm_engine *engine, unsigned from, unsigned to);
/* The copy of the chunk between tiers below the GPU has ended, well or not. */
void gm_engine_end_below(struct gm_engine *engine, uint32_t chunk);
/* Begin what brings the chunk into the frame that it has; `was`: that frame before. */
void gm_engine_bring(struct gm_engine *engine, uint32_t chunk, const struct gm_frame *was);
/* Whether the mover copies that way now. */
bool gm_engine_is_copying(const struct gm_engine *engine, enum gm_way way);
/* Bytes whose copies are under way, or begin when their owners have unmapped them and they are
 * hashed. */
uint64_t gm_engine_under_way(const struct gm_engine *engine, enum gm_way way);
/* The mover has taken copy out number `number`, of the chunk: its frame is free. */
void gm_engine_copying_out(struct gm_engine *engine, uint32_t chunk, uint64_t number);
/* A copy, or a clear, of the mover has ended. Returns the chunk that it was of; GM_NONE: a free
 * frame was cleared. */
uint32_t gm_engine_end_copy(struct gm_engine *engine, const struct gm_ended *ended);
/* The next chunk whose copy out found no room in the mover, if there is some now; else GM_NONE. */
uint32_t gm_engine_next_late(struct gm_engine *engine);

#endif
