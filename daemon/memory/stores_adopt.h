/*
 * What the daemon before had below the GPU: its files come first, as stores open, then the chains
 * that lie in them and in pinned memory. Paged memory and disk are as large as they were; pages
 * beyond the cap go as they become free.
 *
 * Called by the engine's adoption and by stores. Calls stores_paged, hostpool_adopt, kept and
 * pages.
 */
#ifndef GM_DAEMON_MEMORY_STORES_ADOPT_H
#define GM_DAEMON_MEMORY_STORES_ADOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/chunk.h"
#include "daemon/memory/kept.h"

struct gm_stores;

/* Take a chain as it lies there, of the daemon before: all of them before anything else is asked of
 * these stores, or what is left is free. False, and nothing is taken: it is none of
 * `bytes`, or not free. So it may be an attack. */
bool gm_stores_adopt(struct gm_stores *stores, enum gm_tier tier, uint32_t page, uint64_t bytes);

/* ---- for stores ---- */

/* The file of that kind, the caller's now; -1: there is none. *bytes becomes its size if that is
 * more. */
int gm_stores_claim(struct gm_stores *stores, enum gm_kept_kind kind, uint64_t *bytes);
/* Find the slabs of the paged file that have memory: it is used, or is given back. */
void gm_stores_find_memory(struct gm_stores *stores);
/* Find the slabs of the file on disk that have blocks. */
void gm_stores_find_blocks(struct gm_stores *stores);
/* Pages beyond the cap that are free go. */
void gm_stores_shrink(struct gm_stores *stores, enum gm_tier tier);
/* ... and on disk those that went come back where the cap has room. */
void gm_stores_fit_disk(struct gm_stores *stores);

#endif
