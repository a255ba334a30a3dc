/*
 * Timeslices by class (core/timeslice), and telling programs theirs. Owns gm_app.timeslice_us.
 * Called at the end of a round of the loop, when it is known who runs and who is idle.
 *
 * A program whose gate closes keeps its timeslice: it runs nothing, and is looked at again when it
 * does.
 */
#include "daemon/engine/state.h"

#include "common/features.h"
#include "common/log.h"
#include "daemon/core/timeslice.h"

static void tell(struct gm_engine *engine, uint32_t id, uint64_t us)
{
    struct gm_app *app = &engine->apps[id];
    if (atomic_load(&app->stat->features_off) & GM_FEATURE_TIMESLICE)
        us = 0; /* it can have no other */
    if (us == app->timeslice_us)
        return;
    const struct gm_msg_timeslice message = {.us = us};
    app->timeslice_us = us;
    gm_log(GM_LOG_DEBUG, "app %u: its timeslice is %llu us", id, (unsigned long long)us);
    engine->config.outlet.send(app->session, GM_MSG_TIMESLICE, &message, NULL, 0, NULL, 0);
}

void gm_engine_tell_timeslices(struct gm_engine *engine)
{
    struct gm_timeslice_app *running = engine->running;
    uint32_t n = 0;
    if (engine->config.latency_mode == GM_LATENCY_OFF)
        return;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state == GM_APP_RUNNING)
            running[n++] = (struct gm_timeslice_app){.class = gm_engine_class(engine, id),
                                                     .is_idle = engine->apps[id].is_idle};
    gm_timeslice_assign(running, n);
    n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state == GM_APP_RUNNING)
            tell(engine, id, running[n++].us);
}
