/*
 * What working sets must not cost: memory of a program that does not run does not go back and
 * forth, and no program is held for nothing. Called by checks.c after each step, by events.c, and
 * at the end of each run of an engine.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>

static struct gpu_stays {
    /* How often anything happened for which memory moves: a program came, went, began or ended a
     * turn; somebody has more or less memory, or room. */
    uint64_t causes;
    uint64_t committed, fixed, budget, room;
    uint64_t *came;                /* by chunk: causes when it last came ahead of a turn */
    uint64_t looked_at, decisions; /* causes, and what was decided, by the end of the last run */
    uint64_t needed_at[PROGRAMS];  /* when others last needed what the app has too much */
} stays[GPUS];

/* How long a program may be waited for to hold it: for pinned memory, and after another time. */
#define HELD_MOST (GM_HOLD_FOR_PINNED_NS + GM_HOLD_PAUSE_LEAST_NS)

static void begin(struct gpu_stays *of, const struct gm_engine *engine)
{
    free(of->came);
    *of = (struct gpu_stays){.causes = 1};
    of->came = calloc(engine->table->max_chunks, sizeof *of->came);
    require(of->came, "no memory");
}

void stays_begin(void)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        begin(&stays[i], machine.daemon.engines[i]);
}

static void follow_causes(struct gpu_stays *of, const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    of->causes += of->committed != table->committed || of->fixed != table->fixed ||
                  of->budget != table->budget || of->room != engine->room;
    of->committed = table->committed;
    of->fixed = table->fixed;
    of->budget = table->budget;
    of->room = engine->room;
}

/* Somebody needs what the app has on the GPU beside what it is promised, if only the app for memory
 * that it waits for; or a cap bounds it. */
static bool is_needed(const struct gm_engine *engine, uint32_t id)
{
    const uint32_t newest = engine->apps[id].places.newest;
    uint64_t others = newest == GM_NONE ? 0 : engine->table->allocations[newest].bytes;
    for (uint32_t i = 0; i < engine->config.max_apps; i++)
        if (i != id && engine->apps[i].session && !gm_engine_is_absent(engine, i))
            others += gm_engine_places_room(engine, i);
    return gm_engine_is_capped(engine, id) ||
           others + gm_engine_bytes_for_gpu(engine, id) > engine->room;
}

/* What of the app would move if it was quiet now. */
static struct gm_placed placed_now(struct gm_engine *engine, uint32_t id)
{
    const uint64_t room = gm_engine_places_room(engine, id);
    const uint64_t used = gm_engine_bytes_for_gpu(engine, id), free = gm_less(room, used);
    const uint64_t beyond = engine->table->apps[id].beyond;
    const struct gm_place_input input = {.app = id,
                                         .room = room,
                                         .most = free > GM_PLACE_AT_ONCE ? free : GM_PLACE_AT_ONCE,
                                         .newest = engine->apps[id].places.newest,
                                         .keeps =
                                             engine->is_short_of_room ? gm_room_rounded(beyond) : 0,
                                         .is_quiet = true};
    return gm_layout_place(engine->table, &input, false);
}

/* A program that runs is held only if something of it has to move; and not to have less than
 * nobody has needed for a while. */
static void check_held(struct gpu_stays *of, struct gm_engine *engine, uint32_t id)
{
    const struct gm_placed placed = placed_now(engine, id);
    machine.sums.holds++;
    require(placed.come + placed.leave > 0, "app %u is held, and nothing of it is to move", id);
    require(placed.come > 0 || is_needed(engine, id) ||
                machine.now - of->needed_at[id] <= HELD_MOST,
            "app %u is held for %lu MiB, which nobody needs", id, placed.leave >> 20);
}

static void follow_needs(struct gpu_stays *of, const struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (!engine->apps[id].session || is_needed(engine, id))
            of->needed_at[id] = machine.now;
}

/* A chunk that came to the GPU ahead of its turn does not leave again for nobody, while nothing
 * else has happened. */
void stays_turn(uint32_t gpu, const struct gm_turn *turn)
{
    struct gpu_stays *of = &stays[gpu];
    if (turn->to == GM_TURN_ILLEGAL || !of->came)
        return;
    struct gm_engine *engine = machine.daemon.engines[gpu];
    if (turn->model == GM_MODEL_APP)
        of->causes++;
    if (turn->model == GM_MODEL_APP && turn->to == GM_APP_DRAINING &&
        engine->apps[turn->id].places.is_held)
        check_held(of, engine, turn->id);
    if (turn->model != GM_MODEL_CHUNK)
        return;
    const uint32_t app = engine->table->chunks[turn->id].app;
    follow_causes(of, engine);
    if (gm_engine_is_capped(engine, app))
        return; /* what its driver keeps is a cause as well */
    if (turn->event == GM_CHUNK_EV_FILL)
        of->came[turn->id] = engine->apps[app].state == GM_APP_PAUSED ? of->causes : 0;
    require(turn->event != GM_CHUNK_EV_EVICT || of->came[turn->id] != of->causes ||
                engine->layout.n_targets > 0 || engine->apps[app].is_vacating,
            "chunk %u of app %u, which is paused, comes and goes", turn->id, app);
}

/* What a program did while nobody looked says nothing of what is cold. */
static void check_cold(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session || engine->apps[id].windows.is_on ||
            table->apps[id].cold == 0)
            continue;
        for (uint32_t c = 0; c < table->max_chunks; c++)
            require(table->chunks[c].state == GM_CHUNK_UNUSED || table->chunks[c].app != id ||
                        !table->chunks[c].is_cold || table->chunks[c].trust == GM_TRUST_TRIED,
                    "app %u has no windows, and its chunk %u is cold", id, c);
    }
}

/* All that apps have for now, beside what others are promised, has room; what does not leave as its
 * app does not drain may have none. */
static void check_bends(const struct gm_engine *engine)
{
    uint64_t promised = 0, bends = 0;
    bool is_any = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (!app->session || gm_engine_is_absent(engine, id))
            continue;
        const uint64_t own = gm_room_promised(engine->table, id);
        const bool is_stuck =
            app->state == GM_APP_RUNNING && machine.now < app->places.hold_failed_until;
        const bool is_wanting = engine->in_set[id] || !app->idle.is_idle;
        const bool counts = is_wanting || !engine->config.has_bending_caps;
        promised += counts || gm_engine_is_capped(engine, id) ? own : 0;
        bends += app->cap.bend;
        is_any = is_any || (app->cap.bend > 0 && !is_stuck);
        if (is_stuck && engine->is_short_of_room && !gm_engine_is_capped(engine, id))
            require(gm_engine_bytes_for_gpu(engine, id) <= own + app->cap.bend ||
                        own == engine->table->apps[id].committed,
                    "app %u does not drain, and is to have less than it has", id);
    }
    require(!is_any || promised + bends <= engine->room,
            "apps have %lu MiB for now and are promised %lu, of %lu", bends >> 20, promised >> 20,
            engine->room >> 20);
}

void stays_look(const struct gm_engine *engine)
{
    struct gpu_stays *of = &stays[engine->config.index];
    follow_causes(of, engine);
    follow_needs(of, engine);
    check_cold(engine);
}

/* What apps have for now was looked at in the run before, or in this one, and nothing has changed
 * since that one. */
void __real_gm_engine_end_run(struct gm_engine *engine);
void __wrap_gm_engine_end_run(struct gm_engine *engine);
void __wrap_gm_engine_end_run(struct gm_engine *engine)
{
    struct gpu_stays *of = &stays[engine->config.index];
    follow_causes(of, engine);
    if (of->looked_at == of->causes && of->decisions == engine->decisions &&
        !engine->stopping.is_on)
        check_bends(engine);
    of->looked_at = of->causes;
    of->decisions = engine->decisions;
    __real_gm_engine_end_run(engine);
}
