/*
 * The scheduler: who may use the GPU now. Pure policy: no I/O, no clock, no allocation
 * after init; same events, same decisions. The engine feeds it events and makes its decision true.
 *
 * A multi-level feedback queue (Nixie section 6) over sets of apps: levels 1 (the best) to
 * `levels`. Who used up its allotment at a level drops one; who was idle for long enough rises one.
 * Within a level apps take turns. Who comes back from a rest goes before all levels for a while.
 * Explicit settings (struct gm_sched_policy) stand above what is inferred. sched_step.c states what
 * each app can expect.
 *
 * A decision is the *set* of apps whose gates should be open, in priority order, and the time at
 * which the scheduler wants to be asked again. It speaks of committed bytes only; where the bytes
 * are and how they get to the GPU is core/plan's business.
 *
 * This has the types; sched_step.h and sched_account.h have the functions.
 */
#ifndef GM_CORE_SCHED_H
#define GM_CORE_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/classes.h"
#include "daemon/core/why.h"

#define GM_TIME_NEVER UINT64_MAX
#define GM_SCHED_LEVELS_MAX 8u

enum gm_sched_event_kind {
    GM_SCHED_JOIN,  /* an app of `user` appeared: idle, 0 bytes, class auto, weight 1, no limit, not
                       paused */
    GM_SCHED_LEAVE, /* it is gone */
    GM_SCHED_WANT,  /* it has GPU work to submit (or submits: its gate is open) */
    GM_SCHED_IDLE,  /* it submits nothing, waits for nothing (its gate neither), runs nothing */
    GM_SCHED_SIZE,  /* its committed bytes are now `bytes` */
    GM_SCHED_OPENED, /* its gate opened: a slice began, or goes on */
    GM_SCHED_CLOSED, /* its gate is closed and it is drained */
    GM_SCHED_BUSY, /* its gate could not be closed: it did not drain; it keeps the GPU, ask again */
    GM_SCHED_HURRY, /* a signal came to it while it waits: an early, short turn would end its call
                     */
    GM_SCHED_TIE,   /* it runs on other GPUs as well, and has no use of this one alone: it is told
                     * when  it could run (gm_sched_is_ready), and others have the room meanwhile */
    GM_SCHED_UNTIE, /* it runs like any other, as it did before TIE */
    GM_SCHED_WASTE, /* its gate is open and it wants, but hardly uses the GPU: its turn is charged
                     * as a whole, and so is over */
    GM_SCHED_TIMER, /* nothing happened, but wake_at came */
    GM_SCHED_ROOM,  /* the budget is now `bytes` (the app field is unused) */
};

struct gm_sched_event {
    enum gm_sched_event_kind kind;
    uint32_t app; /* the engine's app id: 0 .. max_apps-1 */
    uint64_t bytes;
    uint64_t ago_ns;     /* IDLE: it is idle for so long already, and is not charged for that */
    uint32_t user;       /* JOIN: whose it is, any number; turns go by user first */
    uint32_t level;      /* JOIN: it was there before, at this level; 0: it is new */
    uint64_t charged_ns; /* ... and was charged so much there */
};

/* What is said of an app, over what is inferred. */
struct gm_sched_policy {
    uint8_t class;   /* enum gm_sched_class */
    bool is_paused;  /* does not run */
    uint32_t weight; /* thousandths: its slices are to those of its level as the weights are */
    uint32_t share;  /* thousandths of the GPU's time that it gets at most; SHARE_ALL: no limit */
};

struct gm_sched_config {
    uint32_t max_apps;
    uint64_t budget;       /* bytes */
    uint32_t levels;       /* K: 1 .. GM_SCHED_LEVELS_MAX */
    uint64_t allotment_ns; /* T: run time at level 1 after which an app drops; doubles per level */
    uint64_t slice_ns;     /* S: length of a turn at level 1; doubles per level */
    uint64_t patience_ns;  /* after so long a wait, beyond a round of its level, an app goes first;
  GM_TIME_NEVER: it does not */
    uint64_t retry_ns;     /* after BUSY, ask that app again no sooner */
};

struct gm_sched_decision {
    const uint32_t
        *set;       /* apps whose gates should be open, most important first; the scheduler's */
    uint32_t n_set; /* memory, valid until the next step */
    const uint32_t *next; /* the coming slices after the set, soonest first: the timeline */
    uint32_t n_next;
    uint64_t wake_at; /* step with GM_SCHED_TIMER then, GM_TIME_NEVER: not needed */
};

struct gm_sched;

enum gm_sched_fault {
    GM_SCHED_OK = 0,
    GM_SCHED_BAD_APP = 1,
    GM_SCHED_BAD_EVENT = 2,
    GM_SCHED_BAD_POLICY = 3, /* a weight, a share or a class out of its bounds */
};

struct gm_sched_account {
    struct gm_sched_policy policy;
    uint32_t level;        /* 1 .. levels; 0: before all levels (class latency) */
    uint64_t charged_ns;   /* run time since it came to its level: it drops at the allotment */
    uint64_t allotment_ns; /* ... of its level; GM_TIME_NEVER: it cannot drop */
    uint64_t run_ns;       /* gate open and not idle, since it joined */
    uint64_t wait_ns;      /* wanted and not open */
    uint64_t idle_ns;      /* wanted nothing */
    uint64_t slice_at; /* since when its gate is open in this slice; 0: closed, or leaves the set */
    uint64_t waiting_at; /* since when it waits, 0 if it does not */
    uint64_t rested_ns;  /* GPU time saved up by rests, as of its last want, less what it cost */
    uint64_t burst_ns;   /* run time since its last rest */
    bool has_lead;       /* it came back from a rest: it goes before all levels */
    bool is_yielding;    /* its user had more than another: it goes behind all levels */
    uint64_t bytes;
    enum gm_why reason; /* why it is in the set, or is not */
    uint32_t ahead;     /* which app it waits for, UINT32_MAX if none in particular */
};

#endif
