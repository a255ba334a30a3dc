/*
 * daemon/engine/log and views/journal: what is kept of decisions, and whose place a switch is said
 * to take. The engine around it is this test: apps without programs, and a real scheduler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/core/sched_account.h"
#include "daemon/core/sched_step.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/room.h"
#include "daemon/memory/files.h"
#include "daemon/views/journal.h"
#include "daemon/views/log.h"

#define APPS 24u

static struct gm_engine *engine;
static struct gm_host host = {.pinned = 1};
static struct gm_journal *journal;
static struct gm_sched_config config = {.max_apps = APPS,
                                        .budget = 100,
                                        .levels = 3,
                                        .allotment_ns = 8 * GM_S,
                                        .slice_ns = 4 * GM_S,
                                        .patience_ns = 60 * GM_S,
                                        .retry_ns = 4 * GM_S};

/* What a refusal says of the limits; not asked for here. */
struct gm_room_input gm_engine_room_input(const struct gm_engine *e, uint32_t id)
{
    (void)e, (void)id;
    return (struct gm_room_input){0};
}
uint32_t gm_files_for_frames(void)
{
    return UINT32_MAX;
}
uint64_t gm_host_limit_alone(const struct gm_engine *e)
{
    return e->host->pinned;
}

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    if (!engine)
        return -1;
    engine->config.max_apps = APPS;
    engine->host = &host;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->config.journal = journal = calloc(1, sizeof *journal);
    engine->config.outlet.event = gm_journal_event;
    engine->sched_memory = calloc(1, gm_sched_size(&config));
    if (!engine->apps || !journal || !engine->sched_memory)
        return -1;
    engine->sched = gm_sched_init(engine->sched_memory, &config);
    engine->now = GM_S;
    return engine->sched ? 0 : -1;
}

/* What has happened is told. */
static struct gm_journal *told(void)
{
    for (struct gm_action *at = gm_engine_carry(engine); at; at = at->next)
        gm_journal_event(journal, &at->event);
    gm_engine_carried(engine);
    return journal;
}

static int tear_down(void **state)
{
    (void)state;
    gm_actions_close(engine);
    free(engine->sched_memory);
    free(journal);
    free(engine->apps);
    free(engine);
    return 0;
}

static void step(enum gm_sched_event_kind kind, uint32_t app, uint64_t bytes)
{
    const struct gm_sched_event event = {.kind = kind, .app = app, .bytes = bytes};
    assert_int_equal(gm_sched_step(engine->sched, engine->now, &event, &engine->decision), 0);
    engine->decisions++;
}

/* Each is known to the scheduler by its own number. */
bool gm_engine_account(const struct gm_engine *e, uint32_t id, struct gm_sched_account *account)
{
    return gm_sched_account(e->sched, e->now, id, account);
}

/* A program comes with `bytes` and wants the GPU; its pid is 100 + its id. */
static void join(uint32_t id, uint64_t bytes)
{
    struct gm_app *app = &engine->apps[id];
    *app = (struct gm_app){.state = GM_APP_PAUSED, .pid = (pid_t)(100 + id), .level_noted = 1};
    snprintf(app->name, sizeof app->name, "p%u", id);
    step(GM_SCHED_JOIN, id, 0);
    step(GM_SCHED_SIZE, id, bytes);
    step(GM_SCHED_WANT, id, 0);
}

static void what_was_refused_is_told(void **state)
{
    (void)state;
    join(1, 10);
    const struct gm_reason full = {
        .why = GM_WHY_FULL, .bytes = 192 << 20, .limit = 1 << 30, .taken = 900 << 20};
    for (uint64_t i = 1; i <= 12; i++)
        gm_engine_note_refusal(engine, 1, &full, i);
    assert_int_equal(engine->counts[GM_EVENT_REFUSED], 78);

    cJSON *log = gm_view_log(told(), 11), *status = cJSON_CreateObject();
    const cJSON *entry = cJSON_GetArrayItem(cJSON_GetObjectItem(log, "entries"), 0);
    assert_string_equal(cJSON_GetObjectItem(entry, "kind")->valuestring, "refused");
    assert_string_equal(cJSON_GetObjectItem(entry, "why")->valuestring, "full");
    assert_int_equal(cJSON_GetObjectItem(entry, "bytes")->valuedouble, 192 << 20);
    assert_int_equal(cJSON_GetObjectItem(entry, "count")->valuedouble, 12);
    assert_string_equal(cJSON_GetObjectItem(entry, "text")->valuestring,
                        "all tiers together hold 1 GiB, and 900 MiB are taken");
    assert_string_equal(cJSON_GetObjectItem(entry, "raise")->valuestring,
                        "--pinned, --paged or --disk");
    cJSON_Delete(log);
    engine->now += 3 * GM_S;
    gm_view_refusals(told(), 0, engine->now, status);
    const cJSON *kept = cJSON_GetObjectItem(status, "refusals");
    assert_int_equal(cJSON_GetArraySize(kept), GM_REFUSALS_KEPT);
    entry = cJSON_GetArrayItem(kept, GM_REFUSALS_KEPT - 1);
    assert_int_equal(cJSON_GetObjectItem(entry, "count")->valuedouble, 12);
    assert_int_equal(cJSON_GetObjectItem(entry, "ago_s")->valuedouble, 3);
    cJSON_Delete(status);
}

/* One line a second, with the number of all; nothing of what the shim had in another way. */
static void a_program_that_tries_does_not_flood_the_log(void **state)
{
    (void)state;
    struct gm_stat *stat = calloc(1, sizeof *stat);
    join(1, 10);
    engine->apps[1].session = (struct gm_session *)(uintptr_t)1;
    engine->apps[1].stat = stat;
    struct gm_client client = {.id = 1, .stat = stat, .engines = {engine}};
    engine->apps[1].client = &client;
    engine->apps[1].refusal.newest.why = GM_WHY_FULL;
    gm_engine_note_refusals(engine);
    assert_int_equal(told()->gpu[0].n_refusals, 0);
    for (int i = 0; i < 25; i++, engine->now += 100 * GM_MS) {
        engine->apps[1].refusal.n += 10;
        stat->refused += 10;
        gm_engine_note_refusals(engine);
    }
    assert_int_equal(told()->gpu[0].n_refusals, 3);
    assert_int_equal(told()->gpu[0].refusals[0].n_refused, 10);
    assert_int_equal(told()->gpu[0].refusals[1].n_refused, 100);
    assert_int_equal(told()->gpu[0].refusals[1].refusal.why, GM_WHY_FULL);
    gm_engine_note_last_refusal(engine, 1);
    assert_int_equal(told()->gpu[0].n_refusals, 4);
    assert_int_equal(engine->counts[GM_EVENT_REFUSED], 250);
    stat->driver_refused_bytes = 12345; /* the daemon was not asked */
    stat->driver_refused++;
    stat->refused++;
    engine->now += 2 * GM_S;
    gm_engine_note_refusals(engine);
    assert_int_equal(told()->gpu[0].refusals[4].refusal.why, GM_WHY_DRIVER);
    assert_int_equal(told()->gpu[0].refusals[4].refusal.bytes, 12345);
    assert_int_equal(engine->counts[GM_EVENT_REFUSED], 251);

    /* What the daemon before has told, the next one does not. */
    client.refused_told = client.driver_refused_told = 0;
    gm_engine_skip_refusals(&client);
    engine->now += 2 * GM_S;
    gm_engine_note_refusals(engine);
    assert_int_equal(engine->counts[GM_EVENT_REFUSED], 251);
    free(stat);
}

/* The program counts a refusal when the answer has reached it. So the daemon may have refused the
 * next one by then, and the program may be told of that when it leaves. */
static void a_refusal_has_the_reason_that_was_decided(void **state)
{
    (void)state;
    struct gm_stat *stat = calloc(1, sizeof *stat);
    join(1, 10);
    engine->apps[1].session = (struct gm_session *)(uintptr_t)1;
    engine->apps[1].stat = stat;
    struct gm_client client = {.id = 1, .engines = {engine}};
    engine->apps[1].client = &client;
    struct gm_table_app apps[2] = {0};
    struct gm_table table = {.apps = apps};
    engine->table = &table;
    for (int i = 0; i < 2; i++)
        gm_engine_refused(engine, 1, (uint64_t)(3 + i) << 30, GM_WHY_USER);
    stat->refused++;
    gm_engine_note_refusals(engine);
    stat->refused++;
    gm_engine_note_last_refusal(engine, 1);
    assert_int_equal(told()->gpu[0].n_refusals, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(told()->gpu[0].refusals[i].refusal.why, GM_WHY_USER);
    /* One that was asked for again, and had then, is none. A pool's own limit is no reason of the
     * daemon's. What a program takes back of its count says nothing. */
    gm_engine_refused(engine, 1, 1 << 30, GM_WHY_USER);
    engine->now += 5 * GM_S;
    gm_engine_note_refusals(engine);
    stat->refused = 1;
    gm_engine_note_refusals(engine);
    assert_int_equal(told()->gpu[0].n_refusals, 2);
    stat->refused = 3;
    gm_engine_note_refusals(engine);
    assert_int_equal(told()->gpu[0].n_refusals, 3);
    assert_int_equal(told()->gpu[0].refusals[2].refusal.why, GM_WHY_OWN);
    engine->table = NULL;
    free(stat);
}

static void open_gate(uint32_t id, bool is_switch)
{
    const struct gm_switch took = {
        .seq = 1,
        .total_ns = 5 * GM_MS,
        .part_ns = {[GM_PART_DRAIN] = 1000999, [GM_PART_COPY] = 2000999, [GM_PART_OTHER] = 1998002},
        .bytes = {1u << 20, 2u << 20}};
    gm_engine_note_switch(engine, id, is_switch ? &took : NULL);
    engine->apps[id].state = GM_APP_RUNNING;
    step(GM_SCHED_OPENED, id, 0);
}

/* It yields, as the scheduler told it to. */
static void yield(uint32_t id)
{
    gm_engine_note_leaver(engine, id, false);
    engine->apps[id].state = GM_APP_PAUSED;
    step(GM_SCHED_CLOSED, id, 0);
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static const char *word(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_true(cJSON_IsString(item));
    return item->valuestring;
}

/* The newest entry; the caller's. */
static cJSON *newest(void)
{
    cJSON *log = gm_view_log(told(), told()->n - 1);
    cJSON *entry = cJSON_DetachItemFromArray(cJSON_GetObjectItem(log, "entries"), 0);
    assert_non_null(entry);
    cJSON_Delete(log);
    return entry;
}

static void test_turns(void **state)
{
    (void)state;
    join(0, 60);
    open_gate(0, false); /* the first to come takes nobody's place: no entry */
    assert_int_equal(told()->n, 0);
    engine->now += GM_S;
    join(1, 60);
    engine->now += 4 * GM_S; /* its slice is over */
    step(GM_SCHED_TIMER, 0, 0);
    yield(0);
    engine->now += GM_MS;
    open_gate(1, true);
    cJSON *entry = newest();
    assert_string_equal(word(entry, "kind"), "switch");
    assert_string_equal(word(entry, "why"), "slice");
    assert_int_equal(number(entry, "pid"), 101);
    assert_int_equal(number(entry, "level"), 1);
    assert_true(number(entry, "waited_s") > 4 && number(entry, "waited_s") < 4.1);
    assert_int_equal(number(entry, "total_ms"), 5);
    const double parts =
        number(entry, "drain_ms") + number(entry, "copy_ms") + number(entry, "other_ms");
    assert_true(parts > 4.9999999 && parts < 5.0000001 && number(entry, "copy_ms") < 2.0005);
    assert_int_equal(number(entry, "bytes_in") + number(entry, "bytes_out"), 3u << 20);
    assert_int_equal(number(entry, "left_count"), 1);
    const cJSON *left = cJSON_GetArrayItem(cJSON_GetObjectItem(entry, "left"), 0);
    assert_int_equal(number(left, "pid"), 100);
    assert_string_equal(word(left, "name"), "p0");
    assert_string_equal(word(left, "why"), "turn");
    cJSON_Delete(entry);

    /* who ended, and whose id another has by now; who yielded before it came is not named */
    engine->now += GM_S;
    gm_engine_note_leaver(engine, 1, true);
    step(GM_SCHED_LEAVE, 1, 0);
    join(1, 60);
    engine->apps[1].pid = 777;
    const struct gm_switch took = {.seq = 2};
    gm_engine_note_switch(engine, 1, &took);
    entry = newest();
    assert_int_equal(number(entry, "left_count"), 1);
    left = cJSON_GetArrayItem(cJSON_GetObjectItem(entry, "left"), 0);
    assert_int_equal(number(left, "pid"), 101);
    assert_string_equal(word(left, "why"), "left");
    cJSON_Delete(entry);
}

/* Who yielded and is back did not lose its place; who yielded long before did not lose it to this.
 */
static void test_whose_place(void **state)
{
    (void)state;
    join(0, 30);
    join(1, 30);
    open_gate(0, false);
    open_gate(1, false);
    engine->now += GM_S;
    gm_engine_note_leaver(engine, 0, false);
    gm_engine_note_leaver(engine, 1, false);
    engine->now += GM_S;
    gm_engine_note_switch(engine, 1, NULL); /* back without a switch */
    join(2, 30);
    open_gate(2, true);
    cJSON *entry = newest();
    assert_int_equal(number(entry, "left_count"), 0);
    assert_string_equal(word(entry, "why"), "fits");
    cJSON_Delete(entry);
    /* app 0 is still known, for one that waited at that time */
    engine->now = 2 * GM_S;
    const struct gm_switch took = {.seq = 2};
    engine->apps[3] = (struct gm_app){.state = GM_APP_PAUSED, .pid = 103, .chosen.begin.at = GM_S};
    gm_engine_note_switch(engine, 3, &took); /* of which the scheduler knows nothing */
    entry = newest();
    assert_int_equal(number(entry, "left_count"), 1);
    cJSON_Delete(entry);
}

/* More than can be named, and more than are remembered. */
static void test_many_leavers(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < GM_LEAVERS + 4; id++) {
        join(id, 1);
        engine->now++;
        gm_engine_note_leaver(engine, id, false);
    }
    join(22, 1);
    engine->apps[22].chosen.begin.at = 1;
    const struct gm_switch took = {.seq = 1};
    step(GM_SCHED_LEAVE, 22, 0); /* so that only `chosen` tells since when */
    gm_engine_note_switch(engine, 22, &took);
    cJSON *entry = newest();
    assert_int_equal(number(entry, "left_count"), GM_LEAVERS);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(entry, "left")), GM_NOTE_LEAVERS);
    cJSON_Delete(entry);
}

static void test_levels_and_settings(void **state)
{
    (void)state;
    join(0, 60);
    open_gate(0, false);
    gm_engine_note_levels(engine);
    assert_int_equal(told()->n, 0);
    engine->now += 9 * GM_S;
    step(GM_SCHED_TIMER, 0, 0);
    gm_engine_note_levels(engine);
    cJSON *entry = newest();
    assert_string_equal(word(entry, "kind"), "level");
    assert_string_equal(word(entry, "why"), "used up");
    assert_int_equal(number(entry, "from_level"), 1);
    assert_int_equal(number(entry, "level"), 2);
    cJSON_Delete(entry);
    gm_engine_note_levels(engine); /* once */
    assert_int_equal(told()->n, 1);

    /* a level that follows from a setting is told with it */
    struct gm_settings said = {.has = GM_SET_CLASS, .class = GM_CLASS_BATCH};
    struct gm_sched_policy policy = {
        .class = GM_CLASS_BATCH, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    assert_int_equal(gm_sched_set(engine->sched, engine->now, 0, &policy, &engine->decision), 0);
    engine->decisions++;
    gm_engine_note_set(engine, 0, 1000, &said, &policy);
    gm_engine_note_levels(engine);
    assert_int_equal(told()->n, 2);
    entry = newest();
    assert_string_equal(word(entry, "kind"), "set");
    assert_string_equal(word(entry, "set"), "class=batch");
    assert_int_equal(number(entry, "by_uid"), 1000);
    assert_int_equal(number(entry, "level"), 3);
    cJSON_Delete(entry);
    said = (struct gm_settings){.has = GM_SET_PAUSED, .is_paused = true};
    gm_engine_note_set(engine, 0, 0, &said, &policy);
    entry = newest();
    assert_string_equal(word(entry, "kind"), "paused");
    cJSON_Delete(entry);
    said.is_paused = false;
    gm_engine_note_set(engine, 0, 0, &said, &policy);
    entry = newest();
    assert_string_equal(word(entry, "kind"), "resumed");
    cJSON_Delete(entry);
}

/* The first and last number of what the log holds after `since`, and how many there are. */
static void expect_range(uint64_t since, uint64_t first, uint64_t last)
{
    cJSON *log = gm_view_log(told(), since);
    const cJSON *entries = cJSON_GetObjectItem(log, "entries");
    const int n = cJSON_GetArraySize(entries);
    assert_int_equal(number(log, "newest"), told()->n);
    assert_int_equal(number(log, "kept"), GM_NOTES);
    assert_int_equal(n, first ? last - first + 1 : 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(number(cJSON_GetArrayItem(entries, i), "seq"), first + (uint64_t)i);
    cJSON_Delete(log);
}

/* Each switch is counted once, by its time: up to a bound, the bound itself too, or beyond all. */
static void test_switch_times(void **state)
{
    static const struct {
        uint64_t ns;
        unsigned bound;
    } cases[] = {{0, 0},
                 {GM_MS, 0},
                 {GM_MS + 1, 1},
                 {2 * GM_MS, 1},
                 {250 * GM_MS, 8},
                 {16384 * GM_MS, 14},
                 {16384 * GM_MS + 1, GM_SWITCH_BOUNDS},
                 {UINT64_MAX >> 4, GM_SWITCH_BOUNDS}};
    uint64_t sum = 0, counts[GM_SWITCH_BOUNDS + 1] = {0};
    (void)state;
    join(1, 50);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct gm_switch took = {.seq = i + 1, .total_ns = cases[i].ns};
        gm_engine_note_switch(engine, 1, &took);
        sum += cases[i].ns;
        counts[cases[i].bound]++;
    }
    assert_memory_equal(told()->gpu[0].switches, counts, sizeof counts);
    assert_int_equal(told()->gpu[0].switch_ns, sum);
    assert_int_equal(engine->counts[GM_EVENT_SWITCH], sizeof cases / sizeof cases[0]);
}

/* Likewise decisions, by their own time and by that of the pass. */
static void test_decision_times(void **state)
{
    static const struct {
        uint64_t ns;
        unsigned bound;
    } cases[] = {{1, 0},
                 {4 * GM_US, 0},
                 {4 * GM_US + 1, 1},
                 {5 * GM_US, 1},
                 {8 * GM_US, 4},
                 {1000 * GM_US, 32},
                 {7168 * GM_US, GM_DECISION_BOUNDS - 1},
                 {7168 * GM_US + 1, GM_DECISION_BOUNDS}};
    uint64_t sum = 0, counts[GM_DECISION_BOUNDS + 1] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_DECIDED,
                                          .app = GM_NONE,
                                          .decided = {.ns = cases[i].ns, .pass_ns = 3 * GM_MS}});
        sum += cases[i].ns;
        counts[cases[i].bound]++;
    }
    const struct gm_decision_times *times = &told()->gpu[0].decisions;
    assert_memory_equal(times->counts, counts, sizeof counts);
    assert_int_equal(times->sum_ns, sum);
    assert_int_equal(times->most_ns, 7168 * GM_US + 1);
    assert_int_equal(told()->gpu[0].passes.most_ns, 3 * GM_MS);
    assert_int_equal(told()->n, 0); /* nothing of it is in the log */
}

static void test_range(void **state)
{
    (void)state;
    const struct gm_settings said = {.has = GM_SET_WEIGHT, .weight = 2000};
    const struct gm_sched_policy policy = {.weight = 2000, .share = GM_SCHED_SHARE_ALL};
    join(0, 1);
    expect_range(0, 0, 0);
    expect_range(UINT64_MAX, 0, 0);
    for (unsigned i = 0; i < GM_NOTES; i++)
        gm_engine_note_set(engine, 0, 0, &said, &policy);
    expect_range(0, 1, GM_NOTES);
    for (unsigned i = 0; i < 10; i++)
        gm_engine_note_set(engine, 0, 0, &said, &policy);
    const uint64_t last = GM_NOTES + 10;
    expect_range(0, 11, last);
    expect_range(10, 11, last);
    expect_range(11, 12, last);
    expect_range(last - 1, last, last);
    expect_range(last, 0, 0);
    expect_range(last + 1, 0, 0);
    expect_range(UINT64_MAX, 0, 0);
}

#define LOG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOG(test_turns),
        LOG(test_whose_place),
        LOG(test_many_leavers),
        LOG(test_levels_and_settings),
        LOG(test_switch_times),
        LOG(test_decision_times),
        LOG(test_range),
        LOG(what_was_refused_is_told),
        LOG(a_program_that_tries_does_not_flood_the_log),
        LOG(a_refusal_has_the_reason_that_was_decided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
