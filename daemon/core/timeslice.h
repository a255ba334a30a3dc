/*
 * How long the kernels of each running program keep the GPU while others wait for it (DESIGN
 * section 5, after GPreempt, ATC '25). Pure; owns no state. Called by the engine.
 *
 * While a latency-critical program runs beside best-effort ones, it has the longest timeslice and
 * they have the shortest: its work waits for little of theirs, and nothing interrupts it. In all
 * other cases the timeslices of those that have work share the GPU, which goes round them: equally
 * between users, and among the programs of each, both by weight. Where these parts are equal, each
 * has what the driver gave it.
 *
 * A user's weight is the greatest of its programs that have work, as in sched_users.c. Timeslices
 * bound what a program has while its work is queued up: who waits for each kernel to end before it
 * launches the next one gives up the rest of its timeslice.
 *
 * Programs are latency-critical by their class. If none is, those are that the scheduler finds to
 * be interactive: of class auto, idle for longer than they ran, beside one with work that is of a
 * worse level, or has worked since its last rest for longer than an answer takes, which they have
 * not. They are only while they have work, and keep the driver's timeslice: several of them
 * share the GPU, and a chat beside training was hardly faster with 20 ms or 1 s
 * (bench/results/latency.txt, the ninth run).
 *
 * Several best-effort programs would interrupt each other all the time. They take turns instead:
 * one works, and the work of the others stands still. The turns go by user first, and by program of
 * that user then: more programs give nobody more turns. Where programs cannot be held, they have
 * somewhat longer timeslices.
 *
 * A program that is latency-critical by its class counts while it is idle as well: that it works
 * again is known only later than its first request is to be answered.
 */
#ifndef GM_CORE_TIMESLICE_H
#define GM_CORE_TIMESLICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/classes.h"

/* A program whose gate is open. */
struct gm_timeslice_app {
    uint32_t id; /* ascending */
    uint32_t user;
    enum gm_sched_class class;
    uint32_t level;           /* the scheduler's, from 1 */
    uint64_t run_ns, idle_ns; /* since it came */
    uint64_t burst_ns;        /* run time since its last rest */
    bool is_idle;
    bool rests;      /* ... for so long that it counts as without work for what others have */
    bool is_fixed;   /* it can have no other timeslice than the driver's own */
    bool is_joined;  /* it has one together with the joined ones of its user (MPS) */
    bool is_spread;  /* it is on other GPUs, too, and has one timeslice on all */
    uint32_t weight; /* GM_SCHED_WEIGHT: 1 */
    bool can_be_held;
    uint64_t turn_at;    /* when its last short turn began; before its first, when it came */
    uint64_t held_until; /* until when it was told to stand still; also out */
    bool is_critical;    /* out */
    uint64_t part;    /* out: of the GPU, against the parts of others; 0: it is not in the round */
    uint64_t part_us; /* its timeslice where nobody is latency-critical, in and out */
    uint64_t us;      /* out: its timeslice; 0: the driver's own */
    bool is_told;     /* out: hold it for ... */
    uint64_t hold_ns; /* ... so long from now on; 0: let it go on */
};

/* Short turns. Zeroed before use. */
struct gm_turns {
    bool are_on;    /* by gm_timeslice_assign */
    uint32_t whose; /* the program that had the last one */
    uint64_t until; /* 0: nobody has one */
};

/* Whether programs of this class are latency-critical: latency and interactive. */
bool gm_timeslice_is_critical(enum gm_sched_class class);

/* Fill part_us of those of `n` running programs that have work. The others keep theirs, and all do
 * if it is one alone; but who is spread has none then, as it would count on its other GPUs. At most
 * once in GM_TIMESLICE_AGAIN_NS: setting one takes the program 0.5 ms. */
void gm_timeslice_share(struct gm_timeslice_app *apps, uint32_t n);

/* Fill is_critical and `us` of all `n` running programs. True: the best-effort ones among them take
 * turns. */
bool gm_timeslice_assign(struct gm_timeslice_app *apps, uint32_t n);

/*
 * At `now`: whether a turn begins, that of turns->whose, and what all programs are told. A turn is
 * over after GM_TURN_NS, or when its program has no work or is gone. With only one that has work
 * there are none.
 *
 * The hold of who comes next ends with the turn. The others are held for the next turn as well. So
 * nothing must be said at the end of a turn, and if nobody says anything any more everybody goes
 * on. Who gets a turn while it is held yet is told to go on, and so is everybody when there are no
 * turns any more. Of two holds the later end counts.
 */
bool gm_turns_step(struct gm_turns *turns, struct gm_timeslice_app *apps, uint32_t n, uint64_t now);

#endif
