/* Checks of programs that run together (checks.c). */
#include "tests/sim/engine/checks.h"

/* For how long a part of a group may run without the rest where all drain at once. */
#define SPLIT_MOST (300 * GM_MS)

static bool is_member(const struct program *p, uint32_t team)
{
    return p->team == team && p->session && p->is_connected && p->is_joined;
}

/* All of it can run now, or does. */
static bool is_ready(const struct program *p)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_engine *engine = machine.daemon.engines[i];
        const struct gm_app *app = app_of(p, i);
        if (!app || app->state == GM_APP_RUNNING ||
            (app->state == GM_APP_DRAINING && app->gate.closed_at == machine.now))
            continue;
        if (app->state != GM_APP_LOADING || engine->table->apps[p->app].missing > 0)
            return false;
    }
    return true;
}

/* Nobody of a group begins to run alone: a gate that opens after its program was quiet opens when
 * all others are whole. (One that opens because its program does not drain goes on as before.) */
static void check_opening(const struct program *p)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *other = &machine.programs[i];
        require(!is_member(other, p->team) || is_ready(other),
                "program %u begins to run, and program %u of its group cannot", p->number,
                other->number);
    }
}

/* In a calm machine nobody of a group runs without the others for longer than it takes to stop, or
 * to exchange some memory. One that came later counts from its first turn on. */
static void check_together(uint32_t team)
{
    bool has_open = false, has_closed = false;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *p = &machine.programs[i];
        if (!is_member(p, team) || p->turns == p->turns_alone)
            continue;
        const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
        has_open = has_open || is_open;
        has_closed = has_closed || !is_open;
    }
    uint64_t *since = &machine.groups[team].split_at;
    if (!has_open || !has_closed || !machine.is_calm || machine.is_ending)
        *since = 0;
    else if (*since == 0)
        *since = machine.now;
    require(*since == 0 || machine.now - *since <= SPLIT_MOST,
            "a part of team %u runs without the rest for %lu ms", team,
            (uint64_t)((machine.now - *since) / GM_MS));
}

/* Those of a team are of one group, also after a restart, when all are back that come soon and have
 * asked again for what had no answer. */
static void check_united(uint32_t team)
{
    const struct program *first = NULL;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *p = &machine.programs[i];
        if (!is_member(p, team) || machine.now < machine.back_at + GM_S)
            continue;
        first = first ? first : p;
        require(machine.daemon.clients[p->app]->group == machine.daemon.clients[first->app]->group,
                "programs %u and %u of one team are of two groups", first->number, p->number);
    }
}

void check_groups(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        const struct gm_app *app = app_of(p, 0) ? app_of(p, 0) : app_of(p, machine.n_gpus - 1);
        const bool is_open = app && app->client->shut == 0;
        if (is_open && p->was_quiet && !machine.is_saving)
            check_opening(p);
        p->was_quiet = app && app->client->state == GM_CLIENT_QUIET;
    }
    for (uint32_t team = 1; team < TEAMS; team++) {
        check_together(team);
        check_united(team);
    }
}
