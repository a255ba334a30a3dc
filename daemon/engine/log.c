/*
 * Notes of the scheduler's decisions, which views/log.c shows; also lines of the daemon's log. Owns
 * the notes (struct gm_notes, one for all engines), refusals and leavers. Called by the files that
 * decide; calls core/sched.
 *
 * There is a note for each switch (who came, why, in whose place, why those left), each change of a
 * level by itself, each change of settings, and each refusal of memory. The last GM_NOTES are kept,
 * and the last few refusals apart. A switch takes the place of those who left while the newcomer
 * waited.
 */
#include "daemon/engine/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/size.h"

static struct gm_party party(const struct gm_engine *engine, uint32_t id, const char *why,
                             const struct gm_sched_account *account)
{
    const struct gm_app *app = &engine->apps[id];
    struct gm_party party = {.app = id, .pid = app->pid, .level = account->level, .why = why};
    memcpy(party.name, app->name, sizeof party.name);
    return party;
}

/* The next entry, dated. It replaces the oldest. */
static struct gm_note *add_note(struct gm_engine *engine, enum gm_note_kind kind)
{
    struct gm_notes *notes = engine->notes;
    struct gm_note *note = &notes->entry[++notes->n % GM_NOTES];
    memset(note, 0, sizeof *note);
    note->seq = notes->n;
    note->gpu = engine->config.gpu;
    note->kind = kind;
    note->at = engine->now;
    note->wall = gm_wall_time();
    return note;
}

static struct gm_sched_account account_of(const struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_account account = {.reason = GM_WHY_NONE, .ahead = UINT32_MAX};
    gm_sched_account(engine->sched, engine->now, id, &account);
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
    slot->party =
        party(engine, id, has_left ? "left" : gm_sched_reason_name(account.reason), &account);
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

/* "app 3 (pid 812, python3, level 2)" */
static void name_party(const struct gm_party *party, char *text, size_t size)
{
    snprintf(text, size, "app %" PRIu32 " (pid %d, %s, level %" PRIu32 ")", party->app,
             (int)party->pid, party->name, party->level);
}

static void tell_switch(const struct gm_note *note)
{
    const struct gm_switch *took = &note->took;
    const uint64_t moved = took->bytes[GM_WAY_OUT] + took->bytes[GM_WAY_IN];
    char who[128], left[512] = "", stayed[96] = "";
    size_t length = 0;

    for (uint32_t i = 0; i < note->n_leavers && i < GM_NOTE_LEAVERS; i++) {
        name_party(&note->leavers[i], who, sizeof who);
        int n = snprintf(left + length, sizeof left - length, "%s%s: %s",
                         i ? ", " : ", in the place of ", who, note->leavers[i].why);
        length += n > 0 && (size_t)n < sizeof left - length ? (size_t)n : 0;
    }
    name_party(&note->app, who, sizeof who);
    if (took->clean + took->zero > 0)
        snprintf(stayed, sizeof stayed, ", not copied out %llu unchanged and %llu zero",
                 (unsigned long long)(took->clean >> 20), (unsigned long long)(took->zero >> 20));
    gm_log(GM_LOG_INFO,
           "switch %llu to %s: %s%s: %.1f ms: drain %.1f, plan %.1f, copies %.1f (%llu MiB out, "
           "%llu in, at %.1f GB/s%s), map %.1f, lower tiers %.1f (%llu MiB down, %llu up), pinned "
           "room "
           "%.1f",
           (unsigned long long)took->seq, who, note->app.why, left, (double)took->total_ns / 1e6,
           (double)took->drain_ns / 1e6, (double)took->plan_ns / 1e6, (double)took->copy_ns / 1e6,
           (unsigned long long)(took->bytes[GM_WAY_OUT] >> 20),
           (unsigned long long)(took->bytes[GM_WAY_IN] >> 20),
           took->copy_ns ? (double)moved / (double)took->copy_ns : 0.0, stayed,
           (double)took->map_ns / 1e6, (double)took->lower_ns / 1e6,
           (unsigned long long)(took->lowered >> 20), (unsigned long long)(took->raised >> 20),
           (double)took->pinned_ns / 1e6);
}

void gm_engine_note_switch(struct gm_engine *engine, uint32_t id, const struct gm_switch *took)
{
    struct gm_sched_account account = account_of(engine, id);

    forget_leaver(engine, id);
    if (!took)
        return;
    struct gm_note *note = add_note(engine, GM_NOTE_SWITCH);
    uint64_t since = account.waiting_at ? account.waiting_at : engine->apps[id].chosen.begin.at;
    note->app = party(engine, id, gm_sched_reason_name(account.reason), &account);
    note->took = *took;
    note->wait_ns = engine->now > since ? engine->now - since : 0;
    take_leavers(engine, id, since, note);
    tell_switch(note);
}

void gm_engine_note_levels(struct gm_engine *engine)
{
    if (!engine->has_decided)
        return;
    engine->has_decided = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_UNUSED || app->state == GM_APP_GONE)
            continue;
        struct gm_sched_account account = account_of(engine, id);
        if (account.level == app->policy.level)
            continue;
        struct gm_note *note = add_note(engine, GM_NOTE_LEVEL);
        note->app =
            party(engine, id, account.level > app->policy.level ? "used up" : "rested", &account);
        note->from = app->policy.level;
        app->policy.level = account.level;
        gm_log(GM_LOG_DEBUG, "app %u (pid %d, %s): level %u -> %u", id, (int)app->pid, app->name,
               note->from, account.level);
    }
}

void gm_engine_note_set(struct gm_engine *engine, uint32_t id, uid_t by,
                        const struct gm_settings *said, const struct gm_sched_policy *policy)
{
    struct gm_sched_account account = account_of(engine, id);
    struct gm_note *note = add_note(engine, GM_NOTE_SET);
    char who[128], what[160];

    note->app = party(engine, id, "set", &account);
    note->by = by;
    note->said = *said;
    note->policy = *policy;
    engine->apps[id].policy.level = account.level;
    gm_log(GM_LOG_INFO, "%s: set to %s by uid %u", gm_engine_name(engine, id, who, sizeof who),
           gm_settings_format(said, what, sizeof what), (unsigned)by);
}

void gm_engine_note_refusal(struct gm_engine *engine, uint32_t id,
                            const struct gm_alloc_refusal *refusal, uint64_t n)
{
    struct gm_sched_account account = account_of(engine, id);
    struct gm_note *note = add_note(engine, GM_NOTE_REFUSED);
    const char *raise = gm_engine_refusal_raise(refusal);
    char who[128], why[256], bytes[32], times[48] = "";

    note->app = party(engine, id, gm_engine_refusal_word(refusal->reason), &account);
    note->refusal = *refusal;
    note->n_refused = n;
    engine->refused_allocs += n;
    engine->refusals[engine->n_refusals++ % GM_REFUSALS_KEPT] = *note;
    if (n > 1)
        snprintf(times, sizeof times, ", the last of %llu refusals", (unsigned long long)n);
    gm_log(GM_LOG_WARN, "%s: refused %s%s: %s%s%s", gm_engine_name(engine, id, who, sizeof who),
           gm_format_size(refusal->bytes, bytes, sizeof bytes), times,
           gm_engine_refusal_text(refusal, why, sizeof why), raise[0] ? ": raise " : "", raise);
}
