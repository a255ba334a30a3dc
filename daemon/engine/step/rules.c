/*
 * What rules say of programs and of their users. Owns gm_app.cap.user_gpu and user_pinned, and
 * gm_app.policy.is_unsure. Called by wishes.c for new programs, by tuning.c for new rules, by
 * features.c, and by views of a setting; calls settings.c and caps.c. The rules themselves are the
 * service's (outlet).
 */
#include "daemon/engine/step/rules.h"

#include "common/wishes.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/step/caps.h"

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

bool gm_engine_take_rule(struct gm_engine *engine, uint32_t id, uint32_t may, char *text,
                         size_t size)
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

bool gm_engine_is_unsure(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_engine_outlet *outlet = &engine->config.outlet;
    return engine->config.rules && outlet->is_sure &&
           !outlet->is_sure(engine->config.rules, engine->apps[id].uid);
}

/* Of pinned memory, as of all of it, each GPU has its part. */
void gm_engine_take_totals(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_user_totals totals = {0};
    app->policy.is_unsure = gm_engine_is_unsure(engine, id);
    if (engine->config.rules && engine->config.outlet.totals)
        engine->config.outlet.totals(engine->config.rules, app->uid, &totals);
    app->cap.user_gpu = totals.gpu;
    const uint64_t part = totals.pinned / (engine->config.engines ? engine->config.engines : 1);
    app->cap.user_pinned = gm_chunk_floor(part);
    if (totals.pinned != 0 && app->cap.user_pinned == 0)
        app->cap.user_pinned = GM_CHUNK_MIN; /* 0 would be no limit */
}

void gm_engine_check_rule(struct gm_engine *engine, uint32_t id)
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
