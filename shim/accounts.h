/*
 * Accounts of memory that the real driver made: noted in the allocation map, and counted in the
 * words that the daemon samples (small_bytes, real_bytes). Any thread.
 */
#ifndef GM_SHIM_ACCOUNTS_H
#define GM_SHIM_ACCOUNTS_H

#include "shim/allocs.h"
#include "shim/real.h"

/* Where the calling thread allocates: device, GPU, context. False: it has no usable context. */
bool gm_where(struct gm_alloc *alloc);

/* Note what the real driver made at `va`, in the place that gm_where() told. Without memory for the
 * note it goes uncounted. */
void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* *alloc, which was taken out of the map, is counted no more. */
void gm_forget_real(const struct gm_alloc *alloc);

/* Count (or no more: `is_on` false) memory of the real driver on `gpu` that has no address: handles
 * of the program's own VMM that cannot be virtual. */
void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on);

#endif
