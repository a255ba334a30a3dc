/*
 * What must hold of a scheduler, whoever drives it: a watch sees everything that one was told and
 * all that it decided, keeps its own accounts of the apps, and checks after each step
 *
 *   accounts  charged time is run time, and run, wait and idle time are the whole life
 *   the set   fits the budget, holds nobody who was paused or wants nothing, leaves no room unused;
 *             where everything fits nobody is left out; the timeline is complete; wake_at is ahead
 *   ranks     no app waits for one of a lower class or level, patience and what does not drain
 *             excepted, nor who came back from a rest for one that did not; the first that is being
 * loaded is not sent away but for a better rank rests     who goes first for a rest has, while
 * others wait, what those ran on average while it rested, a slice at once at most, and nothing
 * beside levels    nobody stays beyond its allotment, and nobody rises without having been idle for
 * it shares    in any time W an app runs for at most share * (W + GM_WATCH_SHARE_WINDOW_NS), and
 * for as long as it takes to drain waits     nobody waits for longer than gm_sched_bound says
 *
 * What breaks ends the program with one line that says where. Times are nanoseconds.
 */
#ifndef GM_TESTS_SIM_WATCH_H
#define GM_TESTS_SIM_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/sched.h"

/* As stated at the head of daemon/core/sched_step.c: the burst that a share allows. */
#define GM_WATCH_SHARE_WINDOW_NS 10000000000u

struct watch_app {
    bool is_known, is_wanting, is_open;
    bool is_tied;  /* it is not in the set while its gate is closed */
    bool is_stuck; /* BUSY was said of it, and it was not closed since */
    bool is_chosen, is_coming, was_chosen;
    uint64_t bytes, held_until, joined_at;
    uint32_t user;
    uint64_t run_ns, wait_ns, idle_ns;
    uint64_t running_since; /* while it is open and wants */
    uint64_t taken_ns;      /* run time that was idle time, as became known later: in all, */
    uint64_t just_taken_ns; /* and in this step */
    struct gm_sched_policy policy;
    uint32_t rank; /* as told by its account: 0 latency, 1 back from a rest, else the level + 1, or
                      behind all levels; patience counts apart */
    bool has_lead; /* likewise */
    bool is_yielding;
    double saved_ns, rest_fair_ns; /* what its rests earned it; fair_ns when the last one began */
    enum gm_why reason;

    uint64_t wait_from;  /* the bound counts from here; NEVER: it does not wait */
    uint64_t present_at; /* when it last wanted or was open; NEVER: not since it joined */
    uint32_t gone;       /* rivals that left during the wait */
    uint64_t owed;       /* run time beyond its share, in thousandths of ns */
    uint32_t level;      /* 1 .. levels; of class latency 1 */
    /* Run time at the last rise and idle time at the last drop, and what changes took of it since.
     */
    uint64_t run_at_rise, run_spent, idle_at_drop, idle_spent;
    uint64_t auto_charge; /* when another class than auto was said */
    bool is_back;         /* auto is said again */

    uint32_t slices; /* for a summary: gates opened, and waits that ended in one */
    uint64_t waits, waited_ns, longest_wait_ns, waiting_since;
};

struct watch {
    const char *place; /* what a failure begins with: place number ": ..." */
    uint64_t number;
    const struct gm_sched *sched;
    struct gm_sched_config config; /* the budget as of now */
    const struct gm_sched_decision *decision;
    struct watch_app *apps; /* max_apps of them */
    uint32_t n;             /* above the highest known app */
    uint64_t now, steps;
    uint64_t hash; /* of all events and decisions */
    bool is_hash_only;

    /* What the engine behind it promises: the waits, shares and slices that follow are checked.
     * drain_max NEVER: nothing is promised. */
    uint64_t drain_max, load_max;
    uint64_t late_max;  /* it asks again so long after wake_at, at most */
    bool is_clean;      /* it has no BUSY and no ROOM */
    uint64_t calm_from; /* waits count from here at the earliest */

    uint64_t opened, busy, timers;
    uint64_t run_ns, taken_ns; /* of those that left */
    bool has_users;            /* other than 0 */
    bool has_waiting;          /* somebody was left out since the last step */
    double fair_ns;            /* what who wants the GPU ran, by its weight, on average */
    uint64_t turns;            /* opened, level and share changes: each may need a wake */
    uint32_t first;            /* of the set before this step, UINT32_MAX if none */
    uint32_t first_rank;
};

void watch_begin(struct watch *watch, const struct gm_sched *sched,
                 const struct gm_sched_config *config, const struct gm_sched_decision *decision);
void watch_end(struct watch *watch);

/* Before the scheduler is told (now, and event or else policy of `app`), and after it decided. */
void watch_before(struct watch *watch);
void watch_event(struct watch *watch, uint64_t now, const struct gm_sched_event *event);
void watch_policy(struct watch *watch, uint64_t now, uint32_t app,
                  const struct gm_sched_policy *policy);

/* The accounts as of a time at which nothing happens. */
void watch_accounts(struct watch *watch, uint64_t now);

_Noreturn __attribute__((format(printf, 3, 4))) void watch_fail(const struct watch *watch, int line,
                                                                const char *format, ...);

#define watch_check(watch, what)                                                                   \
    do {                                                                                           \
        if (!(what))                                                                               \
            watch_fail(watch, __LINE__, "not so: %s", #what);                                      \
    } while (0)

#endif
