/* Apps and allocations, and the table itself: see table.h. */
#ifndef GM_CORE_TABLE_APPS_H
#define GM_CORE_TABLE_APPS_H

#include "daemon/core/table_rows.h"

/* The bytes for a table of these sizes; make it in the caller's zeroed `memory`, 16-aligned. */
size_t gm_table_size(uint32_t max_apps, uint32_t max_chunks, uint32_t max_frames);
struct gm_table *gm_table_init(void *memory, uint32_t max_apps, uint32_t max_chunks,
                               uint32_t max_frames, uint64_t budget);

/*
 * Add an app of `uid`, or remove one whose allocations are all gone. False: no pool is left, as
 * users that are gone have frames in all of them. The caller destroys those first.
 */
bool gm_table_add_app(struct gm_table *table, uint32_t app, uint32_t uid);
void gm_table_remove_app(struct gm_table *table, uint32_t app);

/* Who is told of turns. */
void gm_table_watch(struct gm_table *table, void (*on_turn)(void *arg, const struct gm_turn *turn),
                    void *arg);
/* The ledger that is written from now on, which is empty, as the table is. */
void gm_table_keep_ledger(struct gm_table *table, const struct gm_ledger *ledger);
void gm_table_set_budget(struct gm_table *table, uint64_t bytes);
/* Set what of its memory an app may not have on the GPU. */
void gm_table_set_beyond(struct gm_table *table, uint32_t app, uint64_t bytes);
/* A window of it has ended. */
void gm_table_end_window(struct gm_table *table, uint32_t app);
void gm_table_set_silent(struct gm_table *table, uint32_t app, bool is_silent);

/* Whether another plan is to be made. `is_over`: all moves of the one that there is were begun;
 * what comes of them is a reason then. And there is one now: it knows all that has happened. */
bool gm_table_is_plan_stale(const struct gm_table *table, bool is_over);
void gm_table_note_plan(struct gm_table *table);

/* ---- allocations ---- */

/*
 * Commit `bytes` at `va` for `app`: cut into chunks of tier none, all away. Returns the
 * allocation's index, or GM_NONE when the table is full (nothing changed).
 */
uint32_t gm_table_add_allocation(struct gm_table *table, uint32_t app, uint64_t va, uint64_t bytes);
/* Its ALLOC is to be answered; and is. `is_ahead`: nobody waits for that. */
void gm_table_await_answer(struct gm_table *table, uint32_t allocation, uint64_t cookie,
                           bool is_ahead);
void gm_table_answer(struct gm_table *table, uint32_t allocation);
/* The answer will be that there is no memory for it. */
void gm_table_refuse(struct gm_table *table, uint32_t allocation);
/* The live allocation of `app` that starts at `va`, or GM_NONE. */
uint32_t gm_table_find_allocation(const struct gm_table *table, uint32_t app, uint64_t va);
/* Whether there is one, or one that was freed and of which something is left. */
bool gm_table_has_any(const struct gm_table *table, uint32_t app, uint64_t va);
/* Fix all chunks of an allocation, and their frames, as part of what has the number `share`, which
 * is not 0. All of them are settled. */
void gm_table_fix(struct gm_table *table, uint32_t allocation, uint32_t share,
                  const uint64_t nonce[2]);
/* It is to come to the GPU first, until then (ns; engine time); 0: no more. */
void gm_table_set_comes_until(struct gm_table *table, uint32_t allocation, uint64_t until);
/* Whether it can be fixed: it is live and whole. */
bool gm_table_can_fix(const struct gm_table *table, uint32_t allocation);
/* It and its chunks leave lists and sums; nothing of it is a shadow any more. Each chunk's slot
 * stays until gm_table_end_chunk, its own until all of those have ended. */
void gm_table_free_allocation(struct gm_table *table, uint32_t allocation,
                              struct gm_last_word last);
void gm_table_end_allocation(struct gm_table *table, uint32_t allocation);

#endif
