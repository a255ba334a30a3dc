/*
 * The pinned tier: host-NUMA frames of 32 MiB ("slabs"), cut into 2 MiB pages.
 *
 * A chunk's pinned copy is a chain of pages (pages.h): if the bytes are free, the copy fits. The
 * memory is the daemon's alone and is always written whole before it is read, so pages pass between
 * users as they are. The CPU reaches a page at the address at which the copy engines do.
 *
 * Pinning costs 220 to 470 ms a GiB, so a worker thread makes slabs ahead of need. The pool has as
 * many slabs as its owner asked for last, as far as the cap allows. Beyond that, a slab without a
 * used page leaves: its pages are nobody's at once, and the worker releases it. What to ask for is
 * the owner's policy (core/need.h).
 *
 * A part of the cap can be lent to somebody who pins it on his own (hosted chunks). He may pin
 * nothing before the slabs that the loan replaces are released. So the cap holds exactly, at every
 * moment, over slabs and loans. Slabs leave from the end and are made again from the start, so
 * there may be holes.
 *
 * A device without memory handles on the host gets slabs of ordinary memory that is registered with
 * the driver. Copies are as fast; what is lost is that programs map it (hosted chunks).
 *
 * Everything but the worker runs on the loop thread.
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
    GM_SLAB_LEAVING,   /* as it was, but without pages: waits for the worker */
    GM_SLAB_RELEASING, /* with the worker */
    GM_SLAB_STUCK,     /* the driver did not release it: still pinned, perhaps not mapped */
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
    uint32_t max_slabs; /* the cap, without what is lent: no more are THERE */
    uint32_t all_slabs; /* the cap: the address range */
    uint64_t lent;      /* bytes pinned elsewhere, or soon to be, under the same cap */
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

/* Make an empty pool of at most `cap` bytes. `on_grown(arg)` is called on the loop thread whenever
 * slabs arrived or were refused, left or did not. 0 or -errno with a line in `why`. */
int gm_hostpool_open(struct gm_hostpool *pool, uv_loop_t *loop, const struct gm_cuda *cuda,
                     CUcontext context, CUdevice device, uint64_t cap, void (*on_grown)(void *arg),
                     void *arg, char *why, size_t why_size);
/* Waits for the worker and frees everything. */
void gm_hostpool_close(struct gm_hostpool *pool);

/* Have `bytes` in the end, as far as the cap, less what is lent, allows: slabs are made, or free
 * ones leave. Slabs with used pages stay until these are free. After a refusal it tries again. */
void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes);

/* Take room for `bytes` (a multiple of 2 MiB). Returns the first page, GM_NONE if there is not
 * enough now. Freed with gm_hostpool_free. */
uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes);
void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page);

/* Walk a chain by contiguous pieces: sets address and bytes of the piece that starts at *page and
 * moves *page to the next piece, GM_NONE after the last. */
void gm_hostpool_piece(const struct gm_hostpool *pool, uint32_t *page, CUdeviceptr *address,
                       uint64_t *bytes);

/* Where the CPU reads and writes a page. Any thread. */
void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page);

/*
 * Lend `bytes` of the cap to somebody who pins them on his own. The cap shrinks by whole slabs, and
 * at once no more slabs have pages than it allows; nothing else happens before gm_hostpool_clear,
 * so a loan that is given back before that leaves everything as it was. False: more slabs have used
 * pages than the rest of the cap holds. That can be so though enough bytes are free, when they lie
 * scattered: used pages are not moved together.
 */
bool gm_hostpool_lend(struct gm_hostpool *pool, uint64_t bytes);
/* Back again, when none of these bytes is pinned any more. The pool is again as it was asked for.
 */
void gm_hostpool_unlend(struct gm_hostpool *pool, uint64_t bytes);
/*
 * Whether all that is lent may be pinned now. CUDA_ERROR_NOT_READY: slabs have yet to go, on_grown
 * is called when some have. Any other error: the driver does not release them, and the loans that
 * wait must be given back; the next loan makes it try again.
 */
CUresult gm_hostpool_clear(struct gm_hostpool *pool);

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool);  /* bytes, without what is lent */
uint64_t gm_hostpool_size(const struct gm_hostpool *pool); /* bytes pinned now */
uint64_t gm_hostpool_used(const struct gm_hostpool *pool); /* bytes taken now */
/* Bytes of slabs that are pinned and on their way back to the system. */
uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool);

#endif
