/*
 * The pinned tier: slabs of 32 MiB of host memory, cut into 2 MiB pages (pages.h). Owns which slabs
 * are pinned, and how much of the cap is lent.
 *
 * A slab is a handle on the GPU's NUMA node. Where the device has no handles for host memory, it is
 * ordinary memory registered with the driver: copies are as fast, but programs cannot map it. Only
 * the daemon maps slabs, and it writes a page whole before it reads it. So a page passes between
 * users without being cleared.
 *
 * Pinning costs 220 to 470 ms a GiB, so a worker thread pins slabs ahead of need. The owner says
 * how many it wants (core/need.h). A free slab beyond that leaves: its pages cannot be taken any
 * more, and the worker releases it. Slabs leave from the end and are made from the start, so there
 * may be holes.
 *
 * The owner may borrow a part of the cap for host memory that it pins itself. It pins nothing
 * before the pool has released as much. So the cap holds over slabs and loans at every moment.
 *
 * Called by the engine, stores and the mover, on the loop thread; stores' workers call
 * gm_hostpool_memory. Calls cuda and pages.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_H
#define GM_DAEMON_MEMORY_HOSTPOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/memory/cuda.h"
#include "daemon/memory/pages.h"

enum gm_slab_state {
    GM_SLAB_ABSENT,    /* not pinned */
    GM_SLAB_MAKING,    /* with the worker */
    GM_SLAB_THERE,     /* its pages can be taken */
    GM_SLAB_LEAVING,   /* pinned, but without pages: waits for the worker */
    GM_SLAB_RELEASING, /* with the worker */
    GM_SLAB_STUCK,     /* the driver did not release it: pinned, perhaps not mapped */
    GM_SLAB_STATES
};

struct gm_pinned_slab {
    uint8_t state; /* enum gm_slab_state */
    /* The rest is the worker's while the slab is with it. */
    bool is_held; /* the handle is */
    bool is_mapped;
    CUmemGenericAllocationHandle handle;
};

/* Slabs that the worker makes before it reports: some 60 to 120 ms of pinning. Releasing takes
 * less. */
#define GM_SLABS_A_BATCH 8u

struct gm_hostpool {
    const struct gm_cuda *cuda;
    CUcontext context;
    CUdevice device;
    int node;           /* NUMA node of the slabs */
    bool is_registered; /* the device has no handles for host memory: slabs are registered */
    uint32_t max_slabs; /* the cap without what is lent: no more are THERE */
    uint32_t all_slabs; /* the cap, and the size of the address range */
    uint64_t lent;      /* bytes that the owner pins, or may pin, under the same cap */
    uint32_t asked;     /* slabs asked for last */
    uint32_t count[GM_SLAB_STATES];
    struct gm_pages pages;
    CUdeviceptr base; /* address range of all slabs, pinned or not */
    struct gm_pinned_slab *slabs;
    uv_work_t work;
    bool is_working;
    bool is_closing;
    struct {
        bool is_release;
        uint32_t n, done;
        uint32_t slabs[GM_SLABS_A_BATCH];
        CUresult outcome; /* of the last slab tried */
    } job;                /* the worker's while is_working */
    CUresult refusal;     /* why the last slab could not be made */
    bool is_refused;      /* ... and nobody has asked since */
    CUresult stuck;       /* why the last slab could not be released; a loan tries again */
    void (*on_grown)(void *arg);
    void *arg;
    uv_loop_t *loop;
};

/* Make an empty pool of at most `cap` bytes. `on_grown(arg)` is called on the loop thread after the
 * worker made or released slabs, or failed to. 0 or -errno with a line in `why`. */
int gm_hostpool_open(struct gm_hostpool *pool, uv_loop_t *loop, const struct gm_cuda *cuda,
                     CUcontext context, CUdevice device, uint64_t cap, void (*on_grown)(void *arg),
                     void *arg, char *why, size_t why_size);
/* Waits for the worker and frees everything. */
void gm_hostpool_close(struct gm_hostpool *pool);

/* Grow or shrink to `bytes`, as far as the cap and the loans allow. Slabs with used pages stay
 * until these are free. After a refusal the driver is asked again. */
void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes);

/* Take pages for `bytes` (a multiple of 2 MiB). Returns the first of the chain, or GM_NONE if too
 * few are free now. Freed with gm_hostpool_free. */
uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes);
void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page);

/* Walk a chain by contiguous pieces. Sets address and bytes of the piece that starts at *page, and
 * *page to the next piece, GM_NONE after the last. */
void gm_hostpool_piece(const struct gm_hostpool *pool, uint32_t *page, CUdeviceptr *address,
                       uint64_t *bytes);

/* Where CPU and copy engines reach a page. Any thread. */
void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page);

/*
 * Lend `bytes` of the cap. The cap shrinks by whole slabs, and slabs beyond it lose their pages at
 * once. They are released by gm_hostpool_clear, so a loan that ends before that costs nothing.
 * False: slabs with used pages do not fit under the rest of the cap. Used pages are not moved, so
 * this can happen although enough bytes are free.
 */
bool gm_hostpool_lend(struct gm_hostpool *pool, uint64_t bytes);
/* End a loan: none of these bytes is pinned any more. */
void gm_hostpool_unlend(struct gm_hostpool *pool, uint64_t bytes);
/*
 * CUDA_SUCCESS: all that is lent may be pinned now. CUDA_ERROR_NOT_READY: the worker has yet to
 * release slabs, and on_grown follows. Any other error: the driver does not release them. End the
 * loans that wait; the next loan asks the driver again.
 */
CUresult gm_hostpool_clear(struct gm_hostpool *pool);

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool);  /* bytes, without what is lent */
uint64_t gm_hostpool_size(const struct gm_hostpool *pool); /* bytes pinned now */
uint64_t gm_hostpool_used(const struct gm_hostpool *pool); /* bytes taken now */
/* Bytes of slabs that are pinned and on their way back to the system. */
uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool);

#endif
