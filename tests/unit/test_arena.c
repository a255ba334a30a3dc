/*
 * Arenas against a model: one record for every 512 bytes, which says who has it and which mark work
 * on it may still be running behind. The model knows the true order of marks in their streams; the
 * heap only when they began and ended, and what it was told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "shim/tables/arena.h"

#define GRAIN ((uint64_t)GM_BLOCK_GRAIN)
#define ARENAS 2u
#define REGIONS 6u
#define REGION_GRAINS 256u
#define STREAMS 4u
#define MARKS_MAX 8192u
#define LIVE_MAX 400u

/* A mark of the model; the first member is the heap's. */
struct place {
    struct gm_mark mark;
    uint64_t position; /* in its stream, as the driver knows it */
    bool is_dropped;
    bool is_over; /* its stream has come there: what nobody was told */
    bool is_told;
};

struct grain {
    struct gm_block *block; /* live: which */
    struct place *hazard;   /* behind which work on it may run; NULL: none */
};

struct region {
    uint64_t va; /* 0: not there */
    uint32_t n;
    struct grain grain[REGION_GRAINS];
};

struct live {
    struct gm_block *block;
    uint64_t va, bytes;
    uint32_t arena;
};

static struct gm_heap heap;
static struct gm_arena arenas[ARENAS];
static struct region regions[ARENAS][REGIONS];
static struct place places[MARKS_MAX];
static size_t n_places, n_dropped;
static uint64_t positions[STREAMS + 1], reached[STREAMS + 1];
static struct live live[LIVE_MAX];
static size_t n_live;
static uint64_t next_va;
static unsigned seed;

static unsigned dice(unsigned sides)
{
    return (unsigned)rand_r(&seed) % sides;
}

static void drop(struct gm_mark *mark)
{
    struct place *place = mark->owner;
    assert_false(place->is_dropped);
    assert_null(mark->blocks);
    place->is_dropped = true;
    n_dropped++;
}

static void reset(unsigned with)
{
    memset(&heap, 0, sizeof(heap));
    memset(arenas, 0, sizeof(arenas));
    memset(regions, 0, sizeof(regions));
    memset(places, 0, sizeof(places));
    memset(positions, 0, sizeof(positions));
    memset(reached, 0, sizeof(reached));
    heap.drop = drop;
    n_places = n_dropped = n_live = 0;
    next_va = 1ull << 40;
    seed = with;
}

/* Whether work behind it may still run. */
static bool is_running(const struct place *place)
{
    return place != NULL && place->position > reached[place->mark.stream];
}

static struct region *region_of(uint32_t arena, uint64_t va)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        struct region *region = &regions[arena][r];
        if (region->va != 0 && va >= region->va && va < region->va + region->n * GRAIN)
            return region;
    }
    return NULL;
}

static struct grain *grains_at(uint32_t arena, uint64_t va)
{
    struct region *region = region_of(arena, va);
    assert_non_null(region);
    assert_int_equal((va - region->va) % GRAIN, 0);
    return &region->grain[(va - region->va) / GRAIN];
}

static struct place *begin_mark(uint64_t stream)
{
    struct place *place = &places[n_places++];
    assert_true(n_places <= MARKS_MAX);
    place->mark.owner = place;
    gm_mark_begin(&heap, &place->mark, stream);
    return place;
}

static struct place *full_mark(uint64_t stream)
{
    struct place *place = begin_mark(stream);
    place->position = ++positions[stream];
    gm_mark_end(&heap, &place->mark);
    return place;
}

/* ---- invariants ---- */

static void check_accounts(void)
{
    for (uint32_t a = 0; a < ARENAS; a++) {
        uint64_t reserved = 0, idle = 0;
        for (uint32_t r = 0; r < REGIONS; r++) {
            const struct region *region = &regions[a][r];
            bool is_idle = true;
            if (region->va == 0)
                continue;
            reserved += region->n * GRAIN;
            for (uint32_t g = 0; g < region->n; g++) {
                is_idle = is_idle && region->grain[g].block == NULL;
            }
            idle += is_idle ? region->n * GRAIN : 0;
        }
        assert_int_equal(arenas[a].reserved, reserved);
        assert_int_equal(arenas[a].idle, idle);
    }
}

/* The largest piece of an arena that nobody has and nothing runs on, as far as the heap was told.
 */
static uint64_t largest_clean(uint32_t a)
{
    uint64_t best = 0;
    for (uint32_t r = 0; r < REGIONS; r++) {
        uint64_t run = 0;
        for (uint32_t g = 0; g < regions[a][r].n && regions[a][r].va != 0; g++) {
            const struct grain *grain = &regions[a][r].grain[g];
            bool is_clean =
                grain->block == NULL && (grain->hazard == NULL || grain->hazard->is_told);
            run = is_clean ? run + GRAIN : 0;
            best = run > best ? run : best;
        }
    }
    return best;
}

static void check_find(uint32_t a)
{
    uint32_t r = dice(REGIONS), g = dice(REGION_GRAINS);
    const struct region *region = &regions[a][r];
    if (region->va == 0 || g >= region->n)
        return;
    struct gm_block *block = gm_heap_find(&heap, region->va + g * GRAIN + dice(512));
    assert_non_null(block);
    if (region->grain[g].block != NULL)
        assert_ptr_equal(block, region->grain[g].block);
    else
        assert_int_not_equal(block->state, GM_BLOCK_LIVE);
    assert_null(gm_heap_find(&heap, region->va - 1));
}

/* ---- operations ---- */

static void add_region(uint32_t a)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        struct region *region = &regions[a][r];
        if (region->va != 0)
            continue;
        region->n = 16 + dice(REGION_GRAINS - 15);
        region->va = next_va;
        next_va += region->n * GRAIN + (1ull << 20);
        memset(region->grain, 0, sizeof(region->grain));
        assert_int_equal(gm_arena_add(&heap, &arenas[a], region->va, region->n * GRAIN), 0);
        return;
    }
}

static void remove_region(uint32_t a)
{
    uint64_t va, bytes, most = dice(2) ? UINT64_MAX : dice(REGION_GRAINS) * GRAIN;
    const uint64_t least = gm_arena_least(&arenas[a]);
    const bool is_one = gm_arena_remove(&heap, &arenas[a], most, &va, &bytes);
    assert_int_equal(is_one, least != 0 && least <= most);
    if (!is_one)
        return;
    struct region *region = region_of(a, va);
    assert_true(bytes <= most && bytes >= least);
    assert_int_equal(region->va, va);
    assert_int_equal(region->n * GRAIN, bytes);
    for (uint32_t g = 0; g < region->n; g++) {
        assert_null(region->grain[g].block);
        assert_false(is_running(region->grain[g].hazard));
    }
    region->va = 0;
}

static void note_live(uint32_t a, struct gm_block *block, uint64_t bytes)
{
    struct grain *grain = grains_at(a, block->va);
    assert_int_equal(block->bytes, bytes);
    assert_int_equal(block->state, GM_BLOCK_LIVE);
    for (uint64_t g = 0; g < bytes / GRAIN; g++) {
        assert_null(grain[g].block);
        grain[g].block = block;
    }
    live[n_live++] = (struct live){block, block->va, bytes, a};
}

static void allocate(uint32_t a)
{
    uint64_t bytes = (1 + dice(dice(4) ? 12 : REGION_GRAINS)) * GRAIN;
    uint64_t stream = 1 + dice(STREAMS), clean = largest_clean(a);
    if (n_live == LIVE_MAX)
        return;
    struct gm_block *block = gm_arena_fit(&heap, &arenas[a], bytes, stream);
    if (block == NULL) {
        assert_true(clean < bytes);
        return;
    }
    const struct grain *grain = grains_at(a, block->va);
    for (uint64_t g = 0; g < bytes / GRAIN; g++)
        assert_true(!is_running(grain[g].hazard) || grain[g].hazard->mark.stream == stream);
    note_live(a, block, bytes);
}

/* Make a stream wait for others. */
static void allocate_run(uint32_t a)
{
    struct gm_mark *marks[4];
    uint64_t bytes = (1 + dice(64)) * GRAIN, stream = 1 + dice(STREAMS);
    if (n_live == LIVE_MAX)
        return;
    int n = gm_arena_run(&arenas[a], bytes, stream, marks, 4);
    if (n < 0)
        return;
    for (int i = 0; i < n; i++)
        assert_int_not_equal(marks[i]->stream, stream);
    if (dice(4) == 0) /* the world goes on meanwhile */
        allocate(a);
    struct place *over = full_mark(stream);
    struct gm_block *block =
        gm_arena_fit_run(&heap, &arenas[a], bytes, stream, marks, n, &over->mark);
    if (block != NULL) {
        struct grain *grain = grains_at(a, block->va);
        for (uint64_t g = 0; g < bytes / GRAIN; g++) {
            const struct place *hazard = grain[g].hazard;
            bool is_awaited = !is_running(hazard) || hazard->mark.stream == stream;
            for (int i = 0; i < n && !is_awaited; i++)
                is_awaited = marks[i]->stream == hazard->mark.stream &&
                             ((const struct place *)marks[i]->owner)->position >= hazard->position;
            assert_true(is_awaited);
            grain[g].hazard = over;
        }
        note_live(a, block, bytes);
    }
    for (int i = 0; i < n; i++)
        gm_mark_unref(&heap, marks[i]);
    gm_mark_unref(&heap, &over->mark);
}

static void free_block(size_t at, struct place *mark)
{
    struct live one = live[at];
    struct grain *grain = grains_at(one.arena, one.va);
    for (uint64_t g = 0; g < one.bytes / GRAIN; g++) {
        assert_ptr_equal(grain[g].block, one.block);
        grain[g].block = NULL;
        if (mark != NULL)
            grain[g].hazard = mark;
    }
    gm_heap_free(&heap, one.block, mark != NULL ? &mark->mark : NULL);
    live[at] = live[--n_live];
}

/* Whether a mark in that stream is behind all that runs on the block: else the program is wrong. */
static bool may_free_in(const struct live *one, uint64_t stream)
{
    const struct grain *grain = grains_at(one->arena, one->va);
    for (uint64_t g = 0; g < one->bytes / GRAIN; g++)
        if (is_running(grain[g].hazard) && grain[g].hazard->mark.stream != stream)
            return false;
    return true;
}

static void free_in_stream(void)
{
    uint64_t stream = 1 + dice(STREAMS);
    size_t at = dice((unsigned)n_live);
    if (!may_free_in(&live[at], stream))
        return;
    struct place *mark = full_mark(stream);
    free_block(at, mark);
    gm_mark_unref(&heap, &mark->mark);
}

/* Two threads free in one stream at once: whose event is first is not whose mark is. */
static void free_two(void)
{
    uint64_t stream = 1 + dice(STREAMS);
    if (n_live < 2 || !may_free_in(&live[0], stream) || !may_free_in(&live[1], stream))
        return;
    struct place *a = begin_mark(stream), *b = begin_mark(stream);
    struct place *first = dice(2) ? a : b, *ended = dice(2) ? a : b;
    first->position = ++positions[stream];
    (first == a ? b : a)->position = ++positions[stream];
    gm_mark_end(&heap, &ended->mark);
    free_block(1, ended);
    struct place *other = ended == a ? b : a;
    gm_mark_end(&heap, &other->mark);
    free_block(0, other);
    gm_mark_unref(&heap, &a->mark);
    gm_mark_unref(&heap, &b->mark);
}

/* A stream gets on, and perhaps the heap is told of a mark that it passed. */
static void advance(void)
{
    uint64_t stream = 1 + dice(STREAMS);
    if (reached[stream] < positions[stream])
        reached[stream] += 1 + dice((unsigned)(positions[stream] - reached[stream]));
    for (struct gm_queue *queue = heap.queues; queue != NULL; queue = queue->next) {
        struct gm_mark *mark = dice(2) ? queue->head : queue->tail;
        struct place *place = mark->owner;
        if (queue->stream != stream || is_running(place))
            continue;
        gm_mark_ref(mark);
        place->is_told = true;
        gm_heap_pass(&heap, mark);
        gm_mark_unref(&heap, mark);
        return; /* the queue may be gone */
    }
}

static void finish(void)
{
    while (n_live > 0)
        free_block(n_live - 1, NULL);
    for (uint64_t stream = 1; stream <= STREAMS; stream++)
        reached[stream] = positions[stream];
    while (heap.queues != NULL) {
        struct gm_mark *mark = heap.queues->head;
        gm_mark_ref(mark);
        gm_heap_pass(&heap, mark);
        gm_mark_unref(&heap, mark);
    }
    for (uint32_t a = 0; a < ARENAS; a++) {
        uint64_t va, bytes;
        while (gm_arena_remove(&heap, &arenas[a], UINT64_MAX, &va, &bytes))
            region_of(a, va)->va = 0;
        assert_null(arenas[a].regions);
        assert_null(arenas[a].by_size);
        assert_int_equal(arenas[a].reserved + arenas[a].idle, 0);
    }
    assert_null(heap.by_va);
    assert_null(heap.by_stream);
    assert_int_equal(n_dropped, n_places);
}

static void test_random(void **state)
{
    (void)state;
    for (unsigned run = 1; run <= 12; run++) {
        reset(run);
        add_region(0);
        add_region(1);
        for (int step = 0; step < 2500; step++) {
            uint32_t a = dice(ARENAS);
            unsigned what = dice(100);
            if (what < 40)
                allocate(a);
            else if (what < 65 && n_live > 0)
                free_in_stream();
            else if (what < 70)
                free_two();
            else if (what < 75 && n_live > 0)
                free_block(dice((unsigned)n_live), NULL);
            else if (what < 85)
                advance();
            else if (what < 93)
                allocate_run(a);
            else if (what < 96)
                add_region(a);
            else if (what < 98)
                remove_region(a);
            check_find(a);
            if (step % 16 == 0)
                check_accounts();
        }
        finish();
    }
}

/* ---- rules, one by one ---- */

#define MIB (1ull << 20)

static struct gm_block *take(uint64_t bytes, uint64_t stream)
{
    return gm_arena_fit(&heap, &arenas[0], bytes, stream);
}

static struct place *give(struct gm_block *block, uint64_t stream)
{
    struct place *mark = full_mark(stream);
    gm_heap_free(&heap, block, &mark->mark);
    gm_mark_unref(&heap, &mark->mark);
    return mark;
}

static void told(struct place *mark)
{
    gm_mark_ref(&mark->mark);
    gm_heap_pass(&heap, &mark->mark);
    gm_mark_unref(&heap, &mark->mark);
}

static void setup_one(void)
{
    reset(1);
    assert_int_equal(gm_arena_add(&heap, &arenas[0], 64 * MIB, 32 * MIB), 0);
}

/* Everything goes, whatever it is. */
static void cleanup(void)
{
    uint64_t va, bytes;
    for (struct gm_region *region = arenas[0].regions; region != NULL; region = region->next) {
        struct gm_block *block = region->first;
        while (block != NULL && block->state != GM_BLOCK_LIVE)
            block = block->next;
        while (block != NULL) {
            gm_heap_free(&heap, block, NULL);
            for (block = region->first; block != NULL && block->state != GM_BLOCK_LIVE;)
                block = block->next;
        }
    }
    while (heap.queues != NULL) {
        struct gm_mark *mark = heap.queues->head;
        gm_mark_ref(mark);
        gm_heap_pass(&heap, mark);
        gm_mark_unref(&heap, mark);
    }
    while (gm_arena_remove(&heap, &arenas[0], UINT64_MAX, &va, &bytes))
        continue;
    assert_null(heap.by_va);
    assert_int_equal(n_dropped, n_places);
}

static void test_same_stream(void **state)
{
    (void)state;
    setup_one();
    struct gm_block *block = take(32 * MIB, 1);
    uint64_t va = block->va;
    struct place *mark = give(block, 1);
    assert_null(take(MIB, 2));
    block = take(32 * MIB, 1);
    assert_int_equal(block->va, va);
    /* freed without a stream: what ran before the first free may still run */
    gm_heap_free(&heap, block, NULL);
    assert_null(take(MIB, 2));
    told(mark);
    block = take(32 * MIB, 2);
    assert_non_null(block);
    gm_heap_free(&heap, block, NULL);
    assert_non_null(take(32 * MIB, 3));
    cleanup();
}

static void test_later_covers(void **state)
{
    (void)state;
    setup_one();
    struct gm_block *a = take(16 * MIB, 1), *b = take(16 * MIB, 1);
    give(a, 1);
    struct place *later = give(b, 1);
    /* neighbours of one stream are one, behind the later mark; nobody needs the other */
    assert_int_equal(n_dropped, 1);
    assert_non_null(a = take(32 * MIB, 1));
    struct place *last = give(a, 1);
    assert_true(later->is_dropped);
    assert_null(take(MIB, 2));
    told(last);
    assert_non_null(take(32 * MIB, 2));
    cleanup();
}

/* Spans that overlap say nothing: no mark stands for the other. */
static void test_overlap(void **state)
{
    (void)state;
    setup_one();
    struct gm_block *a = take(16 * MIB, 1), *b = take(16 * MIB, 1);
    struct place *x = begin_mark(1), *y = begin_mark(1);
    gm_mark_end(&heap, &x->mark);
    gm_heap_free(&heap, a, &x->mark);
    gm_mark_end(&heap, &y->mark);
    gm_heap_free(&heap, b, &y->mark);
    assert_null(take(32 * MIB, 1)); /* not joined */
    told(y);
    assert_non_null(take(16 * MIB, 2));
    assert_null(take(MIB, 2));
    told(x);
    assert_non_null(take(16 * MIB, 2));
    gm_mark_unref(&heap, &x->mark);
    gm_mark_unref(&heap, &y->mark);
    cleanup();
}

/* A run over what three streams freed. */
static void test_run(void **state)
{
    (void)state;
    struct gm_mark *marks[2];
    setup_one();
    struct gm_block *a = take(8 * MIB, 1), *b = take(8 * MIB, 1), *c = take(16 * MIB, 1);
    give(a, 1);
    give(b, 2);
    give(c, 3);
    assert_int_equal(gm_arena_run(&arenas[0], 32 * MIB, 4, marks, 2), -1); /* three are too many */
    assert_int_equal(gm_arena_run(&arenas[0], 33 * MIB, 1, marks, 2), -1);
    assert_int_equal(gm_arena_run(&arenas[0], 20 * MIB, 1, marks, 2), 2);
    struct place *over = full_mark(1);
    struct gm_block *block =
        gm_arena_fit_run(&heap, &arenas[0], 20 * MIB, 1, marks, 2, &over->mark);
    assert_non_null(block);
    assert_int_equal(block->bytes, 20 * MIB);
    assert_ptr_equal(block->mark, &over->mark);
    assert_null(take(MIB, 1));
    assert_non_null(take(12 * MIB, 3)); /* the rest is what it was */
    gm_mark_unref(&heap, marks[0]);
    gm_mark_unref(&heap, marks[1]);
    gm_mark_unref(&heap, &over->mark);
    cleanup();
}

static void test_best_fit(void **state)
{
    (void)state;
    setup_one();
    struct gm_block *pieces[8];
    for (int i = 0; i < 8; i++)
        pieces[i] = take(4 * MIB, 1);
    gm_heap_free(&heap, pieces[1], NULL);
    gm_heap_free(&heap, pieces[3], NULL);
    gm_heap_free(&heap, pieces[4], NULL);
    struct gm_block *block = take(3 * MIB, 1);
    assert_int_equal(block->va, 64 * MIB + 4 * MIB); /* the 4, not the 8 */
    assert_int_equal(take(8 * MIB, 1)->va, 64 * MIB + 12 * MIB);
    assert_int_equal(gm_block_round(1), 512);
    assert_int_equal(gm_block_round(512), 512);
    assert_int_equal(gm_block_round(513), 1024);
    assert_int_equal(gm_block_round(UINT64_MAX), 0);
    cleanup();
}

/* Many blocks: trees, not lists. A list would take minutes here. */
static void test_many(void **state)
{
    enum { MANY = 60000 };
    struct gm_block **blocks = calloc(MANY, sizeof(struct gm_block *));
    (void)state;
    reset(3);
    assert_non_null(blocks);
    assert_int_equal(gm_arena_add(&heap, &arenas[0], 64 * MIB, MANY * GRAIN), 0);
    for (int i = 0; i < MANY; i++)
        assert_non_null(blocks[i] = take(GRAIN, 1));
    assert_null(take(GRAIN, 1));
    for (int round = 0; round < 4; round++) {
        for (int i = round % 2; i < MANY; i += 2)
            gm_heap_free(&heap, blocks[i], NULL);
        for (int i = round % 2; i < MANY; i += 2)
            assert_non_null(blocks[i] = take(GRAIN, 1));
    }
    for (int i = 0; i < MANY; i++)
        gm_heap_free(&heap, blocks[i], NULL);
    assert_int_equal(arenas[0].idle, MANY * GRAIN);
    free(blocks);
    cleanup();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),       cmocka_unit_test(test_same_stream),
        cmocka_unit_test(test_later_covers), cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_run),          cmocka_unit_test(test_best_fit),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
