/*
 * Paged memory: populated before use, given back after it. Owns which of its slabs have memory of
 * the system, and the timer that gives it back.
 *
 * Called by the engine, and by stores, on the loop thread.
 */
#ifndef GM_DAEMON_MEMORY_STORES_PAGED_H
#define GM_DAEMON_MEMORY_STORES_PAGED_H

#include <stdbool.h>
#include <stdint.h>

struct gm_stores;

/*
 * Populate the paged tier up to `bytes`, those in use included, as far as its cap allows. Copies go
 * first. 0: no more than what is in use. After a refusal the system is asked again.
 */
void gm_stores_want(struct gm_stores *stores, uint64_t bytes);
/* Begin to give back what is neither used nor wanted, however short it has been free. Returns how
 * many bytes that is. */
uint64_t gm_stores_trim(struct gm_stores *stores);
/* Whether some of it has not been given back yet. */
bool gm_stores_is_trimming(const struct gm_stores *stores);
/* Bytes of slabs for which the paged tier may have memory of the system. */
uint64_t gm_stores_held(const struct gm_stores *stores);

/* ---- for the stores' own files ---- */

/* The pages of this chain are taken or freed. */
void gm_paged_use(struct gm_stores *stores, uint32_t page);
/* Give the memory of a free slab back to the system, now. */
void gm_paged_give_back(struct gm_stores *stores, uint32_t slab);
/* Some may be free for long enough, in a while. */
void gm_paged_start_trimming(struct gm_stores *stores);
/* The workers may have populated what they were to. */
void gm_paged_end_fill(struct gm_stores *stores);

#endif
