/*
 * What time does to an app: its charges, its level, its share, its slice, its boost. The rules are
 * stated at the head of sched_step.c.
 */
#include "daemon/core/sched_levels.h"

#include "daemon/core/sched_places.h"

/* What was run beyond the share because a drain failed is paid for within so many windows; the
 * rest is forgiven. In windows. */
#define GM_SCHED_DEBT_WINDOWS 10
/* A rest of a slice below an eighth is not worth a switch: it is added to the next slice. Of a
 * slice, one in so many. */
#define GM_SCHED_LEAST_REST 8
/* Who comes back from a rest goes first if it has saved up so much, and of several that do each
 * has so much at a time: 0.5 s. A switch of 16 GiB takes 0.27 s. Less would be used up by the
 * switch; a longer turn of one keeps the request of another waiting for a second and more. Of a
 * slice, one in so many. */
#define GM_SCHED_LEAST_LEAD 8

#define NIL GM_SCHED_NIL
#define LONG_NS 1000000000000000u /* eleven days: no share needs more, and no product overflows */
#define LONG_FAIR_NS                                                                               \
    ((uint64_t)1 << 43) /* ... times a million: no app saves up more than a slice */

static uint64_t doubled(uint64_t ns, uint32_t times)
{
    return ns > GM_TIME_NEVER >> times ? GM_TIME_NEVER : ns << times;
}

/* ---- Levels ---- */

uint64_t gm_sched_allotment(const struct gm_sched *s, const struct gm_sched_app *a)
{
    if (a->policy.class != GM_CLASS_AUTO || a->level >= s->config.levels)
        return GM_TIME_NEVER;
    return doubled(s->config.allotment_ns, a->level - 1);
}

static void come_to(struct gm_sched *s, struct gm_sched_app *a, uint32_t level)
{
    s->at_level[a->level]--;
    s->at_level[level]++;
    a->level = level;
    a->changed_at = s->now;
    a->level_run = a->level_wait = a->level_idle = 0;
}

/* What was run beyond the allotment was run at the next level. */
bool gm_sched_drop(const struct gm_sched *s, struct gm_sched_app *a, uint64_t now)
{
    uint64_t allotment = gm_sched_allotment(s, a);
    if (a->level_run <= allotment)
        return false;
    a->level++;
    a->level_run -= allotment;
    a->level_wait = a->level_idle = 0;
    a->changed_at = now - a->level_run;
    return true;
}

/*
 * The soft recovery rule, i - R*q > T(p-1) + t, with R = 1 / (N + 1), for an app that is idle. `i`
 * grows and nothing else, so the time at which the rule came to hold is known afterwards, and with
 * it where an app stands that rose by several levels in one long pause. There is nothing above
 * level 1: T(0) is 0, and what an app was charged there is forgiven.
 */
bool gm_sched_rise(const struct gm_sched *s, struct gm_sched_app *a, uint64_t now)
{
    if (a->policy.class != GM_CLASS_AUTO || (a->level == 1 && a->level_run == 0))
        return false;
    uint64_t above = a->level == 1 ? 0 : doubled(s->config.allotment_ns, a->level - 2);
    uint64_t queued = a->level_wait / (s->at_level[a->level] + 1);
    uint64_t need = gm_sum_or_never(gm_sum_or_never(above, a->level_run), queued);
    uint64_t least = gm_sum_or_never(a->changed_at, doubled(s->config.allotment_ns, a->level - 1));
    if (a->level_idle <= need || now < least)
        return false;
    uint64_t at = now - (a->level_idle - need);
    a->level -= a->level > 1;
    a->changed_at = at > least ? at : least;
    a->level_run = a->level_wait = 0;
    a->level_idle = now - a->changed_at;
    return true;
}

static void change_level(struct gm_sched *s, struct gm_sched_app *a,
                         bool (*change)(const struct gm_sched *, struct gm_sched_app *, uint64_t))
{
    uint32_t level = a->level;
    while (change(s, a, s->now))
        continue;
    s->at_level[level]--;
    s->at_level[a->level]++;
}

/* ---- Shares: a bucket of run time that fills as fast as the share allows ---- */

static int64_t credit_max(const struct gm_sched_app *a)
{
    return (int64_t)(GM_SCHED_SHARE_WINDOW_NS / GM_SCHED_SHARE_ALL * a->policy.share);
}

static bool is_limited(const struct gm_sched_app *a)
{
    return a->policy.share < GM_SCHED_SHARE_ALL;
}

static void add_credit(struct gm_sched_app *a, int64_t ns)
{
    const int64_t most = credit_max(a);
    int64_t least = -(int64_t)GM_SCHED_SHARE_WINDOW_NS;
    if (a->is_stuck && least < -most * GM_SCHED_DEBT_WINDOWS)
        least = -most * GM_SCHED_DEBT_WINDOWS; /* paid within that many windows */
    a->credit_ns += ns;
    if (a->credit_ns > most)
        a->credit_ns = most;
    if (a->credit_ns < least) /* it did not drain for long */
        a->credit_ns = least;
    if (a->credit_ns <= 0)
        a->is_spent = true;
    else if (a->credit_ns >= most / 2)
        a->is_spent = false;
}

static void charge_share(struct gm_sched_app *a, uint64_t ns, bool is_running)
{
    const int64_t passed = (int64_t)(ns < LONG_NS ? ns : LONG_NS);
    if (is_limited(a))
        add_credit(a, passed * a->policy.share / GM_SCHED_SHARE_ALL - (is_running ? passed : 0));
}

void gm_sched_limit_debt(struct gm_sched_app *a)
{
    if (is_limited(a))
        add_credit(a, 0);
}

/* After a new limit, or none: what was used up of the one before counts on. */
static void change_limit(const struct gm_sched *s, struct gm_sched_app *a, bool was_limited)
{
    if (!is_limited(a)) {
        if (was_limited)
            a->unlimited_at = s->now;
        a->is_spent = false;
        return;
    }
    uint64_t passed = was_limited ? 0 : s->now - a->unlimited_at;
    passed = passed < LONG_NS ? passed : LONG_NS;
    add_credit(a, (int64_t)(passed * a->policy.share / GM_SCHED_SHARE_ALL));
}

/* When its share is used up, or usable again; GM_TIME_NEVER: not by time alone. */
static uint64_t share_at(const struct gm_sched *s, const struct gm_sched_app *a)
{
    if (!is_limited(a))
        return GM_TIME_NEVER;
    bool is_running = a->is_open && a->is_wanting;
    if (a->is_spent && is_running)
        return GM_TIME_NEVER; /* it drains, and uses up more */
    if (a->is_spent) {
        uint64_t lacking = (uint64_t)(credit_max(a) / 2 - a->credit_ns);
        return gm_sum_or_never(s->now, lacking * GM_SCHED_SHARE_ALL / a->policy.share + 1);
    }
    if (!is_running)
        return GM_TIME_NEVER;
    uint64_t left = a->credit_ns > 0 ? (uint64_t)a->credit_ns : 0;
    return gm_sum_or_never(s->now,
                           left * GM_SCHED_SHARE_ALL / (GM_SCHED_SHARE_ALL - a->policy.share) + 1);
}

/* ---- Rests: who rested goes first, for what others had meanwhile ---- */

static uint64_t least_lead(const struct gm_sched *s)
{
    uint64_t least = s->config.slice_ns / GM_SCHED_LEAST_LEAD;
    return least > 0 ? least : 1;
}

/*
 * fair_ns grows by what each of those who want the GPU has of it, on average: by no more than time
 * while they share it, by nothing while memory is moved, and as time while nobody wants it.
 */
void gm_sched_pass(struct gm_sched *s, uint64_t now)
{
    const uint64_t passed = gm_less(now, s->now), ppm = 1000000;
    const uint64_t ns = passed < LONG_FAIR_NS ? passed : LONG_FAIR_NS;
    uint64_t rate = ppm;
    if (s->weights > 0 && s->n_running * (uint64_t)GM_SCHED_WEIGHT < s->weights)
        rate = s->n_running * (uint64_t)GM_SCHED_WEIGHT * ppm / s->weights;
    s->fair_ns += ns * rate / ppm;
    s->now += passed;
}

/* What a user's apps may go first for, all together: it grows by the user's part of the time. */
static void add_to_user(const struct gm_sched *s, struct gm_sched_user *user, uint64_t ns)
{
    const uint64_t most = s->config.allotment_ns;
    ns = gm_sum_or_never(ns, (s->now - user->lead_at) / s->n_users);
    user->lead_ns = ns < most - user->lead_ns ? user->lead_ns + ns : most;
    user->lead_at = s->now;
}

/* How long it goes first. Where there are several users, it takes no more than half of what its
 * user has: the rest is for the user's other apps that come back meanwhile. */
static uint64_t begin_lead(const struct gm_sched *s, const struct gm_sched_app *a)
{
    struct gm_sched_user *user = &s->users[a->user];
    uint64_t lead = a->rested_ns;
    if (s->n_users < 2)
        return lead;
    add_to_user(s, user, 0);
    lead = lead < user->lead_ns / 2 ? lead : user->lead_ns / 2;
    if (lead < least_lead(s))
        return 0;
    user->lead_ns -= lead;
    return lead;
}

void gm_sched_end_lead(const struct gm_sched *s, struct gm_sched_app *a)
{
    if (s->n_users > 1)
        add_to_user(s, &s->users[a->user], a->lead_ns);
    a->lead_ns = 0;
}

void gm_sched_come_back(const struct gm_sched *s, struct gm_sched_app *a)
{
    const uint64_t worked = a->run_ns - a->worked_ns, most = s->config.allotment_ns;
    uint64_t earned = gm_less(s->fair_ns - a->rest_fair_ns, worked / GM_SCHED_PAUSE);
    a->worked_ns = a->run_ns;
    earned = earned < LONG_FAIR_NS ? earned : LONG_FAIR_NS;
    earned = earned * a->policy.weight / GM_SCHED_WEIGHT;
    a->rested_ns = earned < most - a->rested_ns ? a->rested_ns + earned : most;
    if (a->has_wanted && s->config.levels > 1 && a->rested_ns >= least_lead(s))
        a->lead_ns = begin_lead(s, a);
}

/* It pays for all the time that others lack by it, that in which its memory is moved as well. */
static void pay_lead(const struct gm_sched *s, struct gm_sched_app *a, uint64_t ns, bool is_running)
{
    if (!gm_sched_has_lead(a))
        return;
    if (s->has_waiting && (is_running || a->is_chosen))
        a->rested_ns = gm_less(a->rested_ns, ns);
    if (is_running)
        a->lead_ns = gm_less(a->lead_ns, ns);
}

/* ---- Accounts: charged on every edge, so that charged time is run time exactly ---- */

/* No app owes more than one slice, however long it took to drain, or is owed more than one. In its
 * turn it has used two at most. */
static void add_used(const struct gm_sched *s, struct gm_sched_app *a, int64_t ns)
{
    const int64_t slice = (int64_t)gm_sched_slice(s, a);
    const int64_t most = a->is_open && a->is_chosen ? 2 * slice : slice;
    a->used_ns += ns;
    if (gm_sched_is_rested(a->rank))
        a->level_used_ns += ns; /* an advance on its slice there */
    if (ns > 0 && a->used_ns > most)
        a->used_ns = most;
    if (ns < 0 && a->used_ns < -slice)
        a->used_ns = -slice;
}

/* It was idle for longer than a round with it takes. */
static bool has_missed_a_round(const struct gm_sched *s, const struct gm_sched_app *a, uint64_t ns)
{
    const struct gm_sched_rank *r = &s->ranks[a->rank];
    return ns > gm_sum_or_never(gm_sched_slice(s, a), r->weights > 0 ? r->round_ns : 0);
}

void gm_sched_charge(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    uint64_t ns = s->now - a->charged_at;
    bool is_running = a->is_open && a->is_wanting;
    a->charged_at = s->now;
    if (ns == 0)
        return;
    if (is_running) {
        a->run_ns += ns;
        a->level_run += ns;
        add_used(s, a, (int64_t)(ns < LONG_NS ? ns : LONG_NS));
        pay_lead(s, a, ns, true);
        change_level(s, a, gm_sched_drop);
    } else if (a->is_wanting) {
        a->wait_ns += ns;
        /* While its memory is being moved nobody else has what it waits for. */
        a->level_wait += gm_sched_is_eligible(a) && !a->is_chosen ? ns : 0;
        pay_lead(s, a, ns, false);
    } else {
        a->idle_ns += ns;
        a->level_idle += ns;
        if (has_missed_a_round(s, a, ns))
            a->used_ns = 0; /* nothing is saved up, and no debt stays for ever */
        change_level(s, a, gm_sched_rise);
    }
    charge_share(a, ns, is_running);
}

void gm_sched_waste(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    if (!a->is_open || !a->is_wanting)
        return;
    gm_sched_charge(s, id);
    const uint64_t left = gm_sched_left(s, a);
    add_used(s, a, (int64_t)left);
    a->level_run += left;
    pay_lead(s, a, a->lead_ns, true);
    change_level(s, a, gm_sched_drop);
}

void gm_sched_take_back(const struct gm_sched *s, struct gm_sched_app *a, uint64_t ns)
{
    uint64_t here = s->now - a->changed_at; /* it may have come to its level meanwhile */
    here = ns < here ? ns : here;
    a->run_ns -= ns;
    a->idle_ns += ns;
    a->level_run = gm_less(a->level_run, here);
    a->level_idle += here;
    add_used(s, a, -(int64_t)(ns < LONG_NS ? ns : LONG_NS));
    if (is_limited(a))
        add_credit(a, (int64_t)(ns < LONG_NS ? ns : LONG_NS));
}

void gm_sched_turn_into(struct gm_sched *s, uint32_t id, bool is_open, bool is_wanting)
{
    struct gm_sched_app *a = &s->apps[id];
    bool was_waiting = a->is_wanting && !a->is_open;
    gm_sched_charge(s, id);
    if (is_open && !a->is_open)
        a->slice_at = s->now;
    if (is_open && is_wanting && !(a->is_open && a->is_wanting))
        a->running_at = s->now;
    a->is_open = is_open;
    a->is_wanting = is_wanting;
    if (is_wanting && !is_open && !was_waiting)
        a->waiting_at = a->queued_at = s->now;
}

void gm_sched_apply_policy(struct gm_sched *s, uint32_t id, const struct gm_sched_policy *policy)
{
    struct gm_sched_app *a = &s->apps[id];
    bool is_other_class = a->policy.class != policy->class;
    bool was_limited = is_limited(a), was_auto = a->policy.class == GM_CLASS_AUTO;
    gm_sched_charge(s, id);
    a->policy = *policy;
    change_limit(s, a, was_limited);
    if (!is_other_class)
        return;
    if (was_auto) { /* so that what is said and unsaid wins nothing */
        a->auto_level = a->level;
        a->auto_run = a->level_run;
    }
    if (policy->class == GM_CLASS_AUTO) {
        come_to(s, a, a->auto_level);
        a->level_run = a->auto_run;
    } else {
        come_to(s, a, policy->class == GM_CLASS_BATCH ? s->config.levels : 1);
    }
}

/* ---- Slices ---- */

/* Who was boosted or came back from a rest has a slice like any other there. */
static uint32_t weight_of(const struct gm_sched_app *a)
{
    const bool is_equal = a->rank == GM_RANK_BOOSTED || gm_sched_is_rested(a->rank);
    return is_equal ? GM_SCHED_WEIGHT : a->policy.weight;
}

/*
 * The slices of a rank are to each other as the weights. The largest weight has the length S of the
 * level, unless the smallest would have less than a quarter of S(1) then, which is to be the
 * shortest: a switch costs too much for less. At RESTED they are shorter: GM_SCHED_LEAST_LEAD.
 */
uint64_t gm_sched_slice(const struct gm_sched *s, const struct gm_sched_app *a)
{
    const struct gm_sched_rank *rank = &s->ranks[a->rank];
    uint64_t base = s->config.slice_ns, shortest = s->config.slice_ns / 4, slice;
    if (a->rank == GM_RANK_BOOSTED && a->is_hurried)
        return base < GM_SCHED_HURRY_NS ? base : GM_SCHED_HURRY_NS;
    if (gm_sched_is_rested(a->rank))
        base = least_lead(s);
    if (a->rank > GM_RANK_LED)
        base <<= a->rank - GM_RANK_LED - 1;
    if (rank->weight_max == rank->weight_min)
        return base;
    if (base * rank->weight_min / rank->weight_max >= shortest)
        slice = base * weight_of(a) / rank->weight_max;
    else
        slice = shortest * weight_of(a) / rank->weight_min;
    return slice > 0 ? slice : 1;
}

uint64_t gm_sched_left(const struct gm_sched *s, const struct gm_sched_app *a)
{
    const int64_t left = (int64_t)gm_sched_slice(s, a) - a->used_ns;
    return left > 0 ? (uint64_t)left : 0;
}

bool gm_sched_has_little(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return a->rank != GM_RANK_BOOSTED &&
           gm_sched_left(s, a) < gm_sched_slice(s, a) / GM_SCHED_LEAST_REST;
}

void gm_sched_end_turn(const struct gm_sched *s, struct gm_sched_app *a)
{
    const uint64_t slice = gm_sched_slice(s, a), left = gm_sched_left(s, a);
    a->used_ns = -(int64_t)(left < slice ? left : slice);
    a->has_turn = false;
}

/* The sum of the slices of all who want at the rank of `a`. */
static uint64_t round_of(const struct gm_sched *s, const struct gm_sched_app *a)
{
    /* In units of its own slice, whatever those are. */
    uint64_t slice = gm_sched_slice(s, a), weights = s->ranks[a->rank].weights;
    if (slice > GM_TIME_NEVER / (weights + 1))
        return GM_TIME_NEVER;
    return slice * weights / weight_of(a);
}

/*
 * A turn of each of the others, by user first: before each turn of its own user's programs there is
 * one of each user. So other users' programs do not make it longer, only users do.
 */
static uint64_t round_for(const struct gm_sched *s, const struct gm_sched_app *a)
{
    const struct gm_sched_rank *r = &s->ranks[a->rank];
    uint64_t round;
    if (r->n_users < 2)
        return r->round_ns;
    const uint64_t longest = gm_sched_slice(s, a) * r->weight_max / weight_of(a) + 1;
    const uint64_t turns = (uint64_t)r->n_users * a->n_of_user;
    return __builtin_mul_overflow(longest, turns, &round) ? GM_TIME_NEVER : round;
}

/* ---- Aging: who waited for too long is boosted ---- */

static uint64_t boost_at(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return gm_sum_or_never(gm_sum_or_never(a->queued_at, s->config.patience_ns), round_for(s, a));
}

bool gm_sched_needs_boost(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return !a->is_boosted && gm_sched_is_left_out(s, a) && s->now >= boost_at(s, a);
}

/* A boosted app that has had its slice, or cannot run now, goes back to the tail of its own rank.
 */
static void settle_boosted(struct gm_sched *s, const struct gm_sched_list *list)
{
    for (uint32_t next, id = list->head; id != NIL; id = next) {
        struct gm_sched_app *a = &s->apps[id];
        next = a->next;
        bool is_over = gm_sched_left(s, a) == 0;
        if (a->is_stuck || !(is_over || gm_sched_is_too_large(s, a)))
            continue;
        a->is_boosted = false;
        a->slice_at = s->now;
        gm_sched_stand(s, id);
    }
}

/* ---- All of it ---- */

static void weigh(struct gm_sched *s, struct gm_sched_rank *rank, const struct gm_sched_app *a)
{
    s->n_running += a->is_open && a->is_wanting;
    const uint32_t weight = weight_of(a);
    if (rank->weight_max == 0 || weight > rank->weight_max)
        rank->weight_max = weight;
    if (rank->weight_min == 0 || weight < rank->weight_min)
        rank->weight_min = weight;
    rank->weights += weight;
    s->weights += a->policy.weight;
}

static void count_of_users(struct gm_sched *s, struct gm_sched_rank *r, uint32_t head)
{
    for (uint32_t id = head; id != NIL; id = s->apps[id].next) {
        struct gm_sched_user *user = &s->users[s->apps[id].user];
        if (user->seen != s->mark) {
            user->seen = s->mark;
            user->n_wanting = 0;
            r->n_users++;
        }
        user->n_wanting++;
    }
}

static void count_users(struct gm_sched *s, struct gm_sched_rank *r)
{
    r->n_users = 0;
    if (s->n_users < 2)
        return;
    s->mark++;
    count_of_users(s, r, r->turn.head);
    count_of_users(s, r, r->queue.head);
    for (uint32_t id = r->turn.head; id != NIL; id = s->apps[id].next)
        s->apps[id].n_of_user = s->users[s->apps[id].user].n_wanting;
    for (uint32_t id = r->queue.head; id != NIL; id = s->apps[id].next)
        s->apps[id].n_of_user = s->users[s->apps[id].user].n_wanting;
}

static void weigh_ranks(struct gm_sched *s)
{
    s->weights = 0;
    s->n_running = 0;
    for (uint32_t rank = 0; rank < GM_RANKS; rank++) {
        struct gm_sched_rank *r = &s->ranks[rank];
        r->weight_min = r->weight_max = 0;
        r->weights = 0;
        for (uint32_t id = r->turn.head; id != NIL; id = s->apps[id].next)
            weigh(s, r, &s->apps[id]);
        for (uint32_t id = r->queue.head; id != NIL; id = s->apps[id].next)
            weigh(s, r, &s->apps[id]);
        count_users(s, r);
        if (r->weights > 0)
            r->round_ns = round_of(s, &s->apps[r->turn.head == NIL ? r->queue.head : r->turn.head]);
    }
}

/* Charge those who run or lack a share, and move those whose level or share changed by it. */
static void settle_list(struct gm_sched *s, const struct gm_sched_list *list)
{
    for (uint32_t next, id = list->head; id != NIL; id = next) {
        struct gm_sched_app *a = &s->apps[id];
        next = a->next;
        if (!a->is_open && !a->is_spent) {
            if (gm_sched_is_too_large(s, a))
                a->queued_at = s->now; /* it could not run: that is no wait for others */
            continue;
        }
        gm_sched_charge(s, id);
        gm_sched_stand(s, id);
    }
}

/* The longest wait first: those of a rank stand in this order already, and the better ranks go
 * first. Returns whether anybody moved. */
static bool settle_waits(struct gm_sched *s)
{
    bool has_moved = false;
    for (uint32_t rank = GM_RANK_LATENCY; rank < GM_RANKS; rank++) {
        for (uint32_t next, id = s->ranks[rank].queue.head; id != NIL; id = next) {
            next = s->apps[id].next;
            if (!gm_sched_needs_boost(s, &s->apps[id]))
                continue;
            has_moved = true;
            s->apps[id].is_boosted = true;
            s->apps[id].is_hurried = false;
            gm_sched_append(s, id, GM_QUEUE, GM_RANK_BOOSTED);
        }
    }
    return has_moved;
}

void gm_sched_settle(struct gm_sched *s)
{
    for (uint32_t rank = 0; rank < GM_RANKS; rank++) {
        settle_list(s, &s->ranks[rank].turn);
        settle_list(s, &s->ranks[rank].queue);
    }
    settle_list(s, &s->held);
    settle_boosted(s, &s->ranks[GM_RANK_BOOSTED].turn);
    settle_boosted(s, &s->ranks[GM_RANK_BOOSTED].queue);
    weigh_ranks(s);
    if (settle_waits(s))
        weigh_ranks(s);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t settle_list_at(const struct gm_sched *s, const struct gm_sched_list *list)
{
    uint64_t at = GM_TIME_NEVER;
    bool has_waiting = s->decision.n_next > 0; /* else a level changes nothing */
    for (uint32_t id = list->head; id != NIL; id = s->apps[id].next) {
        const struct gm_sched_app *a = &s->apps[id];
        at = sooner(at, share_at(s, a));
        if (!a->is_boosted && gm_sched_is_left_out(s, a))
            at = sooner(at, boost_at(s, a));
        if (has_waiting && a->is_open && a->is_wanting) {
            uint64_t allotment = gm_sched_allotment(s, a);
            if (allotment != GM_TIME_NEVER)
                at = sooner(at, s->now + gm_less(allotment, a->level_run) + 1);
            if (gm_sched_has_lead(a))
                at = sooner(at, gm_sum_or_never(s->now, a->lead_ns));
            if (a->rank == GM_RANK_RESTED)
                at = sooner(at, s->now + gm_sched_fresh(s, a));
        }
    }
    return at;
}

uint64_t gm_sched_settle_at(const struct gm_sched *s)
{
    uint64_t at = settle_list_at(s, &s->held);
    for (uint32_t rank = 0; rank < GM_RANKS; rank++) {
        at = sooner(at, settle_list_at(s, &s->ranks[rank].turn));
        at = sooner(at, settle_list_at(s, &s->ranks[rank].queue));
    }
    return at;
}
