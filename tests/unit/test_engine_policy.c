/*
 * daemon/engine/step, settings: what rules, programs, users and administrators say, who may say it,
 * and what holds then. The engine around it is this test: apps without programs, and a real
 * scheduler.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/features.h"
#include "daemon/core/sched_account.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"
#include "daemon/service/rules.h"

#define APPS 6u
#define ALICE 4000001u /* neither is root nor who runs this */
#define BOB 4000002u

static struct gm_engine *engine;
static struct gm_rules rules;
static unsigned notes;
static char why[256];

void gm_engine_begin_notes(struct gm_engine *e, uint32_t id)
{
    struct gm_sched_account account;
    if (gm_engine_account(e, id, &account))
        e->apps[id].level_noted = account.level;
}

void gm_engine_count_users(struct gm_engine *e)
{
    (void)e;
}

void gm_engine_tell_room(struct gm_engine *e)
{
    (void)e;
}

void gm_engine_note_set(struct gm_engine *e, uint32_t app, uid_t by, const struct gm_settings *said,
                        const struct gm_sched_policy *policy)
{
    struct gm_sched_account account;
    (void)by;
    (void)said;
    notes++;
    assert_true(gm_sched_account(e->sched, e->now, e->apps[app].unit, &account));
    assert_int_equal(account.policy.class, policy->class);
    assert_int_equal(account.policy.weight, policy->weight);
    assert_int_equal(account.policy.share, policy->share);
    assert_int_equal(account.policy.is_paused, policy->is_paused);
}

static uint64_t most_cap = UINT64_MAX; /* what this GPU can have */

int gm_engine_check_cap(const struct gm_engine *e, uint32_t app, uint64_t bytes, char *text,
                        size_t size)
{
    assert_true(app < e->config.max_apps);
    if (bytes <= most_cap)
        return 0;
    snprintf(text, size, "too large");
    return -ERANGE;
}

int gm_engine_check_room(const struct gm_engine *e, const bool *selected, uint64_t bytes,
                         char *text, size_t size)
{
    (void)e;
    (void)selected;
    (void)bytes;
    (void)text;
    (void)size;
    return 0;
}

bool gm_engine_set_cap(struct gm_engine *e, uint32_t app, uint64_t bytes)
{
    e->apps[app].cap.bytes = bytes;
    return false;
}

void gm_engine_follow_cap(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    fail();
}

static bool is_called[APPS]; /* a thread of it waits for its turn */
static unsigned asked;       /* ... so often was that looked at */

bool gm_engine_awaits_turn(const struct gm_app *app)
{
    asked++;
    return is_called[app - engine->apps];
}

uint64_t gm_engine_take_spares(struct gm_engine *e, uint32_t app, uint64_t least)
{
    (void)e, (void)app, (void)least;
    fail();
    return 0;
}

static struct gm_client clients[APPS];

static int set_up(void **state)
{
    (void)state;
    memset(&rules, 0, sizeof rules);
    engine = calloc(1, sizeof *engine);
    if (!engine)
        return -1;
    engine->config = (struct gm_engine_config){.budget = 1000,
                                               .max_apps = APPS,
                                               .slice_ns = 4 * GM_S,
                                               .patience_ns = 60 * GM_S,
                                               .rules = &rules,
                                               .outlet = {.rule = gm_rules_find},
                                               .best_class = GM_CLASS_LATENCY};
    engine->first_budget = engine->config.budget;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    gm_check_init(&engine->check, calloc(APPS, sizeof *engine->check.apps), APPS);
    engine->now = 1;
    notes = 0;
    return engine->apps ? gm_engine_open_sched(engine) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        gm_group_remove(&clients[id]);
    free(engine->sched_memory);
    free(engine->units);
    free(engine->set);
    free(engine->apps);
    free(engine->check.apps);
    free(engine);
    return 0;
}

static void rule(const char *text)
{
    if (gm_rules_add(&rules, text, rules.n + 1, why, sizeof why))
        fail_msg("%s: %s", text, why);
}

static uint32_t oversize_wish;    /* GPUMUX_OVERSIZE of those who come */
static struct gm_wishes cap_wish; /* ... and GPUMUX_CAP */
static bool has_part;             /* a rule gave them a part of the multiprocessors */
static struct gm_stat stats[3];
static struct gm_group *join_to; /* NULL: a group of their own */

static bool is_contained; /* who comes and who asks is so from within a container */

static bool is_admin(uid_t uid)
{
    return !is_contained && (uid == 0 || uid == geteuid());
}

/* A program comes; its pid is 100 + its id. */
static void join(uint32_t id, uid_t uid, const char *name, uint32_t wish)
{
    struct gm_app *app = &engine->apps[id];
    if (app->client) /* one was there before */
        gm_engine_feed(engine, GM_SCHED_LEAVE, id, 0);
    *app = (struct gm_app){.state = GM_APP_PAUSED, .uid = uid, .pid = (pid_t)(100 + id)};
    snprintf(app->name, sizeof app->name, "%s", name);
    struct gm_client *client = app->client = &clients[id];
    gm_group_remove(client); /* of one that was there before */
    *client = (struct gm_client){.id = id,
                                 .uid = uid,
                                 .is_admin = is_admin(uid),
                                 .pid = app->pid,
                                 .engines = {engine},
                                 .session = (struct gm_session *)client,
                                 .wishes = {.class = wish,
                                            .oversize = oversize_wish,
                                            .cap_is = cap_wish.cap_is,
                                            .cap = cap_wish.cap,
                                            .has_part = has_part}};
    memcpy(client->name, app->name, sizeof client->name);
    assert_int_equal(gm_group_add(join_to, client), 0);
    gm_engine_feed(engine, GM_SCHED_JOIN, id, 0);
    gm_engine_judge_oversize(engine, client);
    gm_engine_first_policy(engine, id, &client->wishes);
}

static struct gm_sched_policy policy(uint32_t id)
{
    struct gm_sched_account account;
    assert_true(gm_sched_account(engine->sched, engine->now, engine->apps[id].unit, &account));
    return account.policy;
}

static unsigned class_of(uint32_t id)
{
    return policy(id).class;
}

/* What `mux-ctl set` with these words of `asker` comes to; how many programs or -errno. */
static int set(uid_t asker, struct gm_set_request request, const char *words)
{
    char copy[160];
    struct gm_set_done done = {0};
    request.asker = asker;
    request.is_admin = is_admin(asker);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *at = copy, *word; (word = strsep(&at, " ")) != NULL;)
        assert_int_equal(gm_settings_take(&request.settings, word, why, sizeof why), 0);
    why[0] = '\0';
    int error = gm_engine_check_set(engine, &request, why, sizeof why);
    if (error == 0)
        error = gm_engine_apply_set(engine, &request, &done, why, sizeof why);
    assert_int_equal(error == 0, why[0] == '\0');
    return error ? error : (int)done.changed;
}

static int set_app(uid_t asker, uint32_t id, const char *words)
{
    return set(asker, (struct gm_set_request){.selects = GM_SET_PID, .pid = (pid_t)(100 + id)},
               words);
}

/* Wishes as HELLO has them. */
static uint32_t wish(enum gm_sched_class class)
{
    return 1u + class;
}

static void test_first(void **state)
{
    (void)state;
    rule("command=train class=batch weight=0.5 share=50%");
    rule("command=idle paused");
    join(0, ALICE, "app", 0);
    assert_int_equal(class_of(0), GM_CLASS_AUTO);
    assert_int_equal(policy(0).weight, GM_SCHED_WEIGHT);
    assert_int_equal(policy(0).share, GM_SCHED_SHARE_ALL);
    assert_int_equal(engine->apps[0].level_noted, 1);
    join(1, ALICE, "train", 0);
    assert_int_equal(class_of(1), GM_CLASS_BATCH);
    assert_int_equal(policy(1).weight, 500);
    assert_int_equal(policy(1).share, 500);
    assert_int_equal(engine->apps[1].level_noted, 3);
    join(2, ALICE, "idle", 0);
    assert_true(policy(2).is_paused);
    join(3, ALICE, "app", wish(GM_CLASS_INTERACTIVE));
    assert_int_equal(class_of(3), GM_CLASS_INTERACTIVE);
    join(4, ALICE, "app", GM_HELLO_CLASS_UNKNOWN);
    assert_int_equal(class_of(4), GM_CLASS_AUTO);
    join(5, ALICE, "app", UINT32_MAX);
    assert_int_equal(class_of(5), GM_CLASS_AUTO);
}

/* Who shares by MPS and got a part of the multiprocessors has no limit in time, by that rule. Who
 * got it and runs without MPS has one. */
static void test_part(void **state)
{
    const struct gm_engine_tuning tuning = {0};
    (void)state;
    rule("command=train class=batch share=50%");
    has_part = true;
    join(0, ALICE, "train", 0);
    join(2, ALICE, "train", 0); /* the driver did not start with it */
    has_part = false;
    join(1, ALICE, "train", 0);
    for (uint32_t id = 0; id < 3; id++) {
        engine->apps[id].session = clients[id].session;
        engine->apps[id].stat = &stats[id];
        assert_int_equal(class_of(id), GM_CLASS_BATCH);
        assert_int_equal(policy(id).share, 500); /* it has yet to say so */
    }
    atomic_store(&stats[0].features_off, GM_FEATURE_ISOLATION);
    atomic_store(&stats[1].features_off, GM_FEATURE_ISOLATION); /* MPS of its user: no part */
    gm_engine_note_features(engine);
    assert_int_equal(policy(0).share, GM_SCHED_SHARE_ALL);
    assert_int_equal(policy(1).share, 500);
    assert_int_equal(policy(2).share, 500);
    rules.n = 0;
    rule("command=train class=interactive share=25%");
    gm_engine_take_tuning(engine, &tuning); /* rules are read anew */
    assert_int_equal(class_of(0), GM_CLASS_INTERACTIVE);
    gm_engine_note_features(engine);
    assert_int_equal(policy(0).share, GM_SCHED_SHARE_ALL);
    assert_int_equal(policy(1).share, 250);
    assert_int_equal(policy(2).share, 250);
    assert_int_equal(set_app(0, 0, "share=10%"), 1); /* what is said now counts */
    assert_int_equal(set_app(0, 2, "share=10%"), 1);
    atomic_store(&stats[2].features_off, GM_FEATURE_ISOLATION);
    gm_engine_note_features(engine);
    assert_int_equal(policy(0).share, 100);
    assert_int_equal(policy(2).share, 100);
    memset(stats, 0, sizeof stats);
}

/* A program's own wish goes as far as its user may; what an administrator's programs wish, they
 * get. */
static void test_wishes(void **state)
{
    (void)state;
    engine->config.best_class = GM_CLASS_INTERACTIVE;
    rule("command=train class=batch");
    rule("command=serve class=latency");
    join(0, ALICE, "app", wish(GM_CLASS_LATENCY));
    assert_int_equal(class_of(0), GM_CLASS_AUTO);
    join(0 + 1, ALICE, "app", wish(GM_CLASS_INTERACTIVE));
    assert_int_equal(class_of(1), GM_CLASS_INTERACTIVE);
    join(2, ALICE, "train", wish(GM_CLASS_INTERACTIVE)); /* a rule is a bound */
    assert_int_equal(class_of(2), GM_CLASS_BATCH);
    join(3, ALICE, "serve", wish(GM_CLASS_BATCH)); /* and worse is always possible */
    assert_int_equal(class_of(3), GM_CLASS_BATCH);
    join(4, 0, "train", wish(GM_CLASS_LATENCY));
    assert_int_equal(class_of(4), GM_CLASS_LATENCY);
    join(5, geteuid(), "app", wish(GM_CLASS_LATENCY));
    assert_int_equal(class_of(5), GM_CLASS_LATENCY);
    is_contained = true; /* a container's root is bound as everybody is, and sets its own */
    join(4, 0, "train", wish(GM_CLASS_LATENCY));
    const int others = set_app(0, 2, "paused"), own = set_app(0, 4, "weight=0.5");
    is_contained = false;
    assert_int_equal(class_of(4), GM_CLASS_BATCH);
    assert_int_equal(others, -EPERM);
    assert_int_equal(own, 1);
}

/* asks= is what a program asked for when it began: what is set later makes no other rule count. */
static void test_asks(void **state)
{
    const struct gm_engine_tuning tuning = {.best_class = GM_CLASS_INTERACTIVE};
    char text[512];
    (void)state;
    engine->config.best_class = GM_CLASS_INTERACTIVE;
    rule("asks=batch weight=0.5 oversize=host");
    rule("asks=latency class=batch");
    rule("asks=auto share=50%");
    join(0, ALICE, "app", wish(GM_CLASS_BATCH));
    join(1, ALICE, "app", wish(GM_CLASS_LATENCY)); /* that it may not have: it asked all the same */
    join(2, ALICE, "app", 0);
    join(3, ALICE, "app", GM_HELLO_CLASS_UNKNOWN);
    join(4, ALICE, "app", wish(GM_CLASS_INTERACTIVE));
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(policy(0).weight, 500);
        assert_true(clients[0].is_oversize);
        assert_int_equal(policy(1).weight, GM_SCHED_WEIGHT);
        assert_int_equal(policy(2).weight, GM_SCHED_WEIGHT);
        assert_int_equal(policy(2).share, 500);
        assert_false(clients[2].is_oversize);
        assert_int_equal(policy(3).share, 500);
        assert_int_equal(policy(4).share, GM_SCHED_SHARE_ALL);
        assert_int_equal(class_of(1), GM_CLASS_BATCH);
        if (round == 0) {
            assert_int_equal(set_app(0, 0, "class=latency"), 1);
            assert_int_equal(set_app(0, 2, "class=batch"), 1);
        }
        gm_engine_take_tuning(engine, &tuning);
    }
    assert_int_equal(class_of(0), GM_CLASS_LATENCY);
    assert_int_equal(class_of(2), GM_CLASS_BATCH);
    assert_true(gm_engine_rule_of(engine, 2, GM_SET_SHARE, text, sizeof text));
    assert_string_equal(text, "asks=auto share=50%");
}

static struct gm_engine_tuning tuning_now(void)
{
    return (struct gm_engine_tuning){.best_class = engine->config.best_class};
}

/* New rules hold for programs that run: but for what an administrator said, and for memory. What
 * their users said ends where they may not say it any more. */
static void test_tuning(void **state)
{
    (void)state;
    struct gm_engine_tuning tuning = tuning_now();
    rule("command=train class=batch weight=0.5 share=50% cap=500M");
    rule("command=idle paused");
    join(0, ALICE, "train", 0);
    join(1, ALICE, "train", 0);
    join(2, ALICE, "idle", 0);
    join(3, ALICE, "app", wish(GM_CLASS_INTERACTIVE));
    join(4, 0, "app", wish(GM_CLASS_INTERACTIVE));
    assert_int_equal(set_app(0, 1, "weight=2"), 1);
    assert_int_equal(set_app(0, 1, "share=100%"), 1); /* takes it back, the rule's too */
    assert_int_equal(set_app(ALICE, 3, "paused=yes"), 1);

    rules.n = 0;
    rule("command=train class=interactive weight=0.25 share=25% cap=100M oversize=host");
    rule("command=app class=batch");
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(class_of(0), GM_CLASS_INTERACTIVE);
    assert_int_equal(policy(0).weight, 250);
    assert_int_equal(policy(0).share, 250);
    assert_int_equal(engine->apps[0].cap.bytes, 500ull << 20);
    assert_false(engine->apps[0].client->is_oversize);
    assert_int_equal(class_of(1), GM_CLASS_INTERACTIVE);
    assert_int_equal(policy(1).weight, 2000);
    assert_int_equal(policy(1).share, GM_SCHED_SHARE_ALL);
    assert_false(policy(2).is_paused);
    assert_int_equal(class_of(3), GM_CLASS_BATCH); /* interactive is better than that */
    assert_true(policy(3).is_paused);
    assert_int_equal(class_of(4), GM_CLASS_INTERACTIVE); /* root's may say anything */

    /* Whose cap that is, is not said of the rule that came later. */
    char text[512];
    assert_false(gm_engine_rule_of(engine, 0, GM_SET_CAP, text, sizeof text));
    assert_true(gm_engine_rule_of(engine, 0, GM_SET_SHARE, text, sizeof text));
    assert_false(gm_engine_rule_of(engine, 1, GM_SET_WEIGHT, text, sizeof text));

    rules.n = 0;
    rule("command=idle paused");
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(class_of(0), GM_CLASS_AUTO);
    assert_int_equal(policy(0).weight, GM_SCHED_WEIGHT);
    assert_true(policy(2).is_paused);
    assert_string_equal(gm_engine_pauser(engine, 2, text, sizeof text),
                        "the rule command=idle paused");
    assert_int_equal(set_app(0, 2, "paused=no"), 1);
    gm_engine_take_tuning(engine, &tuning);
    assert_false(policy(2).is_paused);

    /* The best class that users may take. */
    join(5, ALICE, "other", wish(GM_CLASS_INTERACTIVE));
    assert_int_equal(class_of(5), GM_CLASS_INTERACTIVE);
    tuning.best_class = GM_CLASS_AUTO;
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(class_of(5), GM_CLASS_AUTO);

    tuning.idle_ns = 7;
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(engine->config.idle_ns, 7);
}

/* Who may have more memory than the budget: the option, over it a rule, over it the program and its
 * user, who may not if an administrator says so. */
static void test_oversize(void **state)
{
    (void)state;
    rule("command=large oversize=host");
    rule("command=small oversize=refuse");
    oversize_wish = GM_HELLO_OVERSIZE_UNSAID;
    join(0, ALICE, "app", 0);
    assert_false(engine->apps[0].client->is_oversize);
    join(1, ALICE, "large", 0);
    assert_true(engine->apps[1].client->is_oversize);
    oversize_wish = GM_HELLO_OVERSIZE_HOST;
    join(2, ALICE, "app", 0);
    assert_true(engine->apps[2].client->is_oversize);
    join(3, ALICE, "small", 0);
    assert_false(engine->apps[3].client->is_oversize);
    assert_int_equal(set_app(ALICE, 3, "oversize=host"), -EPERM);
    assert_string_equal(why, "app 3 (pid 103, small): an administrator says that it gets no more "
                             "than the budget");
    join(4, 0, "small", 0); /* its own administrator */
    assert_true(engine->apps[4].client->is_oversize);

    assert_int_equal(set_app(ALICE, 0, "oversize=host"), 1);
    assert_true(engine->apps[0].client->is_oversize);
    assert_int_equal(set_app(0, 0, "oversize=refuse"), 1);
    assert_false(engine->apps[0].client->is_oversize);
    assert_int_equal(set_app(ALICE, 0, "oversize=host"), -EPERM);
    assert_int_equal(set_app(ALICE, 2, "oversize=refuse"), 1);
    assert_false(engine->apps[2].client->is_oversize);
    assert_int_equal(set_app(0, 3, "oversize=host"), 1);
    assert_true(engine->apps[3].client->is_oversize);

    /* By option all of them, but for whoever says no. */
    engine->config.is_oversize = true;
    oversize_wish = GM_HELLO_OVERSIZE_UNKNOWN;
    join(0, ALICE, "app", 0);
    assert_true(engine->apps[0].client->is_oversize);
    oversize_wish = GM_HELLO_OVERSIZE_REFUSE;
    join(1, ALICE, "large", 0);
    assert_false(engine->apps[1].client->is_oversize);
    oversize_wish = GM_HELLO_OVERSIZE_UNSAID;
    join(5, ALICE, "small", 0);
    assert_false(engine->apps[5].client->is_oversize);

    /* Nobody where the GPU cannot read host memory. */
    engine->pool.is_registered = true;
    assert_int_equal(set_app(0, 5, "oversize=host"), -ENOTSUP);
    assert_string_equal(why, "oversize=host is not possible: GPU 0 has no memory handles on the "
                             "host");
    assert_int_equal(set_app(0, 5, "oversize=refuse"), 1);
}

static uint64_t cap_of(uint32_t id)
{
    return engine->apps[id].cap.bytes;
}

static bool is_late; /* the user database */

static bool rule_late(const struct gm_rules *all, uid_t uid, const char *name, uint32_t asks,
                      struct gm_settings *settings, char *text, size_t size)
{
    if (!is_late)
        return gm_rules_find(all, uid, name, asks, settings, text, size);
    *settings = (struct gm_settings){
        .has = GM_SET_CLASS | GM_SET_CAP, .class = GM_CLASS_BATCH, .cap = 4ull << 30};
    snprintf(text, size, "perhaps");
    return true;
}

static void totals_late(const struct gm_rules *all, uid_t uid, struct gm_user_totals *totals)
{
    gm_rules_totals(all, uid, totals);
    if (is_late)
        totals->gpu = 8ull << 30;
}

static bool is_sure_late(const struct gm_rules *all, uid_t uid)
{
    while (!is_late && !gm_rules_are_sure(all, uid))
        usleep(1000); /* the system's own is slow on a busy machine */
    return !is_late;
}

/* What might hold bounds a program until it is known what holds: then that does, its cap and totals
 * among it. A reload later does not change these, as ever. */
static void test_late(void **state)
{
    (void)state;
    const struct gm_engine_tuning tuning = {.best_class = GM_CLASS_LATENCY};
    const uint64_t g = 1ull << 30;
    engine->config.budget = 24 * g;
    engine->config.outlet.rule = rule_late;
    engine->config.outlet.totals = totals_late;
    engine->config.outlet.is_sure = is_sure_late;
    rule("user=4000001 class=interactive user-gpu=20G");
    is_late = true;
    join(0, ALICE, "app", 0);
    join(1, BOB, "app", 0);
    gm_engine_take_tuning(engine, &tuning); /* still not */
    for (uint32_t id = 0; id < 2; id++) {
        assert_int_equal(class_of(id), GM_CLASS_BATCH);
        assert_int_equal(cap_of(id), 4 * g);
        assert_int_equal(engine->apps[id].cap.user_gpu, 8 * g);
    }
    assert_int_equal(set_app(0, 1, "cap=2G"), 1); /* an administrator said so: no rule says more */
    is_late = false;
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(class_of(0), GM_CLASS_INTERACTIVE);
    assert_int_equal(cap_of(0), 0);
    assert_int_equal(engine->apps[0].cap.user_gpu, 20 * g);
    assert_int_equal(cap_of(1), 2 * g);
    assert_int_equal(engine->apps[1].cap.user_gpu, 0);
    rule("command=app cap=3G");
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(cap_of(0), 0);
}

/* A program and its user may say no more than an administrator or a rule, and nobody what cannot
 * be. */
static void test_caps(void **state)
{
    (void)state;
    const uint64_t g = 1ull << 30;
    engine->config.budget = 24 * g;
    rule("command=capped cap=6G");
    rule("command=wide cap=60G");
    most_cap = 24 * g;
    join(0, ALICE, "app", 0);
    assert_int_equal(cap_of(0), 0);
    join(1, ALICE, "capped", 0);
    assert_int_equal(cap_of(1), 6 * g);
    join(2, ALICE, "wide", 0); /* going on without it */
    assert_int_equal(cap_of(2), 0);
    cap_wish = (struct gm_wishes){.cap_is = GM_HELLO_CAP_OURS, .cap = 8 * g};
    join(3, ALICE, "app", 0);
    assert_int_equal(cap_of(3), 8 * g);
    join(4, ALICE, "capped", 0);
    assert_int_equal(cap_of(4), 6 * g);
    cap_wish = (struct gm_wishes){.cap_is = GM_HELLO_CAP_FOREIGN, .cap = 2 * g};
    join(5, ALICE, "capped", 0);
    assert_int_equal(cap_of(5), 2 * g);
    cap_wish = (struct gm_wishes){.cap_is = GM_HELLO_CAP_FOREIGN, .cap = 80 * g};
    join(3, ALICE, "app", 0); /* more than there is */
    assert_int_equal(cap_of(3), 0);
    cap_wish = (struct gm_wishes){.cap_is = GM_HELLO_CAP_UNKNOWN};
    join(3, ALICE, "app", 0);
    assert_int_equal(cap_of(3), 0);
    cap_wish = (struct gm_wishes){.cap_is = GM_HELLO_CAP_OURS, .cap = 1};
    join(3, ALICE, "app", 0);
    assert_int_equal(cap_of(3), 0);
    cap_wish = (struct gm_wishes){0};

    assert_int_equal(set_app(ALICE, 0, "cap=4G"), 1);
    assert_int_equal(cap_of(0), 4 * g);
    assert_int_equal(set_app(ALICE, 0, "cap=none"), 1);
    assert_int_equal(cap_of(0), 0);
    assert_int_equal(set_app(ALICE, 1, "cap=7G"), -EPERM);
    assert_string_equal(why, "app 1 (pid 101, capped): the greatest cap that its user may give is "
                             "6G");
    assert_int_equal(set_app(ALICE, 1, "cap=none"), -EPERM);
    assert_int_equal(set_app(ALICE, 1, "cap=5G"), 1);
    assert_int_equal(cap_of(1), 5 * g);
    assert_int_equal(set_app(0, 1, "cap=30G"), -ERANGE);
    assert_string_equal(why, "too large");
    assert_int_equal(cap_of(1), 5 * g);
    assert_int_equal(set_app(0, 1, "cap=10G"), 1);
    assert_int_equal(cap_of(1), 10 * g);
    assert_int_equal(set_app(0, 1, "cap=none"), 1); /* that of the rule, too */
    assert_int_equal(cap_of(1), 0);
    assert_int_equal(set_app(ALICE, 1, "cap=20G"), 1);
    most_cap = UINT64_MAX;
}

static void test_own_programs(void **state)
{
    (void)state;
    engine->config.best_class = GM_CLASS_INTERACTIVE;
    join(0, ALICE, "app", 0);
    join(1, BOB, "app", 0);
    assert_int_equal(set_app(ALICE, 0, "class=interactive weight=0.5 share=30% paused"), 1);
    assert_int_equal(class_of(0), GM_CLASS_INTERACTIVE);
    assert_int_equal(policy(0).weight, 500);
    assert_true(policy(0).is_paused);
    assert_int_equal(set_app(ALICE, 0, "paused=no"), 1);
    assert_false(policy(0).is_paused);
    assert_int_equal(policy(0).share, 300); /* what is not said stays */
    assert_int_equal(set_app(ALICE, 0, "share=100% class=auto weight=1"), 1);

    static const struct {
        const char *words, *expected;
    } refused[] = {
        {"class=latency", "app 0 (pid 100, app): the best class that its user may take is "
                          "interactive"},
        {"weight=1.1", "the greatest weight that its user may give is 1"},
        {"class=batch weight=2", "greatest weight"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(set_app(ALICE, 0, refused[i].words), -EPERM);
        if (!strstr(why, refused[i].expected))
            fail_msg("%s: \"%s\"", refused[i].words, why);
        assert_int_equal(class_of(0), GM_CLASS_AUTO);
        assert_int_equal(policy(0).weight, GM_SCHED_WEIGHT);
    }
    assert_int_equal(set_app(ALICE, 1, "class=batch"), -EPERM);
    assert_string_equal(why, "that is another user's program: only root may set it");
    assert_int_equal(class_of(1), GM_CLASS_AUTO);
}

/* What an administrator says bounds what the user may say, until he takes it back. */
static void test_administrators(void **state)
{
    (void)state;
    rule("command=train class=batch weight=0.5 share=40%");
    join(0, ALICE, "train", 0);
    assert_int_equal(set_app(ALICE, 0, "class=auto"), -EPERM);
    assert_int_equal(set_app(ALICE, 0, "weight=0.6"), -EPERM);
    assert_int_equal(set_app(ALICE, 0, "share=41%"), -EPERM);
    assert_string_equal(why, "app 0 (pid 100, train): the greatest share that its user may give is "
                             "40%");
    assert_int_equal(set_app(ALICE, 0, "weight=0.3 share=20%"), 1);
    assert_int_equal(policy(0).weight, 300);

    assert_int_equal(set_app(0, 0, "weight=8"), 1); /* over the user's word, and a new bound */
    assert_int_equal(policy(0).weight, 8000);
    assert_int_equal(policy(0).share, 200);
    assert_int_equal(set_app(ALICE, 0, "weight=7"), 1);
    assert_int_equal(set_app(ALICE, 0, "weight=9"), -EPERM);
    assert_int_equal(policy(0).weight, 7000);

    assert_int_equal(set_app(0, 0, "class=auto share=100%"), 1); /* nothing is said any more */
    assert_int_equal(class_of(0), GM_CLASS_AUTO);
    assert_int_equal(policy(0).share, GM_SCHED_SHARE_ALL);
    assert_int_equal(set_app(ALICE, 0, "class=latency"), 1);
    assert_int_equal(class_of(0), GM_CLASS_LATENCY);

    assert_int_equal(set_app(geteuid(), 0, "paused"), 1);
    assert_int_equal(set_app(ALICE, 0, "paused=no"), -EPERM);
    assert_string_equal(why, "app 0 (pid 100, train): it was paused by an administrator");
    assert_true(policy(0).is_paused);
    assert_int_equal(set_app(0, 0, "paused=no"), 1);
    assert_int_equal(set_app(ALICE, 0, "paused"), 1);
    assert_true(policy(0).is_paused);
    assert_int_equal(set_app(0, 0, "paused=no"), 1); /* whoever paused it */
    assert_false(policy(0).is_paused);
}

/* What holds for a group is known of each of it, and no group is walked more than once a run. */
static void test_evicted_group(void **state)
{
    static const struct gm_table_app rows[APPS];
    static struct gm_table table = {.apps = rows};
    (void)state;
    engine->table = &table;
    for (uint32_t id = 0; id < APPS; id++) {
        join(id, ALICE, "app", 0);
        join_to = clients[0].group;
        engine->apps[id].session = clients[id].session;
    }
    join_to = NULL;
    assert_int_equal(set_app(ALICE, 2, "paused=evicted"), APPS);
    for (uint32_t id = 0; id < APPS; id++)
        assert_true(gm_engine_is_paused(engine, id) && gm_engine_is_evicted(engine, id));
    assert_int_equal(set_app(ALICE, 2, "paused"), APPS);
    for (uint32_t id = 0; id < APPS; id++)
        assert_true(gm_engine_is_paused(engine, id) && !gm_engine_is_evicted(engine, id));
    assert_int_equal(set_app(ALICE, 2, "paused=no"), APPS);
    for (uint32_t id = 0; id < APPS; id++)
        assert_int_equal(set_app(ALICE, id, "paused=idle"), APPS);
    asked = 0;
    gm_engine_follow_calls(engine);
    assert_int_equal(asked, APPS);
    for (uint32_t id = 0; id < APPS; id++)
        assert_true(gm_engine_is_evicted(engine, id));
    is_called[APPS - 1] = true;
    asked = 0;
    gm_engine_follow_calls(engine);
    is_called[APPS - 1] = false;
    assert_int_equal(asked, APPS);
    for (uint32_t id = 0; id < APPS; id++)
        assert_false(gm_engine_is_paused(engine, id) || gm_engine_is_evicted(engine, id));
    for (uint32_t id = 0; id < APPS; id++)
        engine->apps[id].session = NULL;
}

static const char *name_user(uid_t uid, char *name)
{
    snprintf(name, 64, "%s", uid == ALICE ? "alice" : "root");
    return name;
}

/* Who is evicted is paused, and until its next call only as long as none waits; what else was said
 * of pausing holds then. */
static void test_evicted(void **state)
{
    (void)state;
    char by[64];
    engine->config.outlet.user = name_user;
    join(0, ALICE, "app", 0);
    engine->apps[0].session = clients[0].session;
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_NO);
    assert_int_equal(set_app(ALICE, 0, "paused=evicted"), 1);
    assert_true(policy(0).is_paused && gm_engine_is_evicted(engine, 0));
    is_called[0] = true;
    gm_engine_follow_calls(engine); /* whatever it does */
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_EVICTED);
    assert_int_equal(set_app(ALICE, 0, "paused=no"), 1);
    assert_false(policy(0).is_paused || gm_engine_is_evicted(engine, 0));

    is_called[0] = false;
    assert_int_equal(set_app(ALICE, 0, "paused=idle"), 1);
    gm_engine_follow_calls(engine);
    assert_true(policy(0).is_paused && gm_engine_is_evicted(engine, 0));
    assert_string_equal(gm_engine_pauser(engine, 0, by, sizeof by), "alice, until its next call");
    const uint32_t before = notes;
    is_called[0] = true;
    gm_engine_follow_calls(engine);
    assert_false(policy(0).is_paused || gm_engine_is_evicted(engine, 0));
    assert_int_equal(notes, before + 1); /* the log tells it once */
    gm_engine_follow_calls(engine);
    assert_int_equal(notes, before + 1);

    /* an administrator's pause holds after that of its user */
    is_called[0] = false;
    assert_int_equal(set_app(0, 0, "paused"), 1);
    assert_int_equal(set_app(ALICE, 0, "paused=idle"), 1);
    is_called[0] = true;
    gm_engine_follow_calls(engine);
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_YES);
    assert_int_equal(set_app(0, 0, "paused=idle"), 1); /* and its own until then, too */
    gm_engine_follow_calls(engine);
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_NO);
    is_called[0] = false;
}

/* A rule's pause until the next call ends with that, however often rules are read. */
static void test_evicted_by_rule(void **state)
{
    const struct gm_engine_tuning tuning = {0};
    (void)state;
    rule("command=app paused=idle");
    join(0, ALICE, "app", 0);
    engine->apps[0].session = clients[0].session;
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_IDLE);
    is_called[0] = true;
    gm_engine_follow_calls(engine);
    is_called[0] = false;
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_NO);
    for (int i = 0; i < 2; i++) {
        gm_engine_take_tuning(engine, &tuning);
        assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_NO);
    }
    rules.n = 0;
    rule("command=app paused"); /* another one holds */
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_YES);
    rules.n = 0;
    rule("command=app paused=idle"); /* and a new one, too */
    gm_engine_take_tuning(engine, &tuning);
    assert_int_equal(gm_engine_pause_of(engine, 0), GM_PAUSED_IDLE);
}

static void test_selections(void **state)
{
    (void)state;
    join(0, ALICE, "train", 0);
    join(1, BOB, "train", 0);
    join(2, ALICE, "serve", 0);
    join(3, BOB, "serve", 0);
    join(4, ALICE, "train", 0);
    engine->apps[4].state = GM_APP_GONE; /* it is none any more */
    const struct gm_set_request trains = {.selects = GM_SET_COMMAND, .command = "tr*"};
    const struct gm_set_request alices = {.selects = GM_SET_UID, .uid = ALICE};
    const struct gm_set_request both = {
        .selects = GM_SET_UID | GM_SET_COMMAND, .uid = BOB, .command = "serve"};

    assert_int_equal(set(0, trains, "class=batch"), 2);
    assert_int_equal(class_of(0), GM_CLASS_BATCH);
    assert_int_equal(class_of(1), GM_CLASS_BATCH);
    assert_int_equal(class_of(2), GM_CLASS_AUTO);
    assert_int_equal(set(ALICE, trains, "weight=0.7"), 1); /* of hers */
    assert_int_equal(policy(1).weight, GM_SCHED_WEIGHT);
    assert_int_equal(set(0, alices, "weight=3"), 2);
    assert_int_equal(set(0, both, "class=latency"), 1);
    assert_int_equal(class_of(3), GM_CLASS_LATENCY);
    assert_int_equal(set(BOB, alices, "weight=0.5"), -EPERM);
    assert_int_equal(set(ALICE, both, "weight=0.5"), -EPERM);

    unsigned before = notes;
    assert_int_equal(set(0, (struct gm_set_request){.selects = GM_SET_PID, .pid = 104}, "paused"),
                     -ENOENT);
    assert_string_equal(why, "pid 104 is no program that shares the GPU: mux-ctl ps lists them");
    assert_int_equal(
        set(0, (struct gm_set_request){.selects = GM_SET_COMMAND, .command = "x*"}, "paused"),
        -ENOENT);
    assert_string_equal(
        why, "no program that shares the GPU has the name \"x*\": mux-ctl ps lists them");
    assert_int_equal(set(0, (struct gm_set_request){.selects = GM_SET_UID, .uid = 77}, "paused"),
                     -ENOENT);
    assert_int_equal(notes, before);
}

/* All of them or none: one that the asker may not set so spares the others. */
static void test_all_or_none(void **state)
{
    (void)state;
    rule("command=b class=batch");
    join(0, ALICE, "a", 0);
    join(1, ALICE, "b", 0);
    join(2, ALICE, "c", 0);
    const struct gm_set_request hers = {.selects = GM_SET_UID, .uid = ALICE};
    assert_int_equal(set(ALICE, hers, "class=interactive"), -EPERM);
    for (uint32_t id = 0; id < 3; id++)
        assert_int_equal(class_of(id), id == 1 ? GM_CLASS_BATCH : GM_CLASS_AUTO);
    assert_int_equal(notes, 0);
    assert_int_equal(set(ALICE, hers, "class=batch"), 3);
    assert_int_equal(notes, 3);
}

#define POLICY(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POLICY(test_first),          POLICY(test_part),       POLICY(test_wishes),
        POLICY(test_asks),           POLICY(test_oversize),   POLICY(test_own_programs),
        POLICY(test_administrators), POLICY(test_evicted),    POLICY(test_evicted_by_rule),
        POLICY(test_evicted_group),  POLICY(test_selections), POLICY(test_all_or_none),
        POLICY(test_caps),           POLICY(test_late),       POLICY(test_tuning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
