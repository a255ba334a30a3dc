/* clang-format off */
/*
 * The settings of programs, which it owns, and the options that change while the daemon runs.
 * Called by apps.c for new ones, by step.c for SET and TUNE, and by feed.c, which it tells what
 * holds.
 *
 * Settings have two layers:
 *
 *   admin   the rule that matches, then what root or the daemon's own user sets
 *   own     GPUMUX_CLASS, GPUMUX_WEIGHT, GPUMUX_OVERSIZE and GPUMUX_CAP, then what the program's user sets
 *
 * A setting of the own layer counts within the limits of the admin layer: no better class, no
 * greater weight or share, no resuming, not larger than the budget. If the admin layer sets
 * nothing, the limits are --best-class and weight 1, and who says nothing is as --oversize says. Root and the daemon's own user are always administrators. An
 * administrator who sets the default takes the setting back, also that of a rule.
 *
 * When the rules change, what they said of a program ends, and what they say now begins; but what
 * an administrator said of it stays, and so does how much memory it may have: it was given that.
 * What its user said ends where it may not say so any more.
 *
 * An evicted program is paused, and its memory leaves the GPU (budget.c). Until its next call: when a
 * thread of its group waits for a turn, or parked work does, its pause ends. That is looked at before
 * each decision, whatever message told of it, so no call is missed.
 */
/* clang-format on */
#include "daemon/engine/step/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "common/wishes.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/step/room.h"

static const struct gm_sched_policy nothing_said = {
    .class = GM_CLASS_AUTO, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};

/* 0 is the best. */
static unsigned rank_of(unsigned class)
{
    static const unsigned ranks[GM_CLASSES] = {[GM_CLASS_LATENCY] = 0,
                                               [GM_CLASS_INTERACTIVE] = 1,
                                               [GM_CLASS_AUTO] = 2,
                                               [GM_CLASS_BATCH] = 3};
    return ranks[class];
}

/* Lay `over` over `under`. */
static void overlay(struct gm_settings *under, const struct gm_settings *over)
{
    if (over->has & GM_SET_CLASS)
        under->class = over->class;
    if (over->has & GM_SET_WEIGHT)
        under->weight = over->weight;
    if (over->has & GM_SET_SHARE)
        under->share = over->share;
    if (over->has & GM_SET_PAUSED)
        gm_settings_set_paused(under, gm_settings_paused(over));
    if (over->has & GM_SET_OVERSIZE)
        under->is_oversize = over->is_oversize;
    if (over->has & GM_SET_CAP)
        under->cap = over->cap;
    under->has |= over->has;
}

/* What holds for an app. */
static struct gm_settings settings_of(const struct gm_app *app)
{
    struct gm_settings all = {
        .class = nothing_said.class, .weight = nothing_said.weight, .share = nothing_said.share};
    overlay(&all, &app->policy.admin);
    overlay(&all, &app->policy.own);
    return all;
}

static struct gm_sched_policy policy_of(const struct gm_app *app)
{
    const struct gm_settings all = settings_of(app);
    return (struct gm_sched_policy){
        .class = all.class, .is_paused = all.is_paused, .weight = all.weight, .share = all.share};
}

enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t id)
{
    return policy_of(&engine->apps[id]).class;
}

static bool has_host_frames(const struct gm_engine *engine)
{
    return !engine->pool.is_registered;
}

static bool is_oversize_by(const struct gm_engine *engine, const struct gm_settings *admin,
                           const struct gm_settings *own)
{
    struct gm_settings all = {.is_oversize = engine->config.is_oversize};
    overlay(&all, admin);
    overlay(&all, own);
    return all.is_oversize;
}

/* GPUMUX_OVERSIZE as a setting. False: not said, or no word of it. */
static bool read_oversize(uint32_t wish, struct gm_settings *said)
{
    *said =
        (struct gm_settings){.has = GM_SET_OVERSIZE, .is_oversize = wish == GM_HELLO_OVERSIZE_HOST};
    return wish == GM_HELLO_OVERSIZE_HOST || wish == GM_HELLO_OVERSIZE_REFUSE;
}

/* Whether an administrator's rule or setting keeps the program's user from saying so. */
static bool forbids_oversize(const struct gm_settings *admin, const struct gm_settings *said)
{
    return (said->has & GM_SET_OVERSIZE) && said->is_oversize && (admin->has & GM_SET_OVERSIZE) &&
           !admin->is_oversize;
}

/* For good: what its graphs use must be known when there is memory on the host. */
static void set_oversize(const struct gm_engine *engine, struct gm_client *client, bool is_oversize)
{
    client->is_oversize = is_oversize;
    if ((is_oversize || engine->config.fits_working_sets) && client->ctl)
        atomic_fetch_or(&client->ctl->is_counting, GM_MAY_COUNT);
}

void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client)
{
    struct gm_settings admin = {0}, own;
    char text[512];
    if (engine->config.rules)
        engine->config.outlet.rule(engine->config.rules, client->uid, client->name, &admin, text,
                                   sizeof text);
    if (!read_oversize(client->wishes.oversize, &own) ||
        (!client->is_admin && forbids_oversize(&admin, &own)))
        own.has = 0;
    set_oversize(engine, client, is_oversize_by(engine, &admin, &own));
}

/* What was said of its size has changed, for memory that it asks for from now on. */
static void resize(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    set_oversize(engine, app->client, is_oversize_by(engine, &app->policy.admin, &app->policy.own));
}

/* The cap that holds. False: that is nothing new. */
static bool take_said_cap(struct gm_engine *engine, uint32_t id)
{
    struct gm_settings all = {0};
    overlay(&all, &engine->apps[id].policy.admin);
    overlay(&all, &engine->apps[id].policy.own);
    return gm_engine_set_cap(engine, id, all.cap);
}

static void recap(struct gm_engine *engine, uint32_t id)
{
    if (!take_said_cap(engine, id))
        return;
    gm_engine_take_spares(engine, id, UINT64_MAX); /* they are in the way, or will be */
    gm_engine_follow_cap(engine, id);
}

/* Whether the cap is larger than what an administrator gave. */
static bool exceeds_cap(const struct gm_settings *admin, const struct gm_settings *said)
{
    const uint64_t most = admin->has & GM_SET_CAP ? admin->cap : 0;
    return (said->has & GM_SET_CAP) && most != 0 && (said->cap == 0 || said->cap > most);
}

/* Which of `settings` say what holds without any. */
static uint32_t unsaid(const struct gm_settings *settings)
{
    uint32_t which = 0;
    if (settings->class == nothing_said.class)
        which |= GM_SET_CLASS;
    if (settings->weight == nothing_said.weight)
        which |= GM_SET_WEIGHT;
    if (settings->share == nothing_said.share)
        which |= GM_SET_SHARE;
    if (!settings->is_paused)
        which |= GM_SET_PAUSED;
    if (settings->cap == 0)
        which |= GM_SET_CAP;
    return which & settings->has;
}

/* The best class that the app's own user may take. */
static unsigned best_of(const struct gm_engine *engine, const struct gm_app *app)
{
    return app->policy.admin.has & GM_SET_CLASS ? app->policy.admin.class
                                                : engine->config.best_class;
}

/* Whether the app's own user may say so; if not, with a line in `why`. */
static bool may_say(const struct gm_engine *engine, uint32_t id, const struct gm_settings *said,
                    char *why, size_t size)
{
    const struct gm_app *app = &engine->apps[id];
    uint32_t weight =
        app->policy.admin.has & GM_SET_WEIGHT ? app->policy.admin.weight : nothing_said.weight;
    uint32_t share =
        app->policy.admin.has & GM_SET_SHARE ? app->policy.admin.share : nothing_said.share;
    bool is_paused = (app->policy.admin.has & GM_SET_PAUSED) && app->policy.admin.is_paused;
    unsigned best = best_of(engine, app);
    char number[24];

    if ((said->has & GM_SET_CLASS) && rank_of(said->class) < rank_of(best))
        snprintf(why, size, "the best class that its user may take is %s", gm_class_name(best));
    else if ((said->has & GM_SET_WEIGHT) && said->weight > weight)
        snprintf(why, size, "the greatest weight that its user may give is %s",
                 gm_format_thousandths(weight, number, sizeof number));
    else if ((said->has & GM_SET_SHARE) && said->share > share)
        snprintf(why, size, "the greatest share that its user may give is %s%%",
                 gm_format_thousandths(share * 100, number, sizeof number));
    else if ((said->has & GM_SET_PAUSED) && !said->is_paused && is_paused)
        snprintf(why, size, "it was paused by an administrator");
    else if (forbids_oversize(&app->policy.admin, said))
        snprintf(why, size, "an administrator says that it gets no more than the budget");
    else if (exceeds_cap(&app->policy.admin, said))
        snprintf(why, size, "the greatest cap that its user may give is %s",
                 gm_settings_format_cap(app->policy.admin.cap, number, sizeof number));
    else
        return true;
    return false;
}

/* What holds for all members of a group on this GPU: the best class and weight of any, the least
 * share; and it is paused if any is. */
static struct gm_sched_policy common_policy(const struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_policy all = policy_of(&engine->apps[id]);
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        if (client->engines[engine->config.index] != engine || !client->session)
            continue;
        const struct gm_sched_policy one = policy_of(&engine->apps[client->id]);
        all.class = rank_of(one.class) < rank_of(all.class) ? one.class : all.class;
        all.weight = one.weight > all.weight ? one.weight : all.weight;
        all.share = one.share < all.share ? one.share : all.share;
        all.is_paused = all.is_paused || one.is_paused;
    }
    return all;
}

static bool pauses(const struct gm_settings *settings)
{
    return (settings->has & GM_SET_PAUSED) && settings->is_paused;
}

/* A paused one of its group; GM_NONE: none is. */
static uint32_t paused_member(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next)
        if (client->engines[engine->config.index] == engine && client->session &&
            policy_of(&engine->apps[client->id]).is_paused)
            return client->id;
    return GM_NONE;
}

/* What a rule says of it. Of a program that has a part of the multiprocessors, share= is that part:
 * its time has no limit beside. False: no rule does. */
static bool find_rule(const struct gm_engine *engine, const struct gm_app *app,
                      struct gm_settings *ruled, char *text, size_t size)
{
    *ruled = (struct gm_settings){0};
    text[0] = '\0';
    if (!engine->config.rules ||
        !engine->config.outlet.rule(engine->config.rules, app->uid, app->name, ruled, text, size))
        return false;
    if (app->policy.has_part)
        ruled->has &= ~(uint32_t)GM_SET_SHARE;
    return true;
}

static bool is_unsure(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_engine_outlet *outlet = &engine->config.outlet;
    return engine->config.rules && outlet->is_sure &&
           !outlet->is_sure(engine->config.rules, engine->apps[id].uid);
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
        engine->config.outlet.rule(engine->config.rules, app->uid, app->name, &ruled, text, size) &&
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

/* How its group is paused: until its next call only if nobody of it is for longer. */
static struct gm_settings common_pause(const struct gm_engine *engine, uint32_t id)
{
    struct gm_settings all = {0};
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        if (client->engines[engine->config.index] != engine || !client->session)
            continue;
        const struct gm_settings one = settings_of(&engine->apps[client->id]);
        if (!one.is_paused)
            continue;
        all.is_until_call = one.is_until_call && (all.is_until_call || !all.is_paused);
        all.is_evicted = all.is_evicted || one.is_evicted;
        all.is_paused = true;
    }
    return all;
}

char *gm_engine_pauser(const struct gm_engine *engine, uint32_t id, char *text, size_t size)
{
    const uint32_t paused = paused_member(engine, id);
    const struct gm_app *app = paused == GM_NONE ? NULL : &engine->apps[paused];
    char rule[512], user[64];
    snprintf(text, size, "nobody any more");
    if (app && pauses(&app->policy.own))
        snprintf(text, size, "%s", engine->config.outlet.user(app->uid, user));
    else if (app && app->policy.is_paused_by_rule &&
             gm_engine_rule_of(engine, paused, GM_SET_PAUSED, rule, sizeof rule))
        snprintf(text, size, "the rule %s", rule);
    else if (app)
        snprintf(text, size, "%s", engine->config.outlet.user(app->policy.pauser, user));
    if (common_pause(engine, id).is_until_call)
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
    const struct gm_settings all = common_pause(engine, id);
    return gm_settings_paused(&all);
}

bool gm_engine_is_evicted(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->session && engine->units[app->unit].is_evicted;
}

/* Tell the app, and its group, so that they can say why they wait. */
static void tell_paused(const struct gm_engine *engine, uint32_t id, bool is_paused)
{
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    if (engine->apps[id].ctl)
        atomic_store(&engine->apps[id].ctl->is_paused, is_paused);
    for (; client; client = client->next)
        if (client->ctl)
            atomic_store(&client->ctl->is_paused, is_paused);
}

/* Tell the scheduler what holds now. */
struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_policy policy = common_policy(engine, id);
    const struct gm_settings pause = common_pause(engine, id);
    engine->apps[id].policy.is_limited = policy.share < GM_SCHED_SHARE_ALL;
    tell_paused(engine, id, policy.is_paused && !pause.is_until_call);
    gm_engine_feed_policy(engine, id, &policy, pause.is_evicted);
    return policy;
}

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
    if (engine->apps[id].client->is_admin || may_say(engine, id, said, why, sizeof why))
        return true;
    snprintf(text, sizeof text, "%s: %.190s", wish, why);
    ignore_wish(engine, id, text);
    return false;
}

static void take_class(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const struct gm_settings said = {.has = GM_SET_CLASS, .class = (uint8_t)(wish - 1)};
    const char *wrong = gm_wishes_wrong_class(wish);
    char text[64];
    if (wrong) {
        ignore_wish(engine, id, wrong);
    } else if (wish > 0) {
        snprintf(text, sizeof text, "GPUMUX_CLASS=%s", gm_class_name(said.class));
        if (may_wish(engine, id, &said, text))
            overlay(&engine->apps[id].policy.own, &said);
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
            overlay(&engine->apps[id].policy.own, &said);
    }
}

static void take_oversize(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const char *wrong = gm_wishes_wrong_oversize(wish);
    struct gm_settings said;
    if (wrong)
        ignore_wish(engine, id, wrong);
    else if (read_oversize(wish, &said) && may_wish(engine, id, &said, "GPUMUX_OVERSIZE=host"))
        overlay(&engine->apps[id].policy.own, &said);
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
        overlay(&engine->apps[id].policy.own, &said);
}

/* What all programs of its user may have; of pinned memory, as of all of it, each GPU has its part.
 */
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

/* The cap of a rule must be possible, too. */
static void check_rule(struct gm_engine *engine, uint32_t id)
{
    struct gm_settings *admin = &engine->apps[id].policy.admin;
    char why[256];
    if (!(admin->has & GM_SET_CAP) ||
        gm_engine_check_cap(engine, id, admin->cap, why, sizeof why) == 0)
        return;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_IGNORED, .app = id, .ignored.why = why});
    admin->has &= ~(uint32_t)GM_SET_CAP;
}

void gm_engine_first_policy(struct gm_engine *engine, uint32_t id, const struct gm_wishes *wishes)
{
    struct gm_app *app = &engine->apps[id];
    char text[512];

    if (find_rule(engine, app, &app->policy.admin, text, sizeof text))
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_RULED, .app = id, .ruled.rule = text});
    app->policy.is_paused_by_rule = pauses(&app->policy.admin);
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
    struct gm_app *app = &engine->apps[id];
    gm_client_settings_to(&app->policy.admin, &record->admin); /* the reader has checked them */
    gm_client_settings_to(&app->policy.own, &record->own);
    app->policy.said = record->said;
    app->policy.pauser = record->pauser;
    app->policy.is_paused_by_rule = record->is_paused_by_rule != 0;
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

/* `mux-ctl set` */

static bool is_match(const struct gm_set_request *request, const struct gm_client *client)
{
    return (!(request->selects & GM_SET_PID) || client->pid == request->pid) &&
           (!(request->selects & GM_SET_UID) || client->uid == request->uid) &&
           (!(request->selects & GM_SET_COMMAND) ||
            gm_command_matches(request->command, client->name));
}

/* Who has yet to come back has no place in the scheduler. */
static bool can_be_set(const struct gm_app *app)
{
    return app->state == GM_APP_LOST ? app->session != NULL
                                     : app->state != GM_APP_UNUSED && app->state != GM_APP_GONE;
}

/* Who selects one of a group selects all of it. */
static bool is_selected(const struct gm_engine *engine, uint32_t id,
                        const struct gm_set_request *request)
{
    const struct gm_app *app = &engine->apps[id];
    if (!can_be_set(app))
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

static bool is_same(const struct gm_settings *a, const struct gm_settings *b)
{
    return a->has == b->has && a->class == b->class && a->weight == b->weight &&
           a->share == b->share && gm_settings_paused(a) == gm_settings_paused(b) &&
           a->is_oversize == b->is_oversize && a->cap == b->cap;
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
    if (request->is_admin) {
        if (request->settings.has & GM_SET_PAUSED) {
            app->policy.is_paused_by_rule = false;
            app->policy.pauser = request->asker;
        }
        app->policy.said |= request->settings.has;
        overlay(&app->policy.admin, &request->settings);
        app->policy.admin.has &= ~unsaid(&request->settings);
        app->policy.own.has &= ~request->settings.has;
    } else {
        overlay(&app->policy.own, &request->settings);
    }
    if (is_same(&admin, &app->policy.admin) && is_same(&own, &app->policy.own))
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
        if (!is_free && !may_say(engine, id, &request->settings, reason, sizeof reason))
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

/* Who is evicted until its next call. */

static bool is_until_call(const struct gm_settings *settings)
{
    return pauses(settings) && settings->is_until_call;
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
    if (is_until_call(&app->policy.admin) && app->policy.is_paused_by_rule)
        app->policy.has_called = true;
    if (is_until_call(&app->policy.admin))
        app->policy.admin.has &= ~(uint32_t)GM_SET_PAUSED;
    if (is_until_call(&app->policy.own))
        app->policy.own.has &= ~(uint32_t)GM_SET_PAUSED;
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
        if (!app->session ||
            (!is_until_call(&app->policy.admin) && !is_until_call(&app->policy.own)))
            continue;
        if (!unit->is_asked)
            unit->is_called = is_called(app);
        unit->is_asked = true;
        if (unit->is_called)
            end_pause(engine, id);
    }
}

/* New rules, and a new best class. */

#define GM_SET_RETAKEN (GM_SET_CLASS | GM_SET_WEIGHT | GM_SET_SHARE | GM_SET_PAUSED)

static void retake_rule(struct gm_engine *engine, uint32_t id, uint32_t may, char *text,
                        size_t size)
{
    struct gm_app *app = &engine->apps[id];
    may &= ~app->policy.said;
    struct gm_settings ruled;
    find_rule(engine, app, &ruled, text, size);
    if (is_until_call(&ruled) && app->policy.has_called)
        ruled.has &= ~(uint32_t)GM_SET_PAUSED; /* it went on since the rule said so */
    else
        app->policy.has_called = false;
    ruled.has &= may;
    app->policy.admin.has &= ~may;
    overlay(&app->policy.admin, &ruled);
    if (may & GM_SET_PAUSED)
        app->policy.is_paused_by_rule = pauses(&ruled);
}

void gm_engine_take_part(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    char text[512];
    if (!app->client->wishes.has_part || app->policy.has_part)
        return;
    app->policy.has_part = true;
    retake_rule(engine, id, GM_SET_RETAKEN, text, sizeof text);
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
        if (app->client->is_admin || may_say(engine, id, &one, why, sizeof why))
            continue;
        app->policy.own.has &= ~setting;
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_IGNORED, .app = id, .ignored.why = why});
    }
}

void gm_engine_take_tuning(struct gm_engine *engine, const struct gm_engine_tuning *tuning)
{
    struct gm_engine_config *config = &engine->config;
    char text[512];
    config->is_prefetching = tuning->is_prefetching;
    config->best_class = tuning->best_class;
    config->idle_ns = tuning->idle_ns;
    config->grace_ns =
        tuning->grace_ns > engine->least_grace_ns ? tuning->grace_ns : engine->least_grace_ns;
    config->drain_deadline_ns = tuning->drain_deadline_ns;
    config->best_effort_share = tuning->best_effort_share;
    for (uint32_t id = 0; id < config->max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (!can_be_set(app))
            continue;
        const struct gm_settings admin = app->policy.admin, own = app->policy.own;
        const bool is_news = app->policy.is_unsure && !is_unsure(engine, id);
        retake_rule(engine, id, GM_SET_RETAKEN | (is_news ? GM_SET_CAP | GM_SET_OVERSIZE : 0), text,
                    sizeof text);
        if (is_news)
            retake_memory(engine, id);
        unsay(engine, id);
        if (is_same(&admin, &app->policy.admin) && is_same(&own, &app->policy.own))
            continue;
        if (text[0])
            gm_engine_emit(
                engine, &(struct gm_event){.kind = GM_EVENT_RULED, .app = id, .ruled.rule = text});
        gm_engine_apply_policy(engine, id);
    }
}
