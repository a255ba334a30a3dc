/*
 * The pinned tier: host-NUMA frames of 32 MiB ("slabs"), cut into 2 MiB pages.
 *
 * A chunk's pinned copy is a chain of pages (pages.h): if the bytes are free, the copy fits. The
 * memory is the daemon's alone and is always written whole before it is read, so pages pass between
 * users as they are. The CPU reaches a page at the address at which the copy engines do.
 *
 * Pinning costs 220 to 470 ms a GiB, so slabs are made by a worker thread ahead of need and kept.
 * Everything but that worker runs on the loop thread. The cap holds exactly.
 */
#ifndef GM_DAEMON_HOSTPOOL_H
#define GM_DAEMON_HOSTPOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/cuda.h"
#include "daemon/pages.h"

struct gm_hostpool {
    const struct gm_cuda *cuda;
    CUcontext context;
    CUdevice device;
    int node;           /* NUMA node of the slabs */
    uint32_t max_slabs; /* the cap, without what is lent */
    uint32_t all_slabs; /* the address range */
    uint64_t lent;      /* bytes pinned elsewhere, under the same cap */
    uint32_t slabs;     /* made */
    uint32_t asked;     /* slabs asked for */
    uint32_t wanted;    /* ... as the worker was told */
    struct gm_pages pages;
    CUdeviceptr base; /* address range of all slabs, made or not */
    CUmemGenericAllocationHandle *handles;
    uv_work_t work;
    bool is_working;
    bool is_closing;
    uint32_t made;    /* by the worker, not yet taken over */
    CUresult outcome; /* of the worker's last slab */
    CUresult refusal; /* why the last slab could not be made, as taken over */
    void (*on_grown)(void *arg);
    void *arg;
    uv_loop_t *loop;
};

/* Make an empty pool of at most `cap` bytes. `on_grown(arg)` is called on the loop thread whenever
 * slabs arrived or were refused. 0 or -errno with a line in `why`. */
int gm_hostpool_open(struct gm_hostpool *pool, uv_loop_t *loop, const struct gm_cuda *cuda,
                     CUcontext context, CUdevice device, uint64_t cap, void (*on_grown)(void *arg),
                     void *arg, char *why, size_t why_size);
/* Waits for the worker and frees everything. */
void gm_hostpool_close(struct gm_hostpool *pool);

/* Have at least `bytes` (as far as the cap allows) in the end. After a refusal it tries again. */
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
 * Lend `bytes` of the cap to somebody who pins them on his own (hosted chunks), and take them back.
 * False: so much is not left unpinned.
 */
bool gm_hostpool_lend(struct gm_hostpool *pool, uint64_t bytes);
void gm_hostpool_unlend(struct gm_hostpool *pool, uint64_t bytes);

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool);  /* bytes */
uint64_t gm_hostpool_size(const struct gm_hostpool *pool); /* bytes pinned now */
uint64_t gm_hostpool_used(const struct gm_hostpool *pool); /* bytes taken now */

#endif
