/*
 * How long the kernels of each running program keep the GPU while others wait for it (DESIGN
 * section 5, after GPreempt, ATC '25). Pure; owns no state. Called by the engine.
 *
 * While a latency-critical program runs beside best-effort ones, it has the longest timeslice and
 * they have short ones: its work waits for little of theirs, and nothing interrupts it. In all
 * other cases each has what the driver gave it.
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
    enum gm_sched_class class;
    bool is_idle;
    uint64_t us; /* out: its timeslice; 0: the driver's own */
};

/* Whether programs of this class are latency-critical: latency and interactive. All others are
 * best-effort. */
bool gm_timeslice_is_critical(enum gm_sched_class class);

/* Fill the `us` of all `n` running programs. */
void gm_timeslice_assign(struct gm_timeslice_app *apps, uint32_t n);

#endif
