/*
 * Notes allocations of the real driver in the allocation map, the accounts and the list of managed
 * memory. Owns nothing. Callers: handlers, release; any thread. Calls these three, contexts and the
 * gate.
 */
#ifndef GM_SHIM_NOTES_H
#define GM_SHIM_NOTES_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* The calling thread's device, GPU and context. False: it has no usable context. */
bool gm_where(struct gm_alloc *alloc);

/* Note memory that the real driver made at `va`; `alloc` is from gm_where(). Without host memory it
 * is not counted. */
void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* The same for managed memory. */
void gm_note_managed(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* Uncount *alloc, which is out of the map. */
void gm_forget_real(const struct gm_alloc *alloc);

#endif
