/*
 * daemon/engine/spares: what programs freed and keep is taken back when room is wanted, when it
 * lies there for long, and never twice; and what a program that lies there says does nothing. The
 * engine around it is this test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/step/ahead.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/spares.h"
#include "daemon/engine/state/state.h"

#define APPS 4u
#define CHUNKS 256u
#define MIB (1ull << 20)
#define ROOM (64 * MIB)
#define VA 0x100000000ull

static struct gm_engine *engine;
static uint64_t capacity; /* of all tiers */
static unsigned n_taken, n_called_off;
static uint64_t called_off_bytes; /* what calling off makes free */

/* ---- what is around it ---- */

uint64_t gm_engine_left(const struct gm_engine *e)
{
    return e->table->committed < capacity ? capacity - e->table->committed : 0;
}

static uint64_t cap_room = UINT64_MAX; /* of an app that asks */

struct gm_room_input gm_engine_room_input(const struct gm_engine *e, uint32_t id)
{
    assert_true(id < e->config.max_apps);
    return (struct gm_room_input){.budget = UINT64_MAX,
                                  .cap = cap_room,
                                  .tiers = UINT64_MAX,
                                  .files = UINT64_MAX,
                                  .told = UINT64_MAX,
                                  .user_gpu = UINT64_MAX,
                                  .user_pinned = UINT64_MAX};
}

void gm_engine_call_off_ahead(struct gm_engine *e, uint32_t id)
{
    assert_true(id < e->config.max_apps);
    n_called_off++;
    capacity += called_off_bytes;
    called_off_bytes = 0;
}

void gm_engine_take_back(struct gm_engine *e, uint32_t index)
{
    const struct gm_allocation *allocation = &e->table->allocations[index];
    assert_false(allocation->is_freed || allocation->is_pending);
    gm_table_free_allocation(e->table, index, (struct gm_last_word){.kind = GM_LAST_TAKEN});
    n_taken++;
}

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    engine->config.max_apps = APPS;
    engine->room = ROOM;
    engine->now = GM_S;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, CHUNKS));
    engine->table = gm_table_init(engine->table_memory, APPS, CHUNKS, CHUNKS, ROOM);
    for (uint32_t id = 0; id < APPS; id++) {
        engine->apps[id].state = GM_APP_RUNNING;
        engine->apps[id].session = (struct gm_session *)(uintptr_t)(id + 1);
        engine->apps[id].stat = calloc(1, sizeof *engine->apps[id].stat);
        assert_true(gm_table_add_app(engine->table, id, 1000));
    }
    capacity = 1024 * MIB;
    n_taken = n_called_off = 0;
    called_off_bytes = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        free(engine->apps[id].stat);
    free(engine->table_memory);
    free(engine->apps);
    free(engine);
    return 0;
}

/* ---- what happens ---- */

static uint64_t next_va = VA;

/* Returns its address. */
static uint64_t give(uint32_t id, uint64_t bytes)
{
    const uint64_t va = next_va;
    assert_int_not_equal(gm_table_add_allocation(engine->table, id, va, bytes), GM_NONE);
    next_va += bytes;
    return va;
}

/* Word number i of its spares. */
static _Atomic uint64_t *word(uint32_t id, uint32_t i)
{
    return &engine->apps[id].stat->spares[i];
}

/* It has, and frees, as much. */
static uint64_t keep(uint32_t id, uint32_t i, uint64_t bytes)
{
    const uint64_t va = give(id, bytes);
    *word(id, i) = va + 2;
    return va;
}

static void all_of_one(void **state)
{
    (void)state;
    give(0, 8 * MIB);
    const uint64_t first = keep(0, 3, 4 * MIB);
    keep(0, GM_SPARES_MAX - 1, 6 * MIB);
    keep(1, 0, 2 * MIB);
    assert_int_equal(gm_engine_spare_bytes(engine, 0), 10 * MIB);
    assert_int_equal(gm_engine_take_spares(engine, 0, UINT64_MAX), 10 * MIB);
    assert_int_equal(n_taken, 2);
    assert_int_equal(*word(0, 3), (first + 2) | GM_SPARE_BUSY);
    assert_int_equal(engine->table->apps[0].committed, 8 * MIB);
    assert_int_equal(gm_engine_spare_bytes(engine, 0), 0);
    assert_int_equal(gm_engine_take_spares(engine, 0, UINT64_MAX), 0);
    assert_int_equal(gm_engine_spare_bytes(engine, 1), 2 * MIB);
    gm_engine_take_all_spares(engine);
    assert_int_equal(n_taken, 3);
}

static void as_many_as_are_wanted(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        keep(0, i, 4 * MIB);
    assert_int_equal(gm_engine_take_spares(engine, 0, 0), 0);
    assert_int_equal(gm_engine_take_spares(engine, 0, 5 * MIB), 8 * MIB);
    assert_int_equal(n_taken, 2);
}

/* What is no spare of that program's is left alone. */
static void lies(void **state)
{
    (void)state;
    const uint64_t kept = give(0, 4 * MIB), other = give(1, 4 * MIB), pending = give(0, 4 * MIB);
    gm_table_await_answer(engine->table, gm_table_find_allocation(engine->table, 0, pending), 0,
                          false);
    *word(0, 0) = other;
    *word(0, 1) = kept | GM_SPARE_BUSY;
    *word(0, 2) = UINT64_MAX;
    *word(0, 3) = 2;
    *word(0, 4) = kept + GM_CHUNK_MIN; /* inside */
    *word(0, 5) = pending;
    assert_int_equal(gm_engine_spare_bytes(engine, 0), 0);
    assert_int_equal(gm_engine_take_spares(engine, 0, UINT64_MAX), 0);
    gm_engine_age_spares(engine, 0);
    engine->now += GM_S;
    gm_engine_age_spares(engine, 0);
    assert_int_equal(n_taken, 0);
    /* One of its own, named often. */
    for (uint32_t i = 0; i < GM_SPARES_MAX; i++)
        *word(0, i) = kept + 2 * i;
    assert_true(gm_engine_spare_bytes(engine, 0) <= engine->table->apps[0].committed);
    assert_int_equal(gm_engine_take_spares(engine, 0, UINT64_MAX), 4 * MIB);
    assert_int_equal(n_taken, 1);
    /* Who left has none. */
    keep(2, 0, 2 * MIB);
    engine->apps[2].session = NULL;
    assert_int_equal(gm_engine_spare_bytes(engine, 2), 0);
    assert_int_equal(gm_engine_take_spares(engine, 2, UINT64_MAX), 0);
}

static void look(uint64_t after_ns)
{
    engine->now += after_ns;
    gm_engine_age_spares(engine, 0);
}

/* One that lies there goes; one that is taken and put again stays. */
static void old_ones_go(void **state)
{
    (void)state;
    look(0);
    const uint64_t used = keep(0, 0, 4 * MIB);
    keep(0, 1, 4 * MIB);
    for (uint64_t i = 1; i <= 2 * GM_SPARES_KEEP_NS / GM_MS; i++) {
        if (i == GM_SPARES_KEEP_NS / GM_MS + 1)
            assert_int_equal(n_taken, 0); /* not before it was seen for all that time */
        *word(0, 0) = used + 2 * (i + 1);
        look(GM_MS);
    }
    assert_int_equal(n_taken, 1);
    assert_int_equal(gm_engine_spare_bytes(engine, 0), 4 * MIB);
    assert_false(*word(0, 0) & GM_SPARE_BUSY);
    look(GM_SPARES_KEEP_NS);
    assert_int_equal(n_taken, 2);
}

/* An allocation has the room of all spares in its way, and those are left that are not. */
static void room_on_the_gpu(void **state)
{
    (void)state;
    engine->apps[3].state = GM_APP_PAUSED;
    give(3, 60 * MIB); /* who does not run is in nobody's way */
    give(0, 20 * MIB);
    keep(0, 0, 10 * MIB);
    keep(1, 0, 8 * MIB);
    keep(1, 1, 8 * MIB);
    gm_engine_make_room(engine, 2, 18 * MIB); /* just fits: 64 MiB in all */
    assert_int_equal(n_taken + n_called_off, 0);
    gm_engine_make_room(engine, 1, 20 * MIB);
    assert_int_equal(n_taken, 1); /* its own */
    assert_int_equal(gm_engine_spare_bytes(engine, 0), 10 * MIB);
    gm_engine_make_room(engine, 2, 38 * MIB);
    assert_int_equal(n_taken, 3);
    assert_int_equal(gm_engine_spare_bytes(engine, 0) + gm_engine_spare_bytes(engine, 1), 0);
}

/* The tiers are full. */
static void room_in_the_tiers(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        engine->apps[id].state = id == 0 ? GM_APP_RUNNING : GM_APP_PAUSED;
    capacity = 30 * MIB;
    give(1, 10 * MIB);
    keep(0, 0, 20 * MIB);
    gm_engine_make_room(engine, 2, 12 * MIB);
    assert_int_equal(n_taken, 1);
    assert_true(gm_engine_left(engine) >= 12 * MIB);
}

/* What is on its way ahead goes first. */
static void what_comes_ahead_is_called_off(void **state)
{
    (void)state;
    capacity = 20 * MIB;
    called_off_bytes = 8 * MIB;
    keep(0, 0, 20 * MIB);
    gm_engine_make_room(engine, 1, 8 * MIB);
    assert_true(n_called_off > 0);
    assert_int_equal(n_taken, 0);
    gm_engine_make_room(engine, 1, 10 * MIB);
    assert_int_equal(n_taken, 1);
}

#define case_of(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        case_of(all_of_one),
        case_of(as_many_as_are_wanted),
        case_of(lies),
        case_of(old_ones_go),
        case_of(room_on_the_gpu),
        case_of(room_in_the_tiers),
        case_of(what_comes_ahead_is_called_off),
    };
    return cmocka_run_group_tests_name("engine_spares", tests, NULL, NULL);
}
