/*
 * Jobs on two to four GPUs: `sim_engine --jobs N [FROM]`. A job is one program on one GPU or
 * several, or several programs with a GPU each, which share memory and then wait for each other on
 * the GPU, as the ranks of NCCL do. Some share memory while both use one GPU, and then one of them
 * comes to another GPU. Nobody says who belongs together. On most GPUs no two jobs fit.
 * They arrive, are killed and are paused at random, and each works without a rest.
 *
 * What must hold beside checks.c: a job that has all its memory, and that nobody has paused, gets a
 * turn of all its programs at once within STARVED_MOST, whoever else is there. So no two of them
 * wait for each other in a circle, and none starves. The machine is calm: nothing fails.
 */
#include "tests/sim/engine/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/settings.h"
#include "daemon/engine/state/groups.h"

enum { JOBS = 5, USER = 1000 };

#define BUDGET (128 * GM_MIB)
#define PATIENCE (60 * GM_S)
#define RUN_FOR (20 * GM_S)
/* Less than --patience, so that no wait ends only as somebody waited for too long. */
#define STARVED_MOST (8 * GM_S)

static struct job {
    uint32_t first, n;     /* its programs; 0: it is not there */
    bool has_shared;       /* they share memory, ... */
    bool has_met;          /* ... and use all their GPUs */
    uint32_t later;        /* a GPU that the second one comes to when they share; 0: none */
    uint64_t paused_until; /* by its user; 0: it is not */
    uint64_t since;        /* since when it could run, and did not */
} jobs[JOBS];

static struct {
    uint64_t started, killed, pauses, turns, longest;
} sums;

static struct program *program_of(const struct job *job, uint32_t i)
{
    return &machine.programs[job->first + i];
}

/* Between turns a job has none of its programs at work, or all of them. */
static bool runs(const struct job *job)
{
    for (uint32_t i = 0; i < job->n; i++)
        if (!program_of(job, i)->is_joined || !program_of(job, i)->ctl ||
            atomic_load(&program_of(job, i)->ctl->gate) != GM_GATE_OPEN)
            return false;
    return true;
}

/* The daemon is there, and has been for a moment, and so are the programs. */
static bool is_there(const struct job *job)
{
    for (uint32_t i = 0; i < job->n; i++)
        if (!program_of(job, i)->session || !program_of(job, i)->is_connected)
            return false;
    return machine.is_up && (machine.back_at == 0 || machine.now >= machine.back_at + GM_S);
}

/* Nothing but its turn is lacking. */
static bool is_ready(const struct job *job)
{
    if (!job->has_met || job->paused_until > 0 || !is_there(job))
        return false;
    for (uint32_t i = 0; i < job->n; i++)
        if (!program_has_all(program_of(job, i)))
            return false;
    return true;
}

/* Two programs of one GPU, which have room there together; the second one comes to another later.
 */
static void begin_on_one(struct job *job)
{
    const uint32_t gpu = 0, few = (BUDGET >> GM_CHUNK_SHIFT) / 4;
    job->later = 1 + (uint32_t)chance_below(machine.n_gpus - 1);
    for (uint32_t i = 0; i < 2; i++) {
        program_of(job, i)->gpus = 1u << gpu;
        program_of(job, i)->most_pages[gpu] = 2 + (uint32_t)chance_below(few);
    }
    program_of(job, 1)->most_pages[job->later] = 2 + (uint32_t)chance_below(few);
}

/* It works without a rest, on GPUs and in memory that are said next. */
static void start_program(struct program *p)
{
    program_start(p, false);
    p->is_steady = true;
    p->work = UINT64_MAX;
    p->uid = USER;
    p->group = 0;
    p->may_park = p->may_share = p->may_spare = false;
    p->is_partial = p->is_copying = false;
    p->wishes = (struct gm_wishes){.class = 1 + GM_CLASS_BATCH}; /* turns of four slices */
    p->gpus = 0;
}

static void start(struct job *job)
{
    const uint32_t at = (uint32_t)(job - jobs);
    const bool is_one = chance_percent(40);
    const uint32_t gpus = 1 + (uint32_t)chance_below(machine.n_gpus);
    /* Its number of programs is bounded by their places: two of each job. */
    *job = (struct job){.first = 1 + 2 * at, .n = is_one || gpus == 1 ? 1 : 2};
    uint32_t left = (1u << machine.n_gpus) - 1;
    for (uint32_t i = 0; i < job->n; i++) {
        struct program *p = program_of(job, i);
        start_program(p);
        for (uint32_t k = 0; k < (job->n == 1 ? gpus : gpus / 2); k++) {
            uint32_t gpu = (uint32_t)chance_below(machine.n_gpus);
            while (!(left >> gpu & 1))
                gpu = (gpu + 1) % machine.n_gpus;
            left &= ~(1u << gpu);
            p->gpus |= 1u << gpu;
            /* Most of a GPU, now and then a small part. */
            const uint32_t budget = BUDGET >> GM_CHUNK_SHIFT;
            p->most_pages[gpu] = chance_percent(80)
                                     ? budget / 2 + 2 + (uint32_t)chance_below(budget / 4)
                                     : 2 + (uint32_t)chance_below(budget / 4);
        }
    }
    if (job->n == 2 && chance_percent(30))
        begin_on_one(job);
    sums.started++;
}

static void kill_job(struct job *job)
{
    for (uint32_t i = 0; i < job->n; i++)
        if (program_of(job, i)->is_there)
            program_die(program_of(job, i));
    sums.killed++;
    job->n = 0;
}

static bool is_gone(const struct job *job)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct program *p = &machine.programs[1 + 2 * (job - jobs) + i];
        if (p->is_there || p->session)
            return false;
    }
    return true;
}

/* As mux-ctl pause, evict and resume of one of its programs. */
static void set_paused(struct job *job, enum gm_set_paused as)
{
    struct gm_set_request request = {.selects = GM_SET_PID,
                                     .pid = program_of(job, 0)->pid,
                                     .settings = {.has = GM_SET_PAUSED},
                                     .is_admin = true};
    gm_settings_set_paused(&request.settings, as);
    struct gm_set_done done;
    char why[256] = "";
    require(gm_machine_set(&machine.daemon, &request, &done, why, sizeof why) == 0,
            "a job cannot be %s: %s", as ? "paused" : "resumed", why);
    machine.clock_reads = 0; /* each of them is an event of its own */
}

/* Its programs have their memory: each opens some of the other. */
static void meet(struct job *job)
{
    if (job->has_met || job->paused_until > 0 || (machine.has_deaths && !is_there(job)))
        return;
    for (uint32_t i = 0; i < job->n; i++)
        if (!program_has_all(program_of(job, i)))
            return;
    if (job->n < 2 || job->has_shared) {
        job->has_met = true;
        return;
    }
    job->has_shared = program_meet(program_of(job, 0), program_of(job, 1));
    if (job->has_shared && job->later > 0)
        program_of(job, 1)->gpus |= 1u << job->later;
    else
        job->has_met = job->has_shared;
}

static void on_happening(void *arg, uint64_t a, uint64_t b)
{
    struct job *job = &jobs[chance_below(JOBS)];
    (void)arg;
    (void)a;
    (void)b;
    if (machine.is_ending)
        return;
    machine_at(machine.now + chance_time(60 * GM_MS), on_happening, NULL, 0, 0);
    if (machine.is_down)
        return;
    for (uint32_t i = 0; i < job->n; i++)
        if (!program_of(job, i)->is_there || program_of(job, i)->is_dying) { /* it was refused */
            kill_job(job);
            return;
        }
    if (job->n == 0 && is_gone(job))
        start(job);
    else if (job->n > 0 && job->paused_until == 0 && chance_percent(3))
        kill_job(job);
    else if (job->n > 0 && job->paused_until == 0 && job->has_met && chance_percent(10) &&
             is_there(job)) {
        /* One that is evicted until its next call goes on by itself: it has work. */
        const uint64_t for_ns = chance_below(3 * GM_S);
        const enum gm_set_paused as = GM_PAUSED_YES + (unsigned)(for_ns % 3);
        set_paused(job, as);
        job->paused_until = as == GM_PAUSED_IDLE ? 0 : machine.now + for_ns;
        sums.pauses++;
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        if (jobs[i].n > 0 && jobs[i].paused_until > 0 && machine.now >= jobs[i].paused_until &&
            is_there(&jobs[i])) {
            set_paused(&jobs[i], GM_PAUSED_NO);
            jobs[i].paused_until = 0;
        }
        if (jobs[i].n > 0)
            meet(&jobs[i]);
    }
}

/* The daemon dies from time to time, and then no more, so that waits have bounds. */
static void on_death(void *arg, uint64_t a, uint64_t b)
{
    (void)arg;
    (void)a;
    (void)b;
    if (machine.now > RUN_FOR / 2)
        return;
    machine_at(machine.now + draw_around(&machine.death, 2 * GM_S), on_death, NULL, 0, 0);
    if (!machine.is_down)
        deaths_soon();
}

/* Programs of a job that has met run together, as far as they use several GPUs. */
static void check_job(struct job *job)
{
    const bool has_turn = job->n > 0 && runs(job);
    const uint64_t since = job->since;
    if (job->n == 0 || has_turn || !is_ready(job))
        job->since = 0;
    else if (job->since == 0)
        job->since = machine.now;
    if (has_turn && since > 0) {
        const uint64_t waited = machine.now - since;
        sums.turns++;
        sums.longest = waited > sums.longest ? waited : sums.longest;
    }
    require(job->since == 0 || machine.now - job->since <= STARVED_MOST,
            "job %u (programs %u to %u) waits for its turn for %lu ms", (uint32_t)(job - jobs),
            job->first, job->first + job->n - 1, (uint64_t)((machine.now - job->since) / GM_MS));
    if (job->n < 2 || !job->has_met || !is_there(job))
        return;
    const struct gm_client *one = machine.daemon.clients[program_of(job, 0)->app];
    const struct gm_client *other = machine.daemon.clients[program_of(job, 1)->app];
    require(!one || !other || !program_of(job, 0)->session || !program_of(job, 1)->session ||
                one->group == other->group,
            "programs %u and %u share memory, and are of two groups", job->first, job->first + 1);
}

/* Everybody is killed, and nothing is left of them. */
static void end(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].is_there)
            program_die(&machine.programs[i]);
    while (machine_step(machine.now + 10 * GM_S))
        continue;
    checks_nothing_left();
    scenario_close();
}

static void run_seed(uint64_t seed, bool dies)
{
    const struct gm_engine_config config = {.budget = BUDGET,
                                            .pinned = 2 * GM_GIB, /* room for shadows, too */
                                            .kept = dies ? kept_begin() : NULL,
                                            .slice_ns = 25 * GM_MS,
                                            .patience_ns = PATIENCE};
    for (uint32_t i = 0; i < JOBS; i++)
        jobs[i] = (struct job){.n = 0};
    scenario_begin_jobs(&config, seed, 2 + (uint32_t)(seed % (GPUS - 1)), 2 * JOBS);
    machine.unit = 16;
    machine.has_sharing = true;
    machine.has_deaths = dies;
    machine.is_calm = !dies;
    machine_at(machine.now, on_happening, NULL, 0, 0);
    if (dies)
        machine_at(machine.now + GM_S, on_death, NULL, 0, 0);
    while (machine_step(RUN_FOR))
        for (uint32_t i = 0; i < JOBS; i++)
            check_job(&jobs[i]);
    machine.is_ending = true;
    if (dies)
        deaths_end();
    end();
}

/* Until it is so, in ten seconds at most. */
static void await_state(const struct program *p, uint32_t gpu, enum gm_app_state state)
{
    const uint64_t until = machine.now + 10 * GM_S;
    while (app_of(p, gpu)->state != state)
        require(machine_step(until), "program %u is not %s in time, but %s", p->number,
                gm_model_state_text(GM_MODEL_APP, state),
                gm_model_state_text(GM_MODEL_APP, app_of(p, gpu)->state));
}

/* One program of the job loses its turn on its GPU before it runs: a signal came to another one
 * there. Then the job waits again on all its GPUs, and others have them. */
static void lose_turn(const struct program *first, const struct program *second,
                      struct program *other)
{
    await_state(other, 0, GM_APP_RUNNING);
    await_state(first, 0, GM_APP_LOADING);
    await_state(second, 1, GM_APP_LOADING);
    await_state(other, 0, GM_APP_PAUSED);
    program_hurry(other);
    await_state(first, 0, GM_APP_PAUSED);
    machine_run(20 * GM_MS);
    require(app_of(second, 1)->state == GM_APP_PAUSED,
            "a part of a job keeps its turn, and the other one has none");
    await_state(first, 0, GM_APP_RUNNING);
}

/*
 * The link is so slow that the memory of a job takes longer than its programs may stand still with
 * their turns. On each GPU it takes turns with another program, and most of its memory leaves for
 * that one.
 */
static void run_slowly(void)
{
    enum { PAGES = (BUDGET >> GM_CHUNK_SHIFT) - 4, TURNS = 3 };
    struct job *job = &jobs[0];
    const struct gm_engine_config config = {
        .budget = BUDGET, .pinned = 2 * GM_GIB, .slice_ns = 25 * GM_MS, .patience_ns = PATIENCE};
    scenario_begin_jobs(&config, 1, 2, 4);
    machine.unit = 3;
    machine.has_sharing = true;
    machine.page_ns = 20 * GM_MS;
    *job = (struct job){.first = 1, .n = 2};
    for (uint32_t i = 0; i < 4; i++) {
        struct program *p = &machine.programs[1 + i];
        start_program(p);
        p->gpus = 1u << i % 2;
        p->most_pages[i % 2] = PAGES;
    }
    while (machine_step(12 * GM_S)) {
        meet(job);
        check_job(job);
    }
    require(sums.turns >= TURNS, "by a slow link a job has %lu turns", sums.turns);
    printf("by a slow link: %" PRIu64 " turns; the longest wait was %" PRIu64 " ms\n", sums.turns,
           (uint64_t)(sums.longest / GM_MS));
    lose_turn(program_of(job, 0), program_of(job, 1), &machine.programs[3]);
    machine.is_ending = true;
    end();
    sums.turns = sums.longest = 0;
    *job = (struct job){.n = 0};
}

void jobs_run(uint64_t n, uint64_t from)
{
    run_slowly();
    for (uint64_t seed = from; seed - from < n; seed++)
        run_seed(seed, false);
    printf("%" PRIu64 " seeds of jobs: %" PRIu64 " started, %" PRIu64 " killed, %" PRIu64
           " pauses, %" PRIu64 " groups found, %" PRIu64 " turns; the longest wait was %" PRIu64
           " ms\n",
           n, sums.started, sums.killed, sums.pauses, machine.sums.unions, sums.turns,
           (uint64_t)(sums.longest / GM_MS));
    require(machine.sums.unions > n, "hardly anybody shares memory");
}

uint64_t jobs_run_deaths(uint64_t n, uint64_t from)
{
    uint64_t failed = 0;
    for (uint64_t seed = from; seed - from < n; seed++) {
        int status = 0;
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            run_seed(seed, true);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    printf("%" PRIu64 " seeds of jobs beside daemons that die, %" PRIu64 " fail\n", n, failed);
    return failed;
}
