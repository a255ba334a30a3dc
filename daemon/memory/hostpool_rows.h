/*
 * What the files of the pinned tier share: its state, and how pieces and their pages are numbered.
 * Others read it through hostpool.h.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_ROWS_H
#define GM_DAEMON_MEMORY_HOSTPOOL_ROWS_H

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

#endif
