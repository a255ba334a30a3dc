/*
 * The snapshot of the machine for the views (core/snapshot.h). Changes nothing but by bringing the
 * engines up to date first, and by looking for who has copies. Called by service/control.c; reads
 * whatever the engine knows.
 */
#include "daemon/engine/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sums.h"
#include "daemon/core/snapshot.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/act/device.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/act/meter.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/machine.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/apps.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/layout.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/waiting.h"
#include "daemon/engine/step/windows.h"

/* ---- why an app does not run, or is not all on the GPU ---- */

/* It asks for its turn when those before it in its group have theirs. */
static bool waits_for_group(const struct gm_engine *engine, uint32_t id)
{
    bool is_first;
    return engine->apps[id].state == GM_APP_PAUSED && gm_group_is_several(engine, id) &&
           gm_group_is_waiting(engine, id, &is_first) && !is_first;
}

/* Its process has ended, and others have copies of what it had open. */
static struct gm_reason why_copied(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return (struct gm_reason){.why = GM_WHY_COPIED,
                              .pid = gm_client_copier(app->client, &engine->config.outlet),
                              .ended = app->pid,
                              .held = gm_engine_held(engine, id)};
}

/* It does not fit. Of the programs that stand still, have not come back, or have ended and left
 * copies, the one that keeps most of the GPU is named. */
static struct gm_reason why_no_room(const struct gm_engine *engine, uint32_t id)
{
    struct gm_reason why = {.why = GM_WHY_LACKS_ROOM,
                            .bytes = gm_room_promised(engine->table, id),
                            .limit = engine->room};
    for (uint32_t other = 0; other < engine->config.max_apps; other++) {
        const uint64_t held = gm_engine_held(engine, other);
        const struct gm_app *app = &engine->apps[other];
        const bool is_lost = app->state == GM_APP_LOST && app->client->lost_at != 0;
        const bool is_copied = app->state == GM_APP_GONE && app->client->copies;
        if ((!app->is_stopped && !is_lost && !is_copied) || held == 0)
            continue;
        why.others += why.of != GM_WHY_NONE;
        if (why.of != GM_WHY_NONE && held <= why.held)
            continue;
        const struct gm_reason stop = is_copied ? why_copied(engine, other)
                                      : is_lost ? gm_engine_why_lost(engine, other)
                                                : gm_engine_why_stopped(engine, other);
        why.of = stop.why;
        why.pid = stop.pid;
        why.ended = stop.ended;
        why.held = stop.held;
    }
    return why;
}

static struct gm_reason why_loading(const struct gm_engine *engine, uint32_t id)
{
    enum gm_why why = GM_WHY_LOADS;
    if (engine->create_error == CUDA_ERROR_OUT_OF_MEMORY)
        why = GM_WHY_GPU_SHORT;
    else if (engine->create_error == CUDA_ERROR_OPERATING_SYSTEM)
        why = GM_WHY_FILES_SHORT;
    else if (engine->create_error != CUDA_SUCCESS)
        why = GM_WHY_FRAMES_FAIL;
    else if (gm_engine_is_short_of_disk(engine, id))
        why = engine->lower_error ? GM_WHY_TIER_FAILS : GM_WHY_DISK_SHORT;
    else if (engine->pool.refusal != CUDA_SUCCESS && engine->is_short_of_pages)
        why = GM_WHY_PINNED_REFUSED;
    else if (engine->is_short_of_pages &&
             gm_stores_cap(engine->stores, GM_TIER_DISK) < gm_chunk_floor(engine->config.disk))
        why = GM_WHY_DISK_SHORT;
    else if (engine->is_short_of_pages)
        why = engine->host_copies > 0 ? GM_WHY_LOADS_BELOW : GM_WHY_LOADS_PINNED;
    return (struct gm_reason){.why = why};
}

/* Its turn has not come. */
static struct gm_reason why_waiting(const struct gm_engine *engine,
                                    const struct gm_sched_account *account)
{
    const bool has_ahead = account->ahead < engine->config.max_apps &&
                           engine->apps[account->ahead].state != GM_APP_UNUSED;
    return (struct gm_reason){
        .why = account->reason, .has_app = has_ahead, .app = has_ahead ? account->ahead : 0};
}

static enum gm_why why_busy(uint32_t reason)
{
    switch (reason) {
    case GM_DRAIN_INSIDE:
        return GM_WHY_IN_CALL;
    case GM_DRAIN_CAPTURE:
        return GM_WHY_IN_CAPTURE;
    case GM_DRAIN_WORK:
        return GM_WHY_WORKS_ON;
    default:
        return GM_WHY_NO_ANSWER;
    }
}

/* It waits for those of its group, or for its other GPUs. */
static struct gm_reason why_group(const struct gm_engine *engine, uint32_t id, enum gm_why why)
{
    const struct gm_engine *at = gm_group_awaits(engine, id);
    const struct gm_client *first = gm_group_clients(engine->apps[id].client->group);
    return (struct gm_reason){.why = why,
                              .has_gpu = at != NULL,
                              .gpu = at ? at->config.gpu : 0,
                              .is_of_group = first->next != NULL};
}

static struct gm_reason why_of(const struct gm_engine *engine, uint32_t id,
                               const struct gm_sched_account *account)
{
    const struct gm_app *app = &engine->apps[id];
    const struct gm_table_app *entry = &engine->table->apps[id];
    const bool is_paused = app->state == GM_APP_PAUSED;
    const bool is_loading = app->state == GM_APP_LOADING || app->state == GM_APP_LOST; /* is back */

    if (app->client->lost_at != 0)
        return gm_engine_why_lost(engine, id);
    if (app->state == GM_APP_GONE && app->client->copies)
        return why_copied(engine, id);
    if (app->state == GM_APP_GONE)
        return (struct gm_reason){.why = app->exit.is_awaited ? GM_WHY_EXITS : GM_WHY_PUT_AWAY};
    if (app->is_stopped)
        return gm_engine_why_stopped(engine, id);
    if (app->is_part_stopped && app->state != GM_APP_RUNNING) {
        const struct gm_client *stopped = gm_group_stopped(app->client->group);
        return (struct gm_reason){
            .why = GM_WHY_PART_STOPPED, .of = stopped->stop, .pid = stopped->pid};
    }
    if (app->state == GM_APP_RUNNING && app->gate.busy_reason)
        return (struct gm_reason){.why = GM_WHY_NOT_PAUSED, .of = why_busy(app->gate.busy_reason)};
    if (app->allocs.waiting > 0)
        return (struct gm_reason){.why = GM_WHY_ALLOC_WAITS, .of = gm_engine_waits_for(engine, id)};
    if (is_paused && account->policy.is_paused)
        return (struct gm_reason){.why = GM_WHY_PAUSED,
                                  .of = gm_engine_is_evicted(engine, id) ? GM_WHY_EVICTED
                                                                         : GM_WHY_NONE,
                                  .held = entry->device - entry->fixed};
    if (gm_engine_awaits_disk(engine, id))
        return (struct gm_reason){.why =
                                      engine->lower_error ? GM_WHY_TIER_FAILS : GM_WHY_DISK_SHORT};
    if (app->state == GM_APP_DRAINING)
        return (struct gm_reason){.why = GM_WHY_FINISHES};
    if (gm_engine_is_app_off(engine, id))
        return (struct gm_reason){.why = app->moves.raise_error ? GM_WHY_TIER_FAILS
                                                                : GM_WHY_MAP_FAILS};
    if (is_loading && entry->missing == 0 && gm_group_is_several(engine, id))
        return why_group(engine, id, GM_WHY_GROUP_LOADS);
    const struct gm_reason capped = gm_engine_why_capped(engine, id);
    if (is_loading)
        return capped.why != GM_WHY_NONE ? capped : why_loading(engine, id);
    if (app->state == GM_APP_RUNNING && app->allocs.pending > 0 &&
        engine->create_error != CUDA_SUCCESS)
        return why_loading(engine, id);
    if (account->reason == GM_WHY_IDLE && waits_for_group(engine, id))
        return why_group(engine, id, GM_WHY_GROUP_FIRST);
    if (is_paused && account->reason == GM_WHY_ROOM &&
        gm_room_promised(engine->table, id) > engine->room)
        return why_no_room(engine, id);
    if (is_paused && account->reason == GM_WHY_TIED)
        return why_group(engine, id, GM_WHY_TIED);
    if (is_paused && account->reason != GM_WHY_IDLE)
        return why_waiting(engine, account);
    return capped;
}

/* By whom, or by which rule, it is so. */
static void name_who(const struct gm_engine *engine, uint32_t id, const struct gm_reason *why,
                     char *by, size_t size)
{
    char rule[512] = "";
    by[0] = '\0';
    if (why->why == GM_WHY_PAUSED)
        gm_engine_pauser(engine, id, by, size);
    else if (why->of == GM_WHY_CAP)
        gm_engine_rule_of(engine, id, GM_SET_CAP, rule, sizeof rule);
    else if (why->of == GM_WHY_USER_TOTAL)
        gm_engine_total_rule_of(engine, id, rule, sizeof rule);
    else if (why->why == GM_WHY_SHARE)
        gm_engine_rule_of(engine, id, GM_SET_SHARE, rule, sizeof rule);
    if (rule[0])
        snprintf(by, size, "the rule %s", rule);
}

/* ---- apps ---- */

static enum gm_shown_state state_of(const struct gm_engine *engine, uint32_t id,
                                    const struct gm_sched_account *account)
{
    const struct gm_app *app = &engine->apps[id];
    if (app->is_stopped)
        return GM_SHOWN_STOPPED;
    if (app->state == GM_APP_PAUSED && account->policy.is_paused)
        return GM_SHOWN_PAUSED;
    if ((app->state == GM_APP_PAUSED && app->is_part_stopped) || waits_for_group(engine, id) ||
        gm_engine_awaits_disk(engine, id))
        return GM_SHOWN_WAITING;
    switch (app->state) {
    case GM_APP_PAUSED:
        return account->reason == GM_WHY_IDLE ? GM_SHOWN_IDLE : GM_SHOWN_WAITING;
    case GM_APP_RUNNING:
        return app->idle.is_idle ? GM_SHOWN_IDLE : GM_SHOWN_RUNNING;
    case GM_APP_LOADING:
        return GM_SHOWN_LOADING;
    case GM_APP_DRAINING:
        return GM_SHOWN_DRAINING;
    case GM_APP_LOST:
        return app->client->lost_at == 0 ? GM_SHOWN_LOADING /* it is back */ : GM_SHOWN_LOST;
    default:
        return GM_SHOWN_GONE;
    }
}

/* What the program says of itself. */
static void take_stat(const struct gm_stat *stat, struct gm_snapshot_app *to)
{
    if (!stat)
        return;
    to->real = atomic_load(&stat->real_bytes);
    to->small = atomic_load(&stat->small_bytes) + to->real;
    to->managed = atomic_load(&stat->managed_bytes);
    to->arrays = atomic_load(&stat->array_bytes);
    to->graphs = atomic_load(&stat->graph_bytes);
    to->driver = atomic_load(&stat->driver_bytes);
    to->unswappable = to->small + to->managed + to->arrays + to->graphs + to->driver;
    to->waiting_threads = atomic_load(&stat->waiting);
    to->refused_allocs = atomic_load(&stat->refused);
    to->features_off = atomic_load(&stat->features_off);
}

static void take_app(const struct gm_engine *engine, uint32_t id, struct gm_snapshot_app *to)
{
    const struct gm_app *app = &engine->apps[id];
    const struct gm_table_app *entry = &engine->table->apps[id];
    *to = (struct gm_snapshot_app){
        .id = id,
        .device = engine->config.gpu,
        .pid = app->pid,
        .uid = app->uid,
        .is_running = app->state == GM_APP_RUNNING,
        .is_part_stopped = app->is_part_stopped,
        .is_oversize = gm_engine_is_oversize(engine, id),
        .is_parked = app->gate.is_parked,
        .pause = app->session ? gm_engine_pause_of(engine, id) : GM_PAUSED_NO,
        .account = {.policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL},
                    .ahead = UINT32_MAX,
                    .allotment_ns = GM_TIME_NEVER},
        .resident = entry->resident + entry->fixed,
        .total = entry->committed,
        .cached = gm_engine_spare_bytes(engine, id),
        .pinned = entry->bytes[GM_TIER_PINNED],
        .shadow = entry->shadow_bytes,
        .on_host = entry->on_host,
        .exchanged = app->places.exchanged,
        .needed = gm_room_promised(engine->table, id) + entry->fixed,
        .cold = entry->cold,
        .cap = gm_engine_cap(engine, id),
        .on_device = entry->device,
        .shared = gm_engine_shared_bytes(engine, id),
        .opened = gm_engine_opened_bytes(engine, id),
        .timeslice_us = app->policy.timeslice_us,
    };
    snprintf(to->name, sizeof to->name, "%s", app->name);
    snprintf(to->group, sizeof to->group, "%s", gm_group_name(app->client->group));
    snprintf(to->ignored, sizeof to->ignored, "%s", app->policy.ignored);
    memcpy(to->counts, app->counts, sizeof to->counts);
    take_stat(app->stat, to);
    if (app->state != GM_APP_LOST || app->session) /* else the scheduler does not know it */
        gm_engine_account(engine, id, &to->account);
    to->account.run_ns += app->back.run_ns;
    to->account.wait_ns += app->back.wait_ns;
    to->waiting_ns = to->account.waiting_at > 0 ? gm_less(engine->now, to->account.waiting_at) : 0;
    to->state = state_of(engine, id, &to->account);
    to->why = why_of(engine, id, &to->account);
    name_who(engine, id, &to->why, to->by, sizeof to->by);
}

/* ---- GPUs ---- */

static void take_tiers(const struct gm_engine *engine, struct gm_snapshot_gpu *to)
{
    const struct gm_stores *stores = engine->stores;
    to->tiers.pinned = gm_hostpool_size(&engine->pool);
    to->tiers.pinned_cap = gm_hostpool_cap(&engine->pool);
    to->tiers.pinned_used = gm_engine_pinned_used(engine);
    to->tiers.pinned_shadow = engine->table->shadows;
    to->tiers.pinned_cached = gm_hostpool_size(&engine->pool) - gm_hostpool_used(&engine->pool);
    to->tiers.paged = gm_stores_held(stores);
    to->tiers.paged_used = gm_stores_used(stores, GM_TIER_PAGED);
    to->tiers.paged_cap = gm_stores_cap(stores, GM_TIER_PAGED);
    to->tiers.disk_used = gm_stores_used(stores, GM_TIER_DISK);
    to->tiers.disk_cap = gm_stores_cap(stores, GM_TIER_DISK);
    to->tiers.on_host = engine->table->on_host;
    to->tiers.is_registered = engine->pool.is_registered;
    for (enum gm_tier lower = GM_TIER_PAGED; lower <= GM_TIER_DISK; lower++) {
        to->moved[GM_TIER_PINNED][lower] = gm_stores_bytes(stores, GM_TIER_PINNED, lower);
        to->moved[lower][GM_TIER_PINNED] = gm_stores_bytes(stores, lower, GM_TIER_PINNED);
    }
}

static void take_history(const struct gm_engine *engine, struct gm_snapshot_gpu *to)
{
    const uint64_t newest = engine->n_history;
    for (uint64_t seq = newest > GM_HISTORY ? newest - GM_HISTORY + 1 : 1; seq <= newest; seq++)
        to->history[to->n_history++] = engine->history[seq % GM_HISTORY];
}

static void take_gpu(const struct gm_engine *engine, struct gm_snapshot_gpu *to)
{
    const struct gm_table *table = engine->table;
    uint64_t spares = 0;
    struct gm_device_room room;

    gm_cuda_enter(&engine->cuda, engine->context);
    gm_engine_ask_device(engine, &room);
    *to = (struct gm_snapshot_gpu){
        .index = engine->config.index,
        .device = engine->config.gpu,
        .now = engine->now,
        .budget = gm_engine_offered(engine),
        .budget_most = engine->config.budget,
        .usable = table->budget,
        .free = table->budget - table->allocated,
        .available = gm_engine_newcomer_room(engine, engine->config.is_oversize),
        .shared = table->fixed,
        .device_total = room.total,
        .device_free = room.free_bytes,
        .bytes = {[GM_WAY_OUT] = gm_mover_bytes(engine->mover, GM_WAY_OUT),
                  [GM_WAY_IN] = gm_mover_bytes(engine->mover, GM_WAY_IN)},
        .clean = engine->sums.clean,
        .zero = engine->sums.zero,
        .is_hashing = engine->hasher && !engine->is_hashing_off,
        .hashed = engine->hasher ? gm_hasher_bytes(engine->hasher) : 0,
        .hash_ns = engine->hasher ? gm_hasher_ns(engine->hasher) : 0,
    };
    const char *unchecked = gm_engine_why_no_meter(engine);
    if (!unchecked)
        unchecked = gm_engine_why_unjudged(engine);
    snprintf(to->unchecked, sizeof to->unchecked, "%s", unchecked ? unchecked : "");
    snprintf(to->name, sizeof to->name, "%s", engine->gpu_name);
    memcpy(to->uuid, engine->uuid.bytes, sizeof to->uuid);
    memcpy(to->counts, engine->counts, sizeof to->counts);
    for (uint32_t i = 0; i < table->max_apps; i++) {
        to->frames += table->pools[i].frames;
        if (!table->apps[i].is_used)
            continue;
        to->tiers.gpu += table->apps[i].resident + table->apps[i].fixed;
        spares += gm_engine_spare_bytes(engine, i);
    }
    /* Frames that no program uses: free ones, and those of what programs freed and keep. */
    to->cached = table->free + table->condemned + gm_least(spares, to->tiers.gpu);
    to->used = table->allocated - to->cached;
    to->committed = table->committed - spares;
    take_tiers(engine, to);
    take_history(engine, to);
}

/* ---- the machine ---- */

static uint32_t count_apps(const struct gm_engine *engine)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        n += engine->apps[id].state != GM_APP_UNUSED;
    return n;
}

static void find_copiers(struct gm_machine *machine, const struct gm_engine *engine)
{
    for (uint32_t id = 0; id < machine->max_apps; id++)
        if (engine->apps[id].state == GM_APP_GONE)
            gm_client_find_copier(engine->apps[id].client, &engine->config.outlet, engine->now,
                                  &machine->copier_look_at);
}

struct gm_snapshot *gm_machine_snapshot(struct gm_machine *machine)
{
    uint32_t n_apps = 0;
    for (uint32_t i = 0; i < machine->n; i++)
        gm_engine_refresh(machine->engines[i]);
    gm_machine_keep(machine); /* no total that was shown is less under the next daemon */
    for (uint32_t i = 0; i < machine->n; i++) {
        find_copiers(machine, machine->engines[i]);
        n_apps += count_apps(machine->engines[i]);
    }
    const size_t gpus = machine->n * sizeof(struct gm_snapshot_gpu);
    struct gm_snapshot *snapshot =
        malloc(sizeof *snapshot + gpus + n_apps * sizeof(struct gm_snapshot_app));
    if (!snapshot)
        return NULL;
    *snapshot = (struct gm_snapshot){.n_gpus = machine->n};
    snapshot->gpus = (struct gm_snapshot_gpu *)(snapshot + 1);
    snapshot->apps = (struct gm_snapshot_app *)(snapshot->gpus + machine->n);
    for (uint32_t i = 0; i < machine->n; i++) {
        struct gm_snapshot_gpu *gpu = &snapshot->gpus[i];
        take_gpu(machine->engines[i], gpu);
        for (unsigned way = 0; way < GM_WAYS; way++)
            snapshot->bytes[way] += gpu->bytes[way];
        for (unsigned kind = 0; kind < GM_EVENTS; kind++)
            snapshot->counts[kind] += gpu->counts[kind];
    }
    for (uint32_t id = 0; id < machine->max_apps; id++)
        for (uint32_t i = 0; i < machine->n; i++)
            if (machine->engines[i]->apps[id].state != GM_APP_UNUSED) {
                struct gm_snapshot_app *app = &snapshot->apps[snapshot->n_apps++];
                take_app(machine->engines[i], id, app);
                gm_binds_show(&machine->binds, i, app);
            }
    return snapshot;
}
