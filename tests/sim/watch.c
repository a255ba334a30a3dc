/* What must hold of a scheduler: see watch.h. */
#include "tests/sim/watch.h"
#include "daemon/core/sched_account.h"
#include "daemon/core/tunables.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER GM_TIME_NEVER
#define NOBODY UINT32_MAX

void watch_fail(const struct watch *watch, int line, const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "%s%" PRIu64 ": %s (step %" PRIu64 ", %.6f s, line %d)\n", watch->place,
            watch->number, what, watch->steps, (double)watch->now / 1e9, line);
    exit(1);
}

#define check(what) watch_check(w, what)
#define check_app(app, what)                                                                       \
    do {                                                                                           \
        if (!(what))                                                                               \
            watch_fail(w, __LINE__, "app %" PRIu32 ": not so: %s", app, #what);                    \
    } while (0)

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* It waits until it is untied. */
static bool stands_by(const struct watch_app *a)
{
    return a->is_tied && !a->is_open;
}

static bool is_running(const struct watch_app *a)
{
    return a->is_open && a->is_wanting;
}

static bool is_limited(const struct watch_app *a)
{
    return a->policy.share < GM_SCHED_SHARE_ALL;
}

static bool is_held(const struct watch *w, const struct watch_app *a)
{
    return a->is_stuck && w->now < a->held_until;
}

/* May run some time, as far as is known: an idle app does not say that its share is used up.
 * Whether a share is used up is the scheduler's to say; check_share holds it against what it ran.
 */
static bool is_eligible(const struct watch *w, const struct watch_app *a)
{
    return !a->policy.is_paused && a->reason != GM_WHY_SHARE && a->bytes <= w->config.budget &&
           (a->is_wanting || !is_limited(a));
}

/* ---- What happened ---- */

/* What a limited app ran beyond its share, in thousandths: of what drains took, it owes a window at
 * most. */
static uint64_t owe(const struct watch_app *a, uint64_t ns)
{
    uint64_t most = GM_WATCH_SHARE_WINDOW_NS * (GM_SCHED_SHARE_ALL + (uint64_t)a->policy.share);
    uint64_t owed = a->owed + ns * (GM_SCHED_SHARE_ALL - a->policy.share);
    return owed < most ? owed : most;
}

/* Who goes first for a rest uses up what it earned, and the others' run is what rests earn. */
static void pass_fair(struct watch *w, double ns)
{
    double weights = 0, running = 0;
    for (uint32_t app = 0; app < w->n; app++) {
        struct watch_app *a = &w->apps[app];
        if (!a->is_known || !a->is_wanting || a->policy.is_paused || a->reason == GM_WHY_SHARE)
            continue;
        weights += a->policy.weight;
        running += a->is_open ? GM_SCHED_WEIGHT : 0;
        if (a->is_open && a->has_lead && w->has_waiting)
            a->saved_ns -= ns;
    }
    w->fair_ns += running < weights ? ns * running / weights : ns;
}

/* Up to `now` everybody did what it does. */
static void pass_time(struct watch *w, uint64_t now)
{
    uint64_t ns = now - w->now;
    pass_fair(w, (double)ns);
    for (uint32_t app = 0; app < w->n && ns > 0; app++) {
        struct watch_app *a = &w->apps[app];
        if (!a->is_known)
            continue;
        *(is_running(a) ? &a->run_ns : a->is_wanting ? &a->wait_ns : &a->idle_ns) += ns;
        if (is_limited(a))
            a->owed = is_running(a) ? owe(a, ns) : less(a->owed, ns * a->policy.share);
    }
    w->now = now;
}

static void note_opened(struct watch *w, struct watch_app *a)
{
    if (a->is_open)
        return;
    a->slices++;
    if (a->is_wanting) {
        uint64_t ns = w->now - a->waiting_since;
        a->waits++;
        a->waited_ns += ns;
        if (ns > a->longest_wait_ns)
            a->longest_wait_ns = ns;
    }
    w->opened++;
    w->turns++;
}

static void leave(struct watch *w, struct watch_app *left)
{
    w->run_ns += left->run_ns;
    w->taken_ns += left->taken_ns;
    if (left->present_at != NEVER)
        for (uint32_t app = 0; app < w->n; app++) {
            struct watch_app *a = &w->apps[app];
            if (a->is_known && a->wait_from != NEVER && left->present_at >= a->wait_from)
                a->gone++;
        }
    *left = (struct watch_app){.is_known = false};
}

static void join(struct watch *w, uint32_t app)
{
    w->apps[app] = (struct watch_app){
        .is_known = true,
        .joined_at = w->now,
        .wait_from = NEVER,
        .present_at = NEVER,
        .level = 1,
        .saved_ns = (double)w->config.allotment_ns,
        .policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL},
    };
    if (app >= w->n)
        w->n = app + 1;
}

static void calm_not_before(struct watch *w, uint64_t at)
{
    if (w->calm_from < at)
        w->calm_from = at;
}

static void come_back(const struct watch *w, struct watch_app *a)
{
    const double most = (double)w->config.allotment_ns;
    a->saved_ns += (w->fair_ns - a->rest_fair_ns) * a->policy.weight / GM_SCHED_WEIGHT;
    a->saved_ns = a->saved_ns < most ? a->saved_ns : most;
}

/* It was idle for `ago_ns` already, as long as it could have run. */
static void rest(struct watch_app *a, uint64_t now, uint64_t ago_ns)
{
    uint64_t ns = is_running(a) ? now - a->running_since : 0;
    ns = ago_ns < ns ? ago_ns : ns;
    a->is_wanting = false;
    a->run_ns -= ns;
    a->idle_ns += ns;
    a->taken_ns += ns;
    a->just_taken_ns = ns;
    if (is_limited(a))
        a->owed = less(a->owed, ns * GM_SCHED_SHARE_ALL);
}

static void apply(struct watch *w, const struct gm_sched_event *event)
{
    struct watch_app *a = event->app < w->config.max_apps ? &w->apps[event->app] : NULL;
    switch (event->kind) {
    case GM_SCHED_JOIN:
        join(w, event->app);
        a->user = event->user;
        if (event->level > 0) { /* it stands where it stood */
            a->level = event->level < w->config.levels ? event->level : w->config.levels;
            a->taken_ns = event->charged_ns;
        }
        w->has_users |= event->user != 0;
        break;
    case GM_SCHED_LEAVE:
        leave(w, a);
        break;
    case GM_SCHED_WANT:
        if (!a->is_wanting) {
            a->waiting_since = a->running_since = w->now;
            come_back(w, a);
        }
        a->is_wanting = true;
        break;
    case GM_SCHED_IDLE:
        a->rest_fair_ns = a->is_wanting ? w->fair_ns : a->rest_fair_ns;
        rest(a, w->now, event->ago_ns);
        break;
    case GM_SCHED_SIZE:
        a->bytes = event->bytes;
        break;
    case GM_SCHED_OPENED:
        note_opened(w, a);
        a->running_since = w->now;
        a->is_open = true;
        break;
    case GM_SCHED_CLOSED:
        a->is_open = a->is_stuck = false;
        a->waiting_since = w->now;
        break;
    case GM_SCHED_BUSY:
        a->is_stuck = true;
        a->held_until = w->now + w->config.retry_ns;
        w->busy++;
        calm_not_before(w, a->held_until + (w->drain_max == NEVER ? 0 : w->drain_max));
        break;
    case GM_SCHED_TIE:
    case GM_SCHED_UNTIE:
        a->is_tied = event->kind == GM_SCHED_TIE;
        w->first = NOBODY; /* its turn is called off, or comes before those behind it */
        break;
    case GM_SCHED_WASTE: /* a slice at most is charged that it did not run */
        a->taken_ns += w->config.slice_ns << w->config.levels;
        break;
    case GM_SCHED_HURRY:
    case GM_SCHED_TIMER:
        w->timers++;
        break;
    case GM_SCHED_ROOM:
        w->config.budget = event->bytes;
        calm_not_before(w, w->now);
        break;
    }
}

/* ---- Accounts ---- */

/*
 * Levels. Each drop from p takes more than T(p) of run time, and each rise from p more than T(p-1)
 * of idle time; those of drops that follow each other add up, and those of rises.
 */
static void check_auto_level(struct watch *w, uint32_t app, const struct gm_sched_account *account)
{
    struct watch_app *a = &w->apps[app];
    uint32_t level = account->level;
    uint64_t top = w->config.allotment_ns;
    check_app(app, level >= 1 && level <= w->config.levels);
    check_app(app,
              account->allotment_ns == (level < w->config.levels ? top << (level - 1) : NEVER));
    if (level == a->level || (level < a->level && !a->is_wanting))
        return; /* how far it rose while it is idle is settled when it wants again */
    w->turns++;
    if (level > a->level) {
        for (; a->level < level; a->level++)
            a->run_spent += top << (a->level - 1);
        check_app(app, a->run_ns + a->taken_ns - a->run_at_rise > a->run_spent);
        a->idle_at_drop = a->idle_ns - a->just_taken_ns;
        a->idle_spent = 0;
    } else {
        for (; a->level > level; a->level--)
            a->idle_spent += top << (a->level - 2);
        check_app(app, a->idle_ns - a->idle_at_drop > a->idle_spent);
        a->run_at_rise = a->run_ns + a->taken_ns;
        a->run_spent = 0;
    }
}

static void begin_levels(struct watch_app *a, uint32_t level)
{
    a->level = level;
    a->run_at_rise = a->run_ns + a->taken_ns;
    a->idle_at_drop = a->idle_ns;
    a->run_spent = a->idle_spent = 0;
}

/* Back to auto: at the level and with the charge of before. */
static void change_class(struct watch_app *a, uint8_t class)
{
    if (a->policy.class == GM_CLASS_AUTO)
        a->auto_charge = less(a->run_ns + a->taken_ns, a->run_at_rise + a->run_spent);
    a->is_back = class == GM_CLASS_AUTO;
    begin_levels(a, a->level);
}

static void check_level(struct watch *w, uint32_t app, const struct gm_sched_account *account)
{
    struct watch_app *a = &w->apps[app];
    if (a->is_back) {
        begin_levels(a, account->level);
        a->run_at_rise = less(a->run_at_rise, a->auto_charge);
        a->is_back = false;
    }
    if (a->policy.class == GM_CLASS_AUTO) {
        check_auto_level(w, app, account);
        return;
    }
    uint32_t level = a->policy.class == GM_CLASS_LATENCY ? 0
                     : a->policy.class == GM_CLASS_BATCH ? w->config.levels
                                                         : 1;
    check_app(app, account->level == level && account->allotment_ns == NEVER);
    begin_levels(a, level > 0 ? level : 1);
}

static void check_share(struct watch *w, uint32_t app)
{
    const struct watch_app *a = &w->apps[app];
    if (!is_limited(a) || !w->is_clean || w->drain_max == NEVER)
        return;
    uint64_t burst = GM_WATCH_SHARE_WINDOW_NS * (uint64_t)a->policy.share;
    uint64_t drain = w->drain_max * (GM_SCHED_SHARE_ALL - a->policy.share);
    check_app(app, a->owed <= burst + drain + 1000000);
}

static bool is_boosted(enum gm_why reason)
{
    return reason == GM_WHY_BOOSTED || reason == GM_WHY_HURRIED;
}

static bool is_reason_of_set(enum gm_why reason)
{
    return reason == GM_WHY_FITS || reason == GM_WHY_SLICE || reason == GM_WHY_FIRST ||
           reason == GM_WHY_RESTED || is_boosted(reason) || reason == GM_WHY_NOT_DRAINED;
}

static void check_account(struct watch *w, uint32_t app, bool is_step)
{
    struct watch_app *a = &w->apps[app];
    struct gm_sched_account account;
    check_app(app, gm_sched_account(w->sched, w->now, app, &account) == a->is_known);
    if (!a->is_known)
        return;
    check_app(app, account.run_ns == a->run_ns);
    check_app(app, account.wait_ns == a->wait_ns);
    check_app(app, account.idle_ns == a->idle_ns);
    check_app(app, a->run_ns + a->wait_ns + a->idle_ns == w->now - a->joined_at);
    check_app(app, account.bytes == a->bytes);
    check_app(app, account.policy.class == a->policy.class &&
                       account.policy.is_paused == a->policy.is_paused &&
                       account.policy.weight == a->policy.weight &&
                       account.policy.share == a->policy.share);
    check_app(app, (account.waiting_at != 0) == (a->is_wanting && !a->is_open));
    check_app(app, (account.slice_at != 0) == (a->is_open && a->is_chosen));
    check_app(app, account.ahead == NOBODY || (account.ahead != app && account.ahead < w->n &&
                                               w->apps[account.ahead].is_known));
    check_app(app, account.reason > GM_WHY_NONE && account.reason < GM_WHYS);
    check_app(app, is_reason_of_set(account.reason) == a->is_chosen);
    check_app(app, account.reason != GM_WHY_NOT_DRAINED || a->is_stuck);
    check_app(app, account.reason != GM_WHY_PAUSED || a->policy.is_paused);
    check_app(app, account.reason != GM_WHY_SHARE || is_limited(a));
    check_app(app, account.reason != GM_WHY_IDLE || !a->is_wanting);
    if ((a->reason == GM_WHY_SHARE) != (account.reason == GM_WHY_SHARE))
        w->turns++;
    const bool is_fresh = account.burst_ns <= w->config.slice_ns / GM_SCHED_FRESH;
    a->rank = account.level == 0 ? 0 : !account.has_lead ? account.level + 2 : is_fresh ? 1 : 2;
    if (account.is_yielding)
        a->rank = GM_SCHED_LEVELS_MAX + 3;
    w->turns += a->has_lead && !account.has_lead;
    w->turns += a->is_yielding != account.is_yielding;
    a->is_yielding = account.is_yielding;
    a->has_lead = account.has_lead;
    check_app(app, !a->has_lead || (a->is_wanting && w->config.levels > 1));
    check_app(app, a->saved_ns >= -10000 - (double)w->late_max || w->drain_max == NEVER);
    a->saved_ns = a->saved_ns > 0 ? a->saved_ns : 0;
    a->reason = account.reason;
    check_level(w, app, &account);
    a->just_taken_ns = 0;
    check_share(w, app);
    /* It drops on the step by which it ran beyond its allotment. */
    check_app(app, !is_step || account.charged_ns <= account.allotment_ns);
}

void watch_accounts(struct watch *w, uint64_t now)
{
    if (w->is_hash_only)
        return;
    pass_time(w, now);
    for (uint32_t app = 0; app < w->n; app++)
        check_account(w, app, false);
}

/* ---- The decision ---- */

static void read_decision(struct watch *w)
{
    const struct gm_sched_decision *d = w->decision;
    for (uint32_t app = 0; app < w->n; app++) {
        w->apps[app].was_chosen = w->apps[app].is_chosen;
        w->apps[app].is_chosen = w->apps[app].is_coming = false;
    }
    for (uint32_t i = 0; i < d->n_set; i++) {
        uint32_t app = d->set[i];
        check(app < w->n && w->apps[app].is_known && !w->apps[app].is_chosen);
        check_app(app, w->apps[app].is_wanting || w->apps[app].is_open);
        w->apps[app].is_chosen = true;
    }
    for (uint32_t i = 0; i < d->n_next; i++) {
        uint32_t app = d->next[i];
        check(app < w->n && w->apps[app].is_known);
        check_app(app, !w->apps[app].is_chosen && !w->apps[app].is_coming);
        check_app(app, w->apps[app].is_wanting && !w->apps[app].policy.is_paused);
        check_app(app, w->apps[app].bytes <= w->config.budget);
        w->apps[app].is_coming = true;
    }
}

static void check_set(struct watch *w)
{
    const struct gm_sched_decision *d = w->decision;
    uint64_t held = 0, others = 0, everybody = 0;
    bool has_stuck = false, has_limited = false;
    for (uint32_t app = 0; app < w->n; app++) {
        const struct watch_app *a = &w->apps[app];
        if (!a->is_known)
            continue;
        has_stuck |= a->is_stuck;
        has_limited |= is_limited(a);
        if (is_held(w, a)) {
            check_app(app, a->is_chosen);
            held = plus(held, a->bytes);
        } else if (a->is_chosen) {
            check_app(app, a->bytes <= w->config.budget);
            check_app(app, !a->policy.is_paused);
            others = plus(others, a->bytes);
        } else if (a->is_wanting && is_eligible(w, a)) {
            check_app(app, a->is_coming); /* who may run some time is on the timeline */
        } else {
            check_app(app, !a->is_coming);
        }
        if (a->is_open || a->is_wanting)
            everybody = plus(everybody, a->is_chosen || is_eligible(w, a) ? a->bytes : 0);
    }
    check(others <= less(w->config.budget, held));
    for (uint32_t app = 0; app < w->n && everybody <= w->config.budget && !has_stuck; app++) {
        const struct watch_app *a = &w->apps[app];
        if (a->is_known && (a->is_wanting || a->is_open) && is_eligible(w, a) && !stands_by(a))
            check_app(app, a->is_chosen); /* everything fits: nobody is ever paused */
    }
    for (uint32_t i = 0; i < d->n_next && !has_stuck; i++) /* no room is left unused */
        check_app(d->next[i], w->apps[d->next[i]].bytes > w->config.budget - others ||
                                  stands_by(&w->apps[d->next[i]]));
    check(d->wake_at > w->now);
    check(d->n_next > 0 || has_stuck || has_limited || d->wake_at == NEVER);
}

/* ---- Ranks ---- */

/* An app of its user did not drain, and there are others: it begins when that has. */
static bool is_late(const struct watch *w, const struct watch_app *a)
{
    for (uint32_t app = 0; app < w->n && w->has_users; app++)
        if (w->apps[app].is_stuck && w->apps[app].user == a->user)
            return true;
    return false;
}

/* Who waits would not fit either if all of a lower rank were away. */
static void check_ranks(struct watch *w)
{
    const struct gm_sched_decision *d = w->decision;
    uint64_t before[GM_SCHED_LEVELS_MAX + 4] = {0}; /* bytes of the set, by rank */
    uint64_t always = 0;                            /* ... that nobody's rank sends away */
    uint32_t rank = 0;
    for (uint32_t app = 0; app < w->n; app++)
        always = plus(always, w->apps[app].is_stuck ? w->apps[app].bytes : 0); /* until closed */
    for (uint32_t i = 0; i < d->n_set; i++) {
        const struct watch_app *a = &w->apps[d->set[i]];
        if (a->is_stuck)
            continue;
        if (is_boosted(a->reason)) {
            always = plus(always, a->bytes);
            continue;
        }
        if (!a->is_wanting)
            continue; /* it rests, and makes room for anybody */
        /* The most important first; who is there for patience says so while somebody waits. */
        check_app(d->set[i], a->rank >= rank || d->n_next == 0);
        rank = a->rank;
        before[rank] += a->bytes;
    }
    for (uint32_t i = 0; i < d->n_next; i++) {
        const struct watch_app *a = &w->apps[d->next[i]];
        uint64_t used = always;
        for (rank = 0; rank <= a->rank; rank++)
            used = plus(used, before[rank]);
        /* One that is being closed does not wait yet. */
        if (!a->is_open && !a->is_stuck && !a->is_tied && !is_late(w, a))
            check_app(d->next[i], a->bytes > less(w->config.budget, used));
    }
}

/* Who is in the set is expected now, and those on the timeline in its order. */
static void check_expected(struct watch *w)
{
    const struct gm_sched_decision *d = w->decision;
    uint64_t before = 0;
    for (uint32_t i = 0; i < d->n_set; i++) {
        const struct watch_app *a = &w->apps[d->set[i]];
        if (a->is_wanting && a->reason != GM_WHY_NOT_DRAINED)
            check_app(d->set[i], gm_sched_expect(w->sched, w->now, d->set[i]) <= w->now);
    }
    for (uint32_t i = 0; i < d->n_next; i++) {
        uint64_t at = gm_sched_expect(w->sched, w->now, d->next[i]);
        if (w->apps[d->next[i]].is_open)
            continue; /* it is being closed */
        check_app(d->next[i], at >= before);
        before = at;
    }
}

/* No thrash: the first, which is being loaded, goes for a better rank only, or as it yields. */
static void check_first(struct watch *w, uint32_t told)
{
    uint32_t first = w->first;
    if (!w->is_clean || first == NOBODY || first == told)
        return;
    const struct watch_app *a = &w->apps[first];
    if (!a->is_wanting || a->is_open || a->is_chosen || a->policy.is_paused)
        return;
    const struct gm_sched_decision *d = w->decision;
    check_app(first, d->n_set > 0);
    const struct watch_app *better = &w->apps[d->set[0]];
    check_app(first,
              is_boosted(better->reason) || better->rank < w->first_rank || better->rank < a->rank);
}

/* ---- Waits ---- */

static void check_waits(struct watch *w)
{
    for (uint32_t app = 0; app < w->n; app++) {
        struct watch_app *a = &w->apps[app];
        if (a->is_known && (a->is_open || (a->is_wanting && !a->policy.is_paused)))
            a->present_at = w->now;
    }
    for (uint32_t app = 0; app < w->n; app++) {
        struct watch_app *a = &w->apps[app];
        bool is_waiting = a->is_known && a->is_wanting && !a->is_open;
        if (!is_waiting || is_limited(a) || !is_eligible(w, a)) {
            a->wait_from = NEVER;
            continue;
        }
        if (a->wait_from == NEVER) {
            a->wait_from = w->now;
            a->gone = 0;
        }
        if (a->wait_from < w->calm_from)
            a->wait_from = w->calm_from;
        uint64_t waited = less(w->now, a->wait_from);
        if (waited <= w->config.patience_ns)
            continue; /* whatever n is */
        uint32_t n = a->gone;
        for (uint32_t other = 0; other < w->n; other++)
            n += w->apps[other].is_known && w->apps[other].present_at != NEVER &&
                 w->apps[other].present_at >= a->wait_from;
        const uint32_t users = w->has_users ? (n + 1) / 2 : 1; /* the longest that there is */
        check_app(app, waited <= gm_sched_bound(&w->config, n, users, w->drain_max, w->load_max));
    }
}

/* ---- One step ---- */

static void note(struct watch *w, uint64_t value)
{
    w->hash = (w->hash ^ value) * 0x100000001b3u;
    w->hash ^= w->hash >> 29;
}

static void note_decision(struct watch *w, uint64_t what)
{
    const struct gm_sched_decision *d = w->decision;
    note(w, what);
    note(w, w->now);
    for (uint32_t i = 0; i < d->n_set; i++)
        note(w, d->set[i]);
    for (uint32_t i = 0; i < d->n_next; i++)
        note(w, ~(uint64_t)d->next[i]);
    note(w, d->wake_at);
}

void watch_before(struct watch *w)
{
    const struct gm_sched_decision *d = w->decision;
    w->first = NOBODY;
    if (w->is_hash_only || d->n_set == 0)
        return;
    w->first = d->set[0];
    w->first_rank = w->apps[w->first].rank;
}

/* No polling: a wake for each slice, change of a level or share and BUSY, at most. */
static void check_polling(struct watch *w)
{
    uint64_t run = w->run_ns + w->taken_ns;
    for (uint32_t app = 0; app < w->n; app++)
        run += w->apps[app].run_ns + w->apps[app].taken_ns;
    if (w->drain_max != NEVER)
        check(w->timers <= w->turns + w->busy + run / (w->config.slice_ns / 4 + 1));
}

static void check_step(struct watch *w, uint32_t told)
{
    read_decision(w);
    w->has_waiting = w->decision->n_next > 0;
    for (uint32_t app = 0; app < w->n; app++)
        check_account(w, app, true);
    check_set(w);
    check_ranks(w);
    check_expected(w);
    check_first(w, told);
    if (w->steps % 4096 == 0)
        check_polling(w);
    if (w->drain_max != NEVER)
        check_waits(w);
}

void watch_event(struct watch *w, uint64_t now, const struct gm_sched_event *event)
{
    bool has_app = event->kind != GM_SCHED_TIMER && event->kind != GM_SCHED_ROOM;
    w->steps++;
    if (w->is_hash_only) {
        w->now = now;
    } else {
        pass_time(w, now);
        apply(w, event);
    }
    note_decision(w, (uint64_t)event->kind << 32 | (has_app ? event->app : 0));
    if (!w->is_hash_only)
        check_step(w, has_app ? event->app : NOBODY);
}

void watch_policy(struct watch *w, uint64_t now, uint32_t app, const struct gm_sched_policy *policy)
{
    struct watch_app *a = &w->apps[app];
    w->steps++;
    if (w->is_hash_only) {
        w->now = now;
    } else {
        pass_time(w, now);
        if (a->policy.share != policy->share)
            a->owed = 0;
        if (a->policy.class != policy->class)
            change_class(a, policy->class);
        a->policy = *policy;
        w->turns++;
    }
    note_decision(w, (uint64_t)GM_SCHED_ROOM << 33 | app);
    if (!w->is_hash_only)
        check_step(w, app);
}

void watch_begin(struct watch *w, const struct gm_sched *sched,
                 const struct gm_sched_config *config, const struct gm_sched_decision *decision)
{
    w->sched = sched;
    w->config = *config;
    w->decision = decision;
    w->hash = 0xcbf29ce484222325u;
    w->first = NOBODY;
    w->apps = calloc(config->max_apps, sizeof *w->apps);
    if (!w->apps) {
        fprintf(stderr, "sim_sched: out of memory\n");
        exit(1);
    }
}

void watch_end(struct watch *w)
{
    if (!w->is_hash_only)
        check_polling(w);
    free(w->apps);
    w->apps = NULL;
}
