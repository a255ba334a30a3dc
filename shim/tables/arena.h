/*
 * Arenas: the stream-ordered suballocator behind memory pools, without CUDA. It cuts regions (runs
 * of chunks that pools.c obtained) into blocks and knows who may have a freed one.
 *
 *   heap     all blocks of the program by address, and what is awaited
 *   arena    the regions of one pool, and their free blocks by size
 *   block    a piece of a region, and every piece is one: CLEAN, PENDING or LIVE
 *   mark     a place in a stream's order, behind a free; marks.c has an event for it
 *   stream   a number that never stands for another stream later; 0 is none
 *
 * CLEAN is free, and anybody may have it. PENDING was freed in a stream that may not have come to
 * the free yet: whoever allocates in that stream may have it, because the stream's order protects
 * it; others when the block's mark is passed, or after they made their stream wait for it. LIVE is
 * the program's.
 *
 * Marks. Two threads may free in one stream at once, so the order in which they come here is not
 * the order of their events in the stream. A mark therefore has a span on the heap's clock: begun
 * before the event was recorded, ended after it. A mark that began after another of its stream had
 * ended is behind it, so that the later may stand for both; of two whose spans overlap nothing is
 * known.
 *
 * A block that was allocated out of a pending one keeps that mark until it is freed (`mark` of a
 * live block): if it is freed at once, without a stream, what ran before is still running.
 *
 * Finding, allocating and freeing take O(log n) of the blocks, whatever their sizes; only
 * gm_arena_run looks at all blocks of an arena. The caller has the one lock around all of this.
 */
#ifndef GM_SHIM_ARENA_H
#define GM_SHIM_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/tables/treap.h"

#define GM_BLOCK_GRAIN 512u /* sizes and addresses of blocks are multiples of it */

enum gm_block_state { GM_BLOCK_CLEAN, GM_BLOCK_PENDING, GM_BLOCK_LIVE };

struct gm_block {
    struct gm_treap by_va;   /* in the heap */
    struct gm_treap by_size; /* in the arena, unless live: stream (0: clean), bytes, address */
    struct gm_region *region;
    struct gm_block *prev, *next; /* neighbours in the region */
    uint64_t va, bytes;
    uint64_t asked; /* LIVE: bytes as the program asked */
    enum gm_block_state state;
    bool is_leaving;                        /* LIVE: a free of it is on its way */
    struct gm_mark *mark;                   /* PENDING: what to await. LIVE: what was, or NULL */
    struct gm_block *mark_prev, *mark_next; /* PENDING: the others of its mark */
};

struct gm_mark {
    uint64_t stream;
    uint64_t begun, ended;
    uint32_t refs;
    bool is_passed;
    struct gm_block *blocks; /* that are pending for it; in the stream's queue if there are any */
    struct gm_mark *prev, *next;
    void *owner; /* the caller's */
};

/* The marks that blocks are pending for, of one stream, in the order in which they ended. */
struct gm_queue {
    struct gm_treap by_stream;
    uint64_t stream;
    struct gm_mark *head, *tail;
    struct gm_queue *prev, *next; /* in the heap */
};

struct gm_region {
    struct gm_arena *arena;
    uint64_t va, bytes;
    size_t live; /* blocks */
    struct gm_block *first;
    struct gm_region *prev, *next; /* in the arena */
};

struct gm_arena {
    struct gm_treap *by_size;
    struct gm_region *regions;
    uint64_t reserved; /* bytes of all regions */
    uint64_t idle;     /* bytes of regions without a live block */
    size_t n_live;     /* blocks */
};

struct gm_heap {
    struct gm_treap *by_va;
    struct gm_treap *by_stream;
    struct gm_queue *queues;
    uint64_t clock;
    void (*drop)(struct gm_mark *mark); /* nobody refers to it any more: free it */
};

/* `bytes` rounded up to whole grains; 0 if that is more than there can be. */
uint64_t gm_block_round(uint64_t bytes);

/* A new region, all clean. 0 or -ENOMEM. */
int gm_arena_add(struct gm_heap *heap, struct gm_arena *arena, uint64_t va, uint64_t bytes);

/* Take out a region that is all clean and has `most` bytes at most: the largest. False: none. */
bool gm_arena_remove(struct gm_heap *heap, struct gm_arena *arena, uint64_t most, uint64_t *va,
                     uint64_t *bytes);

/*
 * A live block of `bytes` (whole grains) for `stream`: the smallest that fits among those that are
 * clean, or pending in that stream. NULL: none, or no memory for the rest's block.
 */
struct gm_block *gm_arena_fit(struct gm_heap *heap, struct gm_arena *arena, uint64_t bytes,
                              uint64_t stream);

/*
 * Free blocks that lie side by side and are `bytes` together, whatever they are pending for: which
 * marks other than the stream's own must be awaited? Fills `marks`, each with a reference for the
 * caller, and returns how many; -1: there is no such run, or it takes more than `most` of them.
 */
int gm_arena_run(struct gm_arena *arena, uint64_t bytes, uint64_t stream, struct gm_mark **marks,
                 int most);

/*
 * The stream was made to wait for those marks: the same as gm_arena_fit, out of what lies side by
 * side and is clean, pending in that stream, or pending for one of them. `over`, a mark in the
 * stream behind them, becomes the block's; a reference is taken. NULL: the run is gone, or no
 * memory.
 */
struct gm_block *gm_arena_fit_run(struct gm_heap *heap, struct gm_arena *arena, uint64_t bytes,
                                  uint64_t stream, struct gm_mark **marks, int n,
                                  struct gm_mark *over);

/* The block that holds `va`, in any state. NULL: no region has it. */
struct gm_block *gm_heap_find(const struct gm_heap *heap, uint64_t va);

/*
 * A live block is free: pending for `mark`, which has ended, or, if it is NULL, as soon as what it
 * was allocated over is passed. Takes a reference to the mark. The block may be gone after it.
 */
void gm_heap_free(struct gm_heap *heap, struct gm_block *block, struct gm_mark *mark);

/* Begin a mark in `stream`; the caller set it to 0 and has its only reference. Then, when its event
 * was recorded, end it. */
void gm_mark_begin(struct gm_heap *heap, struct gm_mark *mark, uint64_t stream);
void gm_mark_end(struct gm_heap *heap, struct gm_mark *mark);

void gm_mark_ref(struct gm_mark *mark);
void gm_mark_unref(struct gm_heap *heap, struct gm_mark *mark);

/* The mark was passed, and with it those of its stream that it is behind: their blocks are clean.
 */
void gm_heap_pass(struct gm_heap *heap, struct gm_mark *mark);

#endif
