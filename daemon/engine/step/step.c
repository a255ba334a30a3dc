/*
 * Takes an event in, goes round until all follows from it, and sets the timer. After each part of
 * that what was posted is carried out, and what came of it is taken in before the next.
 */
#include "daemon/engine/step/step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/apps.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/budget.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/layout.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/moves.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/turns.h"
#include "daemon/engine/step/waiting.h"
#include "daemon/engine/step/windows.h"
#include "daemon/memory/kept.h"

/* ---- answers ---- */

/*
 * What follows from the answers to batches: chunks settle, allocations that could not be mapped
 * are refused, places of shared memory are open or shut.
 */

/* Whether nobody waits for any of it. */
static bool is_all_ahead(const struct gm_engine *engine, const struct gm_batch *batch)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t at = engine->table->chunks[batch->items[i]].allocation;
        const struct gm_allocation *allocation = &engine->table->allocations[at];
        if (!allocation->is_ahead || !allocation->is_pending)
            return false;
    }
    return true;
}

static void map_failed(struct gm_engine *engine, uint32_t id, struct gm_batch *batch)
{
    struct gm_app *app = &engine->apps[id];
    if (!is_all_ahead(engine, batch))
        gm_engine_back_off_app(engine, id);
    app->moves.raise_error = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[batch->items[i]];
        const uint32_t at = chunk->allocation;
        gm_table_end_map(engine->table, batch->items[i], true);
        if ((app->state == GM_APP_RUNNING || app->places.is_held) &&
            engine->table->allocations[at].is_pending) {
            if (!engine->table->allocations[at].is_ahead)
                gm_engine_refused(engine, id, engine->table->allocations[at].bytes, GM_WHY_MAP);
            gm_engine_answer_alloc(engine, at, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
}

static void take(struct gm_engine *engine, uint32_t id, struct gm_batch *batch, int32_t result)
{
    if (batch->kind == GM_BATCH_MAP && result != 0)
        map_failed(engine, id, batch);
    else if (batch->kind == GM_BATCH_MAP)
        gm_engine_app_went_well(engine, id);
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t item = batch->items[i];
        if (batch->kind == GM_BATCH_DROP) {
            gm_table_end_drop(engine->table, item, id, true);
        } else {
            gm_table_end_map(engine->table, item, false);
            gm_engine_settle(engine, item);
        }
    }
    if (engine->table->first_condemned != GM_NONE)
        gm_engine_reap(engine);
}

static void batch_done(struct gm_engine *engine, uint32_t id, uint64_t number, int32_t result)
{
    struct gm_batch *batch = gm_engine_take_answer(engine, id, number, result);
    if (!batch)
        return;
    gm_engine_heard(engine, id);
    if (batch->kind == GM_BATCH_STRAY)
        gm_engine_stray_done(engine, id);
    else if (batch->open)
        gm_engine_places_done(engine, batch, result);
    else
        take(engine, id, batch, result);
    free(batch);
}

/* ---- the timer ---- */

/*
 * Deadlines: answers that do not come, programs that make no progress, things to retry. Owns the
 * engine's alarm, and the time when the daemon last began to run again.
 *
 * A daemon that was stopped (Ctrl-Z, a debugger, a frozen machine) finds every deadline passed,
 * and the answers unread. It knows that by its alarm, which is long overdue. Then everybody has
 * their time again.
 */

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
    if (is_held_up && engine->now < since(engine, app->chosen.begin.at) + GM_DRAIN_NS + HELD_UP_NS)
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
 * it owes none. Who goes on and says so has its time again (awaits_anew). */
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

/* When who cannot come back is left like any other: its process may run on as another program.
 * GM_TIME_NEVER: it can. */
static uint64_t cut_due(const struct gm_engine *engine, const struct gm_app *app)
{
    const bool is_cut = app->state == GM_APP_LOST && app->client->is_cut;
    return is_cut ? since(engine, app->client->lost_at) + GM_EXIT_NS : GM_TIME_NEVER;
}

static void check_deadlines(struct gm_engine *engine)
{
    notice_sleep(engine);
    bool is_held_up = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_UNUSED)
            continue;
        if (awaits_exit(app) && engine->now >= since(engine, app->exit.left_at) + GM_EXIT_NS)
            gm_engine_exit_late(engine, id);
        if (engine->now >= cut_due(engine, app))
            gm_engine_give_up_app(engine, id, false);
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

/* One alarm for everything that time alone brings about. */
static void set_alarm(struct gm_engine *engine)
{
    uint64_t at = engine->decision.wake_at;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->session && app->client->stop == GM_WHY_NONE)
            at = earlier(at, overdue_at(engine, app));
        if (awaits_exit(app))
            at = earlier(at, since(engine, app->exit.left_at) + GM_EXIT_NS);
        at = earlier(at, lost_due(engine, app));
        at = earlier(at, cut_due(engine, app));
        if (app->state == GM_APP_LOADING)
            at = lacks_disk(engine, id)
                     ? engine->now
                     : earlier(at, since(engine, app->progress_at) + GM_STALL_NS);
        if (app->state == GM_APP_RUNNING || app->state == GM_APP_PAUSED)
            at = earlier(at, engine->sample_at);
        at = earlier(at, gm_engine_placing_due(engine, id));
        at = earlier(at, gm_engine_window_due(engine, id));
        if (app->retry.at)
            at = earlier(at, app->retry.at);
        if (app->session)
            at = earlier(at, gm_group_due(engine, id));
        if (app->state == GM_APP_PAUSED && app->idle.want_at > engine->now &&
            gm_group_is_several(engine, id))
            at = earlier(at, app->idle.want_at);
    }
    if (engine->reap_more || engine->create_more)
        at = engine->now;
    if (engine->stopping.is_on)
        at = earlier(at, gm_engine_saving_due(engine));
    at = earlier(at, gm_engine_refusals_due(engine));
    at = earlier(at, gm_engine_stops_due(engine));
    at = earlier(at, gm_engine_hints_due(engine));
    at = earlier(at, gm_engine_link_due(engine));
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

/* ---- a run ---- */

/*
 * Goes round: decision -> app states -> moves -> gates, with which every event ends. Owns
 * in_set.
 */

/* A member of a group that is not open runs, as it came to this GPU in the middle of its work, and
 * is known not to drain now. So does an app that has come back from the daemon before. */
static bool is_busy_guest(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return !engine->units[app->unit].is_open && app->client->state == GM_CLIENT_BUSY;
}

/* It has come back and runs with its group, and the scheduler does not know that: it had no turn.
 */
static bool is_turnless(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    uint64_t bytes;
    bool is_wanting, is_open = false, has_open;
    if (app->state == GM_APP_RUNNING && !engine->units[app->unit].is_open)
        gm_group_sum(engine, id, &bytes, &is_wanting, &is_open, &has_open);
    return is_open && !engine->stopping.is_on;
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

/* The first part: what the time brings about, and what is asked of the machine. */
static void begin(struct gm_engine *engine)
{
    gm_engine_pass(engine);
    if (engine->now >= engine->decision.wake_at)
        gm_engine_feed(engine, GM_SCHED_TIMER, 0, 0);
    gm_engine_find_stops(engine);
    gm_engine_follow_calls(engine);
    if (engine->now >= engine->sample_at)
        gm_engine_sample(engine);
    gm_engine_follow_windows(engine);
    gm_engine_prepare_trials(engine);
    gm_engine_follow_hints(engine);
    check_deadlines(engine);
}

/* The second part: with the answers, and before anything is decided. */
static void follow(struct gm_engine *engine)
{
    gm_engine_follow_stops(engine);
    gm_engine_follow_host(engine);
    gm_engine_update_room(engine);
    gm_engine_reap(engine);
    gm_engine_count_users(engine);
    gm_engine_follow_caps(engine);
    gm_engine_begin_frames(engine);
    engine->rounds = 0;
    gm_engine_again(engine);
}

static void go_round(struct gm_engine *engine)
{
    gm_engine_begin_round(engine);
    engine->rounds++;
    if (engine->stopping.is_on)
        gm_engine_choose_saved(engine);
    gm_engine_follow_groups(engine);
    reconcile(engine);
    gm_engine_bury(engine);
    gm_engine_admit_waiting(engine);
    gm_engine_try_failed(engine);
    gm_engine_place(engine);
    gm_engine_hold_gates(engine);
    gm_engine_keep_link(engine);
    if (gm_engine_is_plan_stale(engine))
        gm_engine_plan(engine);
    gm_engine_move(engine);
    gm_engine_map_on_host(engine);
    gm_engine_answer_refused(engine);
    gm_engine_make_units(engine);
    open_ready(engine);
}

/* The last part. */
static void finish(struct gm_engine *engine)
{
    gm_engine_leave_made(engine);
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
    gm_engine_look_under_way(engine);
    gm_engine_follow_check(engine);
    set_alarm(engine);
}

/* What came of the actions that were carried out. */
static void take_results(struct gm_engine *engine)
{
    for (const struct gm_action *action = engine->carried.first; action; action = action->next)
        switch (action->kind) {
        case GM_ACTION_EVENT:
        case GM_ACTION_SEND:
        case GM_ACTION_END:
        case GM_ACTION_CLEAR:
        case GM_ACTION_COPY_BELOW:
        case GM_ACTION_HASH:
        case GM_ACTION_GATE:
        case GM_ACTION_UNPARK:
        case GM_ACTION_DROP_CLIENT:
        case GM_ACTION_METER:
            break;
        case GM_ACTION_TRIM:
            gm_engine_trimmed(engine, action->trim.trimmed, action->trim.leaving,
                              action->trim.asker, action->trim.is_all);
            break;
        case GM_ACTION_READ_WINDOW:
            gm_engine_take_window(engine, action->window.app, action->window.before,
                                  action->window.is_whole, action->window.uses, action->window.n);
            break;
        case GM_ACTION_COPY:
            if (action->copy.way == GM_WAY_OUT && !action->copy.is_refused)
                gm_engine_copying_out(engine, action->copy.chunk, action->copy.number);
            break;
        case GM_ACTION_CREATE:
            gm_engine_created(engine, action->create.frame, action->create.chunk,
                              &action->create.made);
            break;
        case GM_ACTION_ADOPT:
            gm_engine_adopted(engine, action->adopt.frame, action->adopt.chunk,
                              &action->adopt.made);
            break;
        case GM_ACTION_DESTROY:
            gm_engine_destroyed(engine, action->destroy.frame, action->destroy.is_kept);
            break;
        case GM_ACTION_AHEAD:
            gm_engine_admit_made(engine, action->ahead.app, &action->ahead.alloc);
            break;
        case GM_ACTION_ASK_DEVICE:
            engine->seen = action->device;
            gm_engine_follow_budget(engine, GM_WHY_NONE);
            break;
        case GM_ACTION_ASK_STOP:
            gm_engine_found_stop(engine, action->stop.app, action->stop.why);
            break;
        }
    gm_engine_carried(engine);
    gm_engine_follow_refusal(engine); /* of a frame */
}

bool gm_engine_go_on(struct gm_engine *engine)
{
    take_results(engine);
    switch (engine->stage) {
    case GM_STAGE_NONE:
        break;
    case GM_STAGE_BEGIN:
        begin(engine);
        engine->stage = GM_STAGE_FOLLOW;
        break;
    case GM_STAGE_FOLLOW:
        follow(engine);
        engine->stage = GM_STAGE_ROUND;
        break;
    case GM_STAGE_ROUND:
        if (engine->again && engine->rounds < GM_ROUNDS_MOST) {
            go_round(engine);
            break;
        }
        finish(engine);
        gm_engine_begin_round(engine);
        engine->stage = GM_STAGE_END;
        break;
    case GM_STAGE_END:
        if (engine->again)
            gm_engine_call(engine); /* something came of the last part */
        gm_engine_end_run(engine);
        engine->stage = GM_STAGE_NONE;
        break;
    }
    return engine->stage != GM_STAGE_NONE || engine->posted.first || engine->wants.has_pinned ||
           engine->wants.has_paged;
}

/* ---- one step ---- */

/*
 * The one entry: what each event changes.
 */

/* False: nothing has changed that anything else follows from. */
static bool take_message(struct gm_engine *engine, const struct gm_input *input)
{
    const struct gm_wire_message *message = input->message;
    const uint32_t id = input->app;
    const struct gm_msg_done *done = message->body;
    switch (message->type) {
    case GM_MSG_ALLOC:
        gm_engine_asked(engine, id, message->body);
        break;
    case GM_MSG_FREE:
        gm_engine_frees(engine, id, message->body);
        break;
    case GM_MSG_WANT:
        if (engine->apps[id].state == GM_APP_LOST)
            break; /* its threads are looked at when it may run */
        gm_engine_wants(engine, id);
        if (((const struct gm_msg_want *)message->body)->is_hurried != 0)
            gm_engine_feed(engine, GM_SCHED_HURRY, id, 0);
        break;
    case GM_MSG_DRAINED:
        gm_engine_drained(engine, id, message->body);
        break;
    case GM_MSG_DONE:
        batch_done(engine, id, done->batch, done->result);
        break;
    case GM_MSG_QUIET:
        gm_engine_quiet(engine, id, message->body);
        break;
    case GM_MSG_EXPECT:
        return gm_engine_expect(engine, id, message->body);
    case GM_MSG_SHARE:
        gm_engine_share(engine, id, message->body, input->nonce);
        break;
    case GM_MSG_OPEN:
        gm_engine_open_share(engine, id, message->body);
        gm_engine_gather_groups(engine);
        break;
    case GM_MSG_SHUT:
        gm_engine_shut(engine, id, message->body);
        break;
    default:
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "a message out of place");
        break;
    }
    return true;
}

static int join(struct gm_engine *engine, struct gm_client *client)
{
    if (engine->stopping.is_on)
        return -ESHUTDOWN;
    gm_engine_follow_budget(engine, GM_WHY_NONE);
    const int error = gm_engine_add_app(engine, client);
    if (error == 0) {
        gm_engine_unite_kin(engine, client->id);
        gm_engine_gather_groups(engine);
    }
    return error;
}

/* Nothing that the daemon copies from now on can be trusted any more. Without a keeper running
 * programs keep their memory without the daemon, and the others are told. */
static void lose_gpu(struct gm_engine *engine, const char *error)
{
    char text[128];
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_LOST, .app = GM_NONE, .lost.error = error});
    snprintf(text, sizeof text, "the daemon has lost the GPU (%s)", error);
    gm_engine_halt(engine);
    if (gm_kept_is_connected(engine->config.kept))
        return; /* nothing is lost: the next daemon takes all over */
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session)
            continue;
        gm_engine_cut_off(engine, id, GM_REFUSE_STOPPING, text);
        gm_engine_happened(engine, id, GM_EVENT_CUT_OFF);
    }
}

bool gm_engine_needs_device(const struct gm_input *input)
{
    const struct gm_wire_message *message = input->kind == GM_INPUT_MESSAGE ? input->message : NULL;
    switch (input->kind) {
    case GM_INPUT_DEVICE:
    case GM_INPUT_REFRESH:
    case GM_INPUT_JOIN:
    case GM_INPUT_SAVE:
    case GM_INPUT_AWAITED:
        return true;
    default:
        return message && message->type == GM_MSG_ALLOC &&
               (((const struct gm_msg_alloc *)message->body)->flags & GM_ALLOC_AHEAD) != 0;
    }
}

int gm_engine_step(struct gm_engine *engine, uint64_t now, const struct gm_input *input)
{
    const uint64_t budget = engine->table->budget;
    bool is_over = false;
    int error = 0;
    gm_engine_set_time(engine, now);
    engine->seen = input->device;
    gm_engine_gather_groups(engine);
    switch (input->kind) {
    case GM_INPUT_TIME:
        break;
    case GM_INPUT_DEVICE:
    case GM_INPUT_REFRESH: /* nobody may have looked since the last app left */
        gm_engine_follow_budget(engine, GM_WHY_NONE);
        is_over = input->kind == GM_INPUT_DEVICE && engine->table->budget == budget;
        break;
    case GM_INPUT_JOIN:
        error = join(engine, input->client);
        break;
    case GM_INPUT_MESSAGE:
        is_over = !take_message(engine, input);
        break;
    case GM_INPUT_IMPORTED:
        gm_engine_unite(engine, input->app, input->client);
        gm_engine_gather_groups(engine);
        break;
    case GM_INPUT_LEFT:
        gm_engine_app_left(engine, input->app, input->has_hung_up);
        break;
    case GM_INPUT_EXITED:
        gm_engine_exited(engine, input->app);
        break;
    case GM_INPUT_CLOSED:
        gm_engine_copies_ended(engine, input->app);
        break;
    case GM_INPUT_COPIES:
        gm_engine_take_copies(engine, input->copies.ended, input->copies.n);
        break;
    case GM_INPUT_HOST_COPIED:
        gm_engine_copied_host(engine, input->host_copied.chunk, input->host_copied.error);
        break;
    case GM_INPUT_HASHES:
        gm_engine_take_hashes(engine, input->hashes.ended, input->hashes.n);
        break;
    case GM_INPUT_LINK:
        gm_engine_take_sample_in(engine, input->link.sample, input->link.why_none);
        break;
    case GM_INPUT_PINNED:
        gm_engine_pinned_grew(engine, input->error);
        break;
    case GM_INPUT_LOST:
        lose_gpu(engine, input->error);
        break;
    case GM_INPUT_SET:
        error = gm_engine_apply_set(engine, input->set.request, input->set.done, input->set.why,
                                    input->set.why_size);
        break;
    case GM_INPUT_TUNE:
        gm_engine_take_tuning(engine, input->tuning);
        break;
    case GM_INPUT_TRIM:
        gm_engine_trim_memory(engine, input->trim.asker, input->trim.is_admin, input->trim.trimmed);
        break;
    case GM_INPUT_SAVE:
        gm_engine_begin_saving(engine, input->save.on_saved, input->save.arg);
        break;
    case GM_INPUT_AWAIT:
        error = gm_engine_await_app(engine, input->await.client, input->await.record);
        break;
    case GM_INPUT_AWAITED:
        error = gm_engine_give_up_rest(engine);
        gm_engine_leave_again(engine);
        gm_engine_follow_budget(engine, GM_WHY_NONE); /* from now on: nobody may join */
        gm_engine_promise_lost(engine);
        break;
    case GM_INPUT_RETURN:
        gm_engine_app_returns(engine, input->app, input->back);
        gm_engine_unite_owners(engine, input->app);
        gm_engine_unite_kin(engine, input->app);
        gm_engine_gather_groups(engine);
        break;
    case GM_INPUT_GIVE_UP:
        gm_engine_give_up_app(engine, input->app, input->is_over);
        break;
    }
    if (error == 0 && !is_over && gm_engine_begin_run(engine))
        engine->stage = GM_STAGE_BEGIN;
    return error;
}
