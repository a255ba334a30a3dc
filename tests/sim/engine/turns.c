/*
 * How much of the GPU's time is used while programs take turns. Programs that never rest and change
 * little of their memory, such as decoders, take turns by the real engine (machine.h), in a calm
 * machine. One that runs uses the whole GPU, and several at once get no more done than one: so the
 * time that is used is that in which at least one is active.
 *
 * Beside each stands a bound, in units of one program's memory. Unchanged memory never leaves, so
 * what a turn costs is what comes in, L in all, at the link's rate.
 *
 *   two or more fit  One runs while another one comes in: all time can be used.
 *   one fits         With room for M, what can come while another one runs is p <= M - 1, and no
 *                    more than comes in a slice. By Belady's rule what was used last makes way for
 *                    it when the turn begins, and what comes next stays. In the steady state of n
 *                    programs d = 1 - (M - 1 + (n - 2) p) / (n - 1) is left to come while nobody
 *                    runs. So slice / (slice + d L) of the time is used.
 *
 * Everything is a tenth of what it is on a GPU: a program of 0.82 GiB and a slice of 20 ms stand
 * for 8.2 GiB and 0.2 s, as the link has the same rate (40 us for 2 MiB).
 *
 * Beside that, three programs of which each touches a part, and all parts fit together with more:
 * all run all the time, and nothing moves. As they grow one is held once, as
 * the GPU is full of what they do not touch. Then there is room.
 */
#include "tests/sim/engine/machine.h"

#include <stdio.h>

#define PROGRAM_MIB 820ull
#define LEAST .95 /* of the bound */

static bool is_any_active(void)
{
    bool is_any = false;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        is_any = is_any || machine.programs[i].is_active;
    return is_any;
}

/* Let it run for `time`. Returns for how long of it the GPU was used. */
static uint64_t run_for(uint64_t time)
{
    const uint64_t until = machine.now + time;
    uint64_t used = 0, from = machine.now;
    for (bool goes_on = true; goes_on; from = machine.now) {
        const bool is_used = is_any_active();
        goes_on = machine_step(until);
        used += is_used ? machine.now - from : 0;
    }
    return used;
}

static void begin(uint32_t programs, uint64_t budget, uint64_t slice_ns)
{
    const struct gm_engine_config config = {
        .budget = budget, .pinned = 6 * GM_GIB, .slice_ns = slice_ns / 4};
    scenario_begin_calm(&config, programs);
    machine.unit = 64;
    machine.is_timed = true;
    for (uint32_t i = 1; i <= programs; i++) {
        struct program *p = &machine.programs[i];
        program_start(p, false);
        p->is_steady = true;
        p->may_park = p->may_share = p->may_spare = false;
        p->wishes.class = 1 + GM_CLASS_BATCH; /* turns of four slices, each in turn */
        p->most_pages[0] = (uint32_t)(PROGRAM_MIB * GM_MIB >> GM_CHUNK_SHIFT);
    }
}

static void end(void)
{
    machine.is_ending = true;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        program_leave(&machine.programs[i]);
    run_for(10 * GM_S);
    scenario_close();
}

static double bound_of(uint32_t n, uint64_t budget, uint64_t slice_ns)
{
    const double room = (double)budget / (double)(PROGRAM_MIB * GM_MIB);
    const double load = (double)(PROGRAM_MIB * GM_MIB >> GM_CHUNK_SHIFT) * 40e3;
    const double slice = (double)slice_ns, comes = slice / load;
    if (room >= 2)
        return 1;
    const double ahead = comes < room - 1 ? comes : room - 1;
    const double left = 1 - (room - 1 + (n - 2) * ahead) / (n - 1);
    return slice / (slice + left * load);
}

static void run_one(uint32_t programs, uint64_t budget, uint64_t slice_ns)
{
    const uint64_t time = 8 * programs * slice_ns;
    begin(programs, budget, slice_ns);
    run_for(GM_S);
    const struct gm_mover *mover = machine.daemon.engines[0]->mover;
    const uint64_t in = gm_mover_bytes(mover, GM_WAY_IN), turns = machine.sums.turns;
    const double used = (double)run_for(time) / (double)time;
    const double moved = (double)(gm_mover_bytes(mover, GM_WAY_IN) - in);
    const double n = (double)(machine.sums.turns - turns);
    const double bound = bound_of(programs, budget, slice_ns);
    printf(
        "%u programs, room for %.1f, slices of %3lu ms: used %5.1f %% of the time, at most %5.1f "
        "%%; %3.0f turns of %5.1f ms, %3.0f MiB a turn\n",
        programs, (double)budget / (double)(PROGRAM_MIB * GM_MIB),
        (unsigned long)(slice_ns / GM_MS), 100 * used, 100 * bound, n, (double)time / GM_MS / n,
        moved / n / GM_MIB);
    require(used > LEAST * bound, "%.1f %% of the GPU's time are used, of %.1f", 100 * used,
            100 * bound);
    end();
}

static uint64_t moved(void)
{
    const struct gm_mover *mover = machine.daemon.engines[0]->mover;
    return gm_mover_bytes(mover, GM_WAY_IN) + gm_mover_bytes(mover, GM_WAY_OUT);
}

static void run_parts(void)
{
    begin(3, 2000 * GM_MIB, 20 * GM_MS);
    run_for(3 * GM_S);
    const uint64_t before = moved(), turns = machine.sums.turns, holds = machine.sums.holds;
    run_for(GM_S);
    printf("3 programs that touch a part of theirs: %lu turns, %lu holds, %lu MiB moved\n",
           machine.sums.turns - turns, machine.sums.holds - holds, (moved() - before) >> 20);
    require(moved() == before && machine.sums.turns == turns && machine.sums.holds == holds,
            "memory moves though what is needed fits");
    for (uint32_t i = 0; i < 12; i++) {
        machine.programs[1 + i % 3].most_pages[0] += 8;
        run_for(300 * GM_MS);
    }
    printf("they grow by 12 times 16 MiB: %lu turns, %lu holds, %lu MiB moved\n",
           machine.sums.turns - turns, machine.sums.holds - holds, (moved() - before) >> 20);
    require(machine.sums.holds - holds <= 2, "programs are held %lu times as they grow",
            machine.sums.holds - holds);
    end();
}

void turns_run(void)
{
    static const uint64_t slices[] = {100, 20}, budgets[] = {1660, 1230, 850};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned k = 0; k < sizeof slices / sizeof *slices; k++)
        for (unsigned i = 0; i < sizeof budgets / sizeof *budgets; i++)
            run_one(3, budgets[i] * GM_MIB, slices[k] * GM_MS);
    run_one(6, 1660 * GM_MIB, 10 * GM_MS);
    run_parts();
}
