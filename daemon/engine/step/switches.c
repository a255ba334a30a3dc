/* Measures switches: how long they took, and where the time went. Owns the parts. Called by
 * run.c; calls log.c and core/parts. */
#include "daemon/engine/step/switches.h"

#include <string.h>

#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/step/log.h"

void gm_engine_pass(struct gm_engine *engine)
{
    gm_parts_pass(&engine->parts, engine->now);
}

/* What switches wait for. With several at once, they have it in common. */
void gm_engine_look_under_way(struct gm_engine *engine)
{
    struct gm_under_way under_way = {0};
    bool *has = under_way.has;
    for (int way = 0; way < GM_WAYS; way++) {
        under_way.is_copying[way] = gm_engine_is_copying(engine, (enum gm_way)way);
        has[GM_PART_COPY] = has[GM_PART_COPY] || under_way.is_copying[way];
    }
    /* While the link is busy both ways, more room in pinned memory would gain nothing. */
    const bool is_link_full = under_way.is_copying[GM_WAY_IN] && under_way.is_copying[GM_WAY_OUT];
    has[GM_PART_LOWER] = engine->is_waiting_below && !is_link_full;
    has[GM_PART_PINNED] = engine->is_short_of_pages && !is_link_full;
    has[GM_PART_HASH] = engine->hashing.copies > 0;
    has[GM_PART_UNMAP] = engine->table->unmaps > 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        has[GM_PART_DRAIN] = has[GM_PART_DRAIN] || app->state == GM_APP_DRAINING;
        if (app->state == GM_APP_LOADING && (app->batches.unanswered_maps > 0 || app->batches.ping))
            has[GM_PART_MAP] = true;
    }
    gm_parts_turn(&engine->parts, engine->now, &under_way);
}

/* The sums at this moment. */
static struct gm_moment take_moment(struct gm_engine *engine)
{
    struct gm_moment moment = engine->sums;
    gm_engine_pass(engine);
    moment.at = engine->parts.at;
    memcpy(moment.part_ns, engine->parts.ns, sizeof moment.part_ns);
    memcpy(moment.way_ns, engine->parts.way_ns, sizeof moment.way_ns);
    moment.link_ns = engine->parts.link_ns;
    return moment;
}

/* An app was chosen: its switch begins. */
void gm_engine_begin_switch(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].chosen.begin = take_moment(engine);
    gm_engine_progressed(engine, id);
    gm_engine_ping(engine, id);
}

/* Its gate opens: write down where the time went. Nothing moved and nobody yielded: not a switch.
 */
void gm_engine_record_switch(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const struct gm_moment begin = app->chosen.begin, end = take_moment(engine);
    struct gm_switch entry = {.app = id, .pid = app->pid, .at = engine->now};

    entry.total_ns = end.at - begin.at;
    for (int part = 0; part < GM_PARTS; part++)
        entry.part_ns[part] = end.part_ns[part] - begin.part_ns[part];
    for (int way = 0; way < GM_WAYS; way++) {
        entry.way_ns[way] = end.way_ns[way] - begin.way_ns[way];
        entry.bytes[way] = end.bytes[way] - begin.bytes[way];
    }
    entry.link_ns = end.link_ns - begin.link_ns;
    entry.lowered = end.lowered - begin.lowered;
    entry.raised = end.raised - begin.raised;
    entry.clean = end.clean - begin.clean;
    entry.zero = end.zero - begin.zero;
    if (entry.bytes[GM_WAY_OUT] + entry.bytes[GM_WAY_IN] + entry.clean + entry.zero +
            entry.part_ns[GM_PART_DRAIN] ==
        0) {
        gm_engine_note_switch(engine, id, NULL);
        return;
    }
    entry.seq = ++engine->n_history;
    engine->history[entry.seq % GM_HISTORY] = entry;
    gm_engine_note_switch(engine, id, &entry);
}
