/* The log as a document: see log.h. */
#include "daemon/views/log.h"

#include "common/units.h"
#include "common/wire.h"
#include "daemon/views/journal.h"
#include "daemon/views/why.h"

static void add_party(cJSON *object, const struct gm_party *party)
{
    cJSON_AddNumberToObject(object, "app", party->app);
    cJSON_AddNumberToObject(object, "pid", party->pid);
    cJSON_AddStringToObject(object, "name", party->name);
    cJSON_AddNumberToObject(object, "level", party->level);
    cJSON_AddStringToObject(object, "why", gm_why_name(party->why));
}

void gm_view_switch(cJSON *row, const struct gm_switch *entry)
{
    /* In whole microseconds the parts are the total, too: what is cut off them is in the rest. */
    uint64_t part_ns[GM_PARTS], rest_ns = entry->total_ns / 1000 * 1000;
    for (int part = 0; part < GM_PARTS; part++) {
        const uint64_t ns = entry->part_ns[part] / 1000 * 1000;
        part_ns[part] = part == GM_PART_OTHER || ns > rest_ns ? rest_ns : ns;
        rest_ns -= part_ns[part];
    }
    const struct {
        const char *name;
        uint64_t ns;
    } times[] = {
        {"total_ms", entry->total_ns},
/* clang-format off */
#define GM_PART(NAME, name, shown, words) {#name "_ms", part_ns[GM_PART_##NAME]},
#include "common/parts.def"
#undef GM_PART
        /* clang-format on */
        {"link_ms", entry->link_ns},
        {"out_ms", entry->way_ns[GM_WAY_OUT]},
        {"in_ms", entry->way_ns[GM_WAY_IN]},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        cJSON_AddNumberToObject(row, times[i].name, (double)(times[i].ns / 1000) / 1000.0);
    cJSON_AddNumberToObject(row, "bytes_out", (double)entry->bytes[GM_WAY_OUT]);
    cJSON_AddNumberToObject(row, "bytes_in", (double)entry->bytes[GM_WAY_IN]);
    cJSON_AddNumberToObject(row, "bytes_clean", (double)entry->clean);
    cJSON_AddNumberToObject(row, "bytes_zero", (double)entry->zero);
    cJSON_AddNumberToObject(row, "bytes_lowered", (double)entry->lowered);
    cJSON_AddNumberToObject(row, "bytes_raised", (double)entry->raised);
}

void gm_view_policy(cJSON *object, const struct gm_sched_policy *policy)
{
    cJSON_AddStringToObject(object, "class", gm_class_name(policy->class));
    cJSON_AddNumberToObject(object, "weight", (double)policy->weight / 1000.0);
    cJSON_AddNumberToObject(object, "share_percent", (double)policy->share / 10.0);
    cJSON_AddBoolToObject(object, "paused", policy->is_paused);
}

static void add_restart(cJSON *object, const struct gm_note *note)
{
    cJSON_AddNumberToObject(object, "took_s", (double)note->restart.took_ns / (double)GM_S);
    cJSON_AddNumberToObject(object, "taken", note->restart.taken);
    cJSON_AddStringToObject(object, "programs", note->restart.names);
    cJSON_AddNumberToObject(object, "cut", note->restart.cut);
    cJSON_AddNumberToObject(object, "ended", note->restart.ended);
    cJSON_AddNumberToObject(object, "broken", note->restart.broken);
    cJSON_AddStringToObject(object, "wrong", note->restart.wrong);
}

static cJSON *describe(const struct gm_note *note)
{
    static const char *const kinds[GM_EVENTS] = {[GM_EVENT_SWITCH] = "switch",
                                                 [GM_EVENT_LEVEL] = "level",
                                                 [GM_EVENT_SET] = "set",
                                                 [GM_EVENT_REFUSED] = "refused",
                                                 [GM_EVENT_RESTARTED] = "restart"};
    const char *kind = kinds[note->kind];
    cJSON *object = cJSON_CreateObject();
    char what[256];

    if (note->kind == GM_EVENT_SET && note->said.has == GM_SET_PAUSED)
        kind = note->said.is_paused ? "paused" : "resumed";

    cJSON_AddNumberToObject(object, "seq", (double)note->seq);
    cJSON_AddStringToObject(object, "kind", kind);
    cJSON_AddNumberToObject(object, "at_s", (double)note->at / (double)GM_S);
    cJSON_AddNumberToObject(object, "time_s", (double)(note->wall / GM_MS) / 1000.0);
    if (note->kind == GM_EVENT_RESTARTED) {
        add_restart(object, note);
        return object;
    }
    add_party(object, &note->app);
    if (note->kind == GM_EVENT_LEVEL) {
        cJSON_AddNumberToObject(object, "from_level", note->from);
    } else if (note->kind == GM_EVENT_SET) {
        cJSON_AddNumberToObject(object, "by_uid", note->by);
        cJSON_AddStringToObject(object, "set", gm_settings_format(&note->said, what, sizeof what));
        gm_view_policy(object, &note->policy);
    } else if (note->kind == GM_EVENT_REFUSED) {
        cJSON_AddNumberToObject(object, "bytes", (double)note->refusal.bytes);
        cJSON_AddNumberToObject(object, "count", (double)note->n_refused);
        cJSON_AddStringToObject(object, "text", gm_view_refusal(&note->refusal, what, sizeof what));
        cJSON_AddStringToObject(object, "raise", gm_view_raise(&note->refusal));
    } else {
        cJSON *left = cJSON_AddArrayToObject(object, "left");
        cJSON_AddNumberToObject(object, "switch", (double)note->took.seq);
        cJSON_AddNumberToObject(object, "waited_s", (double)note->wait_ns / (double)GM_S);
        for (uint32_t i = 0; i < note->n_leavers && i < GM_NOTE_LEAVERS; i++) {
            cJSON *leaver = cJSON_CreateObject();
            cJSON_AddItemToArray(left, leaver);
            add_party(leaver, &note->leavers[i]);
        }
        cJSON_AddNumberToObject(object, "left_count", note->n_leavers);
        gm_view_switch(object, &note->took);
    }
    return object;
}

void gm_view_refusals(const struct gm_journal *journal, uint32_t index, uint64_t now, cJSON *object)
{
    const uint64_t n = journal->gpu[index].n_refusals;
    cJSON *refusals = cJSON_AddArrayToObject(object, "refusals");
    for (uint64_t i = n > GM_REFUSALS_KEPT ? n - GM_REFUSALS_KEPT : 0; i < n; i++) {
        const struct gm_note *note = &journal->gpu[index].refusals[i % GM_REFUSALS_KEPT];
        cJSON *entry = describe(note);
        cJSON_AddNumberToObject(entry, "ago_s", (double)(now - note->at) / (double)GM_S);
        cJSON_AddItemToArray(refusals, entry);
    }
}

cJSON *gm_view_log(const struct gm_journal *journal, uint64_t since)
{
    uint64_t newest = journal->n;
    uint64_t oldest = newest > GM_NOTES ? newest - GM_NOTES + 1 : 1;
    cJSON *log = cJSON_CreateObject();
    cJSON *entries = cJSON_AddArrayToObject(log, "entries");

    cJSON_AddNumberToObject(log, "newest", (double)newest);
    cJSON_AddNumberToObject(log, "kept", GM_NOTES);
    for (uint64_t seq = since < oldest ? oldest : since; seq <= newest; seq++) {
        const struct gm_note *note = &journal->entry[seq % GM_NOTES];
        if (seq <= since)
            continue;
        cJSON *entry = describe(note);
        if (journal->is_several && note->kind != GM_EVENT_RESTARTED)
            cJSON_AddNumberToObject(entry, "gpu", note->gpu);
        cJSON_AddItemToArray(entries, entry);
    }
    return log;
}
