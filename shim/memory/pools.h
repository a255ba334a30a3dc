/*
 * Memory pools: cuMemAllocAsync and its like, out of chunks.
 *
 * The program's pool objects are the driver's, with their handles, their attributes and their place
 * as a device's current pool. But the memory of a pool that lives on a managed device and is not
 * made to be shared with other processes is gpumux's: an arena (arena.h) of regions that the daemon
 * backs (GM_ALLOC_ARENA), so that it can be swapped, whatever the sizes of the blocks. Everything
 * else stays with the driver: pools with handle types, imported ones, those of the host, of managed
 * memory or for decompression, pools that another device got access to, the memory of graphs
 * (allocated while a stream is captured), and what is allocated after the daemon was lost.
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
 * Regions that are all free go back when a synchronizing call returns and the pool holds more than
 * its release threshold, when a pool is trimmed or destroyed, and when memory is short. Memory of
 * pools belongs to no context (cuda.h, cuCtxDestroy) and outlives them.
 *
 * A free in a stream that is captured is passed to the driver, which knows no such memory and says
 * so: it allows only the memory of graphs there, and the block stays the program's.
 *
 * Any thread; no lock is held across a driver call or a request to the daemon. Only when live.
 */
#ifndef GM_SHIM_POOLS_H
#define GM_SHIM_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/clock.h"
#include "shim/tables/allocs.h"
#include "shim/driver/real.h"

#define GM_POOL_REGION (32ull << 20)
#define GM_POOL_PATIENCE_MS (500 * GM_SLOW)

/* The program made a pool: serve it, if it is one of ours. */
void gm_pools_add(CUmemoryPool handle, const CUmemPoolProps *props);

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

/* Whether `va` lies in a block that the program has: its first address, its bytes as asked, its
 * pool. Each may be NULL. */
bool gm_pools_find(uint64_t va, uint64_t *base, uint64_t *bytes, CUmemoryPool *pool);

/* Before the driver destroys the object: ours, or NULL; then, with that, whether it did. */
struct gm_pool *gm_pools_forget(CUmemoryPool handle);
void gm_pools_end(struct gm_pool *pool, CUmemoryPool handle, bool is_destroyed);

/* After the driver's own call on the object succeeded. */
void gm_pools_trim(CUmemoryPool handle, size_t keep);
/* The driver's value of an attribute, with what is ours added. */
void gm_pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);
void gm_pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value);
/* Others than its own device have access: from now on the driver serves it, and what it took before
 * is opened to them. */
void gm_pools_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count);

/* How often something was given back so far. */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t gm_pools_n_gone;
static inline uint64_t gm_pools_gone(void)
{
    return atomic_load(&gm_pools_n_gone);
}

/* Memory is out on that GPU: give back every region there that is all free, and chunks whose free
 * in a stream is over; and wait for what other threads give back right now. True: something was,
 * since that was so often `gone`. */
bool gm_pools_give_back(int gpu, uint64_t gone);

/* A synchronizing call returned: is there something to give back, of what pools hold above their
 * thresholds? One load. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_pools_has_excess;
void gm_pools_give_back_excess(void);
static inline bool gm_pools_have_excess(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_pools_has_excess, memory_order_relaxed), 0);
}

#endif
