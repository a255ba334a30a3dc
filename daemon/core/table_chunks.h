/* What happens to chunks and their shadows: see table.h. False, where there is an answer: that is
 * not legal in the state that it is in; on_turn is told, and nothing has changed. */
#ifndef GM_CORE_TABLE_CHUNKS_H
#define GM_CORE_TABLE_CHUNKS_H

#include "daemon/core/table_rows.h"

/* Set the place of a live chunk that is not fixed and does not move. Nothing moves by that. */
void gm_table_put(struct gm_table *table, uint32_t chunk, bool is_on_host);
/* What is known of its use (working.h). */
void gm_table_note_use(struct gm_table *table, uint32_t chunk, uint32_t heat, bool has_place);
/* It was touched in its app's window, after `order` other places. */
void gm_table_touch(struct gm_table *table, uint32_t chunk, uint32_t order);
/* A place in it was used in its app's window: that tells more than a trial. */
void gm_table_name(struct gm_table *table, uint32_t chunk);
/* Whether it was touched by addresses before it alone for long. */
void gm_table_claim(struct gm_table *table, uint32_t chunk, bool is_claimed);
void gm_table_set_level(struct gm_table *table, uint32_t chunk, uint8_t level);
/* Whether it was not touched for long. It is not freed or fixed. */
void gm_table_set_cold(struct gm_table *table, uint32_t chunk, bool is_cold);
/* What the check says of it (check.h), which is not freed or fixed. */
void gm_table_trust(struct gm_table *table, uint32_t chunk, enum gm_trust trust);
void gm_table_prove(struct gm_table *table, uint32_t chunk, bool is_proved);
/* Put the lists of an app in order, by when each chunk is used next (UINT64_MAX: never). */
void gm_table_sort(struct gm_table *table, uint32_t app,
                   uint64_t (*next)(const struct gm_table *table, uint32_t chunk));

/* Where its data is, as it rests; or as it leaves, before its copy out has begun. */
void gm_table_commit_place(const struct gm_table *table, uint32_t chunk);
/* Its eviction begins: its app is to unmap it, and its data goes to `page`, where its shadow is if
 * it has one. */
bool gm_table_evict(struct gm_table *table, uint32_t chunk, uint32_t page);
/* It is not copied out after all: its app is to map it again. */
bool gm_table_undo(struct gm_table *table, uint32_t chunk);
/* It comes to the GPU, into a free or new frame, which its app is to map. */
bool gm_table_fill(struct gm_table *table, uint32_t chunk, uint32_t frame);
/* It was never written, and is to be mapped on the host: its pages are being cleared. */
bool gm_table_clear(struct gm_table *table, uint32_t chunk, uint32_t page);
/* Its app is to map its pages, which are this host frame. */
bool gm_table_map(struct gm_table *table, uint32_t chunk, uint32_t frame);
/* Its app is to unmap it: on the host; or anywhere, as it is freed. */
bool gm_table_unmap(struct gm_table *table, uint32_t chunk);
/* It is being copied to `page` of tier `to`; both are below the GPU. */
bool gm_table_move(struct gm_table *table, uint32_t chunk, enum gm_tier to, uint32_t page);

/* It waits for a copy, too. That has ended, and its app has answered. `is_given_up`: in vain, and
 * the chunk ends where it began. */
void gm_table_begin_copy(struct gm_table *table, uint32_t chunk);
void gm_table_end_copy(struct gm_table *table, uint32_t chunk, bool is_given_up);
void gm_table_end_map(struct gm_table *table, uint32_t chunk, bool is_given_up);
/* Its app is to map it, once more. */
void gm_table_map_again(struct gm_table *table, uint32_t chunk);
/* All that it waited for has ended: it is where it was to go, or was given up. The caller has given
 * up what it leaves: the frame of an eviction, the pages of what moved. */
bool gm_table_settle(struct gm_table *table, uint32_t chunk);

/* Its frame is free: its data has another copy, or will, as soon as copies out up to number `fence`
 * have read the frame. 0: nothing reads it. What was its shadow is its copy. */
void gm_table_leave_frame(struct gm_table *table, uint32_t chunk, uint64_t fence);
/* The same, and its frame is nobody's any more: gm_table_condemn_frame. */
bool gm_table_leave_to_end(struct gm_table *table, uint32_t chunk, uint64_t fence,
                           uint32_t exit_of);
/* Its pages are none of its own any more, nor a shadow. Returns them; GM_NONE: it had none. Those
 * of a host frame leave with that (gm_table_condemn_frame). */
uint32_t gm_table_leave_pages(struct gm_table *table, uint32_t chunk);
/* The hash of what its pages are to have; NULL: not known. */
void gm_table_set_hash(struct gm_table *table, uint32_t chunk, const uint64_t *hash);
/* It is on the GPU, and the pages from which it came are its shadow, as long as its app's gate is
 * not opened more than `opens` times. */
bool gm_table_keep_shadow(struct gm_table *table, uint32_t chunk, uint32_t opens);
/* Somebody needs the pages of a shadow. Returns them, or GM_NONE. */
uint32_t gm_table_lose_shadow(struct gm_table *table, uint32_t chunk);

/* Nothing refers to the freed chunk any more. True: it was its allocation's last. */
bool gm_table_end_chunk(struct gm_table *table, uint32_t chunk);

/* ---- for the files of the table and for tests ---- */

/*
 * The one setter of a chunk's state. It sets the tier and pages that follow, and keeps lists and
 * sums. With the chunk its GPU frame begins to leave (EVICT, FREED) or is used again (UNDO). The
 * functions of table.h do the rest of what an event means.
 */
bool gm_table_turn_chunk(struct gm_table *table, uint32_t chunk, enum gm_chunk_event event);
/*
 * The one setter of shadows. What has a shadow is evicted before its app's other chunks, as that
 * costs least. So of programs that take turns the same part goes each time, and host memory holds
 * one copy of that part.
 */
bool gm_table_turn_shadow(struct gm_table *table, uint32_t chunk, enum gm_shadow_event event);
/* A chunk of `class` at `va`, which is never written, in the place of an unused slot. */
uint32_t gm_table_add_chunk(struct gm_table *table, uint32_t allocation, uint64_t va,
                            unsigned class);
/* It is settled: it is fixed with its frame, as part of `share`. */
void gm_table_fix_chunk(struct gm_table *table, uint32_t chunk, uint32_t share);
/* Its allocation is freed: it leaves lists and sums. Its shadow was dropped before. */
void gm_table_free_chunk(struct gm_table *table, uint32_t chunk);

#endif
