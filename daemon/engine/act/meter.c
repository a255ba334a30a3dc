/*
 * Has the meter count what crosses the link, and takes its samples over. Owns the meter, and
 * whether it runs. Called by windows.c; calls the meter.
 */
#include "daemon/engine/act/meter.h"

#include <stdio.h>
#include <unistd.h>

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

const char *gm_engine_why_unchecked(const struct gm_engine *engine, char *text, size_t size)
{
    const char *why = gm_engine_why_no_meter(engine);
    if (why || engine->now >= engine->check.off_until)
        return why;
    if (engine->link.stranger == 0)
        return "others use the link";
    snprintf(text, size, "process %d, which is not gpumux's, uses the GPU",
             (int)engine->link.stranger);
    return text;
}

static bool is_known(const struct gm_engine *engine, pid_t pid)
{
    bool is_app = pid == getpid();
    for (uint32_t id = 0; id < engine->config.max_apps && !is_app; id++)
        is_app = engine->apps[id].state != GM_APP_UNUSED && engine->apps[id].pid == pid;
    return is_app;
}

pid_t gm_engine_stranger(const struct gm_engine *engine, const struct gm_meter_sample *sample)
{
    for (uint32_t i = 0; i < sample->n_processes; i++)
        if (!is_known(engine, sample->processes[i]))
            return sample->processes[i];
    return 0;
}

void gm_engine_measure(struct gm_engine *engine, bool is_on)
{
    if (engine->is_metering == is_on)
        return;
    engine->is_metering = is_on;
    gm_meter_run(engine->meter, is_on);
}

bool gm_engine_take_sample(struct gm_engine *engine, struct gm_meter_sample *sample)
{
    return engine->meter && gm_meter_take(engine->meter, sample);
}
