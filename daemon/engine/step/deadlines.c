/*
 * Deadlines: answers that do not come, programs that make no progress, things to retry. Owns the
 * engine's alarm, and the time when the daemon last began to run again. Called by run.c; calls
 * the files whose time has come.
 *
 * A daemon that was stopped (Ctrl-Z, a debugger, a frozen machine) finds every deadline passed, and
 * the answers unread. It knows that by its alarm, which is long overdue. Then everybody has their
 * time again.
 */
#include "daemon/engine/step/deadlines.h"

#include "daemon/engine/act/events.h"
#include "daemon/engine/act/exits.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/budget.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/grants.h"
#include "daemon/engine/step/hints.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/layout.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/refusals.h"
#include "daemon/engine/step/saving.h"
#include "daemon/engine/step/stops.h"
#include "daemon/engine/step/turns.h"
#include "daemon/engine/step/windows.h"

/* A timer that comes so late means that the daemon did not run meanwhile. Its own rounds take
 * some 10 ms. */
#define GM_ASLEEP_NS (1 * GM_S)
/* The log names a program that has not come back this long after the daemon was restarted. One
 * that runs looks for the daemon once a second at least. */
#define GM_LOST_NS (5 * GM_S)

/* What can hold a loading app up beside the drain deadline: late answers and ending processes. */
#define HELD_UP_NS (GM_LATE_NS + GM_EXIT_NS)

/* Since when time counts that began at `at`. */
static uint64_t since(const struct gm_engine *engine, uint64_t at)
{
    return at > engine->awake_at ? at : engine->awake_at;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Since when an answer to what was sent to the app is awaited. It works through many, one after the
 * other. */
static uint64_t asked_at(const struct gm_engine *engine, const struct gm_app *app)
{
    const uint64_t sent_at = app->batches.sent->sent_at, answered_at = app->gate.answered_at;
    return since(engine, sent_at > answered_at ? sent_at : answered_at);
}

/* It gives its turn back at once. */
static bool lacks_disk(const struct gm_engine *engine, uint32_t id)
{
    return gm_engine_is_short_of_disk(engine, id) && !engine->apps[id].places.is_held &&
           !engine->stopping.is_on;
}

/* An app that loads but comes no nearer, because it is stopped itself or because nothing can be
 * evicted for it, gives its turn back, so that those which are whole can run. It asks again as its
 * threads wait. */
static void check_loading(struct gm_engine *engine, uint32_t id, bool is_held_up)
{
    struct gm_app *app = &engine->apps[id];
    if (gm_engine_app_retry_comes(engine, id))
        gm_engine_replan(engine);
    if (app->state != GM_APP_LOADING || engine->stopping.is_on)
        return;
    /* Others are being waited for, which ends in bounded time; once. */
    if (is_held_up &&
        engine->now < since(engine, app->chosen.begin.at) + GM_DRAIN_NS + HELD_UP_NS)
        gm_engine_progressed(engine, id);
    if (engine->table->apps[id].missing == 0 && engine->table->apps[id].leaving == 0 &&
        gm_group_is_several(engine, id))
        gm_engine_progressed(engine, id); /* it waits for its group */
    const bool has_failed = lacks_disk(engine, id) || (app->retry.at != 0 && !app->places.is_held);
    if (!engine->table->apps[id].is_silent && !has_failed &&
        engine->now < since(engine, app->progress_at) + GM_STALL_NS)
        return;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_GAVE_BACK,
                                      .app = id,
                                      .gave_back.is_silent = engine->table->apps[id].is_silent});
    gm_engine_progressed(engine, id);
    gm_engine_want_later(engine, id);
    gm_engine_sample_soon(engine);
    gm_engine_rests(engine, id);
}

/* When an answer of the app is overdue by the daemon's clock, whatever its own says; GM_TIME_NEVER:
 * it owes none. Who goes on and says so has its time again (gm_engine_awaits_anew). */
static uint64_t overdue_at(const struct gm_engine *engine, const struct gm_app *app)
{
    uint64_t at = GM_TIME_NEVER;
    if (app->state == GM_APP_DRAINING)
        at = since(engine, app->gate.closed_at) + GM_DRAIN_NS + GM_LATE_NS;
    if (app->batches.sent)
        at = earlier(at, asked_at(engine, app) + GM_LATE_NS);
    return at;
}

static void check_silence(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (app->session)
        gm_engine_note_owing(engine, id, engine->now >= overdue_at(engine, app));
    gm_engine_note_silence(engine, id, app->is_stopped || app->state == GM_APP_LOST);
}

/* When the log is to say that it has not come back; GM_TIME_NEVER: it has, or the log says so. */
static uint64_t lost_due(const struct gm_engine *engine, const struct gm_app *app)
{
    const bool is_due =
        app->state == GM_APP_LOST && app->client->lost_at != 0 && !app->is_lost_told;
    return is_due ? since(engine, app->client->lost_at) + GM_LOST_NS : GM_TIME_NEVER;
}

static void check_lost(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (engine->now < lost_due(engine, app))
        return;
    app->is_lost_told = true;
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_STAYS_LOST,
                                              .app = id,
                                              .stays_lost.why = gm_engine_why_lost(engine, id)});
}

/* Its answer to CLOSE is to come in time. */
static bool is_draining(const struct gm_app *app)
{
    return app->state == GM_APP_DRAINING && !app->is_stopped;
}

static bool awaits_exit(const struct gm_app *app)
{
    return app->state == GM_APP_GONE && app->exit.is_awaited && !app->exit.is_late;
}

/* The alarm is overdue in the first round after a sleep. */
static void notice_sleep(struct gm_engine *engine)
{
    if (engine->alarm_at == 0 || engine->now < engine->alarm_at + GM_ASLEEP_NS)
        return;
    const uint64_t ns = engine->now - engine->alarm_at;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_SLEPT, .app = GM_NONE, .slept.ns = ns});
    engine->awake_at = engine->now;
    gm_engine_put_off_end(engine, ns);
}

void gm_engine_check_deadlines(struct gm_engine *engine)
{
    notice_sleep(engine);
    bool is_held_up = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_UNUSED)
            continue;
        if (awaits_exit(app) && engine->now >= since(engine, app->exit.left_at) + GM_EXIT_NS)
            gm_engine_exit_late(engine, id);
        is_held_up = is_held_up || is_draining(app) || awaits_exit(app);
        check_silence(engine, id);
        check_lost(engine, id);
    }
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        check_loading(engine, id, is_held_up);
    gm_engine_check_budget(engine);
    for (unsigned retry = 0; retry < GM_RETRIES; retry++) {
        if (!gm_engine_retry_comes(engine, (enum gm_retry)retry))
            continue;
        gm_engine_replan(engine);
        if (retry == GM_RETRY_PINNED)
            gm_engine_want_memory(engine);
    }
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* One alarm for everything that time alone brings about. */
void gm_engine_set_alarm(struct gm_engine *engine)
{
    uint64_t at = engine->decision.wake_at;
    bool is_open = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->session && app->client->stop == GM_WHY_NONE)
            at = earlier(at, overdue_at(engine, app));
        if (awaits_exit(app))
            at = earlier(at, since(engine, app->exit.left_at) + GM_EXIT_NS);
        at = earlier(at, lost_due(engine, app));
        if (app->state == GM_APP_LOADING)
            at = lacks_disk(engine, id)
                     ? engine->now
                     : earlier(at, since(engine, app->progress_at) + GM_STALL_NS);
        if (app->state == GM_APP_RUNNING)
            is_open = true;
        at = earlier(at, gm_engine_placing_due(engine, id));
        at = earlier(at, gm_engine_window_due(engine, id));
        if (app->retry.at)
            at = earlier(at, app->retry.at);
        if (app->session)
            at = earlier(at, gm_group_due(engine, id));
        if (app->state == GM_APP_PAUSED && app->idle.want_at > engine->now &&
            gm_group_is_several(engine, id))
            at = earlier(at, app->idle.want_at);
        if (app->state == GM_APP_PAUSED && app->gate.is_parked && app->idle.want_at != 0)
            at = earlier(at, later(app->idle.want_at, engine->sample_at));
    }
    if (is_open)
        at = earlier(at, engine->sample_at);
    if (engine->reap_more || engine->create_more)
        at = engine->now;
    if (engine->stopping.is_on)
        at = earlier(at, gm_engine_saving_due(engine));
    at = earlier(at, gm_engine_refusals_due(engine));
    at = earlier(at, gm_engine_stops_due(engine));
    at = earlier(at, gm_engine_hints_due(engine));
    at = earlier(at, gm_engine_turn_due(engine));
    if (engine->waiting)
        at = earlier(at, engine->waiting_wake_at);
    for (unsigned retry = 0; retry < GM_RETRIES; retry++)
        if (engine->retries[retry].at)
            at = earlier(at, engine->retries[retry].at);
    if (engine->budget_check_at)
        at = earlier(at, engine->budget_check_at);
    at = earlier(at, gm_engine_give_back_at(engine));
    if (at <= engine->now) /* more of the same, after what came meanwhile */
        at = engine->now + GM_MS;
    if (engine->is_called)
        at = engine->now;
    engine->alarm_at = at != GM_TIME_NEVER ? at : 0;
    gm_engine_wake_at(engine, at);
}
