/*
 * The check: what crosses the link while programs run tells whether cold memory is cold. Owns
 * gm_engine.meter_told. Called by step.c; calls meter.c.
 */
#include "daemon/engine/step/check.h"

#include "daemon/engine/act/events.h"
#include "daemon/engine/act/meter.h"

/* Once: there is no counter. */
static void tell_meter(struct gm_engine *engine)
{
    const char *why = gm_engine_why_no_meter(engine);
    if (!why || engine->meter_told)
        return;
    engine->meter_told = true;
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_UNCHECKED, .app = GM_NONE, .unchecked = {.why = why}});
}

void gm_engine_take_samples(struct gm_engine *engine)
{
    struct gm_meter_sample sample;
    tell_meter(engine);
    while (gm_engine_take_sample(engine, &sample))
        ;
}
