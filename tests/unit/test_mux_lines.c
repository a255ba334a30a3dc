/* daemon/mux_lines: entries of the log as people read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "daemon/ctl/ctl.h"

static char text[2048];

static const char *show(const char *json)
{
    cJSON *entry = cJSON_Parse(json);
    assert_non_null(entry);
    assert_ptr_equal(mux_line(entry, text, sizeof text), text);
    cJSON_Delete(entry);
    assert_null(strchr(text, '\n'));
    return text;
}

static void test_kinds(void **state)
{
    (void)state;
    assert_string_equal(
        show("{\"seq\":4,\"kind\":\"switch\",\"time_s\":50767.25,\"app\":3,\"pid\":812,\"name\":"
             "\"python3\",\"level\":2,\"why\":\"slice\",\"waited_s\":1.254,\"left\":[{\"app\":1,"
             "\"pid\":7,\"name\":\"a\",\"level\":1,\"why\":\"idle\"},{\"app\":2,\"pid\":8,\"name\":"
             "\"b\",\"level\":2,\"why\":\"turn\"}],\"left_count\":2,\"total_ms\":269.14,\"drain_"
             "ms\":"
             "3,\"plan_ms\":0.26,\"copy_ms\":250,\"map_ms\":15.5,\"lower_ms\":0,\"pinned_ms\":1.26,"
             "\"link_ms\":250,"
             "\"bytes_out\":"
             "12884901888,\"bytes_in\":0}"),
        "1970-01-01 14:06:07.250  switch  app 3 (pid 812, python3) L2: its turn, after 1.25 s; for "
        "app 1 (pid "
        "7, a) L1: idle, app 2 (pid 8, b) L2: its turn was over; 269.1 ms (drain 3.0, plan 0.3, "
        "pinned 1.3, copies 250.0, map 15.5), 12 GiB out, 0 in, at 51.5 GB/s");
    assert_non_null(strstr(show("{\"kind\":\"switch\",\"left\":[{\"app\":1}],\"left_count\":6}"),
                           "; for app 1 (pid 0, -) L0: - and 5 more; 0.0 ms"));
    assert_non_null(strstr(
        show("{\"kind\":\"switch\",\"bytes_lowered\":3221225472,\"bytes_raised\":1073741824}"),
        ", at 0.0 GB/s; from pinned memory 3 GiB down, 1 GiB up to it"));
    assert_non_null(
        strstr(show("{\"kind\":\"switch\",\"bytes_clean\":3221225472,\"bytes_zero\":1073741824}"),
               ", at 0.0 GB/s; not copied out: 3 GiB unchanged, 1 GiB zero"));
    assert_string_equal(
        show("{\"kind\":\"level\",\"time_s\":0.9996,\"app\":3,\"pid\":812,\"name\":"
             "\"x\",\"level\":3,\"from_level\":2,\"why\":\"used up\"}"),
        "1970-01-01 00:00:00.999  level   app 3 (pid 812, x) L3: from level 2, used up");
    assert_string_equal(
        show("{\"kind\":\"restart\",\"took_s\":0.25,\"taken\":2,\"programs\":\"a (pid 7), b (pid "
             "8)\",\"cut\":0,\"ended\":1,\"broken\":3,\"wrong\":\"\"}"),
        "1970-01-01 00:00:00.000  restart in 0.25 s; 2 programs of the daemon before may come "
        "back: "
        "a (pid 7), b (pid 8); 1 have ended; 3 are unknown");
    assert_string_equal(
        show("{\"kind\":\"restart\",\"taken\":1,\"programs\":\"a (pid 7)\",\"cut\":1,"
             "\"wrong\":\"it is broken\"}"),
        "1970-01-01 00:00:00.000  restart in 0.00 s; 1 program of the daemon before may come back: "
        "a (pid 7); 1 live and cannot, and keep their memory until they end (mux-ctl ps names "
        "them); it is broken");
    assert_string_equal(
        show("{\"kind\":\"paused\",\"app\":3,\"pid\":812,\"name\":\"x\",\"level\":1,"
             "\"set\":\"paused\",\"by\":\"root\"}"),
        "1970-01-01 00:00:00.000  paused  app 3 (pid 812, x) L1: paused, by root");
}

static double sum_of(const char *details)
{
    double sum = 0, ms;
    int end = 0;
    for (const char *line = details; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        end = 0;
        if (sscanf(line, " %*[a-z] %lf ms%n", &ms, &end) == 1 && end > 0)
            sum += ms;
    }
    return sum;
}

/* Each who left, and all parts, which are its time. */
static void test_details(void **state)
{
    (void)state;
    cJSON *entry = cJSON_Parse(
        "{\"kind\":\"switch\",\"app\":3,\"left\":[{\"app\":1,\"pid\":7,\"name\":\"a\\nb\","
        "\"level\":1,"
        "\"why\":\"idle\"},{\"app\":2,\"pid\":8,\"name\":\"b\",\"level\":2,\"why\":\"turn\"}],"
        "\"left_count\":4,\"total_ms\":269.1,\"drain_ms\":3.002,\"plan_ms\":0.001,\"copy_ms\":250."
        "596,"
        "\"map_ms\":15.501,\"out_ms\":200.1,\"in_ms\":100,\"link_ms\":250.596}");
    mux_details(entry, text, sizeof text);
    assert_non_null(strstr(text, "    left     app 1 (pid 7, a?b) L1: idle\n"));
    assert_non_null(strstr(text, "    left     app 2 (pid 8, b) L2: its turn was over\n"));
    assert_non_null(strstr(text, "    left     2 more\n"));
    assert_non_null(strstr(text, "    plan         0.001 ms  the daemon computes what moves\n"));
    assert_non_null(strstr(
        text, "    in all     269.100 ms, with copies out 200.100, in 100.000, either 250.596"));
    assert_true(sum_of(text) > 269.0995 && sum_of(text) < 269.1005);
    cJSON_Delete(entry);
    entry =
        cJSON_Parse("{\"kind\":\"set\",\"set\":\"weight=0.5\",\"class\":\"batch\",\"weight\":0.5,"
                    "\"share_percent\":100,\"paused\":true}");
    assert_string_equal(mux_details(entry, text, sizeof text),
                        "    now      class=batch weight=0.5 share=100% paused");
    cJSON_Delete(entry);
    entry = cJSON_Parse("{\"kind\":\"level\"}");
    assert_string_equal(mux_details(entry, text, sizeof text), "");
    cJSON_Delete(entry);
}

/* What another daemon may send is shown as far as it can be, and harms no terminal. */
static void test_refusal(void **state)
{
    (void)state;
    assert_non_null(strstr(
        show("{\"kind\":\"refused\",\"app\":3,\"pid\":812,\"name\":\"a.py\",\"level\":1,\"why\":"
             "\"full\","
             "\"bytes\":201326592,\"count\":40,\"text\":\"all is taken\",\"raise\":\"--pinned\"}"),
        "  refused app 3 (pid 812, a.py) L1: refused 192 MiB, the last of 40 refusals: all is "
        "taken: "
        "raise --pinned"));
    assert_non_null(
        strstr(show("{\"kind\":\"refused\",\"count\":1,\"raise\":\"\"}"), "L0: refused 0: -"));
}

static void test_odd(void **state)
{
    (void)state;
    static const char *const entries[] = {
        "{}",
        "{\"kind\":7,\"time_s\":\"x\"}",
        "{\"kind\":\"switch\",\"left\":3,\"time_s\":1e300,\"bytes_in\":-1,\"bytes_out\":1e300}",
        "{\"kind\":\"switch\",\"left\":[1,\"a\",{\"name\":7}],\"why\":\"unheard-of\"}",
        "{\"kind\":\"a\\nb\\u001b[31m\",\"name\":\"\\u0007\",\"time_s\":-5}",
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        show(entries[i]);
        assert_true(strlen(text) > 12);
        assert_null(strpbrk(text, "\x1b\a"));
    }
    /* cut, never overrun */
    cJSON *entry = cJSON_Parse(entries[3]);
    char small[40];
    memset(small, 'x', sizeof small);
    mux_line(entry, small, 30);
    assert_int_equal(strlen(small), 29);
    assert_int_equal(small[30], 'x');
    cJSON_Delete(entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_details),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_odd),
    };
    setenv("TZ", "UTC0", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
