/*
 * Allocates from memory pools (pools.h) and frees. The steps of an allocation, until one succeeds:
 *
 *   1 a block that is clean, or was freed in the same stream
 *   2 the same after asking which frees in other streams are over (REUSE_ALLOW_OPPORTUNISTIC;
 *     without it only before memory is out)
 *   3 a new region: GM_POOL_REGION bytes, which is what the driver takes (CUDA 13.0, H200), or more
 *     for a large block; where the budget is small, room for some such blocks and no more
 *   4 the same after free regions of all pools on that GPU went back to the daemon
 *   5 blocks freed in other streams, after making the allocating stream wait for them
 *     (REUSE_ALLOW_INTERNAL_DEPENDENCIES; like the driver, only when memory is out)
 *   6 2 to 4 again for up to GM_POOL_PATIENCE_MS, while frees are under way
 *   7 CUDA_ERROR_OUT_OF_MEMORY
 *
 * REUSE_FOLLOW_EVENT_DEPENDENCIES is not used: it needs knowledge of the program's events.
 *
 * A free in a capturing stream goes to the driver. It allows only the memory of graphs there, so it
 * fails and the block stays live.
 *
 * Owns nothing. Callers: handlers; any thread, only when live. Calls pools, arenas, marks, obtain
 * and the driver. No lock is held across a driver call or a request to the daemon.
 */
#ifndef GM_SHIM_POOLS_ALLOC_H
#define GM_SHIM_POOLS_ALLOC_H

#include <stdbool.h>

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Allocate from `handle`, or if that is NULL from the current pool of the stream's device. False:
 * the driver shall do it, counted at *place (gpu -1: not counted). */
bool gm_pools_alloc(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream,
                    struct gm_alloc *place, CUresult *result);

/* Free in a stream. False: the driver shall do it. */
bool gm_pools_free_async(CUdeviceptr dptr, CUstream stream, CUresult *result);

/* Free without a stream (cuMemFree), which waits for nothing. False: not in an arena. */
bool gm_pools_free(CUdeviceptr dptr, CUresult *result);

#endif
