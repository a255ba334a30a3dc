/* common/log.h: what a line looks like, and that lines of several threads do not mix. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/log.h"

#define STAMP 25u /* bytes of "2025-11-20T16:34:12.345Z " */

static int sink = -1;
static char text[1 << 20];

/* A fresh file for the lines of one test. */
static int setup(void **state)
{
    (void)state;
    unsetenv("JOURNAL_STREAM");
    sink = memfd_create("log", MFD_CLOEXEC);
    return sink >= 0 && fcntl(sink, F_SETFL, O_APPEND) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    gm_log_open(-1, GM_LOG_INFO, "");
    return close(sink);
}

/* All that was logged so far. */
static const char *logged(void)
{
    ssize_t n = pread(sink, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static void forget(void)
{
    assert_int_equal(ftruncate(sink, 0), 0);
}

static void test_closed(void **state)
{
    (void)state;
    gm_log(GM_LOG_ERROR, "before it is opened");
    gm_log_open(-1, GM_LOG_DEBUG, "gpumuxd");
    gm_log(GM_LOG_ERROR, "to nowhere");
    assert_string_equal(logged(), "");
}

static void test_plain(void **state)
{
    (void)state;
    gm_log_open(sink, GM_LOG_DEBUG, "gpumuxd");
    gm_log(GM_LOG_INFO, "%d apps, %s", 3, "all well");
    assert_string_equal(logged() + STAMP, "gpumuxd: 3 apps, all well\n");
    forget();
    gm_log(GM_LOG_ERROR, "x");
    assert_string_equal(logged() + STAMP, "gpumuxd: error: x\n");
    forget();
    gm_log(GM_LOG_WARN, "x");
    assert_string_equal(logged() + STAMP, "gpumuxd: warning: x\n");
    forget();
    gm_log(GM_LOG_DEBUG, "x");
    assert_string_equal(logged() + STAMP, "gpumuxd: debug: x\n");
}

/* The stamp is the time in UTC, as the C library computes it. */
static void test_stamp(void **state)
{
    char before[32], after[32], stamp[32];
    struct tm tm;
    time_t now;
    (void)state;
    gm_log_open(sink, GM_LOG_INFO, "w");
    now = time(NULL);
    strftime(before, sizeof(before), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now, &tm));
    gm_log(GM_LOG_INFO, "x");
    now = time(NULL) + 1; /* time() may lag behind the clock that the line reads */
    strftime(after, sizeof(after), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now, &tm));
    assert_true(strlen(logged()) > STAMP);
    snprintf(stamp, sizeof(stamp), "%.19s", text);
    assert_true(strcmp(before, stamp) <= 0 && strcmp(stamp, after) <= 0);
    assert_int_equal(text[19], '.');
    assert_int_equal(strspn(text + 20, "0123456789"), 3);
    assert_memory_equal(text + 23, "Z ", 2);
}

static void test_level(void **state)
{
    (void)state;
    gm_log_open(sink, GM_LOG_WARN, "w");
    gm_log(GM_LOG_INFO, "not shown");
    gm_log(GM_LOG_DEBUG, "not shown");
    assert_string_equal(logged(), "");
    gm_log(GM_LOG_WARN, "shown");
    gm_log(GM_LOG_ERROR, "shown");
    const char *lines = logged();
    assert_non_null(strstr(lines, "w: warning: shown\n"));
    assert_non_null(strstr(lines, "w: error: shown\n"));
    assert_null(strstr(lines, "not shown"));
}

static void test_journal(void **state)
{
    struct stat st;
    char stream[64];
    (void)state;
    assert_int_equal(fstat(sink, &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    gm_log_open(sink, GM_LOG_DEBUG, "gpumuxd");
    gm_log(GM_LOG_ERROR, "a");
    gm_log(GM_LOG_WARN, "b");
    gm_log(GM_LOG_INFO, "c");
    gm_log(GM_LOG_DEBUG, "d");
    assert_string_equal(logged(), "<3>a\n<4>b\n<6>c\n<7>d\n");

    /* Inherited by a program whose standard error goes elsewhere: not the journal. */
    forget();
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino + 1);
    setenv("JOURNAL_STREAM", stream, 1);
    gm_log_open(sink, GM_LOG_DEBUG, "gpumuxd");
    gm_log(GM_LOG_INFO, "c");
    assert_string_equal(logged() + STAMP, "gpumuxd: c\n");
}

static void test_one_line(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"two\nlines\r\n", "two?lines??"},
        {"\x1b[31mred\x7f", "?[31mred?"},
        {"tab\there", "tab?here"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"c1 \xc2\x9b"
         "31m",
         "c1 ??31m"},
        {"cut \xe2\x82", "cut ??"},
        {"", ""},
    };
    (void)state;
    gm_log_open(sink, GM_LOG_INFO, "w");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char expected[64];
        forget();
        gm_log(GM_LOG_INFO, "%s", cases[i].in);
        snprintf(expected, sizeof(expected), "w: %s\n", cases[i].out);
        assert_string_equal(logged() + STAMP, expected);
    }
}

static void test_cut(void **state)
{
    char longest[3000];
    (void)state;
    gm_log_open(sink, GM_LOG_INFO, "w");
    for (size_t n = 960; n < 1010; n++) {
        memset(longest, 'a', n);
        longest[n] = '\0';
        forget();
        gm_log(GM_LOG_INFO, "%s", longest);
        size_t whole = STAMP + 3 + n + 1; /* stamp, "w: ", text, newline */
        size_t length = strlen(logged());
        assert_int_equal(length, whole < 1000 ? whole : 1000);
        assert_ptr_equal(strchr(text, '\n'), text + length - 1);
    }
    /* A cut in the middle of a character leaves no half of it. */
    for (size_t pad = 0; pad < 3; pad++) {
        longest[0] = '\0';
        for (size_t i = 0; i < pad; i++)
            strcat(longest, "a");
        for (size_t i = 0; i < 500; i++)
            strcat(longest, "\xe2\x82\xac");
        forget();
        gm_log(GM_LOG_INFO, "%s", longest);
        assert_int_equal(strlen(logged()), 1000);
        assert_true((unsigned char)text[998] == 0xac || text[998] == '?');
    }
}

static void test_errno(void **state)
{
    (void)state;
    gm_log_open(sink, GM_LOG_INFO, "w");
    errno = ENOENT;
    gm_log(GM_LOG_INFO, "%m");
    assert_int_equal(errno, ENOENT);
    assert_string_equal(logged() + STAMP, "w: No such file or directory\n");

    int gone = open("/dev/null", O_RDONLY | O_CLOEXEC); /* write(2) fails on it */
    assert_true(gone >= 0);
    gm_log_open(gone, GM_LOG_INFO, "w");
    errno = ENOENT;
    gm_log(GM_LOG_INFO, "lost");
    assert_int_equal(errno, ENOENT);
    close(gone);
}

#define THREADS 4
#define LINES 500

static void *chatter(void *arg)
{
    for (int i = 0; i < LINES; i++)
        gm_log(GM_LOG_INFO, "thread %d line %d ........................................ end",
               *(int *)arg, i);
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    int ids[THREADS];
    bool seen[THREADS][LINES] = {{false}};
    int lines = 0;
    (void)state;
    gm_log_open(sink, GM_LOG_INFO, "w");
    for (int i = 0; i < THREADS; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, chatter, &ids[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    logged();
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        int id = -1, number = -1, end = -1;
        sscanf(line + STAMP, "w: thread %d line %d ........................................ end%n",
               &id, &number, &end);
        assert_true(end > 0 && line[STAMP + (unsigned)end] == '\0');
        assert_in_range(id, 0, THREADS - 1);
        assert_in_range(number, 0, LINES - 1);
        assert_false(seen[id][number]);
        seen[id][number] = true;
    }
    assert_int_equal(lines, THREADS * LINES);
}

/* How many lines there are, and whether one of them ends with `end`. */
static int count(const char *end, bool *is_there)
{
    int lines = 0;
    logged();
    *is_there = false;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++)
        *is_there |= strcmp(line + STAMP, end) == 0;
    return lines;
}

static void await_a_second(void)
{
    struct timespec second = {.tv_sec = 1};
    while (nanosleep(&second, &second) != 0)
        continue;
}

/* The last of all, since the limit stays. */
static void test_repetition(void **state)
{
    bool is_there;
    (void)state;
    gm_log_open(sink, GM_LOG_DEBUG, "w");
    gm_log_limit();
    assert_false(gm_log_is_holding());

    /* Lines that are of one kind, though they differ. */
    for (int i = 1; i <= 2700; i++)
        gm_log_like(GM_LOG_WARN, "refused", "connection %d refused", i);
    assert_int_equal(count("w: warning: connection 1 refused", &is_there), 1);
    assert_true(is_there);
    assert_true(gm_log_is_holding());
    gm_log_release(false);
    assert_int_equal(count("", &is_there), 1); /* not yet */
    await_a_second();
    gm_log_like(GM_LOG_WARN, "refused",
                "connection 2701 refused"); /* it goes on: nothing is written out of turn */
    assert_int_equal(count("", &is_there), 1);
    gm_log_release(false);
    assert_int_equal(
        count("w: warning: connection 2701 refused (and 2699 more like it)", &is_there), 2);
    assert_true(is_there);
    assert_false(gm_log_is_holding());
    gm_log_like(GM_LOG_WARN, "refused", "connection 2702 refused");
    gm_log_release(true);
    assert_int_equal(count("w: warning: connection 2702 refused", &is_there), 3);
    assert_true(is_there);

    /* Lines of other kinds are told at once. */
    forget();
    gm_log(GM_LOG_WARN, "connection 1 lost");
    gm_log(GM_LOG_WARN, "connection 2 lost");
    gm_log(GM_LOG_ERROR, "connection 1 lost");
    for (int i = 0; i < 60; i++)
        gm_log(GM_LOG_INFO, "app %d joined", i);
    for (int i = 0; i < 3; i++)
        gm_log(GM_LOG_DEBUG, "the same");
    assert_int_equal(count("w: app 59 joined", &is_there), 66);
    assert_true(is_there);
    gm_log(GM_LOG_INFO, "app 7 joined");
    assert_true(gm_log_is_holding());
    gm_log_release(true);
    assert_int_equal(count("w: app 7 joined", &is_there), 67);

    /* Who makes up kinds gains nothing. */
    forget();
    for (int i = 0; i < 5000; i++)
        gm_log(GM_LOG_INFO, "app %d left", i);
    assert_in_range(count("", &is_there), 20, 130);
    gm_log_release(true);
    assert_in_range(count("", &is_there), 21, 131);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stamp, setup, teardown),
        cmocka_unit_test_setup_teardown(test_level, setup, teardown),
        cmocka_unit_test_setup_teardown(test_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errno, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repetition, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
