/*
 * Who is paused, by whom, and until when. Called by run.c before each decision, by budget.c, and by
 * snapshot.c for status; calls policy.c, settings.c, rules.c and idle.c.
 *
 * An evicted program is paused, and its memory leaves the GPU (budget.c). Until its next call: when
 * a thread of its group waits for a turn, or parked work does, its pause ends. That is looked at
 * before each decision, whatever message told of it, so no call is missed.
 */
#include "daemon/engine/step/pauses.h"

#include <stdio.h>

#include "common/text.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/policy.h"
#include "daemon/engine/step/rules.h"

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
