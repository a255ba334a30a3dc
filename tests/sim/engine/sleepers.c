/*
 * Programs that sleep with their memory in host memory are no reason that others cannot run: pinned
 * memory is full with what is theirs, and the GPU has room for that. In each scene one program
 * fills most of the GPU and sleeps, another one makes it leave and ends, and others come then,
 * whose memory is in part to be mapped on the host. They work all the time, and nobody has to leave
 * for another one. The machine is calm, and there is no tier below pinned memory.
 */
#include "tests/sim/engine/machine.h"

#define BUDGET (160 * GM_MIB)

static void run_for(uint64_t time)
{
    const uint64_t until = machine.now + time;
    while (machine_step(until))
        continue;
}

/* A program of so many MiB, in allocations of `unit`, which it writes. Of that it may have `cap` on
 * the GPU; 0: it has no cap. Then it works on its first allocation. */
static struct program *start(uint32_t number, uint64_t mib, uint64_t unit, uint64_t cap)
{
    struct program *p = &machine.programs[number];
    program_start(p, false);
    p->is_steady = true;
    p->work = UINT64_MAX;
    p->may_park = p->may_share = p->may_spare = false;
    p->wishes = (struct gm_wishes){.cap_is = cap > 0 ? GM_HELLO_CAP_OURS : p->wishes.cap_is,
                                   .cap = cap * GM_MIB,
                                   .oversize = p->wishes.oversize};
    p->most_pages[0] = (uint32_t)(mib * GM_MIB >> GM_CHUNK_SHIFT);
    machine.unit = (uint32_t)(unit * GM_MIB >> GM_CHUNK_SHIFT);
    run_for(500 * GM_MS);
    return p;
}

static void end(struct program *p)
{
    program_leave(p);
    while (p->is_there || p->session)
        require(machine_step(UINT64_MAX), "a process does not end");
}

/* It is open for nine tenths of a while, once it had some time for its memory. */
static void expect_work(const struct program *p)
{
    const uint64_t until = machine.now + 3 * GM_S;
    uint64_t open = 0, from = machine.now;
    for (bool goes_on = true; goes_on; from = machine.now) {
        const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
        goes_on = machine_step(until);
        open += is_open ? machine.now - from : 0;
    }
    require(open > 27 * GM_S / 10, "beside one that sleeps, program %u runs for %lu ms of 3 s",
            p->number, (uint64_t)(open / GM_MS));
}

static void begin(bool fits_working_sets)
{
    const struct gm_engine_config config = {.budget = BUDGET,
                                            .pinned = 192 * GM_MIB,
                                            .fits_working_sets = fits_working_sets,
                                            .has_shadows = true,
                                            .is_prefetching = true,
                                            .slice_ns = 200 * GM_MS};
    scenario_begin_calm(&config, 5);
    struct program *sleeper = start(1, 120, 30, 0);
    require(sleeper->touches > 0, "it has not worked");
    sleeper->is_asleep = true;
    sleeper->work = 0;
    run_for(GM_S);
    struct program *other = start(2, 156, 26, 0);
    require(other->touches > 0, "the other one has not worked");
    end(other);
    run_for(GM_S);
}

static void close_all(void)
{
    machine.is_ending = true;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].is_there)
            end(&machine.programs[i]);
    run_for(60 * GM_S);
    checks_nothing_left();
    scenario_close();
}

/* What is above its cap of a program is to be mapped on the host. */
static void run_with_cap(void)
{
    begin(false);
    struct program *p = start(3, 100, 20, 12);
    run_for(GM_S);
    require(p->touches > 0, "who has a cap does not begin to work");
    expect_work(p);
    close_all();
}

/* What is cold of them is to be mapped on the host: together they need more than the GPU has. */
static void run_with_cold(void)
{
    begin(true);
    const struct program *a = start(3, 96, 16, 0), *b = start(4, 56, 8, 0);
    run_for(4 * GM_S);
    const struct program *c = start(5, 14, 8, 0);
    run_for(4 * GM_S);
    expect_work(a);
    expect_work(b);
    expect_work(c);
    close_all();
}

void sleepers_run(void)
{
    run_with_cap();
    run_with_cold();
}
