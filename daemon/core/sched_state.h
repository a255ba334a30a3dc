/* clang-format off */
/*
 * The scheduler's inside, for daemon/core/sched_*.c only. Each file calls those below it:
 *
 *   sched_step.c     the model, the events, the interface (sched_step.h)
 *   sched_decide.c   the set, the timeline and wake_at
 *   sched_users.c    what users had, and who yields to those who had less
 *   sched_levels.c   what time does: charges, levels, shares, slices, boosts
 *   sched_places.c   the lists in which apps stand
 *   sched_account.c  beside them: accounts, reasons, expectations, for who asks
 */
/* clang-format on */
#ifndef GM_CORE_SCHED_STATE_H
#define GM_CORE_SCHED_STATE_H

#include "common/sums.h"
#include "daemon/core/sched.h"
#include "daemon/core/tunables.h"

#define GM_SCHED_NIL UINT32_MAX

/* The order of importance: boosted apps, class latency, who came back from a rest, first those that
 * ran for a short time only since, the levels. */
#define GM_RANK_BOOSTED 0u
#define GM_RANK_LATENCY 1u
#define GM_RANK_RESTED 2u
#define GM_RANK_LED 3u
#define GM_RANKS (GM_SCHED_LEVELS_MAX + 4u) /* level p has rank p + 3 */

enum gm_sched_place { GM_AWAY, GM_TURN, GM_QUEUE, GM_RESTING, GM_HELD };

struct gm_sched_app {
    uint64_t bytes;
    uint64_t slice_at;    /* since when its gate is open in this slice; valid if open */
    uint64_t stuck_until; /* valid if stuck */
    uint64_t waiting_at;  /* since when it waits; valid if wanting and not open */
    uint64_t hurry_from;  /* it is not hurried again before */
    uint64_t queued_at;   /* ... and could run: it is boosted so long after this */
    uint64_t running_at;  /* since when its gate is open and it wants; valid while that is so */
    uint64_t charged_at;  /* the times below are right up to here */
    uint64_t run_ns, wait_ns, idle_ns; /* since it joined */
    int64_t used_ns; /* its account: run time that it used of its slice; negative: it has more */

    struct gm_sched_policy policy;
    uint32_t level;                             /* 1 .. levels */
    uint64_t changed_at;                        /* when it came to its level */
    uint64_t level_run, level_wait, level_idle; /* since then: t, q and i of the rules */
    int64_t credit_ns; /* run time that its share allows now; right up to unlimited_at if it has no
                          limit */
    uint64_t unlimited_at;
    uint64_t rested_ns;    /* saved up by rests: GPU time that it may have before the levels */
    uint64_t worked_ns;    /* run_ns when it last came back */
    uint64_t rest_fair_ns; /* fair_ns when its rest began */
    uint64_t lead_ns;      /* run time for which it still goes first since it came back */
    int64_t level_used_ns; /* used_ns at its level's rank, while it stands in RESTED or LED */
    uint32_t level_rank;   /* ... which is this */
    uint32_t auto_level;   /* its level and charge when something else than auto was said */
    uint64_t auto_run;

    uint64_t wanted_at;           /* when it last began to want */
    uint64_t period_ns;           /* from one such time to the next, usually; 0: not known yet */
    uint64_t gaps[GM_SCHED_GAPS]; /* of which that is made: the latest, in a ring */
    uint32_t n_gaps;              /* noted; beyond the ring: where it goes on */
    uint64_t slice_in; /* left out: its slice is expected after so long, as of the last decision */

    uint32_t user;       /* its place in gm_sched.users */
    uint32_t n_of_user;  /* apps of its user that want at its rank; valid if several users do */
    uint32_t next, prev; /* in the list of its place */
    uint32_t ahead;      /* left out: for whom it waits */
    uint8_t why;         /* left out: enum gm_why */
    uint8_t place, rank; /* enum gm_sched_place; the rank of TURN and QUEUE */
    bool is_known;
    bool is_wanting;
    bool is_open;
    bool is_chosen;  /* in the set */
    bool is_stuck;   /* did not drain: its room is taken whatever its place */
    bool is_boosted; /* it goes first for one slice, as it waited for too long, or ... */
    bool is_hurried; /* ... for a short one, as a signal came; valid if boosted */
    bool is_spent;   /* its share is used up for now */
    bool is_tied;    /* it stands in line, and is not in the set while its gate is closed */
    bool is_ready;   /* ... and it would be in the set; valid while it stands in QUEUE */
    bool has_turn;   /* in TURN, or sent away from there in the middle of its slice */
    bool has_wanted;
    bool is_past_start; /* `gaps` begins with its second */
};

struct gm_sched_list {
    uint32_t head, tail;
};

struct gm_sched_user {
    uint32_t user, n_apps; /* 0 apps: nobody */
    uint32_t n_wanting;    /* apps at the rank that is counted; valid if `seen` is its mark */
    uint64_t lead_ns;      /* for which its apps may go first; right up to lead_at */
    uint64_t lead_at;
    uint64_t hurry_from; /* none of its apps is hurried before; kept when they are gone */
    uint64_t late_in;    /* the last pass in which one of its apps had not drained */
    uint64_t seen;       /* the mark of the last pass that met an app of it */
    uint64_t used_ns;    /* sched_users.c, as all below: its account */
    uint32_t rest;       /* ... and thousandths of a nanosecond */
    uint32_t rate;       /* ... grows by so much, in thousandths of time */
    uint32_t best;       /* the best rank of a level at which it has a claim; GM_RANKS: none */
    uint32_t best_app;   /* ... for this app */
    bool is_waiting;     /* an app of it wants to run and does not */
    bool is_wanting, was_wanting; /* the GPU; ... as of the decision before */
    bool is_new;                  /* it never wanted it */
    bool was_running;             /* its account grew, as of the decision before */
    uint64_t bytes;               /* of its apps that run */
    uint64_t largest;             /* ... of the largest of those that want to */
    bool is_yielding; /* it had more than another: its apps are chosen after all levels */
};

/* What the apps that want and stand at a rank come to. */
struct gm_sched_rank {
    struct gm_sched_list turn, queue;
    uint32_t weight_min, weight_max; /* 0: nobody */
    uint64_t weights;                /* their sum */
    uint64_t round_ns;               /* the sum of their slices; valid if there are any */
    uint32_t n_users;                /* whose apps they are; 0 if all apps are of one user */
    uint32_t senior;                 /* the first of TURN that has bytes, or NIL */
    bool has_left;                   /* somebody of it is left out */
};

struct gm_sched {
    struct gm_sched_config config;
    uint64_t now;
    struct gm_sched_rank ranks[GM_RANKS];
    struct gm_sched_list resting, held;
    uint32_t at_level[GM_SCHED_LEVELS_MAX + 1]; /* apps */
    struct gm_sched_app *apps;
    struct gm_sched_user *users; /* max_apps of them */
    uint32_t n_users;            /* that have apps */
    uint64_t passes;             /* decisions so far */
    uint64_t mark;               /* of the last pass over users */
    uint32_t *set;
    uint32_t *next;
    struct gm_sched_decision decision;
    uint64_t fair_ns; /* what an app of weight 1 ran that wanted all the time, on average */

    /* Made by each decision: for its own passes, and for the reasons. */
    uint64_t free;      /* budget left beside what is stuck */
    uint64_t weights;   /* of all who want and may run */
    uint32_t n_running; /* ... whose gate is open */
    uint64_t lapsed;    /* bytes of what is stuck and may be asked again, TURN excepted */
    uint32_t first;     /* the first of the set that has bytes, or NIL */
    uint32_t overdue;   /* the first that is stuck and not in TURN, or NIL */
    bool is_tight;      /* somebody whose gate is open or should be is left out */
    bool is_asking;     /* somebody could run if what has lapsed drained: ask it again */
    bool is_overfull;   /* what is stuck exceeds the budget: ask it again in any case */
    bool needs_boost;   /* an app that is left out must be boosted: decide again */
    bool has_late;      /* somebody is left out for an app of its user that did not drain, */
    bool has_drained;   /* ... and one of those is as if nothing had been: decide again */
    bool has_waiting;   /* somebody is left out */
    bool has_yielding;  /* a user yields to another */
};

static inline uint64_t gm_sum_or_never(uint64_t time, uint64_t more)
{
    return time > GM_TIME_NEVER - more ? GM_TIME_NEVER : time + more;
}

static inline bool gm_sched_is_too_large(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return a->bytes > s->config.budget;
}

/* It came back from a rest, and goes before the levels. */
static inline bool gm_sched_has_lead(const struct gm_sched_app *a)
{
    return a->lead_ns > 0 &&
           (a->policy.class == GM_CLASS_AUTO || a->policy.class == GM_CLASS_INTERACTIVE);
}

/* Run time since it came back. */
static inline uint64_t gm_sched_burst(const struct gm_sched_app *a)
{
    return a->run_ns - a->worked_ns;
}

/* ... that is left until it gives way to others that come back. */
static inline uint64_t gm_sched_fresh(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return gm_less(s->config.slice_ns / GM_SCHED_FRESH + 1, gm_sched_burst(a));
}

static inline bool gm_sched_is_rested(uint32_t rank)
{
    return rank == GM_RANK_RESTED || rank == GM_RANK_LED;
}

/* It may run, as far as settings go. */
static inline bool gm_sched_is_eligible(const struct gm_sched_app *a)
{
    return !a->policy.is_paused && !a->is_spent;
}

/* It is chosen after all levels, as its user had more than another. */
static inline bool gm_sched_is_yielding(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return a->rank > GM_RANK_LED && s->users[a->user].is_yielding;
}

/* Did not drain, and may not be asked again yet. */
static inline bool gm_sched_is_held(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return a->is_stuck && s->now < a->stuck_until;
}

/*
 * Waits: wants, could run, and may not. Others' slices end for it. An app that is being closed does
 * not wait yet: else two of them could take turns in calling off each other's drain, and the memory
 * that somebody else is to have would never be free.
 */
static inline bool gm_sched_is_left_out(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return a->is_wanting && !a->is_chosen && !a->is_open && !gm_sched_is_too_large(s, a) &&
           gm_sched_is_eligible(a);
}

#endif
