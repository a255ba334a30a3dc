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
 * gm_hostpool_memory. Calls pages and kept.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_H
#define GM_DAEMON_MEMORY_HOSTPOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/chunk.h"
#include "daemon/memory/cuda.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/pages.h"

#define GM_WHOLE (GM_CHUNK_CLASSES - 1u) /* the class of slabs */
/* Numbers of a slab's pages, and then of as many bytes of units of each smaller size. */
#define GM_PIECE_STRIDE (GM_CHUNK_CLASSES * GM_SLAB_PAGES)

enum gm_piece_state {
    GM_PIECE_ABSENT,    /* not pinned */
    GM_PIECE_MAKING,    /* with the worker */
    GM_PIECE_THERE,     /* it, or its pages, can be taken */
    GM_PIECE_LEAVING,   /* pinned, but nobody can have it: waits for the worker */
    GM_PIECE_RELEASING, /* with the worker */
    GM_PIECE_STUCK,     /* the driver did not release it: pinned, perhaps not mapped */
    GM_PIECE_STATES
};

struct gm_piece {
    uint8_t state;   /* enum gm_piece_state */
    bool has_owner;  /* THERE: else its pages serve everybody */
    bool is_idle;    /* ... it has one, and nobody uses it */
    bool is_fresh;   /* ... it was made for somebody who has yet to ask again */
    bool is_used_up; /* LEAVING: it must be destroyed */
    uint32_t owner;
    uint32_t id; /* by which a program knows it, or knew; 0: none ever had it */
    /* The rest is the worker's while the piece is with it. */
    bool is_held, is_mapped; /* the handle, or registered memory */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;       /* of a small unit; 0: none */
    int fd;               /* exported; 0: it is not */
    bool has_frames_file; /* ... and counts as a frame's */
};

/* Pieces that the workers make before they report: some 60 ms of pinning, of slabs. Releasing takes
 * less. */
#define GM_PIECES_A_BATCH 8u
/* One worker makes 2.7 GB/s of slabs, two 4.0, four no more than two (H100). */
#define GM_PIECE_WORKERS 2u

struct gm_hostpool {
    const struct gm_cuda *cuda;
    CUcontext context;
    CUdevice device;
    int node;           /* NUMA node of the slabs */
    bool is_registered; /* the device has no handles for host memory: slabs are registered */
    uint32_t max_slabs; /* the most that the cap can be, and the size of the slabs' address range */
    uint64_t (*bound)(const void *arg);        /* what the cap is now; NULL: that */
    uint64_t asked;                            /* bytes asked for last */
    uint32_t used_up;                          /* LEAVING pieces that must be destroyed */
    uint32_t fresh;                            /* units that are */
    struct gm_piece *pieces[GM_CHUNK_CLASSES]; /* by size; the last ones are the slabs */
    uint32_t top[GM_CHUNK_CLASSES];            /* above the last that is not ABSENT */
    uint32_t count[GM_CHUNK_CLASSES][GM_PIECE_STATES];
    uint32_t idle[GM_CHUNK_CLASSES];
    struct {
        uint8_t class;
        uint32_t owner;
    } wants[GM_PIECES_A_BATCH]; /* units that are to be made */
    uint32_t n_wants;
    struct gm_pages pages;
    CUdeviceptr base; /* address range of all slabs, pinned or not */
    uv_work_t work[GM_PIECE_WORKERS];
    uint32_t working; /* of them */
    bool is_closing;
    struct {
        bool is_release;
        uint32_t n;
        _Atomic uint32_t next; /* that nobody has begun */
        uint32_t pieces[GM_PIECES_A_BATCH];
        bool is_done[GM_PIECES_A_BATCH];
        _Atomic CUresult outcome; /* of one that failed: then no further one is begun */
    } job;                        /* the workers' while any works */
    CUresult refusal;             /* why the last piece could not be made */
    bool is_refused;              /* ... and nobody has asked since */
    CUresult stuck;               /* why the last piece could not be released */
    struct gm_kept *kept;         /* NULL: pieces do not outlive the daemon */
    uint32_t gpu;                 /* ... as which GPU's */
    void (*on_grown)(void *arg);
    void *arg;
    uv_loop_t *loop;
};

/* Pieces of this size in a slab's bytes. */
static inline uint32_t gm_pieces_in_slab(unsigned class)
{
    return GM_SLAB_PAGES >> class;
}

/* Of units that are smaller than a slab there are as many places as the cap has room for. */
static inline uint32_t gm_piece_places(const struct gm_hostpool *pool, unsigned class)
{
    return pool->max_slabs * gm_pieces_in_slab(class);
}

static inline uint32_t gm_piece_page(unsigned class, uint32_t index)
{
    const uint32_t part = class == GM_WHOLE ? 0 : 1 + class;
    return index / gm_pieces_in_slab(class) * GM_PIECE_STRIDE + part * GM_SLAB_PAGES +
           (index % gm_pieces_in_slab(class) << class);
}

static inline unsigned gm_piece_class(uint32_t page)
{
    const uint32_t part = page % GM_PIECE_STRIDE / GM_SLAB_PAGES;
    return part == 0 ? GM_WHOLE : part - 1;
}

static inline uint32_t gm_piece_index(uint32_t page)
{
    const unsigned class = gm_piece_class(page);
    return page / GM_PIECE_STRIDE * gm_pieces_in_slab(class) + (page % GM_SLAB_PAGES >> class);
}

/* The first page of the piece that this page is of. */
static inline uint32_t gm_piece_first(uint32_t page)
{
    return gm_piece_page(gm_piece_class(page), gm_piece_index(page));
}

/* As pages.h counts slabs. */
static inline uint32_t gm_slab_of(uint32_t page)
{
    return page / GM_SLAB_PAGES;
}

static inline struct gm_piece *gm_piece_of(const struct gm_hostpool *pool, uint32_t page)
{
    return &pool->pieces[gm_piece_class(page)][gm_piece_index(page)];
}

static inline CUdeviceptr gm_piece_address(const struct gm_hostpool *pool, uint32_t page)
{
    const CUdeviceptr at = gm_piece_class(page) == GM_WHOLE
                               ? pool->base + gm_piece_index(page) * GM_SLAB_BYTES
                               : gm_piece_of(pool, page)->at;
    return at + (uint64_t)(page - gm_piece_first(page)) * GM_CHUNK_MIN;
}

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

/*
 * The piece whose first page this is: memory of the daemon before, by its descriptor, which is
 * taken in any case, and the id that was put with it. `owner`: the user whose chunk lies there from
 * that page on; GM_NONE: there is none. What a program may know and is nobody's is let go, which is
 * no error. 0; -EINVAL: there is no such piece, and the keeper lets it go; -EIO: the memory cannot
 * be had, now or ever, and the keeper holds on.
 */
int gm_hostpool_adopt(struct gm_hostpool *pool, uint32_t page, int fd, uint32_t id, uint32_t owner);
/* Take a chain as it lies there, of the daemon before: pages that are free, or an idle unit. False:
 * it is none of that size, and nothing is taken. So it may be an attack. */
bool gm_hostpool_take_again(struct gm_hostpool *pool, uint32_t page, uint64_t bytes);

#endif
