/*
 * One seed: how large the machine is and how it fails, who comes and goes, and the end. A third of
 * the machines have two GPUs, and half of those have groups, as some of the others do. Most of it
 * lasts some seconds of virtual time. Then nothing fails any more, nobody comes, and everybody who
 * lives has work, but for some who sleep and keep their memory:
 *
 *   - each gets turns (nobody starves, nothing is stuck), all end, and all memory goes back; or
 *   - the daemon is told to end, and saves whom it can (daemon/engine/step/budget.c); or
 *   - the daemon's context is lost.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "common/log.h"
#include "daemon/core/snapshot.h"
#include "daemon/engine/snapshot.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/room.h"

/* In a calm machine, what a drain takes at most (programs park after the grace, or end their
 * work soon), and what it takes to load a program. */
#define DRAIN_MOST (200 * GM_MS)
#define LOAD_MOST (1 * GM_S)
#define LATE_MOST (5 * GM_MS) /* the daemon's timers have milliseconds */

/* Of processor time. A seed takes some hundredths of a second: one that takes so long hangs. */
#define SEED_MOST_S 40

#define PLACE "sim_engine: the scheduler, seed "

/* ---- what the engine calls of the rooms above it ---- */

static const char *user_name(uid_t uid, char name[64])
{
    (void)uid;
    name[0] = 0;
    return name;
}

static bool rule(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                 struct gm_settings *settings, char *text, size_t size)
{
    static const char behind[] = "program";
    const uint8_t says = machine.rule[strtoul(name + sizeof behind - 1, NULL, 10)];
    (void)rules;
    (void)uid;
    (void)asks;
    if (says == 0)
        return false;
    *settings = (struct gm_settings){.has = GM_SET_OVERSIZE, .is_oversize = says == 2};
    snprintf(text, size, "command=%s", name);
    return true;
}

/* As main does. */
static void totals(const struct gm_rules *rules, uid_t uid, struct gm_user_totals *totals)
{
    (void)rules;
    *totals = machine.totals[uid - 1000];
}

static void on_lost(void *arg)
{
    (void)arg;
    machine.is_lost = true;
    gm_machine_halt(&machine.daemon);
}

static void on_saved(void *arg)
{
    (void)arg;
    machine.is_saved = true;
}

const struct gm_engine_outlet scenario_outlet = {.send = program_send,
                                                 .end = program_end,
                                                 .rule = rule,
                                                 .totals = totals,
                                                 .user = user_name,
                                                 .stop_of = program_stop,
                                                 .keep = program_keep,
                                                 .event = events_take};

/* ---- the machine ---- */

static uint64_t chunks(uint64_t n)
{
    return n * GM_CHUNK_MIN;
}

static uint16_t draw_rate(void)
{
    return (uint16_t)(chance_percent(50) ? chance_below(chance_percent(30) ? 300 : 30) : 0);
}

/* How large the GPUs are, and how they fail. Returns the bytes of the smallest. */
static uint64_t draw_gpus(void)
{
    uint64_t least = UINT64_MAX;
    machine.n_gpus = chance_percent(33) ? 2 : 1;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        struct gpu *gpu = &machine.gpus[i];
        gpu->bytes = chunks((48 + chance_below(200)) / machine.n_gpus);
        least = gpu->bytes < least ? gpu->bytes : least;
        for (int kind = 0; kind < FAULT_GPU_KINDS; kind++)
            gpu->faults[kind] = draw_rate();
    }
    return least;
}

/* One failure follows the other. */
static void make_harsh(void)
{
    for (int kind = 0; kind < FAULT_SLOW; kind++) {
        machine.faults[kind] = (uint16_t)(50 + draw(&machine.odd, 250));
        for (uint32_t i = 0; i < machine.n_gpus && kind < FAULT_GPU_KINDS; i++)
            machine.gpus[i].faults[kind] = machine.faults[kind];
    }
}

/* Most memory has to lie on the disk, which fails at times. */
static void make_full(uint64_t least)
{
    struct gm_engine_config *config = &machine.config;
    machine.is_full = true;
    config->budget = chunks(16 + draw(&machine.odd, (least >> GM_CHUNK_SHIFT) - 16) % 16);
    config->pinned = machine.n_gpus * 7 * GM_CHUNK_MAX;
    config->paged =
        draw_percent(&machine.odd, 50) ? 0 : chunks(machine.n_gpus * (1 + draw(&machine.odd, 10)));
    config->disk = chunks(machine.n_gpus * (40 + draw(&machine.odd, 100)));
    config->disk_dir = "/nowhere";
    for (int kind = FAULT_DISK_WRITE; kind <= FAULT_DISK_READ && machine.is_faulty; kind++)
        machine.faults[kind] = (uint16_t)draw(&machine.odd, 300);
}

/* Programs have most of the GPU each and keep it, and pinned memory is little more than the window:
 * what goes out, what comes up and what goes down share it. Chunks are large, or all tiers full. */
static void make_deep(void)
{
    struct gm_engine_config *config = &machine.config;
    const bool is_large = draw_percent(&machine.odd, 60);
    const uint64_t budget = is_large ? 6 + draw(&machine.odd, 3) : 9 + draw(&machine.odd, 6);
    machine.is_full = machine.is_kept = true;
    machine.unit = is_large ? HANDLE_PAGES : 1;
    config->budget = budget * GM_CHUNK_MAX;
    config->pinned = machine.n_gpus * (7 + (is_large ? draw(&machine.odd, 4) : 0)) * GM_CHUNK_MAX;
    config->paged = is_large ? 0 : chunks(machine.n_gpus * draw(&machine.odd, 100));
    config->disk = chunks(machine.n_gpus * ((is_large ? 256 : 100) + draw(&machine.odd, 200)));
    config->disk_dir = "/nowhere";
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        machine.gpus[i].bytes = config->budget + chunks(16 + draw(&machine.odd, 64));
}

/* What programs have together is little less than the GPU and pinned memory hold, and there is no
 * tier below. Some of them need some of that memory mapped on the host, and others come to sleep.
 */
static void make_tight(uint64_t least)
{
    struct gm_engine_config *config = &machine.config;
    const uint64_t pages = least >> GM_CHUNK_SHIFT;
    machine.is_kept = true;
    config->budget = chunks(pages - draw(&machine.tight, pages / 4));
    config->pinned = machine.n_gpus * (4 + draw(&machine.tight, 6)) * GM_CHUNK_MAX;
    config->paged = config->disk = 0;
    config->disk_dir = NULL;
    config->is_oversize = true;
    machine.has_caps =
        machine.has_caps || (machine.has_host_handles && draw_percent(&machine.tight, 70));
}

static void draw_groups(void)
{
    machine.has_groups = chance_percent(machine.n_gpus > 1 ? 50 : 20);
    for (uint32_t i = 1; i <= GROUPS; i++) {
        machine.groups[i].uid = 1000 + (uint32_t)chance_below(machine.users);
        machine.groups[i].is_tied = chance_percent(60);
    }
}

static void draw_machine(void)
{
    struct gm_engine_config *config = &machine.config;
    const bool has_lower = chance_percent(50);
    const uint64_t least = draw_gpus();
    machine.has_host_handles = chance_percent(85);
    *config = (struct gm_engine_config){
        .outlet = scenario_outlet,
        .rules = (const struct gm_rules *)&machine,
        .pinned = machine.n_gpus * GM_CHUNK_MAX *
                  (has_lower ? 7 + chance_below(6) : 1 + chance_below(14)),
        .paged = has_lower && chance_percent(70) ? chunks(1 + chance_below(150)) : 0,
        .disk_dir = "/nowhere",
        .disk = has_lower && chance_percent(70) ? chunks(1 + chance_below(150)) : 0,
        .is_oversize = chance_percent(25),
        .is_waiting_when_full = chance_percent(50),
        .slice_ns = (10 + chance_below(300)) * GM_MS,
        .patience_ns = (500 + chance_below(20000)) * GM_MS,
        .best_class = GM_CLASS_LATENCY,
        .idle_ns = (4 + chance_below(100)) * GM_MS,
        .latency_mode = (enum gm_latency_mode)chance_below(3),
        .max_apps = 3 + (uint32_t)chance_below(PROGRAMS - 3),
        .on_lost = on_lost,
    };
    /* A file for the disk there is only where there is a disk. */
    if (config->disk == 0)
        config->disk_dir = NULL;
    if (chance_percent(70))
        config->budget = chunks(16 + chance_below((least >> GM_CHUNK_SHIFT) - 16));
    machine.mover_room = chance_percent(70) ? GM_WAY_DEPTH : 2 + (unsigned)chance_below(20);
    machine.n_programs = 2 + (uint32_t)chance_below(PROGRAMS - 2);
    machine.is_calm = config->budget != 0 && chance_percent(25);
    machine.is_faulty = !machine.is_calm && chance_percent(90);
    machine.has_hogs = machine.is_calm && machine.n_gpus > 1 && draw_percent(&machine.hogs, 60);
    if (machine.has_hogs)
        config->budget = chunks(16 + draw(&machine.hogs, 8));
    machine.users = 1 + (uint32_t)chance_below(3);
    machine.has_sharing = !machine.is_calm && chance_percent(30);
    machine.has_sizes = draw_percent(&machine.sizes, 35);
    machine.has_caps = machine.has_host_handles && draw_percent(&machine.caps, 35);
    if (machine.has_caps && draw_percent(&machine.caps, 50))
        config->pinned += machine.n_gpus * 12 * GM_CHUNK_MAX;
    for (uint32_t i = 0; i < USERS && machine.has_caps; i++) {
        const uint64_t most = least >> GM_CHUNK_SHIFT;
        if (draw_percent(&machine.caps, 30))
            machine.totals[i].gpu = chunks(1 + draw(&machine.caps, most));
        if (draw_percent(&machine.caps, 30))
            machine.totals[i].pinned = chunks(machine.n_gpus * (1 + draw(&machine.caps, 2 * most)));
    }
    if (machine.n_gpus > 1 && draw_percent(&machine.host, 60)) /* one has it, or the other */
        config->pinned = machine.n_gpus * (has_lower ? 7 : 2) * GM_CHUNK_MAX +
                         draw(&machine.host, 12) * GM_CHUNK_MAX;
    config->has_bending_caps = machine.has_caps && draw_percent(&machine.caps, 30);
    for (uint32_t i = 0; i < PROGRAMS && machine.has_sizes; i++)
        machine.rule[i] = (uint8_t)draw(&machine.sizes, 3);
    draw_groups();
    for (int kind = FAULT_GPU_KINDS; kind < FAULT_KINDS; kind++)
        machine.faults[kind] = draw_rate();
    if (draw_percent(&machine.odd, 10))
        make_harsh();
    if (!machine.is_calm && draw_percent(&machine.odd, 15))
        make_full(least);
    else if (machine.is_calm && draw_percent(&machine.odd, 30))
        make_deep();
    else if (draw_percent(&machine.tight, 10))
        make_tight(least);
    machine.has_sleepers = draw_percent(&machine.sleep, 40);
}

/* The scheduler of one GPU knows no bounds for a program that waits for others, or for another GPU.
 */
static void begin_watch(uint32_t index)
{
    struct watch *watch = &machine.gpus[index].watch;
    const struct gm_engine *engine = machine.daemon.engines[index];
    const struct gm_sched_config config = watch->config;
    const bool is_bounded = machine.is_calm && machine.n_gpus == 1 && !machine.has_groups;
    *watch = (struct watch){.place = PLACE,
                            .number = machine.seed,
                            .drain_max = is_bounded ? DRAIN_MOST : GM_TIME_NEVER,
                            .load_max = is_bounded ? LOAD_MOST : GM_TIME_NEVER,
                            .late_max = LATE_MOST,
                            .is_clean = machine.is_calm};
    watch_begin(watch, engine->sched, &config, &engine->decided);
    watch_before(watch);
}

/* It may be that the driver refuses what a start needs. Then nothing is left, and whoever started
 * the daemon tries again. */
void scenario_open(void)
{
    const uint32_t numbers[GPUS] = {0, 1, 2, 3};
    const bool is_faulty = machine.is_faulty;
    char why[256] = "";
    for (int tries = 0;; tries++) {
        const uint64_t faults = machine.sums.faults;
        machine.is_faulty = is_faulty && tries < 3;
        const int error = gm_machine_open(&machine.daemon, &machine.loop, &machine.config, numbers,
                                          machine.n_gpus, why, sizeof why);
        machine.is_faulty = is_faulty;
        if (error == 0)
            break;
        require(machine.sums.faults > faults, "the daemon does not start: %s", why);
        while (machine_step(UINT64_MAX))
            continue;
        cuda_end();
        uv_fake_end();
    }
    machine.is_up = true;
    stays_begin();
    ledger_begin();
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        begin_watch(i);
}

/* ---- what happens to it ---- */

static void set_something(const struct gm_settings *settings, uint32_t uid)
{
    const struct gm_set_request request = {
        .selects = GM_SET_UID, .uid = uid, .settings = *settings, .is_admin = true};
    struct gm_set_done done;
    char why[256];
    gm_machine_set(&machine.daemon, &request, &done, why, sizeof why);
}

static void change_settings(void)
{
    struct gm_settings settings = {.has = 1u << chance_below(4),
                                   .class = (uint8_t)chance_below(GM_CLASSES),
                                   .is_paused = chance_percent(40),
                                   .weight = 100 + (uint32_t)chance_below(5000),
                                   .share = 50 + (uint32_t)chance_below(950)};
    if (machine.has_sizes && draw_percent(&machine.sizes, 50))
        settings = (struct gm_settings){.has = GM_SET_OVERSIZE,
                                        .is_oversize = draw_percent(&machine.sizes, 50)};
    set_something(&settings, 1000 + (uint32_t)chance_below(3));
}

/* Users and root set caps, and take them away. */
static void change_caps(void *arg, uint64_t a, uint64_t b)
{
    struct gm_settings settings = {.has = GM_SET_CAP};
    (void)arg;
    (void)a;
    (void)b;
    if (machine.is_ending || machine.is_lost || machine.is_saved)
        return;
    if (!machine.is_up) {
        machine_at(machine.now + 10 * GM_MS, change_caps, NULL, 0, 0);
        return;
    }
    const uint64_t budget = machine.daemon.engines[0]->config.budget >> GM_CHUNK_SHIFT;
    const uint64_t most = draw_percent(&machine.caps, 50) ? budget + 2 : budget / 4 + 1;
    if (draw_percent(&machine.caps, 75))
        settings.cap = chunks(1 + draw(&machine.caps, most));
    set_something(&settings, 1000 + (uint32_t)draw(&machine.caps, 3));
    machine_at(machine.now + draw_around(&machine.caps, 300 * GM_MS), change_caps, NULL, 0, 0);
}

/* Somebody asks for the status. Each app that does not run has a reason, and sums are those of
 * their parts. */
static void look_at_status(void)
{
    struct gm_snapshot *status = gm_machine_snapshot(&machine.daemon);
    uint64_t resident[GPUS] = {0}, n_apps = 0;
    for (uint32_t i = 0; i < status->n_apps; i++) {
        const struct gm_snapshot_app *app = &status->apps[i];
        const bool is_well = app->state == GM_SHOWN_RUNNING || app->state == GM_SHOWN_IDLE;
        require(is_well || app->why.why != GM_WHY_NONE, "app %u is in state %u without a reason",
                app->id, (unsigned)app->state);
        require(app->resident <= app->total && app->cached <= app->total,
                "app %u has %lu MiB, of which %lu are resident", app->id, app->total >> 20,
                app->resident >> 20);
        for (uint32_t gpu = 0; gpu < status->n_gpus; gpu++)
            resident[gpu] += status->gpus[gpu].device == app->device ? app->resident : 0;
    }
    for (uint32_t i = 0; i < status->n_gpus; i++) {
        const struct gm_snapshot_gpu *gpu = &status->gpus[i];
        require(gpu->used + gpu->cached + gpu->free == gpu->usable && gpu->used <= gpu->usable,
                "of %lu MiB %lu are used, %lu cached and %lu free", gpu->usable >> 20,
                gpu->used >> 20, gpu->cached >> 20, gpu->free >> 20);
        require(resident[i] == gpu->tiers.gpu, "apps have %lu MiB on GPU %u, and it has %lu",
                resident[i] >> 20, i, gpu->tiers.gpu >> 20);
        n_apps += machine.daemon.engines[i]->n_apps;
    }
    require(n_apps == status->n_apps, "%lu apps, and %u are shown", n_apps, status->n_apps);
    free(status);
}

static void on_happening(void *arg, uint64_t a, uint64_t b)
{
    struct program *p = &machine.programs[1 + chance_below(machine.n_programs)];
    struct gpu *gpu = &machine.gpus[chance_below(machine.n_gpus)];
    struct gm_trimmed trimmed;
    (void)arg;
    (void)a;
    (void)b;
    if (machine.is_ending)
        return;
    if (!machine.is_up) {
        machine_at(machine.now + 10 * GM_MS, on_happening, NULL, 0, 0);
        return;
    }
    switch (chance_below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
        if (!p->is_there && !p->session)
            program_start(p, false);
        break;
    case 6:
    case 7:
        if (p->is_there && (!machine.is_full || draw_percent(&machine.odd, 20)))
            program_die(p);
        break;
    case 8:
        change_settings();
        break;
    case 9:
        if (machine.is_calm)
            break;
        gpu->beside = chance_percent(50) ? 0 : chance_below(gpu->bytes / 2);
        trace("others use %lu MiB of GPU %lu", gpu->beside >> 20, (uint64_t)(gpu - machine.gpus),
              0);
        break;
    case 10:
        if (chance_percent(20))
            gm_machine_trim(&machine.daemon, 1000 + (uid_t)chance_below(4), false, &trimmed);
        else
            look_at_status();
        break;
    case 11:
        if (chance_below(1000) < 3 && !machine.has_deaths)
            mover_lose_context((uint32_t)(gpu - machine.gpus));
        break;
    }
    machine_at(machine.now + chance_time(150 * GM_MS), on_happening, NULL, 0, 0);
}

static void on_beat(void *arg, uint64_t a, uint64_t b)
{
    (void)arg;
    (void)a;
    (void)b;
    if (machine.is_lost || machine.is_saved || (!machine.is_up && !machine.is_down))
        return;
    if (machine.is_up)
        gm_machine_beat(&machine.daemon);
    if (!machine.is_ending || a == 0)
        machine_at(machine.now + GM_S, on_beat, NULL, machine.is_ending, 0);
}

/* ---- the end ---- */

static void stop_failing(void)
{
    static const struct gm_settings plain = {.has = GM_SET_SETTINGS & ~GM_SET_CAP, /* they stay */
                                             .class = GM_CLASS_AUTO,
                                             .weight = GM_SCHED_WEIGHT,
                                             .share = GM_SCHED_SHARE_ALL};
    machine.is_ending = true;
    machine.is_faulty = false;
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        machine.gpus[i].beside = 0;
    trace("nothing fails any more", 0, 0, 0);
    for (uint32_t uid = 1000; uid < 1003 && !machine.is_lost; uid++)
        set_something(&plain, uid);
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        if (p->frozen_until > machine.now)
            p->frozen_until = machine.now;
        if (p->deaf_until > machine.now)
            p->deaf_until = machine.now;
        p->unmappable_until = 0;
        p->touches = 0;
        p->is_lazy = false;
        p->is_asleep = machine.has_sleepers && p->group == 0 && draw_percent(&machine.sleep, 50);
        p->work = p->is_asleep ? 0 : p->work;
        p->is_stuck = p->is_stuck && !p->is_asleep; /* nor has it kernels that wait for others */
    }
}

static bool lives(const struct program *p)
{
    return p->is_there && p->is_connected && !p->is_dying;
}

/* Everybody who lives works. */
static bool all_have_worked(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (lives(&machine.programs[i]) && !machine.programs[i].is_asleep &&
            machine.programs[i].touches < 3)
            return false;
    return true;
}

static const char *states_of(const struct program *p)
{
    static char text[64];
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < machine.n_gpus && at < sizeof text; i++) {
        const struct gm_app *app = app_of(p, i);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i > 0 ? " and " : "",
                               app ? gm_model_state_text(GM_MODEL_APP, app->state) : "not there");
    }
    return text;
}

static bool has_spares(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        for (unsigned k = 0; k < REGIONS && lives(&machine.programs[i]); k++)
            if (machine.programs[i].regions[k].state == REGION_SPARE)
                return true;
    return false;
}

static bool is_below_cap(const struct program *p)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_engine *engine = machine.daemon.engines[i];
        if (!app_of(p, i))
            continue;
        const struct gm_table_app *app = &engine->table->apps[p->app];
        const uint64_t cap = gm_engine_cap(engine, p->app);
        const uint64_t needed = gm_room_promised(engine->table, p->app) + app->fixed;
        if (cap != 0 && app->device > cap && app->device > app->fixed &&
            (has_cap_room(engine, p->app) || app->device > needed))
            return false;
    }
    return true;
}

static bool all_are_below(void)
{
    for (uint32_t i = 1; i <= machine.n_programs && !machine.config.has_bending_caps; i++)
        if (lives(&machine.programs[i]) && !is_below_cap(&machine.programs[i]))
            return false;
    return true;
}

static void await_caps(void)
{
    const uint64_t until = machine.now + 30 * GM_S;
    while (!all_are_below() && machine_step(until))
        continue;
    require(all_are_below(), "a program is above its cap for 30 s");
}

static void await_turns(void)
{
    /* Memory that nobody gets, since all of them wait for it, is refused after a second each. */
    const uint64_t until = machine.now + 60 * GM_S;
    while (!all_have_worked() && machine_step(until))
        continue;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *p = &machine.programs[i];
        require(!lives(p) || p->is_asleep || p->touches >= 3,
                "program %u (app %u of group %u, %s) has had no turn for 60 s", p->number, p->app,
                p->group, states_of(p));
    }
}

/* What lies there goes back within seconds, once those that stood still go on. */
static void await_spares(void)
{
    const uint64_t until = machine.now + AWAY_MOST + 5 * GM_S;
    while (has_spares() && machine_step(until))
        continue;
    require(!has_spares(), "a program keeps a spare for 5 s");
}

/* All programs end, and the daemon has a minute to give everything back. */
static void end_all(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        program_end_well(&machine.programs[i]);
    machine_run(60 * GM_S);
}

static void end_well(void)
{
    await_turns();
    await_caps();
    await_spares();
    end_all();
    checks_nothing_left();
}

/* As soon as a program's rest is to be mapped on the host, somebody else takes what is free of the
 * GPU, and of what the daemon counts on. */
static bool take_beside(void)
{
    for (uint32_t i = 0; i < machine.n_gpus && machine.is_up; i++)
        if (machine.daemon.engines[i]->stopping.host != GM_NONE) {
            machine.gpus[i].beside += 64 * GM_MIB;
            return true;
        }
    return false;
}

/* Those whose gates are open have all their memory, and go on without a daemon. */
static void end_saving(void)
{
    bool is_taken = machine.seed % 2 == 0;
    const uint64_t until = machine.now + 65 * GM_S;
    trace("the daemon is told to end", 0, 0, 0);
    machine.is_saving = true;
    gm_machine_save(&machine.daemon, on_saved, NULL);
    while (!machine.is_saved && !machine.is_lost && machine_step(until))
        is_taken = is_taken || take_beside();
    require(machine.is_saved || machine.is_lost, "the daemon does not end");
    machine_run(GM_S);
    end_all();
}

void scenario_close(void)
{
    ledger_end();
    gm_machine_close(&machine.daemon);
    machine.is_up = false; /* the engines' memory is freed by events */
    while (machine_step(UINT64_MAX))
        continue;
    kept_end();
    cuda_end();
    uv_fake_end();
}

void scenario_begin(uint64_t seed, bool is_verbose)
{
    machine = (struct machine){.seed = seed,
                               .chance = {.state = seed},
                               .sizes = {.state = ~seed},
                               .hogs = {.state = seed ^ 0x686f6773ull << 32},
                               .host = {.state = seed ^ 0x686f7374ull << 32},
                               .caps = {.state = seed ^ 0x63617073ull << 32},
                               .odd = {.state = seed ^ 0x6f646421ull << 32},
                               .memory = {.state = seed ^ 0x6d656d6full << 32},
                               .parts = {.state = seed ^ 0x70617274ull << 32},
                               .sleep = {.state = seed ^ 0x736c6570ull << 32},
                               .tight = {.state = seed ^ 0x74696768ull << 32},
                               .death = {.state = seed ^ 0x64656164ull << 32},
                               .ghosts = {.state = seed ^ 0x67686f7374ull << 24},
                               .now = GM_S,
                               .unit = 1,
                               .page_ns = 40 * GM_US,
                               .hash = 0xcbf29ce484222325ull,
                               .is_verbose = is_verbose,
                               .next_pid = 1000,
                               .sums = machine.sums};
    const struct itimerval most = {.it_value.tv_sec = SEED_MOST_S};
    for (uint32_t i = 0; i < PROGRAMS; i++)
        machine.programs[i].number = i;
    setitimer(ITIMER_PROF, &most, NULL);
    machine_clear();
    cuda_begin();
    uv_fake_begin();
}

void scenario_begin_jobs(const struct gm_engine_config *config, uint64_t seed, uint32_t gpus,
                         uint32_t programs)
{
    scenario_begin(seed, false);
    machine.has_quiet_link = true;
    machine.config = *config;
    machine.config.outlet = scenario_outlet;
    machine.config.rules = (const struct gm_rules *)&machine;
    machine.config.best_class = GM_CLASS_LATENCY;
    machine.config.idle_ns = 20 * GM_MS;
    machine.config.max_apps = PROGRAMS;
    machine.n_gpus = gpus;
    machine.has_jobs = gpus > 1;
    for (uint32_t i = 0; i < gpus; i++)
        machine.gpus[i].bytes = config->budget + GM_GIB;
    machine.has_host_handles = !machine.has_jobs || config->kept; /* else a turn needs all memory */
    machine.mover_room = GM_WAY_DEPTH;
    machine.users = 1;
    machine.n_programs = programs;
    machine.is_calm = true;
    scenario_open();
}

void scenario_begin_calm(const struct gm_engine_config *config, uint32_t programs)
{
    struct gm_engine_config with = *config;
    with.patience_ns = 20 * GM_S;
    scenario_begin_jobs(&with, 1, 1, programs);
}

void scenario_run(uint64_t seed, bool is_verbose)
{
    scenario_begin(seed, is_verbose);
    draw_machine();
    const bool is_saving = chance_percent(20);
    scenario_open();
    machine_at(machine.now, on_happening, NULL, 0, 0);
    machine_at(machine.now, on_beat, NULL, 0, 0);
    if (machine.has_caps)
        machine_at(machine.now, change_caps, NULL, 0, 0);
    const uint64_t until = machine.now + (1 + chance_below(12)) * GM_S;
    while (!machine.is_lost && machine_step(until))
        continue;
    stop_failing();
    if (machine.is_lost) {
        end_all();
    } else if (is_saving) {
        end_saving();
    } else {
        end_well();
    }
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_moment *sums = &machine.daemon.engines[i]->sums;
        watch_end(&machine.gpus[i].watch);
        machine.sums.clean += (sums->clean + sums->zero) / GM_CHUNK_MIN;
    }
    machine.sums.doubles += machine.n_gpus > 1;
    scenario_close();
}

/* As a seed, of one that needs not be told to end. */
void scenario_run_deaths(uint64_t seed, bool is_verbose)
{
    scenario_begin(seed, is_verbose);
    draw_machine();
    machine.has_host_handles = true;
    machine.has_deaths = true;
    machine.has_ghosts = seed % 4 == 3;
    machine.is_calm = false;
    machine.config.kept = kept_begin();
    scenario_open();
    machine_at(machine.now, on_happening, NULL, 0, 0);
    machine_at(machine.now, on_beat, NULL, 0, 0);
    if (machine.has_caps)
        machine_at(machine.now, change_caps, NULL, 0, 0);
    deaths_begin();
    const uint64_t until = machine.now + (2 + chance_below(6)) * GM_S;
    while (machine_step(until))
        continue;
    machine.is_ending = true;
    deaths_end();
    stop_failing();
    end_well();
    scenario_close();
}
