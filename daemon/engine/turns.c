/*
 * Short turns: while a latency-critical program runs beside several best-effort ones, one of these
 * works and the work of the others stands still (core/timeslice says when and who). All keep their
 * gates open and their memory on the GPU. Owns gm_engine.turns and gm_app.short_turns. Called at
 * the end of a round of the loop, after timeslices.c.
 *
 * A turn begins with a HOLD to everybody else. The hold of who comes next ends with the turn, those
 * of the others a little later, when they are held again. So nothing must be said at the end of a
 * turn, and where the daemon is killed everybody goes on. What a hint holds is held beside that.
 *
 * A program whose turn it is may have no work. It is asked soon (idle.c), and its turn ends with
 * its answer. Who comes next is then told to go on, whatever it is held for.
 */
#include "daemon/engine/inside.h"

#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"

static uint32_t next_after(const struct gm_engine *engine, uint32_t id)
{
    return gm_timeslice_next(engine->running, engine->n_running, id);
}

static bool has_work(const struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = 0; i < engine->n_running; i++)
        if (engine->running[i].id == id)
            return !engine->running[i].is_idle;
    return false;
}

void gm_engine_take_turns(struct gm_engine *engine)
{
    const bool is_early = engine->now < engine->turns.until;
    if (engine->turns.are_on && is_early && has_work(engine, engine->turns.whose))
        return;
    engine->turns.until = 0;
    if (!engine->turns.are_on)
        return;
    const uint32_t whose = next_after(engine, engine->turns.whose);
    const uint32_t next = next_after(engine, whose);
    if (is_early && whose != GM_NONE)
        gm_engine_send_hold(engine, whose, 0, 0);
    if (next == whose) /* nobody else has work */
        return;
    engine->turns.whose = whose;
    engine->turns.until = engine->now + GM_TURN_NS;
    engine->apps[whose].short_turns++;
    gm_engine_sample_soon(engine);
    for (uint32_t i = 0; i < engine->n_running; i++) {
        const struct gm_timeslice_app *app = &engine->running[i];
        if (app->id == whose || app->is_idle || gm_timeslice_is_critical(app->class))
            continue;
        gm_engine_send_hold(engine, app->id, 0,
                            GM_TURN_NS + (app->id == next ? 0 : GM_TURN_LATE_NS));
    }
}

uint64_t gm_engine_turn_due(const struct gm_engine *engine)
{
    return engine->turns.until != 0 ? engine->turns.until : GM_TIME_NEVER;
}
