/*
 * Allocations for which there is no room now. What can never be had is refused; what cannot be had
 * now is refused as well, as on a card, or it waits. First the daemon takes back the spares that
 * are in the way (allocs.c). It waits
 *
 *   by option        (--when-full wait) until there is room
 *   for host frames  that were given back and are still to be destroyed, also those of an ended
 *                    program whose process is about to end
 *   for pinned memory  that other GPUs only keep, and are asked for (host.h)
 *
 * core/admit says who gets memory next, and core/room whether it may have it.
 */
#include "daemon/engine/step/waiting.h"

#include <stdlib.h>

#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/room.h"

/* More threads than that in one program are a mistake. In allocations of one app that wait for
 * room. */
#define GM_WAITING_MAX 4096

static struct gm_waiting_alloc *waiting_of(const struct gm_admit_request *ask)
{
    return (struct gm_waiting_alloc *)(uintptr_t)ask;
}

bool gm_engine_is_waiting_at(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    for (const struct gm_admit_request *at = engine->waiting; at; at = at->next)
        if (at->app == id && waiting_of(at)->alloc.va == va)
            return true;
    return false;
}

/* Whether as many of its user's wait as may: they cost everybody time in each round. */
static bool is_full_for(const struct gm_engine *engine, uint32_t id)
{
    const uid_t owner = engine->apps[id].client->owner;
    uint32_t n = 0;
    if (engine->apps[id].client->is_admin)
        return false;
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        if (engine->apps[other].client && engine->apps[other].client->owner == owner)
            n += engine->apps[other].allocs.waiting;
    return n >= GM_WAITING_OF_USER;
}

static bool wait_for_room(struct gm_engine *engine, const struct gm_waiting_alloc *asked)
{
    struct gm_waiting_alloc *waiting;
    if (engine->apps[asked->ask.app].allocs.waiting == GM_WAITING_MAX ||
        is_full_for(engine, asked->ask.app))
        return false;
    waiting = malloc(sizeof *waiting);
    if (!waiting)
        return false;
    *waiting = *asked;
    *engine->waiting_tail = &waiting->ask;
    engine->waiting_tail = &waiting->ask.next;
    engine->apps[asked->ask.app].allocs.waiting++;
    return true;
}

enum gm_why gm_engine_waits_for(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_admit_request *at = engine->waiting;
    while (at && at->app != id)
        at = at->next;
    if (!at)
        return GM_WHY_STOPPING;
    switch (waiting_of(at)->reason) {
    case GM_WHY_BUDGET:
    case GM_WHY_PINNED:
    case GM_WHY_USER:
    case GM_WHY_FILES:
    case GM_WHY_LIMIT:
        return waiting_of(at)->reason;
    default:
        return at == engine->waiting ? GM_WHY_FULL : GM_WHY_BEHIND;
    }
}

/* Take the request at *place out of the list. */
static void forget(struct gm_engine *engine, struct gm_admit_request **place)
{
    struct gm_admit_request *ask = *place;
    *place = ask->next;
    if (!*place)
        engine->waiting_tail = place;
    engine->apps[ask->app].allocs.waiting--;
    free(waiting_of(ask));
}

static void refuse(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc,
                   enum gm_why reason)
{
    gm_engine_refused(engine, id, alloc->bytes, reason);
    gm_engine_refuse_alloc(engine, id, alloc->cookie);
}

void gm_engine_forget_waiting(struct gm_engine *engine, uint32_t id)
{
    struct gm_admit_request **place = &engine->waiting;
    while (*place)
        if ((*place)->app == id)
            forget(engine, place);
        else
            place = &(*place)->next;
}

/* Its memory may not come back for ever. */
static bool is_kept(const struct gm_engine *engine, uint32_t frame)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_is_left_for_good(&engine->apps[id]) && gm_engine_may_reach(engine, id, frame))
            return true;
    return false;
}

/* Whether an allocation without room waits. */
static bool is_room_to_come(const struct gm_engine *engine)
{
    if (engine->config.is_waiting_when_full || gm_host_is_coming(engine))
        return true;
    const struct gm_frame *frame;
    for (uint32_t i = engine->table->first_condemned; i != GM_NONE; i = frame->next) {
        frame = &engine->table->frames[i];
        if (frame->is_host && frame->silent == 0 && !is_kept(engine, i))
            return true;
    }
    return false;
}

/* An app that did nothing for as long as the head of the list may be passed is not at work: it
 * sleeps, was stopped, or somebody forgot it. */
static void describe_apps(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        engine->admit_apps[id] = (struct gm_admit_app){
            .held = engine->table->apps[id].committed,
            .waits = app->allocs.waiting,
            .is_at_work = engine->now - app->idle.active_at < engine->config.patience_ns};
    }
}

static struct gm_admit_decision decide(struct gm_engine *engine)
{
    struct gm_admit_input input = {
        .first = engine->waiting,
        .apps = engine->admit_apps,
        .n_apps = engine->config.max_apps,
        .room = gm_engine_left(engine),
        .now = engine->now,
        .patience_ns = engine->config.patience_ns,
        .has_deadlocks = engine->config.is_waiting_when_full,
    };
    if (engine->waiting)
        engine->waiting->may_wait = is_room_to_come(engine);
    describe_apps(engine);
    return gm_admit_step(&engine->admit, &input);
}

/* Why a program could not have `bytes` more if it were alone; NONE: it could. No program gets more
 * than the budget, unless it may be larger. */
static enum gm_why never_has(const struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const struct gm_room_input alone = gm_room_alone(&input);
    return gm_room_refuses(&alone, bytes);
}

/* Those that can never be had any more, since others share memory for good meanwhile. Whether one
 * can is asked of each app's largest only: that looks at all apps, and requests are many. */
static void refuse_impossible(struct gm_engine *engine)
{
    bool has_some = false;
    if (!engine->waiting)
        return;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        engine->admit_apps[id].most = 0;
    for (struct gm_admit_request *at = engine->waiting; at; at = at->next) {
        struct gm_admit_app *app = &engine->admit_apps[at->app];
        at->is_barred = false;
        app->most = at->bytes > app->most ? at->bytes : app->most;
    }
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_admit_app *app = &engine->admit_apps[id];
        if (app->most > 0 && never_has(engine, id, app->most) == GM_WHY_NONE)
            app->most = 0;
        has_some = has_some || app->most > 0;
    }
    for (struct gm_admit_request **place = &engine->waiting; has_some && *place;) {
        const struct gm_waiting_alloc *waiting = waiting_of(*place);
        const uint32_t id = waiting->ask.app;
        const enum gm_why reason = engine->admit_apps[id].most == 0
                                       ? GM_WHY_NONE
                                       : never_has(engine, id, waiting->ask.bytes);
        if (reason == GM_WHY_NONE) {
            place = &(*place)->next;
            continue;
        }
        refuse(engine, id, &waiting->alloc, reason);
        forget(engine, place);
    }
}

/* Do what was decided of the request at *place. */
static void carry_out(struct gm_engine *engine, enum gm_admit_action action,
                      struct gm_admit_request **place)
{
    struct gm_waiting_alloc *waiting = waiting_of(*place);
    const uint32_t id = waiting->ask.app;
    if (action == GM_ADMIT_GRANT) {
        waiting->reason = gm_engine_commit(engine, id, &waiting->alloc);
        if (waiting->reason != GM_WHY_NONE) {
            (*place)->is_barred = true;
            return;
        }
    } else if (action == GM_ADMIT_BREAK) {
        refuse(engine, id, &waiting->alloc, GM_WHY_DEADLOCK);
    } else {
        refuse(engine, id, &waiting->alloc, (*place)->is_barred ? waiting->reason : GM_WHY_FULL);
    }
    forget(engine, place);
}

void gm_engine_admit_waiting(struct gm_engine *engine)
{
    struct gm_admit_decision decision = {0};
    engine->waiting_wake_at = GM_TIME_NEVER;
    if (engine->stopping.is_on)
        return;
    refuse_impossible(engine);
    while (engine->waiting) {
        struct gm_admit_request **place = &engine->waiting;
        gm_engine_make_room(engine, (*place)->app, (*place)->bytes);
        decision = decide(engine);
        if (decision.action == GM_ADMIT_NOTHING)
            break;
        while (*place != decision.request)
            place = &(*place)->next;
        carry_out(engine, decision.action, place);
    }
    if (!engine->waiting)
        gm_host_end_wait(engine);
    else if (engine->config.is_waiting_when_full)
        gm_host_ask(engine);
    if (engine->waiting)
        engine->waiting_wake_at = decision.wake_at;
}

void gm_engine_admit(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    struct gm_waiting_alloc asked = {
        .ask = {.app = id, .bytes = alloc->bytes, .since = engine->now}, .alloc = *alloc};

    /* Its program gets it from the driver when the daemon has ended. */
    if (engine->stopping.is_on && wait_for_room(engine, &asked))
        return;
    gm_engine_count_users(engine);
    gm_engine_make_room(engine, id, alloc->bytes);
    /* As on a real card; and no more is promised to all of them than the tiers hold. */
    enum gm_why reason = never_has(engine, id, alloc->bytes);
    if (reason == GM_WHY_FILES && gm_engine_take_spares(engine, id, UINT64_MAX) > 0)
        reason = never_has(engine, id, alloc->bytes);
    if (reason == GM_WHY_NONE) {
        reason = engine->waiting ? GM_WHY_FULL : gm_engine_commit(engine, id, alloc);
        if (reason == GM_WHY_NONE)
            return;
        asked.reason = reason;
        if (reason == GM_WHY_FULL || reason == GM_WHY_PINNED)
            gm_host_ask(engine);
        /* Behind others it waits whatever it waits for: there may be room for it. */
        if (engine->waiting || is_room_to_come(engine)) {
            if (wait_for_room(engine, &asked))
                return; /* the round that follows looks at all that wait */
            reason = GM_WHY_WAITING;
        }
    }
    refuse(engine, id, alloc, reason);
}
