/*
 * daemon/engine/shares: what may be shared beside others, when it ends, and what needs many
 * messages. (Names and refusals are the simulator's.) The engine around it is this test: a real
 * chunk table, and a note of what the apps were told to map and unmap, which it answers as it
 * likes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/log.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/step/shares.h"
#include "tests/unit/turns.h"

#define APPS 4u
#define CHUNKS 512u
#define MIB (1ull << 20)
#define VA (1ull << 40)
#define AT (1ull << 41) /* where openers want it */

static struct gm_engine *engine;
static struct gm_batch sent[64]; /* not answered yet, oldest first */
static uint32_t n_sent;
static struct gm_msg_shared shared[APPS]; /* the newest answers, by app */
static struct gm_msg_opened opened[APPS];
static struct gm_msg_shut_is shut[APPS];
static unsigned n_shared[APPS], n_opened[APPS], n_shut[APPS], n_condemned, n_ended;

/* ---- what is around it ---- */

const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result)
{
    (void)cuda, (void)result;
    return "";
}

void gm_engine_feed_size(struct gm_engine *e, uint32_t id)
{
    assert_true(e == engine && id < APPS);
}

void gm_engine_update_room(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
}

static struct gm_client clients[APPS];

bool gm_engine_is_oversize(const struct gm_engine *e, uint32_t id)
{
    (void)e, (void)id;
    return false;
}

static uint64_t told; /* what is fixed, as programs were told */

void gm_engine_tell_room(struct gm_engine *e)
{
    told = e->table->fixed;
}

void gm_engine_fit(struct gm_engine *e, uint32_t id)
{
    const struct gm_table_app *entry = &e->table->apps[id];
    if (entry->held > entry->beyond)
        gm_table_set_beyond(e->table, id, entry->held);
}

static bool comes; /* memory on the host comes to the GPU, if the program is quiet */

bool gm_engine_want_exchange(struct gm_engine *e, uint32_t id)
{
    assert_true(id < e->config.max_apps);
    return comes;
}

void gm_engine_drop_shadows(struct gm_engine *e, uint32_t allocation)
{
    (void)e, (void)allocation;
}

void gm_engine_need_budget(struct gm_engine *e, uint32_t id)
{
    assert_true(id < e->config.max_apps);
}

static uint32_t groups[APPS]; /* by app */

bool gm_group_is_one(const struct gm_engine *e, uint32_t id, uint32_t other)
{
    (void)e;
    return groups[id] == groups[other];
}

static uint32_t n_united;  /* how often groups were to be united, */
static uint32_t united[2]; /* ... and whose, the last time */

enum gm_union gm_group_unite(const struct gm_client *client, const struct gm_client *partner)
{
    united[0] = (uint32_t)(client - clients);
    united[1] = (uint32_t)(partner - clients);
    n_united++;
    return GM_UNION_MADE;
}

static uint32_t kin = GM_NONE; /* one that shares memory with any */

const struct gm_client *gm_group_take_kin(const struct gm_client *client)
{
    const uint32_t found = kin;
    (void)client;
    kin = GM_NONE;
    return found == GM_NONE ? NULL : &clients[found];
}

const char *gm_group_name(const struct gm_group *group)
{
    (void)group;
    return "";
}

struct gm_room_input gm_engine_room_input(const struct gm_engine *e, uint32_t id)
{
    struct gm_room_input input = {.budget = gm_engine_offered(e),
                                  .fixed = e->table->fixed,
                                  .host = 64 * MIB,
                                  .host_taken = gm_room_beyond(e->table)};
    for (uint32_t other = 0; other < APPS; other++)
        input.own.promised += gm_group_is_one(e, id, other) ? gm_room_promised(e->table, other) : 0;
    return input;
}

void gm_engine_condemn(struct gm_engine *e, uint32_t frame, uint32_t exit_of)
{
    gm_table_condemn_frame(e->table, frame, GM_NONE);
    gm_table_end_frame(e->table, frame);
    n_condemned++;
    assert_int_equal(exit_of, GM_NONE); /* gm_engine_condemn finds who may reach it */
}

bool gm_engine_send_places(struct gm_engine *e, enum gm_batch_kind kind, struct gm_open *open,
                           const uint32_t *places, uint32_t n)
{
    assert_ptr_equal(e, engine);
    assert_true(n > 0 && n <= (kind == GM_BATCH_OPEN ? GM_ENTRIES_MAP : GM_ENTRIES_UNMAP));
    assert_true(n_sent < 64);
    struct gm_batch *batch = &sent[n_sent++];
    *batch = (struct gm_batch){.kind = kind, .open = open, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        assert_int_not_equal(open->share->places[places[i]].frame, GM_NONE);
        batch->items[i] = places[i];
    }
    return true;
}

void gm_engine_say(struct gm_engine *e, uint32_t id, enum gm_msg_type type, const void *body)
{
    assert_true(e->apps[id].session != NULL);
    if (type == GM_MSG_SHARED) {
        shared[id] = *(const struct gm_msg_shared *)body;
        n_shared[id]++;
    } else if (type == GM_MSG_OPENED) {
        opened[id] = *(const struct gm_msg_opened *)body;
        n_opened[id]++;
    } else {
        assert_int_equal(type, GM_MSG_SHUT_IS);
        shut[id] = *(const struct gm_msg_shut_is *)body;
        n_shut[id]++;
    }
}

void gm_engine_cut_off(struct gm_engine *e, uint32_t id, enum gm_refusal reason, const char *text)
{
    assert_int_equal(reason, GM_REFUSE_PROTOCOL);
    assert_true(e->apps[id].session != NULL && text != NULL);
    n_ended++;
}

/* The oldest batch is answered. */
static void answer(int32_t result)
{
    struct gm_batch batch = sent[0];
    assert_true(n_sent > 0);
    memmove(&sent[0], &sent[1], --n_sent * sizeof *sent);
    gm_engine_places_done(engine, &batch, result);
    assert_null(gm_table_check(engine->table));
}

static void answer_all(void)
{
    while (n_sent > 0)
        answer(0);
}

/* `bytes` of `app`, all of it on the GPU. Returns its address. */
static uint64_t give(uint32_t app, uint64_t bytes)
{
    static uint64_t next = VA;
    struct gm_table *table = engine->table;
    uint64_t va = next;
    next += bytes;
    uint32_t index = gm_table_add_allocation(table, app, va, bytes);
    assert_int_not_equal(index, GM_NONE);
    for (uint32_t c = table->allocations[index].first; c != GM_NONE; c = table->chunks[c].sibling) {
        to_new_frame(table, c);
    }
    return va;
}

/* ... all of it mapped on the host. */
static uint64_t give_on_host(uint32_t app, uint64_t bytes)
{
    static uint64_t next = VA / 4;
    static uint32_t page;
    struct gm_table *table = engine->table;
    const uint32_t index = gm_table_add_allocation(table, app, next, bytes);
    next += bytes;
    assert_int_not_equal(index, GM_NONE);
    for (uint32_t c = table->allocations[index].first; c != GM_NONE; c = table->chunks[c].sibling) {
        gm_table_put(table, c, true);
        to_tier(table, c, GM_TIER_PINNED, page++);
        assert_true(gm_table_map(table, c, gm_table_add_host_frame(table, c)));
        settle_chunk(table, c);
    }
    return table->allocations[index].va;
}

/* As engine_apps and engine_chunks do; the owner has unmapped it, or is gone. */
static void free_it(uint32_t app, uint64_t va)
{
    struct gm_table *table = engine->table;
    uint32_t index = gm_table_find_allocation(table, app, va);
    assert_int_not_equal(index, GM_NONE);
    gm_engine_unshare(engine, app, va);
    free_silently(table, index);
    for (uint32_t c = table->allocations[index].first, next; c != GM_NONE; c = next) {
        uint32_t frame = table->chunks[c].frame;
        next = table->chunks[c].sibling;
        if (table->frames[frame].share != 0)
            gm_engine_leave_share(engine, frame);
        else
            gm_table_free_frame(table, frame);
        if (gm_table_end_chunk(table, c))
            gm_table_end_allocation(table, index);
    }
    assert_null(gm_table_check(table));
}

static void share(uint32_t app, uint64_t va)
{
    static const uint64_t nonce[2] = {0x1234567890abcdef, 0xfedcba0987654321};
    gm_engine_share(engine, app, &(struct gm_msg_share){.cookie = 7, .va = va}, nonce);
    assert_int_equal(shared[app].cookie, 7);
    assert_null(gm_table_check(engine->table));
}

static struct gm_msg_open ask_for(uint32_t owner, uint64_t bytes)
{
    return (struct gm_msg_open){.cookie = 8,
                                .va = AT,
                                .bytes = bytes,
                                .share = shared[owner].share,
                                .nonce = {shared[owner].nonce[0], shared[owner].nonce[1]}};
}

static int32_t open_as(uint32_t app, const struct gm_msg_open *ask)
{
    unsigned before = n_opened[app];
    gm_engine_open_share(engine, app, ask);
    answer_all();
    assert_int_equal(n_opened[app], before + 1);
    assert_int_equal(opened[app].cookie, ask->cookie);
    return opened[app].result;
}

static int32_t shut_as(uint32_t app, uint64_t va)
{
    unsigned before = n_shut[app];
    gm_engine_shut(engine, app, &(struct gm_msg_shut){.cookie = 9, .va = va});
    answer_all();
    assert_int_equal(n_shut[app], before + 1);
    return shut[app].result;
}

static int set_up(void **state)
{
    (void)state;
    gm_log_open(-1, GM_LOG_ERROR, "test");
    engine = calloc(1, sizeof *engine);
    if (!engine)
        return -1;
    engine->config = (struct gm_engine_config){.max_apps = APPS, .budget = 512 * MIB};
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, CHUNKS));
    if (!engine->apps || !engine->table_memory)
        return -1;
    engine->table = gm_table_init(engine->table_memory, APPS, CHUNKS, CHUNKS, 512 * MIB);
    for (uint32_t id = 0; id < APPS; id++) {
        struct gm_app *app = &engine->apps[id];
        groups[id] = id;
        app->state = GM_APP_RUNNING;
        app->session = (struct gm_session *)(uintptr_t)(id + 1);
        app->uid = id == 3 ? 1001 : 1000;
        app->pid = (pid_t)(100 + id);
        app->client = &clients[id];
        app->ctl = calloc(1, sizeof *app->ctl);
        if (!app->ctl || !gm_table_add_app(engine->table, id, (uint32_t)app->uid))
            return -1;
    }
    n_sent = n_condemned = n_ended = 0;
    memset(n_opened, 0, sizeof n_opened);
    memset(n_shared, 0, sizeof n_shared);
    memset(n_shut, 0, sizeof n_shut);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gm_engine_close_shares(engine);
    for (uint32_t id = 0; id < APPS; id++)
        free(engine->apps[id].ctl);
    free(engine->table_memory);
    free(engine->apps);
    free(engine);
    return 0;
}

/* ---- tests ---- */

/* Nothing is shared that would leave another program too little to run. */
static void test_room_for_others(void **state)
{
    (void)state;
    gm_table_add_allocation(engine->table, 1, VA / 2, 320 * MIB); /* swapped out */
    uint64_t small = give(0, 128 * MIB), large = give(0, 128 * MIB);
    share(0, small);
    assert_int_equal(shared[0].result, 0);
    share(0, large); /* 320 + 256 > 512 */
    assert_int_equal(shared[0].result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(engine->table->fixed, 128 * MIB);
    /* what is freed while open is as much in the way */
    share(0, small);
    struct gm_msg_open ask = ask_for(0, 128 * MIB);
    assert_int_equal(open_as(2, &ask), 0);
    free_it(0, small);
    assert_int_equal(engine->table->orphaned, 128 * MIB);
    share(0, large);
    assert_int_equal(shared[0].result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(shut_as(2, AT), 0);
    share(0, large);
    assert_int_equal(shared[0].result, 0);
    assert_int_equal(engine->table->orphaned, 0);
}

/* ... or a group, whose members run together; its own members may. */
static void test_room_for_a_group(void **state)
{
    (void)state;
    groups[2] = groups[1];
    gm_table_add_allocation(engine->table, 1, VA / 2, 160 * MIB); /* swapped out */
    gm_table_add_allocation(engine->table, 2, VA / 2, 160 * MIB);
    const uint64_t large = give(0, 256 * MIB), own = give(1, 128 * MIB);
    share(0, large); /* 160 + 160 + 128 + 256 > 512 */
    assert_int_equal(shared[0].result, CUDA_ERROR_OUT_OF_MEMORY);
    share(1, own);
    assert_int_equal(shared[1].result, 0);
}

/* Freed while open: nobody opens it any more, who has it keeps it, and with the last it ends. */
static void test_freed_while_open(void **state)
{
    (void)state;
    uint64_t va = give(0, 64 * MIB);
    share(0, va);
    struct gm_msg_open ask = ask_for(0, 64 * MIB);
    assert_int_equal(open_as(1, &ask), 0);
    assert_int_equal(open_as(2, &ask), 0);
    free_it(0, va);
    assert_int_equal(n_condemned, 0);
    assert_int_equal(gm_engine_shared_bytes(engine, 0), 0);
    assert_int_equal(engine->table->orphaned, 64 * MIB);
    clients[1].again = ask.cookie; /* a daemon before had opened it, and the answer was lost */
    assert_int_equal(open_as(1, &ask), 0);
    clients[1].again = 0;
    ask.va += 64 * MIB;
    assert_int_equal(open_as(1, &ask), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(shut_as(2, AT), 0);
    assert_int_equal(n_condemned, 0);
    assert_int_equal(shut_as(1, AT), 0);
    assert_int_equal(n_condemned, 2);
    assert_null(engine->shares);
    assert_int_equal(engine->table->fixed, 0);
    assert_int_equal(engine->table->allocated, 0);
}

static void leave(uint32_t id, bool is_awaited)
{
    engine->apps[id].session = NULL;
    engine->apps[id].state = GM_APP_GONE;
    engine->apps[id].exit.is_awaited = is_awaited;
}

/* Who opens memory is to run with its owner, and nobody else is. */
static void test_runs_together(void **state)
{
    (void)state;
    uint64_t va = give(0, 64 * MIB);
    share(0, va);
    struct gm_msg_open ask = ask_for(0, 64 * MIB);
    n_united = 0;
    assert_int_equal(open_as(3, &ask), CUDA_ERROR_INVALID_VALUE); /* another user's */
    ask.nonce[0]++;
    assert_int_equal(open_as(1, &ask), CUDA_ERROR_INVALID_VALUE);
    ask.nonce[0]--;
    assert_int_equal(n_united, 0);
    assert_int_equal(open_as(2, &ask), 0);
    assert_int_equal(n_united, 1);
    assert_int_equal(united[0], 2);
    assert_int_equal(united[1], 0);
    assert_int_equal(shut_as(2, AT), 0);
    assert_int_equal(n_united, 1);
}

/* Both ends die, in either order: with the second one its memory ends. */
static void test_deaths(void **state)
{
    (void)state;
    for (int owner_first = 0; owner_first < 2; owner_first++) {
        uint64_t va = give(0, 64 * MIB);
        n_condemned = 0;
        share(0, va);
        struct gm_msg_open ask = ask_for(0, 64 * MIB);
        assert_int_equal(open_as(1, &ask), 0);
        if (owner_first) {
            leave(0, true);
            free_it(0, va);
            assert_int_equal(n_condemned, 0);
            leave(1, false); /* its process has ended already; the owner's has not */
            gm_engine_forget_opens(engine, 1);
        } else {
            leave(1, true);
            gm_engine_forget_opens(engine, 1);
            assert_int_equal(n_condemned, 0); /* the owner has it */
            leave(0, false);
            free_it(0, va);
        }
        assert_int_equal(n_condemned, 2);
        assert_null(engine->shares);
        assert_null(engine->opens);
        for (uint32_t id = 0; id < 2; id++) {
            engine->apps[id].state = GM_APP_RUNNING;
            engine->apps[id].exit.is_awaited = false;
            engine->apps[id].session = (struct gm_session *)(uintptr_t)(id + 1);
        }
    }
}

/* Many chunks go out a few batches at a time; what fails in the middle is taken back. */
static void test_many_batches(void **state)
{
    (void)state;
    uint32_t frames = 0;
    uint64_t va = 0;
    /* an allocation of 200 chunks of 2 MiB: made by hand, as the table cuts greedily */
    va = give(0, 62 * MIB);
    share(0, va);
    struct gm_share *one = engine->shares,
                    *many = calloc(1, sizeof *one + 200 * sizeof *one->places);
    assert_non_null(many);
    *many = *one;
    many->n = 200;
    many->left = 200;
    many->bytes = 400 * MIB;
    for (uint32_t i = 0; i < 200; i++)
        many->places[i] =
            (struct gm_share_place){.offset = i * 2 * MIB, .bytes = 2 * MIB, .frame = 0};
    engine->shares = many;
    free(one);

    struct gm_msg_open ask = ask_for(0, 400 * MIB);
    gm_engine_open_share(engine, 1, &ask);
    assert_int_equal(n_sent, 4); /* the rest waits for answers */
    for (uint32_t i = 0; i < n_sent; i++)
        frames += sent[i].n;
    assert_int_equal(frames, 4 * GM_WIRE_FDS);
    answer(0);
    assert_int_equal(n_sent, 4);
    answer(0);
    answer(CUDA_ERROR_OUT_OF_MEMORY);
    while (n_sent > 0 && sent[0].kind == GM_BATCH_OPEN)
        answer(0);
    assert_int_equal(n_opened[1], 0); /* first what was mapped is unmapped */
    frames = 0;
    while (n_sent > 0) {
        assert_int_equal(sent[0].kind, GM_BATCH_SHUT);
        for (uint32_t i = 0; i < sent[0].n; i++) /* not what failed: the third batch */
            assert_true(sent[0].items[i] < 2 * GM_WIRE_FDS || sent[0].items[i] >= 3 * GM_WIRE_FDS);
        frames += sent[0].n;
        answer(0);
    }
    assert_true(frames >= 3 * GM_WIRE_FDS && frames < 200);
    assert_int_equal(n_opened[1], 1);
    assert_int_equal(opened[1].result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(engine->opens);
    assert_int_equal(many->opens, 0);

    /* and as a whole */
    assert_int_equal(open_as(1, &ask), 0);
    gm_engine_shut(engine, 1, &(struct gm_msg_shut){.cookie = 9, .va = AT});
    assert_int_equal(n_sent, 2); /* 128 and 72 */
    gm_engine_shut(engine, 1, &(struct gm_msg_shut){.cookie = 10, .va = AT});
    assert_int_equal(shut[1].result, CUDA_ERROR_INVALID_VALUE); /* it is being shut */
    answer_all();
    assert_int_equal(shut[1].cookie, 9);
    assert_int_equal(shut[1].result, 0);
}

/* What lies on the host comes to the GPU first. What cannot is the owner's there, then nobody's,
 * until nobody has it open. */
static void test_on_host(void **state)
{
    (void)state;
    const uint64_t va = give_on_host(0, 32 * MIB), other = give_on_host(0, 64 * MIB);
    comes = true;
    engine->now = GM_S;
    share(0, va);
    assert_int_equal(shared[0].result, CUDA_ERROR_NOT_READY);
    assert_true(engine->table->chunks[engine->table->allocations[0].first].heat > 0);
    engine->now += GM_SHARE_COMES_NS - 1;
    share(0, va);
    assert_int_equal(shared[0].result, CUDA_ERROR_NOT_READY);
    engine->now++; /* it did not come */
    share(0, va);
    assert_int_equal(shared[0].result, 0);
    assert_int_equal(engine->table->fixed, 0);
    assert_int_equal(engine->table->apps[0].held, 32 * MIB);
    assert_int_equal(engine->table->apps[0].beyond, 32 * MIB);
    comes = false;
    const struct gm_msg_open ask = ask_for(0, 32 * MIB);
    share(0, other); /* 96 > 64 */
    assert_int_equal(shared[0].result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(open_as(2, &ask), 0);
    free_it(0, va);
    assert_int_equal(engine->table->apps[0].held, 0);
    assert_int_equal(engine->table->orphaned_on_host, 32 * MIB);
    gm_table_set_beyond(engine->table, 0, 0);
    share(0, other);
    assert_int_equal(shared[0].result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(shut_as(2, AT), 0);
    assert_int_equal(engine->table->orphaned_on_host, 0);
    share(0, other);
    assert_int_equal(shared[0].result, 0);
}

/* Who asks again late, as its program was paused, gets an answer at once. Each allocation has its
 * own time: what was to come, and was freed, takes nothing from the next. */
static void test_asks_late(void **state)
{
    (void)state;
    const uint64_t freed = give_on_host(0, 4 * MIB), va = give_on_host(0, 4 * MIB);
    const uint64_t other = give_on_host(0, 4 * MIB);
    comes = true;
    engine->now = 100 * GM_S;
    share(0, freed);
    assert_int_equal(shared[0].result, CUDA_ERROR_NOT_READY);
    free_it(0, freed);
    engine->now += 2 * GM_SHARE_COMES_NS;
    share(0, va);
    assert_int_equal(shared[0].result, CUDA_ERROR_NOT_READY);
    engine->now += 100 * GM_SHARE_COMES_NS;
    share(0, other);
    assert_int_equal(shared[0].result, CUDA_ERROR_NOT_READY);
    share(0, va);
    assert_int_equal(shared[0].result, 0);
    engine->now += GM_SHARE_COMES_NS - 1;
    share(0, other);
    assert_int_equal(shared[0].result, CUDA_ERROR_NOT_READY);
    engine->now++;
    share(0, other);
    assert_int_equal(shared[0].result, 0);
    comes = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_room_for_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_room_for_a_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_freed_while_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_runs_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deaths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_batches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_on_host, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_asks_late, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
