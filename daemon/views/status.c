/* What `mux-ctl status` shows: see status.h. Sizes in bytes, times in seconds. */
#include "daemon/views/status.h"

#include <stdio.h>

#include "common/features.h"
#include "common/settings.h"
#include "common/units.h"
#include "common/visible.h"
#include "daemon/core/snapshot.h"
#include "daemon/views/journal.h"
#include "daemon/views/log.h"
#include "daemon/views/why.h"

static void add_number(cJSON *object, const char *name, uint64_t number)
{
    cJSON_AddNumberToObject(object, name, (double)number);
}

static void add_seconds(cJSON *object, const char *name, uint64_t ns)
{
    cJSON_AddNumberToObject(object, name, (double)ns / (double)GM_S);
}

static const char *state_text(enum gm_shown_state state)
{
    static const char *const words[] = {
#define GM_SHOWN(NAME, name) [GM_SHOWN_##NAME] = name,
        GM_SHOWN_STATES(GM_SHOWN)
#undef GM_SHOWN
    };
    return words[state];
}

/* ---- apps ---- */

static void add_account(cJSON *object, const struct gm_snapshot_app *app)
{
    const struct gm_sched_account *account = &app->account;
    gm_view_policy(object, &account->policy);
    add_number(object, "level", account->level);
    cJSON_AddStringToObject(object, "pause", gm_settings_paused_word(app->pause));
    add_seconds(object, "charged_s", account->charged_ns);
    if (account->allotment_ns == GM_TIME_NEVER)
        cJSON_AddNullToObject(object, "allotment_s");
    else
        add_seconds(object, "allotment_s", account->allotment_ns);
    add_seconds(object, "run_s", account->run_ns);
    add_seconds(object, "wait_s", account->wait_ns);
    add_seconds(object, "idle_s", account->idle_ns);
    add_seconds(object, "waiting_s", app->waiting_ns);
    cJSON_AddStringToObject(object, "reason",
                            app->is_part_stopped ? "stopped" : gm_why_name(account->reason));
}

static void add_features_off(cJSON *object, uint32_t off)
{
    cJSON *names = cJSON_AddArrayToObject(object, "features_off");
#define GM_FEATURE(bit, NAME, name, text)                                                          \
    if ((off & GM_FEATURE_##NAME) != 0)                                                            \
        cJSON_AddItemToArray(names, cJSON_CreateString(name));
#include "common/features.def"
#undef GM_FEATURE
}

/* The text of its reason; an app that it waits for is on the same GPU. */
static void add_why(cJSON *object, const struct gm_snapshot *snapshot,
                    const struct gm_snapshot_app *app)
{
    char why[768], ahead[128] = "";
    for (uint32_t i = 0; app->why.has_app && i < snapshot->n_apps; i++) {
        const struct gm_snapshot_app *other = &snapshot->apps[i];
        if (other->id == app->why.app && other->device == app->device)
            gm_view_name(other->id, other->pid, other->name, ahead, sizeof ahead);
    }
    cJSON_AddStringToObject(object, "why",
                            gm_view_reason(&app->why, app->by, ahead, why, sizeof why));
}

static cJSON *describe_app(const struct gm_snapshot *snapshot, const struct gm_snapshot_app *app)
{
    cJSON *object = cJSON_CreateObject();
    add_number(object, "id", app->id);
    cJSON_AddNumberToObject(object, "pid", app->pid);
    add_number(object, "uid", app->uid);
    cJSON_AddStringToObject(object, "name", app->name);
    cJSON_AddNumberToObject(object, "gpu", app->device);
    cJSON_AddStringToObject(object, "group", app->group);
    cJSON_AddStringToObject(object, "state", state_text(app->state));
    add_number(object, "resident_bytes", app->resident);
    add_number(object, "total_bytes", app->total);
    add_number(object, "cached_bytes", app->cached);
    add_number(object, "pinned_bytes", app->pinned);
    add_number(object, "shadow_bytes", app->shadow);
    add_number(object, "on_host_bytes", app->on_host);
    add_number(object, "exchanged_bytes", app->exchanged);
    add_number(object, "needed_bytes", app->needed);
    add_number(object, "cold_bytes", app->cold);
    add_number(object, "cap_bytes", app->cap);
    add_number(object, "device_bytes", app->on_device);
    cJSON_AddStringToObject(object, "oversize", app->is_oversize ? "host" : "refuse");
    add_number(object, "shared_bytes", app->shared);
    add_number(object, "opened_bytes", app->opened);
    add_number(object, "unswappable_bytes", app->unswappable);
    add_number(object, "small_bytes", app->small);
    add_number(object, "real_bytes", app->real);
    add_number(object, "managed_bytes", app->managed);
    add_number(object, "array_bytes", app->arrays);
    add_number(object, "graph_bytes", app->graphs);
    add_number(object, "driver_bytes", app->driver);
    add_account(object, app);
    add_number(object, "waiting_threads", app->waiting_threads);
    add_number(object, "switches", app->counts[GM_EVENT_SWITCH]);
    cJSON_AddBoolToObject(object, "parked", app->is_parked);
    add_number(object, "parks", app->counts[GM_EVENT_PARKED]);
    add_number(object, "timeslice_us", app->timeslice_us);
    add_number(object, "hints", app->counts[GM_EVENT_HINT]);
    add_number(object, "hints_ignored", app->counts[GM_EVENT_HINT_IGNORED]);
    add_number(object, "holds", app->counts[GM_EVENT_HELD]);
    add_number(object, "short_turns", app->counts[GM_EVENT_SHORT_TURN]);
    add_number(object, "allocs", app->counts[GM_EVENT_ALLOC]);
    add_number(object, "frees", app->counts[GM_EVENT_FREE]);
    add_number(object, "refused_allocs", app->refused_allocs);
    add_features_off(object, app->features_off);
    cJSON_AddStringToObject(object, "ignored", app->ignored);
    add_why(object, snapshot, app);
    char placed[256];
    cJSON_AddStringToObject(
        object, "placed",
        gm_view_placed(app->placed, app->need, app->need_from, placed, sizeof placed));
    add_number(object, "expected_bytes", app->need);
    return object;
}

/* ---- GPUs ---- */

static void add_uuid(cJSON *object, const uint8_t uuid[16])
{
    char text[GM_UUID_TEXT];
    cJSON_AddStringToObject(object, "uuid", gm_uuid_format(uuid, text));
}

static void add_tiers(cJSON *object, const struct gm_snapshot_gpu *gpu)
{
    cJSON *tiers = cJSON_AddObjectToObject(object, "tiers");
    add_number(tiers, "gpu_bytes", gpu->tiers.gpu);
    add_number(tiers, "pinned_bytes", gpu->tiers.pinned);
    add_number(tiers, "pinned_cap_bytes", gpu->tiers.pinned_cap);
    add_number(tiers, "pinned_used_bytes", gpu->tiers.pinned_used);
    add_number(tiers, "pinned_shadow_bytes", gpu->tiers.pinned_shadow);
    add_number(tiers, "pinned_cached_bytes", gpu->tiers.pinned_cached);
    add_number(tiers, "paged_bytes", gpu->tiers.paged);
    add_number(tiers, "paged_used_bytes", gpu->tiers.paged_used);
    add_number(tiers, "paged_cap_bytes", gpu->tiers.paged_cap);
    add_number(tiers, "disk_used_bytes", gpu->tiers.disk_used);
    add_number(tiers, "disk_cap_bytes", gpu->tiers.disk_cap);
    add_number(tiers, "on_host_bytes", gpu->tiers.on_host);
    cJSON_AddBoolToObject(tiers, "pinned_is_registered", gpu->tiers.is_registered);
}

/* Bytes moved below the GPU since the start, always to or from pinned memory. */
static void add_moved(cJSON *object, const struct gm_snapshot_gpu *gpu)
{
    cJSON *moved = cJSON_AddObjectToObject(object, "moved");
    add_number(moved, "pinned_to_paged_bytes", gpu->moved[GM_TIER_PINNED][GM_TIER_PAGED]);
    add_number(moved, "paged_to_pinned_bytes", gpu->moved[GM_TIER_PAGED][GM_TIER_PINNED]);
    add_number(moved, "pinned_to_disk_bytes", gpu->moved[GM_TIER_PINNED][GM_TIER_DISK]);
    add_number(moved, "disk_to_pinned_bytes", gpu->moved[GM_TIER_DISK][GM_TIER_PINNED]);
}

/* The last switches, oldest first, each with its parts. */
static void add_history(cJSON *object, const struct gm_snapshot_gpu *gpu)
{
    cJSON *history = cJSON_AddArrayToObject(object, "history");
    for (uint32_t i = 0; i < gpu->n_history; i++) {
        const struct gm_switch *entry = &gpu->history[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddItemToArray(history, row);
        add_number(row, "seq", entry->seq);
        add_number(row, "app", entry->app);
        cJSON_AddNumberToObject(row, "pid", entry->pid);
        add_seconds(row, "at_s", entry->at);
        gm_view_switch(row, entry);
    }
}

/* How many switches took how long, since the start. */
static void add_switch_times(cJSON *object, const struct gm_journal *journal, uint32_t gpu)
{
    cJSON *times = cJSON_AddObjectToObject(object, "switch_times");
    cJSON *bounds = cJSON_AddArrayToObject(times, "up_to_s");
    cJSON *counts = cJSON_AddArrayToObject(times, "counts");
    for (unsigned n = 0; n < GM_SWITCH_BOUNDS; n++)
        cJSON_AddItemToArray(bounds, cJSON_CreateNumber((double)gm_switch_bound(n) / (double)GM_S));
    for (unsigned n = 0; n <= GM_SWITCH_BOUNDS; n++)
        cJSON_AddItemToArray(counts, cJSON_CreateNumber((double)journal->gpu[gpu].switches[n]));
    add_seconds(times, "sum_s", journal->gpu[gpu].switch_ns);
}

static void add_decision_times(cJSON *object, const char *name,
                               const struct gm_decision_times *times)
{
    cJSON *mine = cJSON_AddObjectToObject(object, name);
    cJSON *bounds = cJSON_AddArrayToObject(mine, "up_to_s");
    cJSON *counts = cJSON_AddArrayToObject(mine, "counts");
    for (unsigned n = 0; n < GM_DECISION_BOUNDS; n++)
        cJSON_AddItemToArray(bounds,
                             cJSON_CreateNumber((double)gm_decision_bound(n) / (double)GM_S));
    for (unsigned n = 0; n <= GM_DECISION_BOUNDS; n++)
        cJSON_AddItemToArray(counts, cJSON_CreateNumber((double)times->counts[n]));
    add_seconds(mine, "sum_s", times->sum_ns);
    add_seconds(mine, "most_s", times->most_ns);
}

static cJSON *describe_gpu(const struct gm_snapshot *snapshot, const struct gm_snapshot_gpu *gpu,
                           const struct gm_journal *journal)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "index", gpu->device);
    cJSON_AddStringToObject(object, "name", gpu->name);
    add_uuid(object, gpu->uuid);
    add_number(object, "budget_bytes", gpu->budget);
    add_number(object, "budget_most_bytes", gpu->budget_most);
    add_number(object, "usable_bytes", gpu->usable);
    add_number(object, "used_bytes", gpu->used);
    add_number(object, "cached_bytes", gpu->cached);
    add_number(object, "free_bytes", gpu->free);
    add_number(object, "committed_bytes", gpu->committed);
    add_number(object, "available_bytes", gpu->available);
    add_number(object, "shared_bytes", gpu->shared);
    add_number(object, "device_total_bytes", gpu->device_total);
    add_number(object, "device_free_bytes", gpu->device_free);
    add_tiers(object, gpu);
    add_moved(object, gpu);
    cJSON *running = cJSON_AddArrayToObject(object, "running");
    for (uint32_t i = 0; i < snapshot->n_apps; i++)
        if (snapshot->apps[i].is_running && snapshot->apps[i].device == gpu->device)
            cJSON_AddItemToArray(running, cJSON_CreateNumber(snapshot->apps[i].id));
    add_number(object, "switches", gpu->counts[GM_EVENT_SWITCH]);
    add_switch_times(object, journal, gpu->index);
    add_decision_times(object, "decision_times", &journal->gpu[gpu->index].decisions);
    add_decision_times(object, "pass_times", &journal->gpu[gpu->index].passes);
    add_number(object, "bytes_in", gpu->bytes[GM_WAY_IN]);
    add_number(object, "bytes_out", gpu->bytes[GM_WAY_OUT]);
    add_number(object, "bytes_clean", gpu->clean);
    add_number(object, "bytes_zero", gpu->zero);
    cJSON_AddBoolToObject(object, "is_hashing", gpu->is_hashing);
    add_number(object, "bytes_hashed", gpu->hashed);
    cJSON_AddNumberToObject(object, "hash_ms", (double)gpu->hash_ns / 1e6);
    cJSON_AddStringToObject(object, "unchecked", gpu->unchecked);
    add_number(object, "frames", gpu->frames);
    add_history(object, gpu);
    gm_view_refusals(journal, gpu->index, gpu->now, object);
    return object;
}

static void add_totals(cJSON *object, const struct gm_snapshot *snapshot)
{
    cJSON *totals = cJSON_AddObjectToObject(object, "totals");
    add_number(totals, "switches", snapshot->counts[GM_EVENT_SWITCH]);
    add_number(totals, "parks", snapshot->counts[GM_EVENT_PARKED]);
    add_number(totals, "bytes_in", snapshot->bytes[GM_WAY_IN]);
    add_number(totals, "bytes_out", snapshot->bytes[GM_WAY_OUT]);
    add_number(totals, "allocs", snapshot->counts[GM_EVENT_ALLOC]);
    add_number(totals, "frees", snapshot->counts[GM_EVENT_FREE]);
    add_number(totals, "refused_allocs", snapshot->counts[GM_EVENT_REFUSED]);
    add_number(totals, "drain_busy", snapshot->counts[GM_EVENT_BUSY]);
}

cJSON *gm_view_status(const struct gm_snapshot *snapshot, const struct gm_journal *journal)
{
    cJSON *status = cJSON_CreateObject();
    cJSON *gpus = cJSON_AddArrayToObject(status, "gpus");
    cJSON *apps = cJSON_AddArrayToObject(status, "apps");

    for (uint32_t i = 0; i < snapshot->n_gpus; i++)
        cJSON_AddItemToArray(gpus, describe_gpu(snapshot, &snapshot->gpus[i], journal));
    for (uint32_t i = 0; i < snapshot->n_apps; i++)
        cJSON_AddItemToArray(apps, describe_app(snapshot, &snapshot->apps[i]));
    add_totals(status, snapshot);
    return status;
}
