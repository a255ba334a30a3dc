/*
 * Memory pools: cuMemAllocAsync and its like, backed with chunks.
 *
 * The driver makes the pool objects, and keeps their handles, their attributes and each device's
 * current pool. But gpumux makes the memory of a pool on a managed device that is not for sharing
 * with other processes: an arena (arena.h) of regions that the daemon backs (GM_ALLOC_ARENA), which
 * can be swapped. The driver serves the rest: pools with handle types, imported pools, pools of
 * host or managed memory or for decompression, pools that another device has access to, the memory
 * of graphs (allocated during a capture), and allocations after the daemon is lost.
 *
 * Free regions go back when a synchronizing call returns and the pool holds more than its release
 * threshold, when a pool is trimmed or destroyed, and when memory is short. Memory of pools belongs
 * to no context and outlives all of them (cuda.h, cuCtxDestroy).
 *
 * Callers: handlers, queries, and wrappers of synchronizing calls (excess); any thread, only when
 * live. Calls the driver, marks, arenas, release and access. No lock is held across a driver call
 * or a request.
 */
#ifndef GM_SHIM_MEMORY_POOLS_H
#define GM_SHIM_MEMORY_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/clock.h"
#include "shim/driver/real.h"
#include "shim/memory/marks.h"
#include "shim/tables/allocs.h"

#define GM_POOL_REGION (32ull << 20)
#define GM_POOL_PATIENCE_MS (500 * GM_SLOW)

/* The program made a pool: serve it if gpumux makes its memory. */
void gm_pools_add(CUmemoryPool handle, const CUmemPoolProps *props);

/* Whether `va` lies in a live block: its first address, its bytes as asked, its pool. Each may be
 * NULL. */
bool gm_pools_find(uint64_t va, uint64_t *base, uint64_t *bytes, CUmemoryPool *pool);

/* Before the driver destroys the object: returns our pool or NULL. After it: pass that and whether
 * the object is destroyed. */
struct gm_pool *gm_pools_forget(CUmemoryPool handle);
void gm_pools_end(struct gm_pool *pool, CUmemoryPool handle, bool is_destroyed);

/* After the driver's call succeeded. */
void gm_pools_trim(CUmemoryPool handle, size_t keep);
/* Add our part to the driver's value of an attribute. */
void gm_pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);
void gm_pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value);
/* If other devices get access, the driver serves the pool from now on, and its earlier memory is
 * opened to them. */
void gm_pools_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count);

/* How often memory was given back so far. */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t gm_pools_n_gone;
static inline uint64_t gm_pools_gone(void)
{
    return atomic_load(&gm_pools_n_gone);
}

/* Memory is out on that GPU: give back every free region there and chunks whose stream-ordered free
 * is over, and wait for other threads that give back. True: gm_pools_gone is not `gone` any more.
 */
bool gm_pools_give_back(int gpu, uint64_t gone);

/* A synchronizing call returned: whether pools may hold free memory above their thresholds (one
 * load); and give it back. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_pools_has_excess;
void gm_pools_give_back_excess(void);
static inline bool gm_pools_have_excess(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_pools_has_excess, memory_order_relaxed), 0);
}

/* Allocate from `handle`, or if that is NULL from the current pool of the stream's device. False:
 * the driver shall do it, counted at *place (gpu -1: not counted). */
bool gm_pools_alloc(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream,
                    struct gm_alloc *place, CUresult *result);

/* Free in a stream. False: the driver shall do it. */
bool gm_pools_free_async(CUdeviceptr dptr, CUstream stream, CUresult *result);

/* Free without a stream (cuMemFree), which waits for nothing. False: not in an arena. */
bool gm_pools_free(CUdeviceptr dptr, CUresult *result);

#endif
