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

/* A string that ends where its memory does: a read beyond it is seen by the sanitizer. */
static bool parse(const char *text, struct gm_trace_line *line)
{
    char *copy = strdup(text);
    const bool is_line = gm_trace_parse(copy, line);
    free(copy);
    return is_line;
}

/* It is written as `text`, and read as it was. */
static struct gm_trace_line expect(const struct gm_trace_line *line, const char *text)
{
    char is[GM_TRACE_LINE_MAX];
    struct gm_trace_line read;
    size_t n = gm_trace_write(is, sizeof is, line);
    assert_int_equal(n, strlen(is));
    assert_int_equal(is[n - 1], '\n');
    is[n - 1] = '\0';
    assert_string_equal(is, text);
    if (!parse(text, &read))
        fail_msg("refused: %s", text);
    assert_int_equal(read.now, line->now);
    assert_int_equal(read.gpu, line->gpu);
    assert_int_equal(read.row, line->row);
    assert_int_equal(read.app, line->app);
    assert_memory_equal(read.number, line->number, sizeof read.number);
    assert_string_equal(read.text, line->text);
    return read;
}

/* Every row, with what is odd in its text. */
static void test_rows(void **state)
{
    (void)state;
    static const struct {
        struct gm_trace_line line;
        const char *text;
    } cases[] = {
        {{0, 0, GM_TRACE_ROW_BEGIN, 0, {17}, "whole"}, "0 0 begin wall_ns=17 whole"},
        {{5, 1, GM_TRACE_ROW_GPU, 0, {0}, ""}, "5 1 gpu"},
        {{5, UINT32_MAX, GM_TRACE_ROW_GPU, 0, {0}, "a card"}, "5 4294967295 gpu a card"},
        {{5, 0, GM_TRACE_ROW_LOST, 0, {4096}, ""}, "5 0 lost bytes=4096"},
        {{UINT64_MAX - 1, 0, GM_TRACE_ROW_APP, 3, {812, UINT32_MAX}, " a  \xc3\xa9 =b"},
         "18446744073709551614 0 app 3 pid=812 uid=4294967295  a  \xc3\xa9 =b"},
        {{5, 0, GM_TRACE_ROW_STATE, 0, {0}, "draining"}, "5 0 state 0 draining"},
        {{5, 0, GM_TRACE_ROW_PARKED, UINT32_MAX, {0}, ""}, "5 0 parked 4294967295"},
        {{5, 0, GM_TRACE_ROW_COPIED, 0, {1, 2, 33554432}, "down"},
         "5 0 copied begin_ns=1 end_ns=2 bytes=33554432 down"},
        {{5,
          0,
          GM_TRACE_ROW_SWITCH,
          1,
          {45, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, UINT64_MAX},
          "its turn; in the place of pid 9 (idle)"},
         "5 0 switch 1 total_ns=45 drain_ns=1 plan_ns=2 lower_ns=3 pinned_ns=4 copy_ns=5 hash_ns=6 "
         "unmap_ns=7 map_ns=8 other_ns=9 out=10 in=11 clean=12 zero=13 down=14 up=15 "
         "waited_ns=18446744073709551615 its turn; in the place of pid 9 (idle)"},
        {{5, 0, GM_TRACE_ROW_LEVEL, 1, {2, 1}, "rested"}, "5 0 level 1 from=2 to=1 rested"},
        {{5, 0, GM_TRACE_ROW_SAID, 1, {1000}, "class=batch"}, "5 0 said 1 uid=1000 class=batch"},
        {{5, 0, GM_TRACE_ROW_REFUSED, 1, {7, 2}, "full"}, "5 0 refused 1 bytes=7 times=2 full"},
        {{5, 0, GM_TRACE_ROW_TIERS, 0, {1, 2, 3, 4, 5}, ""},
         "5 0 tiers gpu=1 pinned=2 paged=3 disk=4 host=5"},
    };
    bool is_seen[GM_TRACE_ROWS] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect(&cases[i].line, cases[i].text);
        is_seen[cases[i].line.row] = true;
    }
    for (unsigned row = 0; row < GM_TRACE_ROW_SCHED; row++) /* of the others: test_input */
        assert_true(is_seen[row]);
}

/* What a scheduler is told comes back from its row. */
static void test_input(void **state)
{
    (void)state;
    static const struct {
        struct gm_sched_event event;
        const char *text;
    } cases[] = {
        {{GM_SCHED_JOIN, 3, 0, 0, UINT32_MAX, 2, UINT64_MAX},
         "0 0 join 3 user=4294967295 level=2 charged_ns=18446744073709551615"},
        {{GM_SCHED_LEAVE, 0, 0, 0, 0, 0, 0}, "0 0 leave 0"},
        {{GM_SCHED_WANT, 3, 0, 0, 0, 0, 0}, "0 0 want 3"},
        {{GM_SCHED_IDLE, 3, 0, 100000000, 0, 0, 0}, "0 0 idle 3 ago_ns=100000000"},
        {{GM_SCHED_SIZE, 3, 7, 0, 0, 0, 0}, "0 0 size 3 bytes=7"},
        {{GM_SCHED_OPENED, 3, 0, 0, 0, 0, 0}, "0 0 opened 3"},
        {{GM_SCHED_CLOSED, 3, 0, 0, 0, 0, 0}, "0 0 closed 3"},
        {{GM_SCHED_BUSY, 3, 0, 0, 0, 0, 0}, "0 0 busy 3"},
        {{GM_SCHED_HURRY, 3, 0, 0, 0, 0, 0}, "0 0 hurry 3"},
        {{GM_SCHED_TIE, 3, 0, 0, 0, 0, 0}, "0 0 tie 3"},
        {{GM_SCHED_UNTIE, 3, 0, 0, 0, 0, 0}, "0 0 untie 3"},
        {{GM_SCHED_WASTE, 3, 0, 0, 0, 0, 0}, "0 0 waste 3"},
        {{GM_SCHED_TIMER, 0, 0, 0, 0, 0, 0}, "0 0 timer"},
        {{GM_SCHED_ROOM, 0, 9, 0, 0, 0, 0}, "0 0 room bytes=9"},
    };
    static const struct gm_sched_config config = {4, 1000, 5, 8, 4, 60, 2};
    static const struct gm_sched_policy policy = {GM_CLASS_BATCH, true, 1500, 30};
    struct gm_trace_line line;
    struct gm_sched_event event;
    struct gm_sched_config config_is;
    struct gm_sched_policy policy_is;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cases[i].event.kind, i);
        gm_trace_put_event(&line, &cases[i].event);
        line = expect(&line, cases[i].text);
        assert_true(gm_trace_event(&line, &event));
        assert_memory_equal(&event, &cases[i].event, sizeof event);
        assert_false(gm_trace_config(&line, &config_is));
        assert_false(gm_trace_policy(&line, &policy_is));
    }
    gm_trace_put_config(&line, &config);
    line = expect(&line, "0 0 sched max_apps=4 budget=1000 levels=5 allotment_ns=8 slice_ns=4 "
                         "patience_ns=60 retry_ns=2");
    assert_true(gm_trace_config(&line, &config_is));
    assert_memory_equal(&config_is, &config, sizeof config);
    assert_false(gm_trace_event(&line, &event));
    gm_trace_put_policy(&line, 2, &policy);
    line = expect(&line, "0 0 set 2 weight=1500 share=30 paused=1 batch");
    assert_true(gm_trace_policy(&line, &policy_is));
    assert_memory_equal(&policy_is, &policy, sizeof policy);
    for (unsigned class = 0; class < GM_CLASSES; class ++)
        assert_int_equal(gm_trace_find_word(GM_TRACE_ROW_SET, gm_class_name(class)), class);
}

/* What is a line, and nothing that a scheduler can be told. */
static void test_no_input(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "5 0 join 3 user=4294967296 level=0 charged_ns=0",
        "5 0 join 3 user=0 level=4294967296 charged_ns=0",
        "5 0 set 3 weight=4294967296 share=1000 paused=0 auto",
        "5 0 set 3 weight=1000 share=4294967296 paused=0 auto",
        "5 0 set 3 weight=1000 share=1000 paused=2 auto",
        "5 0 sched max_apps=0 budget=1 levels=5 allotment_ns=8 slice_ns=4 patience_ns=60 "
        "retry_ns=2",
        "5 0 sched max_apps=4294967300 budget=1 levels=5 allotment_ns=8 slice_ns=4 patience_ns=60 "
        "retry_ns=2",
        "5 0 parked 3",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_trace_line line;
        struct gm_sched_event event;
        struct gm_sched_config config;
        struct gm_sched_policy policy;
        assert_true(parse(cases[i], &line));
        if (gm_trace_event(&line, &event) || gm_trace_config(&line, &config) ||
            gm_trace_policy(&line, &policy))
            fail_msg("taken: %s", cases[i]);
    }
}

/* Whatever a program is called, a line is one, and legal; the largest values fit; and a short
 * buffer is never overrun. */
static void test_hostile_texts(void **state)
{
    (void)state;
    struct gm_trace_line line = {.row = GM_TRACE_ROW_APP, .text = "a\nb\033[2J\xff  "};
    char text[GM_TRACE_LINE_MAX];
    gm_trace_write(text, sizeof text, &line);
    assert_string_equal(text, "0 0 app 0 pid=0 uid=0 a?b?[2J?\n");
    text[strlen(text) - 1] = '\0';
    assert_true(parse(text, &line));

    memset(&line, 0xff, sizeof line);
    line.row = GM_TRACE_ROW_SWITCH;
    const size_t length = gm_trace_write(text, sizeof text, &line);
    assert_in_range(length, 500, sizeof text - 1);
    assert_int_equal(text[length - 1], '\n');
    for (size_t size = 0; size <= length + 1; size++) {
        char *part = malloc(size + 1);
        memset(part, '#', size + 1);
        assert_int_equal(gm_trace_write(part, size, &line), length);
        assert_int_equal(part[size], '#');
        assert_true(size == 0 || strlen(part) == size - 1);
        free(part);
    }
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

static void test_bad_lines(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        " 100 0 leave 3",
        "leave 0 3",
        "0100 0 leave 3",
        "+100 0 leave 3",
        "100.5 0 leave 3",
        "18446744073709551615 0 leave 3",
        "18446744073709551616 0 leave 3",
        "100",
        "100 4294967296 leave 3",
        "100 0",
        "100 0 ",
        "100 0 LEAVE 3",
        "100 0 left 3",
        "100 0 j\033[2Jn 3",
        "100 0 leave",
        "100 0 leave 4294967296",
        "100 0 leave  3",
        "100 0 leave 3 ",
        "100 0 leave 3\n",
        "100 0 leave\t3",
        "100 0 leave 3 7",
        "100 0 timer 3",
        "100 0 size 3",
        "100 0 size 3 5",
        "100 0 size 3 byte=5",
        "100 0 size 3 bytes=",
        "100 0 size 3 bytes=-1",
        "100 0 size 3 bytes=10k",
        "100 0 size 3 bytes=18446744073709551616",
        "100 0 set 3 weight=1 share=1 paused=0",
        "100 0 set 3 share=1 weight=1 paused=0 auto",
        "100 0 state 3 runs",
        "100 0 state 3 running ",
        "100 0 app 3 pid=1 uid=1 ",
        "100 0 app 3 pid=1 uid=1 a\tb",
        "100 0 app 3 pid=1 uid=1 \xff",
        "100 0 app 3 pid=1 x",
        GM_TRACE_MAGIC,
    };
    static char longest[3 * GM_TRACE_LINE_MAX];
    struct gm_trace_line line = {.now = 7}, before = line;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (parse(cases[i], &line))
            fail_msg("taken: %s", cases[i]);
    for (size_t length = 1; length < sizeof longest; length++) {
        longest[length - 1] = '7';
        assert_false(parse(longest, &line));
    }
    memcpy(longest, "5 0 gpu ", 8); /* a text that is too long */
    assert_false(parse(longest, &line));
    assert_memory_equal(&line, &before, sizeof line);
}

/* Bytes changed at random: what is still taken is written as it stands there. */
static void test_changed_bytes(void **state)
{
    (void)state;
    static const char *const lines[] = {"100 0 join 3 user=0 level=0 charged_ns=0",
                                        "101 1 size 2 bytes=1048576",
                                        "102 0 leave 2",
                                        "103 0 gpu a card",
                                        "104 0 set 1 weight=1000 share=500 paused=1 batch",
                                        "105 0 app 3 pid=812 uid=7 train",
                                        "106 0 state 2 running",
                                        "107 0 level 1 from=2 to=3 used up",
                                        "108 0 tiers gpu=1 pinned=2 paged=3 disk=4 host=5"};
    uint64_t random = 1;
    unsigned taken = 0;
    enum { LINES = sizeof lines / sizeof *lines };
    for (unsigned round = 0; round < 60000; round++) {
        char text[GM_TRACE_LINE_MAX], again[GM_TRACE_LINE_MAX];
        const char *from = lines[round % LINES];
        strcpy(text, from);
        for (unsigned i = 0; i < 1 + round % 2; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            static const char bytes[] = "0123456789 =\nabc";
            text[(random >> 33) % strlen(from)] =
                round % 3 ? bytes[(random >> 50) % 16] : (char)(1 + (random >> 40) % 255);
        }
        struct gm_trace_line line;
        if (!parse(text, &line))
            continue;
        taken++;
        gm_trace_write(again, sizeof again, &line);
        again[strlen(again) - 1] = '\0';
        assert_string_equal(text, again);
    }
    assert_in_range(taken, 1000, 59000);
}

/* A file: what it ends with, and what is wrong, by line. */
static void test_files(void **state)
{
    (void)state;
#define TEXT(text) text, sizeof(text) - 1
#define HEAD GM_TRACE_MAGIC "\n"
    static char longest[2 * GM_TRACE_LINE_MAX];
    memset(longest, '7', sizeof longest);
    memcpy(longest, HEAD, strlen(HEAD));
    const struct {
        const char *text;
        size_t length;
        unsigned lines, number; /* that are taken; and of the one that is wrong, 0: none */
        const char *why;
    } cases[] = {
        {TEXT(HEAD "1 0 timer\n2 0 timer\n"), 2, 0, ""},
        {TEXT(HEAD "1 0 timer\n2 0 tim"), 1, 0, ""},
        {TEXT(HEAD), 0, 0, ""},
        {TEXT(GM_TRACE_MAGIC), 0, 0, ""},
        {TEXT(""), 0, 0, ""},
        {TEXT("gpumux-trace 2\n"), 0, 1, "it does not begin with " GM_TRACE_MAGIC},
        {TEXT("hello"), 0, 1, "it does not begin with " GM_TRACE_MAGIC},
        {TEXT(HEAD "1 0 timer\n\n2 0 timer\n"), 1, 3, "not a line of a trace"},
        {TEXT(HEAD "1 0 \0timer\n"), 0, 2, "a zero byte in the line"},
        {longest, sizeof longest, 0, 2, "the line is longer than any"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned n = 0;
        int more;
        struct gm_trace_reader reader = {.file = tmpfile()};
        assert_non_null(reader.file);
        fwrite(cases[i].text, 1, cases[i].length, reader.file);
        rewind(reader.file);
        while ((more = gm_trace_next(&reader)) > 0)
            n++;
        assert_int_equal(n, cases[i].lines);
        assert_int_equal(more, cases[i].number > 0 ? -EINVAL : 0);
        assert_string_equal(reader.why, cases[i].why);
        assert_true(cases[i].number == 0 || reader.number == cases[i].number);
        fclose(reader.file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_input),
        cmocka_unit_test(test_no_input),      cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_words),         cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_changed_bytes), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
