/*
 * Allocating from memory pools, and freeing (pools.h has the pools).
 *
 * How an allocation is served; each step only if those before it had nothing:
 *
 *   1 a block that is clean, or was freed in the same stream
 *
 *   2 the same, after asking which frees in other streams are over (REUSE_ALLOW_OPPORTUNISTIC; they
 *     are asked about anyway before memory is out)
 *
 *   3 a new region: GM_POOL_REGION bytes, fewer if the budget is small, more for a large block
 *
 *   4 the same, once free regions of all pools on that GPU went back to the daemon
 *
 *   5 blocks freed in other streams, which the allocating stream is made to wait for
 *     (REUSE_ALLOW_INTERNAL_DEPENDENCIES; as the driver does, only when there is no more memory)
 *
 *   6 2 to 4 again for up to GM_POOL_PATIENCE_MS, while frees are under way
 *
 *   7 CUDA_ERROR_OUT_OF_MEMORY
 *
 * REUSE_FOLLOW_EVENT_DEPENDENCIES allows what needs knowledge of the program's events: not used.
 *
 * A free in a stream that is captured is passed to the driver, which knows no such memory and says
 * so: it allows only the memory of graphs there, and the block stays the program's.
 *
 * Any thread; no lock is held across a driver call or a request to the daemon. Only when live.
 */
#ifndef GM_SHIM_POOLS_ALLOC_H
#define GM_SHIM_POOLS_ALLOC_H

#include <stdbool.h>

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/*
 * Allocate from `handle`, or from the current pool of the stream's device if it is NULL. False: the
 * driver shall do it, in *place (what gm_where tells, for the accounts; gpu -1: do not count it).
 */
bool gm_pools_alloc(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream,
                    struct gm_alloc *place, CUresult *result);

/* Free in a stream. False: the driver shall do it. */
bool gm_pools_free_async(CUdeviceptr dptr, CUstream stream, CUresult *result);

/* Free without one (cuMemFree), which waits for nothing. False: it is no address in an arena. */
bool gm_pools_free(CUdeviceptr dptr, CUresult *result);

#endif
