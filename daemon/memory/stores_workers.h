/*
 * Threads that take pieces from one queue: they copy between the tiers, and populate pages of paged
 * memory when there is nothing to copy. They wake the loop when a job or a fill has ended.
 *
 * Called by stores on the loop thread. Calls hostpool's addresses, disk and pages' chains.
 */
#ifndef GM_DAEMON_MEMORY_STORES_WORKERS_H
#define GM_DAEMON_MEMORY_STORES_WORKERS_H

#include "daemon/memory/stores_rows.h"

/* What a worker takes from the queue: so small that eight share a chunk, so large that a disk
 * reaches its rate and the queue's lock costs nothing. */
#define GM_STORES_PIECE_PAGES 2u
#define GM_STORES_PIECE_BYTES (GM_STORES_PIECE_PAGES * GM_CHUNK_MIN)

/* 0 or -errno: then there are fewer. They block all signals: the loop thread handles them. */
int gm_crew_start(struct gm_stores_crew *crew, unsigned threads);
/* Waits for the pieces under way. */
void gm_crew_stop(struct gm_stores_crew *crew);

#endif
