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
 * is a unit of 32 MiB. A chunk of another size gets a handle of its own, which the worker makes for
 * it, at addresses that are kept for units of that size. As soon as a program may have a unit's
 * handle, it has an owner, a user, and serves nobody else until it is destroyed. A unit that is
 * free is *idle*: it waits for its owner, and goes when anybody else needs the room. As each goes
 * by itself, they leave over less than a slab of the cap.
 *
 * Pinning costs 220 to 470 ms a GiB, so a worker thread pins slabs ahead of need. The owner says
 * how many it wants (core/need.h). A free slab beyond that leaves: its pages cannot be taken any
 * more, and the worker releases it. Slabs leave from the end and are made from the start, so there
 * may be holes. The cap holds at every moment.
 *
 * Pages have numbers: those of a slab, then those of as many bytes of units of each smaller size,
 * then those of the next slab. So a number is the same whatever the cap is. A *piece* is a slab or
 * a small unit; its first page names it.
 *
 * Where pieces outlive the daemon (kept.h), each has a descriptor, which is put there before
 * anybody can have it, and dropped when it goes back to the worker. Registered memory has none.
 *
 * Called by the engine, frames, stores and the mover, on the loop thread; stores' workers call
 * gm_hostpool_memory. Calls hostpool_pieces, hostpool_states and pages. What the daemon before had
 * comes through hostpool_adopt.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_H
#define GM_DAEMON_MEMORY_HOSTPOOL_H

#include "daemon/memory/hostpool_rows.h"

/* The memory of a unit, all of it the pool's. */
struct gm_unit_memory {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    int fd;
};

/* Make an empty pool of at most `cap` bytes. `on_grown(arg)` is called on the loop thread after the
 * worker made or released pieces, or failed to. 0 or -errno with a line in `why`. */
int gm_hostpool_open(struct gm_hostpool *pool, uv_loop_t *loop, const struct gm_cuda *cuda,
                     CUcontext context, CUdevice device, uint64_t cap, void (*on_grown)(void *arg),
                     void *arg, char *why, size_t why_size);
/* The cap is `bound(arg)` at any moment, in whole slabs, if that is less; `arg` as of open. It is
 * never less than what is pinned. */
void gm_hostpool_bound(struct gm_hostpool *pool, uint64_t (*bound)(const void *arg));
/* Have each piece that is made outlive the daemon, as this GPU's. Before any is made. */
void gm_hostpool_keep(struct gm_hostpool *pool, struct gm_kept *kept, uint32_t gpu);
/* Waits for the worker and frees everything. */
void gm_hostpool_close(struct gm_hostpool *pool);

/* Grow or shrink to `bytes`, as far as the cap allows. Slabs with used pages stay
 * until these are free. After a refusal the driver is asked again. */
void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes);

/* Take pages for `bytes` (a multiple of 2 MiB). Returns the first of the chain, or GM_NONE if too
 * few are free now: then idle units begin to go. Freed with gm_hostpool_free. */
uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes);
void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page);
/* The slab that would be free soonest: anybody's, with fewest pages in use. GM_NONE: there is none
 * that has any in use. */
uint32_t gm_hostpool_emptiest(const struct gm_hostpool *pool);

/* Walk a chain by contiguous pieces. Sets address and bytes of the piece that starts at *page, and
 * *page to the next piece, GM_NONE after the last. */
void gm_hostpool_piece(const struct gm_hostpool *pool, uint32_t *page, CUdeviceptr *address,
                       uint64_t *bytes);

/* Where CPU and copy engines reach a page. Any thread. */
void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page);

/*
 * Take a unit for a chunk of `class` of user `owner`. Returns its first page, or GM_NONE: there is
 * none now, and one is noted to be made. Freed with gm_hostpool_free.
 */
uint32_t gm_hostpool_take_unit(struct gm_hostpool *pool, unsigned class, uint32_t owner);
/* Whoever could have no unit asks again from here on: what was noted before is void. */
void gm_hostpool_forget_wants(struct gm_hostpool *pool);
/* Have what was noted made, as far as that can be; on_grown follows. */
void gm_hostpool_make_units(struct gm_hostpool *pool);
/* An idle unit of 32 MiB of that owner; GM_NONE: there is none. */
uint32_t gm_hostpool_take_idle(struct gm_hostpool *pool, uint32_t owner);
/* Whether the chain that starts at `page` is all of one unit of `class`. */
bool gm_hostpool_is_unit(const struct gm_hostpool *pool, uint32_t page, unsigned class);
/* The unit at `page` for programs of `owner`, who will know it by `id`: it is theirs from now on.
 * Not CUDA_SUCCESS: nothing has changed. */
CUresult gm_hostpool_lend(struct gm_hostpool *pool, uint32_t page, uint32_t owner, uint32_t id,
                          struct gm_unit_memory *unit);
/* By which programs know the unit at `page`, or knew it; 0: none ever did. */
uint32_t gm_hostpool_unit_id(const struct gm_hostpool *pool, uint32_t page);

uint32_t gm_hostpool_pages(const struct gm_hostpool *pool); /* all page numbers are below */
uint64_t gm_hostpool_cap(const struct gm_hostpool *pool);   /* bytes */
uint64_t gm_hostpool_size(const struct gm_hostpool *pool);  /* bytes pinned now */
uint64_t gm_hostpool_used(const struct gm_hostpool *pool); /* bytes taken now, without idle units */
/* ... and with what the worker makes. */
uint64_t gm_hostpool_pinned(const struct gm_hostpool *pool);
/* Bytes that are pinned and on their way back to the system. */
uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool);
/* Some are, or the worker has yet to end what may be too much. */
bool gm_hostpool_is_leaving(const struct gm_hostpool *pool);

#endif
