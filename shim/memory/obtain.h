/*
 * Obtaining chunks: a reserved range that the daemon backs, noted in the allocation map. The
 * opposite of release.h.
 *
 * Owns nothing. Any thread; no lock is held across a driver call or a request. Calls the link,
 * spares, memory ahead and release. Callers: handlers and pools.
 */
#ifndef GM_SHIM_OBTAIN_H
#define GM_SHIM_OBTAIN_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* As gm_link_alloc. What is asked for ahead does not stand in the way. */
int gm_obtain_chunks(uint64_t va, uint64_t bytes, int32_t gpu);

/*
 * Back `bytes` with chunks on alloc.gpu, as an allocation of that kind; alloc says where it is made
 * and gets its address in *va. CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY and other errors are the
 * answer; CUDA_ERROR_NOT_SUPPORTED means that the real driver shall try.
 *
 * During a capture of this thread the real cuMemAlloc fails, unless the thread is in relaxed mode;
 * this one succeeds, because reserving and mapping are not stream operations. Nothing here
 * synchronizes.
 */
CUresult gm_obtain(struct gm_alloc alloc, enum gm_alloc_kind kind, uint64_t bytes, CUdeviceptr *va);

#endif
