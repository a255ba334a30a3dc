/*
 * Notes of decisions, as the events SWITCH, LEVEL, SET and REFUSED tell them. Owns the leavers.
 * Called by the files that decide; calls core/sched.
 *
 * There is a note for each switch (who came, why, in whose place, why those left), each change of a
 * level by itself, each change of settings, and each refusal of memory. A switch takes the place of
 * those who left while the newcomer waited.
 */
#include "daemon/engine/step/log.h"

#include <string.h>

#include "daemon/engine/act/events.h"
#include "daemon/engine/step/feed.h"

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
