/*
 * How long the kernels of each running program keep the GPU while others wait for it (DESIGN
 * section 5, after GPreempt, ATC '25). Pure; owns no state. Called by the engine.
 *
 * While a latency-critical program runs beside best-effort ones, it has the longest timeslice and
 * they have the shortest: its work waits for little of theirs, and nothing interrupts it. In all
 * other cases each has what the driver gave it.
 *
 * Several best-effort programs would interrupt each other all the time. They take turns instead:
 * one works, and the work of the others stands still. Where programs cannot be held, they have
 * somewhat longer timeslices.
 *
 * A latency-critical program that is idle counts as well: that it works again is known only later
 * than its first request is to be answered.
 */
#ifndef GM_CORE_TIMESLICE_H
#define GM_CORE_TIMESLICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/classes.h"

/* A program whose gate is open. */
struct gm_timeslice_app {
    uint32_t id; /* ascending */
    enum gm_sched_class class;
    bool is_idle;
    bool can_be_held;
    uint64_t us; /* out: its timeslice; 0: the driver's own */
};

/* Whether programs of this class are latency-critical: latency and interactive. All others are
 * best-effort. */
bool gm_timeslice_is_critical(enum gm_sched_class class);

/* Fill the `us` of all `n` running programs. True: the best-effort ones among them take turns. */
bool gm_timeslice_assign(struct gm_timeslice_app *apps, uint32_t n);

/* Whose turn it is after that of program `last`: the next best-effort one with work. GM_NONE: none
 * has any. */
uint32_t gm_timeslice_next(const struct gm_timeslice_app *apps, uint32_t n, uint32_t last);

#endif
