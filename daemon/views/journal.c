/* The reader of events: see journal.h. */
#include "daemon/views/journal.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "daemon/views/record.h"
#include "daemon/views/why.h"

static const char *name_of(const struct gm_event *event, char text[128])
{
    return event->app == GM_NONE ? "nobody"
                                 : gm_view_name(event->app, event->pid, event->name, text, 128);
}

static void tell_turn(const struct gm_event *event)
{
    const struct gm_turn *turn = &event->turn.turn;
    const enum gm_model model = (enum gm_model)turn->model;
    char who[128];
    if (turn->to == GM_TURN_ILLEGAL)
        gm_log(GM_LOG_ERROR, "%s %" PRIu32 " of %s: %s is not allowed in state %s: ignored",
               gm_model_text(model), turn->id, name_of(event, who),
               gm_model_event_text(model, turn->event), gm_model_state_text(model, turn->from));
    else if (model == GM_MODEL_APP)
        gm_log(GM_LOG_DEBUG, "app %" PRIu32 " (pid %d): %s -> %s", turn->id, (int)event->pid,
               gm_app_state_text((enum gm_app_state)turn->from),
               gm_app_state_text((enum gm_app_state)turn->to));
}

static void tell_budget(const struct gm_event *event)
{
    gm_log(event->budget.bytes < event->budget.was ? GM_LOG_WARN : GM_LOG_INFO,
           "GPU %d: the budget is %" PRIu64 " MiB now (at most %" PRIu64 ", it was %" PRIu64
           "): %s",
           event->device, event->budget.bytes >> 20, event->budget.most >> 20,
           event->budget.was >> 20, gm_why_text(event->budget.why));
}

/* ---- notes ---- */

/* "app 3 (pid 812, python3, level 2)" */
static void name_party(const struct gm_party *party, char *text, size_t size)
{
    snprintf(text, size, "app %" PRIu32 " (pid %d, %s, level %" PRIu32 ")", party->app,
             (int)party->pid, party->name, party->level);
}

/* "drain 1.2, copies 3.4": where its time went, in ms; all of it. */
static void name_parts(const struct gm_switch *took, char *text, size_t size)
{
    static const char *const names[GM_PARTS] = {
#define GM_PART(NAME, name, shown, words) [GM_PART_##NAME] = shown,
#include "common/parts.def"
#undef GM_PART
    };
    size_t length = 0;
    text[0] = '\0';
    for (int part = 0; part < GM_PARTS; part++) {
        if (took->part_ns[part] == 0)
            continue;
        int n = snprintf(text + length, size - length, "%s%s %.1f", length ? ", " : "", names[part],
                         (double)took->part_ns[part] / 1e6);
        length += n > 0 && (size_t)n < size - length ? (size_t)n : 0;
    }
}

static void tell_switch(const struct gm_note *note)
{
    const struct gm_switch *took = &note->took;
    const uint64_t moved = took->bytes[GM_WAY_OUT] + took->bytes[GM_WAY_IN];
    char who[128], left[512] = "", stayed[96] = "", parts[256];
    size_t length = 0;

    for (uint32_t i = 0; i < note->n_leavers && i < GM_NOTE_LEAVERS; i++) {
        name_party(&note->leavers[i], who, sizeof who);
        int n = snprintf(left + length, sizeof left - length, "%s%s: %s",
                         i ? ", " : ", in the place of ", who, gm_why_name(note->leavers[i].why));
        length += n > 0 && (size_t)n < sizeof left - length ? (size_t)n : 0;
    }
    name_party(&note->app, who, sizeof who);
    if (took->clean + took->zero > 0)
        snprintf(stayed, sizeof stayed, ", not copied out %llu unchanged and %llu zero",
                 (unsigned long long)(took->clean >> 20), (unsigned long long)(took->zero >> 20));
    name_parts(took, parts, sizeof parts);
    gm_log(GM_LOG_DEBUG, /* often: mux-ctl log has them */
           "switch %llu to %s: %s%s: %.1f ms: %s; %llu MiB out, %llu in, at %.1f GB/s%s; in lower "
           "tiers %llu MiB down, %llu up",
           (unsigned long long)took->seq, who, gm_why_name(note->app.why), left,
           (double)took->total_ns / 1e6, parts, (unsigned long long)(took->bytes[GM_WAY_OUT] >> 20),
           (unsigned long long)(took->bytes[GM_WAY_IN] >> 20),
           took->link_ns ? (double)moved / (double)took->link_ns : 0.0, stayed,
           (unsigned long long)(took->lowered >> 20), (unsigned long long)(took->raised >> 20));
}

static void tell_set(const struct gm_note *note, const char *who)
{
    char what[160];
    gm_log(GM_LOG_INFO, "%s: set to %s by uid %u", who,
           gm_settings_format(&note->said, what, sizeof what), (unsigned)note->by);
}

static void tell_refusal(const struct gm_note *note, const char *who)
{
    const char *raise = gm_view_raise(&note->refusal);
    char why[256], bytes[32], times[48] = "";
    if (note->n_refused > 1)
        snprintf(times, sizeof times, ", the last of %llu refusals",
                 (unsigned long long)note->n_refused);
    gm_log(GM_LOG_WARN, "%s: refused %s%s: %s%s%s", who,
           gm_format_size(note->refusal.bytes, bytes, sizeof bytes), times,
           gm_view_refusal(&note->refusal, why, sizeof why), raise[0] ? ": raise " : "", raise);
}

/* Into the log as the next entry, which replaces the oldest. */
static void keep(struct gm_journal *journal, const struct gm_event *event,
                 const struct gm_note *note)
{
    struct gm_note *entry = &journal->entry[++journal->n % GM_NOTES];
    *entry = *note;
    entry->seq = journal->n;
    entry->kind = event->kind;
    entry->gpu = event->device;
    entry->at = event->at;
    entry->wall = gm_wall_time();
}

void gm_journal_event(struct gm_journal *journal, const struct gm_event *event)
{
    const uint32_t index = event->gpu, id = event->app;
    struct gm_record *record = journal->gpu[index].record;
    char who[128], why[128];
    switch (event->kind) {
    case GM_EVENT_TURN:
        tell_turn(event);
        break;
    case GM_EVENT_JOIN:
        gm_log(GM_LOG_INFO, "app %" PRIu32 ": pid %d, uid %u, %s", id, (int)event->pid,
               (unsigned)event->uid, event->name);
        break;
    case GM_EVENT_DRAINED:
        gm_log(GM_LOG_DEBUG, "app %" PRIu32 " %s in %.3f ms", id,
               event->drained.is_parked ? "parked" : "drained", (double)event->drained.ns / 1e6);
        break;
    case GM_EVENT_BUSY:
        gm_log(GM_LOG_INFO, "%s keeps the GPU: it %s", name_of(event, who),
               event->busy.has_answered ? "did not finish its work in time" : "does not answer");
        break;
    case GM_EVENT_GAVE_BACK:
        gm_log(GM_LOG_INFO, "%s gives its turn back: %s", name_of(event, who),
               event->gave_back.is_silent ? "it does not answer"
                                          : "its memory cannot be brought in now");
        break;
    case GM_EVENT_SILENT:
        gm_log(GM_LOG_INFO, "%s does not answer: its memory stays where it is",
               name_of(event, who));
        break;
    case GM_EVENT_ANSWERS:
        gm_log(GM_LOG_INFO, "%s answers again", name_of(event, who));
        break;
    case GM_EVENT_STOPPED:
        gm_log(GM_LOG_INFO, "%s: %s", name_of(event, who),
               gm_view_reason(&event->stopped.why, "", "", why, sizeof why));
        break;
    case GM_EVENT_CONTINUED:
        gm_log(GM_LOG_INFO, "%s goes on", name_of(event, who));
        break;
    case GM_EVENT_PLAN:
        if (event->plan.is_ahead)
            gm_log(GM_LOG_DEBUG, "staging for app %" PRIu32 " (pid %d): %" PRIu32 " moves", id,
                   (int)event->pid, event->plan.moves);
        break;
    case GM_EVENT_BUDGET:
        tell_budget(event);
        break;
    case GM_EVENT_SCHED:
        gm_record_config(record, event->sched.config);
        break;
    case GM_EVENT_INPUT:
        gm_record_event(record, event->at, event->input.event);
        break;
    case GM_EVENT_POLICY:
        gm_record_policy(record, event->at, id, event->policy.policy);
        break;
    case GM_EVENT_SWITCH:
        keep(journal, event, event->switch_.note);
        tell_switch(event->switch_.note);
        break;
    case GM_EVENT_LEVEL:
        keep(journal, event, event->level.note);
        gm_log(GM_LOG_DEBUG, "%s: level %u -> %u", name_of(event, who), event->level.note->from,
               event->level.note->app.level);
        break;
    case GM_EVENT_SET:
        keep(journal, event, event->set.note);
        tell_set(event->set.note, name_of(event, who));
        break;
    case GM_EVENT_REFUSED:
        keep(journal, event, event->refused.note);
        journal->gpu[index].refusals[journal->gpu[index].n_refusals++ % GM_REFUSALS_KEPT] =
            journal->entry[journal->n % GM_NOTES];
        tell_refusal(event->refused.note, name_of(event, who));
        break;
    case GM_EVENT_ALLOC: /* these are counted only */
    case GM_EVENT_FREE:
    case GM_EVENT_PARKED:
    case GM_EVENT_YIELDED:
    case GM_EVENT_COPY:
    case GM_EVENT_COPIED:
    case GM_EVENT_ASKED:
    case GM_EVENT_ANSWERED:
    case GM_EVENT_HINT:
    case GM_EVENT_HINT_IGNORED:
    case GM_EVENT_HELD:
    case GM_EVENT_SHORT_TURN:
    case GM_EVENTS:
        break;
    }
}
