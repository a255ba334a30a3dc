/*
 * Who works: gates that open and close, programs that are idle, and programs that stand still.
 */
#include "daemon/engine/step/gates.h"

#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/client.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/shadows.h"

/* ---- idleness ---- */

/*
 * Idleness. Owns the samples of each app's shared words and the QUERYs under way.
 *
 * Work is what the GPU has to do. An app with an open gate is idle if for --idle it submitted
 * nothing, no submission is under way, and its earlier work has ended. The shared words tell the
 * first two. For the third the app is asked (QUERY) after half of that time, and answers (QUIET)
 * when its work has ended; --idle counts from there, if it had some. Until then it counts as busy
 * and is charged. So does a program that never answers: its turn ends with its slice.
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

/* Who has a turn and does nothing for so long is asked whether it has work. A program that
 * called the driver every 10 to 100 ms, for next to nothing, took half of another one's time;
 * with this a tenth (on simcuda). */
#define GM_TURN_LOOK_NS (5 * GM_MS)
/* A program that could not tell whether it is idle is asked again after --idle, then after
 * twice as long, up to this. */
#define GM_ASK_MOST_NS (1 * GM_S)
/* A look does not find work that ends within 1 ms. So many calls kept the GPU for a quarter of
 * the time at the very most. A program that submits more is at work: thousands of small kernels,
 * each waited for. Submissions from look to look. */
#define GM_UNUSED_CALLS 3
/* While --idle passes: what a program does is known as exactly. In looks. */
#define GM_IDLE_LOOKS 4
/* While nobody is busy, the next look is so far away: beginning to work is noticed that late,
 * which costs nobody anything, as the gate is open. Not so for one whose share is limited. Times
 * --idle. */
#define GM_IDLE_REST 3

/* Threads take the lowest free slot, so nobody is in use behind so many that never were. */
#define SLOT_GROUP 64u

static bool look_at_slot(const struct gm_slot *slot, uint64_t *calls)
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
static bool look_at_calls(const struct gm_app *app, uint64_t *calls)
{
    uint64_t before;
    *calls = 0;
    bool is_inside = look_at_slot(&app->stat->slot[GM_SLOTS - 1], calls), is_used = true;
    for (uint32_t first = 0; first < GM_SLOTS - 1 && is_used; first += SLOT_GROUP) {
        before = *calls;
        is_used = false;
        for (uint32_t i = first; i < first + SLOT_GROUP && i < GM_SLOTS - 1; i++)
            is_used = look_at_slot(&app->stat->slot[i], calls) || is_used;
        is_inside = is_inside || is_used;
        is_used = is_used || *calls != before;
    }
    return *calls != app->idle.calls || is_inside || awaits_memory(app);
}

bool gm_engine_has_called(const struct gm_app *app)
{
    uint64_t calls;
    return look_at_calls(app, &calls);
}

/* The calls of it that have returned, as it says. */
static uint64_t calls_of(const struct gm_app *app)
{
    uint64_t calls;
    look_at_calls(app, &calls);
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
    const bool is = look_at_calls(app, &calls);
    app->idle.calls = calls;
    return is;
}

bool gm_engine_may_have_work(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return !app->idle.is_idle || app->idle.quiet_at == 0 || gm_engine_has_called(app);
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

/* It did something just now. */
static void was_active(struct gm_engine *engine, uint32_t id)
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

/* Who waits for turns has to pay for nobody that does not use its own. Who does nothing is soon
 * idle, and no waste. Members of a group have one together. */
static void note_use(struct gm_engine *engine, uint32_t id, bool is_active, uint64_t calls,
                     bool had_work)
{
    struct gm_app *app = &engine->apps[id];
    if (had_work || calls > GM_UNUSED_CALLS)
        app->idle.n_unused /= 2;
    else if (is_active || calls > 0)
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
    app->idle.is_asked = false;
    const bool is = is_active(app);
    if (is)
        note_active(engine, id);
    /* Who was quiet before has submitted nothing since: the answer came late, no work did. */
    const bool had_work = quiet->is_quiet != 1 || (quiet->had_none != 1 && app->idle.quiet_at == 0);
    const uint64_t calls = app->idle.calls - app->idle.used_calls;
    app->idle.used_calls = app->idle.calls;
    note_use(engine, id, is, calls, had_work || !is_anybody_waiting(engine));
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

/* ---- gates ---- */

/*
 * The gates of programs, for the part that this GPU has in them: closing one and waiting for its
 * answer, opening it when all that its program has here is in place. A gate that is closed for
 * exchanges only is held: its program keeps its turn. Owns gm_app.gate and the sending of CLOSE
 * and RESUME.
 */

static void resume(struct gm_engine *engine, uint32_t id)
{
    struct gm_client *client = engine->apps[id].client;
    const struct gm_msg_resume message = {.epoch = client->epoch};
    gm_client_resume(client, engine);
    gm_engine_say(engine, id, GM_MSG_RESUME, &message);
}

/* What the program has on this GPU is in place: if no other engine has its gate closed, it opens,
 * and work that was parked goes on. */
static void let(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.is_parked = false;
    if (gm_client_let(app->client, engine) && app->client->is_parked)
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
    const bool is_asked = gm_client_shut(client, engine);
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

/* It stood still: the time for its answers begins anew. */
static void awaits_anew(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.closed_at = app->gate.answered_at = engine->now;
}

/* What the app answered to CLOSE. */
void gm_engine_drained(struct gm_engine *engine, uint32_t id, const struct gm_msg_drained *drained)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_heard(engine, id); /* be it too late */
    if (app->state != GM_APP_DRAINING || drained->epoch != app->gate.epoch)
        return; /* an answer to a CLOSE of another engine, or of a daemon before */
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
        was_active(engine, id); /* it may only have waited for that */
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

/* ---- programs that stand still ---- */

/*
 * Programs that stand still: stopped by a signal, frozen with their control group, held by a
 * debugger, or with an answer that is overdue for whatever reason. Owns the `stop` of clients, and
 * is_stopped of gm_app.
 *
 * Only a program itself can unmap its memory, so one that stands still keeps what it has on the
 * GPU. The rest of it is as if it did not exist. The scheduler knows it as an app of no bytes that
 * wants nothing and may not run, beside a budget that is less by what it keeps (frames.c). So it
 * is charged nothing, whatever fits beside its memory runs, and nobody waits for its answer. Its
 * gate is closed: when it goes on, it answers what it was asked meanwhile, gives its turn back and
 * asks for the next one like anybody.
 *
 * A group stands still with any of its programs: the others are paused, and what they have can be
 * evicted.
 *
 * /proc is read, some files for each program, so a look is not for free. Programs that made a call
 * since the last look are not looked at, and few at a time (GM_STOP_LOOKS). Two looks in a row
 * must find the program standing still: strace stops one for a moment with every system call.
 */

/* Whether programs stand still is looked at so often, while one of them has a turn or waits.
 * Two looks must find it, and none is made of a program that worked since the one before: it is
 * known after 0.6 s at most. */
#define GM_STOP_LOOK_NS (200 * GM_MS)
/* A look at one takes some 50 us: three files in /proc and /sys. Of 256 that do nothing each is
 * looked at every 0.4 s. In programs a look. */
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

/* It stands still, or does not. */
static void find_stop(struct gm_client *client, enum gm_why stop)
{
    const bool is_again = stop != GM_WHY_NONE && client->stop_seen != GM_WHY_NONE;
    client->stop_seen = stop;
    set_stop(client, is_again ? stop : client->owes ? GM_WHY_SILENT : GM_WHY_NONE);
}

/* Returns how many processes are looked at. */
static uint32_t look_at_process(struct gm_engine *engine, const struct gm_app *app)
{
    struct gm_client *client = app->client;
    const uint64_t calls = calls_of(app);
    const bool has_called = calls != client->stop_calls;
    client->stop_calls = calls;
    struct gm_action *ask = has_called ? NULL : gm_engine_post(engine, GM_ACTION_ASK_STOP);
    if (has_called)
        find_stop(client, GM_WHY_NONE);
    if (!ask)
        return 0;
    ask->stop.app = client->id;
    ask->stop.pid = app->pid;
    return 1;
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

/* Whether it can be seen that a process stands still. */
static bool can_see_stops(const struct gm_engine *engine)
{
    return engine->config.outlet.stop_of != NULL;
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
    const bool is_looking = can_see_stops(engine) && is_anybody_concerned(engine);
    return is_looking ? engine->stops.look_at : GM_TIME_NEVER;
}

/* Everybody, a part of them at a time if they are many. */
static void look_at_processes(struct gm_engine *engine)
{
    uint32_t left = GM_STOP_LOOKS;
    for (uint32_t n = 0; n < engine->config.max_apps && left > 0; n++) {
        const uint32_t id = engine->stops.next;
        engine->stops.next = id + 1 < engine->config.max_apps ? id + 1 : 0;
        const struct gm_app *app = &engine->apps[id];
        if (!app->session || !is_ours(engine, app->client))
            continue;
        left -= look_at_process(engine, app);
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
    gm_engine_feed_size(engine, id);
}

static void go_on(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_happened(engine, id, GM_EVENT_CONTINUED);
    gm_engine_note_silence(engine, id, false);
    awaits_anew(engine, id);
    gm_engine_feed_size(engine, id);
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

void gm_engine_found_stop(struct gm_engine *engine, uint32_t id, enum gm_why why)
{
    if (!engine->apps[id].session)
        return;
    find_stop(engine->apps[id].client, why);
}

void gm_engine_find_stops(struct gm_engine *engine)
{
    if (can_see_stops(engine) && engine->now >= engine->stops.look_at)
        look_at_processes(engine);
}

void gm_engine_follow_stops(struct gm_engine *engine)
{
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
