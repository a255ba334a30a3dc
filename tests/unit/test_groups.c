/* Which groups become one when programs share memory (daemon/engine/state/groups.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"

#define MIB ((uint64_t)1 << 20)

enum { GPUS = 3, APPS = 8, CHUNKS = 64 };

static struct gm_engine engines[GPUS];
static struct gm_client clients[APPS];
static struct gm_groups named;
static uint32_t n_called;

void gm_engine_call(struct gm_engine *engine)
{
    (void)engine;
    n_called++;
}

static int set_up(void **state)
{
    (void)state;
    memset(clients, 0, sizeof clients);
    memset(&named, 0, sizeof named);
    for (uint32_t i = 0; i < GPUS; i++) {
        engines[i] = (struct gm_engine){.config = {.index = i, .max_apps = APPS}};
        engines[i].apps = calloc(APPS, sizeof *engines[i].apps);
        engines[i].table_memory = calloc(1, gm_table_size(APPS, CHUNKS, CHUNKS));
        if (!engines[i].apps || !engines[i].table_memory)
            return -1;
        engines[i].table = gm_table_init(engines[i].table_memory, APPS, CHUNKS, CHUNKS, 64 * MIB);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        if (clients[id].group)
            gm_group_remove(&clients[id]);
    assert_null(named.first);
    for (uint32_t i = 0; i < GPUS; i++) {
        free(engines[i].apps);
        free(engines[i].table_memory);
    }
    return 0;
}

/* A client of that user in the group of that name, or in one of its own. */
static struct gm_client *make(uint32_t id, uid_t uid, const char *name)
{
    struct gm_client *client = &clients[id];
    struct gm_group *group = NULL;
    char why[128];
    *client = (struct gm_client){.id = id,
                                 .uid = uid,
                                 .pid = (pid_t)(100 + id),
                                 .session = (struct gm_session *)(uintptr_t)(id + 1)};
    if (name)
        assert_int_equal(gm_groups_find(&named, name, uid, &group, why, sizeof why), 0);
    assert_int_equal(gm_group_add(group, client), 0);
    return client;
}

/* It is an app of that GPU, of which it needs so much. */
static void enter(struct gm_client *client, uint32_t gpu, uint64_t bytes)
{
    struct gm_engine *engine = &engines[gpu];
    struct gm_app *app = &engine->apps[client->id];
    client->engines[gpu] = engine;
    app->client = client;
    app->session = client->session;
    app->uid = client->uid;
    assert_true(gm_table_add_app(engine->table, client->id, (uint32_t)client->uid));
    if (bytes > 0)
        assert_int_not_equal(gm_table_add_allocation(engine->table, client->id, 64 * MIB, bytes),
                             GM_NONE);
    gm_group_joined(engine, client->id);
}

static void test_two_gpus(void **state)
{
    (void)state;
    struct gm_client *a = make(5, 1000, NULL), *b = make(2, 1000, NULL);
    enter(a, 0, 32 * MIB);
    enter(b, 1, 32 * MIB);
    assert_null(gm_group_of(&engines[0], 5));
    n_called = 0;
    assert_int_equal(gm_group_unite(a, b), GM_UNION_MADE);
    assert_int_equal(n_called, 2);
    assert_ptr_equal(a->group, b->group);
    assert_ptr_equal(gm_group_clients(a->group), b); /* in the order of ids */
    assert_ptr_equal(b->next, a);
    assert_string_equal(gm_group_name(a->group), "pid 102");
    assert_ptr_equal(gm_group_of(&engines[0], 5), a->group);
    assert_int_equal(gm_group_unite(a, b), GM_UNION_NONE);
    /* Each GPU follows once. */
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        assert_true(gm_group_take_union(&engines[gpu], gpu == 0 ? 5 : 2));
        assert_false(gm_group_take_union(&engines[gpu], gpu == 0 ? 5 : 2));
    }

    /* The third one comes in from either side; who leaves leaves the others together. */
    struct gm_client *c = make(1, 1000, NULL);
    enter(c, 2, 0);
    assert_int_equal(gm_group_unite(c, a), GM_UNION_MADE);
    assert_ptr_equal(c->group, b->group);
    assert_string_equal(gm_group_name(a->group), "pid 101");
    assert_true(gm_group_take_union(&engines[1], 2));
    assert_true(gm_group_take_union(&engines[0], 5));
    gm_group_remove(a);
    assert_ptr_equal(c->group, b->group);
    assert_non_null(gm_group_of(&engines[1], 2));
}

static void test_apart(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, NULL), *b = make(1, 1000, NULL), *c = make(2, 1001, NULL);
    enter(a, 0, 0);
    enter(b, 0, 0);
    enter(c, 1, 0);
    assert_int_equal(gm_group_unite(a, b), GM_UNION_NONE); /* one GPU */
    assert_int_equal(gm_group_unite(c, a), GM_UNION_NONE); /* two users */
    assert_ptr_not_equal(a->group, b->group);
    assert_ptr_not_equal(a->group, c->group);
    enter(b, 1, 0);
    assert_int_equal(gm_group_unite(a, b), GM_UNION_MADE);
    assert_ptr_not_equal(b->group, c->group);
}

/* Who shares memory on one GPU is asked for again when one of them comes to another GPU. */
static void test_kin(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, NULL), *b = make(1, 1000, NULL), *c = make(2, 1000, NULL),
                     *d = make(3, 1001, NULL), *e = make(4, 1000, NULL);
    enter(a, 0, 0);
    enter(b, 0, 0);
    enter(c, 0, 0);
    enter(d, 0, 0);
    enter(e, 0, 0);
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(gm_group_unite(a, b), GM_UNION_NONE);
        assert_int_equal(gm_group_unite(b, c), GM_UNION_NONE);
        assert_int_equal(gm_group_unite(e, c), GM_UNION_NONE);
        assert_int_equal(gm_group_unite(a, d), GM_UNION_NONE); /* another user is nobody's kin */
    }
    assert_null(gm_group_take_kin(a)); /* all on one GPU */
    gm_group_remove(e);
    enter(a, 1, 0);
    for (int i = 0; i < 2; i++) {
        const struct gm_client *kin = gm_group_take_kin(a);
        assert_non_null(kin);
        assert_int_equal(gm_group_unite(a, kin), GM_UNION_MADE);
    }
    assert_null(gm_group_take_kin(a));
    assert_ptr_equal(b->group, a->group);
    assert_ptr_equal(c->group, a->group);
    assert_ptr_not_equal(d->group, a->group);
}

/* Of two groups that become one, the kin are of both. */
static void test_kin_of_both(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, "left"), *b = make(1, 1000, NULL), *c = make(2, 1000, NULL);
    enter(b, 0, 0);
    enter(c, 0, 0);
    enter(a, 1, 0);
    assert_int_equal(gm_group_unite(b, c), GM_UNION_NONE);
    assert_int_equal(gm_group_unite(b, a), GM_UNION_MADE); /* the group of b is no more */
    assert_ptr_equal(gm_group_take_kin(a), c);
    assert_int_equal(gm_group_unite(a, c), GM_UNION_MADE);
    assert_null(gm_group_take_kin(a));
}

/* One that cannot be united is returned once. */
static void test_kin_without_room(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, NULL), *b = make(1, 1000, NULL);
    enter(a, 0, 40 * MIB);
    enter(b, 0, 32 * MIB);
    assert_int_equal(gm_group_unite(a, b), GM_UNION_NONE);
    enter(b, 1, 0);
    assert_ptr_equal(gm_group_take_kin(b), a);
    assert_int_equal(gm_group_unite(b, a), GM_UNION_LARGE);
    assert_null(gm_group_take_kin(b));
}

static void test_names(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, "left"), *b = make(1, 1000, "right"),
                     *c = make(2, 1000, NULL);
    enter(a, 0, 0);
    enter(b, 1, 0);
    enter(c, 2, 0);
    assert_int_equal(gm_group_unite(a, b), GM_UNION_NAMED);
    assert_int_equal(gm_group_unite(c, b), GM_UNION_MADE);
    assert_string_equal(gm_group_name(c->group), "right");
    assert_int_equal(gm_group_unite(c, a), GM_UNION_NAMED);
    /* Who says the name later is in it, too. */
    assert_ptr_equal(make(3, 1000, "right")->group, c->group);
}

static void test_room(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, NULL), *b = make(1, 1000, NULL);
    enter(a, 0, 40 * MIB);
    enter(b, 0, 32 * MIB);
    enter(b, 1, 64 * MIB);
    assert_int_equal(gm_group_unite(a, b), GM_UNION_LARGE);
    assert_ptr_not_equal(a->group, b->group);
    struct gm_client *c = make(2, 1000, NULL);
    enter(c, 0, 24 * MIB);
    enter(c, 1, 0);
    assert_int_equal(gm_group_unite(a, c), GM_UNION_MADE);
}

/* It is of a daemon before, and has what the ledger says. */
static void lose(struct gm_client *client)
{
    client->session = NULL;
    client->lost_at = 1;
    for (uint32_t i = 0; i < GPUS; i++)
        if (client->engines[i]) {
            engines[i].apps[client->id].session = NULL;
            engines[i].apps[client->id].state = GM_APP_LOST;
        }
}

/* Who has yet to come back counts with what it needs. */
static void test_awaited(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, NULL), *b = make(1, 1000, NULL), *c = make(2, 1000, NULL);
    enter(a, 0, 40 * MIB);
    enter(b, 0, 32 * MIB);
    enter(b, 1, 0);
    enter(c, 0, 16 * MIB);
    lose(a);
    lose(c);
    assert_int_equal(gm_group_unite(b, a), GM_UNION_LARGE);
    assert_int_equal(gm_group_unite(b, c), GM_UNION_MADE);
    /* One that uses two GPUs is known to, before it is back. */
    struct gm_client *d = make(3, 1000, NULL), *e = make(4, 1000, NULL);
    enter(d, 0, 0);
    enter(d, 1, 0);
    enter(e, 0, 0);
    lose(d);
    assert_int_equal(gm_group_unite(e, d), GM_UNION_MADE);
}

/* Who cannot come back runs without this daemon, or ends: nobody's turn is its. */
static void test_cut(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, "left"), *b = make(1, 1000, NULL);
    enter(a, 0, 0);
    enter(b, 1, 0);
    lose(b);
    b->is_cut = true;
    assert_int_equal(gm_group_unite(a, b), GM_UNION_NONE);
    assert_ptr_not_equal(a->group, b->group);
    b->is_cut = false;
    assert_int_equal(gm_group_unite(a, b), GM_UNION_MADE);
}

/* ... and with the others of its group nobody shares anything by it. */
static void test_cut_of_group(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, NULL), *b = make(1, 1000, "right"),
                     *c = make(2, 1000, "right");
    enter(a, 0, 0);
    enter(b, 1, 0);
    enter(c, 1, 0);
    lose(b);
    b->is_cut = true;
    assert_int_equal(gm_group_unite(a, b), GM_UNION_NONE);
    assert_ptr_not_equal(a->group, c->group);
    assert_null(gm_group_take_kin(a));
    assert_int_equal(gm_group_unite(a, c), GM_UNION_MADE);
}

/* Who runs goes on, and who was to yield in its own group still is. */
static void test_rounds(void **state)
{
    (void)state;
    struct gm_client *a = make(0, 1000, "left"), *b = make(1, 1000, "left"),
                     *c = make(2, 1000, NULL);
    enter(a, 0, 0);
    enter(b, 1, 0);
    enter(c, 2, 0);
    gm_group_yield(&engines[0], 0);
    assert_int_not_equal(engines[1].apps[1].group.round, a->group->round);
    assert_int_equal(gm_group_unite(c, a), GM_UNION_MADE);
    assert_int_equal(engines[0].apps[0].group.round, a->group->round);
    assert_int_not_equal(engines[1].apps[1].group.round, a->group->round);
    assert_int_equal(engines[2].apps[2].group.round, a->group->round);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_two_gpus),
                                       TEST(test_apart),
                                       TEST(test_kin),
                                       TEST(test_kin_of_both),
                                       TEST(test_kin_without_room),
                                       TEST(test_names),
                                       TEST(test_room),
                                       TEST(test_awaited),
                                       TEST(test_cut),
                                       TEST(test_cut_of_group),
                                       TEST(test_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
