/*
 * A process says HELLO a second time. It has executed another program, or it lies, and still has
 * mapped what it had: then its memory on the host is nobody else's until the process ends. The
 * first session has ended, or it was of a daemon that died. checks.c looks at each step whether
 * memory that is mapped is free. Each scene is a process of its own, as deaths.c has it.
 */
#include "tests/sim/engine/machine.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 1000 };

static struct {
    int handles[PROGRAM_PAGES];
    unsigned n;
} ghost; /* what the process still has mapped on the host, one a page */

/* A program of so many MiB, of which it may have `cap` on the GPU; 0: all. */
static struct program *start(uint32_t number, uint64_t mib, uint64_t cap)
{
    struct program *p = &machine.programs[number];
    program_start_steady(p, USER, mib, cap);
    machine.unit = (uint32_t)(20 * GM_MIB >> GM_CHUNK_SHIFT);
    machine_run(2 * GM_S);
    require(p->touches > 0, "program %u has not worked", number);
    return p;
}

static void keep_ghost(const struct program *p)
{
    ghost.n = 0;
    for (unsigned i = 0; i < PROGRAM_PAGES; i++) {
        const int handle = p->map[i].handle;
        if (handle == NO_HANDLE || !handle_at(handle)->is_host)
            continue;
        handle_at(handle)->maps++;
        handle_ref(handle);
        ghost.handles[ghost.n++] = handle;
    }
    require(ghost.n > 0, "nothing of program %u is mapped on the host", p->number);
}

static void end_ghost(void)
{
    while (ghost.n > 0) {
        const int handle = ghost.handles[--ghost.n];
        if (--handle_at(handle)->maps == 0)
            handle_at(handle)->program = 0;
        handle_unref(handle);
    }
}

static void run(bool dies)
{
    const struct gm_engine_config config = {.budget = 160 * GM_MIB,
                                            .pinned = 256 * GM_MIB,
                                            .kept = kept_begin(),
                                            .has_shadows = true,
                                            .slice_ns = 200 * GM_MS};
    scenario_begin_calm(&config, 3);
    machine.has_deaths = dies;
    struct program *p = start(1, 100, 20);
    if (dies)
        deaths_kill();
    while (machine.is_down || p->is_losing)
        require(machine_step(UINT64_MAX), "no daemon comes");
    require(p->is_lost == dies, "program %u is back too soon", p->number);
    keep_ghost(p);
    const uint64_t life = p->life;
    program_execute(p);
    while (p->life == life || !p->session)
        require(machine_step(UINT64_MAX), "the process does not say HELLO again");
    p->is_asleep = true;
    p->work = 0;
    machine_run(100 * GM_MS);
    require(machine.daemon.engines[0]->table->condemned == 0,
            "what it had on the GPU waits for the end of the process");

    /* Others of its user leave the GPU for each other, so they want pinned memory. */
    struct program *a = start(2, 100, 0), *b = start(3, 100, 0);
    machine_run(2 * GM_EXIT_NS);
    require(a->turns > 1 && b->turns > 1, "others do not work beside it");

    machine.is_ending = true;
    program_end_well(a);
    program_end_well(b);
    end_ghost();
    program_end_well(p);
    machine_run(60 * GM_S);
    checks_nothing_left();
    scenario_close();
}

int anew_run(void)
{
    int failed = 0;
    for (int dies = 0; dies <= 1; dies++) {
        int status = 0;
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            run(dies);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    return failed;
}
