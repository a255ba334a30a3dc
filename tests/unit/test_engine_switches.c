/*
 * daemon/engine/switches: where the time of a switch went, alone and with another one beside it.
 * The engine around it is this test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/core/table_write.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/switches.h"

#define APPS 4u

static struct gm_engine *engine;
static struct gm_table table;
static unsigned pinged[APPS];
static struct gm_switch noted;
static bool is_noted;

static uint64_t under_way[GM_WAYS];

bool gm_engine_is_copying(const struct gm_engine *e, enum gm_way way)
{
    (void)e;
    return under_way[way] > 0;
}

void gm_engine_progressed(struct gm_engine *e, uint32_t id)
{
    e->apps[id].progress_at = e->now;
}

void gm_engine_ping(struct gm_engine *e, uint32_t id)
{
    (void)e;
    pinged[id]++;
}

void gm_engine_note_switch(struct gm_engine *e, uint32_t id, const struct gm_switch *took)
{
    (void)e, (void)id;
    is_noted = took != NULL;
    if (!took)
        return;
    noted = *took;
    uint64_t sum = 0;
    for (int part = 0; part < GM_PARTS; part++)
        sum += took->part_ns[part];
    assert_int_equal(sum, took->total_ns); /* all of it, whatever happened */
}

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->table = &table;
    table = (struct gm_table){.apps = calloc(APPS, sizeof *table.apps)};
    memset(pinged, 0, sizeof pinged);
    memset(under_way, 0, sizeof under_way);
    engine->config.max_apps = APPS;
    engine->now = GM_S;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(gm_app_at(&table, 0));
    free(engine->apps);
    free(engine);
    return 0;
}

/* A step of the engine begins, so long after the start. */
static void at(uint64_t ms)
{
    engine->now = GM_S + ms * GM_MS;
    gm_engine_pass(engine);
}

/* What it does, as run.c, moves.c and batches.c do; then it ends. */
static void step_ends(void)
{
    gm_engine_look_under_way(engine);
}

static void choose(uint32_t id)
{
    engine->apps[id].state = GM_APP_LOADING;
    gm_engine_begin_switch(engine, id);
    step_ends();
}

static void open_gate(uint32_t id)
{
    gm_engine_record_switch(engine, id);
    engine->apps[id].state = GM_APP_RUNNING;
    step_ends();
}

static void drains(uint32_t id, bool is_draining)
{
    engine->apps[id].state = is_draining ? GM_APP_DRAINING : GM_APP_PAUSED;
    step_ends();
}

static void copies(enum gm_way way, uint64_t bytes)
{
    engine->sums.bytes[way] += bytes;
    under_way[way] = bytes;
    step_ends();
}

static void maps(uint32_t id, uint32_t batches)
{
    engine->apps[id].batches.unanswered_maps = batches;
    step_ends();
}

#define expect_part(NAME, ms) assert_int_equal(noted.part_ns[GM_PART_##NAME], (ms)*GM_MS)

static void expect_link(uint64_t link, uint64_t out, uint64_t in)
{
    assert_int_equal(noted.link_ns, link * GM_MS);
    assert_int_equal(noted.way_ns[GM_WAY_OUT], out * GM_MS);
    assert_int_equal(noted.way_ns[GM_WAY_IN], in * GM_MS);
}

static void one_alone(void **state)
{
    (void)state;
    engine->sums.lowered = engine->sums.raised = 7; /* before: not its own */
    engine->apps[0].pid = 812;
    drains(3, true);
    choose(0);
    assert_int_equal(pinged[0], 1);
    at(10);
    engine->parts.planned_ns = 2 * GM_MS;
    engine->table->unmaps = 1;
    drains(3, false);
    at(15);
    engine->table->unmaps = 0;
    engine->hashing.copies = 1;
    step_ends();
    at(16);
    engine->hashing.copies = 0;
    copies(GM_WAY_OUT, 100);
    at(20);
    copies(GM_WAY_IN, 90);
    at(50);
    copies(GM_WAY_OUT, 0);
    engine->sums.lowered += 30;
    engine->sums.raised += 20;
    at(60);
    copies(GM_WAY_IN, 0);
    at(61);
    maps(0, 1);
    at(63);
    engine->apps[0].batches.unanswered_maps = 0;
    open_gate(0);
    assert_true(is_noted);
    assert_int_equal(noted.total_ns, 63 * GM_MS);
    expect_part(DRAIN, 10);
    expect_part(PLAN, 2);
    expect_part(UNMAP, 3);
    expect_part(HASH, 1);
    expect_part(COPY, 44);
    expect_part(OTHER, 1);
    expect_part(MAP, 2);
    expect_link(44, 34, 40);
    assert_int_equal(noted.bytes[GM_WAY_OUT], 100);
    assert_int_equal(noted.bytes[GM_WAY_IN], 90);
    assert_int_equal(noted.lowered, 30);
    assert_int_equal(noted.raised, 20);
    assert_int_equal(noted.app, 0);
    assert_int_equal(noted.pid, 812);
    assert_int_equal(noted.at, engine->now);
}

/* Everything at once: each instant counts once, for what comes first in common/parts.def. */
static void overlapping(void **state)
{
    (void)state;
    choose(0);
    engine->table->unmaps = engine->hashing.copies = 1;
    engine->is_short_of_pages = engine->is_waiting_below = true;
    under_way[GM_WAY_OUT] = 1;
    engine->apps[0].batches.unanswered_maps = 1;
    drains(3, true);
    at(1);
    drains(3, false);
    at(3);
    engine->is_waiting_below = false;
    step_ends();
    at(6);
    under_way[GM_WAY_IN] = 1; /* both ways: more room would gain nothing */
    step_ends();
    at(10);
    engine->is_short_of_pages = false;
    under_way[GM_WAY_OUT] = under_way[GM_WAY_IN] = 0;
    step_ends();
    at(15);
    engine->hashing.copies = 0;
    step_ends();
    at(21);
    engine->table->unmaps = 0;
    step_ends();
    at(28);
    maps(0, 0);
    at(36);
    open_gate(0);
    expect_part(DRAIN, 1);
    expect_part(LOWER, 2);
    expect_part(PINNED, 3);
    expect_part(COPY, 4);
    expect_part(HASH, 5);
    expect_part(UNMAP, 6);
    expect_part(MAP, 7);
    expect_part(OTHER, 8);
    expect_link(10, 10, 4);
}

/* Another one is chosen while copies are under way. Each has the time from when it was chosen. */
static void another_beside_it(void **state)
{
    (void)state;
    choose(0);
    at(10);
    copies(GM_WAY_OUT, 100);
    at(20);
    choose(1);
    at(50);
    copies(GM_WAY_OUT, 0);
    at(52);
    open_gate(0);
    expect_part(COPY, 40);
    expect_part(OTHER, 12);
    at(55);
    copies(GM_WAY_IN, 100);
    at(60);
    copies(GM_WAY_IN, 0);
    open_gate(1);
    assert_int_equal(noted.total_ns, 40 * GM_MS);
    expect_part(COPY, 35);
    expect_part(OTHER, 5);
    expect_link(35, 30, 5);
}

/* Nothing moved and nobody yielded: no switch. One that was called off leaves nothing behind. */
static void called_off(void **state)
{
    (void)state;
    choose(0);
    drains(3, true);
    at(1);
    drains(3, false);
    copies(GM_WAY_IN, 100);
    at(4);
    copies(GM_WAY_IN, 0);
    engine->apps[0].state = GM_APP_PAUSED;
    at(100);
    choose(0);
    at(101);
    open_gate(0);
    assert_false(is_noted);
    at(110);
    choose(0);
    at(120);
    copies(GM_WAY_IN, 100);
    at(130);
    copies(GM_WAY_IN, 0);
    open_gate(0);
    expect_part(COPY, 10);
    expect_link(10, 0, 10);
}

/* The planner's time is of what follows, and no more than that. */
static void planning(void **state)
{
    (void)state;
    choose(0);
    drains(3, true);
    at(1);
    engine->parts.planned_ns += GM_MS / 2;
    step_ends();
    gm_engine_pass(engine); /* nothing has passed: it is not lost */
    at(2);
    engine->parts.planned_ns += 5 * GM_MS;
    drains(3, false);
    at(3);
    open_gate(0);
    assert_int_equal(noted.part_ns[GM_PART_PLAN], 3 * GM_MS / 2);
    assert_int_equal(noted.part_ns[GM_PART_DRAIN], 3 * GM_MS / 2);
    engine->now -= GM_MS; /* a clock that goes back takes nothing back */
    gm_engine_pass(engine);
    choose(1);
    at(4);
    drains(3, true);
    open_gate(1);
}

/* At random: begin_switch and record_switch at any time, anything under way. */
static void anything(void **state)
{
    (void)state;
    uint64_t seed = 12345;
    bool is_loading[APPS] = {false};
    unsigned switches = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t draw = seed >> 33;
        engine->now += draw % 3 ? draw % 100000 : 0;
        gm_engine_pass(engine);
        engine->parts.planned_ns += draw % 7 ? 0 : draw % 50000;
        under_way[draw / 8 % 2] = draw / 16 % 2;
        engine->table->unmaps = draw / 32 % 4 == 0;
        engine->hashing.copies = draw / 128 % 4 == 0;
        engine->is_short_of_pages = draw / 512 % 8 == 0;
        engine->is_waiting_below = draw / 4096 % 8 == 0;
        const uint32_t id = (uint32_t)(draw / 32768 % APPS);
        is_noted = false;
        if (draw % 5 == 0 && !is_loading[id]) {
            choose(id);
            is_loading[id] = true;
        } else if (draw % 5 == 1 && is_loading[id]) {
            open_gate(id); /* whose sum is looked at */
            is_loading[id] = false;
            switches += is_noted;
        } else if (!is_loading[id]) {
            drains(id, draw % 2);
        } else {
            maps(id, draw % 2);
        }
    }
    assert_true(switches > 10000);
}

/* The history keeps the last ones. */
static void the_last_ones_are_kept(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= GM_HISTORY + 2; i++) {
        at(10 * i);
        drains(3, true);
        choose(0);
        at(10 * i + 3);
        drains(3, false);
        at(10 * i + 4);
        open_gate(0);
        expect_part(DRAIN, 3);
        expect_part(OTHER, 1);
        assert_int_equal(noted.seq, i);
    }
    assert_int_equal(engine->history[2].seq, GM_HISTORY + 2);
    assert_int_equal(engine->history[3].seq, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(overlapping, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_beside_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(called_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(planning, set_up, tear_down),
        cmocka_unit_test_setup_teardown(anything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_ones_are_kept, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
