/*
 * Pieces with the driver: one is made, exported, imported or released as a whole, or as far as the
 * driver lets it; the piece keeps note of what there is.
 *
 * Called by hostpool, on its worker for a piece that is with it, and by hostpool_adopt. Calls cuda
 * and files.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_PIECES_H
#define GM_DAEMON_MEMORY_HOSTPOOL_PIECES_H

#include "daemon/memory/hostpool_rows.h"

/* Pin and map a piece; one that is stuck gets only what it lacks. It has a descriptor if it is to
 * outlive the daemon. Not CUDA_SUCCESS: it is released again, if the driver lets it. */
CUresult gm_piece_make(struct gm_hostpool *pool, uint32_t page);
/* Release it and its descriptor, as far as the driver lets it. */
CUresult gm_piece_release(struct gm_hostpool *pool, uint32_t page);
/* See that it has a descriptor. */
CUresult gm_piece_export(struct gm_hostpool *pool, uint32_t page);
/* The memory behind this descriptor, which is the pool's from now on, becomes the piece's. False:
 * it cannot; is_held says whether some of it is left. */
bool gm_piece_import(struct gm_hostpool *pool, uint32_t page, int fd);

#endif
