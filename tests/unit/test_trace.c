/* daemon/trace: what is written is what is read, and nothing else is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/trace/trace.h"

#define HEADER                                                                                     \
    "gpumux-sched-trace 2 max_apps=4 budget=1000 levels=5 allotment_ns=8000000000 "                \
    "slice_ns=4000000000 patience_ns=60000000000 retry_ns=200000000\n"

static const struct gm_sched_config CONFIG = {4,          1000,        5,        8000000000,
                                              4000000000, 60000000000, 200000000};

static struct gm_trace_entry begun(void)
{
    struct gm_trace_entry entry = {0};
    char why[200] = "";
    if (gm_trace_parse(HEADER, &entry, why, sizeof why) != 0)
        fail_msg("the header: %s", why);
    return entry;
}

/* A string that ends where its memory does: a read beyond it is seen by the sanitizer. */
static int parse(const char *line, struct gm_trace_entry *entry, char *why, size_t size)
{
    char *copy = strdup(line);
    int result = gm_trace_parse(copy, entry, why, size);
    free(copy);
    return result;
}

static void test_header(void **state)
{
    (void)state;
    char line[GM_TRACE_LINE_MAX];
    assert_int_equal(gm_trace_config(line, sizeof line, &CONFIG), strlen(HEADER));
    assert_string_equal(line, HEADER);
    struct gm_trace_entry entry = begun();
    assert_int_equal(entry.kind, GM_TRACE_CONFIG);
    assert_memory_equal(&entry.config, &CONFIG, sizeof CONFIG);
}

static void test_events(void **state)
{
    (void)state;
    static const struct {
        uint64_t now;
        struct gm_sched_event event;
        const char *line;
    } cases[] = {
        {0, {GM_SCHED_JOIN, 3, 0, 0, 0, 0, 0}, "0 join 3\n"},
        {0, {GM_SCHED_JOIN, 3, 0, 0, 1000, 0, 0}, "0 join 3 1000\n"},
        {0, {GM_SCHED_JOIN, 3, 0, 0, UINT32_MAX, 0, 0}, "0 join 3 4294967295\n"},
        {0, {GM_SCHED_SIZE, 3, UINT64_MAX, 0, 0, 0, 0}, "0 size 3 18446744073709551615\n"},
        {7, {GM_SCHED_WANT, 3, 0, 0, 0, 0, 0}, "7 want 3\n"},
        {8, {GM_SCHED_OPENED, 3, 0, 0, 0, 0, 0}, "8 opened 3\n"},
        {9, {GM_SCHED_IDLE, 3, 0, 0, 0, 0, 0}, "9 idle 3\n"},
        {9, {GM_SCHED_IDLE, 3, 0, 100000000, 0, 0, 0}, "9 idle 3 100000000\n"},
        {9, {GM_SCHED_TIMER, 0, 0, 0, 0, 0, 0}, "9 timer\n"},
        {10, {GM_SCHED_BUSY, 3, 0, 0, 0, 0, 0}, "10 busy 3\n"},
        {10, {GM_SCHED_HURRY, 3, 0, 0, 0, 0, 0}, "10 hurry 3\n"},
        {11, {GM_SCHED_CLOSED, 3, 0, 0, 0, 0, 0}, "11 closed 3\n"},
        {12, {GM_SCHED_ROOM, 0, 0, 0, 0, 0, 0}, "12 room 0\n"},
        {UINT64_MAX - 1, {GM_SCHED_LEAVE, 0, 0, 0, 0, 0, 0}, "18446744073709551614 leave 0\n"},
    };
    struct gm_trace_entry entry = begun();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[GM_TRACE_LINE_MAX], why[200] = "";
        size_t n = gm_trace_event(line, sizeof line, cases[i].now, &cases[i].event);
        assert_string_equal(line, cases[i].line);
        assert_int_equal(n, strlen(line));
        if (i % 2)
            line[n - 1] = '\0'; /* a line without its end is a line */
        if (parse(line, &entry, why, sizeof why) != 0)
            fail_msg("%s: %s", cases[i].line, why);
        assert_int_equal(entry.kind, GM_TRACE_EVENT);
        assert_int_equal(entry.now, cases[i].now);
        assert_int_equal(entry.event.kind, cases[i].event.kind);
        assert_int_equal(entry.event.app, cases[i].event.app);
        assert_int_equal(entry.event.bytes, cases[i].event.bytes);
        assert_int_equal(entry.event.ago_ns, cases[i].event.ago_ns);
    }
}

static void test_policies(void **state)
{
    (void)state;
    static const struct {
        struct gm_sched_policy policy;
        const char *line;
    } cases[] = {
        {{GM_CLASS_AUTO, false, 1000, 1000},
         "5 set 2 class=auto weight=1000 share=1000 paused=0\n"},
        {{GM_CLASS_LATENCY, false, 100, 1}, "5 set 2 class=latency weight=100 share=1 paused=0\n"},
        {{GM_CLASS_INTERACTIVE, true, 10000, 999},
         "5 set 2 class=interactive weight=10000 share=999 paused=1\n"},
        {{GM_CLASS_BATCH, true, 1500, 30}, "5 set 2 class=batch weight=1500 share=30 paused=1\n"},
    };
    struct gm_trace_entry entry = begun();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[GM_TRACE_LINE_MAX], why[200] = "";
        size_t n = gm_trace_policy(line, sizeof line, 5, 2, &cases[i].policy);
        assert_string_equal(line, cases[i].line);
        assert_int_equal(n, strlen(line));
        if (parse(line, &entry, why, sizeof why) != 0)
            fail_msg("%s: %s", cases[i].line, why);
        assert_int_equal(entry.kind, GM_TRACE_POLICY);
        assert_int_equal(entry.event.app, 2);
        assert_int_equal(entry.policy.class, cases[i].policy.class);
        assert_int_equal(entry.policy.weight, cases[i].policy.weight);
        assert_int_equal(entry.policy.share, cases[i].policy.share);
        assert_int_equal(entry.policy.is_paused, cases[i].policy.is_paused);
    }
}

/* Every row, with what is odd in its text. */
static void test_rows(void **state)
{
    (void)state;
    static const struct {
        struct gm_trace_view view;
        const char *line;
    } cases[] = {
        {{GM_TRACE_ROW_BEGIN, 0, {17}, "whole"}, "5 begin wall_ns=17 whole\n"},
        {{GM_TRACE_ROW_GPU, 0, {1}, ""}, "5 gpu index=1\n"},
        {{GM_TRACE_ROW_GPU, 0, {1}, "a card"}, "5 gpu index=1 a card\n"},
        {{GM_TRACE_ROW_LOST, 0, {4096}, ""}, "5 lost bytes=4096\n"},
        {{GM_TRACE_ROW_APP, 3, {812, UINT32_MAX}, " a  \xc3\xa9 =b"},
         "5 app 3 pid=812 uid=4294967295  a  \xc3\xa9 =b\n"},
        {{GM_TRACE_ROW_STATE, 0, {0}, "draining"}, "5 state 0 draining\n"},
        {{GM_TRACE_ROW_PARKED, 2, {0}, ""}, "5 parked 2\n"},
        {{GM_TRACE_ROW_COPIED, 0, {1, 2, 33554432}, "down"},
         "5 copied begin_ns=1 end_ns=2 bytes=33554432 down\n"},
        {{GM_TRACE_ROW_SWITCH,
          1,
          {45, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, UINT64_MAX},
          "its turn; in the place of pid 9 (idle)"},
         "5 switch 1 total_ns=45 drain_ns=1 plan_ns=2 lower_ns=3 pinned_ns=4 copy_ns=5 hash_ns=6 "
         "unmap_ns=7 map_ns=8 other_ns=9 out=10 in=11 clean=12 zero=13 down=14 up=15 "
         "waited_ns=18446744073709551615 its turn; in the place of pid 9 (idle)\n"},
        {{GM_TRACE_ROW_LEVEL, 1, {2, 1}, "rested"}, "5 level 1 from=2 to=1 rested\n"},
        {{GM_TRACE_ROW_SAID, 1, {1000}, "class=batch"}, "5 said 1 uid=1000 class=batch\n"},
        {{GM_TRACE_ROW_REFUSED, 1, {7, 2}, "full"}, "5 refused 1 bytes=7 times=2 full\n"},
        {{GM_TRACE_ROW_TIERS, 0, {1, 2, 3, 4, 5}, ""},
         "5 tiers gpu=1 pinned=2 paged=3 disk=4 host=5\n"},
    };
    bool is_seen[GM_TRACE_ROWS] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_trace_entry entry = begun();
        char line[GM_TRACE_LINE_MAX], why[200] = "";
        size_t n = gm_trace_view(line, sizeof line, 5, &cases[i].view);
        assert_string_equal(line, cases[i].line);
        assert_int_equal(n, strlen(line));
        if (parse(line, &entry, why, sizeof why) != 0)
            fail_msg("%s: %s", cases[i].line, why);
        assert_int_equal(entry.kind, GM_TRACE_VIEW);
        assert_int_equal(entry.now, 5);
        assert_int_equal(entry.view.row, cases[i].view.row);
        assert_int_equal(entry.view.app, cases[i].view.app);
        assert_memory_equal(entry.view.number, cases[i].view.number, sizeof entry.view.number);
        assert_string_equal(entry.view.text, cases[i].view.text);
        is_seen[cases[i].view.row] = true;
    }
    for (unsigned row = 0; row < GM_TRACE_ROWS; row++)
        assert_true(is_seen[row]);
}

/* Whatever a program is called, a line is one, and legal; the largest values fit. */
static void test_hostile_texts(void **state)
{
    (void)state;
    struct gm_trace_view view = {.row = GM_TRACE_ROW_APP, .text = "a\nb\033[2J\xff  "};
    struct gm_trace_entry entry = begun();
    char line[GM_TRACE_LINE_MAX], why[200] = "";
    gm_trace_view(line, sizeof line, 5, &view);
    assert_string_equal(line, "5 app 0 pid=0 uid=0 a?b?[2J?\n");
    assert_int_equal(parse(line, &entry, why, sizeof why), 0);

    memset(&view, 0xff, sizeof view);
    view.row = GM_TRACE_ROW_SWITCH;
    assert_in_range(gm_trace_view(line, sizeof line, UINT64_MAX, &view), 500, sizeof line - 1);
    assert_int_equal(line[strlen(line) - 1], '\n');
}

static void test_words(void **state)
{
    (void)state;
    char word[16];
    assert_string_equal(gm_trace_word(GM_TRACE_ROW_STATE, 2, word), "running");
    assert_int_equal(gm_trace_find_word(GM_TRACE_ROW_STATE, "gone"), 4);
    assert_int_equal(gm_trace_find_word(GM_TRACE_ROW_STATE, "gon"), -1);
    assert_int_equal(gm_trace_find_word(GM_TRACE_ROW_STATE, ""), -1);
}

/* The largest values there are fit a line, and a short buffer is never overrun. */
static void test_sizes(void **state)
{
    (void)state;
    struct gm_sched_config config = {UINT32_MAX, UINT64_MAX, UINT32_MAX, UINT64_MAX,
                                     UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct gm_sched_event event = {GM_SCHED_OPENED, UINT32_MAX, UINT64_MAX, 0, 0, 0, 0};
    struct gm_sched_policy policy = {GM_CLASS_INTERACTIVE, true, UINT32_MAX, UINT32_MAX};
    char whole[3][GM_TRACE_LINE_MAX];
    size_t lengths[] = {gm_trace_config(whole[0], GM_TRACE_LINE_MAX, &config),
                        gm_trace_event(whole[1], GM_TRACE_LINE_MAX, UINT64_MAX, &event),
                        gm_trace_policy(whole[2], GM_TRACE_LINE_MAX, UINT64_MAX, 7, &policy)};
    for (size_t kind = 0; kind < 3; kind++) {
        assert_in_range(lengths[kind], 1, GM_TRACE_LINE_MAX - 1);
        for (size_t size = 0; size <= lengths[kind] + 1; size++) {
            char *line = malloc(size + 1);
            memset(line, '#', size + 1);
            size_t n = kind == 0   ? gm_trace_config(line, size, &config)
                       : kind == 1 ? gm_trace_event(line, size, UINT64_MAX, &event)
                                   : gm_trace_policy(line, size, UINT64_MAX, 7, &policy);
            assert_int_equal(n, lengths[kind]);
            assert_int_equal(line[size], '#');
            if (size > 0) {
                assert_int_equal(strlen(line), size - 1);
                assert_memory_equal(line, whole[kind], size - 1);
            }
            free(line);
        }
    }
}

static void test_bad_headers(void **state)
{
    (void)state;
#define REST " budget=1000 levels=5 allotment_ns=8 slice_ns=4 patience_ns=60 retry_ns=2"
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"", "the header is missing"},
        {"\n", "the header is missing"},
        {"1 join 3", "not a trace of a scheduler: it does not begin with gpumux-sched-trace"},
        {"gpumux-sched-traces 1 max_apps=4" REST,
         "not a trace of a scheduler: it does not begin with gpumux-sched-trace"},
        {"\x7f\x45LF\x01\xff",
         "not a trace of a scheduler: it does not begin with gpumux-sched-trace"},
        {"gpumux-sched-trace", "the version is missing"},
        {"gpumux-sched-trace 1 max_apps=4" REST, "the version is 1, not from 2 to 2"},
        {"gpumux-sched-trace 2 max_apps=4", "budget= is missing"},
        {"gpumux-sched-trace 2" REST, "max_apps= is missing"},
        {"gpumux-sched-trace 2 max_apps=" REST, "max_apps is missing"},
        {"gpumux-sched-trace 2 max_apps=-4" REST, "max_apps is not a number: -4"},
        {"gpumux-sched-trace 2 max_apps=4294967296" REST,
         "max_apps is 4294967296, not from 0 to 4294967295"},
        {"gpumux-sched-trace 2 max_apps=4294967295" REST, "settings that no scheduler can have"},
        {"gpumux-sched-trace 2 max_apps=0" REST, "settings that no scheduler can have"},
        {"gpumux-sched-trace 2 max_apps=4" REST " colour=3", "more than belongs there: colour=3"},
        {"gpumux-sched-trace 2 max_apps=4" REST "\n1 join 3", "more than belongs there: ?1 join 3"},
        {"gpumux-sched-trace 2 max_apps=4" REST " \n", "a blank at the end of the line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_trace_entry entry = {0}, before = entry;
        char why[200] = "";
        assert_int_equal(parse(cases[i].line, &entry, why, sizeof why), -EINVAL);
        assert_string_equal(why, cases[i].why);
        assert_memory_equal(&entry, &before, sizeof entry);
    }
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"", "the time is missing"},
        {"join 3", "the time is not a number: join"},
        {"99 join 3", "the time goes back: 99 after 100"},
        {"0100 join 3", "the time is not a number: 0100"},
        {"+100 join 3", "the time is not a number: +100"},
        {"0x100 join 3", "the time is not a number: 0x100"},
        {"100.5 join 3", "the time is not a number: 100.5"},
        {"18446744073709551615 join 3",
         "the time is 18446744073709551615, not from 0 to 18446744073709551614"},
        {"18446744073709551616 join 3",
         "the time is 18446744073709551616, not from 0 to 18446744073709551614"},
        {"99999999999999999999999 join 3",
         "the time is 99999999999999999999999, not from 0 to 18446744073709551614"},
        {"100", "the event is missing"},
        {"100 ", "the event is missing"},
        {"100 JOIN 3", "an unknown event: JOIN"},
        {"100 joined 3", "an unknown event: joined"},
        {"100 j\033[2Jn 3", "an unknown event: j?[2Jn"},
        {"100 join", "the app is missing"},
        {"100 join 4", "the app is 4, not from 0 to 3"},
        {"100 join 4294967299", "the app is 4294967299, not from 0 to 3"},
        {"100 join 3 0", "the user is 0, not from 1 to 4294967295"},
        {"100 join 3 4294967296", "the user is 4294967296, not from 1 to 4294967295"},
        {"100 join 3 7 7", "more than belongs there: 7"},
        {"100 join  3", "the app is missing"},
        {"100 join 3 ", "a blank at the end of the line"},
        {"100 join 3 \n", "a blank at the end of the line"},
        {"100 join 3\n\n", "more than belongs there: ??"},
        {"100 join 3\r\n", "the app is not a number: 3?"},
        {"100 join\t3", "an unknown event: join?3"},
        {"100 timer 3", "more than belongs there: 3"},
        {"100 size 3", "the size is missing"},
        {"100 size 3 18446744073709551616",
         "the size is 18446744073709551616, not from 0 to 18446744073709551615"},
        {"100 size 3 10k", "the size is not a number: 10k"},
        {"100 idle 3 0", "the time it is idle is 0, not from 1 to 18446744073709551615"},
        {"100 idle 3 ", "a blank at the end of the line"},
        {"100 idle 3 5 5", "more than belongs there: 5"},
        {"100 set", "the app is missing"},
        {"100 set 9 class=auto weight=1 share=1 paused=0", "the app is 9, not from 0 to 3"},
        {"100 set 3", "class= is missing"},
        {"100 set 3 class=", "class is missing"},
        {"100 set 3 class=fast weight=1000 share=1000 paused=0", "an unknown class: fast"},
        {"100 set 3 class=batchbatchbatchbatch weight=1000 share=1000 paused=0",
         "an unknown class: batchbatchbatchbatch"},
        {"100 set 3 weight=1000 class=batch share=1000 paused=0", "class= is missing"},
        {"100 set 3 class=batch weight=99 share=1000 paused=0",
         "weight is 99, not from 100 to 10000"},
        {"100 set 3 class=batch weight=10001 share=1000 paused=0",
         "weight is 10001, not from 100 to 10000"},
        {"100 set 3 class=batch weight=1000 share=0 paused=0", "share is 0, not from 1 to 1000"},
        {"100 set 3 class=batch weight=1000 share=1001 paused=0",
         "share is 1001, not from 1 to 1000"},
        {"100 set 3 class=batch weight=1000 share=1000 paused=2", "paused is 2, not from 0 to 1"},
        {"100 set 3 class=batch weight=1000 share=1000 paused=yes", "paused is not a number: yes"},
        {"100 set 3 class=batch weight=1000 share=1000", "paused= is missing"},
        {"100 state 3", "\"\" is none of: paused loading running draining gone"},
        {"100 state 3 runs", "\"runs\" is none of: paused loading running draining gone"},
        {"100 state 4 running", "the app is 4, not from 0 to 3"},
        {"100 state 3 running ", "a blank at the end of the line"},
        {"100 state 3 running \n", "a blank at the end of the line"},
        {"100 parked 3 x", "more than belongs there: x"},
        {"100 app 3 pid=1 uid=1 \n", "a blank at the end of the line"},
        {"100 app 3 pid=1 uid=1 a\tb\n", "the text is not legal: a?b"},
        {"100 app 3 pid=1 uid=1 \xff\n", "the text is not legal: ?"},
        {"100 app 3 pid=1 x", "uid= is missing"},
        {"100 copied begin_ns=1 end_ns=2 bytes=-1 in", "bytes is not a number: -1"},
        {HEADER, "the time is not a number: gpumux-sched-trace"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_trace_entry entry = begun();
        char why[200] = "";
        assert_int_equal(parse("100 want 1", &entry, why, sizeof why), 0);
        struct gm_trace_entry before = entry;
        if (parse(cases[i].line, &entry, why, sizeof why) != -EINVAL)
            fail_msg("taken: %s", cases[i].line);
        assert_string_equal(why, cases[i].why);
        assert_memory_equal(&entry, &before, sizeof entry);
    }
}

/* Why it is wrong never overruns what it is given, however long the line is. */
static void test_long_lines(void **state)
{
    (void)state;
    for (size_t length = 1; length < 3000; length += 37) {
        char *line = malloc(length + 1);
        memset(line, '7', length);
        line[length] = '\0';
        for (size_t size = 0; size < 64; size += 7) {
            struct gm_trace_entry entry = begun();
            char *why = malloc(size + 1);
            memset(why, '#', size + 1);
            assert_int_equal(gm_trace_parse(line, &entry, why, size), -EINVAL);
            assert_int_equal(why[size], '#');
            assert_true(size == 0 || strlen(why) < size);
            free(why);
        }
        free(line);
    }
}

/* Bytes changed at random: what is still taken is written as it stands there. */
static void test_changed_bytes(void **state)
{
    (void)state;
    static const char *const lines[] = {HEADER,
                                        "100 join 3\n",
                                        "101 size 2 1048576\n",
                                        "102 idle 2 100\n",
                                        "103 room 500\n",
                                        "104 set 1 class=batch weight=1000 share=500 paused=1\n",
                                        "105 app 3 pid=812 uid=7 train\n",
                                        "106 state 2 running\n",
                                        "107 level 1 from=2 to=3 used up\n",
                                        "108 tiers gpu=1 pinned=2 paged=3 disk=4 host=5\n"};
    uint64_t random = 1;
    unsigned taken = 0;
    enum { LINES = sizeof lines / sizeof *lines };
    for (unsigned round = 0; round < 60000; round++) {
        char line[GM_TRACE_LINE_MAX], again[GM_TRACE_LINE_MAX], why[200];
        const char *from = lines[round % LINES];
        strcpy(line, from);
        for (unsigned i = 0; i < 1 + round % 2; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            static const char bytes[] = "0123456789 =\nabc";
            line[(random >> 33) % strlen(from)] =
                round % 3 ? bytes[(random >> 50) % 16] : (char)(1 + (random >> 40) % 255);
        }
        struct gm_trace_entry entry = {0};
        if (round % LINES != 0)
            entry = begun();
        if (parse(line, &entry, why, sizeof why) != 0)
            continue;
        taken++;
        if (entry.kind == GM_TRACE_CONFIG)
            gm_trace_config(again, sizeof again, &entry.config);
        else if (entry.kind == GM_TRACE_EVENT)
            gm_trace_event(again, sizeof again, entry.now, &entry.event);
        else if (entry.kind == GM_TRACE_VIEW)
            gm_trace_view(again, sizeof again, entry.now, &entry.view);
        else
            gm_trace_policy(again, sizeof again, entry.now, entry.event.app, &entry.policy);
        line[strcspn(line, "\n")] = again[strlen(again) - 1] = '\0';
        assert_string_equal(line, again);
    }
    assert_in_range(taken, 1000, 59000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),      cmocka_unit_test(test_events),
        cmocka_unit_test(test_policies),    cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_long_lines),  cmocka_unit_test(test_changed_bytes),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
