/*
 * Arenas: the stream-ordered suballocator of memory pools, without CUDA. It cuts regions (runs of
 * chunks from pools.c) into blocks and decides which freed block an allocation may get.
 *
 *   heap     all blocks of the program by address, and the marks that are pending
 *   arena    the regions of one pool, and their free blocks by size
 *   block    a piece of a region: CLEAN, PENDING or LIVE
 *   mark     a point in a stream, after a free; marks.c has an event for it
 *   stream   a number that is never reused; 0 is none
 *
 * CLEAN is free for everybody. PENDING was freed in a stream that may not have reached the free
 * yet. An allocation in that stream may have it, because the stream's order protects it; others may
 * when its mark is passed, or after they made their stream wait for it. LIVE belongs to the
 * program.
 *
 * Marks. Two threads may free in one stream at once, so their order here is not the order of their
 * events in the stream. So a mark has a span on the heap's clock: begun before the event was
 * recorded, ended after it. A mark that began after another of its stream had ended comes after it,
 * and stands for both. If spans overlap, the order is unknown.
 *
 * A block allocated from a pending one keeps that mark until it is freed (`mark` of a live block):
 * if it is freed without a stream, earlier work may still use it.
 *
 * Find, allocate and free take O(log n) of the blocks; only gm_arena_run looks at all blocks of an
 * arena. Callers: pools and marks, with gm_heap_lock (marks.h). Calls the treap and heap->drop.
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
    struct gm_block *prev, *next; /* neighbors in the region */
    uint64_t va, bytes;
    uint64_t asked; /* LIVE: bytes as the program asked */
    enum gm_block_state state;
    bool is_leaving;      /* LIVE: a thread is freeing it */
    struct gm_mark *mark; /* PENDING: awaits it. LIVE: kept from before, or NULL */
    struct gm_block *mark_prev, *mark_next; /* PENDING: blocks of the same mark */
};

struct gm_mark {
    uint64_t stream;
    uint64_t begun, ended;
    uint32_t refs;
    bool is_passed;
    struct gm_block *blocks; /* pending for it; if any, it is in its stream's queue */
    struct gm_mark *prev, *next;
    void *owner; /* the caller's */
};

/* The marks of one stream that blocks are pending for, in the order in which they ended. */
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
    void (*drop)(struct gm_mark *mark); /* the last reference is gone */
};

/* `bytes` rounded up to whole grains; 0: overflow. */
uint64_t gm_block_round(uint64_t bytes);

/* Add a region, all clean. 0 or -ENOMEM. */
int gm_arena_add(struct gm_heap *heap, struct gm_arena *arena, uint64_t va, uint64_t bytes);

/* Bytes of the smallest region that is all clean; 0: there is none. */
uint64_t gm_arena_least(const struct gm_arena *arena);

/* Take the largest region out that is all clean and has at most `most` bytes. False: none. */
bool gm_arena_remove(struct gm_heap *heap, struct gm_arena *arena, uint64_t most, uint64_t *va,
                     uint64_t *bytes);

/* A live block of `bytes` (whole grains) for `stream`, from the smallest block that fits and is
 * clean or pending in that stream. NULL: none, or no host memory. */
struct gm_block *gm_arena_fit(struct gm_heap *heap, struct gm_arena *arena, uint64_t bytes,
                              uint64_t stream);

/*
 * Find adjacent free blocks of `bytes` together. Fills `marks` with the marks of other streams that
 * must be awaited, each with a reference for the caller, and returns how many. -1: no such run with
 * at most `most` marks.
 */
int gm_arena_run(struct gm_arena *arena, uint64_t bytes, uint64_t stream, struct gm_mark **marks,
                 int most);

/*
 * Like gm_arena_fit, after the stream was made to wait for `marks`: from adjacent blocks that are
 * clean, pending in that stream, or pending for one of these. The block gets `over`, a later mark
 * in the stream, and takes a reference. NULL: the run is gone, or no host memory.
 */
struct gm_block *gm_arena_fit_run(struct gm_heap *heap, struct gm_arena *arena, uint64_t bytes,
                                  uint64_t stream, struct gm_mark **marks, int n,
                                  struct gm_mark *over);

/* The block that holds `va`, in any state. NULL: no region has it. */
struct gm_block *gm_heap_find(const struct gm_heap *heap, uint64_t va);

/*
 * Free a live block: pending for `mark`, which has ended; or if that is NULL, for the mark that the
 * block kept. Takes a reference to the mark. Do not use the block afterwards.
 */
void gm_heap_free(struct gm_heap *heap, struct gm_block *block, struct gm_mark *mark);

/* Begin a mark, all zero before, in `stream`; the caller has its only reference. End it when its
 * event was recorded. */
void gm_mark_begin(struct gm_heap *heap, struct gm_mark *mark, uint64_t stream);
void gm_mark_end(struct gm_heap *heap, struct gm_mark *mark);

void gm_mark_ref(struct gm_mark *mark);
void gm_mark_unref(struct gm_heap *heap, struct gm_mark *mark);

/* The mark was passed, and with it the earlier ones of its stream: their blocks are clean. */
void gm_heap_pass(struct gm_heap *heap, struct gm_mark *mark);

#endif
