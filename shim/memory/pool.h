/*
 * Inside of pools (pools.h): what pools.c, which has the objects and gives memory back, and
 * pools_alloc.c, which allocates and frees, share. "With the lock" is the heap's (marks.h).
 */
#ifndef GM_SHIM_POOL_H
#define GM_SHIM_POOL_H

#include "shim/memory/marks.h"
#include "shim/memory/pools.h"

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
