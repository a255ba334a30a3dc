/*
 * daemon/ctl/export: what a program did when, of lines whose answer is known; and that whatever the
 * lines are, it is JSON, and what it has lies within the trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "daemon/ctl/ctl.h"
#include "daemon/trace/trace.h"

static char said[512];

void mux_complain(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(said, sizeof said, format, list);
    va_end(list);
}

/* Its events, which the caller deletes. */
static cJSON *export(FILE *file)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    assert_non_null(to);
    rewind(file);
    said[0] = '\0';
    if (!mux_export(file, "it", to))
        fail_msg("%s", said);
    fclose(to);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    if (!json)
        fail_msg("not JSON: %s", text);
    cJSON *events = cJSON_DetachItemFromObject(json, "traceEvents");
    assert_non_null(events);
    cJSON_Delete(json);
    free(text);
    return events;
}

/* Times, which are microseconds there, are thousands here. */
static cJSON *export_text(const char *text)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fprintf(file, GM_TRACE_MAGIC "\n%s", text);
    return export(file);
}

static const char *word_of(const cJSON *event, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(event, key));
}

static double number_of(const cJSON *event, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItem(event, key));
}

/* "TRACK NAME FROM+LENGTH" of each slice, and "TRACK NAME AT" of each mark; "TRACK: NAME" of each
 * program's name. */
static void expect(const char *text, const char *shown)
{
    char is[2048] = "";
    cJSON *events = export_text(text);
    const cJSON *event;
    cJSON_ArrayForEach(event, events)
    {
        const char phase = word_of(event, "ph")[0];
        const int track = (int)number_of(event, "tid");
        if (phase == 'X')
            gm_text_add(is, sizeof is, "%d %s %g+%g\n", track, word_of(event, "name"),
                        number_of(event, "ts"), number_of(event, "dur"));
        else if (phase == 'i')
            gm_text_add(is, sizeof is, "%d %s %g\n", track, word_of(event, "name"),
                        number_of(event, "ts"));
        else if (phase == 'M' && track >= 10 && strcmp(word_of(event, "name"), "thread_name") == 0)
            gm_text_add(is, sizeof is, "%d: %s\n", track,
                        word_of(cJSON_GetObjectItem(event, "args"), "name"));
    }
    cJSON_Delete(events);
    assert_string_equal(is, shown);
}

static void what_a_program_does(void **state)
{
    (void)state;
    expect("5000 3 begin wall_ns=9 whole\n5000 3 gpu a card\n"
           "5000 3 app 2 pid=7 uid=4000000000 one\n5000 3 state 2 paused\n10000 3 want 2\n"
           "20000 3 state 2 loading\n30000 3 state 2 running\n40000 3 idle 2 ago_ns=4000\n"
           "45000 3 want 2\n50000 3 state 2 draining\n60000 3 parked 2\n60000 3 state 2 paused\n"
           "70000 3 state 2 loading\n71000 3 state 2 running\n75000 3 leave 2\n80000 3 timer\n",
           "10: one (pid 7, 4000000000)\n10 waiting 5+10\n10 loading 15+10\n10 running 25+6\n"
           "10 idle in its turn 31+9\n10 running 40+5\n10 parked 55\n10 draining 45+10\n"
           "10 waiting, parked 55+10\n10 loading 65+1\n10 running 66+4\n");
}

/* What was so before a part of a trace has no mark of its own; what is still so at its end ends
 * with it. */
static void what_is_cut(void **state)
{
    (void)state;
    expect("5000 0 begin wall_ns=9 part\n5000 0 app 1 pid=8 uid=4000000000 two\n"
           "5000 0 state 1 paused\n5000 0 parked 1\n5000 0 want 1\n11000 0 state 1 loading\n"
           "9000 0 parked 2\n",
           "10: two (pid 8, 4000000000)\n10 waiting, parked 0+6\n11 parked 6\n");
    expect("5000 0 state 1 running\n5000 0 want 1\n9000 0 timer\n", "10 running 0+4\n");
}

/* A number that another program has later, and one that has come without its app having left. */
static void numbers_come_again(void **state)
{
    (void)state;
    expect("5000 0 app 1 pid=7 uid=4000000000 one\n5000 0 state 1 running\n6000 0 want 1\n"
           "10000 0 leave 1\n20000 0 app 1 pid=8 uid=4000000000 two\n20000 0 state 1 loading\n"
           "30000 0 app 1 pid=9 uid=4000000000 three\n31000 1 state 1 draining\n40000 0 timer\n",
           "10: one (pid 7, 4000000000)\n10 idle in its turn 0+1\n10 running 1+4\n"
           "11: two (pid 8, 4000000000)\n11 loading 15+10\n12: three (pid 9, 4000000000)\n"
           "13 draining 26+9\n");
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
    char text[GM_TRACE_LINE_MAX];
    struct gm_trace_line line = {
        .now = now, .gpu = dice(3), .row = (enum gm_trace_row)dice(GM_TRACE_ROWS), .app = dice(4)};
    for (unsigned i = 0; i < GM_TRACE_NUMBERS_MAX; i++)
        line.number[i] = odd_number(now);
    snprintf(line.text, sizeof line.text, "<&\"> x");
    if (line.row == GM_TRACE_ROW_STATE || line.row == GM_TRACE_ROW_COPIED ||
        line.row == GM_TRACE_ROW_BEGIN || line.row == GM_TRACE_ROW_SET)
        gm_trace_word(line.row, (int)dice(line.row == GM_TRACE_ROW_BEGIN ? 2 : 4), line.text);
    gm_trace_write(text, sizeof text, &line);
    fputs(text, file);
}

static void expect_within(const cJSON *events, double length)
{
    const double least = 1e-6 * length; /* a double has no more */
    double ends[1000] = {0};
    const cJSON *event;
    cJSON_ArrayForEach(event, events)
    {
        const int track = (int)number_of(event, "tid");
        const double from = number_of(event, "ts"), took = number_of(event, "dur");
        if (word_of(event, "ph")[0] == 'M')
            continue;
        assert_true(from >= 0 && from <= length + least);
        if (word_of(event, "ph")[0] != 'X')
            continue;
        assert_true(took >= 0 && from + took <= length + least);
        if (track < 10)
            continue;
        assert_true(took > 0 && from + least >= ends[track]); /* programs do one thing at a time */
        ends[track] = from + took;
    }
}

static void any_lines(void **state)
{
    (void)state;
    for (seed = 1; seed <= 600 * 7; seed += 7) {
        const uint64_t first = seed;
        uint64_t now = dice(2) ? dice(1000) : GM_TIME_NEVER - 2000000000, begun = 0;
        FILE *file = tmpfile();
        assert_non_null(file);
        fputs(GM_TRACE_MAGIC "\n", file);
        for (uint32_t n = 1 + dice(60); n > 0; n--) {
            now += dice(3) ? dice(1000000) : 0;
            begun = begun ? begun : now;
            write_line(file, now);
        }
        cJSON *events = export(file);
        expect_within(events, (double)(now - begun) / 1e3);
        cJSON_Delete(events);
        seed = first;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_program_does),
        cmocka_unit_test(what_is_cut),
        cmocka_unit_test(numbers_come_again),
        cmocka_unit_test(any_lines),
    };
    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
