/*
 * daemon/ctl/tracks: what a program did when, of lines whose answer is known; and that whatever the
 * lines are, what comes of them lies within the trace and in order, the export is JSON, and the
 * report ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/tracks.h"

static char path[64];
static char said[512];

void mux_complain(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(said, sizeof said, format, list);
    va_end(list);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/gm-tracks-XXXXXX");
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

#define HEADER                                                                                     \
    "gpumux-sched-trace 2 max_apps=4 budget=1000 levels=1 allotment_ns=8 slice_ns=4 "              \
    "patience_ns=60 retry_ns=4\n"

static bool read_text(const char *text, struct mux_tracks *tracks)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(HEADER, file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    said[0] = '\0';
    return mux_read_tracks(path, tracks);
}

static void expect_spans(const struct mux_tracks *tracks, const struct mux_span *spans, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < tracks->n_spans; i++) {
        const struct mux_span *is = &tracks->spans[i];
        if (is->app != spans[i].app || is->does != spans[i].does || is->begin != spans[i].begin ||
            is->end != spans[i].end)
            fail_msg("span %u: app %u %s from %" PRIu64 " to %" PRIu64, i, is->app,
                     mux_does_text(is->does), is->begin, is->end);
    }
    assert_int_equal(tracks->n_spans, n);
}

static void what_a_program_does(void **state)
{
    (void)state;
    static const struct mux_span spans[] = {
        {0, MUX_DOES_WAITING, 10, 20}, {0, MUX_DOES_LOADING, 20, 30},
        {0, MUX_DOES_RUNNING, 30, 36}, {0, MUX_DOES_OPEN, 36, 45},
        {0, MUX_DOES_RUNNING, 45, 50}, {0, MUX_DOES_DRAINING, 50, 60},
        {0, MUX_DOES_PARKED, 60, 70},  {0, MUX_DOES_LOADING, 70, 71},
        {0, MUX_DOES_RUNNING, 71, 75}};
    struct mux_tracks tracks;
    assert_true(read_text("5 begin wall_ns=9 whole\n5 gpu index=3\n5 app 2 pid=7 uid=0 one\n"
                          "5 state 2 paused\n10 want 2\n20 state 2 loading\n30 state 2 running\n"
                          "40 idle 2 4\n45 want 2\n50 state 2 draining\n60 parked 2\n"
                          "60 state 2 paused\n70 state 2 loading\n71 state 2 running\n75 leave 2\n"
                          "80 timer\n",
                          &tracks));
    expect_spans(&tracks, spans, sizeof spans / sizeof *spans);
    assert_int_equal(tracks.end, 80);
    assert_int_equal(tracks.gpus[0].index, 3);
    assert_int_equal(tracks.n_parks, 1);
    mux_free_tracks(&tracks);
}

/* What was so before a part of a trace has no mark of its own. */
static void what_is_cut(void **state)
{
    (void)state;
    struct mux_tracks tracks;
    assert_true(read_text("5 begin wall_ns=9 part\n5 gpu index=0\n5 app 0 pid=7 uid=0 one\n"
                          "5 state 0 running\n5 want 0\n5 app 1 pid=8 uid=0 two\n5 state 1 paused\n"
                          "5 parked 1\n5 want 1\n10 state 0 draining\n11 state 0 paused\n"
                          "11 state 1 loading\n12 state 1 running\n20 state 1 paused\n"
                          "20 state 0 running\n30 timer\n",
                          &tracks));
    assert_int_equal(tracks.n_parks, 0); /* it was, before */
    assert_int_equal(tracks.spans[0].begin, 5);
    mux_free_tracks(&tracks);
}

/* A number that another program has later, and one that has come without its app having left. */
static void numbers_come_again(void **state)
{
    (void)state;
    struct mux_tracks tracks;
    assert_true(
        read_text("5 app 1 pid=7 uid=0 one\n5 state 1 running\n6 want 1\n10 leave 1\n"
                  "20 app 1 pid=8 uid=0 two\n20 state 1 running\n21 want 1\n"
                  "30 app 1 pid=9 uid=0 three\n31 gpu index=1\n32 state 1 running\n40 timer\n",
                  &tracks));
    assert_int_equal(tracks.n_apps, 4);
    assert_string_equal(tracks.apps[1].name, "two");
    assert_int_equal(tracks.apps[2].pid, 9);
    assert_string_equal(tracks.apps[3].name, ""); /* of the other GPU: nobody told of it */
    assert_int_equal(tracks.apps[3].gpu, 1);
    mux_free_tracks(&tracks);
}

/* ---- whatever there is ---- */

static uint64_t seed;

static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static uint64_t odd_number(uint64_t now)
{
    switch (dice(5)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return now;
    case 3:
        return dice(1000000);
    default:
        return now / (1 + dice(9)) + dice(1000);
    }
}

static void write_line(FILE *file, uint64_t now)
{
    static const char *const states[] = {"paused", "loading", "running", "draining", "gone"};
    static const char *const ways[] = {"in", "out", "down", "up"};
    char line[GM_TRACE_LINE_MAX];
    struct gm_trace_view view = {.row = (enum gm_trace_row)dice(GM_TRACE_ROWS), .app = dice(4)};
    struct gm_sched_event event = {.kind = (enum gm_sched_event_kind)dice(GM_SCHED_ROOM + 1),
                                   .app = dice(4)};
    if (event.kind == GM_SCHED_IDLE)
        event.ago_ns = odd_number(now);
    for (unsigned i = 0; i < GM_TRACE_NUMBERS_MAX; i++)
        view.number[i] = odd_number(now);
    if (view.row == GM_TRACE_ROW_GPU)
        view.number[0] = dice(3);
    snprintf(view.text, sizeof view.text, "%s",
             view.row == GM_TRACE_ROW_STATE    ? states[dice(5)]
             : view.row == GM_TRACE_ROW_COPIED ? ways[dice(4)]
             : view.row == GM_TRACE_ROW_BEGIN  ? (dice(2) ? "part" : "whole")
                                               : "<&\"> x");
    if (dice(3) == 0)
        gm_trace_event(line, sizeof line, now, &event);
    else
        gm_trace_view(line, sizeof line, now, &view);
    fputs(line, file);
}

static void expect_right(const struct mux_tracks *tracks)
{
    uint64_t *ends = calloc(tracks->n_apps + 1, sizeof *ends);
    assert_non_null(ends);
    assert_true(tracks->begin <= tracks->end);
    for (uint32_t i = 0; i < tracks->n_spans; i++) {
        const struct mux_span *span = &tracks->spans[i];
        assert_true(span->app < tracks->n_apps && span->does != MUX_DOES_NOTHING);
        assert_true(span->begin >= tracks->begin && span->begin < span->end);
        assert_true(span->end <= tracks->end && span->begin >= ends[span->app]);
        ends[span->app] = span->end;
    }
    for (uint32_t i = 0; i < tracks->n_apps; i++)
        assert_true(tracks->apps[i].gpu < tracks->n_gpus);
    for (uint32_t i = 0; i < tracks->n_copies; i++) {
        const struct mux_copies *copies = &tracks->copies[i];
        assert_true(copies->begin >= tracks->begin && copies->begin < copies->end);
        assert_true(copies->end <= tracks->end && copies->way >= 0 && copies->way < 4);
    }
    for (uint32_t i = 0; i < tracks->n_switches; i++)
        assert_true(tracks->switches[i].app < tracks->n_apps);
    free(ends);
}

static void any_lines(void **state)
{
    (void)state;
    for (seed = 1; seed <= 600 * 7; seed += 7) {
        const uint64_t first = seed;
        struct mux_tracks tracks;
        char *text = NULL;
        size_t length = 0;
        uint64_t now = dice(2) ? dice(1000) : GM_TIME_NEVER - 2000000000;
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(HEADER, file);
        for (uint32_t n = 1 + dice(60); n > 0; n--) {
            now += dice(3) ? dice(1000000) : 0;
            write_line(file, now);
        }
        assert_int_equal(fclose(file), 0);
        said[0] = '\0';
        if (!mux_read_tracks(path, &tracks))
            fail_msg("seed %" PRIu64 ": %s", first, said);
        expect_right(&tracks);
        file = open_memstream(&text, &length);
        assert_non_null(file);
        assert_true(mux_export_tracks(file, &tracks));
        fclose(file);
        cJSON *json = cJSON_Parse(text);
        if (!json)
            fail_msg("seed %" PRIu64 ": not JSON: %s", first, text);
        cJSON_Delete(json);
        free(text);
        mux_free_tracks(&tracks);
        seed = first;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_program_does, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_come_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_lines, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("tracks", tests, NULL, NULL);
}
