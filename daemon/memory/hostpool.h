/*
 * The pinned tier: slabs of 32 MiB of host memory, cut into 2 MiB pages (pages.h). Owns which slabs
 * are pinned, and which of them programs may map.
 *
 * A slab is a handle on the GPU's NUMA node. Where the device has no handles for host memory, it is
 * ordinary memory registered with the driver: copies are as fast, but programs cannot map it.
 *
 * Most slabs have no owner. Only the daemon maps them, and it writes a page whole before it reads
 * it. So a page passes between users without being cleared.
 *
 * A *unit* is the memory of one handle. A program may map it, so it serves one chunk. A whole slab
 * is a unit of 32 MiB. A chunk of another size gets its unit in a slab that was made for that: it
 * consists of handles of that size. As soon as a program may have a unit's handle, the slab has an
 * owner, a user, and serves nobody else until it is destroyed. A unit that is free is *idle*: it
 * waits for its owner, and goes when anybody else needs the room.
 *
 * Pinning costs 220 to 470 ms a GiB, so a worker thread pins slabs ahead of need. The owner says
 * how many it wants (core/need.h). A free slab beyond that leaves: its pages cannot be taken any
 * more, and the worker releases it. Slabs leave from the end and are made from the start, so there
 * may be holes. The cap holds at every moment.
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
    uint8_t state;       /* enum gm_slab_state */
    uint8_t class;       /* of its units; GM_CHUNK_CLASSES - 1: it is one handle */
    uint16_t free_units; /* with an owner: bit set: that unit is idle */
    uint32_t owner;      /* GM_NONE: its pages serve everybody */
    bool is_used_up;     /* LEAVING: it had an owner, or another is made in its place */
    /* The rest is the worker's while the slab is with it. */
    uint8_t held, mapped;                          /* handles: the first ones */
    CUmemGenericAllocationHandle handle, *handles; /* one; or 2 to 16 of them */
};

/* Slabs that the worker makes before it reports: some 60 to 120 ms of pinning. Releasing takes
 * less. */
#define GM_SLABS_A_BATCH 8u

struct gm_hostpool {
    const struct gm_cuda *cuda;
    CUcontext context;
    CUdevice device;
    int node;            /* NUMA node of the slabs */
    bool is_registered;  /* the device has no handles for host memory: slabs are registered */
    uint32_t max_slabs;  /* the cap, and the size of the address range */
    uint32_t asked;      /* slabs asked for last */
    uint64_t idle;       /* bytes of idle units */
    uint32_t idle_slabs; /* that have an owner and nothing else */
    uint32_t used_up;    /* LEAVING slabs that must be destroyed */
    bool is_cut_wanted;  /* a slab is to be made of smaller units */
    uint8_t cut_class;
    uint32_t cut_owner;
    uint32_t fresh; /* ... it was made: it stays until somebody asks; GM_NONE */
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
    CUresult stuck;       /* why the last slab could not be released */
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

/* Grow or shrink to `bytes`, as far as the cap allows. Slabs with used pages stay
 * until these are free. After a refusal the driver is asked again. */
void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes);

/* Take pages for `bytes` (a multiple of 2 MiB). Returns the first of the chain, or GM_NONE if too
 * few are free now: then idle units begin to go. Freed with gm_hostpool_free. */
uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes);
void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page);

/* Walk a chain by contiguous pieces. Sets address and bytes of the piece that starts at *page, and
 * *page to the next piece, GM_NONE after the last. */
void gm_hostpool_piece(const struct gm_hostpool *pool, uint32_t *page, CUdeviceptr *address,
                       uint64_t *bytes);

/* Where CPU and copy engines reach a page. Any thread. */
void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page);

/*
 * Take a unit for a chunk of `class` of user `owner`. Returns its first page, or GM_NONE: there is
 * none now. If that can change, the worker makes one, and on_grown follows. Freed with
 * gm_hostpool_free.
 */
uint32_t gm_hostpool_take_unit(struct gm_hostpool *pool, unsigned class, uint32_t owner);
/* An idle unit of 32 MiB of that owner; GM_NONE: there is none. */
uint32_t gm_hostpool_take_idle(struct gm_hostpool *pool, uint32_t owner);
/* Whether the chain that starts at `page` is all of one unit of `class`. */
bool gm_hostpool_is_unit(const struct gm_hostpool *pool, uint32_t page, unsigned class);
/* The handle of the unit at `page`, for a program of `owner`: its slab is theirs from now on. */
CUmemGenericAllocationHandle gm_hostpool_unit_handle(struct gm_hostpool *pool, uint32_t page,
                                                     uint32_t owner);

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool);  /* bytes */
uint64_t gm_hostpool_size(const struct gm_hostpool *pool); /* bytes pinned now */
uint64_t gm_hostpool_used(const struct gm_hostpool *pool); /* bytes taken now, without idle units */
/* Bytes of idle units beside others that are used: nobody but their owner can have them now. */
uint64_t gm_hostpool_held_back(const struct gm_hostpool *pool);
/* Bytes of slabs that are pinned and on their way back to the system. */
uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool);

#endif
