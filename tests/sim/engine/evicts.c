/*
 * Programs that are evicted (mux-ctl evict): their memory leaves the GPU though nobody wants it,
 * and stays away until they are resumed, or until their next call. Who works goes on. The machine
 * is calm, so all that keeps memory away is that they are evicted.
 */
#include "tests/sim/engine/machine.h"

#include "common/settings.h"

enum { USER = 1000 };

static struct program *start(uint32_t number)
{
    struct program *p = &machine.programs[number];
    program_start_steady(p, USER, 48, 0);
    machine_run(500 * GM_MS);
    require(p->touches > 0, "program %u has not worked", number);
    return p;
}

static void fall_asleep(struct program *p)
{
    p->is_asleep = true;
    p->work = 0;
    machine_run(GM_S);
}

static void wake(struct program *p)
{
    p->is_asleep = false;
    p->work = UINT64_MAX;
}

static void set_paused(const struct program *p, enum gm_set_paused as)
{
    struct gm_set_request request = {
        .selects = GM_SET_PID, .pid = p->pid, .settings = {.has = GM_SET_PAUSED}, .asker = USER};
    struct gm_set_done done;
    char why[256] = "";
    gm_settings_set_paused(&request.settings, as);
    require(gm_machine_set(&machine.daemon, &request, &done, why, sizeof why) == 0,
            "program %u cannot be set: %s", p->number, why);
}

static const struct gm_table *table(void)
{
    return machine.daemon.engines[0]->table;
}

/* Nothing of it is on the GPU, and nothing is kept there for it, for as long as that. */
static void expect_away(const struct program *p, uint64_t time)
{
    const uint64_t until = machine.now + time;
    do {
        require(table()->apps[p->app].device == 0, "%lu MiB of program %u are on the GPU",
                (uint64_t)(table()->apps[p->app].device >> 20), p->number);
        require(table()->allocated - table()->condemned == 0, "the GPU keeps %lu MiB for nobody",
                (uint64_t)((table()->allocated - table()->condemned) >> 20));
    } while (machine_step(until));
}

static void expect_work(const struct program *p, const char *when)
{
    const uint64_t before = p->touches;
    machine_run(2 * GM_S);
    require(p->touches > before + 1, "program %u does not work %s", p->number, when);
}

static void ask_ahead(const struct program *p)
{
    const struct gm_set_request request = {
        .selects = GM_SET_PID, .pid = p->pid, .settings = {.has = GM_SET_AHEAD}, .asker = USER};
    struct gm_set_done done = {0};
    char why[256] = "";
    require(gm_machine_set(&machine.daemon, &request, &done, why, sizeof why) == 0 &&
                done.changed == 1,
            "program %u cannot be asked for: %s", p->number, why);
}

/* mux-ctl prefetch: what nobody expects comes when it is asked for, as far as there is room, but
 * not of who is evicted. */
static void run_prefetches(void)
{
    const struct gm_engine_config config = {
        .budget = 160 * GM_MIB, .pinned = 256 * GM_MIB, .slice_ns = 200 * GM_MS};
    scenario_begin_calm(&config, 6);
    struct program *p = start(1);
    fall_asleep(p);
    const uint64_t had = table()->apps[p->app].device;
    set_paused(p, GM_PAUSED_EVICTED);
    machine_run(GM_S);
    ask_ahead(p);
    machine_run(5 * GM_S);
    require(table()->apps[p->app].device == 0, "who is evicted came back as it was asked for");
    set_paused(p, GM_PAUSED_NO);
    machine_run(5 * GM_S);
    require(table()->apps[p->app].device == had, "what was asked for does not come");

    machine.is_ending = true;
    program_leave(p);
    machine_run(60 * GM_S);
    checks_nothing_left();
    scenario_close();
}

void evicts_run(void)
{
    const struct gm_engine_config config = {
        .budget = 160 * GM_MIB, .pinned = 256 * GM_MIB, .slice_ns = 200 * GM_MS};
    scenario_begin_calm(&config, 5);
    struct program *p = start(1);
    fall_asleep(p);
    require(table()->apps[p->app].device > 0, "who sleeps has left the GPU by itself");

    struct gm_trimmed trimmed; /* that is for paused ones: there are none */
    gm_machine_trim(&machine.daemon, 0, true, &trimmed);
    machine_run(GM_S);
    require(table()->apps[p->app].device > 0, "a trim moves one that is not paused");

    set_paused(p, GM_PAUSED_EVICTED);
    machine_run(GM_S);
    expect_away(p, 10 * GM_S);
    wake(p); /* it stays away whatever it does */
    const uint64_t before = p->touches;
    machine_run(GM_S);
    expect_away(p, 10 * GM_S);
    require(p->touches == before, "who is evicted works");
    set_paused(p, GM_PAUSED_NO);
    expect_work(p, "after it was resumed");

    fall_asleep(p);
    set_paused(p, GM_PAUSED_IDLE);
    machine_run(GM_S);
    expect_away(p, 10 * GM_S);
    wake(p);
    expect_work(p, "at its next call");
    machine_run(5 * GM_S);
    expect_work(p, "later");
    require(table()->apps[p->app].device > 0, "its memory is not back");

    set_paused(p, GM_PAUSED_IDLE); /* in the middle of its work */
    expect_work(p, "though it has calls to make");

    struct program *other = start(2); /* it keeps its own memory */
    set_paused(p, GM_PAUSED_EVICTED);
    machine_run(GM_S);
    require(table()->apps[p->app].device == 0, "beside another one it does not leave");
    expect_work(other, "beside one that is evicted");
    require(table()->apps[other->app].device > 0, "another one left with it");

    machine.is_ending = true;
    program_leave(p);
    program_leave(other);
    machine_run(60 * GM_S);
    checks_nothing_left();
    scenario_close();
    run_prefetches();
}
