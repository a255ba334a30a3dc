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
    assert_int_equal(take("cap=1.5G"), 0);
    assert_int_equal(settings.cap, 1536ull << 20);
    assert_int_equal(settings.has, GM_SET_SETTINGS);
    assert_true(gm_settings_are_legal(&settings));

    assert_int_equal(alone("paused=yes"), 0);
    assert_true(settings.is_paused);
    assert_int_equal(alone("paused=no"), 0);
    assert_false(settings.is_paused);
    assert_int_equal(settings.has, GM_SET_PAUSED);
    for (uint32_t as = 0; as < GM_PAUSED_WORDS; as++) { /* each as its word, and back */
        char word[32], text[64];
        snprintf(word, sizeof word, "paused=%s", gm_settings_paused_word(as));
        assert_int_equal(alone(word), 0);
        assert_int_equal(gm_settings_paused(&settings), as);
        gm_settings_format(&settings, text, sizeof text);
        assert_int_equal(alone(text), 0);
        assert_int_equal(gm_settings_paused(&settings), as);
    }
    assert_true(settings.is_paused && settings.is_evicted && settings.is_until_call);
    assert_false(gm_settings_set_paused(&settings, GM_PAUSED_WORDS));

    assert_int_equal(alone("oversize=refuse"), 0);
    assert_false(settings.is_oversize);
    assert_int_equal(settings.has, GM_SET_OVERSIZE);
}

static void test_caps(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        uint64_t cap;
    } good[] = {{"cap=none", 0},
                {"cap=2M", 2ull << 20},
                {"cap=6GiB", 6ull << 30},
                {"cap=5M", 4ull << 20}, /* whole chunks */
                {"cap=2097152", 2ull << 20}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (alone(good[i].word))
            fail_msg("%s: %s", good[i].word, why);
        assert_int_equal(settings.cap, good[i].cap);
        assert_int_equal(settings.has, GM_SET_CAP);
    }
}

/* What other systems write: as many ways as they know. */
static void test_foreign(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int error;
        uint64_t bytes;
    } cases[] = {
        {"1073741824", 0, 1ull << 30},
        {"1048576k", 0, 1ull << 30},
        {"1024m", 0, 1ull << 30},
        {"1g", 0, 1ull << 30},
        {"6G", 0, 6ull << 30},
        {"512MiB", 0, 512ull << 20},
        {"512mb", 0, 512ull << 20},
        {"0", 0, 0},
        {"8t", 0, 8ull << 40},
        {"", -EINVAL, 7},
        {"m", -EINVAL, 7},
        {"1.5g", -EINVAL, 7},
        {"-1", -EINVAL, 7},
        {"6 G", -EINVAL, 7},
        {"6Gi", -EINVAL, 7},
        {"50%", -EINVAL, 7},
        {"9999999999t", -ERANGE, 7},
        {"99999999999999999999", -ERANGE, 7},
        {"999999999999999999999999999999", -ERANGE, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 7;
        int error = gm_settings_parse_foreign(cases[i].text, &bytes);
        if (error != cases[i].error)
            fail_msg("%s: %d", cases[i].text, error);
        assert_int_equal(bytes, cases[i].bytes);
    }
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
        {"paused=maybe", -EINVAL, "paused: \"maybe\" is not no, yes, evicted or idle"},
        {"class=a\nb", -EINVAL, "\"a?b\""},
        {"cap=0", -ERANGE, "cap: \"0\" is out of range: 2M or more, or none"},
        {"cap=1M", -ERANGE, "out of range"},
        {"cap=99999999999999T", -ERANGE, "out of range"},
        {"cap=", -EINVAL, "cap: \"\" is not a size (for example 6G), nor none"},
        {"cap=6g", -EINVAL, "is not a size"},
        {"cap=-1G", -EINVAL, "is not a size"},
        {"cap", -ENOENT, ""},
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
                                        "oversize=refuse",
                                        "oversize=host cap=6G",
                                        "cap=1026M",
                                        "cap=none"};
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
        {.has = GM_SET_CAP, .cap = 1},
        {.has = GM_SET_CAP, .cap = UINT64_MAX << 21},
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
        cmocka_unit_test(test_caps),   cmocka_unit_test(test_foreign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
