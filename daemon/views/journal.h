/*
 * The one reader of the engines' events (common/events.def): has the daemon's log tell of them,
 * keeps the last decisions for `mux-ctl log`, and for the status the last refusals and how long
 * switches took, and has traces written (tape.h). main makes it and gives it to the engines,
 * which call gm_journal_event through their outlet. Loop thread only.
 */
#ifndef GM_DAEMON_VIEWS_JOURNAL_H
#define GM_DAEMON_VIEWS_JOURNAL_H

#include "common/shm.h"
#include "common/units.h"
#include "daemon/core/events.h"
#include "daemon/views/tape.h"

/* Decisions since the start, by how long they took; the last: beyond all bounds. */
struct gm_decision_times {
    uint64_t counts[GM_DECISION_BOUNDS + 1];
    uint64_t sum_ns, most_ns;
};

struct gm_journal {
    bool is_several; /* GPUs: entries name theirs */
    struct gm_tape tape;
    uint64_t n; /* notes since the start; entry[n % GM_NOTES] is the newest */
    struct gm_note entry[GM_NOTES];
    struct {
        struct gm_note refusals[GM_REFUSALS_KEPT];
        uint64_t n_refusals; /* such notes since the start */
        /* Switches since the start, by their time; the last: beyond all bounds. */
        uint64_t switches[GM_SWITCH_BOUNDS + 1];
        uint64_t switch_ns; /* ... and the sum of their times */
        struct gm_decision_times decisions, passes;
    } gpu[GM_GPUS_MAX]; /* by the engine's index */
};

/* The n-th bound of the times of switches, in ns; a time that equals it is within. */
static inline uint64_t gm_switch_bound(unsigned n)
{
    return GM_MS << n;
}

/* Likewise of decisions: four for each doubling. */
static inline uint64_t gm_decision_bound(unsigned n)
{
    return (GM_US << (n / 4)) * (4 + n % 4);
}

void gm_journal_event(struct gm_journal *journal, const struct gm_event *event);

#endif
