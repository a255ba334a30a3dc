/*
 * Random workloads. A seed draws the settings of the scheduler, an engine (how long drains and
 * loads take, whether memory moves, whether drains fail and the budget changes), a mix of programs,
 * and how often they come, die, and are given other settings. Times are drawn as multiples of a
 * slice. In each third workload the programs are of several users.
 */
#include "tests/sim/workload.h"

#define SECOND 1000000000u

enum { STEPS = 500, MANY_STEPS = 5000 }; /* seldom: many */

enum mix { INTERACTIVE, BATCH, BURSTY, SMALL, WILD, KINDS };

/* What a seed is beside its world. */
struct workload {
    struct world world; /* first: the world's callbacks get it */
    uint64_t unit;      /* a slice */
    unsigned weights[KINDS];
    unsigned grow_percent, mortal_percent, policy_percent;
    /* Of the batch programs, which do something else now and then. Drawn apart, so that the other
     * seeds stand for what they stood for. */
    struct chance pauses;
    unsigned pausing_percent;
};

static uint64_t draw_up_to(struct chance *c, uint64_t most)
{
    return 1 + draw(c, most);
}

/* From `low` to `high`, each factor of two as likely. */
static uint64_t draw_scale(struct chance *c, uint64_t low, uint64_t high)
{
    unsigned doubles = 0;
    while (low << (doubles + 1) <= high)
        doubles++;
    uint64_t from = low << draw(c, doubles + 1);
    return from + draw(c, from);
}

static void draw_config(struct workload *l)
{
    struct world *w = &l->world;
    struct chance *c = &w->chance;
    struct gm_sched_config *config = &w->config;
    l->unit = config->slice_ns = draw_scale(c, SECOND / 100, 4ull * SECOND);
    config->levels = draw_percent(c, 10) ? 1 : 1 + (uint32_t)draw(c, GM_SCHED_LEVELS_MAX);
    config->allotment_ns =
        draw_percent(c, 60) ? 2 * l->unit : draw_scale(c, l->unit / 4, l->unit * 8);
    config->patience_ns =
        draw_percent(c, 10) ? 1 + draw(c, 2) * l->unit : draw_scale(c, l->unit, l->unit * 32);
    config->retry_ns = draw_up_to(c, l->unit / 4);
    config->max_apps =
        draw_percent(c, 80) ? 2 + (uint32_t)draw(c, 8) : 2 + (uint32_t)draw(c, WORLD_APPS - 2);
    config->budget = draw_percent(c, 90) ? draw_up_to(c, 1000) : draw_up_to(c, 5);
    w->idle_ns = 1 + l->unit / 40;
}

/* Most drains and loads are short against a slice; some are not, and some take no time. */
static void draw_engine(struct workload *l)
{
    struct world *w = &l->world;
    struct chance *c = &w->chance;
    w->drain_max =
        draw_percent(c, 25) ? 0 : draw(c, draw_percent(c, 80) ? l->unit / 20 : l->unit * 3);
    w->load_max =
        draw_percent(c, 25) ? 0 : draw(c, draw_percent(c, 80) ? l->unit / 5 : l->unit * 3);
    if (draw_percent(c, 25))
        w->busy_percent = (unsigned)draw_up_to(c, 60);
    if (draw_percent(c, 20))
        w->room_gap = l->unit * draw_up_to(c, 20);
    if (draw_percent(c, 60))
        w->policy_gap = l->unit * draw_up_to(c, 40);
    if (draw_percent(c, 40) || w->config.max_apps > 10)
        return;
    /* Loads take the time that bytes need: all of the budget, a fourth of load_max. */
    w->room_gap = 0;
    w->config.budget = 1000 * (8 + draw(c, 248));
    w->link_rate =
        1 + (uint64_t)((unsigned __int128)w->config.budget * SECOND / (1 + w->load_max / 4));
}

static void draw_mix(struct workload *l)
{
    struct chance *c = &l->world.chance;
    if (draw_percent(c, 30)) { /* of one kind */
        l->weights[draw(c, KINDS)] = 1;
    } else {
        l->weights[BATCH] = 1;
        for (unsigned kind = 0; kind < KINDS; kind++)
            l->weights[kind] += draw_percent(c, 60) ? (unsigned)draw(c, 4) : 0;
    }
    l->grow_percent = draw_percent(c, 50) ? (unsigned)draw(c, 40) : 0;
    l->mortal_percent = (unsigned)draw(c, 80);
    l->policy_percent = l->world.policy_gap ? (unsigned)draw(c, 60) : 0;
    if (draw_percent(c, 60))
        l->world.join_gap = l->unit * draw_up_to(c, 30);
}

static enum mix draw_kind(struct workload *l)
{
    unsigned sum = 0;
    for (unsigned kind = 0; kind < KINDS; kind++)
        sum += l->weights[kind];
    uint64_t at = draw(&l->world.chance, sum);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        if (at < l->weights[kind])
            return (enum mix)kind;
        at -= l->weights[kind];
    }
    return BATCH;
}

static void arrive(struct world *w)
{
    struct workload *l = (struct workload *)w;
    struct chance *c = &w->chance;
    uint64_t unit = l->unit, bytes = world_draw_bytes(w);
    struct habit habit = {.then = WORLD_NOBODY};
    switch (draw_kind(l)) {
    case INTERACTIVE:
        habit.work_ns = draw_scale(c, unit / 64, unit / 2);
        habit.think_ns = draw_scale(c, unit / 8, unit * 4);
        habit.pause_percent = (unsigned)draw(c, 10);
        break;
    case BATCH:
    case KINDS:
        habit.work_ns = WORLD_FOREVER;
        if (draw_percent(&l->pauses, l->pausing_percent)) { /* a bit longer than is idle */
            habit.work_ns = draw_scale(&l->pauses, unit / 8, unit * 16);
            habit.think_ns = draw_scale(&l->pauses, w->idle_ns, w->idle_ns * 4);
        }
        break;
    case BURSTY:
        habit.work_ns = draw_scale(c, unit / 4, unit * 16);
        habit.think_ns = draw_scale(c, unit / 16, unit * 32);
        habit.pause_percent = (unsigned)draw(c, 30);
        break;
    case SMALL:
        bytes /= 16;
        habit.work_ns = draw_scale(c, unit / 256 + 1, unit / 8);
        habit.think_ns = draw_scale(c, unit / 16, unit * 2);
        break;
    case WILD:
        habit.is_wild = true;
        habit.think_ns = draw_scale(c, unit / 16, unit * 4);
        habit.pause_percent = 20;
        break;
    }
    habit.grow_percent = l->grow_percent;
    if (draw_percent(c, l->mortal_percent))
        habit.life_ns = unit * draw_up_to(c, 100);
    uint64_t ask_at = w->now + draw(c, draw_percent(c, 50) ? unit * 4 : 2);
    uint32_t app = world_join(w, bytes, &habit, ask_at);
    if (app == WORLD_NOBODY || !draw_percent(c, l->policy_percent))
        return;
    struct gm_sched_policy policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    policy.class = (uint8_t)draw(c, GM_CLASSES);
    if (draw_percent(c, 30))
        policy.weight = (uint32_t)draw_scale(c, GM_SCHED_WEIGHT_MIN, GM_SCHED_WEIGHT_MAX / 2);
    if (draw_percent(c, 20))
        policy.share = (uint32_t)draw_up_to(c, GM_SCHED_SHARE_ALL);
    policy.is_paused = draw_percent(c, 5);
    world_set(w, app, &policy);
}

/* Few levels and much of everything that interrupts a turn: see workload.h. */
static void draw_storm(struct workload *l)
{
    struct world *w = &l->world;
    struct chance *c = &l->pauses;
    for (unsigned kind = 0; kind < KINDS; kind++)
        l->weights[kind] = 0;
    l->weights[BATCH] = 3;
    l->weights[BURSTY] = (unsigned)draw(c, 2);
    l->weights[WILD] = (unsigned)draw(c, 2);
    l->pausing_percent = 100;
    l->grow_percent = draw_percent(c, 50) ? 20 : 0;
    l->mortal_percent = draw_percent(c, 70) ? 90 : 0;
    l->policy_percent = draw_percent(c, 50) ? 50 : 0;
    w->policy_gap = draw_percent(c, 80) ? l->unit / 8 + draw(c, 4 * l->unit) : 0;
    w->join_gap = draw_percent(c, 70) ? l->unit / 4 + draw(c, 8 * l->unit) : 0;
    if (draw_percent(c, 50))
        w->busy_percent = (unsigned)draw(c, 40);
    if (w->config.levels > 3)
        w->config.levels = (uint32_t)draw_up_to(c, 3);
    if (w->link_rate)
        return;
    if (w->config.max_apps > 8)
        w->config.max_apps = 8;
    if (draw_percent(c, 30))
        w->room_gap = l->unit * draw_up_to(c, 10);
}

uint64_t workload_run(uint64_t seed, enum workload_way way, FILE *trace, struct workload_sums *sums)
{
    static struct workload l;
    struct world *w = &l.world;
    world_begin(w, seed);
    l = (struct workload){.world = *w};
    w->trace = trace;
    w->is_verbose = way == WORKLOAD_VERBOSE;
    w->watch.is_hash_only = way == WORKLOAD_HASH;
    w->arrive = arrive;
    draw_config(&l);
    draw_engine(&l);
    draw_mix(&l);
    l.pauses.state = ~seed;
    l.pausing_percent = seed % 4 == 2 ? 20 + (unsigned)draw(&l.pauses, 80) : 0;
    if (seed >= WORKLOAD_STORMS)
        draw_storm(&l);
    w->users.state = seed * 7 + 1;
    w->n_users = seed % 3 == 1 ? 2 + (uint32_t)draw(&w->users, 3) : 1;
    world_start(w);
    uint64_t crowd = 2 + draw(&w->chance, w->config.max_apps - 1);
    for (uint64_t i = 0; i < crowd; i++)
        arrive(w);
    uint64_t steps = draw_percent(&w->chance, 10) ? MANY_STEPS : STEPS;
    while (w->watch.steps < steps && world_step(w, GM_TIME_NEVER))
        continue;
    sums->steps += w->watch.steps;
    sums->slices += w->watch.opened;
    sums->busy += w->watch.busy;
    sums->with_bytes += w->link_rate != 0;
    sums->clean += w->watch.is_clean;
    sums->sim_ns += w->now;
    uint64_t hash = w->watch.hash;
    world_end(w);
    return hash;
}
