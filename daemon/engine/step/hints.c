/*
 * Hints: EXPECT, and HOLD for the best-effort programs beside (core/hint). Owns of gm_app: hint,
 * hint_rate and holds_account.
 *
 * A hold lasts for milliseconds and ends by itself, in the program that is held. So the daemon
 * keeps no state of it, and a hold needs no end where the daemon is stopped or killed.
 */
#include "daemon/engine/step/hints.h"
#include "daemon/engine/step/policy.h"

#include "common/features.h"
#include "daemon/core/timeslice.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/say.h"

static bool may_hint(const struct gm_engine *engine, uint32_t id)
{
    return engine->config.latency_mode == GM_LATENCY_HINT && !engine->stopping.is_on &&
           engine->apps[id].state == GM_APP_RUNNING &&
           gm_timeslice_is_critical(gm_engine_class(engine, id));
}

bool gm_engine_can_hold(const struct gm_engine *engine, uint32_t id)
{
    return (atomic_load(&engine->apps[id].stat->features_off) & GM_FEATURE_PARK) == 0;
}

void gm_engine_send_hold(struct gm_engine *engine, uint32_t id, uint64_t for_ns)
{
    const struct gm_msg_hold message = {.for_ns = for_ns};
    gm_engine_say(engine, id, GM_MSG_HOLD, &message);
}

/* A program works for at least this percent of each second, whatever others announce. */
#define BEST_EFFORT_SHARE 30u

/* Programs are stopped one after the other, half a millisecond each. So who is idle is not held: a
 * request beside two such programs came half a millisecond later. */
static bool can_be_held(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].state == GM_APP_RUNNING && !engine->apps[id].idle.is_idle &&
           !gm_timeslice_is_critical(gm_engine_class(engine, id)) && gm_engine_can_hold(engine, id);
}

/* Hold whoever runs beside it. False: there is somebody, and nobody could be held. */
static bool hold_others(struct gm_engine *engine, const struct gm_hold *hint)
{
    bool is_anybody = false, is_held = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        struct gm_hold hold = *hint;
        if (!can_be_held(engine, id))
            continue;
        is_anybody = true;
        if (!gm_hold_grant(&app->hints.account, BEST_EFFORT_SHARE, &hold))
            continue;
        is_held = true;
        const uint64_t for_ns = hold.end - hold.begin;
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_HELD, .app = id, .held.for_ns = for_ns});
        gm_engine_send_hold(engine, id, for_ns);
    }
    return is_held || !is_anybody;
}

/* When a hint of it is to be followed. */
static uint64_t due_at(const struct gm_app *app)
{
    return app->hints.hint.end != 0 ? app->hints.hint.begin : GM_TIME_NEVER;
}

/* It is time for the hint of `id`. */
static void follow(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const bool is_followed = may_hint(engine, id) && hold_others(engine, &app->hints.hint);
    gm_engine_happened(engine, id, is_followed ? GM_EVENT_HINT : GM_EVENT_HINT_IGNORED);
    app->hints.hint.end = 0;
}

bool gm_engine_expect(struct gm_engine *engine, uint32_t id, const struct gm_msg_expect *expect)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_hold hint;
    if (!may_hint(engine, id) ||
        !gm_hint_take(&app->hints.rate, engine->now, expect->after_us, expect->for_us, &hint)) {
        gm_engine_happened(engine, id, GM_EVENT_HINT_IGNORED);
        return false;
    }
    if (app->hints.hint.end != 0) /* this one is newer */
        gm_engine_happened(engine, id, GM_EVENT_HINT_IGNORED);
    app->hints.hint = hint;
    gm_engine_follow_hints(engine);
    return app->hints.hint.end != 0;
}

void gm_engine_follow_hints(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->now >= due_at(&engine->apps[id]))
            follow(engine, id);
}

uint64_t gm_engine_hints_due(const struct gm_engine *engine)
{
    uint64_t at = GM_TIME_NEVER;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (due_at(&engine->apps[id]) < at)
            at = due_at(&engine->apps[id]);
    return at;
}
