/*
 * Goes round: decision -> app states -> moves -> gates (gm_engine_run, with which every event
 * ends). Owns in_set. Called by step.c; calls all files of the engine.
 */
#include "daemon/engine/step/run.h"

#include <stdio.h>
#include <string.h>

#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/ahead.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/apps.h"
#include "daemon/engine/step/budget.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/check.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/deadlines.h"
#include "daemon/engine/step/features.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/grants.h"
#include "daemon/engine/step/hints.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/layout.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/moves.h"
#include "daemon/engine/step/on_host.h"
#include "daemon/engine/step/pauses.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/refusals.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/saving.h"
#include "daemon/engine/step/states.h"
#include "daemon/engine/step/stops.h"
#include "daemon/engine/step/switches.h"
#include "daemon/engine/step/timeslices.h"
#include "daemon/engine/step/turns.h"
#include "daemon/engine/step/waiting.h"
#include "daemon/engine/step/windows.h"

/* A member of a group that is not open runs, as it came to this GPU in the middle of its work, and
 * is known not to drain now. So does an app that has come back from the daemon before. */
static bool is_busy_guest(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return !engine->units[app->unit].is_open && app->client->state == GM_CLIENT_BUSY;
}

/* It has come back and runs, and the scheduler does not know that: it had no turn. */
static bool is_turnless(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->state == GM_APP_RUNNING && !engine->units[app->unit].is_open &&
           !engine->stopping.is_on && gm_group_other_here(engine, id) == GM_NONE;
}

/* Move every app towards the decision. */
static void reconcile(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        enum gm_app_state state = engine->apps[id].state;
        if (!engine->apps[id].places.is_held || gm_engine_is_chosen(engine, id) ||
            (state != GM_APP_PAUSED && state != GM_APP_LOADING))
            continue;
        if (state == GM_APP_LOADING)
            gm_engine_turn(engine, id, GM_APP_EV_DROPPED);
        gm_group_yield(engine, id);
        gm_engine_release(engine, id);
    }
    memset(engine->in_set, 0, engine->config.max_apps * sizeof *engine->in_set);
    for (uint32_t i = 0; i < engine->decision.n_set; i++)
        engine->in_set[engine->decision.set[i]] = true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_PAUSED && engine->in_set[id]) {
            gm_engine_turn(engine, id, GM_APP_EV_CHOSEN);
            if (engine->table->apps[id].beyond > 0 || engine->table->apps[id].on_host > 0)
                gm_engine_want_places(engine, id);
            if (!app->places.is_held)
                gm_engine_begin_switch(engine, id);
            gm_engine_progressed(engine, id);
        } else if (app->state == GM_APP_LOADING && !engine->in_set[id]) {
            gm_group_dropped(engine, id);
            gm_engine_turn(engine, id, GM_APP_EV_DROPPED);
            gm_engine_end_placing(engine, id, true);
        } else if (is_turnless(engine, id) && engine->in_set[id]) {
            gm_engine_feed(engine, GM_SCHED_OPENED, id, 0); /* it is its turn now */
        } else if (app->state == GM_APP_RUNNING && !engine->in_set[id] &&
                   !is_busy_guest(engine, id)) {
            gm_group_yield(engine, id);
            gm_engine_close_gate(engine, id);
        }
    }
}

static void open_ready(struct gm_engine *engine)
{
    bool has_opened = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        /* One a round: opening asks the scheduler, whose set may be another then. */
        if (app->state == GM_APP_LOADING && engine->table->apps[id].missing == 0 && !has_opened &&
            !gm_engine_is_placing(engine, id) && gm_group_may_open(engine, id)) {
            gm_engine_open_gate(engine, id);
            has_opened = true;
        }
        if (app->state != GM_APP_RUNNING)
            gm_engine_call_off_ahead(engine, id);
        if (app->allocs.pending > 0)
            gm_engine_answer_allocs(engine, id);
    }
}

void gm_engine_run(struct gm_engine *engine)
{
    if (!gm_engine_begin_run(engine))
        return;
    gm_engine_pass(engine);
    if (engine->now >= engine->decision.wake_at)
        gm_engine_feed(engine, GM_SCHED_TIMER, 0, 0);
    gm_engine_find_stops(engine);
    gm_engine_follow_calls(engine);
    if (engine->now >= engine->sample_at)
        gm_engine_sample(engine);
    gm_engine_follow_windows(engine);
    gm_engine_follow_hints(engine);
    gm_engine_check_deadlines(engine);
    gm_engine_follow_host(engine);
    gm_engine_update_room(engine);
    gm_engine_reap(engine);
    gm_engine_count_users(engine);
    gm_engine_follow_caps(engine);
    gm_engine_begin_frames(engine);
    engine->rounds = 0;
    do {
        gm_engine_begin_round(engine);
        if (engine->stopping.is_on)
            gm_engine_choose_saved(engine);
        gm_engine_follow_groups(engine);
        reconcile(engine);
        gm_engine_bury(engine);
        gm_engine_admit_waiting(engine);
        gm_engine_try_failed(engine);
        gm_engine_place(engine);
        gm_engine_hold_gates(engine);
        if (gm_engine_is_plan_stale(engine))
            gm_engine_plan(engine);
        gm_engine_move(engine);
        gm_engine_follow_refusal(engine);
        gm_engine_map_on_host(engine);
        gm_engine_answer_refused(engine);
        gm_engine_make_units(engine);
        open_ready(engine);
    } while (engine->again && ++engine->rounds < GM_ROUNDS_MOST);
    if (engine->again)
        gm_engine_call(engine);              /* others of the loop come first */
    if (engine->plan_from == engine->plan.n) /* most are for chunks that overwrite them */
        gm_engine_clear_frames(engine);
    gm_engine_tell_timeslices(engine);
    gm_engine_take_turns(engine);
    gm_engine_tell_room(engine);
    gm_engine_note_levels(engine);
    gm_engine_note_places(engine);
    gm_engine_note_refusals(engine);
    gm_engine_note_features(engine);
    gm_engine_give_back(engine);
    gm_engine_flush(engine);
    gm_engine_set_alarm(engine);
    gm_engine_look_under_way(engine);
    gm_engine_follow_check(engine);
    gm_engine_end_run(engine);
    if (engine->stopping.is_over) {
        gm_engine_halt(engine);
        engine->stopping.on_saved(engine->stopping.arg);
    }
}