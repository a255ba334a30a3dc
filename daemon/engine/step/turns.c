/*
 * Short turns: while a latency-critical program runs beside several best-effort ones, one of these
 * works and the work of the others stands still (core/timeslice says when and who). All keep their
 * gates open and their memory on the GPU. Owns gm_engine.turns, and turn_at and held_until of
 * gm_app. Called at the end of a round of the loop, after timeslices.c.
 *
 * A turn begins with a HOLD to everybody else. What a hint holds is held beside that. A program
 * whose turn it is may have no work: it is asked soon (idle.c), and its turn ends with its answer.
 * Who comes next is then told to go on, whatever it is held for.
 */
#include "daemon/engine/step/turns.h"

#include "daemon/core/timeslice.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/step/hints.h"
#include "daemon/engine/step/idle.h"

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
            gm_engine_send_hold(engine, running->id, running->hold_ns);
        engine->apps[running->id].held_until = running->held_until;
    }
}

uint64_t gm_engine_turn_due(const struct gm_engine *engine)
{
    return engine->turns.until != 0 ? engine->turns.until : GM_TIME_NEVER;
}
