/* What is noted for the log: levels, settings, leavers; how long switches took. */
#include "daemon/engine/step/log.h"

#include <string.h>

#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/feed.h"

/* ---- how long switches took ---- */

/* Measures switches: how long they took, and where the time went. Owns the parts. */

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

/* ---- notes ---- */

/*
 * Notes of decisions, as the events SWITCH, LEVEL, SET and REFUSED tell them. Owns the leavers.
 *
 * There is a note for each switch (who came, why, in whose place, why those left), each change of
 * a level by itself, each change of settings, and each refusal of memory. A switch takes the place
 * of those who left while the newcomer waited.
 */

static struct gm_party party(const struct gm_engine *engine, uint32_t id, enum gm_why why,
                             const struct gm_sched_account *account)
{
    const struct gm_app *app = &engine->apps[id];
    struct gm_party party = {.app = id, .pid = app->pid, .level = account->level, .why = why};
    memcpy(party.name, app->name, sizeof party.name);
    return party;
}

static struct gm_sched_account account_of(const struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_account account = {.reason = GM_WHY_NONE, .ahead = UINT32_MAX};
    gm_engine_account(engine, id, &account);
    return account;
}

static void forget_leaver(struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = 0; i < GM_LEAVERS; i++)
        if (engine->leavers[i].party.app == id && !engine->leavers[i].has_left)
            engine->leavers[i].at = 0;
}

void gm_engine_note_leaver(struct gm_engine *engine, uint32_t id, bool has_left)
{
    struct gm_sched_account account = account_of(engine, id);
    struct gm_leaver *slot = &engine->leavers[0];
    for (uint32_t i = 0; i < GM_LEAVERS && slot->at != 0; i++)
        if (engine->leavers[i].at < slot->at)
            slot = &engine->leavers[i];
    slot->at = engine->now;
    slot->has_left = has_left;
    slot->party = party(engine, id, has_left ? GM_WHY_LEFT : account.reason, &account);
}

/* Those who yielded since `since` become the note's. */
static void take_leavers(struct gm_engine *engine, uint32_t id, uint64_t since,
                         struct gm_note *note)
{
    for (uint32_t i = 0; i < GM_LEAVERS; i++) {
        struct gm_leaver *leaver = &engine->leavers[i];
        if (leaver->at == 0 || leaver->at < since || leaver->party.pid == engine->apps[id].pid)
            continue;
        if (note->n_leavers < GM_NOTE_LEAVERS)
            note->leavers[note->n_leavers] = leaver->party;
        note->n_leavers++;
        leaver->at = 0;
    }
}

void gm_engine_note_switch(struct gm_engine *engine, uint32_t id, const struct gm_switch *took)
{
    struct gm_sched_account account = account_of(engine, id);

    forget_leaver(engine, id);
    if (!took)
        return;
    uint64_t since = account.waiting_at ? account.waiting_at : engine->apps[id].chosen.begin.at;
    struct gm_note note = {.app = party(engine, id, account.reason, &account),
                           .took = *took,
                           .wait_ns = engine->now > since ? engine->now - since : 0};
    take_leavers(engine, id, since, &note);
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_SWITCH, .app = id, .switch_.note = &note});
}

void gm_engine_note_levels(struct gm_engine *engine)
{
    if (engine->levels_noted == engine->decisions)
        return;
    engine->levels_noted = engine->decisions;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_UNUSED || app->state == GM_APP_GONE || app->state == GM_APP_LOST)
            continue;
        struct gm_sched_account account = account_of(engine, id);
        if (account.level == app->level_noted)
            continue;
        const struct gm_note note = {
            .app =
                party(engine, id, account.level > app->level_noted ? GM_WHY_USED_UP : GM_WHY_RESTED,
                      &account),
            .from = app->level_noted};
        app->level_noted = account.level;
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_LEVEL, .app = id, .level.note = &note});
    }
}

void gm_engine_begin_notes(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].level_noted = account_of(engine, id).level;
}

void gm_engine_note_set(struct gm_engine *engine, uint32_t id, uid_t by,
                        const struct gm_settings *said, const struct gm_sched_policy *policy)
{
    struct gm_sched_account account = account_of(engine, id);
    const struct gm_note note = {
        .app = party(engine, id, GM_WHY_SET, &account), .by = by, .said = *said, .policy = *policy};
    engine->apps[id].level_noted = account.level;
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_SET, .app = id, .set.note = &note});
}

void gm_engine_note_refusal(struct gm_engine *engine, uint32_t id, const struct gm_reason *refusal,
                            uint64_t n)
{
    struct gm_sched_account account = account_of(engine, id);
    const struct gm_note note = {
        .app = party(engine, id, refusal->why, &account), .refusal = *refusal, .n_refused = n};
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_REFUSED, .app = id, .times = n, .refused.note = &note});
}
