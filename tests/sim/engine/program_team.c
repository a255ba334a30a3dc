/* With whom a program runs. */
#include "tests/sim/engine/program.h"

bool program_has_team(const struct program *p)
{
    if (p->group > 0)
        return true;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (&machine.programs[i] != p && machine.programs[i].team == p->team)
            return true;
    return false;
}

/* Also who has yet to come back. */
static bool is_on(const struct program *p, uint32_t gpu)
{
    if (p->session)
        return app_of(p, gpu) != NULL;
    const struct gm_client *client = p->is_lost ? machine.daemon.clients[p->app] : NULL;
    return client && client->pid == p->pid && client->engines[gpu];
}

static uint32_t gpus_of_team(uint32_t team, bool *has_name)
{
    uint32_t gpus = 0;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *p = &machine.programs[i];
        for (uint32_t gpu = 0; gpu < machine.n_gpus && p->team == team; gpu++)
            gpus |= is_on(p, gpu) ? 1u << gpu : 0;
    }
    *has_name = team <= GROUPS;
    return gpus;
}

/* Whom it leaves behind they are with one of themselves. */
void program_leave_team(struct program *p)
{
    uint32_t team = 0;
    p->team = 0;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *other = &machine.programs[i];
        if (other == p || other->team != GROUPS + p->number)
            continue;
        team = team > 0 ? team : GROUPS + i;
        other->team = team;
    }
    if (team > 0)
        machine.groups[team] = machine.groups[GROUPS + p->number];
}

void program_begin_team(struct program *p)
{
    p->team = p->group > 0 ? p->group : GROUPS + p->number;
    if (p->group == 0)
        machine.groups[p->team].is_tied = false;
}

/* With one whose memory it has open, of the same user, on several GPUs, if not each of them said
 * with whom it runs. */
void program_unite(const struct program *p, const struct program *owner)
{
    const uint32_t team = p->team < owner->team ? p->team : owner->team;
    const uint32_t other = p->team < owner->team ? owner->team : p->team;
    bool is_named, is_other_named;
    const uint32_t gpus = gpus_of_team(team, &is_named) | gpus_of_team(other, &is_other_named);
    require(p->uid == owner->uid, "programs %u and %u of two users are to run together", p->number,
            owner->number);
    if (team == other && machine.groups[team].united_in != machine.daemon_life)
        return; /* a daemon before died and had not told that */
    require(team != other && !(is_named && is_other_named),
            "programs %u and %u are of the groups %u and %u, and are to be of one", p->number,
            owner->number, p->group, owner->group);
    require((gpus & (gpus - 1)) != 0, "programs %u and %u use one GPU, and are to run together",
            p->number, owner->number);
    machine.groups[team].is_tied = machine.groups[team].is_tied || machine.groups[other].is_tied ||
                                   draw_percent(&machine.odd, 60);
    machine.groups[team].split_at = 0;
    machine.groups[team].united_in = machine.daemon_life;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].team == team || machine.programs[i].team == other) {
            machine.programs[i].team = team;
            machine.programs[i].turns_alone = machine.programs[i].turns;
        }
    machine.sums.unions++;
}
