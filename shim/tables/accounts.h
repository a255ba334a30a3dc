/*
 * Accounts of memory that the real driver made: unswappable, counted by kind in the words that the
 * daemon samples (gm_stat), and by GPU, so that what a program is told of free memory agrees.
 *
 *   small, real  plain allocations, noted in the allocation map
 *   managed      cuMemAllocManaged: noted there too. It is not taken from free memory: making it
 *                takes none, and a real driver moves it out of the way of whatever needs room
 *   arrays       arrays and mipmapped arrays, by their handle (arrays.h)
 *   pools        what the driver's own memory pools hold (set by who knows of such pools)
 *   graphs       what the driver keeps for allocations inside graphs, sampled (graphs.h)
 *
 * Any thread.
 */
#ifndef GM_SHIM_ACCOUNTS_H
#define GM_SHIM_ACCOUNTS_H

#include "shim/tables/allocs.h"
#include "shim/driver/real.h"

/* Where the calling thread allocates: device, GPU, context. False: it has no usable context. */
bool gm_where(struct gm_alloc *alloc);

/* Note what the real driver made at `va`, in the place that gm_where() told. Without memory for the
 * note it goes uncounted. */
void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* The same for managed memory. */
void gm_note_managed(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes);

/* *alloc, which was taken out of the map, is counted no more. */
void gm_forget_real(const struct gm_alloc *alloc);

/* Count (or no more: `is_on` false) memory of the real driver on `gpu` that has no address: handles
 * of the program's own VMM that cannot be virtual. */
void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on);

/* Passes on what the program is told of an allocation of `bytes`, and counts it for the daemon if
 * that is that memory is out. */
CUresult gm_tell_allocated(CUresult result, uint64_t bytes);

/* What is not in the allocation map. */
enum gm_account { GM_ACCOUNT_ARRAYS, GM_ACCOUNT_GRAPHS, GM_ACCOUNTS };

/* Count bytes of `kind` on `gpu` (-1: not managed, so that they are counted but not taken from
 * anybody's free memory): more of them, less, or so many. */
void gm_account_add(enum gm_account kind, int gpu, uint64_t bytes);
void gm_account_sub(enum gm_account kind, int gpu, uint64_t bytes);
void gm_account_set(enum gm_account kind, int gpu, uint64_t bytes);

/*
 * What the program is told about the memory of `gpu`, by CUDA and NVML alike: the budget, and what
 * it could still allocate. That is what it does not use of the budget, or what all tiers can still
 * hold if that is less. False: the GPU is not managed, or the daemon is lost; the driver's own
 * answer holds.
 */
bool gm_memory_info(int gpu, uint64_t *free_bytes, uint64_t *total);

/* What the program does not use of the budget, whatever the tiers can hold. False: as above. */
bool gm_budget_left(int gpu, uint64_t *left, uint64_t *budget);

#endif
