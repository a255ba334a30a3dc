/*
 * What the scheduler is told and what it decided; what it knows of each app: settings, class,
 * state. Owns the scheduler and engine.decision.
 *
 * The scheduler knows one app, here a *unit*, for all members of a group on this GPU (groups.h).
 * It has their bytes together; it wants if any of them wants, is open when all gates are, and
 * closed when all are quiet. Its settings are those of all of them. So members get
 * turns together or not at all, and cannot be in each other's way. The decision names each of
 * them.
 *
 * A unit lives from its first member's JOIN to its last one's LEAVE. It has the number of its
 * first member, or another one while that is taken by a unit whose first member has left. When
 * groups are united, one of their units here takes all members, and the others end.
 */
#include "daemon/engine/step/feed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/wishes.h"
#include "daemon/core/sched_account.h"
#include "daemon/core/sched_step.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"

static void feed_policy(struct gm_engine *engine, uint32_t app,
                        const struct gm_sched_policy *policy, bool is_evicted);

/* ---- states ---- */

/*
 * The states of apps (core/model.h), which this file owns: gm_engine_turn is their only setter.
 */

bool gm_engine_turn(struct gm_engine *engine, uint32_t id, enum gm_app_event event)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_turn turn = {.model = GM_MODEL_APP,
                                 .from = (uint8_t)app->state,
                                 .event = (uint8_t)event,
                                 .to = gm_model_next(GM_MODEL_APP, app->state, event),
                                 .id = id,
                                 .app = id};
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_TURN, .app = id, .turn.turn = turn});
    if (turn.to == GM_TURN_ILLEGAL)
        return false;
    app->state = (enum gm_app_state)turn.to;
    gm_engine_again(engine);
    gm_engine_replan(engine);
    gm_group_changed(engine, id);
    return true;
}

/* ---- settings ---- */

/*
 * What was said of programs. Owns gm_app.policy: admin, own, said, pauser, is_paused_by_rule and
 * has_called.
 *
 * Settings have two layers:
 *
 *   admin   the rule that matches, then what root or the daemon's own user sets
 *   own     what the program's environment says (GPUMUX_CLASS and the like), then what its user
 * sets
 *
 * A setting of the own layer counts within the limits of the admin layer: no better class, no
 * greater weight or share, no resuming, not larger than the budget. If the admin layer sets
 * nothing, the limits are --best-class and weight 1, and who says nothing is as --oversize says.
 * Root and the daemon's own user are always administrators. An administrator who sets the default
 * takes the setting back, also that of a rule.
 */

static const struct gm_sched_policy nothing_said = {
    .class = GM_CLASS_AUTO, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};

/* How good a class is: 0 is the best. */
static unsigned class_rank(unsigned class)
{
    static const unsigned ranks[GM_CLASSES] = {[GM_CLASS_LATENCY] = 0,
                                               [GM_CLASS_INTERACTIVE] = 1,
                                               [GM_CLASS_AUTO] = 2,
                                               [GM_CLASS_BATCH] = 3};
    return ranks[class];
}

void gm_engine_overlay(struct gm_settings *under, const struct gm_settings *over)
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

struct gm_settings gm_engine_settings_of(const struct gm_app *app)
{
    struct gm_settings all = {
        .class = nothing_said.class, .weight = nothing_said.weight, .share = nothing_said.share};
    gm_engine_overlay(&all, &app->policy.admin);
    gm_engine_overlay(&all, &app->policy.own);
    return all;
}

bool gm_engine_says_pause(const struct gm_settings *settings)
{
    return (settings->has & GM_SET_PAUSED) && settings->is_paused;
}

bool gm_engine_says_until_call(const struct gm_settings *settings)
{
    return gm_engine_says_pause(settings) && settings->is_until_call;
}

bool gm_engine_are_same_settings(const struct gm_settings *a, const struct gm_settings *b)
{
    return a->has == b->has && a->class == b->class && a->weight == b->weight &&
           a->share == b->share && gm_settings_paused(a) == gm_settings_paused(b) &&
           a->is_oversize == b->is_oversize && a->cap == b->cap;
}

bool gm_engine_can_be_set(const struct gm_app *app)
{
    return app->state == GM_APP_LOST ? app->session != NULL
                                     : app->state != GM_APP_UNUSED && app->state != GM_APP_GONE;
}

/* ---- who may say what ---- */

bool gm_engine_forbids_oversize(const struct gm_settings *admin, const struct gm_settings *said)
{
    return (said->has & GM_SET_OVERSIZE) && said->is_oversize && (admin->has & GM_SET_OVERSIZE) &&
           !admin->is_oversize;
}

/* Whether the cap is larger than what an administrator gave. */
static bool exceeds_cap(const struct gm_settings *admin, const struct gm_settings *said)
{
    const uint64_t most = admin->has & GM_SET_CAP ? admin->cap : 0;
    return (said->has & GM_SET_CAP) && most != 0 && (said->cap == 0 || said->cap > most);
}

/* The best class that the app's own user may take. */
static unsigned best_of(const struct gm_engine *engine, const struct gm_app *app)
{
    return app->policy.admin.has & GM_SET_CLASS ? app->policy.admin.class
                                                : engine->config.best_class;
}

bool gm_engine_may_say(const struct gm_engine *engine, uint32_t id, const struct gm_settings *said,
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

    if ((said->has & GM_SET_CLASS) && class_rank(said->class) < class_rank(best))
        snprintf(why, size, "the best class that its user may take is %s", gm_class_name(best));
    else if ((said->has & GM_SET_WEIGHT) && said->weight > weight)
        snprintf(why, size, "the greatest weight that its user may give is %s",
                 gm_format_thousandths(weight, number, sizeof number));
    else if ((said->has & GM_SET_SHARE) && said->share > share)
        snprintf(why, size, "the greatest share that its user may give is %s%%",
                 gm_format_thousandths(share * 100, number, sizeof number));
    else if ((said->has & GM_SET_PAUSED) && !said->is_paused && is_paused)
        snprintf(why, size, "it was paused by an administrator");
    else if (gm_engine_forbids_oversize(&app->policy.admin, said))
        snprintf(why, size, "an administrator says that it gets no more than the budget");
    else if (exceeds_cap(&app->policy.admin, said))
        snprintf(why, size, "the greatest cap that its user may give is %s",
                 gm_settings_format_cap(app->policy.admin.cap, number, sizeof number));
    else
        return true;
    return false;
}

/* ---- what is said ---- */

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

void gm_engine_set_own(struct gm_app *app, const struct gm_settings *said)
{
    gm_engine_overlay(&app->policy.own, said);
}

void gm_engine_set_admin(struct gm_app *app, const struct gm_settings *said, uid_t asker)
{
    if (said->has & GM_SET_PAUSED) {
        app->policy.is_paused_by_rule = false;
        app->policy.pauser = asker;
    }
    app->policy.said |= said->has;
    gm_engine_overlay(&app->policy.admin, said);
    app->policy.admin.has &= ~unsaid(said);
    app->policy.own.has &= ~said->has;
}

void gm_engine_set_ruled(struct gm_app *app, const struct gm_settings *said, uint32_t may)
{
    struct gm_settings ruled = *said;
    may &= ~app->policy.said;
    if (gm_engine_says_until_call(&ruled) && app->policy.has_called)
        ruled.has &= ~(uint32_t)GM_SET_PAUSED; /* it went on since the rule said so */
    else
        app->policy.has_called = false;
    ruled.has &= may;
    app->policy.admin.has &= ~may;
    gm_engine_overlay(&app->policy.admin, &ruled);
    if (may & GM_SET_PAUSED)
        app->policy.is_paused_by_rule = gm_engine_says_pause(&ruled);
}

void gm_engine_unset_own(struct gm_app *app, uint32_t which)
{
    app->policy.own.has &= ~which;
}

void gm_engine_unset_admin(struct gm_app *app, uint32_t which)
{
    app->policy.admin.has &= ~which;
}

void gm_engine_unset_called(struct gm_app *app)
{
    if (gm_engine_says_until_call(&app->policy.admin) && app->policy.is_paused_by_rule)
        app->policy.has_called = true;
    if (gm_engine_says_until_call(&app->policy.admin))
        app->policy.admin.has &= ~(uint32_t)GM_SET_PAUSED;
    if (gm_engine_says_until_call(&app->policy.own))
        app->policy.own.has &= ~(uint32_t)GM_SET_PAUSED;
}

void gm_engine_set_again(struct gm_app *app, const struct gm_client_record *record)
{
    gm_client_settings_to(&app->policy.admin, &record->admin); /* the reader has checked them */
    gm_client_settings_to(&app->policy.own, &record->own);
    app->policy.said = record->said;
    app->policy.pauser = record->pauser;
    app->policy.is_paused_by_rule = record->is_paused_by_rule != 0;
}

/* ---- classes ---- */

/*
 * What the scheduler is told of a group: what holds of its members' settings. Owns
 * gm_app.policy.is_limited.
 */

static struct gm_sched_policy policy_of(const struct gm_app *app)
{
    const struct gm_settings all = gm_engine_settings_of(app);
    return (struct gm_sched_policy){
        .class = all.class, .is_paused = all.is_paused, .weight = all.weight, .share = all.share};
}

enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t id)
{
    return policy_of(&engine->apps[id]).class;
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
        all.class = class_rank(one.class) < class_rank(all.class) ? one.class : all.class;
        all.weight = one.weight > all.weight ? one.weight : all.weight;
        all.share = one.share < all.share ? one.share : all.share;
        all.is_paused = all.is_paused || one.is_paused;
    }
    return all;
}

struct gm_settings gm_engine_common_pause(const struct gm_engine *engine, uint32_t id)
{
    struct gm_settings all = {0};
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        if (client->engines[engine->config.index] != engine || !client->session)
            continue;
        const struct gm_settings one = gm_engine_settings_of(&engine->apps[client->id]);
        if (!one.is_paused)
            continue;
        all.is_until_call = one.is_until_call && (all.is_until_call || !all.is_paused);
        all.is_evicted = all.is_evicted || one.is_evicted;
        all.is_paused = true;
    }
    return all;
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

struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_policy policy = common_policy(engine, id);
    const struct gm_settings pause = gm_engine_common_pause(engine, id);
    engine->apps[id].policy.is_limited = policy.share < GM_SCHED_SHARE_ALL;
    tell_paused(engine, id, policy.is_paused && !pause.is_until_call);
    feed_policy(engine, id, &policy, pause.is_evicted);
    return policy;
}

/* Turns of 4, 8 and 16 s. A program drops after two: so 8 s of work tell one that works all the
 * time. */
#define LEVELS 3u
#define ALLOTMENT_SLICES 2u

uint32_t gm_engine_user_of(const struct gm_engine *engine, uint32_t id)
{
    return engine->config.is_fair_by_program ? 0 : (uint32_t)engine->apps[id].client->owner;
}

int gm_engine_open_sched(struct gm_engine *engine)
{
    const struct gm_engine_config *config = &engine->config;
    const struct gm_sched_config sched = {.max_apps = config->max_apps,
                                          .budget = engine->first_budget,
                                          .levels = LEVELS,
                                          .allotment_ns = ALLOTMENT_SLICES * config->slice_ns,
                                          .slice_ns = config->slice_ns,
                                          .patience_ns = config->patience_ns,
                                          .retry_ns = config->slice_ns};
    size_t size = gm_sched_size(&sched);
    engine->sched_memory = size ? calloc(1, size) : NULL;
    engine->units = calloc(config->max_apps, sizeof *engine->units);
    engine->set = calloc(2 * (size_t)config->max_apps, sizeof *engine->set);
    if (!engine->sched_memory || !engine->units || !engine->set)
        return size ? -ENOMEM : -EINVAL;
    engine->sched = gm_sched_init(engine->sched_memory, &sched);
    if (!engine->sched)
        return -EINVAL;
    gm_engine_emit(
        engine, &(struct gm_event){.kind = GM_EVENT_SCHED, .app = GM_NONE, .sched.config = &sched});
    engine->decision.wake_at = engine->decided.wake_at = GM_TIME_NEVER;
    return 0;
}

/* ---- the decision ---- */

/* The members of `n` units. Returns how many they are. */
static uint32_t name_all(const struct gm_engine *engine, const uint32_t *units, uint32_t n,
                         uint32_t *all)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += gm_group_name_all(engine, engine->units[units[i]].member, all + count);
    return count;
}

static void take_decision(struct gm_engine *engine)
{
    const struct gm_sched_decision *decided = &engine->decided;
    uint32_t *set = engine->set, *next = set + engine->config.max_apps;
    engine->decision =
        (struct gm_sched_decision){.set = set,
                                   .n_set = name_all(engine, decided->set, decided->n_set, set),
                                   .next = next,
                                   .n_next = name_all(engine, decided->next, decided->n_next, next),
                                   .wake_at = decided->wake_at};
    engine->decisions++;
    gm_engine_replan(engine);
    gm_engine_again(engine);
}

static void step(struct gm_engine *engine, const struct gm_sched_event *event)
{
    int fault = gm_sched_step(engine->sched, engine->now, event, &engine->decided);
    gm_engine_decides(engine);
    if (fault)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_FAULT,
                                                  .app = GM_NONE,
                                                  .fault = {.event = (int32_t)event->kind,
                                                            .unit = event->app,
                                                            .fault = fault}});
    else
        gm_engine_emit(engine, &(struct gm_event){
                                   .kind = GM_EVENT_INPUT, .app = GM_NONE, .input.event = event});
    take_decision(engine);
}

void gm_engine_decide(struct gm_engine *engine, uint32_t *set, uint32_t n)
{
    engine->decision = (struct gm_sched_decision){.set = set, .n_set = n, .wake_at = GM_TIME_NEVER};
}

/* ---- units ---- */

/* Its unit, which a new app by itself begins. */
static uint32_t join(struct gm_engine *engine, uint32_t id)
{
    const uint32_t other = gm_group_other_here(engine, id);
    uint32_t unit = other == GM_NONE ? id : engine->apps[other].unit;
    if (other == GM_NONE && engine->units[unit].is_used)
        for (unit = 0; engine->units[unit].is_used;) /* there are no more than apps */
            unit++;
    if (other == GM_NONE)
        engine->units[unit] = (struct gm_unit){.is_used = true, .member = id};
    engine->apps[id].unit = unit;
    engine->apps[id].is_wanting = false;
    return unit;
}

/* Tell what has changed of a unit of several. */
static void tell(struct gm_engine *engine, uint32_t number, uint64_t ago_ns)
{
    struct gm_unit *unit = &engine->units[number], now = *unit;
    struct gm_sched_event event = {.app = number};
    bool is_open, has_open;
    gm_group_sum(engine, unit->member, &now.bytes, &now.is_wanting, &is_open, &has_open);
    now.is_open = unit->is_open ? has_open : is_open && gm_engine_is_chosen(engine, unit->member);
    const struct gm_unit was = *unit;
    *unit = now;
    if (now.bytes != was.bytes) {
        event.kind = GM_SCHED_SIZE;
        event.bytes = now.bytes;
        step(engine, &event);
        event.bytes = 0;
    }
    if (now.is_wanting && !was.is_wanting) {
        event.kind = GM_SCHED_WANT;
        step(engine, &event);
    }
    if (now.is_open != was.is_open) {
        event.kind = now.is_open ? GM_SCHED_OPENED : GM_SCHED_CLOSED;
        step(engine, &event);
    }
    if (!now.is_wanting && was.is_wanting) {
        event.kind = GM_SCHED_IDLE;
        event.ago_ns = ago_ns;
        step(engine, &event);
    }
}

/* What a unit of one tells, should it have more members later. */
static void note(struct gm_unit *unit, const struct gm_sched_event *event)
{
    if (event->kind == GM_SCHED_WANT || event->kind == GM_SCHED_IDLE)
        unit->is_wanting = event->kind == GM_SCHED_WANT;
    if (event->kind == GM_SCHED_OPENED || event->kind == GM_SCHED_CLOSED)
        unit->is_open = event->kind == GM_SCHED_OPENED;
    if (event->kind == GM_SCHED_SIZE)
        unit->bytes = event->bytes;
    if (event->kind == GM_SCHED_LEAVE)
        unit->is_used = false;
}

static void feed(struct gm_engine *engine, struct gm_sched_event event)
{
    gm_engine_again(engine);
    gm_engine_replan(engine);
    if (engine->stopping.is_on)
        return; /* gm_engine_choose_saved decides */
    if (event.kind == GM_SCHED_TIMER || event.kind == GM_SCHED_ROOM) {
        step(engine, &event);
        return;
    }
    if (event.kind == GM_SCHED_WANT && engine->apps[event.app].is_stopped)
        return;
    const uint32_t id = event.app, other = gm_group_other_here(engine, id);
    event.app = event.kind == GM_SCHED_JOIN ? join(engine, id) : engine->apps[id].unit;
    struct gm_unit *unit = &engine->units[event.app];
    if (event.kind == GM_SCHED_JOIN)
        event.user = gm_engine_user_of(engine, id);
    if (event.kind == GM_SCHED_WANT || event.kind == GM_SCHED_IDLE)
        engine->apps[id].is_wanting = event.kind == GM_SCHED_WANT;
    /* It has come back and runs, though it has no turn: gm_engine_run_on. */
    if (other == GM_NONE && !unit->is_open &&
        (event.kind == GM_SCHED_CLOSED || event.kind == GM_SCHED_BUSY))
        return;
    if (other == GM_NONE) {
        note(unit, &event);
        step(engine, &event);
        return;
    }
    if (event.kind == GM_SCHED_LEAVE && unit->member == id)
        unit->member = other;
    tell(engine, event.app, event.ago_ns);
    if ((event.kind == GM_SCHED_BUSY && unit->is_open) || event.kind == GM_SCHED_HURRY)
        step(engine, &event);
    take_decision(engine); /* it names those who came and who left */
}

void gm_engine_feed(struct gm_engine *engine, enum gm_sched_event_kind kind, uint32_t app,
                    uint64_t bytes)
{
    feed(engine, (struct gm_sched_event){.kind = kind, .app = app, .bytes = bytes});
}

void gm_engine_feed_size(struct gm_engine *engine, uint32_t id)
{
    const bool is_room = !engine->apps[id].is_stopped; /* else what it keeps is none */
    gm_engine_feed(engine, GM_SCHED_SIZE, id, is_room ? gm_engine_size_of(engine, id) : 0);
}

void gm_engine_feed_return(struct gm_engine *engine, uint32_t app, uint32_t level,
                           uint64_t charged_ns)
{
    feed(engine, (struct gm_sched_event){.kind = GM_SCHED_JOIN,
                                         .app = app,
                                         .level = level > 0 ? level : 1,
                                         .charged_ns = charged_ns});
}

void gm_engine_feed_idle(struct gm_engine *engine, uint32_t app, uint64_t ago_ns)
{
    feed(engine, (struct gm_sched_event){.kind = GM_SCHED_IDLE, .app = app, .ago_ns = ago_ns});
}

/* Which unit takes the others: one that runs, so that nobody has to yield, or one that waits. */
static int rank_of(const struct gm_unit *unit)
{
    return unit->is_open ? 2 : unit->is_wanting;
}

static uint32_t best_unit(const struct gm_engine *engine, uint32_t id)
{
    uint32_t best = engine->apps[id].unit;
    for (GM_EACH_MEMBER(engine, id, client)) {
        const uint32_t unit = engine->apps[client->id].unit;
        if (rank_of(&engine->units[unit]) > rank_of(&engine->units[best]))
            best = unit;
    }
    return best;
}

/* Its members are of the unit `into` from now on. */
static void end_unit(struct gm_engine *engine, uint32_t number, uint32_t into)
{
    const struct gm_sched_event event = {.kind = GM_SCHED_LEAVE, .app = number};
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && engine->apps[id].unit == number)
            engine->apps[id].unit = into;
    engine->units[number].is_used = false;
    step(engine, &event);
}

bool gm_engine_join_units(struct gm_engine *engine, uint32_t id)
{
    bool has_joined = false;
    if (!gm_group_take_union(engine, id) || engine->stopping.is_on)
        return false;
    const uint32_t best = best_unit(engine, id);
    for (GM_EACH_MEMBER(engine, id, client)) {
        const uint32_t unit = engine->apps[client->id].unit;
        if (unit == best)
            continue;
        end_unit(engine, unit, best);
        has_joined = true;
    }
    if (has_joined) {
        gm_engine_again(engine);
        gm_engine_replan(engine);
        tell(engine, best, 0);
        take_decision(engine);
    }
    return has_joined;
}

void gm_engine_tie(struct gm_engine *engine, uint32_t id, bool is_tied)
{
    const uint32_t number = engine->apps[id].unit;
    const struct gm_sched_event event = {.kind = is_tied ? GM_SCHED_TIE : GM_SCHED_UNTIE,
                                         .app = number};
    if (engine->units[number].is_tied == is_tied || engine->stopping.is_on)
        return;
    engine->units[number].is_tied = is_tied;
    step(engine, &event);
}

bool gm_engine_is_ready(const struct gm_engine *engine, uint32_t id)
{
    const uint32_t number = engine->apps[id].unit;
    return engine->units[number].is_open || gm_sched_is_ready(engine->sched, number);
}

bool gm_engine_unit_wants(const struct gm_engine *engine, const struct gm_app *app)
{
    return engine->units[app->unit].is_wanting;
}

/* What holds for it and its group now; `is_evicted`: while they are paused, their memory is to
 * leave the GPU. */
static void feed_policy(struct gm_engine *engine, uint32_t id, const struct gm_sched_policy *said,
                        bool is_evicted)
{
    const uint32_t unit = engine->apps[id].unit;
    struct gm_sched_policy with = *said;
    const struct gm_sched_policy *policy = &with;
    with.is_paused = said->is_paused || engine->apps[id].is_part_stopped;
    engine->units[unit].is_paused = said->is_paused;
    engine->units[unit].is_evicted = is_evicted;
    int fault = gm_sched_set(engine->sched, engine->now, unit, policy, &engine->decided);
    if (fault)
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_FAULT,
                                          .app = id,
                                          .fault = {.event = -1, .unit = id, .fault = fault}});
    else
        gm_engine_emit(engine, &(struct gm_event){
                                   .kind = GM_EVENT_POLICY, .app = unit, .policy.policy = policy});
    take_decision(engine);
}

/* ---- who asks ---- */

bool gm_engine_is_chosen(const struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = 0; i < engine->decision.n_set; i++)
        if (engine->decision.set[i] == id)
            return true;
    return false;
}

bool gm_engine_account(const struct gm_engine *engine, uint32_t id,
                       struct gm_sched_account *account)
{
    if (!gm_sched_account(engine->sched, engine->now, engine->apps[id].unit, account))
        return false;
    account->policy.is_paused = engine->units[engine->apps[id].unit].is_paused;
    if (account->ahead < engine->config.max_apps)
        account->ahead = engine->units[account->ahead].member;
    return true;
}

uint64_t gm_engine_expected(const struct gm_engine *engine, uint32_t id)
{
    return gm_sched_expect(engine->sched, engine->now, engine->apps[id].unit);
}

bool gm_engine_is_later(const struct gm_engine *engine, uint32_t a, uint32_t b)
{
    return gm_sched_is_later(engine->sched, engine->now, engine->apps[a].unit,
                             engine->apps[b].unit);
}
