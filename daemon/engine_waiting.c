/*
 * Allocations for which there is no room now. What can never be had is refused; what cannot be had
 * now is refused as well, as on a card, or it waits:
 *
 *   by option           (--when-full wait) until there is room
 *   for host frames     that were given back and are still to be destroyed
 *   for others' spares  what programs freed, and will have given back within 100 ms
 *                       (shim/spares.h): SPARES_NS, and once
 *
 * Room is given in the order in which they came, so that a large one is not overtaken for ever; but
 * who holds memory is what others wait for, so he never waits behind them for what fits.
 *
 * How much a program keeps is what it says, in memory that it alone writes. It is believed of no
 * more than the daemon backs for it, and if that would make the room; and a program whose spares
 * were waited for in vain is not waited for again before it has given something back. So one that
 * lies, or is stopped, holds another up for SPARES_NS, once, and never gets it refused what fits.
 */
#include "daemon/engine_state.h"

#include <stdlib.h>

/* Allocations of one app that may wait for room: more threads than that in one program are a
 * mistake. */
#define WAITING_MAX 4096u
/* 100 ms, and the time that giving back takes. */
#define SPARES_NS (250 * GM_MS)

bool gm_engine_is_waiting_at(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    for (const struct gm_waiting_alloc *at = engine->waiting; at; at = at->next)
        if (at->app == id && at->alloc.va == va)
            return true;
    return false;
}

static bool wait_for_room(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    struct gm_waiting_alloc *waiting;
    if (engine->apps[id].waiting_allocs == WAITING_MAX)
        return false;
    waiting = calloc(1, sizeof *waiting);
    if (!waiting)
        return false;
    waiting->alloc = *alloc;
    waiting->app = id;
    waiting->spares_until = engine->now + SPARES_NS;
    *engine->waiting_tail = waiting;
    engine->waiting_tail = &waiting->next;
    engine->apps[id].waiting_allocs++;
    return true;
}

void gm_engine_forget_waiting(struct gm_engine *engine, uint32_t id)
{
    struct gm_waiting_alloc **place = &engine->waiting;
    while (*place) {
        struct gm_waiting_alloc *waiting = *place;
        if (waiting->app == id) {
            *place = waiting->next;
            free(waiting);
        } else {
            place = &waiting->next;
        }
    }
    engine->waiting_tail = place;
    engine->apps[id].waiting_allocs = 0;
}

/* What a program says that it keeps, as far as it is believed. */
static uint64_t spares_of(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (!app->session || !app->stat || app->doubted == app->given_back + 1)
        return 0;
    const uint64_t said = atomic_load(&app->stat->spare_bytes) + app->ahead_bytes;
    const uint64_t committed = engine->table->apps[id].committed;
    return said < committed ? said : committed;
}

/* Whether there would be room for `alloc` if all but its asker gave back what they keep. */
static bool would_spares_do(const struct gm_engine *engine, const struct gm_waiting_alloc *alloc)
{
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (id != alloc->app)
            bytes += spares_of(engine, id);
    return bytes > 0 && bytes >= gm_engine_lacking(engine, alloc->alloc.bytes);
}

/* Nothing came of it. */
static void doubt_spares(struct gm_engine *engine, uint32_t asker)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (id != asker && spares_of(engine, id) > 0)
            engine->apps[id].doubted = engine->apps[id].given_back + 1;
}

/* Whether an allocation without room waits. */
static bool is_room_to_come(const struct gm_engine *engine, const struct gm_waiting_alloc *alloc)
{
    if (engine->config.is_waiting_when_full)
        return true;
    if (engine->now < alloc->spares_until && would_spares_do(engine, alloc))
        return true;
    for (uint32_t i = 0; i < engine->n_condemned; i++) {
        uint32_t frame = engine->condemned[i];
        const struct gm_frame_state_more *more = &engine->frame_more[frame];
        if (engine->table->frames[frame].is_host && more->silent == 0 && more->exit_of == GM_NONE)
            return true;
    }
    return false;
}

void gm_engine_admit_waiting(struct gm_engine *engine)
{
    while (engine->waiting && !engine->stopping.is_on) {
        struct gm_waiting_alloc *first = engine->waiting;
        bool can_ever = gm_engine_can_ever_have(engine, first->app, first->alloc.bytes);
        bool is_committed = can_ever && gm_engine_commit(engine, first->app, &first->alloc);
        if (can_ever && !is_committed && is_room_to_come(engine, first))
            return;
        if (can_ever && !is_committed && engine->now >= first->spares_until)
            doubt_spares(engine, first->app);
        if (!is_committed)
            gm_engine_refuse_alloc(engine, first->app, first->alloc.cookie);
        engine->apps[first->app].waiting_allocs--;
        engine->waiting = first->next;
        if (!engine->waiting)
            engine->waiting_tail = &engine->waiting;
        free(first);
    }
}

void gm_engine_admit(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    const struct gm_waiting_alloc asked = {
        .app = id, .alloc = *alloc, .spares_until = engine->now + SPARES_NS};
    bool is_first = !engine->waiting || engine->table->apps[id].committed > 0;

    /* Its program gets it from the driver when the daemon has ended. */
    if (engine->stopping.is_on && wait_for_room(engine, id, alloc))
        return;
    /* As on a real card; and no more is promised to all of them than the tiers hold. */
    if (gm_engine_can_ever_have(engine, id, alloc->bytes)) {
        if (is_first && gm_engine_commit(engine, id, alloc))
            return;
        /* Behind others it waits whatever it waits for: there may be room for it. */
        if ((!is_first || is_room_to_come(engine, &asked)) && wait_for_room(engine, id, alloc))
            return;
    }
    gm_engine_refuse_alloc(engine, id, alloc->cookie);
}
