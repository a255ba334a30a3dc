/*
 * Programs that stand still: stopped by a signal, frozen with their control group, held by a
 * debugger, or with an answer that is overdue for whatever reason. Owns the `stop` of clients, and
 * is_stopped of gm_app. Called by run.c at the beginning of a round, by deadlines.c, and when the
 * status is asked for.
 *
 * Only a program itself can unmap its memory, so one that stands still keeps what it has on the
 * GPU. The rest of it is as if it did not exist. The scheduler knows it as an app of no bytes that
 * wants nothing and may not run, beside a budget that is less by what it keeps (frames.c). So it is
 * charged nothing, whatever fits beside its memory runs, and nobody waits for its answer. Its gate
 * is closed: when it goes on, it answers what it was asked meanwhile, gives its turn back and asks
 * for the next one like anybody.
 *
 * A group stands still with any of its programs: the others are paused, and what they have can be
 * evicted.
 *
 * /proc is read, some files for each program, so a look is not for free. Programs that made a call
 * since the last look are not looked at, and few at a time (GM_STOP_LOOKS). Two looks in a row must
 * find the program standing still: strace stops one for a moment with every system call.
 */
#include "daemon/engine/step/stops.h"

#include "daemon/engine/act/device.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/policy.h"

/* Whether programs stand still is looked at so often, while one of them has a turn or waits.
 * Two looks must find it, and none is made of a program that worked since the one before: it is
 * known after 0.6 s at most. */
#define GM_STOP_LOOK_NS (200 * GM_MS)
/* Programs a look: A look at one takes some 50 us: three files in /proc and /sys. Of 256 that
 * do nothing each is looked at every 0.4 s. */
#define GM_STOP_LOOKS 128

/* What the engine whose client this is first finds; others hear of it. */
static bool is_ours(const struct gm_engine *engine, const struct gm_client *client)
{
    for (uint32_t i = 0; i < engine->config.index; i++)
        if (client->engines[i])
            return false;
    return true;
}

static void set_stop(struct gm_client *client, enum gm_why stop)
{
    if (client->stop == stop)
        return;
    client->stop = stop;
    for (const struct gm_client *member = gm_group_clients(client->group); member;
         member = member->next)
        for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
            if (member->engines[i])
                gm_engine_call(member->engines[i]);
}

/* Returns how many processes were looked at. */
static uint32_t look_at(const struct gm_engine *engine, const struct gm_app *app)
{
    struct gm_client *client = app->client;
    const uint64_t calls = gm_engine_calls(app);
    const bool has_called = calls != client->stop_calls;
    client->stop_calls = calls;
    const enum gm_why stop = has_called ? GM_WHY_NONE : gm_engine_ask_stop(engine, client->id);
    const bool is_again = stop != GM_WHY_NONE && client->stop_seen != GM_WHY_NONE;
    client->stop_seen = stop;
    set_stop(client, is_again ? stop : client->owes ? GM_WHY_SILENT : GM_WHY_NONE);
    return !has_called;
}

void gm_engine_note_owing(struct gm_engine *engine, uint32_t id, bool is_owing)
{
    struct gm_client *client = engine->apps[id].client;
    const uint32_t bit = 1u << engine->config.index;
    client->owes = is_owing ? client->owes | bit : client->owes & ~bit;
    if (client->owes && client->stop == GM_WHY_NONE)
        set_stop(client, GM_WHY_SILENT);
    if (!client->owes && client->stop == GM_WHY_SILENT)
        set_stop(client, GM_WHY_NONE);
}

/* It would be noticed if the app stood still: it has a turn, or is to have one. */
static bool is_concerned(const struct gm_app *app)
{
    return app->session && (app->state != GM_APP_PAUSED || !app->idle.is_idle ||
                            app->client->stop_seen != GM_WHY_NONE);
}

static bool is_anybody_concerned(const struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (is_concerned(&engine->apps[id]))
            return true;
    return false;
}

uint64_t gm_engine_stops_due(const struct gm_engine *engine)
{
    const bool is_looking = gm_engine_sees_stops(engine) && is_anybody_concerned(engine);
    return is_looking ? engine->stops.look_at : GM_TIME_NEVER;
}

/* Everybody, a part of them at a time if they are many. */
static void look(struct gm_engine *engine)
{
    uint32_t left = GM_STOP_LOOKS;
    for (uint32_t n = 0; n < engine->config.max_apps && left > 0; n++) {
        const uint32_t id = engine->stops.next;
        engine->stops.next = id + 1 < engine->config.max_apps ? id + 1 : 0;
        const struct gm_app *app = &engine->apps[id];
        if (!app->session || !is_ours(engine, app->client))
            continue;
        left -= look_at(engine, app);
    }
    engine->stops.look_at = engine->now + GM_STOP_LOOK_NS;
}

static void stop(struct gm_engine *engine, uint32_t id)
{
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_STOPPED,
                                              .app = id,
                                              .stopped.why = gm_engine_why_stopped(engine, id)});
    gm_engine_note_silence(engine, id, true);
    gm_engine_rests(engine, id);
    gm_engine_feed(engine, GM_SCHED_SIZE, id, 0);
}

static void go_on(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_happened(engine, id, GM_EVENT_CONTINUED);
    gm_engine_note_silence(engine, id, false);
    gm_engine_awaits_anew(engine, id);
    gm_engine_feed(engine, GM_SCHED_SIZE, id, gm_room_promised(engine->table, id));
    /* One with an open gate did not say that its work had ended. */
    if (app->state == GM_APP_PAUSED ? gm_engine_awaits_turn(app) : app->idle.quiet_at == 0)
        gm_engine_wants(engine, id);
}

/* What this engine does of what was found. */
static void follow(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const bool is_stopped = app->client->stop != GM_WHY_NONE;
    const bool is_part = gm_group_stopped(app->client->group) != NULL;
    if (is_part != app->is_part_stopped) {
        app->is_part_stopped = is_part;
        gm_engine_apply_policy(engine, id);
        if (!is_part && app->is_wanting) /* a group that stood still wanted nothing */
            gm_engine_feed(engine, GM_SCHED_WANT, id, 0);
    }
    if (is_stopped == app->is_stopped)
        return;
    app->is_stopped = is_stopped;
    is_stopped ? stop(engine, id) : go_on(engine, id);
}

void gm_engine_find_stops(struct gm_engine *engine)
{
    if (gm_engine_sees_stops(engine) && engine->now >= engine->stops.look_at)
        look(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session)
            follow(engine, id);
}

struct gm_reason gm_engine_why_stopped(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = engine->apps[id].client;
    return (struct gm_reason){
        .why = client->stop, .pid = client->pid, .held = gm_engine_held(engine, id)};
}

struct gm_reason gm_engine_why_lost(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = engine->apps[id].client;
    return (struct gm_reason){.why = client->is_cut ? GM_WHY_CUT : GM_WHY_LOST,
                              .for_ns = gm_less(engine->now, client->lost_at),
                              .pid = client->pid,
                              .held = gm_engine_held(engine, id)};
}
