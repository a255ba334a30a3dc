/*
 * Who gets a frame that a chunk leaves (daemon/engine/step/shares.c, act/frames.c, act/exits.c),
 * in a real table. A daemon died while a chunk of one program left a frame, and another program may
 * have mapped that already. The second one leaves before it has said what it has mapped, or
 * unmapped it, and its process lives on: nobody else may get the frame until that has ended.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/features.h"
#include "daemon/core/table_check.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/shares.h"
#include "daemon/memory/files.h"
#include "tests/unit/turns.h"

enum { LEAVES, MAPS, OTHER, APPS = 4, CHUNKS = 16 };

static struct gm_engine *engine;
static struct gm_table *table;
static uint32_t n_destroyed, n_dropped;
static uint32_t chunk, frame; /* of LEAVES; MAPS may have mapped it */

/* ---- what is around it ---- */

void gm_engine_again(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
}

void gm_engine_replan(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
}

void gm_engine_back_off(struct gm_engine *e, enum gm_retry retry)
{
    (void)e, (void)retry;
    fail();
}

void gm_engine_back_off_app(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    fail();
}

void gm_engine_went_well(struct gm_engine *e, enum gm_retry retry)
{
    (void)e, (void)retry;
    fail();
}

void gm_engine_batch(struct gm_engine *e, uint32_t app, enum gm_batch_kind kind, uint32_t item)
{
    assert_ptr_equal(e, engine);
    assert_int_equal(kind, GM_BATCH_DROP);
    assert_int_equal(item, frame);
    assert_int_equal(app, LEAVES);
    n_dropped++;
}

void gm_engine_emit(struct gm_engine *e, const struct gm_event *event)
{
    (void)e, (void)event;
    fail();
}

uint32_t gm_files_for_frames(void)
{
    return 0;
}

uint32_t gm_files_left_for_frames(void)
{
    return 0;
}

uint32_t gm_files_limit(void)
{
    return 0;
}

void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page)
{
    (void)stores, (void)tier, (void)page;
}

struct gm_action *gm_engine_post_surely(struct gm_engine *e, enum gm_action_kind kind)
{
    static struct gm_action action;
    assert_ptr_equal(e, engine);
    assert_int_equal(kind, GM_ACTION_DESTROY);
    return &action;
}

/* What is to be destroyed is. */
static void reap(void)
{
    gm_engine_reap(engine);
    while (engine->n_ending > 0) {
        assert_int_equal(engine->ending[0], frame);
        n_destroyed++;
        gm_engine_destroyed(engine, frame, false);
    }
}

/* ---- the scene ---- */

static struct gm_client client;
static bool has_hung_up;
static int session;

static int set_up(void **state)
{
    (void)state;
    n_destroyed = n_dropped = 0;
    client.lease = -1;
    has_hung_up = true;
    engine = calloc(1, sizeof *engine);
    engine->config.max_apps = APPS;
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, CHUNKS));
    engine->table = table = gm_table_init(engine->table_memory, APPS, CHUNKS, CHUNKS, 1 << 30);
    engine->apps = calloc(APPS, sizeof *engine->apps);
    for (uint32_t id = 0; id < 3; id++) {
        assert_true(gm_table_add_app(table, id, 1000));
        engine->apps[id].client = &client;
        engine->apps[id].state = GM_APP_PAUSED;
        engine->apps[id].session = (void *)&session;
    }
    gm_table_add_allocation(table, LEAVES, 1ull << 40, GM_CHUNK_MIN);
    chunk = table->allocations[table->apps[LEAVES].allocations.head].first;
    to_new_frame(table, chunk);
    frame = table->chunks[chunk].frame;
    assert_true(gm_table_import(table, frame, LEAVES));
    assert_true(gm_table_evict(table, chunk, 0));
    gm_table_end_map(table, chunk, false);

    /* As table_adopt.c leaves it: the ledger says that MAPS was told to map the frame. */
    gm_frame_at(table, frame)->mapper = MAPS;
    assert_true(gm_table_import(table, frame, MAPS));
    engine->apps[MAPS].state = GM_APP_LOST;
    engine->apps[MAPS].exit.is_awaited = true;
    gm_table_set_lost(table, MAPS, true);
    assert_true(gm_table_is_awaited(table, frame));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(gm_table_check(table));
    free(engine->apps);
    free(engine->table_memory);
    free(engine);
    return 0;
}

/* It leaves, and its process lives on. */
static void leave(void)
{
    engine->apps[MAPS].state = GM_APP_GONE;
    engine->apps[MAPS].session = NULL;
    gm_engine_end_awaiting(engine, MAPS);
    assert_false(gm_table_is_awaited(table, frame));
}

static void end_process(void)
{
    engine->apps[MAPS].exit.is_awaited = false;
    gm_engine_copies_ended(engine, MAPS);
}

/* Its program drops the frame, as it was asked to. */
static void drop(void)
{
    assert_int_equal(n_dropped, 1);
    gm_table_end_drop(table, frame, LEAVES, true);
}

/* It ends after the process, or waits for `next` then. */
static void check_kept(uint32_t next)
{
    assert_int_equal(table->frames[frame].state, GM_FRAME_CONDEMNED);
    assert_int_equal(table->frames[frame].exit_of, MAPS);
    drop();
    reap();
    assert_int_equal(n_destroyed, 0);
    end_process();
    reap();
    assert_int_equal(n_destroyed, next == GM_NONE);
    assert_int_equal(table->frames[frame].exit_of, next);
}

/* ---- tests ---- */

static void settle(void)
{
    assert_int_equal(table->chunks[chunk].frame, GM_NONE);
    gm_table_end_copy(table, chunk, false);
    assert_true(gm_table_settle(table, chunk));
}

/* The copy out ends, or was not needed, while the process lives. */
static void test_left(void **state)
{
    (void)state;
    leave();
    assert_true(gm_engine_is_mapped_by_left(engine, frame));
    gm_engine_leave_frame(engine, chunk, 0);
    settle();
    check_kept(GM_NONE);
}

/* A copy that is under way reads the frame until it ends. */
static void test_copied(void **state)
{
    (void)state;
    leave();
    gm_table_begin_copy(table, chunk);
    gm_engine_leave_frame(engine, chunk, 7);
    assert_int_equal(table->frames[frame].fence, 7);
    settle();
    assert_int_equal(table->frames[frame].state, GM_FRAME_CONDEMNED);
    drop();
    end_process();
    reap();
    assert_int_equal(n_destroyed, 0);
}

/* Nobody needs the data any more. */
static void test_freed(void **state)
{
    (void)state;
    leave();
    gm_engine_give_up_frame(engine, chunk);
    settle();
    check_kept(GM_NONE);
}

/* The process ends before the chunk has left: the frame is free. */
static void test_ended(void **state)
{
    (void)state;
    leave();
    end_process();
    assert_false(gm_engine_is_mapped_by_left(engine, frame));
    gm_engine_leave_frame(engine, chunk, 0);
    settle();
    assert_int_equal(table->frames[frame].state, GM_FRAME_FREE);
}

/* It says HELLO again, and may lie: it is watched on as long as it may reach data of another. */
static void test_hello_again(void **state)
{
    (void)state;
    leave();
    gm_engine_exit_late(engine, MAPS);
    assert_true(engine->apps[MAPS].exit.is_awaited);
    gm_engine_leave_frame(engine, chunk, 0);
    settle();
    assert_int_equal(table->frames[frame].state, GM_FRAME_CONDEMNED);
    drop();
    reap();
    assert_int_equal(n_destroyed, 1); /* it is nobody's, and counts no more */
}

/* It is still awaited: the frame is nobody's, until it is known what it has mapped. */
static void test_awaited(void **state)
{
    (void)state;
    assert_false(gm_engine_is_mapped_by_left(engine, frame));
    gm_engine_leave_frame(engine, chunk, 0);
    settle();
    assert_int_equal(table->frames[frame].state, GM_FRAME_USED);
    assert_int_equal(table->frames[frame].chunk, GM_NONE);
    leave();
    check_kept(GM_NONE);
}

/* Two processes that left may have it mapped: it counts until both have ended. */
static void test_two_left(void **state)
{
    (void)state;
    assert_true(gm_table_import(table, frame, OTHER));
    engine->apps[OTHER].state = GM_APP_GONE;
    engine->apps[OTHER].exit.is_awaited = true;
    leave();
    gm_engine_leave_frame(engine, chunk, 0);
    settle();
    check_kept(OTHER);
    engine->apps[OTHER].exit.is_awaited = false;
    gm_engine_copies_ended(engine, OTHER);
    reap();
    assert_int_equal(n_destroyed, 1);
}

/* Its connection has ended, and nobody can see when its process does: whatever that still has
 * mapped is not for others. */
static void test_unseen(void **state)
{
    (void)state;
    leave();
    end_process();
    gm_frame_at(table, frame)->mapper = LEAVES;
    engine->apps[LEAVES].state = GM_APP_GONE;
    engine->apps[LEAVES].session = NULL;
    gm_engine_give_up_frame(engine, chunk);
    settle();
    assert_int_equal(table->frames[frame].state, GM_FRAME_CONDEMNED);
    reap();
    assert_int_equal(n_destroyed, 1);
}

/* Nothing of LEAVES is on the GPU, as far as that is known; and the frame is free, or ends. */
static void check_seen(uint32_t features_off, bool was_idle, bool is_late, bool is_free)
{
    static struct gm_stat stat;
    leave();
    end_process();
    gm_frame_at(table, frame)->mapper = LEAVES;
    atomic_store(&stat.features_off, features_off);
    engine->apps[LEAVES].stat = &stat;
    engine->apps[LEAVES].state = GM_APP_GONE;
    engine->apps[LEAVES].session = NULL;
    engine->apps[LEAVES].exit.has_hung_up = has_hung_up;
    engine->apps[LEAVES].exit.was_idle = was_idle;
    engine->apps[LEAVES].exit.is_late = is_late;
    gm_engine_give_up_frame(engine, chunk);
    settle();
    assert_int_equal(table->frames[frame].state, is_free ? GM_FRAME_FREE : GM_FRAME_CONDEMNED);
}

/* Its process was seen to end. */
static void test_seen(void **state)
{
    (void)state;
    client.lease = 5;
    check_seen(GM_FEATURE_PARK, false, false, true);
}

/* ... and its work may go on in the MPS server. */
static void test_seen_in_mps(void **state)
{
    (void)state;
    client.lease = 5;
    check_seen(GM_FEATURE_ISOLATION, false, false, false);
}

/* ... but it had none. */
static void test_seen_idle(void **state)
{
    (void)state;
    client.lease = 5;
    check_seen(GM_FEATURE_ISOLATION, true, false, true);
}

/* ... as is known when it leaves. */
static void test_leaves_idle(void **state)
{
    const struct gm_app *app = &engine->apps[OTHER];
    (void)state;
    engine->now = 7;
    gm_engine_await_exit(engine, OTHER, false, true);
    assert_true(app->exit.was_idle && !app->exit.has_hung_up && app->exit.left_at == 7);
    gm_engine_await_exit(engine, OTHER, true, false);
    assert_true(!app->exit.was_idle && app->exit.has_hung_up);
}

/* It was waited for long enough. */
static void test_late(void **state)
{
    (void)state;
    client.lease = 5;
    check_seen(0, true, true, false);
}

/* Others have, or had, what it had open, as far as is known. */
static void test_copied_files(void **state)
{
    (void)state;
    client.lease = 5;
    has_hung_up = false;
    check_seen(0, true, false, false);
}

/* Nobody can see its process. */
static void test_not_seen(void **state)
{
    (void)state;
    check_seen(0, true, false, false);
}

/* Who may only have imported the frame, as any app may, is in nobody's way. */
static void test_imported(void **state)
{
    (void)state;
    gm_frame_at(table, frame)->mapper = LEAVES;
    leave();
    gm_engine_leave_frame(engine, chunk, 0);
    settle();
    assert_int_equal(table->frames[frame].state, GM_FRAME_FREE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(left),        TEST(copied),  TEST(freed),       TEST(ended),
        TEST(hello_again), TEST(awaited), TEST(two_left),    TEST(unseen),
        TEST(imported),    TEST(seen),    TEST(seen_in_mps), TEST(seen_idle),
        TEST(leaves_idle), TEST(late),    TEST(not_seen),    TEST(copied_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
