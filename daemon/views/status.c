/* What `mux-ctl status` shows: see status.h. Sizes in bytes, times in seconds. */
#include "daemon/views/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/features.h"
#include "common/size.h"
#include "daemon/engine/machine.h"
#include "daemon/engine/inside.h"
#include "daemon/views/log.h"

static void add_bytes(cJSON *object, const char *name, uint64_t bytes)
{
    cJSON_AddNumberToObject(object, name, (double)bytes);
}

static const char *drain_text(uint32_t reason)
{
    switch (reason) {
    case GM_DRAIN_INSIDE:
        return "a call into the driver did not return";
    case GM_DRAIN_CAPTURE:
        return "a stream capture stayed open";
    case GM_DRAIN_WORK:
        return "its GPU work did not end";
    default:
        return "it did not answer";
    }
}

/* Whether the newest plan left the app out because the disk cannot be written. */
static bool is_short_of_disk(const struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = engine->short_from; i < engine->short_to; i++)
        if (engine->targets[i] == id)
            return true;
    return false;
}

/* It asks for its turn when those before it in its group have theirs. */
static bool waits_for_group(const struct gm_engine *engine, uint32_t id)
{
    bool is_first;
    return engine->apps[id].state == GM_APP_PAUSED && gm_group_is_several(engine, id) &&
           gm_group_is_waiting(engine, id, &is_first) && !is_first;
}

static const char *keeps(const struct gm_engine *engine, uint32_t id, char *text, size_t size)
{
    snprintf(text, size, " and keeps %" PRIu64 " MiB", gm_engine_kept(engine, id) >> 20);
    return text;
}

/* Of the programs that stand still, the one that keeps most of the GPU, and how many do. */
static uint32_t count_keepers(const struct gm_engine *engine, uint32_t *most)
{
    uint32_t n = 0;
    *most = GM_NONE;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].is_stopped || gm_engine_kept(engine, id) == 0)
            continue;
        n++;
        if (*most == GM_NONE || gm_engine_kept(engine, id) > gm_engine_kept(engine, *most))
            *most = id;
    }
    return n;
}

/* What it lacks, and who has it. */
static void say_room(const struct gm_engine *engine, uint32_t id, char *text, size_t size)
{
    const unsigned long long needed = gm_engine_movable(engine, id) >> 20;
    char kept[48], stop[128];
    uint32_t most;
    const uint32_t n = count_keepers(engine, &most);
    if (n == 0) {
        snprintf(text, size, "needs %llu MiB on the GPU, of which others keep all but %llu", needed,
                 (unsigned long long)(engine->room >> 20));
        return;
    }
    gm_engine_stop_text(engine->apps[most].client, keeps(engine, most, kept, sizeof kept), stop,
                        sizeof stop);
    const int length = snprintf(text, size, "needs %llu MiB on the GPU: %s", needed, stop);
    if (n > 1 && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, " (and %u more)", n - 1);
}

/* Who paused it, and what of it is on the GPU. */
static void say_paused(const struct gm_engine *engine, uint32_t id, char *text, size_t size)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    char by[600], bytes[32];
    gm_engine_pauser(engine, id, by, sizeof by);
    gm_format_size(entry->device - entry->fixed, bytes, sizeof bytes);
    if (entry->device > entry->fixed)
        snprintf(text, size,
                 "%s leave the GPU when anybody wants them, or by mux-ctl trim; paused by %s",
                 bytes, by);
    else
        snprintf(text, size,
                 "on the GPU is only its CUDA context (some 500 MiB) and what the driver keeps; "
                 "paused by %s",
                 by);
}

/* Its turn has not come, for this reason. */
static void say_waiting(const struct gm_engine *engine, uint32_t id,
                        const struct gm_sched_account *account, char *text, size_t size)
{
    const bool has_ahead = account->ahead < engine->config.max_apps &&
                           engine->apps[account->ahead].state != GM_APP_UNUSED;
    const char *why = gm_why_text(account->reason);
    char other[128], rule[512];
    if (account->reason == GM_WHY_SHARE &&
        gm_engine_rule_of(engine, id, GM_SET_SHARE, rule, sizeof rule))
        snprintf(text, size, "%s, by the rule %s", why, rule);
    else
        snprintf(text, size, "%s%s%s", why, has_ahead ? ": " : "",
                 has_ahead ? gm_engine_name(engine, account->ahead, other, sizeof other) : "");
}

/* Why the app does not run, why it cannot be paused, or why it is not all on the GPU. */
static void say_why(const struct gm_engine *engine, uint32_t id,
                    const struct gm_sched_account *account, char *text, size_t size)
{
    const struct gm_app *app = &engine->apps[id];
    char other[128], kept[48];

    text[0] = '\0';
    if (app->state == GM_APP_GONE) {
        snprintf(text, size,
                 app->client->copies ? "its process has ended, and a child has copies of what it "
                                       "had open: end that child"
                 : app->exit.poll    ? "its process has not ended yet"
                                     : "its memory is being put away");
    } else if (app->is_stopped) {
        gm_engine_stop_text(app->client, keeps(engine, id, kept, sizeof kept), text, size);
    } else if (app->is_part_stopped && app->state != GM_APP_RUNNING) {
        snprintf(
            text, size, "of its group, %s",
            gm_engine_stop_text(gm_group_stopped(app->client->group), "", other, sizeof other));
    } else if (engine->table->apps[id].is_silent || app->gate.is_late) {
        snprintf(text, size, "it does not answer (stopped?): it keeps its GPU memory");
    } else if (app->state == GM_APP_RUNNING && app->gate.busy_reason) {
        snprintf(text, size, "could not be paused: %s", drain_text(app->gate.busy_reason));
    } else if (app->allocs.waiting > 0) {
        snprintf(text, size, "an allocation waits: %s", gm_engine_waits_for(engine, id));
    } else if (app->state == GM_APP_PAUSED && account->policy.is_paused) {
        say_paused(engine, id, text, size);
    } else if (app->state == GM_APP_DRAINING) {
        snprintf(text, size, "finishing its GPU work");
    } else if (gm_engine_is_app_off(engine, id)) {
        snprintf(text, size, "%s",
                 app->moves.raise_error ? "a lower tier fails (see the log): trying again"
                                        : "it could not map its memory: trying again soon");
    } else if (app->state == GM_APP_LOADING && engine->table->apps[id].missing == 0 &&
               gm_group_is_several(engine, id)) {
        snprintf(text, size, "waits for the others of its group, or for its other GPUs");
    } else if (app->state == GM_APP_LOADING && gm_engine_say_capped(engine, id, text, size)) {
        return;
    } else if (app->state == GM_APP_LOADING) {
        const char *what = "its memory is being moved to the GPU";
        if (engine->create_error == CUDA_ERROR_OUT_OF_MEMORY)
            what = "the GPU has no room within the budget: programs beside gpumux use it";
        else if (engine->create_error == CUDA_ERROR_OPERATING_SYSTEM)
            what = "gpumuxd has too few open files for its memory and that of others: raise "
                   "LimitNOFILE or ulimit -n";
        else if (engine->create_error != CUDA_SUCCESS)
            what = "the daemon cannot make more GPU memory (see the log): trying again";
        else if (is_short_of_disk(engine, id))
            what = "a lower tier fails (see the log): trying again";
        else if (engine->pool.refusal != CUDA_SUCCESS && engine->is_short_of_pages)
            what = "no pinned memory to evict to: the system refuses more";
        else if (engine->is_short_of_pages)
            what = engine->host_copies > 0
                       ? "its memory is being moved to the GPU: waiting for lower tiers"
                       : "its memory is being moved to the GPU: waiting for pinned memory";
        snprintf(text, size, "%s", what);
    } else if (account->reason == GM_WHY_IDLE && waits_for_group(engine, id)) {
        snprintf(text, size, "the others of its group, or its other GPUs, come first");
    } else if (app->state == GM_APP_PAUSED && account->reason == GM_WHY_ROOM &&
               gm_engine_movable(engine, id) > engine->room) {
        say_room(engine, id, text, size);
    } else if (app->state == GM_APP_PAUSED && account->reason != GM_WHY_IDLE) {
        say_waiting(engine, id, account, text, size);
    } else {
        gm_engine_say_capped(engine, id, text, size);
    }
}

static const char *state_text(const struct gm_engine *engine, uint32_t id,
                              const struct gm_sched_account *account)
{
    const struct gm_app *app = &engine->apps[id];
    if (app->is_stopped)
        return "stopped";
    if (app->state == GM_APP_PAUSED && account->policy.is_paused)
        return "paused";
    if (app->state == GM_APP_PAUSED && app->is_part_stopped)
        return "waiting";
    if (waits_for_group(engine, id))
        return "waiting";
    if (app->state == GM_APP_PAUSED)
        return account->reason == GM_WHY_IDLE ? "idle" : "waiting";
    if (app->state == GM_APP_RUNNING && app->idle.is_idle)
        return "idle";
    return gm_app_state_text(app->state);
}

static void add_account(cJSON *object, const struct gm_sched_account *account, bool is_stopped,
                        uint64_t now)
{
    gm_view_policy(object, &account->policy);
    cJSON_AddNumberToObject(object, "level", account->level);
    cJSON_AddNumberToObject(object, "charged_s", (double)account->charged_ns / (double)GM_S);
    if (account->allotment_ns == GM_TIME_NEVER)
        cJSON_AddNullToObject(object, "allotment_s");
    else
        cJSON_AddNumberToObject(object, "allotment_s",
                                (double)account->allotment_ns / (double)GM_S);
    cJSON_AddNumberToObject(object, "run_s", (double)account->run_ns / (double)GM_S);
    cJSON_AddNumberToObject(object, "wait_s", (double)account->wait_ns / (double)GM_S);
    cJSON_AddNumberToObject(object, "idle_s", (double)account->idle_ns / (double)GM_S);
    bool is_waiting = account->waiting_at > 0 && account->waiting_at < now;
    cJSON_AddNumberToObject(object, "waiting_s",
                            is_waiting ? (double)(now - account->waiting_at) / (double)GM_S : 0);
    cJSON_AddStringToObject(object, "reason",
                            is_stopped ? "stopped" : gm_why_name(account->reason));
}

/* Memory that only the driver can move, by kind. small_bytes includes real_bytes. The program
 * itself reports it, so it is only shown. */
static void add_unswappable(cJSON *object, const struct gm_stat *stat)
{
    static const struct gm_stat none;
    if (!stat)
        stat = &none;
    double real = (double)atomic_load(&stat->real_bytes);
    double small = (double)atomic_load(&stat->small_bytes) + real;
    double managed = (double)atomic_load(&stat->managed_bytes);
    double arrays = (double)atomic_load(&stat->array_bytes);
    double graphs = (double)atomic_load(&stat->graph_bytes);
    double driver = (double)atomic_load(&stat->driver_bytes);
    cJSON_AddNumberToObject(object, "unswappable_bytes",
                            small + managed + arrays + graphs + driver);
    cJSON_AddNumberToObject(object, "small_bytes", small);
    cJSON_AddNumberToObject(object, "real_bytes", real);
    cJSON_AddNumberToObject(object, "managed_bytes", managed);
    cJSON_AddNumberToObject(object, "array_bytes", arrays);
    cJSON_AddNumberToObject(object, "graph_bytes", graphs);
    cJSON_AddNumberToObject(object, "driver_bytes", driver);
}

static void add_features_off(cJSON *object, const struct gm_app *app)
{
    cJSON *names = cJSON_AddArrayToObject(object, "features_off");
    uint32_t off = app->stat ? atomic_load(&app->stat->features_off) : 0;
#define GM_FEATURE(bit, NAME, name, text)                                                          \
    if ((off & GM_FEATURE_##NAME) != 0)                                                            \
        cJSON_AddItemToArray(names, cJSON_CreateString(name));
#include "common/features.def"
#undef GM_FEATURE
}

static cJSON *describe_app(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const struct gm_table_app *entry = &engine->table->apps[id];
    struct gm_sched_account account = {
        .policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL},
        .ahead = UINT32_MAX,
        .allotment_ns = GM_TIME_NEVER};
    cJSON *object = cJSON_CreateObject();
    char why[768];

    gm_engine_account(engine, id, &account);
    say_why(engine, id, &account, why, sizeof why);
    cJSON_AddNumberToObject(object, "id", id);
    cJSON_AddNumberToObject(object, "pid", app->pid);
    cJSON_AddNumberToObject(object, "uid", app->uid);
    cJSON_AddStringToObject(object, "name", app->name);
    cJSON_AddNumberToObject(object, "gpu", engine->config.gpu);
    cJSON_AddStringToObject(object, "group", gm_group_name(app->client->group));
    cJSON_AddStringToObject(object, "state", state_text(engine, id, &account));
    add_bytes(object, "resident_bytes", entry->resident + entry->fixed);
    add_bytes(object, "total_bytes", entry->committed);
    add_bytes(object, "cached_bytes", gm_engine_spare_bytes(engine, id));
    add_bytes(object, "pinned_bytes", entry->bytes[GM_TIER_PINNED]);
    add_bytes(object, "shadow_bytes", entry->shadow_bytes);
    add_bytes(object, "on_host_bytes", entry->on_host);
    add_bytes(object, "exchanged_bytes", app->places.exchanged);
    add_bytes(object, "cap_bytes", gm_engine_cap(engine, id));
    add_bytes(object, "device_bytes", entry->device);
    cJSON_AddStringToObject(object, "oversize",
                            gm_engine_is_oversize(engine, id) ? "host" : "refuse");
    add_bytes(object, "shared_bytes", gm_engine_shared_bytes(engine, id));
    add_bytes(object, "opened_bytes", gm_engine_opened_bytes(engine, id));
    add_unswappable(object, app->stat);
    add_account(object, &account, app->is_part_stopped, engine->now);
    cJSON_AddNumberToObject(object, "waiting_threads",
                            app->stat ? atomic_load(&app->stat->waiting) : 0);
    cJSON_AddNumberToObject(object, "switches", (double)app->counts[GM_EVENT_YIELDED]);
    cJSON_AddBoolToObject(object, "parked", app->gate.is_parked);
    cJSON_AddNumberToObject(object, "parks", (double)app->counts[GM_EVENT_PARKED]);
    cJSON_AddNumberToObject(object, "timeslice_us", (double)app->policy.timeslice_us);
    cJSON_AddNumberToObject(object, "hints", (double)app->hints.n);
    cJSON_AddNumberToObject(object, "hints_ignored", (double)app->hints.n_ignored);
    cJSON_AddNumberToObject(object, "holds", (double)app->hints.holds);
    cJSON_AddNumberToObject(object, "short_turns", (double)app->short_turns);
    cJSON_AddNumberToObject(object, "allocs", (double)app->counts[GM_EVENT_ALLOC]);
    cJSON_AddNumberToObject(object, "frees", (double)app->counts[GM_EVENT_FREE]);
    cJSON_AddNumberToObject(object, "refused_allocs",
                            app->stat ? (double)atomic_load(&app->stat->refused) : 0);
    add_features_off(object, app);
    cJSON_AddStringToObject(object, "ignored", app->policy.ignored);
    cJSON_AddStringToObject(object, "why", why);
    return object;
}

/* The last switches, oldest first, each with its parts. */
static void add_history(const struct gm_engine *engine, cJSON *object)
{
    cJSON *history = cJSON_AddArrayToObject(object, "history");
    uint64_t newest = engine->n_history;
    for (uint64_t seq = newest > GM_HISTORY ? newest - GM_HISTORY + 1 : 1; seq <= newest; seq++) {
        const struct gm_switch *entry = &engine->history[seq % GM_HISTORY];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddItemToArray(history, row);
        cJSON_AddNumberToObject(row, "seq", (double)entry->seq);
        cJSON_AddNumberToObject(row, "app", entry->app);
        cJSON_AddNumberToObject(row, "pid", entry->pid);
        cJSON_AddNumberToObject(row, "at_s", (double)entry->at / (double)GM_S);
        gm_view_switch(row, entry);
    }
}

static cJSON *describe_tiers(const struct gm_engine *engine, uint64_t resident)
{
    cJSON *tiers = cJSON_CreateObject();
    add_bytes(tiers, "gpu_bytes", resident);
    add_bytes(tiers, "pinned_bytes", gm_hostpool_size(&engine->pool));
    add_bytes(tiers, "pinned_cap_bytes", gm_hostpool_cap(&engine->pool));
    add_bytes(tiers, "pinned_used_bytes", gm_engine_pinned_used(engine));
    add_bytes(tiers, "pinned_shadow_bytes", engine->table->shadows);
    add_bytes(tiers, "pinned_cached_bytes",
              gm_hostpool_size(&engine->pool) - gm_hostpool_used(&engine->pool));
    add_bytes(tiers, "paged_bytes", gm_stores_held(engine->stores));
    add_bytes(tiers, "paged_used_bytes", gm_stores_used(engine->stores, GM_TIER_PAGED));
    add_bytes(tiers, "paged_cap_bytes", gm_stores_cap(engine->stores, GM_TIER_PAGED));
    add_bytes(tiers, "disk_used_bytes", gm_stores_used(engine->stores, GM_TIER_DISK));
    add_bytes(tiers, "disk_cap_bytes", gm_stores_cap(engine->stores, GM_TIER_DISK));
    add_bytes(tiers, "on_host_bytes", engine->table->on_host);
    cJSON_AddBoolToObject(tiers, "pinned_is_registered", engine->pool.is_registered);
    return tiers;
}

/* Bytes moved below the GPU since the start, always to or from pinned memory. */
static cJSON *describe_moved(const struct gm_stores *stores)
{
    cJSON *moved = cJSON_CreateObject();
    add_bytes(moved, "pinned_to_paged_bytes",
              gm_stores_bytes(stores, GM_TIER_PINNED, GM_TIER_PAGED));
    add_bytes(moved, "paged_to_pinned_bytes",
              gm_stores_bytes(stores, GM_TIER_PAGED, GM_TIER_PINNED));
    add_bytes(moved, "pinned_to_disk_bytes", gm_stores_bytes(stores, GM_TIER_PINNED, GM_TIER_DISK));
    add_bytes(moved, "disk_to_pinned_bytes", gm_stores_bytes(stores, GM_TIER_DISK, GM_TIER_PINNED));
    return moved;
}

static cJSON *describe_gpu(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    uint64_t cached = table->free + table->condemned;
    size_t free_bytes = 0, total = 0;
    uint64_t resident = 0, spares = 0;
    uint32_t frames = 0;
    char uuid[48] = "GPU-";
    size_t at = 4;
    cJSON *object = cJSON_CreateObject(), *running;

    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(uuid + at, sizeof uuid - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned)(unsigned char)engine->uuid.bytes[i]);
    for (uint32_t i = 0; i < table->max_apps; i++) {
        frames += table->pools[i].frames;
        if (!table->apps[i].is_used)
            continue;
        resident += table->apps[i].resident + table->apps[i].fixed;
        spares += gm_engine_spare_bytes(engine, i);
    }
    cached += spares < resident ? spares : resident; /* ... and those of spares */
    gm_cuda_enter(&engine->cuda, engine->context);
    engine->cuda.cuMemGetInfo_v2(&free_bytes, &total);
    cJSON_AddNumberToObject(object, "index", engine->config.gpu);
    cJSON_AddStringToObject(object, "name", engine->gpu_name);
    cJSON_AddStringToObject(object, "uuid", uuid);
    add_bytes(object, "budget_bytes", gm_engine_offered(engine));
    add_bytes(object, "budget_most_bytes", engine->config.budget);
    add_bytes(object, "usable_bytes", table->budget);
    add_bytes(object, "used_bytes", table->allocated - cached);
    add_bytes(object, "cached_bytes", cached);
    add_bytes(object, "free_bytes", table->budget - table->allocated);
    add_bytes(object, "committed_bytes", table->committed - spares);
    add_bytes(object, "available_bytes",
              gm_engine_newcomer_room(engine, engine->config.is_oversize));
    add_bytes(object, "shared_bytes", table->fixed);
    add_bytes(object, "device_total_bytes", total);
    add_bytes(object, "device_free_bytes", free_bytes);
    cJSON_AddItemToObject(object, "tiers", describe_tiers(engine, resident));
    cJSON_AddItemToObject(object, "moved", describe_moved(engine->stores));
    running = cJSON_AddArrayToObject(object, "running");
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state == GM_APP_RUNNING)
            cJSON_AddItemToArray(running, cJSON_CreateNumber(id));
    cJSON_AddNumberToObject(object, "switches", (double)engine->counts[GM_EVENT_YIELDED]);
    add_bytes(object, "bytes_in", gm_mover_bytes(engine->mover, GM_WAY_IN));
    add_bytes(object, "bytes_out", gm_mover_bytes(engine->mover, GM_WAY_OUT));
    add_bytes(object, "bytes_clean", engine->sums.clean);
    add_bytes(object, "bytes_zero", engine->sums.zero);
    cJSON_AddBoolToObject(object, "is_hashing", engine->hasher && !engine->is_hashing_off);
    add_bytes(object, "bytes_hashed", engine->hasher ? gm_hasher_bytes(engine->hasher) : 0);
    cJSON_AddNumberToObject(object, "hash_ms",
                            engine->hasher ? (double)gm_hasher_ns(engine->hasher) / 1e6 : 0);
    cJSON_AddNumberToObject(object, "frames", frames);
    add_history(engine, object);
    gm_view_refusals(engine->config.journal, engine->config.index, engine->now, object);
    return object;
}

static void add_totals(cJSON *totals, const struct gm_machine *machine)
{
    uint64_t in = 0, out = 0, counts[GM_EVENTS] = {0};
    for (uint32_t i = 0; i < machine->n; i++) {
        const struct gm_engine *engine = machine->engines[i];
        in += gm_mover_bytes(engine->mover, GM_WAY_IN);
        out += gm_mover_bytes(engine->mover, GM_WAY_OUT);
        for (unsigned kind = 0; kind < GM_EVENTS; kind++)
            counts[kind] += engine->counts[kind];
    }
    cJSON_AddNumberToObject(totals, "switches", (double)counts[GM_EVENT_YIELDED]);
    cJSON_AddNumberToObject(totals, "parks", (double)counts[GM_EVENT_PARKED]);
    add_bytes(totals, "bytes_in", in);
    add_bytes(totals, "bytes_out", out);
    cJSON_AddNumberToObject(totals, "allocs", (double)counts[GM_EVENT_ALLOC]);
    cJSON_AddNumberToObject(totals, "frees", (double)counts[GM_EVENT_FREE]);
    cJSON_AddNumberToObject(totals, "refused_allocs", (double)counts[GM_EVENT_REFUSED]);
    cJSON_AddNumberToObject(totals, "drain_busy", (double)counts[GM_EVENT_BUSY]);
}

cJSON *gm_view_status(const struct gm_machine *machine)
{
    cJSON *status = cJSON_CreateObject();
    cJSON *gpus = cJSON_AddArrayToObject(status, "gpus");
    cJSON *apps = cJSON_AddArrayToObject(status, "apps");

    for (uint32_t i = 0; i < machine->n; i++)
        cJSON_AddItemToArray(gpus, describe_gpu(machine->engines[i]));
    for (uint32_t id = 0; id < machine->max_apps; id++)
        for (uint32_t i = 0; i < machine->n; i++)
            if (machine->engines[i]->apps[id].state != GM_APP_UNUSED)
                cJSON_AddItemToArray(apps, describe_app(machine->engines[i], id));
    add_totals(cJSON_AddObjectToObject(status, "totals"), machine);
    return status;
}
