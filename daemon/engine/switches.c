/* Measures switches: how long they took, and where the time went. Called by engine.c; calls log.c.
 */
#include "daemon/engine/inside.h"

/* The sums at this moment, open waits included. */
static struct gm_moment take_moment(const struct gm_engine *engine)
{
    struct gm_moment moment = engine->sums;
    moment.at = engine->now;
    if (engine->lower_since)
        moment.lower_ns += engine->now - engine->lower_since;
    if (engine->pinned_since)
        moment.pinned_ns += engine->now - engine->pinned_since;
    return moment;
}

static uint64_t since(uint64_t end, uint64_t begin)
{
    return end > begin ? end - begin : 0;
}

/* The engine notes the first copy and the last drain since an app was chosen. Others that were
 * chosen before and still load keep what it has for them. */
static void keep_for_others(struct gm_engine *engine, uint32_t id)
{
    for (uint32_t other = 0; other < engine->config.max_apps; other++) {
        struct gm_app *app = &engine->apps[other];
        if (other == id || app->state != GM_APP_LOADING)
            continue;
        if (engine->last_drain_at)
            app->chosen.last_drain_at = engine->last_drain_at;
        for (int way = 0; way < GM_WAYS; way++)
            if (app->chosen.first_copy_at[way] == 0)
                app->chosen.first_copy_at[way] = engine->first_copy_at[way];
    }
}

/* An app was chosen: its switch begins. Copies that began before it belong to another. */
void gm_engine_begin_switch(struct gm_engine *engine, uint32_t id)
{
    keep_for_others(engine, id);
    engine->apps[id].chosen.begin = take_moment(engine);
    engine->apps[id].moves.progress_at = engine->now;
    gm_engine_ping(engine, id);
    engine->last_drain_at = 0;
    engine->apps[id].chosen.last_drain_at = 0;
    for (int way = 0; way < GM_WAYS; way++)
        engine->first_copy_at[way] = engine->apps[id].chosen.first_copy_at[way] = 0;
}

/* Its gate opens: write down where the time went. Nothing moved and nobody yielded: not a switch.
 */
void gm_engine_record_switch(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const struct gm_moment begin = app->chosen.begin, end = take_moment(engine);
    struct gm_switch entry = {.app = id, .pid = app->pid, .at = engine->now};
    const uint64_t drained =
        engine->last_drain_at ? engine->last_drain_at : app->chosen.last_drain_at;
    uint64_t first = UINT64_MAX, last = 0;

    entry.total_ns = since(end.at, begin.at);
    entry.drain_ns = since(drained, begin.at);
    entry.plan_ns = end.plan_ns - begin.plan_ns;
    entry.lower_ns = end.lower_ns - begin.lower_ns;
    entry.pinned_ns = end.pinned_ns - begin.pinned_ns;
    entry.lowered = end.lowered - begin.lowered;
    entry.raised = end.raised - begin.raised;
    entry.clean = end.clean - begin.clean;
    entry.zero = end.zero - begin.zero;
    for (int way = 0; way < GM_WAYS; way++) {
        entry.bytes[way] = end.bytes[way] - begin.bytes[way];
        uint64_t began = app->chosen.first_copy_at[way];
        began = began ? began : engine->first_copy_at[way];
        if (began == 0)
            continue; /* what ended meanwhile was begun for others */
        entry.way_ns[way] = since(engine->last_copy_at[way], began);
        if (began < first)
            first = began;
        if (engine->last_copy_at[way] > last)
            last = engine->last_copy_at[way];
    }
    if (entry.bytes[GM_WAY_OUT] + entry.bytes[GM_WAY_IN] + entry.clean + entry.zero +
            entry.drain_ns ==
        0) {
        gm_engine_note_switch(engine, id, NULL);
        return;
    }
    entry.copy_ns = first == UINT64_MAX ? 0 : since(last, first);
    last = last > drained ? last : drained;
    entry.map_ns = since(end.at, last > begin.at ? last : begin.at);
    entry.seq = ++engine->n_history;
    engine->history[entry.seq % GM_HISTORY] = entry;
    gm_engine_note_switch(engine, id, &entry);
}
