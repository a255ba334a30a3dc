/* What can be said of a program: the words taken, refused and written. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/classes.h"
#include "common/wire.h"
#include "common/settings.h"

static struct gm_settings settings;
static char why[256];

static int take(const char *word)
{
    why[0] = '\0';
    return gm_settings_take(&settings, word, why, sizeof why);
}

static int alone(const char *word)
{
    memset(&settings, 0, sizeof settings);
    return take(word);
}

static void test_words(void **state)
{
    (void)state;
    assert_int_equal(alone("class=batch"), 0);
    assert_int_equal(settings.has, GM_SET_CLASS);
    assert_int_equal(settings.class, GM_CLASS_BATCH);
    assert_int_equal(take("weight=0.5"), 0);
    assert_int_equal(settings.weight, 500);
    assert_int_equal(take("share=12.5%"), 0);
    assert_int_equal(settings.share, 125);
    assert_int_equal(take("paused"), 0);
    assert_true(settings.is_paused);
    assert_int_equal(take("oversize=host"), 0);
    assert_true(settings.is_oversize);
    assert_int_equal(settings.has, GM_SET_SETTINGS);
    assert_true(gm_settings_are_legal(&settings));

    assert_int_equal(alone("paused=yes"), 0);
    assert_true(settings.is_paused);
    assert_int_equal(alone("paused=no"), 0);
    assert_false(settings.is_paused);
    assert_int_equal(settings.has, GM_SET_PAUSED);

    assert_int_equal(alone("oversize=refuse"), 0);
    assert_false(settings.is_oversize);
    assert_int_equal(settings.has, GM_SET_OVERSIZE);
}

/* Every class has a word, and no other word is one. */
static void test_classes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < GM_CLASSES; i++) {
        uint32_t index = UINT32_MAX;
        const char *name = gm_class_name(i);
        assert_true(gm_class_index(name, &index));
        assert_int_equal(index, i);
    }
    uint32_t index = 77;
    static const char *const wrong[] = {"", "autos", "batc", "Batch", "unknown", " auto"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(gm_class_index(wrong[i], &index));
    assert_int_equal(index, 77);
}

static void test_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        uint32_t weight, share;
    } good[] = {
        {"weight=0.1", 100, 0},    {"weight=10", 10000, 0}, {"weight=1", 1000, 0},
        {"weight=1.250", 1250, 0}, {"weight=007", 7000, 0}, {"share=100%", 0, 1000},
        {"share=0.1%", 0, 1},      {"share=7%", 0, 70},     {"share=99.9%", 0, 999},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (alone(good[i].word))
            fail_msg("%s: %s", good[i].word, why);
        assert_int_equal(settings.weight, good[i].weight);
        assert_int_equal(settings.share, good[i].share);
    }
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int error;
        const char *expected;
    } cases[] = {
        {"class=fast", -EINVAL, "class: \"fast\" is not auto, latency, interactive or batch"},
        {"class=", -EINVAL, "class: \"\" is not"},
        {"class", -ENOENT, ""},
        {"classy=batch", -ENOENT, ""},
        {"nice=3", -ENOENT, ""},
        {"", -ENOENT, ""},
        {"=1", -ENOENT, ""},
        {"weight=0", -ERANGE, "weight: \"0\" is out of range: from 0.1 to 10, with at most"},
        {"weight=0.099", -ERANGE, "out of range"},
        {"weight=-1", -ERANGE, "\"-1\" is out of range"},
        {"weight=10.001", -ERANGE, "out of range"},
        {"weight=0.5001", -ERANGE, "at most three decimals"},
        {"weight=99999999999999999999999", -ERANGE, "out of range"},
        {"weight=4294968.000", -ERANGE, "out of range"},
        {"weight=heavy", -EINVAL, "weight: \"heavy\" is not a number"},
        {"weight=", -EINVAL, "\"\" is not a number"},
        {"weight=1.", -EINVAL, "is not a number"},
        {"weight=.5", -EINVAL, "is not a number"},
        {"weight=1.2.3", -EINVAL, "is not a number"},
        {"weight=1e2", -EINVAL, "is not a number"},
        {"weight=+1", -EINVAL, "is not a number"},
        {"weight=-", -EINVAL, "is not a number"},
        {"share=50", -EINVAL, "share: \"50\" is not a percentage (for example 50%)"},
        {"share=%", -EINVAL, "is not a percentage"},
        {"share=0%", -ERANGE, "share: \"0%\" is out of range: from 0.1% to 100%"},
        {"share=0.05%", -ERANGE, "out of range"},
        {"share=101%", -ERANGE, "out of range"},
        {"share=-5%", -ERANGE, "out of range"},
        {"paused=maybe", -EINVAL, "paused: \"maybe\" is not yes or no"},
        {"class=a\nb", -EINVAL, "\"a?b\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int error = alone(cases[i].word);
        if (error != cases[i].error || !strstr(why, cases[i].expected))
            fail_msg("%s: %d \"%s\"", cases[i].word, error, why);
        assert_null(strchr(why, '\n'));
        assert_int_equal(settings.has, 0);
    }
    assert_int_equal(alone("weight=2"), 0);
    assert_int_equal(take("weight=3"), -EEXIST);
    assert_string_equal(why, "weight is said twice");
    assert_int_equal(settings.weight, 2000);
}

static void test_format(void **state)
{
    (void)state;
    static const char *const texts[] = {"class=latency weight=0.5 share=12.5% paused",
                                        "class=auto weight=10",
                                        "share=100%",
                                        "paused=no",
                                        "weight=0.123",
                                        "weight=1.25 paused",
                                        "paused oversize=host",
                                        "oversize=refuse"};
    char text[160], copy[160];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(&settings, 0, sizeof settings);
        snprintf(copy, sizeof copy, "%s", texts[i]);
        for (char *at = copy, *word; (word = strsep(&at, " ")) != NULL;)
            assert_int_equal(take(word), 0);
        assert_string_equal(gm_settings_format(&settings, text, sizeof text), texts[i]);
    }
    memset(&settings, 0, sizeof settings);
    assert_string_equal(gm_settings_format(&settings, text, sizeof text), "");
}

/* What comes over the wire is judged as a whole. */
static void test_legal(void **state)
{
    (void)state;
    static const struct gm_settings bad[] = {
        {.has = GM_SET_SETTINGS + 1},
        {.has = GM_SET_CLASS, .class = GM_CLASSES},
        {.has = GM_SET_WEIGHT, .weight = 0},
        {.has = GM_SET_WEIGHT, .weight = GM_SCHED_WEIGHT_MIN - 1},
        {.has = GM_SET_WEIGHT, .weight = GM_SCHED_WEIGHT_MAX + 1},
        {.has = GM_SET_SHARE, .share = 0},
        {.has = GM_SET_SHARE, .share = 1001},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(gm_settings_are_legal(&bad[i]));
    /* what is not said does not count */
    const struct gm_settings good = {.has = GM_SET_PAUSED, .class = 200, .share = 5000};
    assert_true(gm_settings_are_legal(&good));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),  cmocka_unit_test(test_classes),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_format), cmocka_unit_test(test_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
