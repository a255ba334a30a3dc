/*
 * What must hold after every step of the engine (DESIGN.md, section 2). To add a check: a function
 * in one of checks*.c that reads the engine's state and the fakes', calls fail() with what is
 * wrong, and a line in checks_run. It runs some thousand times a seed: keep it linear in what
 * exists.
 *
 * The fakes check more at the moment when something happens: cuda.c, mover.c and program*.c say
 * what. The scheduler is watched as well (tests/sim/watch.h), through the engine's outlet.
 */
#include "tests/sim/engine/checks.h"

#include "daemon/engine/step/feed.h"

/* The tables agree with themselves, and the frames fit the budget. */
static void check_table(const struct gm_engine *engine)
{
    const char *fault = gm_table_check(engine->table);
    if (fault)
        fail("GPU %u: %s", engine->config.index, fault);
}

/* The GPU's memory that the table says there is, is there. */
static void check_memory(const struct gm_engine *engine)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        if (engine->table->frames[i].state == GM_FRAME_UNUSED || engine->table->frames[i].is_host)
            continue;
        if (engine->table->frames[i].is_destroyed) { /* others keep its memory */
            bytes += gm_class_bytes(engine->table->frames[i].class);
            continue;
        }
        const struct gm_frame_handle *frame = &engine->frames.handles[i];
        const struct handle *handle = handle_at((int)frame->handle);
        require(handle->is_held && !handle->is_host && handle->gpu == engine->config.index,
                "frame %u has no memory of GPU %u", i, engine->config.index);
        bytes += (uint64_t)handle->pages << GM_CHUNK_SHIFT;
    }
    require(bytes == engine->table->allocated, "the frames' memory is not what the table says");
}

/* A frame that is to end waits for each that has it, and has yet to come back. */
static void check_condemned(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next)
        for (uint32_t id = 0; id < table->max_apps; id++)
            require(engine->apps[id].session || engine->apps[id].state != GM_APP_LOST ||
                        !gm_table_has_import(table, id, i) || gm_table_has_drop(table, id, i),
                    "frame %u is to end, lost app %u has it, and is not to drop it", i, id);
}

/* Pinned memory that is mapped, be it by a process that is dying or by what one left, stays a host
 * frame. */
static void check_host_frames(void)
{
    static bool is_frame[HANDLES];
    memset(is_frame, 0, sizeof is_frame);
    for (uint32_t k = 0; k < machine.n_gpus; k++) {
        const struct gm_engine *engine = machine.daemon.engines[k];
        for (uint32_t i = 0; i < engine->table->max_frames; i++)
            if (engine->table->frames[i].state != GM_FRAME_UNUSED &&
                engine->table->frames[i].is_host)
                is_frame[engine->frames.handles[i].handle] = true;
    }
    require(!handle_is_mapped_in_pool(is_frame), "host memory that a process has mapped is free");
}

/* Whatever an active program uses is mapped, whole, its own, and nobody else's business. */
static void check_active(const struct program *p)
{
    for (unsigned r = 0; r < REGIONS; r++) {
        const struct region *region = &p->regions[r];
        if (region->state != REGION_HELD && region->state != REGION_OPEN)
            continue;
        for (uint32_t i = 0; i < region->pages; i++) {
            const struct page *page = program_page(p, region->first + i);
            require(page, "program %u runs, and page %u of its memory at %lx is not mapped",
                    p->number, i, program_va(region->first));
            require(page->writers == 0, "program %u runs while page %u at %lx is written",
                    p->number, i, program_va(region->first));
            require(page->readers == 0, "program %u runs while page %u at %lx is copied", p->number,
                    i, program_va(region->first));
            require(page->tag == region->content->tag[i],
                    "program %u finds %lx in page %u at %lx, and wrote %lx", p->number, page->tag,
                    i, program_va(region->first), region->content->tag[i]);
        }
    }
}

/* The memory of an app on this GPU is resident or mapped on the host. */
static bool is_whole(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        if (table->allocations[a].missing > 0 && !table->allocations[a].is_pending &&
            !table->allocations[a].is_freed)
            return false;
    return true;
}

/* A gate is open if, and only if, no engine wants it closed; an engine wants that unless the app
 * runs there; and there it has all its memory. */
static void check_gate(const struct program *p)
{
    const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
    const struct gm_client *client = NULL;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_app *app = app_of(p, i);
        if (!app)
            continue;
        client = app->client;
        require((client->shut >> i & 1) == (app->state != GM_APP_RUNNING),
                "program %u (app %u) is %s on GPU %u, which has its gate %s", p->number, p->app,
                gm_model_state_text(GM_MODEL_APP, app->state), i,
                client->shut >> i & 1 ? "closed" : "open");
        require(!is_open || is_whole(machine.daemon.engines[i], p->app),
                "the gate of program %u (app %u) is open, and it lacks memory on GPU %u", p->number,
                p->app, i);
    }
    require(is_open == (client && client->shut == 0), "the gate of program %u is %s", p->number,
            is_open ? "open" : "closed");
    require(!client || client->state != GM_CLIENT_QUIET || !p->is_active,
            "program %u is taken to be quiet, and is not", p->number);
}

/* Who stands still is known to within a second, of that or of the beginning of its turn; and is
 * charged nothing. */
static void check_stopped(struct program *p, uint32_t gpu)
{
    const struct gm_engine *engine = machine.daemon.engines[gpu];
    const struct gm_app *app = app_of(p, gpu);
    const bool is_stopped = app && app->is_stopped && !engine->stopping.is_on;
    const uint64_t begun = app ? app->chosen.begin.at : 0;
    const uint64_t from = p->frozen_at > begun ? p->frozen_at : begun;
    const uint64_t since = machine.now < p->frozen_until ? machine.now - from : 0;
    struct gm_sched_account account = {0};
    require(!app || app->is_stopped || app->state == GM_APP_PAUSED || since <= GM_S,
            "program %u (app %u) stands still for %lu ms and is %s on GPU %u", p->number, p->app,
            (uint64_t)(since / GM_MS), gm_model_state_text(GM_MODEL_APP, app->state), gpu);
    if (is_stopped) {
        require(program_has_team(p) || engine->units[app->unit].bytes == 0,
                "program %u (app %u) stands still, and the scheduler counts its memory", p->number,
                p->app);
        gm_engine_account(engine, p->app, &account);
        require(!p->was_stopped[gpu] || app->unit != p->unit[gpu] || account.run_ns == p->ran[gpu],
                "program %u (app %u) stands still and is charged on GPU %u", p->number, p->app,
                gpu);
        p->ran[gpu] = account.run_ns;
        p->unit[gpu] = app->unit;
    }
    p->was_stopped[gpu] = is_stopped;
}

/* In a calm machine who does nothing for long is known to be idle. */
static void check_idle(struct program *p, uint32_t gpu)
{
    const struct gm_app *app = app_of(p, gpu);
    const uint64_t most = 3 * machine.config.idle_ns + 100 * GM_MS;
    if (!machine.is_calm || machine.is_saving || app->state != GM_APP_RUNNING ||
        program_has_team(p) || p->is_steady || p->work > 0 || p->unanswered > 0 ||
        !machine.gpus[gpu].watch.apps[app->unit].is_wanting)
        p->works_at[gpu] = machine.now;
    require(machine.now - p->works_at[gpu] <= most,
            "program %u (app %u) does nothing for %lu ms and is not idle", p->number, p->app,
            (uint64_t)((machine.now - p->works_at[gpu]) / GM_MS));
}

static void check_memory_of(const struct gm_engine *engine)
{
    check_table(engine);
    check_memory(engine);
    check_condemned(engine);
    check_shared_on_host(engine);
    check_chunks(engine);
}

void checks_run(void)
{
    for (uint32_t i = 1; i <= machine.n_programs && machine.is_down; i++)
        if (machine.programs[i].is_there && machine.programs[i].is_active)
            check_active(&machine.programs[i]);
    if (!machine.is_up)
        return;
    const bool is_due = !machine.is_timed || machine.steps % 16 == 0;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        require(machine.daemon.engines[i]->rounds < GM_ROUNDS_MOST,
                "the engine goes round without an end");
        if (is_due)
            check_memory_of(machine.daemon.engines[i]);
        if (machine.has_caps)
            count_device(machine.daemon.engines[i]);
        for (uint32_t user = 0; user < USERS && machine.has_caps; user++)
            check_user(machine.daemon.engines[i], user);
        check_deadlines(machine.daemon.engines[i]);
        check_waiting(i);
        check_saved(machine.daemon.engines[i]);
        events_run(machine.daemon.engines[i]);
        stays_look(machine.daemon.engines[i]);
        ledger_run(i);
        check_held(i);
        check_ahead(i);
    }
    ledger_run_clients();
    check_still();
    check_pinned();
    check_host_frames();
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
            if (app_of(p, gpu)) {
                check_size(p, machine.daemon.engines[gpu]);
                check_refusals(p, machine.daemon.engines[gpu]);
                if (is_due)
                    check_places(p, machine.daemon.engines[gpu]);
                check_stopped(p, gpu);
                check_idle(p, gpu);
                if (machine.has_caps)
                    check_cap(p, machine.daemon.engines[gpu]);
            }
        /* Whoever finds the mark free may enable a parked program at once, be it a watchdog. */
        if (p->is_there &&
            (p->is_active || (p->is_connected && p->is_parked && program_may_go_on(p))))
            check_active(p);
        if (!p->session || !p->is_connected || !p->is_joined)
            continue;
        check_gate(p);
        for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
            if (app_of(p, gpu))
                check_windows(machine.daemon.engines[gpu], p);
    }
    note_own();
    check_groups();
}

static void check_nothing_left(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    require(engine->n_apps == 0, "%u programs are still known", engine->n_apps);
    require(table->committed == 0 && table->used_chunks == 0, "chunks are left of nobody");
    require(!engine->shares && !engine->opens, "shares are left of nobody");
    require(engine->n_failed == 0 && engine->n_late == 0 && engine->n_unsent == 0,
            "work is left for nobody");
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++) {
        require(gm_stores_used(engine->stores, (enum gm_tier)tier) == 0,
                "%lu MiB of tier %d are used by nobody",
                gm_stores_used(engine->stores, (enum gm_tier)tier) >> 20, tier);
        require(table->gives_back[tier] == 0, "copies of tier %d are to end that do not exist",
                tier);
    }
    require(table->unmaps == 0 && table->unmap_bytes == 0, "copies are to come of nobody");
    require(table->allocated == 0, "%lu MiB of the GPU are kept for nobody",
            table->allocated >> 20);
    require(gm_hostpool_size(&engine->pool) == 0, "%lu MiB stay pinned for nobody",
            gm_hostpool_size(&engine->pool) >> 20);
}

void checks_nothing_left(void)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        check_nothing_left(machine.daemon.engines[i]);
    for (uint32_t id = 0; id < machine.daemon.max_apps; id++)
        require(!machine.daemon.clients[id], "client %u is left of nobody", id);
}
