/* common/nearest: which known word is meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/nearest.h"

static const char *const words[] = {"status", "set", "pause", "resume", "config", "ps"};

static const char *near(const char *word, size_t length)
{
    struct gm_nearest nearest;
    gm_nearest_begin(&nearest, word, length);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        gm_nearest_look(&nearest, words[i]);
    return nearest.best ? nearest.best : "-";
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *word, *meant;
    } cases[] = {
        {"stauts", "status"},
        {"statu", "status"},
        {"statuus", "status"},
        {"stetus", "status"},
        {"sat", "set"},
        {"paus", "pause"},
        {"conf", "config"},
        {"resmue", "resume"},
        {"st", "status"},
        {"s", "-"},
        {"", "-"},
        {"cat", "-"},
        {"frobnicate", "-"},
        {"sp", "ps"},
        {"xx", "-"},
        {"pauseresume", "-"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "-"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(near(cases[i].word, strlen(cases[i].word)), cases[i].meant) != 0)
            fail_msg("%s: %s", cases[i].word, near(cases[i].word, strlen(cases[i].word)));
}

/* Only the first bytes count. */
static void test_length(void **state)
{
    (void)state;
    assert_string_equal(near("stauts=5", 6), "status");
    assert_string_equal(near("pause-and-more", 5), "pause");
}

/* A known word of any length is no harm. */
static void test_long(void **state)
{
    char known[200];
    struct gm_nearest nearest;
    (void)state;
    memset(known, 'a', sizeof known - 1);
    known[sizeof known - 1] = '\0';
    gm_nearest_begin(&nearest, "aa", 2);
    gm_nearest_look(&nearest, known);
    assert_null(nearest.best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests_name("nearest", tests, NULL, NULL);
}
