/*
 * What happens in the engines, as their outlet tells it. The scheduler's input goes to the watch.
 * Every change of a state must have a row of core/model.h and begin where the last one ended, so
 * that nothing but the setters writes states.
 *
 * Now and then an event is planted that has no row, for some chunk, shadow, frame or app. It must
 * be told once, change nothing and stop nobody. No other such event may ever come.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>
#include <string.h>
#include "daemon/engine/step/feed.h"

/* The loop may look a little later than copies end. */
#define WAY_OFF_MOST (200 * GM_US)

/* The states as they were told, of each GPU. */
static struct gpu_states {
    uint32_t n[GM_MODELS_N];
    uint8_t *told[GM_MODELS_N];
    uint64_t *copied; /* bytes of the copy of each chunk that is under way; 0: none */
    struct moment {
        uint64_t at, way_ns[GM_WAYS]; /* with copies under way */
        bool is_void;                 /* the switch began before that */
    } now, chosen[PROGRAMS];
    bool is_copying[GM_WAYS];
} states[GPUS];
static struct chance plants; /* of its own, so that the machine is the same without */
static bool is_planted;      /* an event without a row is to come */

static uint8_t state_of(const struct gm_engine *engine, enum gm_model model, uint32_t id)
{
    switch (model) {
    case GM_MODEL_CHUNK:
        return engine->table->chunks[id].state;
    case GM_MODEL_SHADOW:
        return engine->table->chunks[id].shadow;
    case GM_MODEL_FRAME:
        return engine->table->frames[id].state;
    default:
        return (uint8_t)engine->apps[id].state;
    }
}

/* The first time: nothing was told yet. */
static void begin(uint32_t gpu)
{
    struct gpu_states *of = &states[gpu];
    if (of->told[GM_MODEL_CHUNK])
        return;
    const struct gm_table *table = machine.daemon.engines[gpu]->table;
    of->n[GM_MODEL_CHUNK] = of->n[GM_MODEL_SHADOW] = table->max_chunks;
    of->n[GM_MODEL_FRAME] = table->max_frames;
    of->n[GM_MODEL_APP] = table->max_apps;
    for (unsigned m = 0; m < GM_MODELS_N; m++)
        of->told[m] = calloc(of->n[m], 1);
    of->copied = calloc(of->n[GM_MODEL_CHUNK], sizeof *of->copied);
}

static void forget(struct gpu_states *of)
{
    for (unsigned m = 0; m < GM_MODELS_N; m++)
        free(of->told[m]);
    free(of->copied);
    *of = (struct gpu_states){0};
    plants = (struct chance){.state = machine.seed ^ 0x9e3779b97f4a7c15ull};
}

void events_adopted(uint32_t gpu)
{
    struct gpu_states *of = &states[gpu];
    const struct chance was = plants;
    forget(of);
    plants = was;
    begin(gpu);
    for (unsigned m = 0; m < GM_MODELS_N; m++)
        for (uint32_t i = 0; i < of->n[m]; i++)
            of->told[m][i] = state_of(machine.daemon.engines[gpu], (enum gm_model)m, i);
}

/* An eviction begins: it leaves room in pinned memory through which the tiers below can be emptied,
 * if they can: with the disk alone, and that closed, there is none (core/plan.c).
 */
static void check_reserve(const struct gm_engine *engine)
{
    const uint64_t used = gm_hostpool_used(&engine->pool) - engine->table->shadows;
    const uint64_t cap = gm_hostpool_cap(&engine->pool);
    require(cap >= used + engine->reserve,
            "an eviction leaves %lu MiB of pinned memory, and %lu are for what comes up from below",
            (cap - used) >> 20, engine->reserve >> 20);
}

static void pass(struct gpu_states *of)
{
    for (int way = 0; way < GM_WAYS; way++)
        of->now.way_ns[way] += of->is_copying[way] ? machine.now - of->now.at : 0;
    of->now.at = machine.now;
}

/* A switch has ended: its parts are all of its time, and copies were under way for so long. */
static void take_switch(const struct gpu_states *of, uint32_t id, const struct gm_switch *took)
{
    const struct moment *begin = &of->chosen[id], *end = &of->now;
    const uint64_t time = end->at - begin->at;
    uint64_t sum = 0;
    for (int part = 0; part < GM_PARTS; part++)
        sum += took->part_ns[part];
    require(sum == took->total_ns && (begin->is_void || took->total_ns == time),
            "a switch to app %u took %lu ns, and says %lu and %lu in its parts", id, time,
            took->total_ns, sum);
    for (int way = 0; way < GM_WAYS && !begin->is_void; way++)
        require(took->way_ns[way] + WAY_OFF_MOST >= end->way_ns[way] - begin->way_ns[way] &&
                    took->way_ns[way] <= end->way_ns[way] - begin->way_ns[way] + WAY_OFF_MOST,
                "a switch to app %u had copies under way for %lu ns, and says %lu", id,
                end->way_ns[way] - begin->way_ns[way], took->way_ns[way]);
}

static void take_turn(uint32_t gpu, const struct gm_turn *turn)
{
    begin(gpu);
    const enum gm_model model = (enum gm_model)turn->model;
    uint8_t of_client = turn->from; /* which engine tells of a client is no matter */
    uint8_t *told = model == GM_MODEL_CLIENT ? &of_client : &states[gpu].told[model][turn->id];
    require(turn->from == *told, "%s %u goes from %s, and was %s", gm_model_text(model), turn->id,
            gm_model_state_text(model, turn->from), gm_model_state_text(model, *told));
    require(turn->to != GM_TURN_ILLEGAL || is_planted, "%s %u: %s is not allowed in state %s",
            gm_model_text(model), turn->id, gm_model_event_text(model, turn->event),
            gm_model_state_text(model, turn->from));
    if (turn->to == GM_TURN_ILLEGAL) {
        is_planted = false;
        return;
    }
    require(turn->to == gm_model_next(model, turn->from, turn->event), "%s %u goes from %s to %s",
            gm_model_text(model), turn->id, gm_model_state_text(model, turn->from),
            gm_model_state_text(model, turn->to));
    *told = turn->to;
    stays_turn(gpu, turn);
    if (model == GM_MODEL_APP && turn->to == GM_APP_LOADING) {
        states[gpu].chosen[turn->id] = states[gpu].now;
        states[gpu].chosen[turn->id].is_void =
            machine.daemon.engines[gpu]->apps[turn->id].places.is_held;
    }
    if (model == GM_MODEL_CHUNK && turn->event == GM_CHUNK_EV_EVICT)
        check_reserve(machine.daemon.engines[gpu]);
}

/* A chunk has one copy under way at a time, and each that ends has begun. */
static void take_copy(const struct gm_event *event)
{
    const bool begins = event->kind == GM_EVENT_COPY;
    const uint32_t chunk = begins ? event->copy.chunk : event->copied.chunk;
    uint64_t *copied = &states[event->gpu].copied[chunk];
    require(*copied == (begins ? 0 : event->copied.bytes),
            "a copy of chunk %u %s, and %lu bytes are under way", chunk, begins ? "begins" : "ends",
            *copied);
    *copied = begins ? event->copy.bytes : 0;
}

/* It is taken for idle: it did nothing for --idle, and, if it is paused, no thread of it waits. */
static void take_idle(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_session *session = engine->apps[id].session;
    const struct program *p = session ? session->program : NULL;
    if (!p || p->life != session->life)
        return;
    const uint64_t ns = machine.now - p->touched_at;
    require(ns >= machine.config.idle_ns, "program %u (app %u) is idle, and worked %lu us ago",
            p->number, id, (uint64_t)(ns / GM_US));
    const bool is_running = engine->apps[id].state == GM_APP_RUNNING;
    /* What it said since its link stood still, the daemon has not heard. */
    const bool is_heard = machine.now >= p->deaf_until;
    require(is_running ? p->is_quiet || program_has_team(p) || !is_heard
                       : atomic_load(&p->stat->waiting) == 0,
            "program %u (app %u) is idle, and %s", p->number, id,
            is_running ? "did not say that its work is over" : "waits");
}

static void take_input(struct watch *watch, uint64_t now, const struct gm_sched_event *event)
{
    trace("the scheduler hears event %lu of app %lu, %lu bytes", event->kind, event->app,
          event->bytes);
    if (event->kind == GM_SCHED_ROOM)
        watch->config.budget = event->bytes;
    watch_event(watch, now, event);
    watch_before(watch);
}

/* It is posted. */
static void take(const struct gm_event *event)
{
    struct watch *watch = &machine.gpus[event->gpu].watch;
    pass(&states[event->gpu]);
    if (event->kind == GM_EVENT_TURN) {
        take_turn(event->gpu, &event->turn.turn);
    } else if (event->kind == GM_EVENT_SCHED) {
        forget(&states[event->gpu]);
        watch->config = *event->sched.config;
    } else if (event->kind == GM_EVENT_COPY || event->kind == GM_EVENT_COPIED) {
        take_copy(event);
    } else if (event->kind == GM_EVENT_SWITCH) {
        take_switch(&states[event->gpu], event->app, &event->switch_.note->took);
    } else if (event->kind == GM_EVENT_IDLE) {
        take_idle(machine.daemon.engines[event->gpu], event->app);
    } else if (event->kind == GM_EVENT_INPUT) {
        take_input(watch, event->at, event->input.event);
    } else if (event->kind == GM_EVENT_UNITED && event->united.is_made) {
        const struct gm_engine *engine = machine.daemon.engines[event->gpu];
        const struct program *partner = NULL; /* it may have yet to come back */
        for (uint32_t i = 1; i <= machine.n_programs; i++)
            if (machine.programs[i].pid == event->united.partner_pid)
                partner = &machine.programs[i];
        require(partner, "a program runs together with none");
        program_unite(engine->apps[event->app].session->program, partner);
    } else if (event->kind == GM_EVENT_CHECKED) {
        machine.sums.guilty += event->checked.step == GM_CHECKED_BACK;
        machine.sums.tries += event->checked.step == GM_CHECKED_TRY;
    } else if (event->kind == GM_EVENT_POLICY) {
        watch_policy(watch, event->at, event->app, event->policy.policy);
        watch_before(watch);
    }
}

/* Events are told as they are posted, in their order. */
static struct {
    uint64_t posted, told;
} numbers[GPUS];
static uint64_t number_of(uint64_t before, const struct gm_event *event)
{
    return (before ^ event->kind ^ (uint64_t)event->app << 8) * 0x100000001b3ull;
}

void __real_gm_engine_post_event(struct gm_engine *engine, const struct gm_event *event);
void __wrap_gm_engine_post_event(struct gm_engine *engine, const struct gm_event *event);
void __wrap_gm_engine_post_event(struct gm_engine *engine, const struct gm_event *event)
{
    if (event->kind == GM_EVENT_SCHED) /* a new daemon */
        numbers[event->gpu].posted = numbers[event->gpu].told = 0;
    numbers[event->gpu].posted = number_of(numbers[event->gpu].posted, event);
    take(event);
    __real_gm_engine_post_event(engine, event);
}

void events_take(struct gm_journal *journal, const struct gm_event *event)
{
    (void)journal;
    numbers[event->gpu].told = number_of(numbers[event->gpu].told, event);
}

/* Tell one thing of that kind what is not legal now, if such an event is drawn. */
static void plant(struct gm_engine *engine, enum gm_model model)
{
    static const unsigned events[GM_MODELS_N] = {GM_CHUNK_EVENTS_N, GM_FRAME_EVENTS_N,
                                                 GM_SHADOW_EVENTS_N, 0, GM_APP_EVENTS_N};
    if (model == GM_MODEL_CLIENT)
        return; /* programs do that: an answer more */
    const uint32_t id = (uint32_t)draw(&plants, states[engine->config.index].n[model]);
    const unsigned event = (unsigned)draw(&plants, events[model]);
    const uint8_t before = state_of(engine, model, id);
    if (gm_model_next(model, before, event) != GM_TURN_ILLEGAL ||
        (model == GM_MODEL_FRAME && (event == GM_FRAME_EV_MAKE || event == GM_FRAME_EV_LEAVE)))
        return; /* these two come with other things only */
    bool is_done = false;
    is_planted = true;
    if (model == GM_MODEL_CHUNK)
        is_done = gm_table_turn_chunk(engine->table, id, (enum gm_chunk_event)event);
    else if (model == GM_MODEL_SHADOW)
        is_done = gm_table_turn_shadow(engine->table, id, (enum gm_shadow_event)event);
    else if (model == GM_MODEL_APP)
        is_done = gm_engine_turn(engine, id, (enum gm_app_event)event);
    else if (event == GM_FRAME_EV_TAKE)
        is_done = gm_table_take_frame(engine->table, id, 0);
    else if (event == GM_FRAME_EV_KEEP)
        is_done = gm_table_turn_frame(engine->table, id, GM_FRAME_EV_KEEP);
    else if (event == GM_FRAME_EV_CLEAN)
        gm_table_clean_frame(engine->table, id, 0);
    else if (event == GM_FRAME_EV_SOIL)
        gm_table_soil_frame(engine->table, id);
    else if (event == GM_FRAME_EV_ORPHAN)
        gm_table_orphan_frame(engine->table, id);
    else if (event == GM_FRAME_EV_GIVE)
        is_done = gm_table_free_frame(engine->table, id);
    else if (event == GM_FRAME_EV_CONDEMN)
        is_done = gm_table_condemn_frame(engine->table, id, GM_NONE);
    else
        gm_table_end_frame(engine->table, id);
    require(!is_done && !is_planted, "%s %u took %s in state %s", gm_model_text(model), id,
            gm_model_event_text(model, event), gm_model_state_text(model, before));
    require(state_of(engine, model, id) == before, "%s %u has changed", gm_model_text(model), id);
    machine.sums.planted++;
}

void events_run(struct gm_engine *engine)
{
    struct gpu_states *of = &states[engine->config.index];
    begin(engine->config.index);
    pass(of);
    if (!engine->posted.first)
        require(numbers[engine->config.index].posted == numbers[engine->config.index].told,
                "not all that happened was told, in its order");
    for (int way = 0; way < GM_WAYS; way++) {
        const uint64_t bytes = gm_mover_under_way(engine->mover, (enum gm_way)way);
        of->is_copying[way] = bytes > 0;
        require(engine->copying[way] == bytes || engine->posted.first,
                "%lu bytes are under way, and the engine counts %lu", bytes, engine->copying[way]);
    }
    if (draw(&plants, 50) == 0)
        plant(engine, (enum gm_model)draw(&plants, GM_MODELS_N));
    if (machine.steps % 32 != 0)
        return;
    for (unsigned m = 0; m < GM_MODELS_N; m++)
        for (uint32_t id = 0; id < of->n[m]; id++)
            require(state_of(engine, (enum gm_model)m, id) == of->told[m][id],
                    "%s %u is in state %s, and nobody said so", gm_model_text((enum gm_model)m), id,
                    gm_model_state_text((enum gm_model)m, state_of(engine, (enum gm_model)m, id)));
}
