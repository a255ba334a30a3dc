/* Rules: what they match, which counts, and one line for each invalid one. */
#include <errno.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/wire.h"
#include "daemon/service/rules.h"
#include "daemon/service/users.h"

static struct gm_rules rules;
static char why[512];

static int set_up(void **state)
{
    (void)state;
    memset(&rules, 0, sizeof rules);
    return 0;
}

static int add(const char *text, unsigned line)
{
    why[0] = '\0';
    return gm_rules_add(&rules, text, line, why, sizeof why);
}

static void must_add(const char *text, unsigned line)
{
    if (add(text, line))
        fail_msg("%s: %s", text, why);
}

/* The line of the rule that matches one that asks for a class; 0: none does. */
static unsigned match_of(uid_t uid, const char *name, uint32_t asks)
{
    const struct gm_rule *rule = gm_rules_match(&rules, uid, name, asks);
    return rule ? rule->line : 0;
}

static unsigned match(uid_t uid, const char *name)
{
    return match_of(uid, name, GM_CLASS_AUTO);
}

static int is_root_of_9(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    snprintf(name, GM_USERS_NAME, "u%u", uid);
    groups->gid = calloc(1, sizeof *groups->gid);
    groups->n = groups->gid ? 1 : 0;
    if (groups->gid)
        groups->gid[0] = uid < 10 || uid == 70 ? 900 : 901;
    groups->is_subordinate = uid == 70;
    groups->owner = uid / 10;
    return 0;
}

static _Atomic bool is_slow;

static int is_slow_to_say(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    while (is_slow)
        usleep(1000);
    return is_root_of_9(uid, name, groups);
}

/* Until the user database has said who a user is, nobody has more than any rule that may be the
 * user's allows. */
static void test_unix_groups_late(void **state)
{
    struct gm_user_totals totals;
    struct gm_settings is;
    char text[512];
    (void)state;
    is_slow = true;
    gm_users_ask_by(is_slow_to_say);
    must_add("unix-group=900 command=train* weight=4 oversize=host", 1);
    must_add("unix-group=901 class=batch cap=8G user-gpu=20G paused", 2);
    must_add("user=3 class=interactive share=50% cap=12G user-gpu=40G user-pinned=9G", 3);
    must_add("unix-group=902 weight=0.1 user-gpu=1G user-pinned=8G", 4);

    assert_false(gm_rules_are_sure(&rules, 3));
    assert_true(gm_rules_find(&rules, 3, "train-big", GM_CLASS_AUTO, &is, text, sizeof text));
    assert_string_equal(text, "user=? class=batch weight=1 share=50% oversize=refuse cap=8G "
                              "(the system has not said yet who the user is)");
    assert_false(is.has & GM_SET_PAUSED); /* no bound of what it may have */
    gm_rules_totals(&rules, 3, &totals);
    assert_int_equal(totals.gpu,
                     20ull << 30); /* what stands behind a rule that surely counts does not */
    assert_int_equal(totals.pinned, 9ull << 30);
    assert_true(gm_rules_find_total(&rules, 3, text, sizeof text));
    assert_non_null(strstr(text, "unix-group=901"));
    assert_true(gm_rules_find(&rules, 4, "chat", GM_CLASS_AUTO, &is, text,
                              sizeof text)); /* of whom no rule is sure */
    assert_int_equal(is.weight, 100);
    assert_int_equal(is.share, 500); /* it may be an id of user 3 */
    assert_false(gm_rules_explain(&rules, 2, 4, "chat", GM_CLASS_AUTO, text, sizeof text));
    assert_string_equal(text, "the system has not said yet who the user is: ask again");
    gm_rules_totals(&rules, 4, &totals);
    assert_int_equal(totals.gpu, 1ull << 30);

    is_slow = false;
    for (int i = 0; i < 60000 && !(gm_rules_are_sure(&rules, 3) && gm_rules_are_sure(&rules, 4));
         i++)
        usleep(1000);
    assert_true(gm_rules_are_sure(&rules, 3));
    assert_int_equal(match(3, "train-big"), 1);
    assert_true(gm_rules_find(&rules, 3, "train-big", GM_CLASS_AUTO, &is, text, sizeof text));
    assert_int_equal(is.has, GM_SET_WEIGHT | GM_SET_OVERSIZE);
    assert_int_equal(is.weight, 4000);
    gm_rules_totals(&rules, 3, &totals);
    assert_int_equal(totals.gpu, 40ull << 30);
    assert_false(gm_rules_find(&rules, 4, "chat", GM_CLASS_AUTO, &is, text, sizeof text));
    assert_false(gm_rules_explain(&rules, 2, 4, "chat", GM_CLASS_AUTO, text, sizeof text));
    assert_string_equal(text, "for another user");
    gm_users_ask_by(NULL);
}

/* A group of the system: each of its users, by the user database. */
static void test_unix_groups(void **state)
{
    struct gm_user_totals totals;
    char text[512];
    (void)state;
    gm_users_ask_by(is_root_of_9);
    for (uid_t uid = 7; uid < 15; uid += 7) /* known, however slow this machine is */
        for (int i = 0; i < 60000 && gm_users_is_member(uid, uid < 10 ? 900 : 901) != GM_MEMBER_IS;
             i++)
            usleep(1000);
    for (int i = 0; i < 60000 && gm_users_is(70, 7) != GM_MEMBER_IS; i++)
        usleep(1000);
    must_add("unix-group=900 command=train* weight=0.5", 1);
    must_add("user=7 unix-group=901 paused", 3);
    must_add("unix-group=901 class=batch user-gpu=20G", 2);
    must_add("unix-group=900 class=interactive", 4);
    must_add("unix-group=root share=50%", 5);
    must_add("unix-group=no-such-group-here class=batch", 6);
    assert_int_equal(match(7, "train-big"), 1);
    assert_int_equal(match(7, "chat"), 4);
    assert_int_equal(match(14, "train-big"), 2);
    gm_rules_totals(&rules, 14, &totals);
    assert_int_equal(totals.gpu, 20ull << 30);
    gm_rules_totals(&rules, 7, &totals);
    assert_int_equal(totals.gpu, 0);
    assert_true(gm_rules_find_total(&rules, 14, text, sizeof text));
    assert_string_equal(text, "unix-group=901 class=batch user-gpu=20G");
    assert_true(rules.rule[5].is_group_unknown && !rules.rule[4].is_group_unknown);
    assert_string_equal(gm_rule_format(&rules.rule[1], text, sizeof text),
                        "user=7 unix-group=901 paused");
    assert_false(gm_rules_explain(&rules, 1, 70, "chat", GM_CLASS_AUTO, text, sizeof text));
    assert_string_equal(text, "the user is not of this group"); /* it is an id of user 7 */
    assert_int_equal(add("unix-group=900 user=3 class=batch", 7), -EEXIST); /* line 4 covers it */
    assert_int_equal(add("unix-group=900 unix-group=901 class=batch", 7), -EEXIST);
    assert_string_equal(why, "unix-group is said twice");
    assert_int_equal(add("unix-group= class=batch", 7), -EINVAL);
    assert_int_equal(add("unix-group=-1 class=batch", 7), -EINVAL);
    gm_users_ask_by(NULL);
}

/* What holds at the start: of each the first rule that says it, whatever else it says. */
static void test_start(void **state)
{
    struct gm_start start;
    char text[512];
    (void)state;
    must_add("command=train* class=batch place=off", 1);
    must_add("user=1234 need=1.5G admit=fit", 2);
    must_add("command=* place=order need=4G", 3);
    gm_rules_start(&rules, 1234, "train-big", GM_CLASS_AUTO, &start);
    assert_int_equal(start.place, GM_PLACE_OFF);
    assert_int_equal(start.need, 3ull << 29);
    assert_int_equal(start.admit, GM_ADMIT_FIT);
    gm_rules_start(&rules, 7, "chat", GM_CLASS_AUTO, &start);
    assert_int_equal(start.place, GM_PLACE_ORDER);
    assert_int_equal(start.need, 4ull << 30);
    assert_int_equal(start.admit, GM_ADMIT_UNSAID);
    assert_string_equal(gm_rule_format(&rules.rule[1], text, sizeof text),
                        "user=1234 need=1536M admit=fit");
    assert_int_equal(add("user=7 admit=later", 4), -EINVAL);
    assert_int_equal(add("user=7 mps=yes", 4), -EINVAL);
    must_add("user=8 command=small* mps=off", 5);
    must_add("user=8 mps=on", 6);
    assert_int_equal(add("user=8 command=none mps=on", 7), -EEXIST);
    gm_rules_start(&rules, 8, "small", GM_CLASS_AUTO, &start);
    assert_int_equal(start.mps, GM_MPS_NOT);
    gm_rules_start(&rules, 8, "other", GM_CLASS_AUTO, &start);
    assert_int_equal(start.mps, GM_MPS_ON);
    assert_int_equal(match(1234, "chat"), 0); /* those set nothing of a program that runs */
    assert_int_equal(match(1234, "train-big"), 1);
    assert_string_equal(gm_rule_format(&rules.rule[0], text, sizeof text),
                        "command=train* class=batch place=off");
    assert_string_equal(gm_rule_format(&rules.rule[2], text, sizeof text),
                        "command=* place=order need=4G");
    assert_int_equal(add("user=7 place=sideways", 4), -EINVAL);
    assert_non_null(strstr(why, "place: \"sideways\" is not off or order"));
    assert_int_equal(add("user=7 place=off place=off", 4), -EEXIST);
    assert_int_equal(add("user=7 need=lots", 4), -EINVAL);
    assert_int_equal(add("user=7 need=1K", 4), -ERANGE);
    assert_int_equal(add("user=7 need=1G need=1G", 4), -EEXIST);
    assert_int_equal(add("user=7 command=x need=1G", 4), -EEXIST); /* the third matches all */
}

/* asks= is the class that a program asks for; auto: it asks for none. */
static void test_asks(void **state)
{
    struct gm_settings is;
    struct gm_start start;
    char text[512];
    (void)state;
    must_add("asks=batch admit=fit mps=on", 1);
    must_add("command=train* asks=batch weight=0.5", 2);
    must_add("asks=auto user=7 share=50%", 3);
    must_add("asks=latency class=interactive admit=now", 4);
    assert_int_equal(match_of(7, "train-big", GM_CLASS_BATCH), 2);
    assert_int_equal(match_of(7, "train-big", GM_CLASS_AUTO), 3);
    assert_int_equal(match_of(8, "train-big", GM_CLASS_AUTO), 0);
    assert_int_equal(match_of(7, "chat", GM_CLASS_BATCH), 0); /* the first sets nothing of it */
    assert_int_equal(match_of(7, "chat", GM_CLASS_LATENCY), 4);
    assert_int_equal(match_of(7, "chat", GM_CLASS_INTERACTIVE), 0);
    assert_true(gm_rules_find(&rules, 8, "train", GM_CLASS_BATCH, &is, text, sizeof text));
    assert_string_equal(text, "command=train* asks=batch weight=0.5");
    assert_int_equal(is.weight, 500);
    gm_rules_start(&rules, 8, "chat", GM_CLASS_BATCH, &start);
    assert_int_equal(start.admit, GM_ADMIT_FIT);
    assert_int_equal(start.mps, GM_MPS_ON);
    gm_rules_start(&rules, 8, "chat", GM_CLASS_AUTO, &start);
    assert_int_equal(start.admit, GM_ADMIT_UNSAID);
    assert_int_equal(start.mps, GM_MPS_UNSAID);
    gm_rules_start(&rules, 8, "chat", GM_CLASS_LATENCY, &start);
    assert_int_equal(start.admit, GM_ADMIT_NOW);
    assert_int_equal(start.mps, GM_MPS_UNSAID);
}

static void test_conditions(void **state)
{
    (void)state;
    must_add("user=1234 command=python3 class=batch", 1);
    must_add("command=train-* weight=0.5", 2);
    must_add("user=1234 share=50%", 3);
    must_add("command=[ab]?? paused", 4);
    must_add("  user=root \t command=*   class=latency\tweight=2 ", 5);
    assert_int_equal(match(1234, "python3"), 1);
    assert_int_equal(match(1235, "python3"), 0);
    assert_int_equal(match(1235, "train-"), 2);
    assert_int_equal(match(1234, "train-big"), 2); /* the first, though the third matches too */
    assert_int_equal(match(1234, "train"), 3);
    assert_int_equal(match(7, "abc"), 4);
    assert_int_equal(match(7, "abcd"), 0);
    assert_int_equal(match(7, "cbc"), 0);
    assert_int_equal(match(0, "anything"), 5);
    assert_int_equal(rules.rule[4].settings.weight, 2000);
    assert_int_equal(rules.rule[4].settings.has, GM_SET_CLASS | GM_SET_WEIGHT);
    assert_int_equal(gm_rules_match(&rules, 1235, "train-x", GM_CLASS_AUTO)->settings.weight, 500);
}

/* What all programs of a user may have together is said of users alone, beside what is said of
 * single programs. */
static void test_totals(void **state)
{
    (void)state;
    const uint64_t g = 1ull << 30;
    struct gm_user_totals totals;
    char text[256];
    must_add("user=1234 user-gpu=20G", 1);
    must_add("user=1234 command=train* class=batch", 2);
    must_add("user=1234 user-pinned=40G weight=2", 3);
    must_add("command=* user-gpu=10G user-pinned=15G", 4);
    assert_int_equal(match(1234, "train"), 2); /* the first sets nothing of a program */
    assert_int_equal(match(1234, "other"), 3);
    assert_int_equal(match(7, "other"), 0);
    gm_rules_totals(&rules, 1234, &totals);
    assert_int_equal(totals.gpu, 20 * g);
    assert_int_equal(totals.pinned, 40 * g);
    gm_rules_totals(&rules, 7, &totals);
    assert_int_equal(totals.gpu, 10 * g);
    assert_int_equal(totals.pinned, 15 * g);
    assert_string_equal(gm_rule_format(&rules.rule[0], text, sizeof text),
                        "user=1234 user-gpu=20G");
    assert_string_equal(gm_rule_format(&rules.rule[2], text, sizeof text),
                        "user=1234 weight=2 user-pinned=40G");

    static const struct {
        const char *text, *expected;
    } wrong[] = {
        {"user=1234 user-gpu=5G", "can match nothing: the rule on line 1 matches all of these"},
        {"user=9 user-gpu=5G", "can match nothing: the rule on line 4"},
        {"command=train* user-gpu=5G",
         "are of all programs of a user: say no command= and no asks="},
        {"user=9 asks=batch user-gpu=5G", "say no command= and no asks="},
        {"asks=auto command=* user-pinned=5G", "say no command= and no asks="},
        {"user=9 user-gpu=0", "user-gpu: \"0\" is out of range: 2M or more"},
        {"user=9 user-pinned=all", "user-pinned: \"all\" is not a size (for example 20G)"},
        {"user=9 user-pinned=2G user-pinned=3G", "user-pinned is said twice"},
        {"user-gpu=5G", "for which programs?"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (add(wrong[i].text, 9) == 0 || !strstr(why, wrong[i].expected))
            fail_msg("%s: %s", wrong[i].text, why);
}

static void test_user_names(void **state)
{
    (void)state;
    const struct passwd *root = getpwuid(0);
    char text[128];
    if (!root)
        skip();
    snprintf(text, sizeof text, "user=%s class=batch", root->pw_name);
    must_add(text, 1);
    assert_int_equal(rules.rule[0].uid, 0);
    must_add("user=4294967294 class=batch", 2); /* a number needs no name */
    assert_int_equal(rules.rule[1].uid, 4294967294u);
    assert_int_equal(match(0, "x"), 1);
    assert_int_equal(match(4294967294u, "x"), 2);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "for which programs?"},
        {"   ", "for which programs?"},
        {"class=batch", "for which programs?"},
        {"user=1", "sets nothing"},
        {"command=x user=1", "sets nothing"},
        {"user=1 class=fast", "class: \"fast\" is not auto, latency, interactive or batch"},
        {"user=1 weight=0", "weight: \"0\" is out of range"},
        {"user=1 weight=-2", "out of range"},
        {"user=1 share=0%", "out of range"},
        {"user=1 share=120%", "out of range"},
        {"user=1 share=50", "is not a percentage"},
        {"user=1 nice=3",
         "\"nice=3\" is neither a condition (user=, unix-group=, command=, asks=) nor a setting"},
        {"user=1 batch", "\"batch\" is neither"},
        {"user=1 class = batch", "a rule knows no \"class\": did you mean class=?"},
        {"user=1 clas=batch", "a rule knows no \"clas=batch\": did you mean class=?"},
        {"comand=x paused", "a rule knows no \"comand=x\": did you mean command=?"},
        {"user=1 usergpu=1G", "a rule knows no \"usergpu=1G\": did you mean user-gpu=?"},
        {"user= class=batch", "there is no user \"\""},
        {"user=-1 class=batch", "there is no user \"-1\""},
        {"user=4294967295 class=batch", "there is no user"},
        {"user=99999999999 class=batch", "there is no user"},
        {"user=1 user=2 class=batch", "user is said twice"},
        {"command=a command=b class=batch", "command is said twice"},
        {"user=1 class=batch class=auto", "class is said twice"},
        {"asks=batch", "sets nothing"},
        {"asks=batch asks=batch weight=2", "asks is said twice"},
        {"asks= weight=2", "asks: \"\" is not auto, latency, interactive or batch"},
        {"asks=Batch weight=2", "asks: \"Batch\" is not auto, latency, interactive or batch"},
        {"asks=255 weight=2", "asks: \"255\" is not auto"},
        {"command= class=batch", "no program has an empty name"},
        {"command=/usr/bin/python3 class=batch", "without its folder"},
        {"command=0123456789012345678901234567890123456789012345678901234567890123 paused",
         "a program's name has at most 63 bytes"},
        {"user=1 class=\x1b[31m", "?[31m"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int error = add(cases[i].text, 9);
        if (error >= 0 || !strstr(why, cases[i].expected))
            fail_msg("\"%s\": %d \"%s\", expected \"%s\"", cases[i].text, error, why,
                     cases[i].expected);
        assert_null(strchr(why, '\n'));
        assert_int_equal(rules.n, 0);
    }
    must_add("command=012345678901234567890123456789012345678901234567890123456789012 paused", 1);
    char large[2000];
    memset(large, ' ', sizeof large);
    large[sizeof large - 1] = '\0';
    assert_int_equal(add(large, 1), -ERANGE);
}

/* A rule of a user who was deleted is there, matches nobody, and stands before no other. */
static void test_unknown_user(void **state)
{
    (void)state;
    char text[512];
    must_add("user=gm-nobody-has-this-name class=batch", 3);
    must_add("user=gm-nobody-else-has class=batch", 4);
    must_add("user=gm-nobody-has-this-name user-gpu=20G", 5);
    must_add("user=1 class=auto", 6);
    assert_true(rules.rule[0].is_unknown && !rules.rule[3].is_unknown);
    assert_string_equal(gm_rule_format(&rules.rule[0], text, sizeof text),
                        "user=gm-nobody-has-this-name class=batch");
    assert_int_equal(match(0, "x"), 0);
    assert_int_equal(match(1, "x"), 6);
}

/* A rule behind one that takes all of its programs is a mistake; one that is not sure to be is not.
 */
static void test_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        int error;
    } cases[] = {
        {"user=1 class=batch", "user=1 weight=2", -EEXIST},
        {"user=1 class=batch", "user=1 command=x weight=2", -EEXIST},
        {"user=1 command=x class=batch", "user=1 weight=2", 0},
        {"user=1 command=x class=batch", "command=x weight=2", 0},
        {"user=1 class=batch", "user=2 class=batch", 0},
        {"command=x class=batch", "command=x class=batch", -EEXIST},
        {"command=x* class=batch", "command=xy class=batch", -EEXIST},
        {"command=x* class=batch", "user=1 command=xy class=batch", -EEXIST},
        {"command=x* class=batch", "command=x*y class=batch", 0}, /* not found out */
        {"command=xy class=batch", "command=x* class=batch", 0},
        {"command=* class=batch", "user=1 class=batch", -EEXIST},
        {"command=** class=batch", "command=?* class=batch", -EEXIST},
        {"user=1 command=* class=batch", "user=1 paused", -EEXIST},
        {"user=1 command=* class=batch", "command=* paused", 0},
        {"asks=batch weight=2", "asks=batch share=50%", -EEXIST},
        {"asks=batch weight=2", "user=1 command=x asks=batch paused", -EEXIST},
        {"user=1 weight=2", "user=1 asks=batch paused", -EEXIST},
        {"command=* weight=2", "asks=auto paused", -EEXIST},
        {"asks=batch weight=2", "asks=latency weight=2", 0},
        {"asks=auto weight=2", "command=* weight=2", 0}, /* not all say nothing */
        {"user=1 asks=batch weight=2", "user=1 weight=2", 0},
        {"user=1 asks=batch weight=2", "asks=batch weight=2", 0},
        {"command=x asks=batch weight=2", "asks=batch weight=2", 0},
        {"asks=batch admit=fit", "asks=batch weight=2", 0}, /* says something else */
        {"asks=batch admit=fit", "command=x asks=batch admit=now", -EEXIST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_up(NULL);
        must_add(cases[i].first, 3);
        if (add(cases[i].second, 8) != cases[i].error)
            fail_msg("%s | %s: \"%s\"", cases[i].first, cases[i].second, why);
        if (cases[i].error)
            assert_string_equal(
                why, "can match nothing: the rule on line 3 matches all of these programs");
        assert_int_equal(rules.n, cases[i].error ? 1 : 2);
    }
    /* the command line stands before the file and may hide what is there */
    set_up(NULL);
    must_add("user=1 class=batch", 0);
    must_add("user=1 class=latency", 4);
    assert_int_equal(gm_rules_match(&rules, 1, "x", GM_CLASS_AUTO)->settings.class, GM_CLASS_BATCH);
    assert_int_equal(add("user=1 class=auto", 0), -EEXIST);
    assert_string_equal(why, "can match nothing: rule number 1 matches all of these programs");
}

static void test_full(void **state)
{
    (void)state;
    char text[64];
    for (unsigned i = 0; i < GM_RULES_MAX; i++) {
        snprintf(text, sizeof text, "user=%u class=batch", 5000 + i);
        must_add(text, i + 1);
    }
    assert_int_equal(add("user=1 class=batch", 999), -ENOSPC);
    assert_string_equal(why, "more than 256 rules");
}

static void test_format(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "user=12 command=py* class=batch weight=0.5 share=50% paused",
        "command=x paused=no",
        "user=0 class=latency",
        "asks=batch admit=fit mps=on",
        "user=13 unix-group=900 command=py* asks=latency class=interactive place=off",
        "unix-group=901 asks=auto weight=2"};
    char text[512];
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        must_add(texts[i], i + 1);
        assert_string_equal(gm_rule_format(&rules.rule[i], text, sizeof text), texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_conditions, set_up),
        cmocka_unit_test_setup(test_asks, set_up),
        cmocka_unit_test_setup(test_start, set_up),
        cmocka_unit_test_setup(test_unix_groups, set_up),
        cmocka_unit_test_setup(test_unix_groups_late, set_up),
        cmocka_unit_test_setup(test_totals, set_up),
        cmocka_unit_test_setup(test_user_names, set_up),
        cmocka_unit_test_setup(test_unknown_user, set_up),
        cmocka_unit_test_setup(test_mistakes, set_up),
        cmocka_unit_test_setup(test_hidden, set_up),
        cmocka_unit_test_setup(test_full, set_up),
        cmocka_unit_test_setup(test_format, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
