/* --gpumux of Slurm's commands, as packaging/slurm/option.c reads it: words taken and refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "packaging/slurm/option.h"

static struct gm_spank_option option;
static char why[256];

static int read_text(const char *text)
{
    memset(&option, 0x55, sizeof option);
    why[0] = '\0';
    return gm_spank_read(text, &option, why, sizeof why);
}

static void expect(unsigned word, const char *value)
{
    assert_string_equal(option.values[word], value);
}

static void test_taken(void **state)
{
    (void)state;
    const char *const empty[] = {NULL, "", "on", "off"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        assert_int_equal(read_text(empty[i]), 0);
        assert_int_equal(option.is_on, i != 3);
        assert_int_equal(option.is_off, i == 3);
        for (unsigned word = 0; word < GM_SPANK_WORDS; word++)
            expect(word, "");
    }
    assert_int_equal(read_text("class:interactive,cap:6G,weight:0.5"), 0);
    assert_true(option.is_on && !option.is_off);
    expect(GM_SPANK_CLASS, "interactive");
    expect(GM_SPANK_CAP, "6G");
    expect(GM_SPANK_NEED, "");
    expect(GM_SPANK_WEIGHT, "0.5");
    assert_string_equal(gm_spank_variables[GM_SPANK_WEIGHT], "GPUMUX_WEIGHT");
    assert_int_equal(read_text("group:a:b=c,need=12GiB,oversize:host,cap:none"), 0);
    expect(GM_SPANK_GROUP, "a:b=c");
    expect(GM_SPANK_NEED, "12GiB");
    expect(GM_SPANK_OVERSIZE, "host");
    expect(GM_SPANK_CAP, "none");
    assert_string_equal(gm_spank_variables[GM_SPANK_OVERSIZE], "GPUMUX_OVERSIZE");
    assert_string_equal(gm_spank_variables[GM_SPANK_GROUP], "GPUMUX_GROUP");
}

static void refuses(const char *text, const char *with)
{
    struct gm_spank_option before;
    assert_int_equal(read_text(text), -EINVAL);
    memset(&before, 0x55, sizeof before);
    assert_memory_equal(&option, &before, sizeof option);
    if (!strstr(why, with))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, why, with);
}

static void test_refused(void **state)
{
    (void)state;
    char text[512];
    refuses("class", "\"class\" has no value");
    refuses("clas:batch", "did you mean class:?");
    refuses("frobnicate:1", "is unknown: class:, weight:, cap:");
    refuses(",", "is unknown");
    refuses("weight:20", "is out of range");
    refuses("class:batch,", "is unknown");
    refuses("on,class:batch", "\"on\" is unknown");
    refuses("class:fast", "class: \"fast\" is not auto");
    refuses("class:", "class: \"\" is not");
    refuses("cap:lots", "cap: \"lots\"");
    refuses("cap:6G,cap:7G", "\"cap:7G\" is said twice");
    refuses("need:0", "\"0\" is no size");
    refuses("need:-1", "\"-1\" is no size");
    refuses("oversize:yes", "oversize: \"yes\"");
    refuses("group:", "\"\" is no name of a group");
    refuses("group:a\nb", "is no name of a group");
    snprintf(text, sizeof text, "group:%0*d", 64, 0);
    refuses(text, "is too long");
    snprintf(text, sizeof text, "%0*d\n", 400, 0);
    refuses(text, "is unknown");
    assert_null(strchr(why, '\n'));
}

/* A group of 63 bytes is the longest that the library takes. */
static void test_longest(void **state)
{
    (void)state;
    char text[512];
    snprintf(text, sizeof text, "group:%0*d", 63, 0);
    assert_int_equal(read_text(text), 0);
    assert_int_equal(strlen(option.values[GM_SPANK_GROUP]), 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
