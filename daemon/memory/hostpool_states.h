/*
 * The states of pieces: the one writer of them, of which units are idle, and so of which pages can
 * be taken. Called by hostpool and hostpool_adopt on the loop thread. Calls pages and kept.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_STATES_H
#define GM_DAEMON_MEMORY_HOSTPOOL_STATES_H

#include "daemon/memory/hostpool_rows.h"

/* Only slabs that are THERE have pages that can be taken; a small unit that begins to be there is
 * idle and fresh. What the worker releases does not outlive the daemon. */
void gm_piece_set(struct gm_hostpool *pool, uint32_t page, enum gm_piece_state state);
void gm_piece_set_idle(struct gm_hostpool *pool, uint32_t page, bool is_idle);
/* A unit is one chain. */
void gm_piece_link(struct gm_hostpool *pool, uint32_t page);

#endif
