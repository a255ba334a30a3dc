/*
 * daemon/engine/ahead: when memory that nobody waits for is granted. The engine around it is this
 * test: a real chunk table, a device of so many bytes, and a daemon that makes frames on it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "daemon/engine/step/ahead.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/state/state.h"
#include "tests/unit/turns.h"

#define APPS 3u
#define CHUNKS 512u
#define MIB (1ull << 20)
#define VA (1ull << 40)
#define ROOM (512 * MIB) /* seven eighths are 448 MiB */
#define DEVICE (1024 * MIB)

static struct gm_engine *engine;
static uint64_t device_free;
static unsigned n_made, n_commits, n_looks, n_refused;
static bool is_table_full;

/* ---- what is around it ---- */

const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result)
{
    (void)cuda, (void)result;
    return "";
}

struct gm_room_input gm_engine_room_input(const struct gm_engine *e, uint32_t id)
{
    return (struct gm_room_input){.budget = e->config.budget,
                                  .own.promised = e->table->apps[id].committed,
                                  .cap = UINT64_MAX,
                                  .tiers = UINT64_MAX,
                                  .files = UINT64_MAX,
                                  .told = UINT64_MAX,
                                  .user_gpu = UINT64_MAX,
                                  .user_pinned = UINT64_MAX};
}

bool gm_engine_make_free_frame(struct gm_engine *e, uint32_t pool, unsigned class)
{
    if (device_free < gm_class_bytes(class))
        return false;
    const uint32_t frame = gm_table_add_frame(e->table, pool, class);
    assert_int_not_equal(frame, GM_NONE);
    gm_table_free_frame(e->table, frame);
    device_free -= gm_class_bytes(class);
    n_made++;
    return true;
}

enum gm_why gm_engine_commit(struct gm_engine *e, uint32_t id, const struct gm_msg_alloc *alloc)
{
    n_commits++;
    if (is_table_full)
        return GM_WHY_FULL;
    const uint32_t index = gm_table_add_allocation(e->table, id, alloc->va, alloc->bytes);
    assert_int_not_equal(index, GM_NONE);
    gm_table_await_answer(e->table, index, alloc->cookie, alloc->flags != 0);
    e->apps[id].allocs.pending++;
    e->apps[id].allocs.ahead += (alloc->flags & GM_ALLOC_AHEAD) != 0;
    e->apps[id].allocs.ahead_chunks +=
        (alloc->flags & GM_ALLOC_AHEAD) ? (uint32_t)gm_chunk_count(alloc->bytes) : 0;
    return GM_WHY_NONE;
}

void gm_engine_answer_alloc(struct gm_engine *e, uint32_t index, CUresult result)
{
    const struct gm_allocation *allocation = &e->table->allocations[index];
    struct gm_app *app = &e->apps[allocation->app];
    assert_int_equal(result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(allocation->is_ahead && allocation->is_pending && !allocation->is_freed);
    gm_table_answer(e->table, index);
    app->allocs.pending--;
    app->allocs.ahead--;
    n_refused++;
}

static CUresult mem_info(size_t *free, size_t *total)
{
    *free = device_free;
    *total = DEVICE;
    n_looks++;
    return CUDA_SUCCESS;
}

static CUresult no_mem_info(size_t *free, size_t *total)
{
    (void)free, (void)total;
    return CUDA_ERROR_UNKNOWN;
}

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    engine->config = (struct gm_engine_config){.max_apps = APPS, .budget = ROOM};
    engine->room = ROOM;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, CHUNKS));
    engine->table = gm_table_init(engine->table_memory, APPS, CHUNKS, CHUNKS, ROOM);
    engine->cuda.cuMemGetInfo_v2 = mem_info;
    for (uint32_t id = 0; id < APPS; id++) {
        engine->apps[id].state = GM_APP_RUNNING;
        assert_true(gm_table_add_app(engine->table, id, 1000));
    }
    device_free = DEVICE;
    n_made = n_commits = n_looks = n_refused = 0;
    is_table_full = false;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(gm_table_check(engine->table));
    free(engine->table_memory);
    free(engine->apps);
    free(engine);
    return 0;
}

/* ---- what happens ---- */

static uint64_t next_va = VA;
static uint64_t newest[APPS]; /* its newest allocation */

static bool ask(uint32_t id, uint64_t bytes)
{
    const struct gm_msg_alloc alloc = {.va = next_va, .bytes = bytes, .flags = GM_ALLOC_AHEAD};
    const struct gm_app before = engine->apps[id];
    const uint64_t committed = engine->table->committed;
    const bool is_had = gm_engine_admit_ahead(engine, id, &alloc);
    newest[id] = is_had ? next_va : newest[id];
    next_va += bytes;
    assert_int_equal(engine->apps[id].allocs.ahead, before.allocs.ahead + is_had);
    assert_int_equal(engine->apps[id].allocs.pending, before.allocs.pending + is_had);
    assert_int_equal(engine->table->committed, committed + (is_had ? bytes : 0));
    return is_had;
}

/* All chunks of the app's newest allocation come to the GPU, into frames that are free. */
static void arrive(uint32_t id)
{
    struct gm_table *table = engine->table;
    const uint32_t index = gm_table_find_allocation(table, id, newest[id]);
    for (uint32_t c = table->allocations[index].first; c != GM_NONE; c = table->chunks[c].sibling) {
        const uint32_t frame = table->pools[table->apps[id].pool].head[table->chunks[c].class];
        assert_int_not_equal(frame, GM_NONE); /* made before it was granted */
        to_gpu(table, c, frame);
    }
    gm_table_answer(table, index);
    engine->apps[id].allocs.pending--;
    if (table->allocations[index].is_ahead) {
        engine->apps[id].allocs.ahead--;
        engine->apps[id].allocs.ahead_chunks -=
            (uint32_t)gm_chunk_count(table->allocations[index].bytes);
    }
}

/* What the app has, by an allocation as all are. */
static void give(uint32_t id, uint64_t bytes)
{
    const struct gm_msg_alloc alloc = {.va = next_va, .bytes = bytes};
    newest[id] = next_va;
    next_va += bytes;
    assert_int_equal(gm_engine_commit(engine, id, &alloc), GM_WHY_NONE);
    for (uint64_t left = bytes; left > 0; left -= gm_class_bytes(gm_chunk_next(left)))
        assert_true(
            gm_engine_make_free_frame(engine, engine->table->apps[id].pool, gm_chunk_next(left)));
    arrive(id);
    n_made = n_commits = 0;
}

static void test_granted(void **state)
{
    (void)state;
    give(0, 64 * MIB);
    give(1, 64 * MIB);
    assert_true(ask(0, 42 * MIB)); /* 32 + 8 + 2 */
    assert_int_equal(n_made, 3);
    assert_int_equal(n_looks, 1);
    const uint32_t index = gm_table_find_allocation(engine->table, 0, newest[0]);
    assert_true(engine->table->allocations[index].is_ahead);
    /* Another one while this is on its way, and one for another program: nobody lacks anything. */
    assert_true(ask(0, 42 * MIB));
    assert_true(ask(1, 8 * MIB));
    arrive(1);
    assert_true(ask(2, 2 * MIB));
}

static void test_frames_at_hand(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 14; i++)
        assert_true(gm_engine_make_free_frame(engine, engine->table->apps[0].pool, 4));
    n_made = 0;
    device_free = 0;
    assert_true(ask(0, 384 * MIB)); /* of 12 frames */
    assert_int_equal(n_made, 0);
    assert_int_equal(n_looks, 0);
    arrive(0);
}

/* A part of the budget stays free, whoever has the rest. */
static void test_room(void **state)
{
    (void)state;
    give(1, 416 * MIB);
    assert_false(ask(0, 34 * MIB));
    assert_true(ask(0, 16 * MIB));
    arrive(0);
    engine->table->orphaned = 16 * MIB;
    assert_false(ask(0, 2 * MIB));
    engine->table->orphaned = 14 * MIB;
    assert_true(ask(0, 2 * MIB));
    assert_false(ask(0, 2 * MIB));
    arrive(0);
    engine->table->orphaned = 0;
    engine->room -= 128 * MIB; /* somebody does not answer */
    assert_false(ask(0, 2 * MIB));
    assert_int_equal(n_commits, 2);
}

/* Programs beside gpumux have the device. */
static void test_device(void **state)
{
    (void)state;
    device_free = DEVICE / 4 - 1;
    assert_false(ask(0, 2 * MIB));
    assert_int_equal(n_made, 0);
    device_free = DEVICE / 4;
    assert_true(ask(0, 2 * MIB));
    arrive(0);
    device_free = DEVICE / 4;
    assert_false(ask(0, 288 * MIB)); /* the frames that could be made stay, for whoever comes */
    assert_int_equal(n_commits, 1);
    engine->cuda.cuMemGetInfo_v2 = no_mem_info;
    assert_false(ask(0, 288 * MIB));
    assert_true(ask(0, 256 * MIB)); /* nothing has to be made for that */
    arrive(0);
    engine->cuda.cuMemGetInfo_v2 = mem_info;
    device_free = ROOM - 258 * MIB; /* the rest of the budget, to the byte: less than a fourth */
    assert_true(ask(0, 8 * MIB));
    arrive(0);
    device_free -= 1;
    assert_false(ask(0, 8 * MIB));
}

/* To make many frames would take long. */
static void test_many_frames(void **state)
{
    (void)state;
    engine->config.budget = engine->room = 2 * ROOM;
    engine->table->budget = 2 * ROOM;
    assert_false(ask(0, ROOM + 2 * MIB)); /* 17; but those that were made stay */
    assert_int_equal(n_made, 16);
    assert_int_equal(n_commits, 0);
    n_made = 0;
    assert_true(ask(0, ROOM));
    assert_int_equal(n_made, 1);
    arrive(0);
}

/* What is on its way to a program hides nothing else that it lacks. */
static void test_lacks_more(void **state)
{
    struct gm_table *table = engine->table;
    (void)state;
    give(0, 8 * MIB);
    const uint32_t chunk = table->allocations[gm_table_find_allocation(table, 0, newest[0])].first;
    assert_true(ask(0, 6 * MIB)); /* 4 + 2 */
    assert_int_equal(engine->apps[0].allocs.ahead_chunks, 2);
    assert_true(ask(1, 2 * MIB));
    turn_chunk(table, chunk, GM_CHUNK_EV_EVICT);
    assert_false(ask(1, 2 * MIB));
    turn_chunk(table, chunk, GM_CHUNK_EV_UNDO);
    turn_chunk(table, chunk, GM_CHUNK_EV_DONE);
    assert_true(ask(1, 2 * MIB));
}

/* Somebody lacks memory, is on his way, or waits: then there is nothing to give away. */
static void test_nobody_lacks(void **state)
{
    (void)state;
    const enum gm_app_state states[] = {GM_APP_LOADING, GM_APP_DRAINING};
    for (unsigned i = 0; i < 2; i++) {
        engine->apps[1].state = states[i];
        assert_false(ask(0, 2 * MIB));
    }
    engine->apps[1].state = GM_APP_PAUSED;
    assert_true(ask(0, 2 * MIB));
    arrive(0);
    assert_false(ask(1, 2 * MIB)); /* it does not run */
    engine->apps[1].state = GM_APP_RUNNING;

    const struct gm_msg_alloc alloc = {.va = next_va, .bytes = 4 * MIB};
    newest[1] = next_va;
    next_va += alloc.bytes;
    assert_int_equal(gm_engine_commit(engine, 1, &alloc), GM_WHY_NONE); /* waited for */
    assert_false(ask(0, 2 * MIB));
    assert_false(ask(1, 2 * MIB));
    assert_true(gm_engine_make_free_frame(engine, engine->table->apps[1].pool, 1));
    arrive(1);

    struct gm_waiting_alloc waiting = {.ask = {.app = 2}};
    engine->waiting = &waiting.ask;
    assert_false(ask(0, 2 * MIB));
    engine->waiting = NULL;
    engine->retries[GM_RETRY_FRAME].at = engine->now + 1;
    assert_false(ask(0, 2 * MIB));
    engine->retries[GM_RETRY_FRAME].at = 0;
    engine->create_more = true;
    assert_false(ask(0, 2 * MIB));
    engine->create_more = false;
    engine->table->budget -= 2 * MIB; /* lowered: the device has less */
    assert_false(ask(0, 2 * MIB));
    engine->table->budget += 2 * MIB;
    is_table_full = true;
    assert_false(ask(0, 2 * MIB));
    is_table_full = false;
    assert_true(ask(0, 2 * MIB));
    arrive(0);
}

/* Nothing is on its way ahead any more, and what its program waits for itself comes. */
static void test_called_off(void **state)
{
    (void)state;
    give(0, 8 * MIB);
    assert_true(ask(0, 4 * MIB));
    arrive(0);
    assert_true(ask(0, 4 * MIB));
    assert_true(ask(0, 6 * MIB));
    const struct gm_msg_alloc alloc = {.va = next_va, .bytes = 4 * MIB};
    assert_int_equal(gm_engine_commit(engine, 0, &alloc), GM_WHY_NONE);
    gm_engine_call_off_ahead(engine, 1);
    assert_int_equal(n_refused, 0);
    gm_engine_call_off_ahead(engine, 0);
    gm_engine_call_off_ahead(engine, 0);
    assert_int_equal(n_refused, 2);
    assert_int_equal(engine->apps[0].allocs.pending, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_granted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_frames_at_hand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_frames, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_lacks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lacks_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_called_off, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
