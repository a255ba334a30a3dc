#include "daemon/core/timeslice.h"

#include "common/chunk.h"
#include "daemon/core/tunables.h"

/* Who has worked for longer without a rest answers no request: beside it one that is mostly
 * idle is found to be interactive at once. By levels alone that took 8 s of work, four answers
 * of a chat beside training. */
#define GM_TIMESLICE_ANSWER_NS (500 * GM_MS)

#define WHOLE ((uint64_t)1 << 30) /* the part of a user of weight 1 */

bool gm_timeslice_is_critical(enum gm_sched_class class)
{
    return class == GM_CLASS_LATENCY || class == GM_CLASS_INTERACTIVE;
}

/* It works on more than an answer. */
static bool is_long(const struct gm_timeslice_app *app)
{
    return app->burst_ns > GM_TIMESLICE_ANSWER_NS;
}

/* Who is latency-critical by its class; or if nobody is, by what the scheduler found out. */
static void find_critical(struct gm_timeslice_app *apps, uint32_t n)
{
    bool is_any = false, has_long = false;
    uint32_t worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        apps[i].is_critical = gm_timeslice_is_critical(apps[i].class);
        is_any = is_any || apps[i].is_critical;
        if (apps[i].level > worst && !apps[i].is_idle)
            worst = apps[i].level;
        has_long = has_long || (is_long(&apps[i]) && !apps[i].is_idle);
    }
    for (uint32_t i = 0; i < n && !is_any; i++)
        apps[i].is_critical = apps[i].class == GM_CLASS_AUTO && apps[i].idle_ns > apps[i].run_ns &&
                              !apps[i].is_idle &&
                              (apps[i].level < worst || (has_long && !is_long(&apps[i])));
}

/* Whether the GPU comes to app `k` in its round, or to those that it is joined with. */
static bool is_in_round(const struct gm_timeslice_app *apps, uint32_t k)
{
    for (uint32_t i = 0; i < k && apps[k].is_joined; i++)
        if (apps[i].is_joined && apps[i].user == apps[k].user && !apps[i].rests)
            return false;
    return !apps[k].rests;
}

/* Fill `part` of all. Returns how many are in the round. */
static uint32_t divide(struct gm_timeslice_app *apps, uint32_t n)
{
    uint32_t n_round = 0;
    for (uint32_t i = 0; i < n; i++)
        apps[i].part = is_in_round(apps, i);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t weights = 0, heaviest = 0;
        if (apps[i].part == 0)
            continue;
        for (uint32_t k = 0; k < n; k++) {
            if (apps[k].user != apps[i].user || apps[k].part == 0)
                continue;
            weights += apps[k].weight;
            heaviest = apps[k].weight > heaviest ? apps[k].weight : heaviest;
        }
        apps[i].part = WHOLE * heaviest * apps[i].weight / weights / GM_SCHED_WEIGHT;
        n_round++;
    }
    return n_round;
}

/* Who has least keeps the driver's timeslice, if the round does not become too long by that. Who
 * can have no other one is what the others are measured by. */
void gm_timeslice_share(struct gm_timeslice_app *apps, uint32_t n)
{
    uint64_t least = UINT64_MAX, fixed = UINT64_MAX, most = 0, sum = 0;
    const uint64_t n_round = divide(apps, n);
    const uint64_t plain_us = n_round * GM_TIMESLICE_DRIVER_US;
    const uint64_t round_us = plain_us > GM_TIMESLICE_ROUND_US ? plain_us : GM_TIMESLICE_ROUND_US;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t part = apps[i].part;
        if (part == 0)
            continue;
        sum += part;
        most = part > most ? part : most;
        least = part < least ? part : least;
        fixed = apps[i].is_fixed && part < fixed ? part : fixed;
    }
    uint64_t us = GM_TIMESLICE_DRIVER_US, of = fixed != UINT64_MAX ? fixed : least;
    if (fixed == UINT64_MAX && us * sum > round_us * least) {
        us = round_us;
        of = sum;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (apps[i].part == 0 || n_round < 2) {
            apps[i].part_us = apps[i].is_spread ? 0 : apps[i].part_us;
            continue;
        }
        const uint64_t its = us * apps[i].part / of;
        apps[i].part_us = least == most                 ? 0
                          : its < GM_TIMESLICE_LEAST_US ? GM_TIMESLICE_LEAST_US
                          : its > round_us              ? round_us
                                                        : its;
    }
}

bool gm_timeslice_assign(struct gm_timeslice_app *apps, uint32_t n)
{
    uint32_t n_others = 0;
    bool can_be_held = true;
    find_critical(apps, n);
    for (uint32_t i = 0; i < n; i++) {
        n_others += !apps[i].is_critical;
        can_be_held = can_be_held && (apps[i].is_critical || apps[i].can_be_held);
    }
    const bool is_mixed = n_others > 0 && n_others < n;
    for (uint32_t i = 0; i < n; i++) {
        if (is_mixed && gm_timeslice_is_critical(apps[i].class))
            apps[i].us = GM_TIMESLICE_CRITICAL_US;
        else if (!is_mixed)
            apps[i].us = apps[i].part_us;
        else if (apps[i].is_critical)
            apps[i].us = 0;
        else
            apps[i].us =
                n_others == 1 || can_be_held ? GM_TIMESLICE_OTHER_US : GM_TIMESLICE_SHARED_US;
    }
    return is_mixed && n_others > 1 && can_be_held;
}

static bool has_work(const struct gm_timeslice_app *app)
{
    return !app->is_idle && !app->is_critical;
}

/* When the user's last turn began. `app` itself had one at `now` if it is `whose`. */
static uint64_t last_turn(const struct gm_timeslice_app *apps, uint32_t n, uint32_t user,
                          uint32_t whose, uint64_t now)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = apps[i].id == whose ? now : apps[i].turn_at;
        if (apps[i].user == user && !apps[i].is_critical && at > last)
            last = at;
    }
    return last;
}

/* The best-effort program with work that has the turn after that of `whose`: of the user whose last
 * turn is longest ago, the one that waits longest. GM_NONE: nobody else has work. */
static uint32_t next_after(const struct gm_timeslice_app *apps, uint32_t n, uint32_t whose,
                           uint64_t now)
{
    const struct gm_timeslice_app *first = NULL;
    uint64_t first_at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct gm_timeslice_app *app = &apps[i];
        if (!has_work(app) || app->id == whose)
            continue;
        const uint64_t at = last_turn(apps, n, app->user, whose, now);
        if (first == NULL || at < first_at || (at == first_at && app->turn_at < first->turn_at)) {
            first = app;
            first_at = at;
        }
    }
    return first != NULL ? first->id : GM_NONE;
}

bool gm_turns_step(struct gm_turns *turns, struct gm_timeslice_app *apps, uint32_t n, uint64_t now)
{
    bool goes_on = false;
    for (uint32_t i = 0; i < n; i++) {
        apps[i].is_told = false;
        goes_on =
            goes_on || (now < turns->until && apps[i].id == turns->whose && has_work(&apps[i]));
    }
    if (turns->are_on && goes_on)
        return false;
    const uint32_t whose = turns->are_on ? next_after(apps, n, turns->whose, now) : GM_NONE;
    const uint32_t next = whose != GM_NONE ? next_after(apps, n, whose, now) : GM_NONE;
    const bool begins = next != GM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        struct gm_timeslice_app *app = &apps[i];
        const bool is_held = begins && app->id != whose && has_work(app);
        app->hold_ns = !is_held ? 0 : app->id == next ? GM_TURN_NS : 2 * GM_TURN_NS;
        app->is_told = is_held || app->held_until > now;
        if (app->is_told && (!is_held || now + app->hold_ns > app->held_until))
            app->held_until = now + app->hold_ns;
    }
    if (begins)
        turns->whose = whose;
    turns->until = begins ? now + GM_TURN_NS : 0;
    return begins;
}
