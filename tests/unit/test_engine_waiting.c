/*
 * daemon/engine/waiting: how many requests may wait, what looking at them costs, and whose frames
 * are waited for. The engine around it is this test: tiers of so many chunks. The simulator of the
 * engine and core/admit's test show who gets memory, and when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/core/table_write.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/waiting.h"

#define APPS 5u
#define ROOM (100 * GM_CHUNK_MIN)

enum { OWNER, OTHER, LATE, NEW, LAST };

static struct gm_engine *engine;
static uint64_t taken;
static unsigned had[APPS], refused[APPS];
static uint64_t next_va;
static unsigned looks; /* at whether something can ever be had */

/* ---- what is around it ---- */

uint64_t gm_engine_left(const struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
    return ROOM - taken;
}

enum gm_why gm_engine_commit(struct gm_engine *e, uint32_t id, const struct gm_msg_alloc *alloc)
{
    if (alloc->bytes > gm_engine_left(e))
        return GM_WHY_FULL;
    taken += alloc->bytes;
    gm_app_at(e->table, id)->committed += alloc->bytes;
    had[id]++;
    return GM_WHY_NONE;
}

void gm_engine_make_room(struct gm_engine *e, uint32_t asker, uint64_t bytes)
{
    (void)e, (void)asker, (void)bytes; /* nobody keeps spares */
}

uint64_t gm_engine_take_spares(struct gm_engine *e, uint32_t id, uint64_t least)
{
    (void)e, (void)id, (void)least;
    return 0; /* nobody is short of files */
}

void gm_host_ask(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
}

bool gm_host_is_coming(const struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
    return false;
}

void gm_host_end_wait(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
}

void gm_engine_count_users(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
}

struct gm_room_input gm_engine_room_input(const struct gm_engine *e, uint32_t id)
{
    looks++;
    return (struct gm_room_input){.budget = UINT64_MAX,
                                  .cap = UINT64_MAX,
                                  .files = UINT64_MAX,
                                  .told = UINT64_MAX,
                                  .user_gpu = UINT64_MAX,
                                  .user_pinned = ROOM,
                                  .user.promised = e->table->apps[id].committed};
}

void gm_engine_refuse_alloc(struct gm_engine *e, uint32_t id, uint64_t cookie)
{
    (void)e;
    assert_int_equal(cookie, id);
    refused[id]++;
}

static enum gm_why reasons[APPS];

void gm_engine_refused(struct gm_engine *e, uint32_t id, uint64_t bytes, enum gm_why reason)
{
    (void)e;
    assert_true(bytes > 0);
    reasons[id] = reason;
}

static struct gm_client clients[APPS];

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    engine->config.max_apps = APPS;
    engine->config.patience_ns = 10 * GM_S;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->admit_apps = calloc(APPS, sizeof *engine->admit_apps);
    engine->table = calloc(1, sizeof *engine->table);
    engine->table->apps = calloc(APPS, sizeof *engine->table->apps);
    engine->table->first_condemned = GM_NONE;
    engine->waiting_tail = &engine->waiting;
    engine->now = GM_S;
    for (uint32_t id = 0; id < APPS; id++) {
        clients[id] = (struct gm_client){.is_admin = true};
        engine->apps[id].client = &clients[id];
        engine->apps[id].session = (struct gm_session *)(uintptr_t)(id + 1);
        engine->apps[id].stat = calloc(1, sizeof *engine->apps[id].stat);
    }
    taken = next_va = 0;
    memset(had, 0, sizeof had);
    memset(refused, 0, sizeof refused);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++) {
        gm_engine_forget_waiting(engine, id);
        free(engine->apps[id].stat);
    }
    free(engine->admit_apps);
    free(gm_app_at(engine->table, 0));
    free(engine->table);
    free(engine->apps);
    free(engine);
    return 0;
}

/* ---- what happens ---- */

/* An ALLOC, and the round that follows it. */
static void ask(uint32_t id, uint64_t chunks)
{
    const struct gm_msg_alloc alloc = {
        .cookie = id, .va = ++next_va, .bytes = chunks * GM_CHUNK_MIN};
    gm_engine_admit(engine, id, &alloc);
    gm_engine_admit_waiting(engine);
}

static void give_back(uint32_t id, uint64_t chunks)
{
    taken -= chunks * GM_CHUNK_MIN;
    gm_app_at(engine->table, id)->committed -= chunks * GM_CHUNK_MIN;
    gm_engine_admit_waiting(engine);
}

static void pass(uint64_t ns)
{
    engine->now += ns;
    gm_engine_admit_waiting(engine);
}

#define expect(id, n_had, n_refused)                                                               \
    do {                                                                                           \
        assert_int_equal(had[id], n_had);                                                          \
        assert_int_equal(refused[id], n_refused);                                                  \
    } while (0)

static void many_wait_and_die(void **state)
{
    (void)state;
    ask(OWNER, 80);
    engine->config.is_waiting_when_full = true;
    for (unsigned i = 0; i < 5000; i++)
        ask(OTHER, 50);
    expect(OTHER, 0, 5000 - 4096);
    assert_int_equal(engine->apps[OTHER].allocs.waiting, 4096);
    assert_true(gm_engine_is_waiting_at(engine, OTHER, 2));
    ask(LATE, 30);
    expect(LATE, 0, 0);
    gm_engine_forget_waiting(engine, OTHER);
    assert_int_equal(engine->apps[OTHER].allocs.waiting, 0);
    assert_false(gm_engine_is_waiting_at(engine, OTHER, 2));
    ask(NEW, 20); /* behind LATE, at the end of what is left of the list */
    expect(NEW, 0, 0);
    give_back(OWNER, 30);
    expect(LATE, 1, 0);
    expect(NEW, 1, 0);
    assert_ptr_equal(engine->waiting_tail, &engine->waiting);
}

/* One user's requests are few enough that looking at all of them costs others nothing. Those of
 * administrators are not bounded so. */
static void one_user_has_so_many(void **state)
{
    (void)state;
    const uid_t root = 0; /* of a container, but for LAST's */
    for (uint32_t id = 0; id < APPS; id++) {
        clients[id].owner = root;
        clients[id].is_admin = id == LAST;
    }
    clients[NEW].owner = root + 1;
    ask(OWNER, 80);
    engine->config.is_waiting_when_full = true;
    for (unsigned i = 0; i < GM_WAITING_OF_USER; i++)
        ask(i % 2 ? OTHER : LATE, 50);
    expect(OTHER, 0, 0);
    expect(LATE, 0, 0);
    ask(OTHER, 50);
    expect(OTHER, 0, 1);
    assert_int_equal(reasons[OTHER], GM_WHY_WAITING);
    ask(OTHER, 101);
    assert_int_equal(reasons[OTHER], GM_WHY_USER); /* it can never have that */
    ask(NEW, 50);
    expect(NEW, 0, 0);
    for (unsigned i = 0; i <= GM_WAITING_OF_USER; i++)
        ask(LAST, 50);
    expect(LAST, 0, 0);
}

/* Whether it can be had is asked once an app and round, however much of it waits. */
static void many_are_looked_at_once(void **state)
{
    (void)state;
    ask(OWNER, 80);
    engine->config.is_waiting_when_full = true;
    for (unsigned i = 0; i < 1000; i++)
        ask(i % 2 ? OTHER : LATE, 21 + i % 50);
    looks = 0;
    gm_engine_admit_waiting(engine);
    assert_in_range(looks, 1, APPS);
    gm_app_at(engine->table, OTHER)->committed =
        40 * GM_CHUNK_MIN; /* and what it cannot have any more is refused */
    gm_engine_admit_waiting(engine);
    assert_true(refused[OTHER] > 0);
    expect(LATE, 0, 0);
    for (const struct gm_admit_request *at = engine->waiting; at; at = at->next)
        assert_true(at->app != OTHER || at->bytes <= 60 * GM_CHUNK_MIN);
}

static void host_frames_that_end_are_waited_for(void **state)
{
    (void)state;
    struct gm_frame frame = {.is_host = true, .exit_of = GM_NONE, .next = GM_NONE};
    engine->table->frames = &frame;
    engine->table->first_condemned = 0;
    ask(OWNER, 80);
    ask(OTHER, 50);
    pass(GM_S);
    expect(OTHER, 0, 0);
    frame.silent = 1; /* whoever maps it does not answer */
    gm_engine_admit_waiting(engine);
    expect(OTHER, 0, 1);
}

/* ... and those of a program that has ended, until it is clear that its process goes on. */
static void host_frames_of_an_ended_program_are_waited_for(void **state)
{
    (void)state;
    static uint8_t imports[APPS * 8];
    struct gm_frame frame = {.is_host = true, .exit_of = LAST, .next = GM_NONE};
    assert_true(gm_table_row(1) <= 8);
    memset(imports, 0, sizeof imports);
    imports[LAST * gm_table_row(1)] = 1;
    engine->table->frames = &frame;
    engine->table->imports = imports;
    engine->table->max_frames = 1;
    engine->table->first_condemned = 0;
    engine->apps[LAST].state = GM_APP_GONE;
    engine->apps[LAST].exit.is_awaited = true;
    ask(OWNER, 80);
    ask(OTHER, 50);
    pass(GM_S);
    expect(OTHER, 0, 0);
    engine->apps[LAST].exit.is_late = true;
    frame.exit_of = GM_NONE;
    gm_engine_admit_waiting(engine);
    expect(OTHER, 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_wait_and_die, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_user_has_so_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_are_looked_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(host_frames_that_end_are_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(host_frames_of_an_ended_program_are_waited_for, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
