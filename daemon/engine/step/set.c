/* What is said of a program: by rules, by itself, by users, by a reload; and who is paused. */
#include "daemon/engine/step/set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/features.h"
#include "common/text.h"
#include "common/wishes.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/room.h"

/* ---- sizes ---- */

/*
 * How much memory a program may have, as its settings say: whether more than the budget, and its
 * cap, which caps.c keeps. Owns gm_client.is_oversize.
 */

/* Host memory can be mapped to programs, so one may have more than the budget. */
static bool has_host_frames(const struct gm_engine *engine)
{
    return !engine->pool.is_registered;
}

static bool is_oversize_by(const struct gm_engine *engine, const struct gm_settings *admin,
                           const struct gm_settings *own)
{
    struct gm_settings all = {.is_oversize = engine->config.is_oversize};
    gm_engine_overlay(&all, admin);
    gm_engine_overlay(&all, own);
    return all.is_oversize;
}

/* GPUMUX_OVERSIZE as a setting. False: not said, or no word of it. */
static bool read_oversize(uint32_t wish, struct gm_settings *said)
{
    *said =
        (struct gm_settings){.has = GM_SET_OVERSIZE, .is_oversize = wish == GM_HELLO_OVERSIZE_HOST};
    return wish == GM_HELLO_OVERSIZE_HOST || wish == GM_HELLO_OVERSIZE_REFUSE;
}

/* For good: what its graphs use must be known when there is memory on the host. */
static void set_oversize(struct gm_client *client, bool is_oversize)
{
    client->is_oversize = is_oversize;
    if (client->ctl)
        atomic_fetch_or(&client->ctl->is_counting, GM_MAY_COUNT);
}

void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client)
{
    struct gm_settings admin = {0}, own;
    char text[512];
    if (engine->config.rules)
        engine->config.outlet.rule(engine->config.rules, client->uid, client->name,
                                   gm_wishes_class(client->wishes.class), &admin, text,
                                   sizeof text);
    if (!read_oversize(client->wishes.oversize, &own) ||
        (!client->is_admin && gm_engine_forbids_oversize(&admin, &own)))
        own.has = 0;
    set_oversize(client, is_oversize_by(engine, &admin, &own));
}

/* What was said of its size has changed, for memory that it asks for from now on. */
static void resize(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    set_oversize(app->client, is_oversize_by(engine, &app->policy.admin, &app->policy.own));
}

/* The cap that holds. False: that is nothing new. */
static bool take_said_cap(struct gm_engine *engine, uint32_t id)
{
    struct gm_settings all = {0};
    gm_engine_overlay(&all, &engine->apps[id].policy.admin);
    gm_engine_overlay(&all, &engine->apps[id].policy.own);
    return gm_engine_set_cap(engine, id, all.cap);
}

/* ... and what follows from it. */
static void recap(struct gm_engine *engine, uint32_t id)
{
    if (!take_said_cap(engine, id))
        return;
    gm_engine_take_spares(engine, id, UINT64_MAX); /* they are in the way, or will be */
    gm_engine_follow_cap(engine, id);
}

/* ---- rules ---- */

/*
 * What rules say of programs and of their users. Owns gm_app.cap.user_gpu and user_pinned, and
 * gm_app.policy.is_unsure. The rules themselves are the service's (outlet).
 */

/* The class that it asked for when it began, whatever was set since. */
static uint32_t asks_of(const struct gm_app *app)
{
    return gm_wishes_class(app->client->wishes.class);
}

/* What a rule says of it. Of a program that has a part of the multiprocessors, share= is that part:
 * its time has no limit beside. False: no rule does. */
static bool find_rule(const struct gm_engine *engine, const struct gm_app *app,
                      struct gm_settings *ruled, char *text, size_t size)
{
    *ruled = (struct gm_settings){0};
    text[0] = '\0';
    if (!engine->config.rules ||
        !engine->config.outlet.rule(engine->config.rules, app->uid, app->name, asks_of(app), ruled,
                                    text, size))
        return false;
    if (app->policy.has_part)
        ruled->has &= ~(uint32_t)GM_SET_SHARE;
    return true;
}

/* What rules say of the app's settings in `may` holds from now on. `text`: the rule; "": none.
 * False: no rule is for it. */
static bool take_rule(struct gm_engine *engine, uint32_t id, uint32_t may, char *text, size_t size)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_settings ruled;
    const bool is_ruled = find_rule(engine, app, &ruled, text, size);
    gm_engine_set_ruled(app, &ruled, may);
    return is_ruled;
}

bool gm_engine_rule_of(const struct gm_engine *engine, uint32_t id, uint32_t setting, char *text,
                       size_t size)
{
    const struct gm_app *app = &engine->apps[id];
    struct gm_settings ruled = {0};
    text[0] = '\0';
    const bool is_ruled =
        (app->policy.admin.has & ~app->policy.own.has & ~app->policy.said & setting) &&
        engine->config.rules && engine->config.outlet.rule &&
        engine->config.outlet.rule(engine->config.rules, app->uid, app->name, asks_of(app), &ruled,
                                   text, size) &&
        (ruled.has & setting) && (setting != GM_SET_CAP || ruled.cap == app->policy.admin.cap);
    if (!is_ruled)
        text[0] = '\0';
    return is_ruled;
}

bool gm_engine_total_rule_of(const struct gm_engine *engine, uint32_t id, char *text, size_t size)
{
    const struct gm_engine_outlet *outlet = &engine->config.outlet;
    struct gm_user_totals totals;
    text[0] = '\0';
    if (!engine->config.rules || !outlet->total_rule)
        return false;
    outlet->totals(engine->config.rules, engine->apps[id].uid, &totals);
    return totals.gpu == engine->apps[id].cap.user_gpu && /* else an earlier rule says it */
           outlet->total_rule(engine->config.rules, engine->apps[id].uid, text, size);
}

/* Rules may be less strict once more is known of its user. */
static bool is_unsure(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_engine_outlet *outlet = &engine->config.outlet;
    return engine->config.rules && outlet->is_sure &&
           !outlet->is_sure(engine->config.rules, engine->apps[id].uid);
}

/* Of pinned memory, as of all of it, each GPU has its part. */
static void take_totals(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_user_totals totals = {0};
    app->policy.is_unsure = is_unsure(engine, id);
    if (engine->config.rules && engine->config.outlet.totals)
        engine->config.outlet.totals(engine->config.rules, app->uid, &totals);
    app->cap.user_gpu = totals.gpu;
    const uint64_t part = totals.pinned / (engine->config.engines ? engine->config.engines : 1);
    app->cap.user_pinned = gm_chunk_floor(part);
    if (totals.pinned != 0 && app->cap.user_pinned == 0)
        app->cap.user_pinned = GM_CHUNK_MIN; /* 0 would be no limit */
}

/* The cap of a rule must be possible: if it is not, the rule does not say it. */
static void check_rule(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    char why[256];
    if (!(app->policy.admin.has & GM_SET_CAP) ||
        gm_engine_check_cap(engine, id, app->policy.admin.cap, why, sizeof why) == 0)
        return;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_IGNORED, .app = id, .ignored.why = why});
    gm_engine_unset_admin(app, GM_SET_CAP);
}

/* ---- pauses ---- */

/*
 * Who is paused, by whom, and until when.
 *
 * An evicted program is paused, and its memory leaves the GPU (budget.c). Until its next call:
 * when a thread of its group waits for a turn, or parked work does, its pause ends. That is looked
 * at before each decision, whatever message told of it, so no call is missed.
 */

/* A paused one of its group; GM_NONE: none is. */
static uint32_t paused_member(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next)
        if (client->engines[engine->config.index] == engine && client->session &&
            gm_engine_settings_of(&engine->apps[client->id]).is_paused)
            return client->id;
    return GM_NONE;
}

char *gm_engine_pauser(const struct gm_engine *engine, uint32_t id, char *text, size_t size)
{
    const uint32_t paused = paused_member(engine, id);
    const struct gm_app *app = paused == GM_NONE ? NULL : &engine->apps[paused];
    char rule[512], user[64];
    snprintf(text, size, "nobody any more");
    if (app && gm_engine_says_pause(&app->policy.own))
        snprintf(text, size, "%s", engine->config.outlet.user(app->uid, user));
    else if (app && app->policy.is_paused_by_rule &&
             gm_engine_rule_of(engine, paused, GM_SET_PAUSED, rule, sizeof rule))
        snprintf(text, size, "the rule %s", rule);
    else if (app)
        snprintf(text, size, "%s", engine->config.outlet.user(app->policy.pauser, user));
    if (gm_engine_common_pause(engine, id).is_until_call)
        gm_text_add(text, size, ", until its next call");
    return text;
}

bool gm_engine_is_paused(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->session && engine->units[app->unit].is_paused;
}

uint32_t gm_engine_pause_of(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_settings all = gm_engine_common_pause(engine, id);
    return gm_settings_paused(&all);
}

bool gm_engine_is_evicted(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->session && engine->units[app->unit].is_evicted;
}

/* A call of its group waits, or work that was parked, on any of their GPUs. */
static bool is_called(const struct gm_app *app)
{
    struct gm_walk walk = gm_group_walk(app->client->group);
    struct gm_engine *at;
    const struct gm_app *member;
    while ((member = gm_group_step(&walk, &at)) != NULL)
        if (gm_engine_awaits_turn(member))
            return true;
    return false;
}

/* What was said until then is said no more. */
static void end_pause(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_settings no = {.has = GM_SET_PAUSED};
    gm_engine_unset_called(app);
    const struct gm_sched_policy policy = gm_engine_apply_policy(engine, id);
    gm_engine_note_set(engine, id, app->uid, &no, &policy);
    gm_group_changed(engine, id); /* it goes on when it may on all its GPUs */
}

/* Each group is walked once, however many of it wait. */
void gm_engine_follow_calls(struct gm_engine *engine)
{
    for (uint32_t unit = 0; unit < engine->config.max_apps; unit++)
        engine->units[unit].is_asked = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        struct gm_unit *unit = &engine->units[app->unit];
        if (!app->session || (!gm_engine_says_until_call(&app->policy.admin) &&
                              !gm_engine_says_until_call(&app->policy.own)))
            continue;
        if (!unit->is_asked)
            unit->is_called = is_called(app);
        unit->is_asked = true;
        if (unit->is_called)
            end_pause(engine, id);
    }
}

/* ---- wishes ---- */

/*
 * The settings that a program begins with: what rules say of it, and what its environment asks
 * for; or what the daemon before knew. Owns gm_app.policy.ignored.
 */

/* Something that its environment asks for cannot be, and counts as not said. */
static void ignore_wish(struct gm_engine *engine, uint32_t id, const char *why)
{
    char *ignored = engine->apps[id].policy.ignored;
    gm_text_add(ignored, sizeof engine->apps[id].policy.ignored, "%s%s", *ignored ? "; " : "", why);
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_IGNORED, .app = id, .ignored.why = why});
}

/* Whether its user may have what `wish` asks for, in the words of its environment. */
static bool may_wish(struct gm_engine *engine, uint32_t id, const struct gm_settings *said,
                     const char *wish)
{
    char why[256], text[256];
    if (engine->apps[id].client->is_admin || gm_engine_may_say(engine, id, said, why, sizeof why))
        return true;
    snprintf(text, sizeof text, "%s: %.190s", wish, why);
    ignore_wish(engine, id, text);
    return false;
}

static void take_class(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const struct gm_settings said = {.has = GM_SET_CLASS, .class = (uint8_t)gm_wishes_class(wish)};
    const char *wrong = gm_wishes_wrong_class(wish);
    char text[64];
    if (wrong) {
        ignore_wish(engine, id, wrong);
    } else if (wish > 0) {
        snprintf(text, sizeof text, "GPUMUX_CLASS=%s", gm_class_name(said.class));
        if (may_wish(engine, id, &said, text))
            gm_engine_set_own(&engine->apps[id], &said);
    }
}

static void take_weight(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const struct gm_settings said = {.has = GM_SET_WEIGHT, .weight = wish};
    const char *wrong = gm_wishes_wrong_weight(wish);
    char text[64], number[24];
    if (wrong) {
        ignore_wish(engine, id, wrong);
    } else if (wish > 0) {
        snprintf(text, sizeof text, "GPUMUX_WEIGHT=%s",
                 gm_format_thousandths(said.weight, number, sizeof number));
        if (may_wish(engine, id, &said, text))
            gm_engine_set_own(&engine->apps[id], &said);
    }
}

static void take_oversize(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const char *wrong = gm_wishes_wrong_oversize(wish);
    struct gm_settings said;
    if (wrong)
        ignore_wish(engine, id, wrong);
    else if (read_oversize(wish, &said) && may_wish(engine, id, &said, "GPUMUX_OVERSIZE=host"))
        gm_engine_set_own(&engine->apps[id], &said);
}

/* GPUMUX_CAP, or what other systems say. */
static void take_cap(struct gm_engine *engine, uint32_t id, const struct gm_wishes *wishes)
{
    const struct gm_settings said = {.has = GM_SET_CAP, .cap = wishes->cap & ~(GM_CHUNK_MIN - 1)};
    const char *wrong = gm_wishes_wrong_cap(wishes->cap_is);
    char why[256], text[64], number[24];

    if (wishes->cap_is == GM_HELLO_CAP_UNSAID)
        return;
    if (!wrong && !gm_settings_are_legal(&said))
        wrong = gm_wishes_wrong_cap(GM_HELLO_CAP_UNKNOWN);
    if (wrong) {
        ignore_wish(engine, id, wrong);
        return;
    }
    if (wishes->cap_is == GM_HELLO_CAP_FOREIGN && said.cap > gm_engine_offered(engine))
        return; /* it is told the budget, which is less */
    snprintf(text, sizeof text, "a cap of %s in its environment",
             gm_settings_format_cap(said.cap, number, sizeof number));
    if (!may_wish(engine, id, &said, text))
        return;
    if (gm_engine_check_cap(engine, id, said.cap, why, sizeof why) != 0)
        ignore_wish(engine, id, why);
    else
        gm_engine_set_own(&engine->apps[id], &said);
}

void gm_engine_first_policy(struct gm_engine *engine, uint32_t id, const struct gm_wishes *wishes)
{
    struct gm_app *app = &engine->apps[id];
    char text[512];

    if (take_rule(engine, id, GM_SET_SETTINGS, text, sizeof text))
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_RULED, .app = id, .ruled.rule = text});
    take_class(engine, id, wishes->class);
    take_weight(engine, id, wishes->weight);
    take_oversize(engine, id, wishes->oversize);
    check_rule(engine, id);
    take_cap(engine, id, wishes);
    take_totals(engine, id);
    recap(engine, id);
    if (app->policy.own.has)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_WISHED,
                                                  .app = id,
                                                  .wished.settings = &app->policy.own});
    if (app->client->is_oversize && !has_host_frames(engine))
        gm_engine_happened(engine, id, GM_EVENT_NO_OVERSIZE);
    if (app->policy.admin.has | app->policy.own.has || gm_group_other_here(engine, id) != GM_NONE)
        gm_engine_apply_policy(engine, id);
    gm_engine_begin_notes(engine, id);
}

void gm_engine_keep_policy(struct gm_engine *engine, uint32_t id,
                           const struct gm_client_record *record)
{
    gm_engine_set_again(&engine->apps[id], record);
    take_said_cap(engine, id);
    take_totals(engine, id);
}

void gm_engine_policy_again(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    take_totals(engine, id); /* its user may be known by now */
    if (app->policy.admin.has | app->policy.own.has || gm_group_other_here(engine, id) != GM_NONE)
        gm_engine_apply_policy(engine, id);
    gm_engine_begin_notes(engine, id);
}

/* ---- what a reload changes ---- */

/*
 * What changes while the daemon runs: new rules, and the options that need no restart. Owns these
 * options.
 *
 * When the rules change, what they said of a program ends, and what they say now begins; but what
 * an administrator said of it stays, and so does how much memory it may have: it was given that.
 * What its user said ends where it may not say so any more.
 */

#define GM_SET_RETAKEN (GM_SET_CLASS | GM_SET_WEIGHT | GM_SET_SHARE | GM_SET_PAUSED)

/* It says that it shares by MPS: a part of the GPU that a rule gave it takes the place of the
 * rule's share= now. A lie costs others what a gate that does not close costs them. */
static void take_part(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    char text[512];
    if (!app->client->wishes.has_part || app->policy.has_part)
        return;
    app->policy.has_part = true;
    take_rule(engine, id, GM_SET_RETAKEN, text, sizeof text);
    gm_engine_apply_policy(engine, id);
}

/* What rules say of its memory was the strictest that might hold until now. */
static void retake_memory(struct gm_engine *engine, uint32_t id)
{
    check_rule(engine, id);
    take_totals(engine, id);
    resize(engine, id);
    recap(engine, id);
}

/* What its user may not say any more. */
static void unsay(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    char why[192];
    for (uint32_t setting = 1; setting <= GM_SET_RETAKEN; setting <<= 1) {
        struct gm_settings one = app->policy.own;
        one.has &= setting & GM_SET_RETAKEN;
        if (app->client->is_admin || gm_engine_may_say(engine, id, &one, why, sizeof why))
            continue;
        gm_engine_unset_own(app, setting);
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_IGNORED, .app = id, .ignored.why = why});
    }
}

void gm_engine_take_tuning(struct gm_engine *engine, const struct gm_engine_tuning *tuning)
{
    struct gm_engine_config *config = &engine->config;
    char text[512];
    config->best_class = tuning->best_class;
    config->idle_ns = tuning->idle_ns;
    for (uint32_t id = 0; id < config->max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (!gm_engine_can_be_set(app))
            continue;
        const struct gm_settings admin = app->policy.admin, own = app->policy.own;
        const bool is_news = app->policy.is_unsure && !is_unsure(engine, id);
        take_rule(engine, id, GM_SET_RETAKEN | (is_news ? GM_SET_CAP | GM_SET_OVERSIZE : 0), text,
                  sizeof text);
        if (is_news)
            retake_memory(engine, id);
        unsay(engine, id);
        if (gm_engine_are_same_settings(&admin, &app->policy.admin) &&
            gm_engine_are_same_settings(&own, &app->policy.own))
            continue;
        if (text[0])
            gm_engine_emit(
                engine, &(struct gm_event){.kind = GM_EVENT_RULED, .app = id, .ruled.rule = text});
        gm_engine_apply_policy(engine, id);
    }
}

/* ---- features ---- */

/*
 * What programs do without (common/features.def), for the log: each feature once. All programs
 * have one driver and one kernel, which do not change while the daemon runs; but what those under
 * MPS do without, others have, and service/mps.c says it: what a rule says of them is another
 * thing. The status has it for each program.
 *
 * Owns gm_engine.features_told. The words are the programs' own: shown, never trusted.
 */

void gm_engine_note_features(struct gm_engine *engine)
{
    static const struct {
        uint32_t bit;
        const char *name, *text;
    } features[] = {
#define GM_FEATURE(bit, NAME, name, text) {GM_FEATURE_##NAME, name, text},
#include "common/features.def"
#undef GM_FEATURE
    };
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (!app->session || !app->stat)
            continue;
        const uint32_t off = atomic_load(&app->stat->features_off) & ~engine->features_told;
        if ((off & GM_FEATURE_ISOLATION) != 0) {
            take_part(engine, id);
            continue;
        }
        for (size_t i = 0; off != 0 && i < sizeof features / sizeof features[0]; i++) {
            if ((off & features[i].bit) == 0)
                continue;
            gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_FEATURE,
                                                      .app = id,
                                                      .feature = {.name = features[i].name,
                                                                  .text = features[i].text}});
            engine->features_told |= features[i].bit;
        }
    }
}

/* ---- what is set ---- */

/*
 * mux-ctl set: which programs it is for, who may say so, and what follows. Owns
 * gm_app.policy.is_ahead and ahead_run_ns.
 */

static bool is_match(const struct gm_set_request *request, const struct gm_client *client)
{
    return (!(request->selects & GM_SET_PID) || client->pid == request->pid) &&
           (!(request->selects & GM_SET_UID) || client->uid == request->uid) &&
           (!(request->selects & GM_SET_COMMAND) ||
            gm_command_matches(request->command, client->name));
}

/* Who selects one of a group selects all of it. */
static bool is_selected(const struct gm_engine *engine, uint32_t id,
                        const struct gm_set_request *request)
{
    const struct gm_app *app = &engine->apps[id];
    if (!gm_engine_can_be_set(app))
        return false;
    const struct gm_client *client = gm_group_clients(app->client->group);
    while (client && !(client->session && is_match(request, client)))
        client = client->next;
    return client != NULL;
}

/* A program counts once, on the first of its GPUs. */
static bool counts_here(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = engine->apps[id].client;
    uint32_t first = 0;
    while (!client->engines[first])
        first++;
    return client->engines[first] == engine;
}

static int refuse(int error, char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int refuse(int error, char *why, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, size, format, list);
    va_end(list);
    return error;
}

/* What one can say to a selection that holds nothing of the asker's. */
static int refuse_none(const struct gm_set_request *request, bool has_others, char *why,
                       size_t size)
{
    if (has_others)
        return refuse(-EPERM, why, size, "that is another user's program: only root may set it");
    if (request->selects == GM_SET_PID)
        return refuse(-ENOENT, why, size,
                      "pid %d is no program that shares the GPU: mux-ctl ps lists them",
                      (int)request->pid);
    if (request->selects == GM_SET_COMMAND)
        return refuse(-ENOENT, why, size,
                      "no program that shares the GPU has the name \"%s\": mux-ctl ps lists them",
                      request->command);
    return refuse(-ENOENT, why, size, "no such program shares the GPU now");
}

/* Its memory is to come to the GPU as far as nobody else wants the room, until its next turn. */
static void ask_ahead(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_sched_account account;
    app->policy.is_ahead = gm_engine_account(engine, id, &account);
    app->policy.ahead_run_ns = account.run_ns;
    gm_engine_replan(engine);
    gm_engine_again(engine);
}

bool gm_engine_is_asked_ahead(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    struct gm_sched_account account;
    return app->policy.is_ahead && gm_engine_account(engine, id, &account) &&
           account.run_ns == app->policy.ahead_run_ns;
}

static void set_one(struct gm_engine *engine, uint32_t id, const struct gm_set_request *request)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_settings admin = app->policy.admin, own = app->policy.own;
    if (request->settings.has == GM_SET_AHEAD) {
        ask_ahead(engine, id);
        return;
    }
    if (request->is_admin)
        gm_engine_set_admin(app, &request->settings, request->asker);
    else
        gm_engine_set_own(app, &request->settings);
    if (gm_engine_are_same_settings(&admin, &app->policy.admin) &&
        gm_engine_are_same_settings(&own, &app->policy.own))
        return; /* said before */
    if (request->settings.has & GM_SET_OVERSIZE)
        resize(engine, id);
    if (request->settings.has & GM_SET_CAP)
        recap(engine, id);
    struct gm_sched_policy policy = gm_engine_apply_policy(engine, id);
    gm_engine_note_set(engine, id, request->asker, &request->settings, &policy);
}

int gm_engine_check_set(struct gm_engine *engine, const struct gm_set_request *request, char *why,
                        size_t why_size)
{
    const bool is_free = request->is_admin;
    bool *selected;
    int error = 0;
    if (!(request->settings.has & GM_SET_CAP))
        return 0;
    gm_engine_count_users(engine);
    gm_engine_tell_room(engine);
    selected = calloc(engine->config.max_apps, sizeof *selected);
    if (!selected)
        return refuse(-ENOMEM, why, why_size, "out of memory");
    for (uint32_t id = 0; id < engine->config.max_apps && error == 0; id++) {
        selected[id] =
            is_selected(engine, id, request) && (is_free || engine->apps[id].uid == request->asker);
        if (selected[id])
            error = gm_engine_check_cap(engine, id, request->settings.cap, why, why_size);
    }
    if (error == 0)
        error = gm_engine_check_room(engine, selected, request->settings.cap, why, why_size);
    free(selected);
    return error;
}

/* Who stands still cannot give its turn back, nor its memory. */
static struct gm_reason why_later(const struct gm_engine *engine,
                                  const struct gm_set_request *request)
{
    const bool pauses_it = (request->settings.has & GM_SET_PAUSED) && request->settings.is_paused;
    for (uint32_t id = 0; id < engine->config.max_apps && pauses_it; id++) {
        const struct gm_client *client = engine->apps[id].client;
        if (is_selected(engine, id, request) && engine->apps[id].is_stopped)
            return (struct gm_reason){.why = GM_WHY_LATER, .of = client->stop, .pid = client->pid};
    }
    return (struct gm_reason){0};
}

int gm_engine_apply_set(struct gm_engine *engine, const struct gm_set_request *request,
                        struct gm_set_done *done, char *why, size_t why_size)
{
    bool is_free = request->is_admin, has_others = false;
    uint32_t mine = 0, counted = 0;
    char reason[192];

    why[0] = '\0';
    if (engine->stopping.is_on)
        return refuse(-ESHUTDOWN, why, why_size, "the daemon is stopping");

    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!is_selected(engine, id, request))
            continue;
        if (!is_free && engine->apps[id].uid != request->asker) {
            has_others = true;
            continue;
        }
        if (!is_free && !gm_engine_may_say(engine, id, &request->settings, reason, sizeof reason))
            return refuse(-EPERM, why, why_size, "app %" PRIu32 " (pid %d, %s): %s", id,
                          (int)engine->apps[id].pid, engine->apps[id].name, reason);
        if ((request->settings.has & GM_SET_OVERSIZE) && request->settings.is_oversize &&
            !has_host_frames(engine))
            return refuse(-ENOTSUP, why, why_size,
                          "oversize=host is not possible: GPU %d has no memory handles on the host",
                          engine->config.gpu);
        mine++;
        counted += counts_here(engine, id);
    }
    if (mine == 0)
        return refuse_none(request, has_others, why, why_size);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (is_selected(engine, id, request) && (is_free || engine->apps[id].uid == request->asker))
            set_one(engine, id, request);
    *done = (struct gm_set_done){.changed = counted, .later = why_later(engine, request)};
    return 0;
}
