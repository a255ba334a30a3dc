/*
 * engine/step/gates: which programs have work, from what they submit and from what the GPU still
 * has of it; which are quiet, and which are silent. The engine around it is this test, and so is
 * the program: it answers when it is told to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/state/events.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"

#define IDLE (100 * GM_MS)

static struct gm_engine engine;
static struct gm_app app;
static struct gm_client client;
static struct gm_stat stat_area;
static uint32_t queries, wants, rests, wastes, calls;
static uint64_t query; /* the newest */
static bool is_group;

void gm_engine_say(struct gm_engine *e, uint32_t id, enum gm_msg_type type, const void *body)
{
    assert_true(e == &engine && id == 0 && type == GM_MSG_QUERY);
    query = ((const struct gm_msg_query *)body)->query;
    queries++;
}

void gm_engine_feed(struct gm_engine *e, enum gm_sched_event_kind kind, uint32_t id, uint64_t bytes)
{
    assert_true(e == &engine && id == 0 && bytes == 0);
    wants += kind == GM_SCHED_WANT;
    wastes += kind == GM_SCHED_WASTE;
}

void gm_engine_feed_size(struct gm_engine *e, uint32_t id)
{
    assert_true(e == &engine && id == 0);
}

void gm_engine_feed_idle(struct gm_engine *e, uint32_t id, uint64_t ago_ns)
{
    assert_true(e == &engine && id == 0 && ago_ns <= IDLE);
    rests++;
}

void gm_engine_emit(struct gm_engine *e, const struct gm_event *event)
{
    (void)e;
    (void)event;
}

uint64_t gm_engine_take_spares(struct gm_engine *e, uint32_t id, uint64_t most)
{
    (void)e;
    (void)id;
    (void)most;
    return 0;
}

void gm_engine_age_spares(struct gm_engine *e, uint32_t id)
{
    (void)e;
    (void)id;
}

bool gm_group_is_several(const struct gm_engine *e, uint32_t id)
{
    (void)e;
    (void)id;
    return is_group;
}

bool gm_group_is_waiting(const struct gm_engine *e, uint32_t id, bool *is_first)
{
    (void)e;
    (void)id;
    *is_first = true;
    return false;
}

bool gm_group_rests(const struct gm_engine *e, uint32_t id)
{
    (void)e;
    (void)id;
    return true;
}

bool gm_group_wants(struct gm_engine *e, uint32_t id)
{
    (void)e;
    (void)id;
    return false;
}

bool gm_engine_is_chosen(const struct gm_engine *e, uint32_t id)
{
    (void)e;
    (void)id;
    return true;
}

bool gm_engine_turn(struct gm_engine *e, uint32_t id, enum gm_app_event event)
{
    assert_true(e == &engine && id == 0);
    app.state = (enum gm_app_state)gm_model_next(GM_MODEL_APP, app.state, event);
    return true;
}

const struct gm_client *gm_group_clients(const struct gm_group *group)
{
    (void)group;
    return &client;
}

void gm_engine_call(struct gm_engine *e)
{
    assert_ptr_equal(e, &engine);
    calls++;
}

/* ---- the world ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&stat_area, 0, sizeof stat_area);
    client = (struct gm_client){.stat = &stat_area};
    app = (struct gm_app){.state = GM_APP_RUNNING, .client = &client, .stat = &stat_area};
    engine = (struct gm_engine){.now = GM_S, .apps = &app};
    engine.config.max_apps = 1;
    engine.config.idle_ns = IDLE;
    client.engines[0] = &engine;
    queries = wants = rests = wastes = calls = 0;
    query = 0;
    is_group = false;
    gm_engine_begin_work(&engine, 0, true);
    gm_engine_sample(&engine);
    return 0;
}

static void submit(void)
{
    atomic_fetch_add(&stat_area.slot[0].calls, 1);
}

static void answer(uint32_t is_quiet, uint32_t had_none)
{
    const struct gm_msg_quiet quiet = {.query = query, .is_quiet = is_quiet, .had_none = had_none};
    gm_engine_quiet(&engine, 0, &quiet);
}

/* Time passes; it submits every `every` ns (0: never), and answers after `late` ns (UINT64_MAX: not
 * at all). */
static void pass(uint64_t ns, uint64_t every, uint64_t late)
{
    uint32_t seen = queries;
    uint64_t asked_at = GM_TIME_NEVER;
    for (const uint64_t end = engine.now + ns; engine.now < end;) {
        engine.now += GM_MS;
        if (every != 0 && engine.now / GM_MS % (every / GM_MS) == 0)
            submit();
        if (asked_at != GM_TIME_NEVER && engine.now - asked_at >= late) {
            asked_at = GM_TIME_NEVER;
            answer(1, 0);
        }
        if (engine.now >= engine.sample_at)
            gm_engine_sample(&engine);
        if (queries != seen && late == 0)
            answer(1, 1);
        else if (queries != seen)
            asked_at = engine.now;
        seen = queries;
    }
}

/* ---- tests ---- */

static void who_submits_nothing_is_asked_once(void **state)
{
    (void)state;
    pass(2 * IDLE, 0, 0);
    assert_int_equal(queries, 1);
    assert_int_equal(rests, 1);
    pass(GM_S, 0, 0);
    assert_int_equal(queries, 1);
    assert_int_equal(wants, 0);
    submit();
    pass(GM_S, 0, 0);
    assert_int_equal(wants, 1);
    assert_int_equal(queries, 2);
}

/* Whatever its threads wait for: its work ends first, and --idle counts from there. */
static void work_that_lasts_is_work_until_it_ends(void **state)
{
    (void)state;
    pass(GM_S, 0, UINT64_MAX);
    assert_int_equal(queries, 1);
    assert_int_equal(rests, 0);
    answer(1, 0);
    pass(IDLE - GM_MS, 0, 0);
    assert_int_equal(rests, 0);
    pass(IDLE / 2, 0, 0);
    assert_int_equal(rests, 1);
    assert_int_equal(queries, 1);
}

/* An answer to what was asked before says nothing of what was submitted since. */
static void answer_is_of_its_question(void **state)
{
    (void)state;
    pass(IDLE, 0, UINT64_MAX);
    assert_int_equal(queries, 1);
    submit();
    answer(1, 1);
    assert_int_equal(app.idle.quiet_at, 0);
    pass(2 * IDLE, 0, UINT64_MAX);
    assert_int_equal(queries, 2);
    assert_int_equal(rests, 0);
}

static void who_hardly_uses_its_turn_loses_it_when_others_wait(void **state)
{
    (void)state;
    pass(2 * GM_S, 10 * GM_MS, 0);
    assert_int_equal(queries + wastes, 0); /* nobody waits */
    engine.decision.n_next = 1;
    pass(GM_S, 10 * GM_MS, 0);
    assert_int_equal(wastes, 1);
    assert_int_equal(rests, 0);
    assert_in_range(queries, GM_UNUSED_LOOKS, GM_S / GM_ASK_AGAIN_NS);
    is_group = true; /* others of it may use the turn */
    pass(2 * GM_S, 10 * GM_MS, 0);
    assert_int_equal(wastes, 1);
}

/* --idle may be longer than it takes to see that a turn is not used. */
static void who_submits_nothing_is_no_waste(void **state)
{
    (void)state;
    engine.config.idle_ns = 2 * GM_S;
    engine.decision.n_next = 1;
    pass(1900 * GM_MS, 0, 0);
    submit();
    pass(1900 * GM_MS, 0, 0);
    assert_int_equal(wastes, 0);
}

/* A thread inside a call that gives the GPU nothing to do: it is not idle, and uses nothing. */
static void who_is_inside_for_nothing_is_waste(void **state)
{
    (void)state;
    engine.decision.n_next = 1;
    atomic_store(&stat_area.slot[0].inside, true);
    pass(2 * GM_S, 0, 0);
    assert_int_equal(rests, 0);
    assert_in_range(wastes, 1, 3);
}

/* On a busy machine the question itself takes a moment, each time. */
static void who_is_asked_late_is_idle(void **state)
{
    (void)state;
    engine.decision.n_next = 1;
    for (uint64_t ns = 0; ns < 2 * IDLE; ns += 10 * GM_MS) {
        pass(10 * GM_MS, 0, UINT64_MAX);
        answer(1, 0);
    }
    assert_int_equal(rests, 1);
    assert_int_equal(wastes, 0);
}

/* Each of them ends before the GPU is asked. */
static void many_small_kernels_are_work(void **state)
{
    (void)state;
    engine.decision.n_next = 1;
    pass(2 * GM_S, GM_MS, 0);
    assert_int_equal(wastes, 0);
}

static void work_now_and_then_keeps_it(void **state)
{
    (void)state;
    engine.decision.n_next = 1;
    for (unsigned i = 0; i < 10; i++) {
        pass(400 * GM_MS, 10 * GM_MS, 0);
        pass(60 * GM_MS, 10 * GM_MS, 20 * GM_MS); /* the GPU has work when it is asked */
    }
    assert_int_equal(wastes, 0);
    for (unsigned i = 0; i < 100; i++) { /* it cannot tell: a capture is open */
        pass(20 * GM_MS, 10 * GM_MS, UINT64_MAX);
        answer(0, 0);
    }
    assert_int_equal(wastes, 0);
}

/* The answer to a daemon before may be on its way while the program comes back to this one. */
static void answer_to_another_close_is_none(void **state)
{
    (void)state;
    struct gm_msg_drained drained = {.epoch = 1, .status = GM_DRAIN_QUIET};
    app.state = GM_APP_DRAINING;
    app.gate.epoch = 2;
    app.places.is_held = true; /* so nothing else follows when it is quiet */
    gm_engine_drained(&engine, 0, &drained);
    assert_int_equal(app.state, GM_APP_DRAINING);
    drained.epoch = 2;
    gm_engine_drained(&engine, 0, &drained);
    assert_int_equal(app.state, GM_APP_PAUSED);
}

/* Also where nobody can look whether its process stands still. */
static void who_owes_nothing_any_more_is_not_silent(void **state)
{
    (void)state;
    gm_engine_note_owing(&engine, 0, true);
    assert_int_equal(client.stop, GM_WHY_SILENT);
    assert_int_equal(calls, 1);
    gm_engine_note_owing(&engine, 0, false);
    assert_int_equal(client.stop, GM_WHY_NONE);
    assert_int_equal(calls, 2);
}

int main(void)
{
#define test(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        test(who_submits_nothing_is_asked_once),
        test(work_that_lasts_is_work_until_it_ends),
        test(answer_is_of_its_question),
        test(who_hardly_uses_its_turn_loses_it_when_others_wait),
        test(who_submits_nothing_is_no_waste),
        test(who_is_inside_for_nothing_is_waste),
        test(who_is_asked_late_is_idle),
        test(many_small_kernels_are_work),
        test(work_now_and_then_keeps_it),
        test(answer_to_another_close_is_none),
        test(who_owes_nothing_any_more_is_not_silent),
    };
    return cmocka_run_group_tests_name("engine_idle", tests, NULL, NULL);
}
