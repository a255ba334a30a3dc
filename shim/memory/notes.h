/*
 * Notes of what the real driver allocated: in the allocation map, in the accounts, and, if it is
 * managed, in the list of managed memory. Any thread.
 */
#ifndef GM_SHIM_NOTES_H
#define GM_SHIM_NOTES_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Where the calling thread allocates: device, GPU, context. False: it has no usable context. */
bool gm_where(struct gm_alloc *alloc);

/* Note what the real driver made at `va`, in the place that gm_where() told. Without memory for the
 * note it goes uncounted. */
void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* The same for managed memory. */
void gm_note_managed(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* *alloc, which was taken out of the map, is counted no more. */
void gm_forget_real(const struct gm_alloc *alloc);

#endif
