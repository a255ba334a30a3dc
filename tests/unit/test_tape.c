/*
 * daemon/views/tape: what is told of events to mux-ctl trace; copies as spans; who
 * is there at the first question; what is lost to a slow reader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire.h"
#include "daemon/core/snapshot.h"
#include "daemon/trace/trace.h"
#include "daemon/views/tape.h"

static struct gm_tape tape;
static struct gm_snapshot_gpu gpus[1];
static struct gm_snapshot_app apps[2];
static struct gm_snapshot made = {.gpus = gpus, .apps = apps, .n_gpus = 1}, *snapshot = &made;

static const struct gm_sched_config config = {.max_apps = 8,
                                              .budget = 1000,
                                              .levels = 1,
                                              .allotment_ns = 8,
                                              .slice_ns = 4,
                                              .patience_ns = 60,
                                              .retry_ns = 4};

static void tell(struct gm_event event, uint64_t at)
{
    event.at = at;
    event.device = (int32_t)event.gpu;
    event.pid = 800 + (int32_t)event.app;
    event.uid = 1000;
    event.name = "a\nb";
    gm_tape_event(&tape, &event);
}

static int set_up(void **state)
{
    (void)state;
    memset(&tape, 0, sizeof tape);
    memset(gpus, 0, sizeof gpus);
    made.n_apps = 0;
    for (uint32_t gpu = 0; gpu < 2; gpu++)
        tell(
            (struct gm_event){
                .kind = GM_EVENT_SCHED, .app = GM_NONE, .gpu = gpu, .sched.config = &config},
            50);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gm_tape_close(&tape);
    return 0;
}

/* The text since then, which the caller frees; and *since is what follows. */
static char *ask(uint64_t *since, uint64_t now)
{
    cJSON *answer = gm_tape_ask(&tape, snapshot, *since, now, 1700);
    assert_non_null(answer);
    char *text = strdup(cJSON_GetObjectItem(answer, "text")->valuestring);
    *since = (uint64_t)cJSON_GetObjectItem(answer, "next")->valuedouble;
    cJSON_Delete(answer);
    return text;
}

static void expect(uint64_t *since, uint64_t now, const char *text)
{
    char *said = ask(since, now);
    assert_string_equal(said, text);
    free(said);
}

static void turn(uint32_t app, unsigned from, unsigned to, uint64_t at)
{
    tell((struct gm_event){.kind = GM_EVENT_TURN,
                           .app = app,
                           .turn.turn = {.model = GM_MODEL_APP,
                                         .from = (uint8_t)from,
                                         .to = (uint8_t)to,
                                         .id = app,
                                         .app = app}},
         at);
}

#define SETTINGS                                                                                   \
    "max_apps=8 budget=1000 levels=1 allotment_ns=8 slice_ns=4 patience_ns=60 retry_ns=4\n"

static void who_is_there_at_first(void **state)
{
    (void)state;
    const struct gm_sched_event join = {.kind = GM_SCHED_JOIN, .app = 3};
    uint64_t since = 0;
    tell((struct gm_event){.kind = GM_EVENT_INPUT, .app = 3, .input.event = &join}, 60);
    snapshot->n_apps = 2;
    snapshot->gpus[0].used = 7;
    strcpy(snapshot->gpus[0].name, "a card");
    snapshot->apps[0] = (struct gm_snapshot_app){
        .id = 3, .pid = 812, .uid = 5, .name = "one", .state = GM_SHOWN_RUNNING, .is_running = 1};
    snapshot->apps[1] = (struct gm_snapshot_app){
        .id = 4, .pid = 813, .name = "two", .state = GM_SHOWN_WAITING, .is_parked = 1};
    expect(&since, 100,
           GM_TRACE_MAGIC
           "\n100 0 begin wall_ns=1700 part\n100 0 gpu a card\n100 0 sched " SETTINGS
           "100 0 tiers gpu=7 pinned=0 paged=0 disk=0 host=0\n"
           "100 0 app 3 pid=812 uid=5 one\n100 0 state 3 running\n100 0 want 3\n"
           "100 0 app 4 pid=813 uid=0 two\n100 0 state 4 paused\n100 0 parked 4\n100 0 want 4\n");
    expect(&since, 101, "");
    turn(3, GM_APP_RUNNING, GM_APP_DRAINING, 110);
    expect(&since, 120, "110 0 state 3 draining\n");
    expect(&since, 121, "");
}

/* Before its first app a scheduler can be told its budget alone. */
static void whole_before_the_first(void **state)
{
    (void)state;
    const struct gm_sched_event room = {.kind = GM_SCHED_ROOM, .bytes = 900};
    uint64_t since = 0;
    tell((struct gm_event){.kind = GM_EVENT_INPUT, .app = GM_NONE, .input.event = &room}, 60);
    char *said = ask(&since, 100);
    assert_non_null(strstr(said, " budget=900 "));
    assert_non_null(strstr(said, "\n100 0 begin wall_ns=1700 whole\n"));
    free(said);
}

static void events_are_rows(void **state)
{
    (void)state;
    static const struct gm_note set = {.by = 7,
                                       .said = {.has = GM_SET_CLASS, .class = GM_CLASS_BATCH}};
    static const struct gm_note level = {.app = {.level = 2, .why = GM_WHY_USED_UP}, .from = 1};
    static const struct gm_note refused = {.refusal = {.why = GM_WHY_FULL, .bytes = 12},
                                           .n_refused = 3};
    static const struct gm_note took = {.app = {.app = 3, .why = GM_WHY_SLICE},
                                        .took = {.total_ns = 45,
                                                 .part_ns = {1, 2, 3, 4, 5, 6, 7, 8, 9},
                                                 .bytes = {10, 11},
                                                 .clean = 12,
                                                 .zero = 13,
                                                 .lowered = 14,
                                                 .raised = 15},
                                        .wait_ns = 99,
                                        .leavers = {{.pid = 9, .why = GM_WHY_IDLE}},
                                        .n_leavers = 1};
    const struct gm_sched_event want = {.kind = GM_SCHED_WANT, .app = 3};
    uint64_t since = 0;
    free(ask(&since, 100));
    turn(3, GM_APP_UNUSED, GM_APP_PAUSED, 110);
    tell((struct gm_event){.kind = GM_EVENT_JOIN, .app = 3}, 111);
    tell((struct gm_event){.kind = GM_EVENT_INPUT, .app = 3, .input.event = &want}, 112);
    turn(3, GM_APP_LOADING, GM_APP_RUNNING, 113);
    tell((struct gm_event){.kind = GM_EVENT_SWITCH, .app = 3, .switch_.note = &took}, 114);
    tell((struct gm_event){.kind = GM_EVENT_PARKED, .app = 3}, 115);
    tell((struct gm_event){.kind = GM_EVENT_LEVEL, .app = 3, .level.note = &level}, 116);
    tell((struct gm_event){.kind = GM_EVENT_SET, .app = 3, .set.note = &set}, 117);
    tell((struct gm_event){.kind = GM_EVENT_REFUSED, .app = 3, .refused.note = &refused}, 118);
    tell((struct gm_event){.kind = GM_EVENT_ALLOC, .app = 3}, 119); /* nobody asks for that */
    turn(3, GM_APP_GONE, GM_APP_UNUSED, 120);
    const char *rows = "111 0 app 3 pid=803 uid=1000 a?b\n112 0 want 3\n113 0 state 3 running\n"
                       "114 0 switch 3 total_ns=45 drain_ns=1 plan_ns=2 lower_ns=3 pinned_ns=4 "
                       "copy_ns=5 hash_ns=6 unmap_ns=7 map_ns=8 other_ns=9 out=10 in=11 clean=12 "
                       "zero=13 down=14 up=15 waited_ns=99 its turn; in the place of pid 9 (idle)\n"
                       "115 0 parked 3\n116 0 level 3 from=1 to=2 it used up its time at its level\n"
                       "117 0 said 3 uid=7 class=batch\n118 0 refused 3 bytes=12 times=3 GPU and host "
                       "memory are full\n";
    expect(&since, 130, rows);
}

static void copy(enum gm_event_kind kind, unsigned from, unsigned to, uint64_t bytes, uint64_t at)
{
    struct gm_event event = {.kind = kind, .app = 3};
    if (kind == GM_EVENT_COPY) {
        event.copy.from = (uint8_t)from;
        event.copy.to = (uint8_t)to;
    } else {
        event.copied.from = (uint8_t)from;
        event.copied.to = (uint8_t)to;
        event.copied.bytes = bytes;
    }
    tell(event, at);
}

#define MS(n) ((n)*GM_MS)

/* Copies that follow each other closely are one span; ways are apart; clears are none. */
static void copies_are_spans(void **state)
{
    (void)state;
    uint64_t since = 0;
    char told[512];
    free(ask(&since, MS(1)));
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_GPU, 0, MS(10));
    copy(GM_EVENT_COPY, GM_TIER_GPU, GM_TIER_PINNED, 0, MS(10));
    copy(GM_EVENT_COPY, GM_TIER_NONE, GM_TIER_GPU, 0, MS(10));
    copy(GM_EVENT_COPIED, GM_TIER_PINNED, GM_TIER_GPU, 100, MS(11));
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_GPU, 0, MS(12));
    copy(GM_EVENT_COPIED, GM_TIER_PINNED, GM_TIER_GPU, 50, MS(14));
    copy(GM_EVENT_COPIED, GM_TIER_NONE, GM_TIER_GPU, 999, MS(14));
    copy(GM_EVENT_COPIED, GM_TIER_GPU, GM_TIER_PINNED, 30, MS(14));
    copy(GM_EVENT_COPIED, GM_TIER_GPU, GM_TIER_PINNED, 30, MS(14)); /* of nothing */
    expect(&since, MS(14), "");
    turn(3, GM_APP_LOADING, GM_APP_RUNNING, MS(16));
    snprintf(told, sizeof told,
             "%llu 0 copied begin_ns=%llu end_ns=%llu bytes=150 in\n"
             "%llu 0 copied begin_ns=%llu end_ns=%llu bytes=30 out\n%llu 0 state 3 running\n",
             16000000ull, 10000000ull, 14000000ull, 16000000ull, 10000000ull, 14000000ull,
             16000000ull);
    expect(&since, MS(16), told);

    /* a long one comes in pieces */
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_DISK, 0, MS(20));
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_DISK, 0, MS(20));
    copy(GM_EVENT_COPIED, GM_TIER_PINNED, GM_TIER_DISK, 1, MS(50));
    copy(GM_EVENT_COPIED, GM_TIER_PINNED, GM_TIER_DISK, 2, MS(51));
    turn(3, GM_APP_RUNNING, GM_APP_DRAINING, MS(60));
    expect(&since, MS(60),
           "50000000 0 copied begin_ns=20000000 end_ns=50000000 bytes=1 down\n"
           "60000000 0 copied begin_ns=50000000 end_ns=51000000 bytes=2 down\n60000000 0 state 3 "
           "draining\n");
}

/* A copy that is under way when a recording ends, and one that begins before the next, are in none
 * of its own: else its span would never be over. */
static void copies_between_recordings(void **state)
{
    (void)state;
    uint64_t since = 0;
    const uint64_t later = GM_TAPE_KEPT_NS + MS(20);
    char told[256];
    free(ask(&since, MS(1)));
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_GPU, 0, MS(11));
    copy(GM_EVENT_COPIED, GM_TIER_PINNED, GM_TIER_GPU, 100, later);
    assert_null(tape.text);
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_GPU, 0, later + MS(500));
    since = 0;
    free(ask(&since, later + MS(501)));
    copy(GM_EVENT_COPIED, GM_TIER_PINNED, GM_TIER_GPU, 7, later + MS(502));
    copy(GM_EVENT_COPY, GM_TIER_PINNED, GM_TIER_GPU, 0, later + MS(600));
    snprintf(told, sizeof told,
             "%llu 0 copied begin_ns=%llu end_ns=%llu bytes=7 in\n", later + MS(600),
             later + MS(500), later + MS(502));
    expect(&since, later + MS(600), told);
}

static void two_gpus(void **state)
{
    (void)state;
    uint64_t since = 0;
    free(ask(&since, 100));
    tell((struct gm_event){.kind = GM_EVENT_PARKED, .app = 1, .gpu = 1}, 110);
    tell((struct gm_event){.kind = GM_EVENT_PARKED, .app = 3, .gpu = 0}, 109);
    expect(&since, 120, "110 1 parked 1\n109 0 parked 3\n");
}

/* A reader that is too slow knows how much it lacks; and one that stops costs nothing for long. */
static void what_is_lost_is_told(void **state)
{
    (void)state;
    uint64_t since = 0, next, lost = 0;
    free(ask(&since, 100));
    next = since;
    for (uint64_t i = 0; i < 200000; i++)
        tell((struct gm_event){.kind = GM_EVENT_PARKED, .app = 1, .gpu = 1}, 1000 + i);
    assert_true(tape.end - tape.begin <= GM_TAPE_BYTES);
    char *text = ask(&next, 300000);
    struct gm_trace_line entry;
    unsigned n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, n++) {
        *end = '\0';
        if (!gm_trace_parse(line, &entry))
            fail_msg("no line: %s", line);
        if (n == 0) {
            assert_int_equal(entry.row, GM_TRACE_ROW_LOST);
            lost = entry.number[0];
        } else {
            assert_int_equal(entry.row, GM_TRACE_ROW_PARKED);
        }
    }
    assert_int_equal(lost, tape.begin - since);
    assert_int_equal(entry.now, 200999);
    assert_true(n > 1000);
    free(text);

    /* it comes back after a pause in which nothing was kept */
    turn(1, GM_APP_LOADING, GM_APP_RUNNING, 300000 + GM_TAPE_KEPT_NS + 1);
    assert_null(tape.text);
    text = ask(&next, 300000 + GM_TAPE_KEPT_NS + 2);
    assert_non_null(strstr(text, " lost bytes="));
    free(text);
}

/* Of another daemon, or of nobody. */
static void odd_questions(void **state)
{
    (void)state;
    uint64_t since = UINT64_MAX;
    char *text = ask(&since, 100);
    assert_non_null(strstr(text, "100 0 lost bytes=0\n"));
    free(text);
    assert_true(since < 1000);
    since += 5;
    free(ask(&since, 101));
    assert_int_equal(since, tape.end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_there_at_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_before_the_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(events_are_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_are_spans, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_between_recordings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_gpus, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_lost_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(odd_questions, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
