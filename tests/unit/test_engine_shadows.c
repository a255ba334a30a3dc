/*
 * daemon/engine/shadows: what is copied when a chunk leaves the GPU and what is not; whose shadows
 * make way first; and that they never stand in anybody's way. The engine around it is this test: it
 * says what a chunk's hash is and when it ends, and knows which pages are taken.
 */
#include "tests/unit/plan_world.h"

#include "daemon/engine/step/chunks.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/hashes.h"
#include "daemon/engine/act/hashing.h"
#include "daemon/engine/step/release.h"
#include "daemon/engine/step/run.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/state/state.h"

enum { RUNNING, NEXT, LATER, APPS };

static struct world world;
static struct gm_engine *engine;
static uint64_t used, cap;
static uint32_t pages;        /* handed out */
static uint64_t content[512]; /* of the chunks, as the GPU hashes it; 0: all zero */
static uint32_t hashing[GM_HASH_DEPTH];
static uint64_t hashes, hashes_done, hash_room;
static CUresult hash_result;
static uint32_t copied[512], settled[512], given_up[512]; /* how often, by chunk */
static uint32_t in_hand;                                  /* the hash that was submitted last */

/* ---- what is around it ---- */

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    (void)stores;
    assert_int_equal(tier, GM_TIER_PINNED);
    return cap;
}

uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier)
{
    (void)stores;
    assert_int_equal(tier, GM_TIER_PINNED);
    return used;
}

/* All chunks have 32 MiB. */
uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes)
{
    if (used + bytes > gm_stores_cap(stores, tier))
        return GM_NONE;
    used += bytes;
    return ++pages;
}

void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page)
{
    (void)stores, (void)tier;
    assert_int_not_equal(page, GM_NONE);
    used -= 32 * MIB;
}

int gm_hasher_open(struct gm_hasher **hasher, uv_loop_t *loop, const struct gm_cuda *cuda,
                   CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                   size_t why_size)
{
    (void)hasher, (void)loop, (void)cuda, (void)context, (void)on_done, (void)arg;
    snprintf(why, why_size, "no kernel here");
    return -1;
}

uint64_t gm_hasher_room(const struct gm_hasher *hasher)
{
    (void)hasher;
    return hash_room;
}

uint64_t gm_hasher_submit(struct gm_hasher *hasher, CUdeviceptr device, uint64_t bytes)
{
    (void)hasher;
    assert_true(bytes == 32 * MIB);
    hashing[++hashes % GM_HASH_DEPTH] = (uint32_t)device; /* the frame's address is its chunk */
    return hashes;
}

uint64_t gm_hasher_done(const struct gm_hasher *hasher)
{
    (void)hasher;
    return hashes_done;
}

CUresult gm_hasher_result(const struct gm_hasher *hasher, uint64_t number, struct gm_hashed *hashed)
{
    (void)hasher;
    in_hand = hashing[number % GM_HASH_DEPTH];
    *hashed = (struct gm_hashed){.hash = {content[in_hand], ~content[in_hand]},
                                 .is_zero = content[in_hand] == 0};
    return hash_result;
}

bool gm_engine_is_later(const struct gm_engine *e, uint32_t a, uint32_t b)
{
    (void)e;
    return a > b;
}

const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result)
{
    (void)cuda, (void)result;
    return "refused";
}

void gm_engine_run(struct gm_engine *e)
{
    (void)e;
}

void gm_engine_settle(struct gm_engine *e, uint32_t index)
{
    const struct gm_chunk *chunk = &e->table->chunks[index];
    assert_false(chunk->copy_pending);
    settled[index]++;
    settle_chunk(e->table, index);
    if (chunk->is_freed) /* it ends */
        gm_engine_free_pages(e, index);
}

void gm_engine_copy_out(struct gm_engine *e, uint32_t index)
{
    copied[index]++;
    gm_table_leave_frame(e->table, index, 0);
    gm_engine_settle(e, index);
}

void gm_engine_give_up_frame(struct gm_engine *e, uint32_t index)
{
    given_up[index]++;
    gm_table_free_frame(e->table, e->table->chunks[index].frame);
}

void gm_engine_free_pages(struct gm_engine *e, uint32_t index)
{
    const uint32_t page = gm_table_leave_pages(e->table, index);
    if (page != GM_NONE)
        gm_stores_free(NULL, GM_TIER_PINNED, page);
}

/* As chunks.c does. */
static void take_hashes(void)
{
    uint32_t index;
    bool has_left;
    while (gm_engine_next_hash(engine, &index, &has_left))
        if (has_left)
            gm_engine_settle(engine, index);
}

/* ---- the world ---- */

static int set_up(void **state)
{
    (void)state;
    make_world(&world, 32 * 32 * MIB, 1);
    engine = calloc(1, sizeof *engine);
    engine->config.max_apps = APPS;
    engine->config.has_shadows = true;
    engine->now = 100 * GM_S;
    engine->table = world.table;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->frames.handles = calloc(MAX_FRAMES, sizeof *engine->frames.handles);
    engine->hasher = (struct gm_hasher *)engine; /* there is one */
    for (uint32_t id = 0; id < APPS; id++) {
        assert_true(gm_table_add_app(world.table, id, 1000));
        engine->apps[id].state = id == RUNNING ? GM_APP_RUNNING : GM_APP_PAUSED;
    }
    used = pages = 0;
    cap = 8 * 32 * MIB;
    hashes = hashes_done = 0;
    hash_room = GM_HASH_DEPTH - 1;
    hash_result = CUDA_SUCCESS;
    memset(copied, 0, sizeof copied);
    memset(settled, 0, sizeof settled);
    memset(given_up, 0, sizeof given_up);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(engine->frames.handles);
    free(engine->apps);
    free(engine);
    free(world.memory);
    return 0;
}

static void check(void)
{
    const char *fault = gm_table_check(world.table);
    if (fault)
        fail_msg("%s", fault);
    assert_int_equal(gm_engine_pinned_used(engine), used - world.table->shadows);
}

/* The chunk comes to the GPU, from its pages if it has any. */
static void come(uint32_t index)
{
    struct gm_chunk *chunk = chunk_of(&world, index);
    const uint32_t frame =
        gm_table_add_frame(world.table, world.table->apps[chunk->app].pool, chunk->class);
    assert_int_not_equal(frame, GM_NONE);
    engine->frames.handles[frame].va = index;
    to_gpu(world.table, index, frame);
    if (chunk->page != GM_NONE)
        gm_engine_keep_shadow(engine, index);
    if (chunk->shadow == GM_SHADOW_NONE)
        gm_engine_free_pages(engine, index);
    check();
}

/* A chunk of `app` on the GPU, with this content. */
static uint32_t make(uint32_t app, uint64_t with)
{
    const uint32_t index = world.table->allocations[allocate(&world, app, 32 * MIB)].first;
    content[index] = with;
    come(index);
    return index;
}

/* Its owner has unmapped it; it is hashed. */
static void evict(uint32_t index)
{
    struct gm_chunk *chunk = chunk_of(&world, index);
    const bool has_shadow = chunk->shadow == GM_SHADOW_KEPT;
    const uint32_t page = has_shadow ? chunk->page : gm_engine_take_pinned(engine, 32 * MIB);
    assert_int_not_equal(page, GM_NONE);
    assert_true(gm_table_evict(world.table, index, page));
    check();
    gm_table_end_map(world.table, index, false);
    if (gm_engine_vacate(engine, index))
        gm_engine_settle(engine, index);
}

static void end_hashes(void)
{
    hashes_done = hashes;
    take_hashes();
    assert_int_equal(engine->hashing.copies, 0);
    assert_int_equal(engine->hashing.bytes, 0);
    check();
}

/* Evict it, have it back, let its program run. */
static void round_trip(uint32_t index)
{
    evict(index);
    end_hashes();
    come(index);
    gm_engine_opened(engine, chunk_of(&world, index)->app);
}

/* ---- tests ---- */

static void test_what_is_copied(void **state)
{
    (void)state;
    const uint32_t one = make(NEXT, 5);
    evict(one);
    assert_true(chunk_of(&world, one)->copy_pending);
    assert_int_equal(engine->hashing.bytes, 32 * MIB);
    assert_int_equal(copied[one], 0); /* before the hash is known */
    end_hashes();
    assert_int_equal(copied[one], 1); /* there was no copy */
    assert_true(chunk_of(&world, one)->has_hash);
    come(one);
    assert_int_equal(chunk_of(&world, one)->shadow, GM_SHADOW_KEPT);
    assert_int_equal(used, 32 * MIB);
    assert_int_equal(gm_engine_pinned_used(engine), 0);
    gm_engine_opened(engine, NEXT);

    evict(one); /* as it was */
    assert_int_equal(gm_engine_pinned_used(engine), 32 * MIB);
    end_hashes();
    assert_int_equal(copied[one], 1);
    assert_int_equal(chunk_of(&world, one)->tier, GM_TIER_PINNED);
    assert_int_equal(engine->sums.clean, 32 * MIB);
    come(one);
    gm_engine_opened(engine, NEXT);

    content[one] = 6; /* changed */
    round_trip(one);
    assert_int_equal(copied[one], 2);
    assert_int_equal(engine->sums.clean, 32 * MIB);
    round_trip(one); /* and then as it was */
    assert_int_equal(copied[one], 2);
    content[one] = 5; /* as it was before the last time: that copy is gone */
    round_trip(one);
    assert_int_equal(copied[one], 3);
    assert_int_equal(hashes, 5);
    assert_int_equal(pages, 1); /* it stays in its pages */
}

static void test_zero(void **state)
{
    (void)state;
    const uint32_t one = make(NEXT, 0);
    const uint32_t frame = chunk_of(&world, one)->frame;
    evict(one);
    end_hashes();
    assert_int_equal(copied[one], 0);
    assert_int_equal(chunk_of(&world, one)->tier, GM_TIER_NONE);
    assert_int_equal(used, 0);
    assert_int_equal(engine->sums.zero, 32 * MIB);
    assert_int_equal(world.table->frames[frame].state, GM_FRAME_FREE);
    assert_false(world.table->frames[frame].is_dirty); /* it is zero already */
    come(one);
    content[one] = 9;
    round_trip(one);
    content[one] = 0; /* its copy is dropped, too */
    evict(one);
    end_hashes();
    assert_int_equal(used, 0);
    assert_int_equal(world.table->shadows, 0);
    assert_int_equal(chunk_of(&world, one)->shadow, GM_SHADOW_NONE);
    assert_false(chunk_of(&world, one)->has_hash);
}

/* Staged for an app whose gate did not open: nobody can have changed it. */
static void test_untouched(void **state)
{
    (void)state;
    const uint32_t one = make(NEXT, 5);
    evict(one);
    end_hashes();
    come(one);
    evict(one);
    assert_int_equal(hashes, 1); /* not again */
    assert_int_equal(chunk_of(&world, one)->tier, GM_TIER_PINNED);
    assert_int_equal(engine->sums.clean, 32 * MIB);
    /* What comes to one that runs may have been changed at once. */
    engine->apps[NEXT].state = GM_APP_RUNNING;
    come(one);
    engine->apps[NEXT].state = GM_APP_PAUSED;
    evict(one);
    assert_int_equal(hashes, 2);
    end_hashes();
}

/* Who runs gives first, then who comes next; of an app what came first. */
static void test_who_makes_way(void **state)
{
    uint32_t chunks[APPS][2];
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        for (int i = 0; i < 2; i++) {
            chunks[id][i] = make(id, 5 + id);
            evict(chunks[id][i]);
            end_hashes();
            come(chunks[id][i]);
        }
    assert_int_equal(used, 6 * 32 * MIB);
    for (int i = 0; i < 2; i++) /* there is room for two more */
        assert_int_not_equal(gm_engine_take_pinned(engine, 32 * MIB), GM_NONE);
    assert_int_equal(world.table->lost, 0);
    for (uint32_t id = 0; id < APPS; id++)
        for (int i = 0; i < 2; i++) {
            assert_int_equal(chunk_of(&world, chunks[id][i])->shadow, GM_SHADOW_KEPT);
            assert_int_not_equal(gm_engine_take_pinned(engine, 32 * MIB), GM_NONE);
            assert_int_equal(chunk_of(&world, chunks[id][i])->shadow, GM_SHADOW_LOST);
            assert_int_equal(chunk_of(&world, chunks[id][i])->page, GM_NONE);
            check();
        }
    assert_int_equal(gm_engine_take_pinned(engine, 32 * MIB), GM_NONE);
    assert_int_equal(world.table->lost, 6 * 32 * MIB);
    assert_int_equal(gm_engine_wanted_shadows(engine), 6 * 32 * MIB);
    gm_stores_free(NULL, GM_TIER_PINNED, 1); /* with room again, the next time it has one */
    evict(chunks[NEXT][0]);
    end_hashes();
    assert_int_equal(gm_engine_wanted_shadows(engine), 5 * 32 * MIB);
    come(chunks[NEXT][0]);
    assert_int_equal(gm_engine_wanted_shadows(engine), 6 * 32 * MIB);
    gm_engine_forget_lost(engine, &(const struct gm_scope){.is_all = true});
    assert_int_equal(gm_engine_wanted_shadows(engine), 32 * MIB);
    check();
}

/* Whoever wants a whole slab has shadows go one by one, as long as there are any. */
static void test_yield(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const uint32_t one = make(LATER, 5);
        evict(one);
        end_hashes();
        come(one);
    }
    for (uint64_t left = 4; left > 0; left--) {
        assert_int_equal(world.table->shadows, left * 32 * MIB);
        assert_true(gm_engine_yield_shadow(engine));
    }
    assert_false(gm_engine_yield_shadow(engine));
    assert_int_equal(used, 0);
    check();
}

static void test_freed_meanwhile(void **state)
{
    (void)state;
    const uint32_t one = make(NEXT, 5);
    round_trip(one);
    evict(one);
    free_silently(world.table, chunk_of(&world, one)->allocation);
    end_hashes();
    assert_int_equal(copied[one], 1); /* of the round before */
    assert_int_equal(given_up[one], 1);
    assert_int_equal(settled[one], 2);
}

static void test_no_hash(void **state)
{
    (void)state;
    const uint32_t one = make(NEXT, 5);
    round_trip(one);
    hash_room = 0; /* an answer that came late */
    evict(one);
    assert_int_equal(copied[one], 2);
    assert_false(chunk_of(&world, one)->has_hash);
    come(one);
    gm_engine_opened(engine, NEXT);
    hash_room = 10;
    round_trip(one); /* what the copy held is not known */
    assert_int_equal(copied[one], 3);

    hash_result = CUDA_ERROR_LAUNCH_FAILED; /* from now on none */
    round_trip(one);
    assert_int_equal(copied[one], 4);
    assert_true(engine->is_hashing_off);
    const uint64_t before = hashes;
    round_trip(one);
    assert_int_equal(hashes, before);
    assert_int_equal(copied[one], 5);
    assert_int_equal(world.table->shadows, 0); /* its gate opened: of no use */
    evict(one);
    come(one);
    assert_int_equal(chunk_of(&world, one)->shadow, GM_SHADOW_KEPT);
    evict(one); /* it did not */
    assert_int_equal(copied[one], 6);
}

static void test_off(void **state)
{
    (void)state;
    engine->config.has_shadows = false;
    engine->hasher = NULL;
    const uint32_t one = make(NEXT, 0);
    evict(one);
    assert_int_equal(copied[one], 1);
    come(one);
    assert_int_equal(used, 0);
    assert_int_equal(hashes, 0);
    engine->config.has_shadows = true;
    gm_engine_open_hasher(engine, NULL);
    assert_null(engine->hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_what_is_copied), TEST(test_zero),  TEST(test_untouched),
        TEST(test_who_makes_way),  TEST(test_yield), TEST(test_freed_meanwhile),
        TEST(test_no_hash),        TEST(test_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
