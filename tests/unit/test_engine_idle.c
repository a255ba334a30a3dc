/*
 * daemon/engine/idle: who is taken for idle, and who is asked. The engine around it is this test:
 * apps that are words in memory, a clock that it moves, and a note of what the scheduler and the
 * apps were told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/state/engine.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/state/state.h"

#define APPS 3u
#define IDLE (100 * GM_MS)

static struct gm_engine *engine;
static struct gm_app *app; /* number 1, the one that is looked at */
static unsigned wants[APPS], idles[APPS], queries[APPS];
static uint64_t asked[APPS], ago[APPS];

void gm_engine_feed(struct gm_engine *e, enum gm_sched_event_kind kind, uint32_t id, uint64_t bytes)
{
    assert_ptr_equal(e, engine);
    assert_int_equal(kind, GM_SCHED_WANT);
    assert_int_equal(bytes, 0);
    wants[id]++;
}

void gm_engine_feed_idle(struct gm_engine *e, uint32_t id, uint64_t ago_ns)
{
    assert_ptr_equal(e, engine);
    idles[id]++;
    ago[id] = ago_ns;
}

static unsigned n_aged[APPS], n_taken[APPS];

void gm_engine_age_spares(struct gm_engine *e, uint32_t id)
{
    assert_ptr_equal(e, engine);
    n_aged[id]++;
}

uint64_t gm_engine_take_spares(struct gm_engine *e, uint32_t id, uint64_t least)
{
    assert_ptr_equal(e, engine);
    assert_int_equal(least, UINT64_MAX);
    n_taken[id]++;
    return 0;
}

static int send_message(struct gm_session *session, enum gm_msg_type type, const void *body,
                        const void *entries, uint32_t count, const int *fds, int n_fds)
{
    uint32_t id = (uint32_t)(uintptr_t)session - 1;
    const struct gm_msg_query *query = body;
    assert_in_range(id, 0, APPS - 1);
    assert_int_equal(type, GM_MSG_QUERY);
    assert_true(entries == NULL && count == 0 && fds == NULL && n_fds == 0);
    assert_true(query->query != asked[id]); /* the numbers are distinct */
    asked[id] = query->query;
    queries[id]++;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    if (engine == NULL || (engine->apps = calloc(APPS, sizeof *engine->apps)) == NULL)
        return -1;
    engine->config = (struct gm_engine_config){
        .max_apps = APPS, .idle_ns = IDLE, .outlet = {.send = send_message}};
    engine->now = GM_S;
    engine->n_apps = 2;
    memset(wants, 0, sizeof wants);
    memset(idles, 0, sizeof idles);
    memset(queries, 0, sizeof queries);
    memset(asked, 0, sizeof asked);
    memset(n_aged, 0, sizeof n_aged);
    memset(n_taken, 0, sizeof n_taken);
    for (uint32_t id = 0; id < 2; id++) {
        engine->apps[id].state = id == 0 ? GM_APP_PAUSED : GM_APP_RUNNING;
        engine->apps[id].session = (struct gm_session *)(uintptr_t)(id + 1);
        engine->apps[id].idle.active_at = engine->now;
        engine->apps[id].stat = calloc(1, sizeof *engine->apps[id].stat);
        if (engine->apps[id].stat == NULL)
            return -1;
    }
    app = &engine->apps[1];
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        free(engine->apps[id].stat);
    free(engine->apps);
    free(engine);
    return 0;
}

static void call_in(uint32_t slot)
{
    atomic_fetch_add(&app->stat->slot[slot].calls, 1);
}

/* Let time go by, with a look whenever one is due. */
static void pass(uint64_t ns)
{
    uint64_t end = engine->now + ns;
    while (engine->sample_at <= end) {
        engine->now = engine->sample_at > engine->now ? engine->sample_at : engine->now;
        gm_engine_sample(engine);
        assert_true(engine->sample_at > engine->now);
        assert_true(engine->sample_at <= engine->now + 3 * IDLE);
    }
    engine->now = end;
}

static void answer(uint64_t query, uint32_t is_quiet)
{
    const struct gm_msg_quiet quiet = {.query = query, .is_quiet = is_quiet};
    gm_engine_quiet(engine, 1, &quiet);
}

static void test_idle_when_quiet(void **state)
{
    (void)state;
    call_in(0);
    pass(IDLE / 4); /* the first look sees the call */
    assert_int_equal(queries[1], 0);
    pass(IDLE / 2);
    assert_int_equal(queries[1], 1);
    pass(10 * GM_S); /* its work goes on: it is busy, and asked no more */
    assert_int_equal(queries[1], 1);
    assert_int_equal(idles[1], 0);
    assert_false(app->idle.is_idle);
    assert_true(n_aged[1] > 10 && n_taken[1] == 0);

    answer(asked[1], 1);
    assert_int_equal(idles[1], 1);
    assert_int_equal(n_taken[1], 1); /* who rests keeps nothing */
    assert_true(n_aged[0] > 10);     /* it can free while it is paused */
    assert_int_equal(ago[1], 0);     /* its work had gone on, nobody knows until when */
    assert_true(app->idle.is_idle);
    answer(asked[1], 1); /* once is enough */
    pass(10 * GM_S);
    assert_int_equal(idles[1], 1);
    assert_int_equal(queries[1], 1);

    /* It does something: it wants the GPU, and the next idle period has a query of its own. */
    call_in(0);
    pass(3 * IDLE); /* while nobody is busy nobody looks sooner */
    assert_int_equal(wants[1], 1);
    assert_false(app->idle.is_idle);
    pass(3 * IDLE);
    assert_int_equal(queries[1], 2);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 2);
    assert_int_equal(wants[1], 1);
    assert_int_equal(queries[0], 0); /* whose gate is closed needs no asking */
}

/* Who is paused and waits for nothing is idle, unasked, until it says WANT. */
static void test_paused(void **state)
{
    (void)state;
    app->state = GM_APP_PAUSED;
    pass(IDLE / 2);
    call_in(0); /* as when one returns because what it waited for was drained */
    pass(IDLE / 4);
    assert_int_equal(app->idle.active_at, engine->now);
    pass(IDLE - 1);
    assert_int_equal(idles[1], 0);
    pass(IDLE / 4 + 1);
    assert_int_equal(idles[1], 1);
    assert_int_equal(ago[1], 0); /* it was charged for nothing */
    assert_true(app->idle.is_idle);
    pass(10 * IDLE);
    assert_int_equal(idles[1], 1);
    gm_engine_wants(engine, 1);
    assert_int_equal(wants[1], 1);
    assert_false(app->idle.is_idle);
    pass(3 * IDLE + IDLE / 4);
    assert_int_equal(idles[1], 2); /* it thought better of it */
    assert_int_equal(queries[1], 0);
}

/* A thread that waits for the gate, a call that waits, an allocation, and exchanges. */
static void test_paused_and_waiting(void **state)
{
    (void)state;
    uint32_t *counts[] = {&app->allocs.pending, &app->allocs.waiting};
    app->state = GM_APP_PAUSED;
    atomic_store(&app->stat->waiting, 1);
    pass(10 * IDLE);
    atomic_store(&app->stat->waiting, 0);
    for (unsigned i = 0; i < 2; i++) {
        *counts[i] = 1;
        pass(10 * IDLE);
        *counts[i] = 0;
    }
    atomic_store(&app->stat->slot[5].blocked, 1);
    pass(10 * IDLE);
    atomic_store(&app->stat->slot[5].blocked, 0);
    app->places.is_held = true;
    pass(10 * IDLE);
    assert_int_equal(idles[1], 0);
    app->places.is_held = false;
    app->idle.active_at = engine->now;
    pass(4 * IDLE);
    assert_int_equal(idles[1], 1);
}

/* Whoever waits for the gate is not looked at more often for it. */
static void test_looks_at_the_paused(void **state)
{
    (void)state;
    app->state = GM_APP_PAUSED;
    engine->apps[0].idle.is_idle = true;
    gm_engine_sample(engine);
    assert_int_equal(engine->sample_at, engine->now + IDLE / 4);
    atomic_store(&app->stat->waiting, 1);
    gm_engine_sample(engine);
    assert_int_equal(engine->sample_at, engine->now + 3 * IDLE);
    gm_engine_sample_soon(engine); /* something changed */
    assert_int_equal(engine->sample_at, engine->now + IDLE / 4);
    engine->now += IDLE / 8;
    gm_engine_sample_soon(engine);
    assert_int_equal(engine->sample_at, engine->now + IDLE / 8);
    engine->config.idle_ns = 0;
    gm_engine_sample_soon(engine);
    assert_int_equal(engine->sample_at, engine->now + GM_MS);
}

static void test_calls_void_the_question(void **state)
{
    (void)state;
    pass(3 * IDLE);
    assert_int_equal(queries[1], 1);
    uint64_t first = asked[1];

    /* Seen by a look. */
    call_in(0);
    pass(IDLE / 2);
    answer(first, 1);
    assert_int_equal(idles[1], 0);
    pass(2 * IDLE);
    assert_int_equal(queries[1], 2);
    answer(first, 1);
    assert_int_equal(idles[1], 0);

    /* Seen by nobody before the answer. */
    call_in(0);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 0);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 0);

    /* Under way when the answer comes. */
    pass(2 * IDLE);
    assert_int_equal(queries[1], 3);
    atomic_store(&app->stat->slot[2].inside, 1);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 0);
    atomic_store(&app->stat->slot[2].inside, 0);
    pass(2 * IDLE);
    assert_int_equal(queries[1], 4);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 1);
}

static void test_work_that_may_be_left(void **state)
{
    (void)state;
    assert_true(gm_engine_may_have_work(engine, 1));
    pass(3 * IDLE);
    assert_true(gm_engine_may_have_work(engine, 1)); /* it has not answered */
    answer(asked[1], 1);
    assert_true(app->idle.is_idle);
    assert_false(gm_engine_may_have_work(engine, 1));
    atomic_store(&app->stat->slot[2].inside, 1);
    assert_true(gm_engine_may_have_work(engine, 1));
    atomic_store(&app->stat->slot[2].inside, 0);
    assert_false(gm_engine_may_have_work(engine, 1));
    call_in(0); /* nobody looked since */
    assert_true(gm_engine_may_have_work(engine, 1));
    pass(3 * IDLE); /* if it runs on as an idle one, that call is still to be noticed */
    assert_false(app->idle.is_idle);
}

static void test_wrong_answers(void **state)
{
    (void)state;
    answer(0, 1);
    answer(1, 1);
    pass(3 * IDLE);
    answer(asked[1] + 1, 1);
    answer(asked[1] - 1, 1);
    answer(UINT64_MAX, 1);
    assert_int_equal(idles[1], 0);
    app->state = GM_APP_DRAINING;
    answer(asked[1], 1);
    app->state = GM_APP_GONE;
    answer(asked[1], 1);
    assert_int_equal(idles[1], 0);
    app->state = GM_APP_RUNNING;
    answer(asked[1], 2); /* neither yes nor no */
    assert_int_equal(idles[1], 0);
    assert_int_equal(queries[1], 1);
    pass(2 * IDLE);
    assert_int_equal(queries[1], 2);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 1);
}

/* What is said about the time before a CLOSE says nothing about the time after. */
static void test_close_voids_the_question(void **state)
{
    (void)state;
    pass(3 * IDLE);
    uint64_t first = asked[1];
    app->gate.epoch++; /* closed ... */
    app->state = GM_APP_PAUSED;
    atomic_store(&app->stat->waiting, 1);
    pass(5 * IDLE);
    atomic_store(&app->stat->waiting, 0);
    app->state = GM_APP_RUNNING; /* ... and open again */
    app->idle.active_at = engine->now;
    answer(first, 1);
    assert_int_equal(idles[1], 0);
    pass(IDLE / 2);
    assert_int_equal(queries[1], 1);
    pass(2 * IDLE);
    assert_int_equal(queries[1], 2);
    answer(first, 1);
    assert_int_equal(idles[1], 0);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 1);
}

/* Who cannot tell is asked again after --idle, twice that, ..., a second. */
static void test_asked_again(void **state)
{
    (void)state;
    static const uint64_t wait_ms[] = {100, 200, 400, 800, 1000, 1000, 1000};
    pass(3 * IDLE);
    for (unsigned i = 0; i < sizeof wait_ms / sizeof *wait_ms; i++) {
        assert_int_equal(queries[1], i + 1);
        answer(asked[1], 0);
        pass(wait_ms[i] * GM_MS - 1);
        assert_int_equal(queries[1], i + 1);
        pass(IDLE / 2 + 1);
    }
    assert_int_equal(idles[1], 0);

    /* It did something: that counts no more. */
    call_in(0);
    answer(asked[1], 0);
    pass(3 * IDLE);
    unsigned n = queries[1];
    answer(asked[1], 0);
    pass(IDLE + IDLE / 2);
    assert_int_equal(queries[1], n + 1);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 1);

    /* A long --idle is never cut short. */
    engine->config.idle_ns = 5 * GM_S;
    app->idle.is_idle = false;
    engine->sample_at = 0;
    for (unsigned i = 0; i < 3; i++) {
        app->idle.active_at = app->idle.ask_at = app->idle.ask_wait = 0;
        app->idle.quiet_at = 0;
        gm_engine_sample(engine);
        answer(asked[1], 0);
        assert_int_equal(app->idle.ask_at, engine->now + 5 * GM_S);
    }
}

/* What an app does while nobody waits says what it is when somebody does. */
static void test_alone(void **state)
{
    (void)state;
    engine->n_apps = 1;
    pass(2 * IDLE);
    assert_int_equal(queries[1], 1);
}

/* It is idle when no call returned for --idle, and is not charged since it said that its work is
 * over; before that the GPU may have had work. */
static void test_idle_since(void **state)
{
    (void)state;
    call_in(0);
    pass(IDLE / 4);
    uint64_t active_at = app->idle.active_at;
    while (queries[1] == 0)
        pass(IDLE / 4);
    engine->now += GM_MS;
    uint64_t quiet_at = engine->now;
    answer(asked[1], 1);
    assert_int_equal(idles[1], 0); /* it may go on at any moment */
    while (idles[1] == 0)
        pass(GM_MS);
    assert_true(engine->now >= active_at + IDLE && engine->now < active_at + 2 * IDLE);
    assert_int_equal(ago[1], engine->now - quiet_at);
    assert_int_equal(queries[1], 1);
}

/* Every thread counts, wherever its words are, and so does an allocation. */
static void test_what_is_activity(void **state)
{
    static const uint32_t slots[] = {0, 1, 63, 64, 127, GM_SLOTS - 1};
    (void)state;
    for (unsigned i = 0; i < sizeof slots / sizeof *slots; i++) {
        struct gm_slot *slot = &app->stat->slot[slots[i]];
        app->idle.active_at = engine->now;
        app->idle.is_asked = false;
        unsigned n = queries[1];
        for (int round = 0; round < 20; round++) {
            call_in(slots[i]);
            pass(IDLE / 4);
        }
        atomic_store(&slot->inside, 1);
        pass(10 * IDLE);
        atomic_store(&slot->blocked, 1);
        atomic_store(&slot->inside, 0);
        pass(10 * IDLE);
        assert_int_equal(queries[1], n);
        atomic_store(&slot->blocked, 0);
        pass(2 * IDLE);
        assert_int_equal(queries[1], n + 1);
    }
    /* Threads in all slots, of which one does something. */
    for (uint32_t i = 0; i < GM_SLOTS; i++)
        call_in(i);
    pass(IDLE / 4);
    for (uint32_t i = 0; i < GM_SLOTS; i += 77) {
        unsigned n = queries[1];
        call_in(i);
        pass(IDLE / 4);
        assert_int_equal(queries[1], n);
    }
    pass(2 * IDLE);
    unsigned n = queries[1];
    app->allocs.pending = 1;
    pass(10 * IDLE);
    app->allocs.pending = 0;
    app->allocs.waiting = 1;
    pass(10 * IDLE);
    assert_int_equal(queries[1], n);
    answer(asked[1], 1);
    assert_int_equal(idles[1], 0);
    /* Not one that nobody waits for. */
    app->allocs.pending = app->allocs.ahead = 2;
    app->allocs.waiting = 0;
    pass(10 * IDLE);
    assert_int_equal(queries[1], n + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_idle_when_quiet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_paused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_paused_and_waiting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_looks_at_the_paused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls_void_the_question, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work_that_may_be_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close_voids_the_question, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_asked_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_idle_since, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_activity, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("engine_idle", tests, NULL, NULL);
}
