/*
 * What the scheduler tells of an app: its account, the reason why it runs or waits, when it is
 * expected, and what can be promised. Changes nothing.
 */
#include "daemon/core/sched_account.h"

#include "daemon/core/sched_levels.h"

/* An app that is overdue by more is not expected at any moment any more. Usual gaps. */
#define GM_SCHED_OVERDUE 8

#define NIL GM_SCHED_NIL

static enum gm_why why_chosen(const struct gm_sched *s, const struct gm_sched_app *a)
{
    if (gm_sched_is_held(s, a) && (gm_sched_is_too_large(s, a) || !gm_sched_is_eligible(a) ||
                                   (a->place != GM_TURN && s->overdue != NIL)))
        return GM_WHY_NOT_DRAINED;
    if ((!s->is_tight && s->decision.n_next == 0) || !a->is_wanting)
        return GM_WHY_FITS;
    if (a->is_boosted)
        return a->is_hurried ? GM_WHY_HURRIED : GM_WHY_BOOSTED;
    if (gm_sched_is_rested(a->rank))
        return GM_WHY_RESTED;
    return s->ranks[a->rank].has_left || s->decision.n_next == 0 ? GM_WHY_SLICE : GM_WHY_FIRST;
}

static enum gm_why why_not(const struct gm_sched *s, const struct gm_sched_app *a, uint32_t *ahead)
{
    if (!a->is_wanting && !(a->policy.is_paused && a->is_open))
        return GM_WHY_IDLE;
    if (a->policy.is_paused)
        return GM_WHY_PAUSED;
    if (a->is_spent)
        return GM_WHY_SHARE;
    if (gm_sched_is_too_large(s, a))
        return GM_WHY_ROOM;
    if (a->is_stuck) { /* asked again for others */
        *ahead = s->decision.n_next > 0 ? s->next[0] : NIL;
        return GM_WHY_TURN;
    }
    *ahead = a->ahead;
    if (a->why == GM_WHY_TURN && s->overdue != NIL)
        *ahead = s->overdue;
    return (enum gm_why)a->why;
}

bool gm_sched_account(const struct gm_sched *sched, uint64_t now, uint32_t app,
                      struct gm_sched_account *account)
{
    if (app >= sched->config.max_apps || !sched->apps[app].is_known)
        return false;
    const struct gm_sched_app *a = &sched->apps[app];
    struct gm_sched_app later = *a;
    uint64_t more = gm_less(now, a->charged_at);
    bool is_waiting = a->is_wanting && !a->is_open;
    if (!a->is_wanting) {
        later.idle_ns += more;
        later.level_idle += more;
        while (gm_sched_rise(sched, &later, now))
            continue;
    } else if (a->is_open) {
        later.run_ns += more;
        later.level_run += more;
        while (gm_sched_drop(sched, &later, now))
            continue;
    } else {
        later.wait_ns += more;
    }
    *account = (struct gm_sched_account){
        .policy = a->policy,
        .level = a->policy.class == GM_CLASS_LATENCY ? 0 : later.level,
        .charged_ns = later.level_run,
        .allotment_ns = gm_sched_allotment(sched, &later),
        .run_ns = later.run_ns,
        .wait_ns = later.wait_ns,
        .idle_ns = later.idle_ns,
        .slice_at = a->is_open && a->is_chosen ? a->slice_at : 0,
        .waiting_at = is_waiting ? a->waiting_at : 0,
        .rested_ns = a->rested_ns,
        .burst_ns = gm_sched_burst(&later),
        .has_lead = gm_sched_has_lead(a),
        .is_yielding = gm_sched_is_yielding(sched, a),
        .bytes = a->bytes,
        .ahead = NIL,
    };
    account->reason = a->is_chosen ? why_chosen(sched, a) : why_not(sched, a, &account->ahead);
    if (account->ahead == app)
        account->ahead = NIL;
    return true;
}

bool gm_sched_is_ready(const struct gm_sched *sched, uint32_t app)
{
    if (app >= sched->config.max_apps)
        return false;
    const struct gm_sched_app *a = &sched->apps[app];
    return a->is_tied && !a->is_open && a->place == GM_QUEUE && a->is_ready;
}

uint64_t gm_sched_expect(const struct gm_sched *sched, uint64_t now, uint32_t app)
{
    if (app >= sched->config.max_apps || !sched->apps[app].is_known)
        return GM_TIME_NEVER;
    const struct gm_sched_app *a = &sched->apps[app];
    if (gm_sched_is_left_out(sched, a))
        return gm_sum_or_never(sched->now, a->slice_in);
    if (a->is_wanting)
        return gm_sched_is_eligible(a) ? now : GM_TIME_NEVER;
    if (a->period_ns == 0)
        return GM_TIME_NEVER;
    uint64_t at = gm_sum_or_never(a->wanted_at, a->period_ns);
    if (at >= now || (now - at) / GM_SCHED_OVERDUE < a->period_ns)
        return at;
    return gm_sum_or_never(now, now - at);
}

bool gm_sched_is_later(const struct gm_sched *sched, uint64_t now, uint32_t a, uint32_t b)
{
    uint64_t at_a = gm_sched_expect(sched, now, a), at_b = gm_sched_expect(sched, now, b);
    if (at_a != at_b)
        return at_a > at_b;
    at_a = sched->apps[a].wanted_at;
    at_b = sched->apps[b].wanted_at;
    return at_a != at_b ? at_a < at_b : a < b;
}

static uint64_t times_or_never(uint64_t a, uint64_t n)
{
    return n && a > GM_TIME_NEVER / n ? GM_TIME_NEVER : a * n;
}

uint64_t gm_sched_bound(const struct gm_sched_config *config, uint32_t n, uint32_t users,
                        uint64_t drain_ns, uint64_t load_ns)
{
    uint64_t longest = config->slice_ns << (config->levels - 1);
    uint64_t weighted = config->slice_ns / 4 * GM_SCHED_WEIGHT_MAX / GM_SCHED_WEIGHT_MIN;
    uint64_t swap = gm_sum_or_never(drain_ns, load_ns);
    /* Before each of its user's turns there is one of each user, at most. */
    const uint64_t turns = users > 0 && users <= n ? ((uint64_t)n - users + 1) * users : n;
    uint64_t bound = config->patience_ns;
    bound = gm_sum_or_never(bound, times_or_never(longest > weighted ? longest : weighted, turns));
    bound = gm_sum_or_never(bound, times_or_never(gm_sum_or_never(config->slice_ns, swap), turns));
    return gm_sum_or_never(bound, swap);
}
