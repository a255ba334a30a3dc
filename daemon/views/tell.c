/* Lines of the daemon's log: see tell.h. */
#include "daemon/views/tell.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "common/text.h"
#include "common/units.h"
#include "daemon/core/check.h"
#include "daemon/views/why.h"

static const char *name_of(const struct gm_event *event, char text[128])
{
    return event->app == GM_NONE ? "nobody"
                                 : gm_view_name(event->app, event->pid, event->name, text, 128);
}

/* Of the frequent ones most have no line. */
static bool is_silent(const struct gm_event *event)
{
    const struct gm_turn *turn = &event->turn.turn;
    switch (event->kind) {
    case GM_EVENT_TURN:
        return turn->to != GM_TURN_ILLEGAL && turn->model != GM_MODEL_APP;
    case GM_EVENT_ANSWERED:
        return event->answered.result == 0;
    case GM_EVENT_COPY:
    case GM_EVENT_COPIED:
    case GM_EVENT_ASKED:
    case GM_EVENT_INPUT:
    case GM_EVENT_DECIDED:
        return true;
    default:
        return false;
    }
}

static void tell_turn(const struct gm_event *event, const char *who)
{
    const struct gm_turn *turn = &event->turn.turn;
    const enum gm_model model = (enum gm_model)turn->model;
    if (turn->to == GM_TURN_ILLEGAL)
        gm_log(GM_LOG_ERROR, "%s %" PRIu32 " of %s: %s is not allowed in state %s: ignored",
               gm_model_text(model), turn->id, who, gm_model_event_text(model, turn->event),
               gm_model_state_text(model, turn->from));
    else
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
    text[0] = '\0';
    for (int part = 0; part < GM_PARTS; part++) {
        if (took->part_ns[part] != 0)
            gm_text_add(text, size, "%s%s %.1f", *text ? ", " : "", names[part],
                        (double)took->part_ns[part] / 1e6);
    }
}

static void tell_switch(const struct gm_note *note)
{
    const struct gm_switch *took = &note->took;
    const uint64_t moved = took->bytes[GM_WAY_OUT] + took->bytes[GM_WAY_IN];
    char who[128], left[512] = "", stayed[96] = "", parts[256];

    for (uint32_t i = 0; i < note->n_leavers && i < GM_NOTE_LEAVERS; i++) {
        name_party(&note->leavers[i], who, sizeof who);
        gm_text_add(left, sizeof left, "%s%s: %s", i ? ", " : ", in the place of ", who,
                    gm_why_name(note->leavers[i].why));
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

static void tell_failed_copy(const struct gm_event *event, const char *who)
{
    static const char *const tiers[GM_TIERS] = {"nowhere", "GPU", "pinned memory", "paged memory",
                                                "disk"};
    const char *error = event->copy_failed.error;
    const unsigned from = event->copy_failed.from, to = event->copy_failed.to;
    const uint64_t wait_ms = event->copy_failed.wait_ns / GM_MS;
    if (from == GM_TIER_NONE)
        gm_log(GM_LOG_WARN, "GPU memory could not be cleared (%s): trying again in %" PRIu64 " ms",
               error, wait_ms);
    else if (from == GM_TIER_GPU || to == GM_TIER_GPU)
        gm_log(GM_LOG_WARN,
               "%s: a copy %s the GPU failed (%s): its memory stays where it is, trying again in "
               "%" PRIu64 " ms",
               who, from == GM_TIER_GPU ? "from" : "to", error, wait_ms);
    else
        gm_log(GM_LOG_ERROR, "a copy from %s to %s failed (%s), of %s: trying again in a while",
               tiers[from], tiers[to], error, who);
}

static void tell_answer(const struct gm_event *event, const char *who)
{
    const unsigned kind = event->answered.kind;
    if (kind == GM_BATCH_OPEN)
        return;
    if (kind == GM_BATCH_MAP)
        gm_log(GM_LOG_WARN, "%s could not map %" PRIu32 " chunks (CUDA error %d)", who,
               event->answered.n, (int)event->answered.result);
    else
        gm_log(GM_LOG_INFO, "%s cannot unmap (CUDA error %d): taken for exiting", who,
               (int)event->answered.result);
}

static void tell_on_host(const struct gm_event *event, const char *who)
{
    char part[32], all[32];
    gm_format_size(event->on_host.bytes, part, sizeof part);
    gm_format_size(event->on_host.all, all, sizeof all);
    if (event->on_host.bytes > 0)
        gm_log(GM_LOG_INFO, "%s: %s of its %s are in host memory, and read over the link", who,
               part, all);
    else
        gm_log(GM_LOG_INFO, "%s: all of its %s are on the GPU again", who, all);
}

static void tell_no_frame(const struct gm_event *event)
{
    if (event->no_frame.why == GM_WHY_NO_FILES)
        gm_log(GM_LOG_WARN,
               "cannot make GPU memory: all %" PRIu32 " of %" PRIu32 " open files that are for it "
               "are in use: raise LimitNOFILE or ulimit -n of gpumuxd",
               event->no_frame.files, event->no_frame.files_limit);
    else
        gm_log(GM_LOG_WARN,
               "cannot make GPU memory within the budget (%s): CUDA contexts and programs beside "
               "gpumux use it",
               event->no_frame.error);
}

static void tell_trim(const struct gm_event *event)
{
    char whose[64] = "";
    if (!event->trimmed.is_all)
        snprintf(whose, sizeof whose, ", of uid %" PRIu32 "'s", event->trimmed.user);
    gm_log(GM_LOG_INFO,
           "trim: %" PRIu64 " MiB on the GPU, %" PRIu64 " MiB pinned and %" PRIu64
           " MiB paged go back%s",
           event->trimmed.gpu >> 20, event->trimmed.pinned >> 20, event->trimmed.paged >> 20,
           whose);
}

static void tell_share(const struct gm_event *event, const char *who)
{
    switch (event->kind) {
    case GM_EVENT_SHARED:
        gm_log(GM_LOG_DEBUG, "%s shares %" PRIu64 " MiB: they stay on the GPU (share %" PRIu32 ")",
               who, event->shared.bytes >> 20, event->shared.share);
        break;
    case GM_EVENT_NOT_SHARED:
        gm_log(GM_LOG_WARN,
               "%s may not share %" PRIu64 " MiB: with the %" PRIu64 " MiB that are shared "
               "already, others could not run beside it",
               who, event->not_shared.bytes >> 20, event->not_shared.shared >> 20);
        break;
    case GM_EVENT_UNSHARED:
        gm_log(GM_LOG_DEBUG,
               "app %" PRIu32 " freed what it shares (share %" PRIu32 ", %" PRIu64
               " MiB) while %" PRIu32 " have it open: it stays until they close it",
               event->app, event->unshared.share, event->unshared.bytes >> 20,
               event->unshared.opens);
        break;
    case GM_EVENT_OPENED:
        gm_log(GM_LOG_DEBUG, "%s opens share %" PRIu32 " of app %" PRIu32 ": %" PRIu64 " MiB", who,
               event->opened.share, event->opened.owner, event->opened.bytes >> 20);
        break;
    case GM_EVENT_UNITED:
        if (event->united.is_made)
            gm_log(GM_LOG_INFO,
                   "%s has memory of app %" PRIu32 " (pid %d) mapped, on several GPUs: they run "
                   "together as group \"%s\"",
                   who, event->united.partner, (int)event->united.partner_pid, event->united.group);
        else
            gm_log(GM_LOG_WARN,
                   "%s has memory of app %" PRIu32
                   " (pid %d) mapped, on several GPUs, and does not "
                   "run together with it: %s",
                   who, event->united.partner, (int)event->united.partner_pid,
                   event->united.is_large ? "a GPU has no room for both"
                                          : "each has a GPUMUX_GROUP of its own");
        break;
    default:
        gm_log(GM_LOG_WARN,
               "app %" PRIu32 " (pid %d, %s, uid %" PRIu32 ") may not open what uid %" PRIu32
               " shares",
               event->app, (int)event->pid, event->name, event->uid, event->not_opened.user);
        break;
    }
}

/* A new app: what was said of it. */
static void tell_settings(const struct gm_event *event, const char *who)
{
    char what[192];
    switch (event->kind) {
    case GM_EVENT_RULED:
        gm_log(GM_LOG_INFO, "%s: by the rule %s", who, event->ruled.rule);
        break;
    case GM_EVENT_WISHED:
        gm_log(GM_LOG_INFO, "%s: by its environment %s", who,
               gm_settings_format(event->wished.settings, what, sizeof what));
        break;
    case GM_EVENT_IGNORED:
        gm_log(GM_LOG_WARN, "%s: %s: going on without it", who, event->ignored.why);
        break;
    default:
        gm_log(GM_LOG_WARN,
               "%s: oversize=host is not possible: GPU %d has no memory handles on the host; what "
               "is beyond the budget is refused",
               who, (int)event->device);
        break;
    }
}

static void tell_restart(const struct gm_note *note)
{
    gm_log(note->restart.broken > 0 || note->restart.wrong[0] ? GM_LOG_WARN : GM_LOG_INFO,
           "restarted in %.2f s: %" PRIu32
           " programs of the daemon before may come back%s%s; %" PRIu32 " live and cannot, %" PRIu32
           " have ended, %" PRIu32 " are unknown%s%s",
           (double)note->restart.took_ns / (double)GM_S, note->restart.taken,
           note->restart.taken > 0 ? ": " : "", note->restart.names, note->restart.cut,
           note->restart.ended, note->restart.broken, note->restart.wrong[0] ? ": " : "",
           note->restart.wrong);
}

/* The engine as a whole: its end, its faults, its time. */
static void tell_checked(const struct gm_event *event, const char *who)
{
    const uint64_t mib = event->checked.bytes >> 20;
    if (event->checked.step == GM_CHECKED_BACK)
        gm_log(GM_LOG_DEBUG,
               "%s: memory on the host is used (%" PRIu64 " MB/s): %" PRIu64 " MiB of it come back",
               who, event->checked.rate / 1000000, mib);
    else if (event->checked.step == GM_CHECKED_TRY)
        gm_log(GM_LOG_DEBUG, "%s: %" PRIu64 " MiB are tried on the host", who, mib);
    else
        gm_log(GM_LOG_INFO,
               "GPU %" PRId32 ": others use the link: for %" PRIu64 " s it is not asked which "
               "memory is used",
               event->device, (uint64_t)(event->checked.for_ns / GM_S));
}

static void tell_engine(const struct gm_event *event)
{
    switch (event->kind) {
    case GM_EVENT_SLEPT:
        gm_log(GM_LOG_WARN, "the daemon did not run for %" PRIu64 " ms: all deadlines begin anew",
               (uint64_t)(event->slept.ns / GM_MS));
        break;
    case GM_EVENT_SAVED:
        gm_log(event->saved.lost > 0 ? GM_LOG_WARN : GM_LOG_INFO,
               "%" PRIu32
               " programs go on without gpumux, with all of their memory; lost: %" PRIu32,
               event->saved.whole, event->saved.lost);
        break;
    case GM_EVENT_LOST:
        gm_log(GM_LOG_ERROR, "the daemon's CUDA context is lost (%s): stopping", event->lost.error);
        break;
    case GM_EVENT_CUT_OFF:
        gm_log_release(true); /* each of them is named, however many they are */
        break;
    case GM_EVENT_UNCHECKED:
        gm_log(GM_LOG_INFO,
               "GPU %" PRId32 ": what crosses its link tells nothing (%s): which memory is used, "
               "calls and launches alone say",
               event->device, event->unchecked.why);
        break;
    case GM_EVENT_HASH_OFF:
        if (event->hash_off.was_on)
            gm_log(GM_LOG_WARN,
                   "the GPU does not hash any more (%s): unchanged memory is copied out as well",
                   event->hash_off.why);
        else
            gm_log(GM_LOG_WARN, "%s: memory is copied out whether it has changed or not",
                   event->hash_off.why);
        break;
    default:
        if (event->fault.event < 0)
            gm_log(GM_LOG_ERROR, "scheduler: settings of app %" PRIu32 " refused (fault %d)",
                   event->fault.unit, (int)event->fault.fault);
        else
            gm_log(GM_LOG_ERROR, "scheduler: event %d of app %" PRIu32 " refused (fault %d)",
                   (int)event->fault.event, event->fault.unit, (int)event->fault.fault);
        break;
    }
}

void gm_view_tell(const struct gm_event *event)
{
    const uint32_t id = event->app;
    char name[128], why[128];
    if (is_silent(event))
        return;
    const char *who = name_of(event, name);
    switch (event->kind) {
    case GM_EVENT_TURN:
        tell_turn(event, who);
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
        gm_log(GM_LOG_INFO, "%s keeps the GPU: it did not finish its work in time", who);
        break;
    case GM_EVENT_GAVE_BACK:
        gm_log(GM_LOG_INFO, "%s gives its turn back: %s", who,
               event->gave_back.is_silent ? "it does not answer"
                                          : "its memory cannot be brought in now");
        break;
    case GM_EVENT_STAYS_LOST:
        gm_log(GM_LOG_WARN, "%s %s", who,
               gm_view_reason(&event->stays_lost.why, "", "", why, sizeof why));
        break;
    case GM_EVENT_STOPPED:
        gm_log(GM_LOG_INFO, "%s: %s", who,
               gm_view_reason(&event->stopped.why, "", "", why, sizeof why));
        break;
    case GM_EVENT_CONTINUED:
        gm_log(GM_LOG_INFO, "%s goes on", who);
        break;
    case GM_EVENT_PLAN:
        if (event->plan.is_ahead)
            gm_log(GM_LOG_DEBUG, "staging for app %" PRIu32 " (pid %d): %" PRIu32 " moves", id,
                   (int)event->pid, event->plan.moves);
        break;
    case GM_EVENT_BUDGET:
        tell_budget(event);
        break;
    case GM_EVENT_SWITCH:
        tell_switch(event->switch_.note);
        break;
    case GM_EVENT_LEVEL:
        gm_log(GM_LOG_DEBUG, "%s: level %u -> %u", who, event->level.note->from,
               event->level.note->app.level);
        break;
    case GM_EVENT_SET:
        tell_set(event->set.note, who);
        break;
    case GM_EVENT_REFUSED:
        tell_refusal(event->refused.note, who);
        break;
    case GM_EVENT_RESTARTED:
        tell_restart(event->restarted.note);
        break;
    case GM_EVENT_COPY_FAILED:
        tell_failed_copy(event, who);
        break;
    case GM_EVENT_ANSWERED:
        tell_answer(event, who);
        break;
    case GM_EVENT_PLACED:
        gm_log(GM_LOG_DEBUG,
               "%s: %" PRIu64 " MiB come from the host to the GPU, %" PRIu64 " leave it", who,
               event->placed.come >> 20, event->placed.leave >> 20);
        break;
    case GM_EVENT_ON_HOST:
        tell_on_host(event, who);
        break;
    case GM_EVENT_NO_FRAME:
        tell_no_frame(event);
        break;
    case GM_EVENT_NO_PINNED:
        gm_log(GM_LOG_WARN, "pinned memory refused at %" PRIu64 " MiB (%s): asking again",
               event->no_pinned.bytes >> 20, event->no_pinned.error);
        break;
    case GM_EVENT_NO_EXPORT:
        gm_log(GM_LOG_WARN, "cannot export host memory (%s): trying again", event->no_export.error);
        break;
    case GM_EVENT_TRIMMED:
        tell_trim(event);
        break;
    case GM_EVENT_SHARED:
    case GM_EVENT_NOT_SHARED:
    case GM_EVENT_UNSHARED:
    case GM_EVENT_OPENED:
    case GM_EVENT_UNITED:
    case GM_EVENT_NOT_OPENED:
        tell_share(event, who);
        break;
    case GM_EVENT_QUERIED:
        gm_log(GM_LOG_DEBUG,
               "app %" PRIu32 " looks idle: is its GPU work over? (query %" PRIu64 ")", id,
               event->queried.query);
        break;
    case GM_EVENT_IDLE:
        if (event->idle.query > 0)
            gm_log(GM_LOG_DEBUG, "app %" PRIu32 " is idle (query %" PRIu64 ")", id,
                   event->idle.query);
        else
            gm_log(GM_LOG_DEBUG, "app %" PRIu32 " is idle: it was paused, and nothing of it waits",
                   id);
        break;
    case GM_EVENT_TIMESLICE:
        gm_log(GM_LOG_DEBUG, "app %" PRIu32 ": its timeslice is %" PRIu64 " us", id,
               event->timeslice.us);
        break;
    case GM_EVENT_FEATURE:
        gm_log(GM_LOG_INFO, "%s does without %s, as others will here: %s", who, event->feature.name,
               event->feature.text);
        break;
    case GM_EVENT_RULED:
    case GM_EVENT_WISHED:
    case GM_EVENT_IGNORED:
    case GM_EVENT_NO_OVERSIZE:
        tell_settings(event, who);
        break;
    case GM_EVENT_SAVING:
        gm_log(GM_LOG_DEBUG, "app %" PRIu32 ": %" PRIu64 " MiB are to be mapped on the host", id,
               event->saving.bytes >> 20);
        break;
    case GM_EVENT_SLEPT:
    case GM_EVENT_SAVED:
    case GM_EVENT_LOST:
    case GM_EVENT_CUT_OFF:
    case GM_EVENT_HASH_OFF:
    case GM_EVENT_UNCHECKED:
    case GM_EVENT_FAULT:
        tell_engine(event);
        break;
    case GM_EVENT_CHECKED:
        tell_checked(event, who);
        break;
    default: /* counted, or traced */
        break;
    }
}
