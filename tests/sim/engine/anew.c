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

/* How large all is, in MiB. */
struct scene {
    uint64_t seed;
    uint64_t budget, pinned;
    uint64_t mib, cap; /* of the process that comes again: what is above the cap lies on the host */
    uint64_t other;    /* each of two others */
    uint64_t more;     /* of one more, beside which there is less than that; 0: there is none */
    uint64_t unit;     /* of allocations */
    bool dies;
};

static struct {
    int handles[PROGRAM_PAGES];
    unsigned n;
} ghost; /* what the process still has mapped on the host, one a page */

/* A program of so many MiB, of which it may have `cap` on the GPU; 0: all. */
static struct program *start(uint32_t number, uint64_t mib, uint64_t cap)
{
    struct program *p = &machine.programs[number];
    program_start_steady(p, USER, mib, cap);
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

void anew_ended(const struct program *p)
{
    if (p->number == 1)
        end_ghost();
}

static struct scene draw_scene(uint64_t seed)
{
    struct chance chance = {.state = seed};
    const uint64_t unit = 2 * (5 + draw(&chance, 12)); /* no program has more than some 20 */
    struct scene scene = {.seed = seed, .dies = draw_percent(&chance, 50), .unit = unit};
    scene.cap = unit + 2 * draw(&chance, 20);
    scene.mib = scene.cap + unit * (1 + draw(&chance, 5));
    scene.budget = 64 + scene.mib + 2 * draw(&chance, 40);
    scene.other = (scene.budget / 2 / unit + 1 + draw(&chance, scene.budget / 4 / unit)) * unit;
    scene.other = scene.other > scene.budget ? scene.budget / unit * unit : scene.other;
    scene.pinned = 160 + 2 * scene.other + scene.mib + 32 * draw(&chance, 6);
    return scene;
}

/* What the process has is promised to nobody: one more gets only what is left beside it. */
static void start_more(const struct scene *scene, const struct program *a, const struct program *b)
{
    struct program *more = &machine.programs[4];
    program_start_steady(more, USER, scene->more, 0);
    machine_run(2 * GM_S);
    require(!program_has_all(more), "what the process has mapped is promised to another program");
    const uint64_t turns_of_a = a->turns, turns_of_b = b->turns;
    machine_run(2 * GM_EXIT_NS);
    require(a->turns > turns_of_a + 1 && b->turns > turns_of_b + 1,
            "what one more program has keeps others from working");
    program_end_well(more);
}

static void run(const struct scene *scene)
{
    const bool dies = scene->dies;
    const struct gm_engine_config config = {.budget = scene->budget * GM_MIB,
                                            .pinned = scene->pinned * GM_MIB,
                                            .kept = kept_begin(),
                                            .slice_ns = 200 * GM_MS,
                                            .patience_ns = 20 * GM_S};
    scenario_begin_jobs(&config, scene->seed, 1, 3);
    machine.unit = (uint32_t)(scene->unit * GM_MIB >> GM_CHUNK_SHIFT);
    machine.has_deaths = dies;
    struct program *p = start(1, scene->mib, scene->cap);
    if (dies)
        deaths_kill();
    while (machine.is_down || p->is_losing)
        require(machine_step(UINT64_MAX), "no daemon comes");
    require(p->is_lost == dies, "program %u is back too soon", p->number);
    keep_ghost(p);
    const uint64_t life = p->life;
    program_execute(p);
    while (p->is_there && (p->life == life || !p->session)) /* a daemon that dies may refuse it */
        require(machine_step(UINT64_MAX), "the process does not say HELLO again");
    p->is_asleep = true;
    p->work = 0;
    machine_run(100 * GM_MS);
    require(machine.daemon.engines[0]->table->condemned == 0,
            "what it had on the GPU waits for the end of the process");

    /* Others of its user leave the GPU for each other, so they want pinned memory. */
    struct program *a = start(2, scene->other, 0), *b = start(3, scene->other, 0);
    machine_run(2 * GM_EXIT_NS);
    require(a->turns > 1 && b->turns > 1,
            "others do not work beside it: they have %lu and %lu turns", a->turns, b->turns);

    if (scene->more > 0)
        start_more(scene, a, b);
    machine.is_ending = true;
    program_end_well(a);
    program_end_well(b);
    end_ghost();
    program_end_well(p);
    machine_run(60 * GM_S);
    checks_nothing_left();
    scenario_close();
}

static bool fails(const struct scene *scene)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        run(scene);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status != 0;
}

int anew_run(uint64_t n, uint64_t from)
{
    int failed = 0;
    for (int dies = 0; dies <= 1 && n == 0; dies++)
        failed += fails(&(struct scene){.seed = 1,
                                        .dies = dies,
                                        .budget = 160,
                                        .pinned = 256,
                                        .mib = 100,
                                        .cap = 20,
                                        .other = 100,
                                        .more = 130,
                                        .unit = 20});
    for (uint64_t seed = from; seed - from < n; seed++) {
        const struct scene scene = draw_scene(seed);
        failed += fails(&scene);
    }
    return failed;
}
