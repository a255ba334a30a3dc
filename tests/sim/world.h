/*
 * The world around a scheduler, by discrete events: gates, programs, and somebody who changes
 * settings. The scheduler is the real one, and nothing else of the daemon is here: engine/ has the
 * whole engine. This world is for promises that need hours of simulated time (a step takes a
 * microsecond), and for worlds with more programs than engine/ has.
 *
 * Gates: an app that left the set drains for a while and is then closed or busy; one that came into
 * it waits until there is room beside those that are open or drain, loads, and is then open. How
 * long a load takes is drawn, or follows from the bytes that must come and go (link_rate): an app
 * that loads takes the place of those expected last. As with the daemon, an app is idle when it did
 * nothing for idle_ns, be its gate open or closed.
 *
 * Programs: each makes requests that take some time on the GPU, and thinks between them; it grows
 * and shrinks, comes and dies. `wild` ones want and rest at any time. Time on the GPU passes while
 * the gate is open, for each as if it were alone.
 *
 * Everything that is drawn comes from one seed. A step tells the watch, and the trace if there is
 * one. Times are nanoseconds.
 */
#ifndef GM_TESTS_SIM_WORLD_H
#define GM_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/sim/chance.h"
#include "tests/sim/watch.h"

#define WORLD_APPS 64u
#define WORLD_NOBODY UINT32_MAX
#define WORLD_FOREVER (1ull << 60) /* work without end */

/* How a program behaves. */
struct habit {
    uint64_t work_ns;       /* of a request, on average; WORLD_FOREVER: it never rests */
    uint64_t think_ns;      /* from the end of one to the next, on average */
    bool is_exact;          /* both are as said, each time */
    bool is_wild;           /* wants and rests at any time, of its own accord: think_ns apart */
    unsigned pause_percent; /* of its pauses are ten times as long */
    unsigned grow_percent;  /* of its requests it changes its size before */
    uint64_t life_ns;       /* on average; 0: it stays */
    uint32_t then; /* app that gets a request when one of its ends; NOBODY: itself, later */
};

struct world_app {
    bool is_known, is_wanting, is_open, is_draining, is_loading;
    uint64_t bytes;
    uint64_t drain_at, load_at;
    uint64_t resident; /* of its bytes: they need not come */
    struct habit habit;
    struct chance chance; /* of its requests: the same under every policy */
    uint64_t left_ns;     /* of the request; 0: none */
    uint64_t run_from;    /* since when it works on it: valid while it is open */
    uint64_t asked_at;    /* when the request came */
    uint64_t ask_at;      /* when the next comes; NEVER */
    uint64_t rest_at;     /* when it has been quiet for idle_ns; NEVER */
    uint64_t die_at;      /* NEVER */

    uint64_t requests, work_ns, response_ns, response_max_ns; /* that ended */
    uint64_t responses[4];                                    /* of the first requests */
};

struct world {
    uint64_t seed;
    struct chance chance;
    struct gm_sched *sched;
    struct gm_sched_config config; /* its budget as of now */
    struct gm_sched_decision decision;
    struct watch watch;
    uint64_t link_rate; /* bytes a second each way; 0: the time of a load is drawn */
    FILE *trace;
    bool is_verbose; /* print each step */
    struct world_app apps[WORLD_APPS];
    uint64_t now;
    bool in_set[WORLD_APPS];

    uint64_t drain_max, load_max, idle_ns;
    uint64_t fixed_drain, fixed_load; /* not 0: each takes exactly this */
    unsigned busy_percent;
    uint64_t room_gap, policy_gap, join_gap; /* mean times between such events; 0: none */
    uint64_t room_at, policy_at, join_at;
    uint64_t budget_max;
    uint64_t joins;
    uint32_t n_max;   /* apps at a time */
    uint32_t n_users; /* whose they are is drawn apart; 0 and 1: of one */
    struct chance users;
    void (*arrive)(struct world *world); /* somebody joins, each join_gap */
};

/* Everything is 0 but the seed. Then set the config and the rest, and start. */
void world_begin(struct world *world, uint64_t seed);
void world_start(struct world *world);
void world_end(struct world *world);

/* An app of `bytes` joins: the first id that is free, NOBODY if there is none. It asks at `ask_at`
 * for the first time. */
uint32_t world_join(struct world *world, uint64_t bytes, const struct habit *habit,
                    uint64_t ask_at);
void world_set(struct world *world, uint32_t app, const struct gm_sched_policy *policy);
void world_leave(struct world *world, uint32_t app);

/* The next thing that happens before `end`; false: nothing does, and it is `end` now. */
bool world_step(struct world *world, uint64_t end);

/* Bytes of some size, seldom 0 or beyond the budget. */
uint64_t world_draw_bytes(struct world *world);

/* Run time so far. */
uint64_t world_run_ns(const struct world *world, uint32_t app);

#endif
