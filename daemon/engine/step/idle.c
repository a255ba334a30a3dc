/*
 * Idleness. Owns the samples of each app's shared words and the QUERYs under way. Called by
 * run.c, step.c and gates.c; tells feed.c.
 *
 * Work is what the GPU has to do. An app with an open gate is idle if for --idle it submitted
 * nothing, no submission is under way, and its earlier work has ended. The shared words tell the
 * first two. For the third the app is asked (QUERY) after half of that time, and answers (QUIET)
 * when its work has ended; --idle counts from there, if it had some. Until then it counts as busy
 * and is charged. So does a program that never answers: its turn ends with its slice. Calls that
 * wait for the GPU, or ask about it, say nothing: a program that polls is idle.
 *
 * Who has a short turn (turns.c) is asked sooner: others stand still for it.
 *
 * While others wait, an app is asked again and again, also if it submits all the time. If it does,
 * and hardly any answer tells of work (GM_UNUSED_LOOKS), it hardly uses the GPU: an empty kernel
 * now and then. Then its turn is over, and charged as a whole.
 *
 * An app has one QUERY at a time. A CLOSE cancels it. If the app submits something meanwhile, the
 * answer says nothing of that. An idle app is not asked again before it submits something.
 *
 * A paused app is quiet. It is idle if for --idle no call returned, none is under way and none
 * waits at the gate. It needs no turn before it sends WANT, so no memory is moved for a program
 * that was paused at the very end of its work.
 */
#include "daemon/engine/step/idle.h"

#include "daemon/engine/act/events.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/reclaim.h"

/* Who has a turn and does nothing for so long is asked whether it has work. A program that
 * called the driver every 10 to 100 ms, for next to nothing, took half of another one's time;
 * with this a tenth (on simcuda). */
#define GM_TURN_LOOK_NS (5 * GM_MS)
/* A program that could not tell whether it is idle is asked again after --idle, then after
 * twice as long, up to this. */
#define GM_ASK_MOST_NS (1 * GM_S)
/* Submissions from look to look: A look does not find work that ends within 1 ms. So many calls
 * kept the GPU for a quarter of the time at the very most. A program that submits more is at
 * work: thousands of small kernels, each waited for. */
#define GM_UNUSED_CALLS 3
/* Looks: While --idle passes: what a program does is known as exactly. */
#define GM_IDLE_LOOKS 4
/* Times --idle: While nobody is busy, the next look is so far away: beginning to work is
 * noticed that late, which costs nobody anything, as the gate is open. Not so for one whose
 * share is limited. */
#define GM_IDLE_REST 3

/* Threads take the lowest free slot, so nobody is in use behind so many that never were. */
#define SLOT_GROUP 64u

static bool look_at(const struct gm_slot *slot, uint64_t *calls)
{
    uint64_t returned = atomic_load_explicit(&slot->calls, memory_order_relaxed);
    bool is_inside = atomic_load_explicit(&slot->inside, memory_order_relaxed);
    *calls += returned;
    return is_inside;
}

static bool awaits_memory(const struct gm_app *app)
{
    return app->allocs.pending > app->allocs.ahead || app->allocs.waiting > 0;
}

/* Whether the app's threads submitted something since the last sample, from their words in shared
 * memory; and how many such calls have returned by now. A thread in a submission or in an
 * allocation is doing something however long it takes. */
static bool look(const struct gm_app *app, uint64_t *calls)
{
    uint64_t before;
    *calls = 0;
    bool is_inside = look_at(&app->stat->slot[GM_SLOTS - 1], calls), is_used = true;
    for (uint32_t first = 0; first < GM_SLOTS - 1 && is_used; first += SLOT_GROUP) {
        before = *calls;
        is_used = false;
        for (uint32_t i = first; i < first + SLOT_GROUP && i < GM_SLOTS - 1; i++)
            is_used = look_at(&app->stat->slot[i], calls) || is_used;
        is_inside = is_inside || is_used;
        is_used = is_used || *calls != before;
    }
    return *calls != app->idle.calls || is_inside || awaits_memory(app);
}

uint64_t gm_engine_calls(const struct gm_app *app)
{
    uint64_t calls;
    look(app, &calls);
    return calls;
}

bool gm_engine_awaits_turn(const struct gm_app *app)
{
    return atomic_load(&app->stat->waiting) > 0 || app->gate.is_parked || awaits_memory(app);
}

/* A sample: the next one tells what was done since this one. */
static bool is_active(struct gm_app *app)
{
    uint64_t calls;
    const bool is = look(app, &calls);
    app->idle.calls = calls;
    return is;
}

bool gm_engine_may_have_work(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    uint64_t calls;
    return !app->idle.is_idle || app->idle.quiet_at == 0 || look(app, &calls);
}

static void note_active(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->idle.active_at = engine->now;
    app->idle.quiet_at = 0;
    app->idle.ask_at = app->idle.ask_wait = 0;
    if (app->idle.is_idle)
        gm_engine_feed(engine, GM_SCHED_WANT, id, 0);
    app->idle.is_idle = false;
}

void gm_engine_was_active(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].idle.active_at = engine->now;
}

void gm_engine_begin_work(struct gm_engine *engine, uint32_t id, bool is_turn)
{
    struct gm_app *app = &engine->apps[id];
    app->idle.active_at = engine->now;
    app->idle.quiet_at = 0;
    app->idle.n_unused = 0;
    app->idle.is_idle = app->idle.is_idle && !is_turn;
}

void gm_engine_begin_idle(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].idle.is_idle = true;
}

void gm_engine_want_later(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].idle.want_at = engine->now + GM_WANT_AGAIN_NS;
}

void gm_engine_stand_in_line(struct gm_engine *engine, uint32_t id, bool is_wanting)
{
    struct gm_app *app = &engine->apps[id];
    app->idle.is_idle = !is_wanting;
    if (is_wanting)
        app->idle.active_at = engine->now;
    gm_engine_feed(engine, is_wanting ? GM_SCHED_WANT : GM_SCHED_IDLE, id, 0);
}

void gm_engine_wants(struct gm_engine *engine, uint32_t id)
{
    if (engine->apps[id].is_stopped || gm_group_wants(engine, id))
        return;                           /* when it goes on, its threads are looked at */
    engine->apps[id].idle.is_idle = true; /* it may have been closed meanwhile */
    note_active(engine, id);
}

void gm_engine_rests(struct gm_engine *engine, uint32_t id)
{
    if (engine->apps[id].idle.is_idle)
        return;
    engine->apps[id].idle.is_idle = true;
    gm_engine_feed_idle(engine, id, 0);
}

static bool is_anybody_waiting(const struct gm_engine *engine)
{
    return engine->decision.n_next > 0;
}

/* Whether its answer to a QUERY is still to come and will mean something. */
static bool is_awaited(const struct gm_app *app)
{
    return app->idle.is_asked && app->idle.asked_epoch == app->gate.epoch;
}

static void ask(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    /* The program keeps the newest question only. Its answer is one to all that were asked before.
     */
    app->idle.query = app->client ? ++app->client->query : app->idle.query + 1;
    const struct gm_msg_query query = {.query = app->idle.query};

    app->idle.is_asked = true;
    app->idle.asked_epoch = app->gate.epoch;
    app->idle.asked_at = engine->now;
    gm_engine_emit(engine, &(struct gm_event){
                               .kind = GM_EVENT_QUERIED, .app = id, .queried.query = query.query});
    gm_engine_say(engine, id, GM_MSG_QUERY, &query);
}

/* Nothing is in flight, and nothing was submitted for long enough. What passed since the answer is
 * not charged: before it the GPU may have had work. */
static void rest_if_idle(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->idle.quiet_at == 0 || app->idle.is_idle ||
        engine->now - app->idle.active_at < engine->config.idle_ns || !gm_group_rests(engine, id))
        return;
    gm_engine_emit(engine, &(struct gm_event){
                               .kind = GM_EVENT_IDLE, .app = id, .idle.query = app->idle.query});
    app->idle.is_idle = true;
    gm_engine_take_spares(engine, id, UINT64_MAX);
    gm_engine_feed_idle(engine, id, engine->now - app->idle.quiet_at);
}

/* Who waits for turns has to pay for nobody that does not use its own. Who submits nothing is soon
 * idle, and no waste. Members of a group have one together. */
static void note_use(struct gm_engine *engine, uint32_t id, uint64_t calls, bool had_work)
{
    struct gm_app *app = &engine->apps[id];
    if (had_work || calls > GM_UNUSED_CALLS)
        app->idle.n_unused /= 2;
    else if (calls > 0)
        app->idle.n_unused++;
    if (app->idle.n_unused < GM_UNUSED_LOOKS || gm_group_is_several(engine, id))
        return;
    app->idle.n_unused = 0;
    gm_engine_feed(engine, GM_SCHED_WASTE, id, 0);
}

void gm_engine_quiet(struct gm_engine *engine, uint32_t id, const struct gm_msg_quiet *quiet)
{
    struct gm_app *app = &engine->apps[id];
    uint64_t idle = engine->config.idle_ns, most = idle > GM_ASK_MOST_NS ? idle : GM_ASK_MOST_NS;
    const uint64_t newest = app->client ? app->client->query : app->idle.query;

    if (!is_awaited(app) || quiet->query < app->idle.query || quiet->query > newest ||
        app->state != GM_APP_RUNNING)
        return; /* an answer to what was asked before a CLOSE */
    const bool had_work = quiet->is_quiet != 1 || quiet->had_none != 1;
    app->idle.is_asked = false;
    if (is_active(app))
        note_active(engine, id);
    const uint64_t calls = app->idle.calls - app->idle.used_calls;
    app->idle.used_calls = app->idle.calls;
    note_use(engine, id, calls, had_work || !is_anybody_waiting(engine));
    if (app->idle.active_at > app->idle.asked_at)
        return; /* it says nothing of what was submitted since */
    if (quiet->is_quiet == 1) {
        if (had_work)
            app->idle.active_at = engine->now;
        if (had_work || app->idle.quiet_at == 0)
            app->idle.quiet_at = engine->now;
        rest_if_idle(engine, id);
        return;
    }
    app->idle.ask_wait = app->idle.ask_wait == 0 ? idle : app->idle.ask_wait * 2;
    if (app->idle.ask_wait > most)
        app->idle.ask_wait = most;
    app->idle.ask_at = engine->now + app->idle.ask_wait;
}

/* It is paused, and may have nothing to do. Whether that is soon to be known. */
static bool look_at_paused(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->is_stopped)
        return false;
    if (app->gate.is_parked) { /* it has work, whatever its threads do */
        if (app->idle.want_at != 0 && engine->now >= app->idle.want_at) {
            app->idle.want_at = 0;
            gm_engine_wants(engine, id);
        }
        return app->idle.want_at != 0;
    }
    if (app->idle.is_idle || app->places.is_held)
        return false;
    bool is_first = true;
    bool is_waiting = gm_group_is_several(engine, id) ? gm_group_is_waiting(engine, id, &is_first)
                                                      : gm_engine_awaits_turn(app);
    if (!is_first)
        return false; /* it does as the first one of its group */
    if (is_waiting || is_active(app))
        app->idle.active_at = engine->now;
    if (engine->now - app->idle.active_at < engine->config.idle_ns)
        return !is_waiting;
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_IDLE, .app = id, .idle.query = 0});
    app->idle.is_idle = true;
    gm_engine_feed_idle(engine, id, 0);
    return false;
}

static void sample_in(struct gm_engine *engine, uint64_t ns)
{
    engine->sample_at = engine->now + (ns > GM_MS ? ns : GM_MS);
}

/* From one look to the next while somebody works. */
static uint64_t look_ns(const struct gm_engine *engine)
{
    uint64_t ns = engine->config.idle_ns / GM_IDLE_LOOKS;
    if (is_anybody_waiting(engine) && ns > GM_ASK_AGAIN_NS)
        ns = GM_ASK_AGAIN_NS;
    return engine->turns.until != 0 && ns > GM_TURN_LOOK_NS ? GM_TURN_LOOK_NS : ns;
}

void gm_engine_sample_soon(struct gm_engine *engine)
{
    if (engine->sample_at > engine->now + look_ns(engine))
        sample_in(engine, look_ns(engine));
}

/* How long it does nothing before it is asked. */
static uint64_t ask_after(const struct gm_engine *engine, uint32_t id)
{
    const bool has_turn = engine->turns.until != 0 && engine->turns.whose == id;
    return has_turn ? look_ns(engine) : engine->config.idle_ns / 2;
}

static bool is_to_ask(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (app->idle.is_idle || is_awaited(app) || engine->now < app->idle.ask_at ||
        engine->now - app->idle.asked_at < GM_ASK_AGAIN_NS)
        return false;
    return is_anybody_waiting(engine) ||
           (app->idle.quiet_at == 0 && engine->now - app->idle.active_at >= ask_after(engine, id));
}

void gm_engine_sample(struct gm_engine *engine)
{
    uint64_t idle = engine->config.idle_ns;
    bool is_busy = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_PAUSED)
            is_busy = look_at_paused(engine, id) || is_busy;
        if (app->state == GM_APP_PAUSED || app->state == GM_APP_RUNNING)
            gm_engine_age_spares(engine, id);
        if (app->state != GM_APP_RUNNING)
            continue;
        if (is_active(app))
            note_active(engine, id);
        if (is_to_ask(engine, id))
            ask(engine, id);
        rest_if_idle(engine, id);
        is_busy = is_busy || !app->idle.is_idle || app->policy.is_limited;
    }
    sample_in(engine, is_busy ? look_ns(engine) : GM_IDLE_REST * idle);
}
