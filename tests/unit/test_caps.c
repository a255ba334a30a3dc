/*
 * daemon/engine/caps: what programs of the daemon before are promised on the host until they are
 * back. The table is real, and the engine around it is this test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/core/table.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/memory/files.h"
#include "daemon/memory/stores.h"

enum { APPS = 6, CHUNKS = 128, FRAMES = 128, PAGES = 64 };

/* ---- the engine ---- */

static struct gm_engine *engine;
static struct gm_client clients[APPS];
static struct gm_host host;
static uint64_t on_host; /* that can be mapped */

void gm_engine_call(struct gm_engine *e)
{
    (void)e;
}

void gm_engine_feed_size(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    fail(); /* who is lost is unknown to the scheduler */
}

void gm_engine_hold_at_once(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    fail();
}

void gm_engine_need_budget(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
}

void gm_engine_need_places(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
}

void gm_engine_want_places(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
}

void gm_engine_want_memory(struct gm_engine *e)
{
    (void)e;
}

void gm_host_ask(struct gm_engine *e)
{
    (void)e;
}

void gm_host_promise(struct gm_engine *e)
{
    (void)e;
}

uint64_t gm_host_limit(const struct gm_engine *e)
{
    (void)e;
    return on_host;
}

uint64_t gm_host_limit_alone(const struct gm_engine *e)
{
    (void)e;
    return on_host;
}

uint64_t gm_host_limit_soon(const struct gm_engine *e)
{
    (void)e;
    return on_host;
}

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    (void)stores, (void)tier;
    return 0;
}

uint32_t gm_files_for_frames(void)
{
    return UINT32_MAX;
}

uint64_t gm_engine_withheld(const struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    return 0;
}

bool gm_engine_is_left_behind(const struct gm_engine *e, uint32_t frame)
{
    (void)e, (void)frame;
    return false;
}

uint32_t gm_engine_leaving_with(const struct gm_engine *e, uint32_t frame, uint32_t but)
{
    (void)e, (void)frame, (void)but;
    return GM_NONE;
}

/* ---- programs ---- */

/* The daemon before had an app with `on_gpu` chunks of 2 MiB on the GPU and `on_host` mapped on the
 * host. */
static void lost(uint32_t id, uint32_t uid, uint32_t on_gpu, uint32_t mapped)
{
    struct gm_table *table = engine->table;
    const uint64_t bytes = (on_gpu + mapped) * GM_CHUNK_MIN;
    assert_true(gm_table_add_app(table, id, uid));
    for (uint32_t i = 0; i < on_gpu + mapped; i++) {
        const uint64_t va = (uint64_t)(id + 1) << 40 | i * 2 * GM_CHUNK_MIN;
        const uint32_t at = gm_table_add_allocation(table, id, va, GM_CHUNK_MIN);
        gm_table_put(table, table->allocations[at].first, i >= on_gpu);
    }
    assert_int_equal(table->apps[id].committed, bytes);
    assert_int_equal(table->apps[id].on_host, mapped * GM_CHUNK_MIN);
    gm_table_set_lost(table, id, true);
    struct gm_client *client = &clients[id];
    *client =
        (struct gm_client){.id = id, .uid = uid, .owner = uid, .lost_at = 1, .engines = {engine}};
    engine->apps[id] = (struct gm_app){.state = GM_APP_LOST, .uid = uid, .client = client};
}

static void alone(uint32_t id)
{
    assert_int_equal(gm_group_add(NULL, &clients[id]), 0);
}

static uint64_t beyond(uint32_t id)
{
    return engine->table->apps[id].beyond / GM_CHUNK_MIN;
}

static int set_up(void **state)
{
    (void)state;
    memset(clients, 0, sizeof clients);
    host = (struct gm_host){.window = 0};
    on_host = PAGES * GM_CHUNK_MIN;
    engine = calloc(1, sizeof *engine);
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->users = calloc(APPS, sizeof *engine->users);
    engine->host = &host;
    engine->config.max_apps = APPS;
    engine->config.engines = 1;
    engine->config.budget = 20 * GM_CHUNK_MIN;
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, FRAMES));
    engine->table = gm_table_init(engine->table_memory, APPS, CHUNKS, FRAMES, 20 * GM_CHUNK_MIN);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        gm_group_remove(&clients[id]);
    free(engine->table_memory);
    free(engine->users);
    free(engine->apps);
    free(engine);
    return 0;
}

/* What can be on the GPU comes back to it; what does not fit stays on the host. */
static void test_uncapped(void **state)
{
    (void)state;
    lost(0, 1000, 6, 8);
    alone(0);
    lost(1, 1000, 10, 15); /* larger than the GPU, which has 20 */
    alone(1);
    lost(2, 1001, 25, 0); /* on its way */
    alone(2);
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0), 0);
    assert_int_equal(beyond(1), 5);
    assert_int_equal(beyond(2), 0);
}

/* What a cap keeps from the GPU stays on the host, also what the driver keeps of that. */
static void test_cap(void **state)
{
    (void)state;
    lost(0, 1000, 6, 8);
    alone(0);
    engine->apps[0].cap.bytes = 9 * GM_CHUNK_MIN;
    lost(1, 1000, 6, 8);
    alone(1);
    engine->apps[1].cap.bytes = 9 * GM_CHUNK_MIN;
    engine->apps[1].driver = 2 * GM_CHUNK_MIN;
    lost(2, 1000, 0, 3);
    alone(2);
    engine->apps[2].cap.bytes = GM_CHUNK_MIN;
    engine->apps[2].driver = 50 * GM_CHUNK_MIN;
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0), 5);
    assert_int_equal(beyond(1), 7);
    assert_int_equal(beyond(2), 3);
}

/* All programs of a user have a total of the GPU: who comes first has it. */
static void test_user(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 3; id++) {
        lost(id, id == 2 ? 1001 : 1000, 4, 5);
        alone(id);
        engine->apps[id].cap.user_gpu = 11 * GM_CHUNK_MIN;
    }
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0), 2);
    assert_int_equal(beyond(1), 5);
    assert_int_equal(beyond(2), 0);
}

/* A group is one app: together they fit, or have one cap, whoever it was said of. */
static void test_group(void **state)
{
    static struct gm_groups groups; /* it is there until the end */
    struct gm_group *group;
    char why[128];
    (void)state;
    lost(0, 1000, 10, 5);
    lost(1, 1000, 5, 10);
    assert_int_equal(gm_groups_find(&groups, "g", 1000, &group, why, sizeof why), 0);
    assert_int_equal(gm_group_add(group, &clients[0]), 0);
    assert_int_equal(gm_group_add(group, &clients[1]), 0);
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0) + beyond(1), 10); /* of 30 */
    engine->apps[1].cap.bytes = 17 * GM_CHUNK_MIN;
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0) + beyond(1), 13);
}

/* Pinned memory has room for less than was promised: nobody is promised more than there is. */
static void test_short(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 3; id++) {
        lost(id, 1000, 0, 6);
        alone(id);
        engine->apps[id].cap.bytes = GM_CHUNK_MIN;
    }
    on_host = 12 * GM_CHUNK_MIN + 2 * GM_ROOM_ROUNDING;
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0), 5);
    assert_int_equal(beyond(1), 5);
    assert_int_equal(beyond(2), 2);
    assert_true(gm_room_on_host(engine->table->beyond, engine->table->beyond_apps) <= on_host);
}

/* Those that are back, and those that have ended, are as they were. */
static void test_others(void **state)
{
    (void)state;
    lost(0, 1000, 10, 15);
    alone(0);
    engine->apps[0].state = GM_APP_PAUSED;
    lost(1, 1000, 10, 15);
    alone(1);
    engine->apps[1].state = GM_APP_GONE;
    gm_engine_promise_lost(engine);
    assert_int_equal(beyond(0), 0);
    assert_int_equal(beyond(1), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(uncapped), TEST(cap), TEST(user), TEST(group), TEST(short), TEST(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
