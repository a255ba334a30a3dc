/*
 * The daemon dies, at any moment, and another one comes. Seeds of their own, each in a process of
 * its own, as what the dead had is left as it is.
 *
 * A death is between two steps; before any store of a ledger; or before anything is put at the
 * keeper, dropped or claimed there, also while a daemon adopts. What the fakes know of the dead is
 * then as the system leaves it: handles that nobody else has are gone; of a copy that was under way
 * the memory is garbage, or as it was to be, be that counted or not. What the keeper has stays.
 *
 * Programs go on. Those whose gates are open work, others wait. Each comes back some time after the
 * next daemon has come, or late, or never. One in some says of itself what cannot be: it is
 * refused. In one seed of four some end meanwhile, while there is no daemon, while one adopts, or
 * before they have come back; their process may execute another program. The rest of the simulation
 * checks as always, so no byte may be lost.
 *
 * What daemon/engine/machine.c does of this is done here: clients are made again of the records.
 */
#include "tests/sim/engine/machine.h"
#include "tests/sim/engine/program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/apps.h"
#include "daemon/memory/kept.h"

static struct {
    uint64_t countdown; /* stores and the like until the death; 0: none is to come */
    bool is_inside;     /* where it can */
} death;

void deaths_may_come(const char *where)
{
    if (!machine.has_deaths || !death.is_inside || death.countdown == 0 || --death.countdown > 0)
        return;
    trace("the daemon dies at a store", 0, 0, 0);
    (void)where;
    longjmp(machine.death_point, 1);
}

void deaths_enter(bool is_inside)
{
    death.is_inside = is_inside;
}

/* ---- programs that end meanwhile ---- */

/* It has no daemon: there is none, or it has yet to come back. */
static void on_ghost(void *arg, uint64_t life, uint64_t b)
{
    struct program *p = arg;
    (void)b;
    if (p->life != life || !p->is_there || p->is_dying || machine.is_ending ||
        !(machine.is_down || p->is_lost))
        return;
    trace("program %lu ends without a daemon", p->number, 0, 0);
    machine.sums.ghosts++;
    if (draw_percent(&machine.ghosts, 40))
        program_die(p);
    else
        program_end_process(p, 0, draw_percent(&machine.ghosts, 20));
}

static void draw_ghosts(void)
{
    for (uint32_t i = 1; i <= machine.n_programs && machine.has_ghosts; i++)
        if (draw_percent(&machine.ghosts, 25))
            machine_at(machine.now + draw(&machine.ghosts, 60 * GM_MS), on_ghost,
                       &machine.programs[i], machine.programs[i].life, 0);
}

/* ---- the end ---- */

static void on_come(void *arg, uint64_t a, uint64_t b);

void deaths_died(void)
{
    machine.sums.kills++;
    machine.daemon_life++;
    machine.is_up = false;
    machine.is_down = true;
    death.countdown = 0;
    death.is_inside = false;
    mover_die();
    hasher_die();
    meter_die();
    stores_die();
    uv_fake_die();
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        if (machine.daemon.engines[i])
            machine.daemon.engines[i]->alarm.fd = 0;
    cuda_die();
    kept_survive();
    programs_lose();
    draw_ghosts();
    machine.clock_reads = 0;
    machine_at(machine.now + draw_around(&machine.death, 20 * GM_MS), on_come, NULL, 0, 0);
}

static void on_kill(void *arg, uint64_t a, uint64_t b)
{
    (void)arg;
    (void)a;
    (void)b;
    trace("the daemon is killed", 0, 0, 0);
    longjmp(machine.death_point, 1);
}

void deaths_kill(void)
{
    machine_at(machine.now, on_kill, NULL, 0, 0);
    while (!machine.is_down)
        machine_step(UINT64_MAX);
}

void deaths_soon(void)
{
    if (draw_percent(&machine.death, 30)) {
        trace("the daemon dies", 0, 0, 0);
        longjmp(machine.death_point, 1);
    }
    death.countdown = 1 + draw(&machine.death, draw_percent(&machine.death, 50) ? 20 : 400);
}

static void on_death(void *arg, uint64_t a, uint64_t b)
{
    (void)arg;
    (void)a;
    (void)b;
    if (machine.is_ending)
        return;
    machine_at(machine.now + draw_around(&machine.death, 400 * GM_MS), on_death, NULL, 0, 0);
    if (!machine.is_down)
        deaths_soon();
}

/* ---- another one ---- */

/* The process of that record is there. */
static struct program *find_program(const struct gm_client_record *record)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].is_there && machine.programs[i].pid == (pid_t)record->pid)
            return &machine.programs[i];
    return NULL;
}

static void on_client_ended(void *arg, const struct gm_client *client)
{
    (void)arg;
    for (uint32_t id = machine.daemon.max_apps; id-- > 0;)
        if (machine.daemon.clients[id])
            gm_keep_client(&machine.daemon.keep, machine.daemon.clients[id]);
    gm_keep_end(&machine.daemon.keep, client->id);
}

/* What it has marked is of windows up to this. */
static uint32_t last_window(const struct gm_stat *stat)
{
    const uint32_t works = atomic_load(&stat->works_in), marks = atomic_load(&stat->marks_from),
                   lasts = atomic_load(&stat->lasts_from);
    const uint32_t last = works > marks ? works : marks;
    return last > lasts ? last : lasts;
}

static void make_client(uint32_t id, const struct gm_client_record *record, struct program *p)
{
    struct gm_client *client;
    static struct gm_client_record records[PROGRAMS]; /* of those that are made already */
    const struct gm_client *partner = NULL;
    for (uint32_t other = 0; other < id && !partner; other++)
        if (machine.daemon.clients[other] &&
            gm_clients_are_together(id, record, other, &records[other]))
            partner = machine.daemon.clients[other];
    records[id] = *record;
    const struct gm_client *kin = NULL;
    for (uint32_t other = 0; other < id && !kin; other++)
        if (machine.daemon.clients[other] && gm_clients_are_kin(id, record, other, &records[other]))
            kin = machine.daemon.clients[other];
    struct gm_kept *kept = machine.config.kept;
    uint64_t unused;
    const int stat = gm_kept_claim(kept, GM_KEPT_STAT, 0, id, &unused);
    const bool has_lease = gm_kept_claim(kept, GM_KEPT_LEASE, 0, id, &unused) >= 0;
    const int lease = has_lease ? uv_fake_pidfd((pid_t)record->pid) : -1;
    /* Its process may have said HELLO since, as another program. */
    require(stat >= 0 || p->app != id, "the area of program %u is not kept", p->number);
    require(gm_client_reopen(&client, id, record, stat, lease, kept, machine.now) == 0,
            "no client");
    require(gm_client_await(client, NULL, gm_engine_on_exit, NULL) == 0, "no watch");
    client->is_cut = record->is_gone != 0;
    require(gm_group_restore(&machine.daemon.groups, client, partner, record->group,
                             record->is_group_said && !record->is_gone) == 0,
            "no group");
    if (kin)
        gm_group_restore_kin(client, kin);
    machine.daemon.clients[id] = client;
    atomic_store(&client->ctl->window, last_window(client->stat) + 1);
    gm_client_watch(client, on_client_ended, NULL);
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_table *table = machine.daemon.engines[i]->table;
        /* What was of it may have ended before its record. */
        if ((record->engines >> i & 1) == 0 ||
            ((p->app != id || record->is_gone) && !table->apps[id].is_used))
            continue;
        const int error = gm_engine_await(machine.daemon.engines[i], client, record);
        require(error == 0, "app %u is not in the ledger of GPU %u", id, i);
    }
    gm_keep_lost(&machine.daemon.keep, client, record);
    trace("program %lu is awaited as app %lu", p->number, id, 0);
}

static void make_clients(const void *records, uint32_t max_clients)
{
    struct gm_clients from;
    struct gm_client_record record;
    void *copy = malloc(gm_clients_size(max_clients));
    require(copy, "no memory");
    memcpy(copy, records, gm_clients_size(max_clients));
    const char *wrong = gm_clients_open(&from, copy, gm_clients_size(max_clients), max_clients);
    require(!wrong, "the records are refused: %s", wrong);
    for (uint32_t id = 0; id < max_clients; id++) {
        const enum gm_ledger_outcome is = gm_clients_read(&from, id, &record);
        require(is != GM_LEDGER_BROKEN, "the record of client %u is refused", id);
        struct program *p = is == GM_LEDGER_IS ? find_program(&record) : NULL;
        if (p)
            make_client(id, &record, p);
    }
    free(copy);
}

static void on_come(void *arg, uint64_t a, uint64_t b)
{
    const void *records = machine.daemon.keep.clients.memory;
    (void)arg;
    (void)a;
    (void)b;
    trace("a daemon comes", 0, 0, 0);
    /* The next one may die, too, while it adopts. */
    if (draw_percent(&machine.death, 20) && !machine.is_ending)
        death.countdown = 1 + draw(&machine.death, 600);
    const bool is_faulty = machine.is_faulty;
    machine.is_faulty = false;
    machine.is_coming = true;
    machine.records = machine.records ? machine.records : records;
    scenario_open();
    machine.is_coming = false;
    machine.is_faulty = is_faulty;
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        require(machine.daemon.engines[i]->ledger.generation > 1, "the ledger of GPU %u is refused",
                i);
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        events_adopted(i);
    make_clients(machine.records, machine.daemon.max_apps);
    machine.records = NULL;
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        require(gm_engine_awaited(machine.daemon.engines[i]) == 0, "no memory");
    gm_kept_settle(machine.config.kept);
    machine.is_down = false;
    machine.sums.comings++;
    machine.clock_reads = 0; /* not one event */
    programs_try_again();
}

void deaths_program_ended(const struct program *p)
{
    for (uint32_t id = 0; machine.is_up && id < machine.daemon.max_apps; id++) {
        struct gm_client *client = machine.daemon.clients[id];
        if (!client || client->session || client->pid != p->pid)
            continue;
        machine.daemon.clients[id] = NULL;
        for (uint32_t i = 0; i < machine.n_gpus; i++)
            if (client->engines[i])
                gm_engine_give_up(machine.daemon.engines[i], id, true);
        gm_client_drop(client);
    }
}

void deaths_program_says_hello(const struct program *p)
{
    for (uint32_t id = 0; id < machine.daemon.max_apps; id++) {
        const struct gm_client *client = machine.daemon.clients[id];
        if (client && !client->session && client->pid == p->pid)
            gm_machine_give_up(&machine.daemon, id, false);
    }
    machine.clock_reads = 0; /* HELLO is an event of its own */
}

/* ---- seeds ---- */

void deaths_begin(void)
{
    machine_at(machine.now + draw_around(&machine.death, 300 * GM_MS), on_death, NULL, 0, 0);
}

static bool all_are_back(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if ((machine.programs[i].is_lost || machine.programs[i].is_losing) &&
            !machine.programs[i].is_gone && machine.programs[i].is_there)
            return false;
    return !machine.is_down;
}

void deaths_end(void)
{
    const uint64_t until = machine.now + 30 * GM_S;
    death.countdown = 0;
    while (!all_are_back() && machine_step(until))
        continue;
    require(all_are_back(), "a program is not taken over within 30 s");
}

static uint64_t run_one(uint64_t seed, struct machine *shared)
{
    fflush(NULL);
    const pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        scenario_run_deaths(seed, false);
        memcpy(&shared->sums, &machine.sums, sizeof shared->sums);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status != 0;
}

/* Each found a fault once. */
static const uint64_t rare[] = {44,    66,    1182,   4140,   5054,   10005,  11294,
                                20049, 30128, 170586, 170925, 300676, 300883, 400098};

/* From 0: the rare ones, then those from 1 on. */
int deaths_run(uint64_t n, uint64_t from, bool goes_on)
{
    const uint64_t n_rare = from == 0 ? sizeof rare / sizeof *rare : 0;
    const uint64_t first = from == 0 ? 1 : from;
    struct machine *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t kills = 0, back = 0, comings = 0, hostile = 0, ghosts = 0, failed = 0;
    require(shared != MAP_FAILED, "no memory");
    for (uint64_t i = 0; i < n && (failed == 0 || goes_on); i++) {
        failed += run_one(i < n_rare ? rare[i] : first + i - n_rare, shared);
        kills += shared->sums.kills;
        back += shared->sums.back;
        comings += shared->sums.comings;
        hostile += shared->sums.hostile;
        ghosts += shared->sums.ghosts;
    }
    printf("%lu seeds, %lu fail: %lu daemons killed, %lu came, %lu programs came back, %lu hostile "
           "ones were refused, %lu ended meanwhile\n",
           n, failed, kills, comings, back, hostile, ghosts);
    return failed > 0;
}
