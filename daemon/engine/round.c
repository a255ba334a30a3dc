/*
 * What the engine knows of the event that it works on: its time, which is read once, whether there
 * is to be another round of gm_engine_run, and whether the plan is out of date. Owns `now`, `again`
 * and `plan_is_stale`. Called by all files of the
 * engine.
 */
#include "daemon/engine/inside.h"

void gm_engine_read_clock(struct gm_engine *engine)
{
    engine->now = gm_now();
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
}

void gm_engine_begin_round(struct gm_engine *engine)
{
    engine->again = false;
}
