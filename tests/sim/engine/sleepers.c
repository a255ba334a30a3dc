/*
 * Programs that sleep with their memory in host memory are no reason that others cannot run: pinned
 * memory is full with what is theirs, and the GPU has room for that. In each scene one program
 * fills most of the GPU and sleeps, another one makes it leave and ends, and others come then,
 * whose memory is in part to be mapped on the host. They work all the time, and nobody has to leave
 * for another one. The machine is calm, and there is no tier below pinned memory.
 */
#include "tests/sim/engine/machine.h"

#define BUDGET (160 * GM_MIB)

enum { USER = 1000, OTHER_USER };

/* A program of so many MiB, in allocations of `unit`, which it writes. Of that it may have `cap` on
 * the GPU; 0: it has no cap. Then it works on its first allocation. */
static struct program *start(uint32_t number, uint32_t uid, uint64_t mib, uint64_t unit,
                             uint64_t cap)
{
    struct program *p = &machine.programs[number];
    program_start_steady(p, uid, mib, cap);
    machine.unit = (uint32_t)(unit * GM_MIB >> GM_CHUNK_SHIFT);
    machine_run(500 * GM_MS);
    return p;
}

/* It is open for nine tenths of that time. */
static void expect_work(const struct program *p, uint64_t time)
{
    const uint64_t until = machine.now + time;
    uint64_t open = 0, from = machine.now;
    for (bool goes_on = true; goes_on; from = machine.now) {
        const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
        goes_on = machine_step(until);
        open += is_open ? machine.now - from : 0;
    }
    require(open > time / 10 * 9, "beside one that sleeps, program %u runs for %lu ms of %lu",
            p->number, (uint64_t)(open / GM_MS), (uint64_t)(time / GM_MS));
}

static void sleep_now(struct program *p)
{
    require(p->touches > 0, "program %u has not worked", p->number);
    p->is_asleep = true;
    p->work = 0;
    machine_run(GM_S);
}

/* Another program needs all of the GPU, and ends. */
static void fill_gpu(uint64_t mib)
{
    struct program *other = start(2, USER, mib, mib / 6, 0);
    require(other->touches > 0, "the other one has not worked");
    program_end_well(other);
    machine_run(GM_S);
}

static void begin(uint64_t pinned)
{
    const struct gm_engine_config config = {
        .budget = BUDGET, .pinned = pinned, .slice_ns = 200 * GM_MS};
    scenario_begin_calm(&config, 5);
}

/* The cap of all programs of a user. */
static void set_cap(uint32_t uid, uint64_t mib)
{
    const struct gm_set_request request = {.selects = GM_SET_UID,
                                           .uid = uid,
                                           .settings = {.has = GM_SET_CAP, .cap = mib * GM_MIB},
                                           .is_admin = true};
    struct gm_set_done done;
    char why[256] = "";
    require(gm_machine_set(&machine.daemon, &request, &done, why, sizeof why) == 0,
            "the cap is refused: %s", why);
}

static void close_all(void)
{
    machine.is_ending = true;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].is_there)
            program_end_well(&machine.programs[i]);
    machine_run(60 * GM_S);
    checks_nothing_left();
    scenario_close();
}

/* What is above its cap of a program is to be mapped on the host. */
static void run_with_cap(uint32_t uid)
{
    begin(192 * GM_MIB);
    sleep_now(start(1, USER, 120, 30, 0));
    fill_gpu(156);
    struct program *p = start(3, uid, 100, 20, 12);
    machine_run(GM_S);
    require(p->touches > 0, "who has a cap does not begin to work");
    expect_work(p, 3 * GM_S);
    close_all();
}

/* What is cold of them is to be mapped on the host: together they need more than the GPU has. */
static void run_with_cold(uint32_t uid)
{
    begin(192 * GM_MIB);
    sleep_now(start(1, USER, 120, 30, 0));
    fill_gpu(156);
    const struct program *a = start(3, uid, 96, 16, 0), *b = start(4, USER, 56, 8, 0);
    machine_run(4 * GM_S);
    const struct program *c = start(5, USER, 14, 8, 0);
    machine_run(4 * GM_S);
    expect_work(a, 3 * GM_S);
    expect_work(b, 3 * GM_S);
    expect_work(c, 3 * GM_S);
    close_all();
}

/* Who sleeps is stopped as well, so that its data stays in pinned memory. Then what a program has
 * above its cap cannot leave, and for that it is not held again and again. */
static void run_beside_stopped(void)
{
    static const uint32_t sleepers[] = {1, 4};
    begin(256 * GM_MIB);
    sleep_now(start(1, USER, 150, 30, 0));
    sleep_now(start(4, USER, 42, 14, 0));
    fill_gpu(156);
    const struct program *p = start(3, OTHER_USER, 128, 32, 0);
    machine.is_calm = false;
    for (unsigned i = 0; i < 2; i++)
        machine.programs[sleepers[i]].frozen_until = machine.now + 200 * GM_S;
    machine_run(2 * GM_S);
    set_cap(p->uid, 20);
    machine_run(25 * GM_S);
    expect_work(p, 45 * GM_S);
    for (unsigned i = 0; i < 2; i++)
        machine.programs[sleepers[i]].frozen_until = machine.now;
    machine_run(GM_HOLD_PAUSE_MOST_NS + 5 * GM_S); /* they go on, and so does what leaves */
    require(machine.daemon.engines[0]->table->apps[p->app].device <= 20 * GM_MIB,
            "program %u is above its cap", p->number);
    close_all();
}

void sleepers_run(void)
{
    run_beside_stopped();
    for (uint32_t uid = USER; uid <= OTHER_USER; uid++) {
        run_with_cap(uid);
        run_with_cold(uid);
    }
}
