/*
 * The gates of programs, for the part that this GPU has in them: closing one and waiting for its
 * answer, opening it when all that its program has here is in place. A gate that is closed for
 * exchanges only is held: its program keeps its turn. Owns gm_app.gate and the sending of CLOSE and
 * RESUME. Called by run.c, places.c and deadlines.c; what follows for the scheduler, groups and
 * places is told from here.
 */
#include "daemon/engine/step/gates.h"

#include "daemon/engine/act/client.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/step/states.h"
#include "daemon/engine/step/switches.h"

static void resume(struct gm_engine *engine, uint32_t id)
{
    struct gm_client *client = engine->apps[id].client;
    const struct gm_msg_resume message = {.epoch = client->epoch};
    gm_client_park(client, false);
    gm_engine_say(engine, id, GM_MSG_RESUME, &message);
}

/* What the program has on this GPU is in place: if no other engine has its gate closed, it opens,
 * and work that was parked goes on. */
static void let(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.is_parked = false;
    if (gm_client_let(app->client, engine->config.index) && app->client->is_parked)
        resume(engine, id);
}

/* It parked for a CLOSE that nobody waits for any more: its process was stopped in between. If its
 * gate is open, it goes on. If the gate was closed again, it goes on when that opens, whatever it
 * answers (gm_client_answer). */
static void parked_late(struct gm_engine *engine, uint32_t id)
{
    if (engine->apps[id].client->shut == 0)
        resume(engine, id);
}

void gm_engine_open_gate(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    bool was_held = app->places.is_held;
    gm_engine_turn(engine, id, GM_APP_EV_LOADED);
    app->places.is_held = false;
    gm_engine_opened(engine, id);
    gm_engine_end_placing(engine, id, false);
    if (!was_held)
        gm_engine_record_switch(engine, id);
    gm_engine_begin_work(engine, id, !was_held);
    gm_group_opens(engine, id);
    let(engine, id);
    gm_engine_sample_soon(engine);
    if (!was_held)
        gm_engine_feed(engine, GM_SCHED_OPENED, id, 0);
}

void gm_engine_close_gate(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_msg_close close_msg = {.grace_ns = engine->grace_ns, .deadline_ns = GM_DRAIN_NS};

    gm_engine_turn(engine, id, GM_APP_EV_DROPPED);
    struct gm_client *client = app->client;
    const bool is_asked = gm_client_shut(client, engine->config.index);
    close_msg.epoch = app->gate.epoch = client->epoch;
    app->gate.closed_at = engine->now;
    if (is_asked)
        gm_engine_say(engine, id, GM_MSG_CLOSE, &close_msg);
    if (client->state != GM_CLIENT_CLOSING) { /* it has answered another engine */
        const struct gm_msg_drained drained = {.epoch = client->epoch,
                                               .status = client->state == GM_CLIENT_BUSY
                                                             ? GM_DRAIN_BUSY
                                                         : client->is_parked ? GM_DRAIN_PARKED
                                                                             : GM_DRAIN_QUIET};
        gm_engine_drained(engine, id, &drained);
    }
}

void gm_engine_run_on(struct gm_engine *engine, uint32_t id)
{
    gm_engine_opened(engine, id);
    gm_engine_begin_work(engine, id, true);
    gm_group_opens(engine, id);
    gm_engine_feed(engine, GM_SCHED_WANT, id, 0);
    if (gm_engine_is_chosen(engine, id)) /* else it has no turn, and its gate closes again */
        gm_engine_feed(engine, GM_SCHED_OPENED, id, 0);
    let(engine, id);
    gm_engine_sample_soon(engine);
}

void gm_engine_rest(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.epoch = app->client->epoch;
    app->gate.is_parked = app->client->is_parked;
}

static void hold(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (!gm_engine_is_chosen(engine, id))
        return;
    app->places.is_held = true;
    gm_engine_close_gate(engine, id);
}

void gm_engine_hold_gates(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_is_to_hold(engine, id))
            hold(engine, id);
}

void gm_engine_release(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_end_placing(engine, id, true);
    app->places.is_held = false;
    gm_engine_happened(engine, id, GM_EVENT_YIELDED);
    gm_engine_note_leaver(engine, id, false);
    gm_engine_feed(engine, GM_SCHED_CLOSED, id, 0);
    if (gm_group_is_several(engine, id)) /* it stands in line with its group */
        gm_engine_rests(engine, id);
    if (app->gate.is_parked)
        gm_engine_wants(engine, id); /* it has work, though no thread need wait at the gate */
}

void gm_engine_heard(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.answered_at = engine->now;
}

void gm_engine_awaits_anew(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.closed_at = app->gate.answered_at = engine->now;
}

/* What the app answered to CLOSE. */
void gm_engine_drained(struct gm_engine *engine, uint32_t id, const struct gm_msg_drained *drained)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_heard(engine, id); /* be it too late */
    if (app->state != GM_APP_DRAINING || drained->epoch != app->gate.epoch) {
        if (drained->status == GM_DRAIN_PARKED)
            parked_late(engine, id);
        return; /* an answer to a CLOSE that was given up */
    }
    bool is_for_places = app->places.is_held && gm_engine_is_chosen(engine, id);
    if (drained->status == GM_DRAIN_QUIET || drained->status == GM_DRAIN_PARKED) {
        app->gate.busy_reason = 0;
        const bool is_parked = drained->status == GM_DRAIN_PARKED;
        app->gate.is_parked = is_parked && gm_engine_may_have_work(engine, id);
        gm_engine_emit(engine, &(struct gm_event){
                                   .kind = GM_EVENT_DRAINED,
                                   .app = id,
                                   .drained = {.ns = drained->drain_ns, .is_parked = is_parked}});
        if (is_parked)
            gm_engine_happened(engine, id, GM_EVENT_PARKED);
        if (is_parked && !app->gate.is_parked)
            resume(engine, id); /* it was only late to say that it has no work */
        gm_engine_turn(engine, id, GM_APP_EV_QUIET);
        gm_engine_was_active(engine, id); /* it may only have waited for that */
        gm_engine_sample_soon(engine);
        if (is_for_places)
            return;
        if (app->places.is_held)
            gm_group_yield(engine, id);
        gm_engine_take_spares(engine, id, UINT64_MAX); /* their data is dead: it is not copied */
        gm_engine_release(engine, id);
        return;
    }
    if (app->places.is_held)
        gm_engine_hold_failed(engine, id);
    app->places.is_held = false;
    gm_engine_turn(engine, id, GM_APP_EV_BUSY);
    gm_group_opens(engine, id);
    let(engine, id);
    if (is_for_places)
        return; /* nobody else waited for it */
    app->gate.busy_reason = drained->reason;
    gm_engine_happened(engine, id, GM_EVENT_BUSY);
    gm_engine_feed(engine, GM_SCHED_BUSY, id, 0);
}
