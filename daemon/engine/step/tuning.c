/*
 * What changes while the daemon runs: new rules, and the options that need no restart. Owns these
 * options. Called by step.c for TUNE, and by features.c; calls settings.c, rules.c, sizes.c and
 * policy.c.
 *
 * When the rules change, what they said of a program ends, and what they say now begins; but what
 * an administrator said of it stays, and so does how much memory it may have: it was given that.
 * What its user said ends where it may not say so any more.
 */
#include "daemon/engine/step/tuning.h"

#include "daemon/engine/act/events.h"
#include "daemon/engine/step/policy.h"
#include "daemon/engine/step/rules.h"
#include "daemon/engine/step/settings.h"
#include "daemon/engine/step/sizes.h"

#define GM_SET_RETAKEN (GM_SET_CLASS | GM_SET_WEIGHT | GM_SET_SHARE | GM_SET_PAUSED)

void gm_engine_take_part(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    char text[512];
    if (!app->client->wishes.has_part || app->policy.has_part)
        return;
    app->policy.has_part = true;
    gm_engine_take_rule(engine, id, GM_SET_RETAKEN, text, sizeof text);
    gm_engine_apply_policy(engine, id);
}

/* What rules say of its memory was the strictest that might hold until now. */
static void retake_memory(struct gm_engine *engine, uint32_t id)
{
    gm_engine_check_rule(engine, id);
    gm_engine_take_totals(engine, id);
    gm_engine_resize(engine, id);
    gm_engine_recap(engine, id);
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
        const bool is_news = app->policy.is_unsure && !gm_engine_is_unsure(engine, id);
        gm_engine_take_rule(engine, id,
                            GM_SET_RETAKEN | (is_news ? GM_SET_CAP | GM_SET_OVERSIZE : 0), text,
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
