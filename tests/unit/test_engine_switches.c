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

#include "daemon/engine/inside.h"

#define APPS 3u

static struct gm_engine *engine;
static struct gm_table table;
static unsigned pinged[APPS];
static struct gm_switch noted;
static bool is_noted;

void gm_engine_ping(struct gm_engine *e, uint32_t id)
{
    (void)e;
    pinged[id]++;
}

void gm_engine_note_switch(struct gm_engine *e, uint32_t id, const struct gm_switch *took)
{
    (void)e, (void)id;
    is_noted = took != NULL;
    if (took)
        noted = *took;
}

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->table = &table;
    table.apps = calloc(APPS, sizeof *table.apps);
    memset(pinged, 0, sizeof pinged);
    engine->config.max_apps = APPS;
    engine->now = GM_S;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(table.apps);
    free(engine->apps);
    free(engine);
    return 0;
}

static void at(uint64_t ms)
{
    engine->now = GM_S + ms * GM_MS;
}

static void choose(uint32_t id)
{
    engine->apps[id].state = GM_APP_LOADING;
    gm_engine_begin_switch(engine, id);
}

static void open_gate(uint32_t id)
{
    gm_engine_record_switch(engine, id);
    engine->apps[id].state = GM_APP_RUNNING;
}

/* As engine.c, engine/moves.c and engine/chunks.c do. */
static void drained(void)
{
    engine->last_drain_at = engine->now;
}

static void submitted(enum gm_way way, uint64_t bytes)
{
    engine->sums.bytes[way] += bytes;
    if (engine->first_copy_at[way] == 0)
        engine->first_copy_at[way] = engine->now;
}

static void ended(enum gm_way way)
{
    engine->last_copy_at[way] = engine->now;
}

static void expect(uint64_t total, uint64_t drain, uint64_t copy, uint64_t out, uint64_t in,
                   uint64_t map)
{
    assert_true(is_noted);
    assert_int_equal(noted.total_ns, total * GM_MS);
    assert_int_equal(noted.drain_ns, drain * GM_MS);
    assert_int_equal(noted.copy_ns, copy * GM_MS);
    assert_int_equal(noted.way_ns[GM_WAY_OUT], out * GM_MS);
    assert_int_equal(noted.way_ns[GM_WAY_IN], in * GM_MS);
    assert_int_equal(noted.map_ns, map * GM_MS);
}

static void one_alone(void **state)
{
    (void)state;
    engine->sums.lowered = engine->sums.raised = 7; /* before: not its own */
    choose(0);
    at(10);
    drained();
    submitted(GM_WAY_OUT, 100);
    at(12);
    submitted(GM_WAY_IN, 90);
    at(50);
    ended(GM_WAY_OUT);
    engine->sums.lowered += 30;
    engine->sums.raised += 20;
    at(60);
    ended(GM_WAY_IN);
    at(63);
    open_gate(0);
    expect(63, 10, 50, 40, 48, 3);
    assert_int_equal(noted.bytes[GM_WAY_OUT], 100);
    assert_int_equal(noted.bytes[GM_WAY_IN], 90);
    assert_int_equal(noted.lowered, 30);
    assert_int_equal(noted.raised, 20);
}

/* Another one is chosen while the copies of the first are under way: they are its still, and not
 * a long time of mapping. The other one has what begins after it was chosen. */
static void another_beside_it(void **state)
{
    (void)state;
    choose(0);
    at(10);
    drained();
    submitted(GM_WAY_OUT, 100);
    submitted(GM_WAY_IN, 100);
    at(20);
    choose(1);
    at(50);
    ended(GM_WAY_OUT);
    ended(GM_WAY_IN);
    at(52);
    open_gate(0);
    expect(52, 10, 40, 40, 40, 2);

    at(60);
    submitted(GM_WAY_IN, 10);
    at(70);
    ended(GM_WAY_IN);
    open_gate(1);
    expect(50, 0, 10, 0, 10, 0);
}

/* The first has copied nothing before the other one was chosen; and a third comes. */
static void the_last_one_moves(void **state)
{
    (void)state;
    choose(0);
    choose(1);
    at(5);
    drained();
    submitted(GM_WAY_OUT, 100);
    at(7);
    choose(2);
    at(9);
    submitted(GM_WAY_IN, 100);
    at(20);
    ended(GM_WAY_OUT);
    at(30);
    ended(GM_WAY_IN);
    at(31);
    open_gate(0);
    expect(31, 5, 25, 15, 21, 1);
    open_gate(1);
    expect(31, 5, 25, 15, 21, 1);
    open_gate(2);
    expect(24, 0, 21, 0, 21, 1);
}

/* What was kept for a switch that was called off is not the next one's. */
static void called_off(void **state)
{
    (void)state;
    choose(0);
    at(1);
    drained();
    submitted(GM_WAY_IN, 100);
    choose(1);
    engine->apps[0].state = GM_APP_PAUSED;
    at(40);
    ended(GM_WAY_IN);
    open_gate(1);
    at(100);
    choose(0);
    at(101);
    open_gate(0);
    assert_false(is_noted); /* nothing moved, nobody yielded */

    at(110);
    choose(0);
    at(120);
    submitted(GM_WAY_IN, 100);
    choose(1);
    at(130);
    ended(GM_WAY_IN);
    open_gate(0);
    expect(20, 0, 10, 0, 10, 0);
}

/* Others are chosen again and again while it loads: of the copies it has the first, of those that
 * gave way the last. */
static void others_come_and_come(void **state)
{
    (void)state;
    choose(0);
    at(2);
    drained();
    submitted(GM_WAY_OUT, 100);
    choose(1);
    at(4);
    drained();
    submitted(GM_WAY_OUT, 100);
    choose(2);
    engine->apps[2].state = GM_APP_PAUSED;
    choose(2);
    at(10);
    ended(GM_WAY_OUT);
    at(11);
    open_gate(0);
    expect(11, 4, 8, 8, 0, 1);
}

/* What was under way below pinned memory, or waited for, before it began is not its own. */
static void its_own_share(void **state)
{
    (void)state;
    engine->apps[0].pid = 812;
    engine->sums = (struct gm_moment){.plan_ns = 7 * GM_MS, .lower_ns = 9 * GM_MS, .bytes = {5, 6}};
    engine->lower_since = engine->now - 4 * GM_MS;
    choose(0);
    assert_int_equal(pinged[0], 1);
    at(2);
    engine->sums.lower_ns += engine->now - engine->lower_since;
    engine->lower_since = 0;
    engine->sums.plan_ns += GM_MS / 2;
    submitted(GM_WAY_IN, 140);
    at(10);
    ended(GM_WAY_IN);
    at(12);
    engine->pinned_since = engine->now - GM_MS;
    open_gate(0);
    expect(12, 0, 8, 0, 8, 2);
    assert_int_equal(noted.app, 0);
    assert_int_equal(noted.pid, 812);
    assert_int_equal(noted.at, engine->now);
    assert_int_equal(noted.plan_ns, GM_MS / 2);
    assert_int_equal(noted.lower_ns, 2 * GM_MS);
    assert_int_equal(noted.pinned_ns, GM_MS);
    assert_int_equal(noted.bytes[GM_WAY_OUT], 0);
    assert_int_equal(noted.bytes[GM_WAY_IN], 140);
}

/* Who yields without a copy is a switch; the history keeps the last ones. */
static void the_last_ones_are_kept(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= GM_HISTORY + 2; i++) {
        at(10 * i);
        choose(0);
        at(10 * i + 3);
        drained();
        at(10 * i + 4);
        open_gate(0);
        expect(4, 3, 0, 0, 0, 1);
        assert_int_equal(noted.seq, i);
    }
    assert_int_equal(engine->history[2].seq, GM_HISTORY + 2);
    assert_int_equal(engine->history[3].seq, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_beside_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_one_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(called_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_come_and_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(its_own_share, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_ones_are_kept, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
