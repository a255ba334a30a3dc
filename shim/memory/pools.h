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
 * Regions that are all free go back when a synchronizing call returns and the pool holds more than
 * its release threshold, when a pool is trimmed or destroyed, and when memory is short. Memory of
 * pools belongs to no context (cuda.h, cuCtxDestroy) and outlives them.
 *
 * pools.c owns the objects and gives memory back; pools_alloc.c allocates and frees.
 *
 * Any thread; no lock is held across a driver call or a request to the daemon. Only when live.
 */
#ifndef GM_SHIM_POOLS_H
#define GM_SHIM_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/clock.h"
#include "shim/driver/real.h"
#include "shim/memory/marks.h"
#include "shim/tables/allocs.h"

#define GM_POOL_REGION (32ull << 20)
#define GM_POOL_PATIENCE_MS (500 * GM_SLOW)

/* The program made a pool: serve it, if it is one of ours. */
void gm_pools_add(CUmemoryPool handle, const CUmemPoolProps *props);

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

/* ---- inside of pools: for pools_alloc.c; "with the lock" is the heap's (marks.h) ---- */

struct gm_pool {
    struct gm_arena arena;
    CUmemoryPool handle; /* NULL: destroyed; it goes when its last block is free */
    CUdevice device;
    int gpu;
    unsigned users;     /* threads that allocate from it now */
    uint64_t most;      /* bytes that it may reserve; 0: any */
    uint64_t threshold; /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
    uint64_t used;      /* bytes of live blocks, as the program asked for them */
    uint64_t reserved_high, used_high;
    _Atomic bool is_opportunistic, has_dependencies; /* the attributes */
    _Atomic bool is_the_drivers; /* which allocates; here it is only known where */
    struct gm_pool *next;
};

/* Chunks of cuMemAlloc that were freed in a stream: released when it has come there. */
struct gm_pool_later {
    struct gm_alloc alloc;
    struct gm_mark *mark;
    struct gm_pool_later *next;
};

extern __attribute__((visibility("hidden"))) struct gm_pool_later *gm_pool_late; /* with the lock */

/* The pool, kept from going until gm_pool_leave. NULL: it is the driver's. */
struct gm_pool *gm_pool_enter(CUmemoryPool handle);
void gm_pool_leave(struct gm_pool *pool);

static inline struct gm_pool *gm_pool_of_block(const struct gm_block *block)
{
    return (struct gm_pool *)(void *)block->region->arena; /* its first member */
}

/* With the lock: something became free. Who synchronizes looks if the pool holds more than it
 * should. */
void gm_pool_note_excess(const struct gm_pool *pool);

/* With the lock: whether memory is on its way back to the daemon, in another thread. */
bool gm_pools_are_leaving(void);

/* A region that is in no arena goes back to the daemon. False: it could not. */
bool gm_region_release(uint64_t va);

#endif
