#include "daemon/core/timeslice.h"

#include "common/chunk.h"
#include "daemon/core/tunables.h"

bool gm_timeslice_is_critical(enum gm_sched_class class)
{
    return class == GM_CLASS_LATENCY || class == GM_CLASS_INTERACTIVE;
}

/* Who is latency-critical by its class; or if nobody is, by what the scheduler found out. */
static void find_critical(struct gm_timeslice_app *apps, uint32_t n)
{
    bool is_any = false;
    uint32_t worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        apps[i].is_critical = gm_timeslice_is_critical(apps[i].class);
        is_any = is_any || apps[i].is_critical;
        if (apps[i].level > worst && !apps[i].is_idle)
            worst = apps[i].level;
    }
    for (uint32_t i = 0; i < n && !is_any; i++)
        apps[i].is_critical = apps[i].class == GM_CLASS_AUTO && apps[i].level < worst &&
                              apps[i].idle_ns > apps[i].run_ns && !apps[i].is_idle;
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
        else if (!is_mixed || apps[i].is_critical)
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
