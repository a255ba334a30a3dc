/*
 * What the engine knows of the event that it works on: its time, how long deciding took, whether it
 * goes round now, whether there is to be another round, or another run soon, or none any more, and
 * whether the plan is out of date. Owns the fields of these. Called by all files of the engine.
 */
#include "daemon/engine/state/round.h"

void gm_engine_set_time(struct gm_engine *engine, uint64_t now)
{
    engine->now = now;
}

void gm_engine_again(struct gm_engine *engine)
{
    engine->again = true;
}

void gm_engine_replan(struct gm_engine *engine)
{
    engine->plan_is_stale = true;
}

void gm_engine_planned(struct gm_engine *engine)
{
    engine->plan_is_stale = false;
    engine->is_planning = true;
}

void gm_engine_decides(struct gm_engine *engine)
{
    engine->is_deciding = true;
}

void gm_engine_count_deciding(struct gm_engine *engine, uint64_t ns)
{
    if (engine->is_deciding || engine->is_planning)
        engine->deciding_ns += ns > 0 ? ns : 1;
    if (engine->is_planning)
        engine->parts.planned_ns += ns;
    engine->is_deciding = engine->is_planning = false;
}

uint64_t gm_engine_take_deciding(struct gm_engine *engine)
{
    const uint64_t ns = engine->deciding_ns;
    engine->deciding_ns = 0;
    return ns;
}

void gm_engine_begin_round(struct gm_engine *engine)
{
    engine->again = false;
}

bool gm_engine_begin_run(struct gm_engine *engine)
{
    if (engine->is_running || engine->is_closing)
        return false;
    engine->is_running = true;
    engine->is_called = false;
    return true;
}

void gm_engine_end_run(struct gm_engine *engine)
{
    engine->is_running = false;
}

void gm_engine_call(struct gm_engine *engine)
{
    engine->is_called = !engine->is_closing;
}

void gm_engine_wake_at(struct gm_engine *engine, uint64_t at)
{
    engine->wake_at = at;
}

uint64_t gm_engine_take_wake(struct gm_engine *engine)
{
    const uint64_t at =
        engine->is_called && !engine->is_running && !engine->is_closing ? 1 : engine->wake_at;
    engine->wake_at = 0;
    return at;
}

void gm_engine_halt(struct gm_engine *engine)
{
    engine->is_closing = true;
}
