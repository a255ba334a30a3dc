/*
 * Programs have all that the GPU and pinned memory hold together, when others use a part of the GPU
 * for a moment. It refuses memory, and the budget falls. When those are gone it is what programs
 * were promised again, though nothing is left of the GPU beside it: with less, what leaves the GPU
 * for the next turn may find no place.
 */
#include "tests/sim/engine/machine.h"

#include "daemon/engine/inlet.h"

#define BUDGET (168 * GM_MIB)
#define PINNED (224 * GM_MIB)

/* A program that has this much, in pieces of `unit`. */
static void start(uint32_t number, uint64_t mib, uint64_t unit)
{
    struct program *p = &machine.programs[number];
    const uint64_t until = machine.now + 5 * GM_S;
    program_start(p, false);
    p->uid = 1000;
    p->is_steady = true;
    p->work = UINT64_MAX;
    p->may_share = p->may_spare = false;
    p->wishes = (struct gm_wishes){.class = 0};
    p->gpus = 1;
    p->most_pages[0] = (uint32_t)(mib * GM_MIB >> GM_CHUNK_SHIFT);
    machine.unit = (uint32_t)(unit * GM_MIB >> GM_CHUNK_SHIFT);
    while (!program_has_all(p))
        require(machine_step(until), "program %u does not get its memory", number);
}

void full_run(void)
{
    const struct gm_engine_config config = {
        .budget = BUDGET, .pinned = PINNED, .slice_ns = 100 * GM_MS};
    scenario_begin_calm(&config, 3);
    const struct gm_engine *engine = machine.daemon.engines[0];
    machine.gpus[0].bytes = BUDGET;
    start(1, 128, 32);
    start(2, 128, 8);
    machine.gpus[0].beside = 40 * GM_MIB;
    start(3, 70, 10);
    uint64_t until = machine.now + 10 * GM_S;
    while (engine->table->budget == BUDGET)
        require(machine_step(until), "the GPU refuses nothing");
    machine.gpus[0].beside = 0;
    /* Who comes is told of the GPU, and that look has the others use what is free now. */
    const uint64_t fallen = engine->table->budget;
    struct gm_gpu_entry gpu;
    gm_engine_describe(machine.daemon.engines[0], &gpu);
    require(engine->table->budget > fallen, "the budget is not followed");
    require(!gm_table_is_plan_stale(engine->table, false),
            "there is another budget, and no plan for it");
    until = machine.now + 3 * GM_S;
    const uint64_t promised = engine->table->committed - (PINNED - engine->host->window);
    while (engine->table->budget < promised)
        require(machine_step(until), "the budget stays at %lu MiB, and %lu were promised",
                engine->table->budget >> 20, promised >> 20);

    machine.is_ending = true;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        program_leave(&machine.programs[i]);
    until = machine.now + 60 * GM_S;
    while (machine_step(until))
        continue;
    checks_nothing_left();
    scenario_close();
}
