/*
 * Who stands still for a latency-critical program: timeslices, short turns, requests that are
 * announced.
 */
#include "daemon/engine/step/turns.h"

#include "common/features.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"

/* ---- requests that are announced ---- */

/*
 * Hints: EXPECT, and HOLD for the best-effort programs beside (core/hint). Owns of gm_app: hint,
 * hint_rate and holds_account.
 *
 * A hold lasts for milliseconds and ends by itself, in the program that is held. So the daemon
 * keeps no state of it, and a hold needs no end where the daemon is stopped or killed.
 */

static bool may_hint(const struct gm_engine *engine, uint32_t id)
{
    return engine->config.latency_mode == GM_LATENCY_HINT && !engine->stopping.is_on &&
           engine->apps[id].state == GM_APP_RUNNING &&
           gm_timeslice_is_critical(gm_engine_class(engine, id));
}

/* Whether the work of a running program can be made to stand still; and do so for `for_ns`. */
static bool can_hold(const struct gm_engine *engine, uint32_t id)
{
    return (atomic_load(&engine->apps[id].stat->features_off) & GM_FEATURE_PARK) == 0;
}

static void send_hold(struct gm_engine *engine, uint32_t id, uint64_t for_ns)
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
           !gm_timeslice_is_critical(gm_engine_class(engine, id)) && can_hold(engine, id);
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
        send_hold(engine, id, for_ns);
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

/* ---- timeslices ---- */

/*
 * Timeslices by class, user and weight (core/timeslice), and telling programs theirs, and whether
 * their requests are to be announced (gm_ctl.has_rhythm). Owns timeslice_us and part_us of
 * gm_app.policy, and the list of who runs. Called at the end of a round of the loop, when it is
 * known who runs and who is idle; there are rounds all the time while somebody works (gates.c).
 *
 * A program whose gate closes keeps its timeslice: it runs nothing, and is looked at again when it
 * does. If it runs on another GPU, what it had on this one counts no more there.
 */

/* Parts are divided anew so often: setting a timeslice takes the program 0.15 to 0.49 ms, and
 * who has work changes with each pause of 100 ms. */
#define GM_TIMESLICE_AGAIN_NS (1 * GM_S)

/* Of those that it has on the GPUs where it runs; 0: none. A program has one on all. */
static uint64_t shortest(const struct gm_app *app)
{
    uint64_t us = 0;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        const struct gm_engine *engine = app->client->engines[i];
        const struct gm_app *at = engine ? &engine->apps[app->client->id] : NULL;
        const uint64_t here = at && at->state == GM_APP_RUNNING ? at->policy.timeslice_us : 0;
        us = here != 0 && (us == 0 || here < us) ? here : us;
    }
    return us;
}

static void tell(struct gm_engine *engine, uint32_t id, uint64_t us)
{
    struct gm_app *app = &engine->apps[id];
    if (atomic_load(&app->stat->features_off) & GM_FEATURE_TIMESLICE)
        us = 0; /* it can have no other */
    app->policy.timeslice_us = us;
    us = shortest(app);
    const struct gm_msg_timeslice message = {.us = us};
    if (us == app->client->timeslice_us)
        return;
    app->client->timeslice_us = us;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_TIMESLICE, .app = id, .timeslice.us = us});
    gm_engine_say(engine, id, GM_MSG_TIMESLICE, &message);
}

/* Members of a group run together, and so does a program on several GPUs. */
static bool can_wait_for_turn(const struct gm_engine *engine, uint32_t id)
{
    return can_hold(engine, id) && !gm_group_is_several(engine, id);
}

static bool is_spread(const struct gm_app *app)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        n += app->client->engines[i] != NULL;
    return n > 1;
}

static struct gm_timeslice_app describe(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const uint32_t off = atomic_load(&app->stat->features_off);
    const bool is_off = engine->config.latency_mode == GM_LATENCY_OFF; /* nobody is critical */
    struct gm_sched_account account = {.level = 1, .policy.weight = GM_SCHED_WEIGHT};
    gm_engine_account(engine, id, &account);
    return (struct gm_timeslice_app){.id = id,
                                     .user = gm_engine_user_of(engine, id),
                                     .class = is_off ? GM_CLASS_BATCH : gm_engine_class(engine, id),
                                     .level = account.level,
                                     .run_ns = account.run_ns,
                                     .idle_ns = account.idle_ns,
                                     .burst_ns = account.burst_ns,
                                     .is_idle = app->idle.is_idle || app->idle.quiet_at != 0,
                                     .rests = app->idle.is_idle || app->is_stopped,
                                     .is_fixed = (off & GM_FEATURE_TIMESLICE) != 0,
                                     .is_joined = (off & GM_FEATURE_ISOLATION) != 0,
                                     .is_spread = is_spread(app),
                                     .weight = account.policy.weight,
                                     .can_be_held = can_wait_for_turn(engine, id),
                                     .part_us = app->policy.part_us};
}

static void share(struct gm_engine *engine, struct gm_timeslice_app *running, uint32_t n)
{
    if (engine->now < engine->parts_at)
        return;
    gm_timeslice_share(running, n);
    for (uint32_t i = 0; i < n; i++)
        engine->apps[running[i].id].policy.part_us = running[i].part_us;
    engine->parts_at = engine->now + GM_TIMESLICE_AGAIN_NS;
}

void gm_engine_tell_timeslices(struct gm_engine *engine)
{
    struct gm_timeslice_app *running = engine->running;
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state == GM_APP_RUNNING)
            running[n++] = describe(engine, id);
    engine->n_running = n;
    share(engine, running, n);
    engine->turns.are_on = gm_timeslice_assign(running, n);
    for (uint32_t i = 0; i < n; i++) {
        if (engine->config.latency_mode == GM_LATENCY_HINT)
            atomic_store(&engine->apps[running[i].id].ctl->has_rhythm,
                         gm_timeslice_is_critical(running[i].class));
        tell(engine, running[i].id, running[i].us);
    }
}

/* ---- short turns ---- */

/*
 * Short turns: while a latency-critical program runs beside several best-effort ones, one of these
 * works and the work of the others stands still (core/timeslice says when and who). All keep their
 * gates open and their memory on the GPU. Owns gm_engine.turns, and turn_at and held_until of
 * gm_app. Called at the end of a round of the loop, after the timeslices.
 *
 * A turn begins with a HOLD to everybody else. What a hint holds is held beside that. A program
 * whose turn it is may have no work: it is asked soon (gates.c), and its turn ends with its answer.
 * Who comes next is then told to go on, whatever it is held for.
 */

void gm_engine_take_turns(struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->n_running; i++) {
        struct gm_app *app = &engine->apps[engine->running[i].id];
        if (app->turn_at == 0)
            app->turn_at = engine->now;
        engine->running[i].turn_at = app->turn_at;
        engine->running[i].held_until = app->held_until;
    }
    if (gm_turns_step(&engine->turns, engine->running, engine->n_running, engine->now)) {
        struct gm_app *app = &engine->apps[engine->turns.whose];
        gm_engine_happened(engine, engine->turns.whose, GM_EVENT_SHORT_TURN);
        app->turn_at = engine->now;
        gm_engine_sample_soon(engine);
    }
    for (uint32_t i = 0; i < engine->n_running; i++) {
        const struct gm_timeslice_app *running = &engine->running[i];
        if (running->is_told)
            send_hold(engine, running->id, running->hold_ns);
        engine->apps[running->id].held_until = running->held_until;
    }
}

uint64_t gm_engine_turn_due(const struct gm_engine *engine)
{
    return engine->turns.until != 0 ? engine->turns.until : GM_TIME_NEVER;
}
