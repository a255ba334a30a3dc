/*
 * What the engine knows of the event that it works on: its time, which is read once, and whether
 * there is to be another round of gm_engine_run. Owns `now` and `again`. Called by all files of the
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

void gm_engine_begin_round(struct gm_engine *engine)
{
    engine->again = false;
}
