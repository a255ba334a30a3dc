/*
 * What was said of programs. Owns gm_app.policy: admin, own, said, pauser, is_paused_by_rule and
 * has_called. Called by those who hear it: rules.c, wishes.c, set.c, tuning.c and pauses.c. Calls
 * common/settings.
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
#include "daemon/engine/step/settings.h"

#include <stdio.h>

#include "common/wishes.h"

static const struct gm_sched_policy nothing_said = {
    .class = GM_CLASS_AUTO, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};

unsigned gm_engine_class_rank(unsigned class)
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

    if ((said->has & GM_SET_CLASS) &&
        gm_engine_class_rank(said->class) < gm_engine_class_rank(best))
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
