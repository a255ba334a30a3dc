/*
 * Two programs share memory on one GPU, so each has its turns alone, and the daemon dies. When one
 * of them comes to another GPU, under the next daemon, they must run together. So must two on two
 * GPUs of which one says that it imported memory of the other, while that has yet to come back; and
 * two of which one said so on one GPU to the daemon before.
 */
#include "tests/sim/engine/machine.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 24 };

/* The second one comes to GPU 1 when its `gpus` say so. */
static struct program *start(uint32_t number)
{
    struct program *p = &machine.programs[number];
    program_start(p, false);
    p->uid = 1000;
    p->is_steady = true;
    p->work = UINT64_MAX;
    p->may_share = p->may_spare = false;
    p->wishes = (struct gm_wishes){.class = 0};
    p->gpus = 1;
    p->most_pages[0] = p->most_pages[1] = PAGES;
    return p;
}

static bool are_one(const struct program *a, const struct program *b)
{
    return machine.daemon.clients[a->app]->group == machine.daemon.clients[b->app]->group;
}

static void begin(void)
{
    const struct gm_engine_config config = {.budget = 128 * GM_MIB,
                                            .pinned = 512 * GM_MIB,
                                            .kept = kept_begin(),
                                            .slice_ns = 100 * GM_MS,
                                            .patience_ns = 60 * GM_S};
    scenario_begin_jobs(&config, 1, 2, 2);
    machine.unit = 8;
    machine.has_sharing = machine.has_deaths = true;
}

static void end(struct program *one, struct program *other)
{
    machine.is_ending = true;
    program_leave(one);
    program_leave(other);
    while (machine_step(300 * GM_S))
        continue;
    checks_nothing_left();
    scenario_close();
}

static void run_shares(bool is_owner)
{
    begin();
    struct program *owner = start(1), *opener = start(2);
    while (!program_has_all(owner) || !program_has_all(opener) || !program_meet(owner, opener))
        require(machine_step(30 * GM_S), "they do not share memory");
    deaths_kill();
    while (machine.is_down || owner->is_losing || opener->is_losing || owner->is_lost ||
           opener->is_lost)
        require(machine_step(60 * GM_S), "they do not come back");
    require(!are_one(owner, opener), "they run together on one GPU");

    struct program *comer = is_owner ? owner : opener;
    comer->gpus |= 2;
    while (!program_has_all(comer) || comer->unanswered > 0)
        require(machine_step(90 * GM_S), "program %u does not come to GPU 1", comer->number);
    require(are_one(owner, opener), "they share memory on two GPUs, and each runs alone");
    end(owner, opener);
}

static void run_imports(void)
{
    begin();
    struct program *one = start(1), *other = start(2);
    other->gpus = 2;
    while (!program_has_all(one) || !program_has_all(other))
        require(machine_step(30 * GM_S), "they do not get their memory");
    atomic_store(&one->stat->exports, 1);
    atomic_store(&other->stat->exports, 1);
    deaths_kill();
    while (machine.is_down || one->is_losing || other->is_losing ||
           (one->is_lost && other->is_lost))
        require(machine_step(60 * GM_S), "none of them comes back");
    const struct program *back = one->is_lost ? other : one, *lost = one->is_lost ? one : other;
    require(lost->is_lost, "both are back at once");
    gm_machine_imported(&machine.daemon, back->app, lost->pid);
    while (lost->is_lost)
        require(machine_step(60 * GM_S), "program %u does not come back", lost->number);
    require(are_one(one, other), "one has memory of the other, and each runs alone");
    end(one, other);
}

/* They say it while both use one GPU, and the daemon dies. */
static void run_imports_before(bool is_exporter)
{
    begin();
    struct program *one = start(1), *other = start(2);
    while (!program_has_all(one) || !program_has_all(other))
        require(machine_step(30 * GM_S), "they do not get their memory");
    atomic_store(&one->stat->exports, 1);
    gm_machine_imported(&machine.daemon, other->app, one->pid);
    deaths_kill();
    while (machine.is_down || one->is_losing || other->is_losing || one->is_lost || other->is_lost)
        require(machine_step(60 * GM_S), "they do not come back");
    require(!are_one(one, other), "they run together on one GPU");
    struct program *comer = is_exporter ? one : other;
    comer->gpus |= 2;
    while (!program_has_all(comer) || comer->unanswered > 0)
        require(machine_step(90 * GM_S), "program %u does not come to GPU 1", comer->number);
    require(are_one(one, other), "one has memory of the other, and each runs alone");
    end(one, other);
}

int kin_run(void)
{
    int failed = 0;
    for (int scene = 0; scene < 5; scene++) {
        int status = 0;
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            if (scene < 2)
                run_shares(scene == 0);
            else if (scene == 2)
                run_imports();
            else
                run_imports_before(scene == 3);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    return failed;
}
