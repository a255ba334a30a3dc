/* engine/step/timeslices: what programs are told of their timeslices, and when. The engines around
 * it are this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/features.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/turns.h"

#define APPS 4u
#define GPUS 2u
#define ALICE 4000001u
#define BOB 4000002u

/* A program is on the first GPU, and on the second one too if it is so said. */
static struct gm_engine engines[GPUS], *engine = &engines[0];
static struct gm_app apps[GPUS][APPS];
static struct gm_timeslice_app running[GPUS][APPS];
static struct gm_client clients[APPS];
static struct gm_stat stats[APPS];
static struct gm_ctl ctls[APPS];
static enum gm_sched_class classes[APPS];
static uint32_t weights[APPS];
static unsigned told, emitted;
static uint64_t told_us[APPS];

bool gm_engine_account(const struct gm_engine *e, uint32_t id, struct gm_sched_account *account)
{
    (void)e;
    *account = (struct gm_sched_account){.level = 1, .policy.weight = weights[id]};
    return weights[id] != 0;
}

uint32_t gm_engine_user_of(const struct gm_engine *e, uint32_t id)
{
    return (uint32_t)e->apps[id].uid;
}

enum gm_sched_class gm_engine_class(const struct gm_engine *e, uint32_t id)
{
    (void)e;
    return classes[id];
}

bool gm_group_is_several(const struct gm_engine *e, uint32_t id)
{
    (void)e, (void)id;
    return false;
}

void gm_engine_emit(struct gm_engine *e, const struct gm_event *event)
{
    (void)e;
    assert_int_equal(event->kind, GM_EVENT_TIMESLICE);
    emitted++;
}

void gm_engine_say(struct gm_engine *e, uint32_t id, enum gm_msg_type type, const void *message)
{
    (void)e;
    assert_int_equal(type, GM_MSG_TIMESLICE);
    told_us[id] = ((const struct gm_msg_timeslice *)message)->us;
    told++;
}

static void come(uint32_t on, uint32_t id, uint32_t uid)
{
    apps[on][id] =
        (struct gm_app){.client = &clients[id], .stat = &stats[id], .ctl = &ctls[id], .uid = uid};
    apps[on][id].state = GM_APP_RUNNING;
    clients[id].id = id;
    clients[id].engines[on] = &engines[on];
    classes[id] = GM_CLASS_AUTO;
    weights[id] = GM_SCHED_WEIGHT;
}

static int set_up(void **state)
{
    (void)state;
    memset(engines, 0, sizeof engines);
    memset(apps, 0, sizeof apps);
    memset(clients, 0, sizeof clients);
    memset(stats, 0, sizeof stats);
    for (uint32_t i = 0; i < sizeof stats / sizeof stats[0]; i++)
        atomic_store(&stats[i].features_off, GM_FEATURE_PARK); /* nobody can be held */
    memset(ctls, 0, sizeof ctls);
    memset(told_us, 0, sizeof told_us);
    told = emitted = 0;
    for (uint32_t i = 0; i < GPUS; i++) {
        engines[i].apps = apps[i];
        engines[i].running = running[i];
        engines[i].config.max_apps = APPS;
        engines[i].config.latency_mode = GM_LATENCY_TIMESLICE;
        engines[i].now = 100 * GM_S;
    }
    come(0, 0, ALICE);
    come(0, 1, BOB);
    come(0, 2, BOB);
    return 0;
}

/* So many rounds, 10 ms after each other. What programs were told in them. */
static unsigned rounds(unsigned n)
{
    const unsigned before = told;
    for (; n > 0; n--) {
        engine->now += 10 * GM_MS;
        gm_engine_tell_timeslices(engine);
    }
    assert_int_equal(told, emitted);
    return told - before;
}

static void expect(uint64_t alice, uint64_t bob, uint64_t bob_too)
{
    const uint64_t us[] = {alice, bob, bob_too};
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(told_us[i], us[i]);
        assert_int_equal(engine->apps[i].policy.timeslice_us, us[i]);
    }
}

static void test_once_a_second(void **state)
{
    (void)state;
    assert_int_equal(rounds(1), 3);
    expect(4096, 2048, 2048);
    assert_int_equal(rounds(300), 0);
    /* One comes and goes, as fast as it can: that is looked at once a second. */
    unsigned n = 0;
    for (unsigned i = 0; i < 1000; i++) {
        engine->apps[2].idle.is_idle = i % 3 == 0;
        n += rounds(1);
    }
    assert_in_range(n, 1, 3 * 10);
    engine->apps[2].idle.is_idle = true;
    rounds(101);
    expect(0, 0, engine->apps[2].policy.timeslice_us);
}

static void test_who_has_work(void **state)
{
    (void)state;
    engine->apps[2].is_stopped = true;
    rounds(1);
    expect(0, 0, 0);
    engine->apps[2].is_stopped = false;
    engine->apps[0].state = GM_APP_PAUSED;
    rounds(101);
    expect(0, 0, 0);
    engine->apps[0].state = GM_APP_RUNNING;
    rounds(101);
    expect(4096, 2048, 2048);
    /* Who comes in the place of another one begins with the driver's own. */
    come(0, 0, BOB);
    clients[0] = (struct gm_client){.engines = {engine}};
    rounds(1);
    assert_int_equal(engine->apps[0].policy.timeslice_us, 0);
    rounds(101);
    assert_int_equal(engine->apps[1].policy.timeslice_us, 0);
    weights[0] = 2 * GM_SCHED_WEIGHT;
    rounds(101);
    expect(4096, 2048, 2048);
}

/* Who is latency-critical waits for nothing, and others have theirs at once when that is over. */
static void test_critical(void **state)
{
    (void)state;
    rounds(1);
    classes[0] = GM_CLASS_LATENCY;
    assert_int_equal(rounds(1), 3);
    expect(GM_TIMESLICE_CRITICAL_US, GM_TIMESLICE_SHARED_US, GM_TIMESLICE_SHARED_US);
    classes[0] = GM_CLASS_AUTO;
    assert_int_equal(rounds(1), 3);
    expect(4096, 2048, 2048);
    /* Without a mode for these, parts are all there is. */
    engine->config.latency_mode = GM_LATENCY_OFF;
    classes[0] = GM_CLASS_LATENCY;
    assert_int_equal(rounds(101), 0);
}

/* It is told nothing, and the others go by it. */
static void test_without_timeslices(void **state)
{
    (void)state;
    atomic_store(&stats[0].features_off, GM_FEATURE_TIMESLICE);
    rounds(1);
    expect(0, 1024, 1024);
    /* Those under MPS have one together. */
    atomic_store(&stats[0].features_off, 0);
    atomic_store(&stats[1].features_off, GM_FEATURE_TIMESLICE | GM_FEATURE_ISOLATION);
    atomic_store(&stats[2].features_off, GM_FEATURE_TIMESLICE | GM_FEATURE_ISOLATION);
    rounds(101);
    expect(0, 0, 0);
}

/* A program has one timeslice on all its GPUs. */
static void test_two_gpus(void **state)
{
    (void)state;
    rounds(1);
    come(1, 0, ALICE);
    come(1, 3, ALICE);
    weights[3] = 3 * GM_SCHED_WEIGHT; /* there it has a fourth */
    gm_engine_tell_timeslices(&engines[1]);
    assert_int_equal(apps[1][0].policy.timeslice_us, 2048);
    assert_int_equal(told_us[0], 2048);
    assert_int_equal(told_us[3], 6144);
}

/* What it had on a GPU where it is alone now, rests or has no turn counts no more on the other. */
static void test_left_on_one_of_two(void **state)
{
    (void)state;
    come(1, 0, ALICE);
    come(1, 3, ALICE);
    weights[3] = 3 * GM_SCHED_WEIGHT;
    for (int how = 0; how < 3; how++) {
        engines[1].now += 2 * GM_S;
        gm_engine_tell_timeslices(&engines[1]);
        rounds(101);
        assert_int_equal(told_us[0], 2048);
        apps[1][3].is_stopped = how == 0;
        apps[1][0].idle.is_idle = how == 1;
        if (how == 2)
            apps[1][0].state = GM_APP_PAUSED;
        engines[1].now += 2 * GM_S;
        gm_engine_tell_timeslices(&engines[1]);
        rounds(101);
        assert_int_equal(told_us[0], 4096);
        apps[1][3].is_stopped = apps[1][0].idle.is_idle = false;
        apps[1][0].state = GM_APP_RUNNING;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_once_a_second, set_up),
        cmocka_unit_test_setup(test_who_has_work, set_up),
        cmocka_unit_test_setup(test_critical, set_up),
        cmocka_unit_test_setup(test_without_timeslices, set_up),
        cmocka_unit_test_setup(test_two_gpus, set_up),
        cmocka_unit_test_setup(test_left_on_one_of_two, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
