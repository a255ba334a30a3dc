/*
 * Processes that end. Owns gm_app.exit. Called by apps.c and step.c.
 *
 * Only when the process has ended is nothing of it left on the GPU, if no other has copies of what
 * it had open (client.h). Frames that it had mapped are free for its user's next program then. If
 * that is not sure, or takes too long, they are destroyed, which costs no safety: the driver keeps
 * the memory for as long as anything maps it. It costs exactness, since the budget then counts
 * bytes as free that are not yet. A host frame's memory is used again, by another program of the
 * same user: it waits for the process, however long that takes.
 *
 * Where there are copies, frames are destroyed at once, too. Those whose memory the driver does not
 * give back then are counted until the last copy is closed (gm_engine_reap).
 */
#include "daemon/engine/step/exits.h"

#include "common/features.h"

void gm_engine_stop_watching(struct gm_app *app)
{
    app->exit.is_awaited = false;
}

void gm_engine_watch_exit(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->exit.is_awaited = app->client->exit != NULL;
}

void gm_engine_await_exit(struct gm_engine *engine, uint32_t id, bool has_hung_up, bool was_idle)
{
    engine->apps[id].exit.left_at = engine->now;
    engine->apps[id].exit.has_hung_up = has_hung_up;
    engine->apps[id].exit.was_idle = was_idle;
}

void gm_engine_exited(struct gm_engine *engine, uint32_t id)
{
    gm_engine_stop_watching(&engine->apps[id]);
    gm_engine_copies_ended(engine, id);
}

uint32_t gm_engine_leaving_with(const struct gm_engine *engine, uint32_t frame, uint32_t but)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (id != but && engine->apps[id].state == GM_APP_GONE &&
            gm_engine_may_reach(engine, id, frame))
            return id;
    return GM_NONE;
}

bool gm_engine_is_over(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const uint32_t off = app->stat ? atomic_load(&app->stat->features_off) : GM_FEATURE_ISOLATION;
    return app->client->lease >= 0 && app->exit.has_hung_up && !gm_engine_is_left(app) &&
           !app->exit.is_late && ((off & GM_FEATURE_ISOLATION) == 0 || app->exit.was_idle);
}

/* Frames wait for the app's process no more. Shared ones may have to wait for another's. */
static void release(struct gm_engine *engine, uint32_t id, bool has_ended)
{
    struct gm_table *table = engine->table;
    const bool is_sure = has_ended && gm_engine_is_over(engine, id);
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next) {
        const uint32_t other =
            table->frames[i].exit_of == id ? gm_engine_leaving_with(engine, i, id) : GM_NONE;
        if (other != GM_NONE)
            gm_table_hand_frame(table, i, other, is_sure);
    }
    gm_table_release_frames(table, id, has_ended, is_sure);
}

void gm_engine_copies_ended(struct gm_engine *engine, uint32_t id)
{
    if (!gm_engine_is_left(&engine->apps[id]))
        release(engine, id, true);
}

/* The app may have the frame mapped, in which is data of another one. */
static bool has_of_another(const struct gm_table *table, uint32_t frame, uint32_t id)
{
    const uint32_t chunk = table->frames[frame].chunk;
    return table->frames[frame].mapper == id && chunk != GM_NONE && table->chunks[chunk].app != id;
}

void gm_engine_exit_late(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    struct gm_app *app = &engine->apps[id];
    bool is_needed = false; /* others would use what it may reach */
    for (uint32_t i = 0; i < table->max_frames && !is_needed; i++)
        is_needed = (table->frames[i].is_host || has_of_another(table, i, id)) &&
                    gm_engine_may_reach(engine, id, i);
    release(engine, id, false);
    app->exit.is_late = true;
    if (!is_needed)
        gm_engine_stop_watching(app);
}
