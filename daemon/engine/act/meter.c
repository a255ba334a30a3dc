/*
 * Takes the samples of the meter over, which counts what crosses the link. Called by inlet.c,
 * open.c and the snapshot; calls the meter.
 */
#include "daemon/engine/act/meter.h"

void gm_engine_open_meter(struct gm_engine *engine, void (*on_news)(void *engine))
{
    engine->meter =
        gm_meter_open(engine->loop, (const uint8_t *)engine->uuid.bytes, on_news, engine);
}

const char *gm_engine_why_no_meter(const struct gm_engine *engine)
{
    const char *why;
    return gm_meter_state(engine->meter, &why) == GM_METER_OFF ? why : NULL;
}

bool gm_engine_take_sample(struct gm_engine *engine, struct gm_meter_sample *sample)
{
    return engine->meter && gm_meter_take(engine->meter, sample);
}
