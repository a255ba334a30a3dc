/*
 * Opens and closes the engine, and goes round: decision -> app states -> moves -> gates
 * (gm_engine_run, with which every event ends). Owns the states of apps (gm_engine_turn is their
 * only setter) and the gates. Called by main and all files of the engine; calls these.
 */
#include "daemon/engine/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/memory/limits.h"

/*
 * The streaming window: pinned memory that stays free, so that a switch always has a place to start
 * and a full lower tier slows it but never blocks it. Without lower tiers the largest chunk, and as
 * much again for what the size classes leave over, suffice. With them an eighth of the pinned
 * memory, at most 1 GiB: 10 ms of both links, 16 chunks each way for the worker threads; at least
 * what the planner needs for its plans to end (224 MiB).
 */
#define WINDOW_ALONE (2 * GM_CHUNK_MAX)

const char *gm_engine_tier_text(enum gm_tier tier)
{
    static const char *const names[GM_TIERS] = {"nowhere", "GPU", "pinned memory", "paged memory",
                                                "disk"};
    return names[tier];
}

bool gm_engine_turn(struct gm_engine *engine, uint32_t id, enum gm_app_event event)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_turn turn = {.model = GM_MODEL_APP,
                                 .from = (uint8_t)app->state,
                                 .event = (uint8_t)event,
                                 .to = gm_model_next(GM_MODEL_APP, app->state, event),
                                 .id = id,
                                 .app = id};
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_TURN, .app = id, .turn.turn = turn});
    if (turn.to == GM_TURN_ILLEGAL)
        return false;
    app->state = (enum gm_app_state)turn.to;
    engine->again = true;
    engine->plan_is_stale = true;
    gm_group_changed(engine, id);
    return true;
}

/* Gates. */

static void resume(struct gm_engine *engine, uint32_t id)
{
    struct gm_client *client = engine->apps[id].client;
    const struct gm_msg_resume message = {.epoch = client->epoch};
    client->is_parked = false;
    engine->config.outlet.send(client->session, GM_MSG_RESUME, &message, NULL, 0, NULL, 0);
}

/* What the program has on this GPU is in place: if no other engine has its gate closed, it opens,
 * and work that was parked goes on. */
static void let(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->gate.is_parked = false;
    if (gm_client_let(app->client, engine->config.index) && app->client->is_parked)
        resume(engine, id);
}

/* It parked for a CLOSE that was given up, as a program does that was stopped meanwhile. Its gate
 * is open: it goes on. Or it was closed again: it goes on when it opens, whatever it answers. */
static void parked_late(struct gm_engine *engine, uint32_t id)
{
    struct gm_client *client = engine->apps[id].client;
    if (client->shut == 0)
        resume(engine, id);
    else
        client->is_parked = true;
}

static void open_gate(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    bool was_held = app->places.is_held;
    gm_engine_turn(engine, id, GM_APP_EV_LOADED);
    app->places.is_held = false;
    gm_engine_opened(engine, id);
    app->idle.active_at = engine->now;
    app->idle.quiet_at = 0;
    gm_engine_end_placing(engine, id, false);
    if (!was_held) {
        gm_engine_record_switch(engine, id);
        app->idle.is_idle = false;
    }
    gm_group_opens(engine, id);
    let(engine, id);
    gm_engine_sample_soon(engine);
    if (!was_held)
        gm_engine_feed(engine, GM_SCHED_OPENED, id, 0);
}

void gm_engine_close_gate(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_msg_close close_msg = {.grace_ns = engine->config.grace_ns,
                                     .deadline_ns = engine->config.drain_deadline_ns};

    gm_engine_turn(engine, id, GM_APP_EV_DROPPED);
    if (app->gate.is_late) {
        /* It has not answered the CLOSE before: another would only queue up behind it. */
        gm_engine_turn(engine, id, GM_APP_EV_BUSY);
        gm_engine_feed(engine, GM_SCHED_BUSY, id, 0);
        return;
    }
    struct gm_client *client = app->client;
    const bool is_asked = gm_client_shut(client, engine->config.index);
    close_msg.epoch = app->gate.epoch = client->epoch;
    app->gate.closed_at = engine->now;
    if (is_asked)
        engine->config.outlet.send(app->session, GM_MSG_CLOSE, &close_msg, NULL, 0, NULL, 0);
    if (client->state != GM_CLIENT_CLOSING) { /* it has answered another engine */
        const struct gm_msg_drained drained = {.epoch = client->epoch,
                                               .status = client->state == GM_CLIENT_BUSY
                                                             ? GM_DRAIN_BUSY
                                                         : client->is_parked ? GM_DRAIN_PARKED
                                                                             : GM_DRAIN_QUIET};
        gm_engine_drained(engine, id, &drained);
    }
}

static bool is_in_set(const struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = 0; i < engine->decision.n_set; i++)
        if (engine->decision.set[i] == id)
            return true;
    return false;
}

void gm_engine_hold(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (!is_in_set(engine, id))
        return;
    app->places.is_held = true;
    gm_engine_close_gate(engine, id);
}

/* The scheduler wants the turn of an app that was held: it ends here. */
static void release(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_end_placing(engine, id, true);
    app->places.is_held = false;
    gm_engine_happened(engine, id, GM_EVENT_YIELDED);
    gm_engine_note_leaver(engine, id, false);
    gm_engine_feed(engine, GM_SCHED_CLOSED, id, 0);
    if (gm_group_is_several(engine, id)) { /* it stands in line with its group */
        app->idle.is_idle = true;
        gm_engine_feed(engine, GM_SCHED_IDLE, id, 0);
    }
    if (app->gate.is_parked)
        gm_engine_wants(engine, id); /* it has work, though no thread need wait at the gate */
}

/* What the app answered to CLOSE, or that it did not. */
void gm_engine_drained(struct gm_engine *engine, uint32_t id, const struct gm_msg_drained *drained)
{
    struct gm_app *app = &engine->apps[id];
    if (drained) {
        app->batches.answered_at = engine->now;
        app->gate.is_late = false; /* it answers, be it too late */
    }
    if (app->state != GM_APP_DRAINING || (drained && drained->epoch != app->gate.epoch)) {
        if (drained && drained->status == GM_DRAIN_PARKED)
            parked_late(engine, id);
        return; /* an answer to a CLOSE that was given up */
    }
    bool is_for_places = app->places.is_held && is_in_set(engine, id);
    if (drained && (drained->status == GM_DRAIN_QUIET || drained->status == GM_DRAIN_PARKED)) {
        app->gate.is_late = false;
        app->gate.busy_reason = 0;
        const bool is_parked = drained->status == GM_DRAIN_PARKED;
        app->gate.is_parked = is_parked && gm_engine_may_have_work(engine, id);
        gm_engine_emit(engine, &(struct gm_event){
                                   .kind = GM_EVENT_DRAINED,
                                   .app = id,
                                   .drained = {.ns = drained->drain_ns, .is_parked = is_parked}});
        if (is_parked)
            gm_engine_happened(engine, id, GM_EVENT_PARKED);
        if (is_parked && !app->gate.is_parked)
            resume(engine, id); /* it was only late to say that it has no work */
        gm_engine_turn(engine, id, GM_APP_EV_QUIET);
        app->idle.active_at = engine->now; /* it may only have waited for that */
        gm_engine_sample_soon(engine);
        if (is_for_places)
            return;
        if (app->places.is_held)
            gm_group_yield(engine, id);
        gm_engine_take_spares(engine, id, UINT64_MAX); /* their data is dead: it is not copied */
        release(engine, id);
        return;
    }
    app->gate.is_late = !drained;
    if (app->places.is_held)
        gm_engine_hold_failed(engine, id);
    app->places.is_held = false;
    gm_engine_turn(engine, id, GM_APP_EV_BUSY);
    gm_group_opens(engine, id);
    let(engine, id);
    if (is_for_places)
        return; /* nobody else waited for it */
    app->gate.busy_reason = drained ? drained->reason : 0;
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_BUSY, .app = id, .busy.has_answered = drained != NULL});
    gm_engine_feed(engine, GM_SCHED_BUSY, id, 0);
}

/* The run loop. */

/* A member of a group that is not open runs, as it came to this GPU in the middle of its work, and
 * is known not to drain now. */
static bool is_busy_guest(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return !engine->units[app->unit].is_open &&
           (app->gate.is_late || app->client->state == GM_CLIENT_BUSY);
}

/* Move every app towards the decision. */
static void reconcile(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        enum gm_app_state state = engine->apps[id].state;
        if (!engine->apps[id].places.is_held || is_in_set(engine, id) ||
            (state != GM_APP_PAUSED && state != GM_APP_LOADING))
            continue;
        if (state == GM_APP_LOADING)
            gm_engine_turn(engine, id, GM_APP_EV_DROPPED);
        gm_group_yield(engine, id);
        release(engine, id);
    }
    memset(engine->in_set, 0, engine->config.max_apps * sizeof *engine->in_set);
    for (uint32_t i = 0; i < engine->decision.n_set; i++)
        engine->in_set[engine->decision.set[i]] = true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state == GM_APP_PAUSED && engine->in_set[id]) {
            gm_engine_turn(engine, id, GM_APP_EV_CHOSEN);
            if (engine->table->apps[id].beyond > 0 || engine->table->apps[id].on_host > 0)
                gm_engine_want_places(engine, id);
            if (!app->places.is_held)
                gm_engine_begin_switch(engine, id);
            app->moves.progress_at = engine->now;
        } else if (app->state == GM_APP_LOADING && !engine->in_set[id]) {
            gm_engine_turn(engine, id, GM_APP_EV_DROPPED);
            gm_engine_end_placing(engine, id, true);
        } else if (app->state == GM_APP_RUNNING && !engine->in_set[id] &&
                   !is_busy_guest(engine, id)) {
            gm_group_yield(engine, id);
            gm_engine_close_gate(engine, id);
        }
    }
}

static void open_ready(struct gm_engine *engine)
{
    bool has_opened = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        /* One a round: opening asks the scheduler, whose set may be another then. */
        if (app->state == GM_APP_LOADING && engine->table->apps[id].missing == 0 && !has_opened &&
            !gm_engine_is_placing(engine, id) && gm_group_may_open(engine, id)) {
            open_gate(engine, id);
            has_opened = true;
        }
        if (app->state != GM_APP_RUNNING)
            gm_engine_call_off_ahead(engine, id);
        if (app->allocs.pending > 0)
            gm_engine_answer_allocs(engine, id);
    }
}

void gm_engine_run(struct gm_engine *engine)
{
    if (engine->is_running || engine->is_closing)
        return;
    engine->is_running = true;
    engine->is_called = false;
    gm_engine_pass(engine);
    gm_cuda_enter(&engine->cuda, engine->context);
    if (engine->now >= engine->decision.wake_at)
        gm_engine_feed(engine, GM_SCHED_TIMER, 0, 0);
    gm_engine_find_stops(engine);
    if (engine->now >= engine->sample_at)
        gm_engine_sample(engine);
    gm_engine_follow_hints(engine);
    gm_engine_check_deadlines(engine);
    gm_engine_update_room(engine);
    gm_engine_follow_caps(engine);
    gm_engine_reap(engine);
    engine->created = 0;
    engine->plan_is_stale = engine->plan_is_stale || engine->create_more;
    engine->create_more = false;
    do {
        engine->again = false;
        if (engine->stopping.is_on)
            gm_engine_choose_saved(engine);
        gm_engine_follow_groups(engine);
        reconcile(engine);
        gm_engine_bury(engine);
        gm_engine_admit_waiting(engine);
        gm_engine_try_failed(engine);
        gm_engine_place(engine);
        if (engine->plan_is_stale)
            gm_engine_plan(engine);
        gm_engine_move(engine);
        gm_engine_follow_refusal(engine);
        gm_engine_map_on_host(engine);
        open_ready(engine);
    } while (engine->again);
    gm_engine_clear_frames(engine);
    gm_engine_tell_timeslices(engine);
    gm_engine_take_turns(engine);
    gm_engine_tell_room(engine);
    gm_engine_note_levels(engine);
    gm_engine_note_places(engine);
    gm_engine_note_refusals(engine);
    gm_engine_note_features(engine);
    gm_engine_give_back(engine);
    gm_engine_flush(engine);
    gm_engine_arm_timer(engine);
    gm_engine_look_under_way(engine);
    engine->is_running = false;
    if (engine->stopping.is_over) {
        engine->is_closing = true;
        engine->stopping.on_saved(engine->stopping.arg);
    }
}

/* Nothing that this context copies can be trusted any more. Running programs keep their memory
 * without the daemon, and the others are told. */
static void lose_gpu(struct gm_engine *engine, CUresult error)
{
    const char *name = gm_cuda_text(&engine->cuda, error);
    char text[128];
    gm_log(GM_LOG_ERROR, "the daemon's CUDA context is lost (%s): stopping", name);
    snprintf(text, sizeof text, "the daemon has lost the GPU (%s)", name);
    engine->is_closing = true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session)
            continue;
        engine->config.outlet.end(engine->apps[id].session, GM_REFUSE_STOPPING, text);
        gm_log_release(true); /* each of them is named */
    }
    engine->config.on_lost(engine->config.arg);
}

static void on_copies(void *arg)
{
    struct gm_engine *engine = arg;
    CUresult error = gm_mover_error(engine->mover);
    if (engine->is_closing)
        return;
    engine->now = gm_now();
    if (error != CUDA_SUCCESS) {
        lose_gpu(engine, error);
        return;
    }
    gm_engine_take_copies(engine);
    gm_engine_run(engine);
}

static void on_grown(void *arg)
{
    struct gm_engine *engine = arg;
    engine->now = gm_now();
    if ((engine->pool.refusal != CUDA_SUCCESS || engine->pool.stuck != CUDA_SUCCESS) &&
        engine->pool_retry_at == 0)
        engine->pool_retry_at = engine->now + GM_POOL_RETRY_NS;
    if (engine->pool.refusal != CUDA_SUCCESS && engine->pool.refusal != engine->pool_refusal)
        gm_log(GM_LOG_WARN, "pinned memory refused at %llu MiB (%s): asking again every second",
               (unsigned long long)(gm_hostpool_size(&engine->pool) >> 20),
               gm_cuda_text(&engine->cuda, engine->pool.refusal));
    engine->pool_refusal = engine->pool.refusal;
    gm_engine_run(engine);
}

/* Opening and closing. */

/* No other daemon hands this GPU's memory out, unless that is wanted. 0, or -errno and `why`. */
static int claim_gpu(struct gm_engine *engine, char *why, size_t why_size)
{
    char holder[512];
    int error = gm_claim_open(&engine->claim, (const unsigned char *)engine->uuid.bytes,
                              engine->config.outlet.user, holder, sizeof holder);
    if (error == 0 && holder[0])
        gm_log(GM_LOG_WARN, "GPU %d %s", engine->config.gpu, holder);
    if (error == 0)
        return 0;
    if (error != -EADDRINUSE) {
        snprintf(why, why_size, "GPU %d cannot be claimed: %s", engine->config.gpu, holder);
        return error;
    }
    if (engine->config.is_gpu_shared) {
        gm_log(GM_LOG_WARN, "GPU %d is also shared by %s: give each a --gpu-budget of its own",
               engine->config.gpu, holder);
        return 0;
    }
    snprintf(why, why_size,
             "GPU %d is shared by %s already: use or stop that, or start this one with "
             "--shared-gpu and give each a --gpu-budget of its own",
             engine->config.gpu, holder);
    return error;
}

/* Nobody has tried yet whether a kernel that is stopped counts against a display's time limit. */
static void check_kernel_limit(struct gm_engine *engine)
{
    int has_limit = 0;
    engine->cuda.cuDeviceGetAttribute(&has_limit, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT,
                                      engine->device);
    if (!has_limit || engine->config.grace_ns >= GM_GRACE_LIMITED_NS)
        return;
    engine->config.grace_ns = GM_GRACE_LIMITED_NS;
    gm_log(GM_LOG_INFO,
           "GPU %d limits the time of kernels (it drives a display): --grace is %llu ms",
           engine->config.gpu, GM_GRACE_LIMITED_NS / GM_MS);
}

/* Who made the first context on an exclusive GPU is the only one: that would be the daemon. Under
 * MPS it is the server, for all its clients. */
static int check_compute_mode(const struct gm_engine *engine, char *why, size_t why_size)
{
    const struct gm_cuda *cuda = &engine->cuda;
    int mode = CU_COMPUTEMODE_DEFAULT, has_mps = 0;
    cuda->cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, engine->device);
    cuda->cuDeviceGetAttribute(&has_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, engine->device);
    if (mode != CU_COMPUTEMODE_PROHIBITED && (mode != CU_COMPUTEMODE_EXCLUSIVE_PROCESS || has_mps))
        return 0;
    snprintf(why, why_size,
             "GPU %d (%s) is in compute mode %s, so %s: as root, run nvidia-smi -i %d -c DEFAULT",
             engine->config.gpu, engine->gpu_name,
             mode == CU_COMPUTEMODE_PROHIBITED ? "PROHIBITED" : "EXCLUSIVE_PROCESS",
             mode == CU_COMPUTEMODE_PROHIBITED ? "no program can use it"
                                               : "only one process can use it",
             engine->config.gpu);
    return -ENOTSUP;
}

static int open_gpu(struct gm_engine *engine, char *why, size_t why_size)
{
    const struct gm_cuda *cuda = &engine->cuda;
    int count = 0, has_vmm = 0, has_fds = 0, has_host = 1;
    size_t free_bytes = 0, total = 0;
    CUresult result = cuda->cuInit(0);

    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "the CUDA driver does not start (%s): is a GPU present and usable?",
                 gm_cuda_text(cuda, result));
        return -ENODEV;
    }
    if (engine->config.gpu < 0 || engine->config.gpu >= count) {
        snprintf(why, why_size, "there is no GPU %d: this machine has %d; choose with --gpu",
                 engine->config.gpu, count);
        return -ENODEV;
    }
    cuda->cuDeviceGet(&engine->device, engine->config.gpu);
    cuda->cuDeviceGetName(engine->gpu_name, sizeof engine->gpu_name, engine->device);
    cuda->cuDeviceGetUuid_v2(&engine->uuid, engine->device);
    cuda->cuDeviceGetAttribute(&has_vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               engine->device);
    cuda->cuDeviceGetAttribute(
        &has_fds, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, engine->device);
    if (!has_vmm || !has_fds) {
        snprintf(why, why_size,
                 "GPU %d (%s) cannot %s, which gpumux needs: programs run on it as without gpumux",
                 engine->config.gpu, engine->gpu_name,
                 has_vmm ? "share memory handles between processes" : "map memory by handles");
        return -ENOTSUP;
    }
    cuda->cuDeviceGetAttribute(&has_host,
                               CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               engine->device);
    if (!has_host) {
        gm_log(GM_LOG_WARN,
               "GPU %d (%s) has no memory handles on the host: pinned memory is registered instead"
               "%s",
               engine->config.gpu, engine->gpu_name,
               engine->config.is_oversize
                   ? ", which programs cannot map, so --oversize host is off: what is beyond the "
                     "budget is out of memory"
                   : "");
        engine->config.is_oversize = false;
    }
    int error = check_compute_mode(engine, why, why_size);
    if (error == 0)
        error = claim_gpu(engine, why, why_size);
    if (error)
        return error;
    check_kernel_limit(engine);
    result = cuda->cuDevicePrimaryCtxRetain(&engine->context, engine->device);
    if (result == CUDA_SUCCESS)
        result = gm_cuda_enter(cuda, engine->context);
    if (result == CUDA_SUCCESS)
        result = cuda->cuMemGetInfo_v2(&free_bytes, &total);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "cannot use GPU %d (%s): %s", engine->config.gpu, engine->gpu_name,
                 gm_cuda_text(cuda, result));
        return -EIO;
    }
    engine->device_bytes = total;
    uint64_t *budget = &engine->config.budget;
    if (engine->config.budget_percent)
        *budget = total / 100 * engine->config.budget_percent;
    if (*budget > total) {
        snprintf(why, why_size,
                 "the budget of %llu MiB is above GPU %d's %llu MiB: lower --gpu-budget",
                 (unsigned long long)(*budget >> 20), engine->config.gpu,
                 (unsigned long long)(total >> 20));
        return -EINVAL;
    }
    /* Where programs beside gpumux left less than the budget, so much stays free: one frame. */
    engine->device_reserve = GM_CHUNK_MAX;
    engine->is_budget_auto = *budget == 0;
    engine->first_budget = *budget;
    if (*budget == 0) {
        /* Room for the contexts of the apps (526 MiB each on an H200) and what they allocate past
         * gpumux: a sixteenth of the device, 2 GiB at most. */
        const uint64_t reserve = total / 16 < 2048ull << 20 ? total / 16 : 2048ull << 20;
        engine->device_reserve = reserve;
        engine->first_budget = free_bytes > reserve ? free_bytes - reserve : 0;
        *budget = total - reserve;
    }
    *budget &= ~(GM_CHUNK_MIN - 1);
    engine->first_budget &= ~(GM_CHUNK_MIN - 1);
    if (engine->first_budget == 0) {
        snprintf(why, why_size,
                 "the budget is empty: GPU %d has %llu MiB free; free some or set --gpu-budget",
                 engine->config.gpu, (unsigned long long)(free_bytes >> 20));
        return -EINVAL;
    }
    if (engine->first_budget > free_bytes)
        gm_log(GM_LOG_WARN, "the budget of %llu MiB is more than the %llu MiB free on GPU %d now",
               (unsigned long long)(*budget >> 20), (unsigned long long)(free_bytes >> 20),
               engine->config.gpu);
    return 0;
}

static int make_tables(struct gm_engine *engine)
{
    uint32_t max_apps = engine->config.max_apps;
    /* Host frames are in pinned memory; and in the end all of the device is used. */
    uint32_t max_frames =
        (uint32_t)((engine->device_bytes + engine->config.pinned) >> GM_CHUNK_SHIFT) + 1;
    uint64_t chunks = ((engine->config.budget + engine->config.pinned + engine->config.paged +
                        engine->config.disk) >>
                       GM_CHUNK_SHIFT) +
                      1;
    uint32_t max_chunks = (uint32_t)chunks;

    if (chunks >= GM_NONE)
        return -ENOMEM;
    engine->table_memory = calloc(1, gm_table_size(max_apps, max_chunks, max_frames));
    engine->apps = calloc(max_apps, sizeof *engine->apps);
    engine->frame_more = calloc(max_frames, sizeof *engine->frame_more);
    engine->late = calloc(max_chunks, sizeof *engine->late);
    engine->failed = calloc(max_chunks, sizeof *engine->failed);
    engine->unsent = calloc(max_chunks, sizeof *engine->unsent);
    const uint32_t pages = gm_hostpool_pages(&engine->pool);
    engine->unit_frame = malloc((pages + 1) * sizeof *engine->unit_frame);
    engine->condemned = calloc(max_frames, sizeof *engine->condemned);
    engine->targets = calloc(max_apps, sizeof *engine->targets);
    engine->victims = calloc(max_apps, sizeof *engine->victims);
    engine->donors = calloc(max_apps, sizeof *engine->donors);
    engine->in_set = calloc(max_apps, sizeof *engine->in_set);
    engine->running = calloc(max_apps, sizeof *engine->running);
    engine->stopping.apps = calloc(max_apps, sizeof *engine->stopping.apps);
    engine->stopping.set = calloc(max_apps, sizeof *engine->stopping.set);
    engine->admit_apps = calloc(max_apps, sizeof *engine->admit_apps);
    /* For every frame: evict and lower what is in it, destroy it, raise and fill what comes; and
     * what else is lowered, a window full at a time. */
    engine->plan.capacity = 8 * max_frames + 64;
    engine->plan.moves = calloc(engine->plan.capacity, sizeof *engine->plan.moves);
    for (int i = 0; i < GM_WAYS; i++)
        engine->ring[i] = calloc(GM_WAY_DEPTH, sizeof *engine->ring[i]);
    if (!engine->table_memory || !engine->apps || !engine->frame_more || !engine->late ||
        !engine->failed || !engine->unsent || !engine->unit_frame || !engine->condemned ||
        !engine->targets || !engine->victims || !engine->donors || !engine->in_set ||
        !engine->running || !engine->admit_apps || !engine->stopping.apps ||
        !engine->stopping.set || !engine->plan.moves || !engine->ring[0] || !engine->ring[1])
        return -ENOMEM;
    memset(engine->unit_frame, 0xff, (pages + 1) * sizeof *engine->unit_frame); /* GM_NONE */
    engine->table =
        gm_table_init(engine->table_memory, max_apps, max_chunks, max_frames, engine->first_budget);
    gm_engine_watch_table(engine);
    int error = gm_engine_open_sched(engine);
    if (error)
        return error;
    return gm_frames_open(&engine->frames, &engine->cuda, engine->device, max_frames);
}

static void free_tables(struct gm_engine *engine)
{
    gm_frames_close(&engine->frames);
    free(engine->table_memory);
    free(engine->sched_memory);
    free(engine->units);
    free(engine->set);
    free(engine->apps);
    free(engine->frame_more);
    free(engine->late);
    free(engine->failed);
    free(engine->unsent);
    free(engine->unit_frame);
    free(engine->condemned);
    free(engine->targets);
    free(engine->victims);
    free(engine->donors);
    free(engine->in_set);
    free(engine->running);
    free(engine->stopping.apps);
    free(engine->stopping.set);
    free(engine->admit_apps);
    free(engine->plan.moves);
    for (int i = 0; i < GM_WAYS; i++)
        free(engine->ring[i]);
}

static void free_engine(uv_handle_t *timer)
{
    struct gm_engine *engine = timer->data;
    if (engine->context)
        engine->cuda.cuDevicePrimaryCtxRelease_v2(engine->device);
    gm_claim_close(engine->claim);
    gm_cuda_close(&engine->cuda);
    free_tables(engine);
    free(engine);
}

/* The streaming window and its reserve. 0, or -EINVAL with one line in `why`. */
static int set_window(struct gm_engine *engine, char *why, size_t why_size)
{
    uint64_t cap = gm_stores_cap(engine->stores, GM_TIER_PINNED);
    uint64_t window = (cap / 8) & ~(GM_CHUNK_MIN - 1);
    struct gm_plan_input input = {.window = WINDOW_ALONE};

    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        input.tiers[tier].cap = gm_stores_cap(engine->stores, (enum gm_tier)tier);
    if (input.tiers[GM_TIER_PAGED].cap + input.tiers[GM_TIER_DISK].cap > 0) {
        if (cap < GM_PLAN_WINDOW_MIN) {
            snprintf(why, why_size,
                     "--pinned of %llu MiB is too little for the tiers below it, which are reached "
                     "through it: give it %llu MiB or more",
                     (unsigned long long)(cap >> 20), GM_PLAN_WINDOW_MIN >> 20);
            return -EINVAL;
        }
        engine->has_lower = true;
        window = window < GM_PLAN_WINDOW_MIN ? GM_PLAN_WINDOW_MIN : window;
        input.window = window < GM_WINDOW_MAX ? window : GM_WINDOW_MAX;
    }
    engine->window = input.window;
    if (cap <= engine->window)
        gm_log(
            GM_LOG_WARN,
            "--pinned of %llu MiB is too little to move memory out: all programs together get no "
            "more than the budget of %llu MiB. Copies go through %llu MiB: give it that, plus what "
            "programs need beyond the budget",
            (unsigned long long)(engine->config.pinned >> 20),
            (unsigned long long)(engine->first_budget >> 20),
            (unsigned long long)(engine->window >> 20));
    engine->reserve = gm_plan_reserve(&input);
    return 0;
}

int gm_engine_open(struct gm_engine **out, uv_loop_t *loop, const struct gm_engine_config *config,
                   char *why, size_t why_size)
{
    struct gm_engine *engine = calloc(1, sizeof *engine);
    struct gm_limits limits;
    int error;

    if (!engine) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    engine->loop = loop;
    engine->config = *config;
    engine->next_batch = GM_ENGINE_BATCHES * config->index;
    engine->now = gm_now();
    gm_limits_read(&limits, "");
    error = gm_limits_fit(&limits, &engine->config.pinned, engine->config.paged, why, why_size);
    if (error)
        goto free_memory;
    error = gm_cuda_open(&engine->cuda, why, why_size);
    if (error)
        goto free_memory;
    error = open_gpu(engine, why, why_size);
    if (error)
        goto close_cuda;
    error = gm_hostpool_open(&engine->pool, loop, &engine->cuda, engine->context, engine->device,
                             engine->config.pinned, on_grown, engine, why, why_size);
    if (error)
        goto close_cuda;
    const struct gm_stores_config stores = {.paged = engine->config.paged,
                                            .disk_dir = engine->config.disk_dir,
                                            .disk = engine->config.disk};
    error = gm_stores_open(&engine->stores, loop, &engine->pool, &stores, gm_engine_host_copied,
                           engine, why, why_size);
    if (error)
        goto close_pool;
    error = set_window(engine, why, why_size);
    if (error)
        goto close_stores;
    error = make_tables(engine); /* after the stores, which refuse a disk that is not there */
    if (error) {
        snprintf(why, why_size,
                 "no memory for the tables: lower --disk, --paged, --pinned or --max-apps");
        goto close_stores;
    }
    error = gm_mover_open(&engine->mover, loop, &engine->cuda, engine->context, on_copies, engine,
                          why, why_size);
    if (error)
        goto close_stores;
    gm_engine_open_hasher(engine);
    engine->waiting_tail = &engine->waiting;
    uv_timer_init(loop, &engine->timer);
    engine->timer.data = engine;
    *out = engine;
    gm_log(GM_LOG_INFO,
           "GPU %d (%s): budget %llu MiB of %llu%s, pinned up to %llu MiB, paged %llu, on disk "
           "%llu",
           engine->config.gpu, engine->gpu_name, (unsigned long long)(engine->table->budget >> 20),
           (unsigned long long)(engine->device_bytes >> 20),
           engine->is_budget_auto ? " (it follows what the GPU has free)" : "",
           (unsigned long long)(gm_hostpool_cap(&engine->pool) >> 20),
           (unsigned long long)(gm_stores_cap(engine->stores, GM_TIER_PAGED) >> 20),
           (unsigned long long)(gm_stores_cap(engine->stores, GM_TIER_DISK) >> 20));
    return 0;

close_stores:
    gm_stores_close(engine->stores);
close_pool:
    gm_hostpool_close(&engine->pool);
close_cuda:
    if (engine->context)
        engine->cuda.cuDevicePrimaryCtxRelease_v2(engine->device);
    gm_claim_close(engine->claim);
    gm_cuda_close(&engine->cuda);
    free_tables(engine);
free_memory:
    free(engine);
    return error;
}

int gm_engine_gpu(const struct gm_engine *engine)
{
    return engine->config.gpu;
}

void gm_engine_halt(struct gm_engine *engine)
{
    engine->is_closing = true;
}

void gm_engine_close(struct gm_engine *engine)
{
    gm_engine_halt(engine);
    gm_cuda_enter(&engine->cuda, engine->context);
    gm_hasher_close(engine->hasher);
    gm_mover_close(engine->mover);
    gm_stores_close(engine->stores);
    gm_engine_close_shares(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        gm_engine_forget_waiting(engine, id);
        if (engine->apps[id].state != GM_APP_UNUSED)
            gm_engine_free_app(engine, id);
    }
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        if (engine->table->frames[i].state != GM_FRAME_UNUSED &&
            !engine->frame_more[i].is_destroyed)
            gm_frames_destroy(&engine->frames, i, gm_class_bytes(engine->table->frames[i].class));
    gm_hostpool_close(&engine->pool);
    uv_timer_stop(&engine->timer);
    uv_close((uv_handle_t *)&engine->timer, free_engine);
}

uint64_t gm_engine_capacity(const struct gm_engine *engine)
{
    uint64_t bytes = engine->table->budget;
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        bytes += gm_stores_cap(engine->stores, (enum gm_tier)tier);
    /* The tiers below are reached through the window: without it there are none. */
    if (gm_stores_cap(engine->stores, GM_TIER_PINNED) < engine->window)
        return engine->table->budget;
    return bytes - engine->window;
}

uint64_t gm_engine_host_room(const struct gm_engine *engine)
{
    const uint64_t pinned = gm_stores_cap(engine->stores, GM_TIER_PINNED);
    return !engine->pool.is_registered && pinned > engine->window ? pinned - engine->window : 0;
}
