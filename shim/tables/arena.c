#include "shim/tables/arena.h"

#include <errno.h>
#include <stdlib.h>

/* ---- marks and their queues ---- */

static struct gm_queue *gm_queue_of(const struct gm_heap *heap, uint64_t stream)
{
    const uint64_t key[3] = {stream, 0, 0};
    struct gm_treap *node = gm_treap_ceiling(heap->by_stream, key);
    return node != NULL && node->key[0] == stream ? GM_OF(node, struct gm_queue, by_stream) : NULL;
}

void gm_mark_begin(struct gm_heap *heap, struct gm_mark *mark, uint64_t stream)
{
    mark->stream = stream;
    mark->refs = 1;
    mark->begun = ++heap->clock;
    mark->ended = UINT64_MAX;
}

void gm_mark_end(struct gm_heap *heap, struct gm_mark *mark)
{
    mark->ended = ++heap->clock;
}

void gm_mark_ref(struct gm_mark *mark)
{
    mark->refs++;
}

void gm_mark_unref(struct gm_heap *heap, struct gm_mark *mark)
{
    if (mark != NULL && --mark->refs == 0)
        heap->drop(mark);
}

/* Whether `mark` is `other`, or after it in the same stream. */
static bool gm_mark_covers(const struct gm_mark *mark, const struct gm_mark *other)
{
    return mark == other || (mark->stream == other->stream && mark->begun > other->ended);
}

/* The mark gets its first pending block: insert it into its stream's queue, by when it ended.
 * Without memory for a queue only its blocks refer to it. */
static void gm_queue_join(struct gm_heap *heap, struct gm_mark *mark)
{
    struct gm_queue *queue = gm_queue_of(heap, mark->stream);
    if (queue == NULL) {
        queue = calloc(1, sizeof(*queue));
        if (queue == NULL)
            return;
        queue->stream = mark->stream;
        queue->by_stream.key[0] = mark->stream;
        gm_treap_insert(&heap->by_stream, &queue->by_stream);
        queue->next = heap->queues;
        if (heap->queues != NULL)
            heap->queues->prev = queue;
        heap->queues = queue;
    }
    struct gm_mark *before = queue->tail;
    while (before != NULL && before->ended > mark->ended)
        before = before->prev;
    mark->prev = before;
    mark->next = before != NULL ? before->next : queue->head;
    *(before != NULL ? &before->next : &queue->head) = mark;
    *(mark->next != NULL ? &mark->next->prev : &queue->tail) = mark;
}

static void gm_queue_leave(struct gm_heap *heap, struct gm_mark *mark)
{
    struct gm_queue *queue = gm_queue_of(heap, mark->stream);
    if (queue == NULL || (queue->head != mark && mark->prev == NULL))
        return; /* not queued */
    *(mark->prev != NULL ? &mark->prev->next : &queue->head) = mark->next;
    *(mark->next != NULL ? &mark->next->prev : &queue->tail) = mark->prev;
    mark->prev = mark->next = NULL;
    if (queue->head != NULL)
        return;
    gm_treap_remove(&heap->by_stream, &queue->by_stream);
    *(queue->prev != NULL ? &queue->prev->next : &heap->queues) = queue->next;
    if (queue->next != NULL)
        queue->next->prev = queue->prev;
    free(queue);
}

/* ---- free blocks ---- */

/* The block becomes free in that state, and owns the reference to the mark. */
static void gm_block_put(struct gm_heap *heap, struct gm_block *block, enum gm_block_state state,
                         struct gm_mark *mark)
{
    block->state = state;
    block->mark = mark;
    block->by_size.key[0] = state == GM_BLOCK_PENDING ? mark->stream : 0;
    block->by_size.key[1] = block->bytes;
    block->by_size.key[2] = block->va;
    gm_treap_insert(&block->region->arena->by_size, &block->by_size);
    if (state != GM_BLOCK_PENDING)
        return;
    bool is_first = mark->blocks == NULL;
    block->mark_prev = NULL;
    block->mark_next = mark->blocks;
    if (mark->blocks != NULL)
        mark->blocks->mark_prev = block;
    mark->blocks = block;
    if (is_first)
        gm_queue_join(heap, mark);
}

/* The opposite. Returns its mark with the reference. */
static struct gm_mark *gm_block_take(struct gm_heap *heap, struct gm_block *block)
{
    struct gm_mark *mark = block->mark;
    gm_treap_remove(&block->region->arena->by_size, &block->by_size);
    block->mark = NULL;
    if (block->state != GM_BLOCK_PENDING)
        return NULL;
    *(block->mark_prev != NULL ? &block->mark_prev->mark_next : &mark->blocks) = block->mark_next;
    if (block->mark_next != NULL)
        block->mark_next->mark_prev = block->mark_prev;
    if (mark->blocks == NULL)
        gm_queue_leave(heap, mark);
    return mark;
}

/* Append the block to `into`, its neighbor before it. */
static void gm_block_merge(struct gm_heap *heap, struct gm_block *into, struct gm_block *block)
{
    into->bytes += block->bytes;
    into->next = block->next;
    if (block->next != NULL)
        block->next->prev = into;
    gm_treap_remove(&heap->by_va, &block->by_va);
    free(block);
}

/* Merge two free neighbors if their states allow it. Returns the merged block, or NULL. */
static struct gm_block *gm_block_join(struct gm_heap *heap, struct gm_block *a, struct gm_block *b)
{
    struct gm_mark *mark = NULL;
    if (a == NULL || b == NULL || a->state == GM_BLOCK_LIVE || a->state != b->state)
        return NULL;
    enum gm_block_state state = a->state;
    if (state == GM_BLOCK_PENDING) {
        if (gm_mark_covers(a->mark, b->mark))
            mark = a->mark;
        else if (gm_mark_covers(b->mark, a->mark))
            mark = b->mark;
        else
            return NULL;
        gm_mark_ref(mark);
    }
    gm_mark_unref(heap, gm_block_take(heap, a));
    gm_mark_unref(heap, gm_block_take(heap, b));
    gm_block_merge(heap, a, b);
    gm_block_put(heap, a, state, mark);
    return a;
}

static void gm_block_coalesce(struct gm_heap *heap, struct gm_block *block)
{
    struct gm_block *joined = gm_block_join(heap, block->prev, block);
    if (joined != NULL)
        block = joined;
    gm_block_join(heap, block, block->next);
}

static struct gm_block *gm_block_new(struct gm_heap *heap, struct gm_region *region, uint64_t va,
                                     uint64_t bytes, struct gm_block *after)
{
    struct gm_block *block = calloc(1, sizeof(*block));
    if (block == NULL)
        return NULL;
    block->region = region;
    block->va = va;
    block->bytes = bytes;
    block->prev = after;
    if (after != NULL) {
        block->next = after->next;
        after->next = block;
        if (block->next != NULL)
            block->next->prev = block;
    }
    block->by_va.key[0] = va;
    gm_treap_insert(&heap->by_va, &block->by_va);
    return block;
}

/*
 * Make a live block from the first `bytes` of a run of free neighbors. The rest of the last one
 * keeps its state. The block owns the reference to `over`, its mark. NULL: no memory; nothing
 * changed.
 */
static struct gm_block *gm_block_carve(struct gm_heap *heap, struct gm_block *first,
                                       struct gm_block *last, uint64_t bytes, struct gm_mark *over)
{
    struct gm_region *region = first->region;
    uint64_t end = last->va + last->bytes;
    if (first->va + bytes < end) {
        enum gm_block_state state = last->state;
        struct gm_block *rest =
            gm_block_new(heap, region, first->va + bytes, end - first->va - bytes, last);
        if (rest == NULL)
            return NULL;
        struct gm_mark *mark = last->mark;
        if (state == GM_BLOCK_PENDING)
            gm_mark_ref(mark);
        gm_block_put(heap, rest, state, mark);
        struct gm_mark *its = gm_block_take(heap, last);
        last->bytes -= rest->bytes;
        gm_block_put(heap, last, state, its);
    }
    gm_mark_unref(heap, gm_block_take(heap, first));
    for (bool is_last = first == last; !is_last;) {
        struct gm_block *next = first->next;
        is_last = next == last;
        gm_mark_unref(heap, gm_block_take(heap, next));
        gm_block_merge(heap, first, next);
    }
    first->state = GM_BLOCK_LIVE;
    first->mark = over;
    first->is_leaving = false;
    if (region->live++ == 0)
        region->arena->idle -= region->bytes;
    region->arena->n_live++;
    return first;
}

/* ---- public ---- */

uint64_t gm_block_round(uint64_t bytes)
{
    const uint64_t grain = GM_BLOCK_GRAIN;
    return bytes <= UINT64_MAX - grain ? (bytes + grain - 1) / grain * grain : 0;
}

int gm_arena_add(struct gm_heap *heap, struct gm_arena *arena, uint64_t va, uint64_t bytes)
{
    struct gm_region *region = calloc(1, sizeof(*region));
    if (region == NULL)
        return -ENOMEM;
    region->first = gm_block_new(heap, region, va, bytes, NULL);
    if (region->first == NULL) {
        free(region);
        return -ENOMEM;
    }
    region->arena = arena;
    region->va = va;
    region->bytes = bytes;
    region->next = arena->regions;
    if (arena->regions != NULL)
        arena->regions->prev = region;
    arena->regions = region;
    arena->reserved += bytes;
    arena->idle += bytes;
    gm_block_put(heap, region->first, GM_BLOCK_CLEAN, NULL);
    return 0;
}

static bool gm_region_is_clean(const struct gm_region *region)
{
    return region->first->state == GM_BLOCK_CLEAN && region->first->next == NULL;
}

uint64_t gm_arena_least(const struct gm_arena *arena)
{
    uint64_t least = 0;
    for (const struct gm_region *region = arena->regions; region != NULL; region = region->next)
        if (gm_region_is_clean(region) && (least == 0 || region->bytes < least))
            least = region->bytes;
    return least;
}

bool gm_arena_remove(struct gm_heap *heap, struct gm_arena *arena, uint64_t most, uint64_t *va,
                     uint64_t *bytes)
{
    struct gm_region *best = NULL;
    for (struct gm_region *region = arena->regions; region != NULL; region = region->next)
        if (region->bytes <= most && gm_region_is_clean(region) &&
            (best == NULL || region->bytes > best->bytes))
            best = region;
    if (best == NULL)
        return false;
    *va = best->va;
    *bytes = best->bytes;
    gm_block_take(heap, best->first);
    gm_treap_remove(&heap->by_va, &best->first->by_va);
    free(best->first);
    *(best->prev != NULL ? &best->prev->next : &arena->regions) = best->next;
    if (best->next != NULL)
        best->next->prev = best->prev;
    arena->reserved -= best->bytes;
    arena->idle -= best->bytes;
    free(best);
    return true;
}

/* The smallest free block of at least `bytes`: pending in the stream `tag`, or clean for 0. */
static struct gm_block *gm_arena_smallest(const struct gm_arena *arena, uint64_t tag,
                                          uint64_t bytes)
{
    const uint64_t key[3] = {tag, bytes, 0};
    struct gm_treap *node = gm_treap_ceiling(arena->by_size, key);
    return node != NULL && node->key[0] == tag ? GM_OF(node, struct gm_block, by_size) : NULL;
}

struct gm_block *gm_arena_fit(struct gm_heap *heap, struct gm_arena *arena, uint64_t bytes,
                              uint64_t stream)
{
    struct gm_block *clean = gm_arena_smallest(arena, 0, bytes);
    struct gm_block *own = stream != 0 ? gm_arena_smallest(arena, stream, bytes) : NULL;
    if (own != NULL && (clean == NULL || own->bytes <= clean->bytes)) {
        struct gm_mark *over = own->mark;
        gm_mark_ref(over);
        struct gm_block *block = gm_block_carve(heap, own, own, bytes, over);
        if (block == NULL)
            gm_mark_unref(heap, over);
        return block;
    }
    return clean != NULL ? gm_block_carve(heap, clean, clean, bytes, NULL) : NULL;
}

static bool gm_mark_is_among(const struct gm_mark *mark, struct gm_mark *const *marks, int n)
{
    for (int i = 0; i < n; i++)
        if (gm_mark_covers(marks[i], mark))
            return true;
    return false;
}

/*
 * The last block of a run of `bytes` from `first` on that the stream may use once it waits for the
 * marks. Adds the marks that it needs to the `*n` given ones, up to `most`. NULL: no run from here;
 * then *stop is the block to continue after, or NULL at the region's end.
 */
static struct gm_block *gm_run_from(struct gm_block *first, uint64_t bytes, uint64_t stream,
                                    struct gm_mark **marks, int *n, int most,
                                    struct gm_block **stop)
{
    uint64_t sum = 0;
    for (struct gm_block *block = first; block != NULL; block = block->next) {
        *stop = block;
        if (block->state == GM_BLOCK_LIVE)
            return NULL;
        if (block->state == GM_BLOCK_PENDING && block->mark->stream != stream &&
            !gm_mark_is_among(block->mark, marks, *n)) {
            *stop = first;
            if (*n == most)
                return NULL;
            marks[(*n)++] = block->mark;
        }
        sum += block->bytes;
        if (sum >= bytes)
            return block;
    }
    *stop = NULL;
    return NULL;
}

/* The first run in the arena: its first block, and *last. */
static struct gm_block *gm_run_find(struct gm_arena *arena, uint64_t bytes, uint64_t stream,
                                    struct gm_mark **marks, int *n, int most,
                                    struct gm_block **last)
{
    const int given = *n;
    for (struct gm_region *region = arena->regions; region != NULL; region = region->next) {
        struct gm_block *stop = NULL;
        if (region->bytes < bytes)
            continue;
        for (struct gm_block *block = region->first; block != NULL; block = stop->next) {
            *n = given;
            *last = gm_run_from(block, bytes, stream, marks, n, most, &stop);
            if (*last != NULL)
                return block;
            if (stop == NULL)
                break;
        }
    }
    *n = given;
    return NULL;
}

int gm_arena_run(struct gm_arena *arena, uint64_t bytes, uint64_t stream, struct gm_mark **marks,
                 int most)
{
    struct gm_block *last;
    int n = 0;
    if (gm_run_find(arena, bytes, stream, marks, &n, most, &last) == NULL)
        return -1;
    for (int i = 0; i < n; i++)
        gm_mark_ref(marks[i]);
    return n;
}

struct gm_block *gm_arena_fit_run(struct gm_heap *heap, struct gm_arena *arena, uint64_t bytes,
                                  uint64_t stream, struct gm_mark **marks, int n,
                                  struct gm_mark *over)
{
    struct gm_block *last;
    struct gm_block *first = gm_run_find(arena, bytes, stream, marks, &n, n, &last);
    if (first == NULL)
        return NULL;
    gm_mark_ref(over);
    struct gm_block *block = gm_block_carve(heap, first, last, bytes, over);
    if (block == NULL)
        gm_mark_unref(heap, over);
    return block;
}

struct gm_block *gm_heap_find(const struct gm_heap *heap, uint64_t va)
{
    const uint64_t key[3] = {va, 0, 0};
    struct gm_treap *node = gm_treap_floor(heap->by_va, key);
    struct gm_block *block = node != NULL ? GM_OF(node, struct gm_block, by_va) : NULL;
    return block != NULL && va - block->va < block->bytes ? block : NULL;
}

void gm_heap_free(struct gm_heap *heap, struct gm_block *block, struct gm_mark *mark)
{
    struct gm_region *region = block->region;
    struct gm_mark *over = block->mark;
    if (--region->live == 0)
        region->arena->idle += region->bytes;
    region->arena->n_live--;
    if (mark == NULL)
        mark = over;
    if (mark != NULL && !mark->is_passed) {
        gm_mark_ref(mark);
        gm_block_put(heap, block, GM_BLOCK_PENDING, mark);
    } else {
        gm_block_put(heap, block, GM_BLOCK_CLEAN, NULL);
    }
    gm_mark_unref(heap, over);
    gm_block_coalesce(heap, block);
}

/* The blocks pending for this mark become clean. */
static void gm_mark_settle(struct gm_heap *heap, struct gm_mark *mark)
{
    mark->is_passed = true;
    gm_mark_ref(mark);
    while (mark->blocks != NULL) {
        struct gm_block *block = mark->blocks;
        gm_mark_unref(heap, gm_block_take(heap, block));
        gm_block_put(heap, block, GM_BLOCK_CLEAN, NULL);
        gm_block_coalesce(heap, block);
    }
    gm_mark_unref(heap, mark);
}

void gm_heap_pass(struct gm_heap *heap, struct gm_mark *mark)
{
    for (;;) {
        struct gm_queue *queue = gm_queue_of(heap, mark->stream);
        if (queue == NULL || queue->head == mark || !gm_mark_covers(mark, queue->head))
            break;
        gm_mark_settle(heap, queue->head);
    }
    gm_mark_settle(heap, mark);
}
