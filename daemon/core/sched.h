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
    GM_SCHED_TIMER, /* nothing happened, but wake_at came */
    GM_SCHED_ROOM,  /* the budget is now `bytes` (the app field is unused) */
};

struct gm_sched_event {
    enum gm_sched_event_kind kind;
    uint32_t app; /* the engine's app id: 0 .. max_apps-1 */
    uint64_t bytes;
    uint64_t ago_ns; /* IDLE: it is idle for so long already, and is not charged for that */
    uint32_t user;   /* JOIN: whose it is, any number; turns go by user first */
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
    uint32_t levels;       /* K: 1 .. GM_SCHED_LEVELS_MAX; 1 is plain round robin */
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

/* Bytes that gm_sched_init needs for `config`; 0 if the config is invalid. */
size_t gm_sched_size(const struct gm_sched_config *config);

/* Make a scheduler in `memory` (gm_sched_size bytes, 16-aligned, the caller's). NULL if invalid. */
struct gm_sched *gm_sched_init(void *memory, const struct gm_sched_config *config);

enum gm_sched_fault {
    GM_SCHED_OK = 0,
    GM_SCHED_BAD_APP = 1,
    GM_SCHED_BAD_EVENT = 2,
    GM_SCHED_BAD_POLICY = 3, /* a weight, a share or a class out of its bounds */
};

/*
 * One event at time `now` (nanoseconds, never decreasing; an earlier value counts as the latest
 * seen). Fills *decision. Returns 0, or a positive enum gm_sched_fault when the event is not legal
 * (an unknown app, a JOIN of a known one): then nothing changed and *decision repeats the last one.
 */
int gm_sched_step(struct gm_sched *sched, uint64_t now, const struct gm_sched_event *event,
                  struct gm_sched_decision *decision);

/* The same for new settings of `app`, all at once. */
int gm_sched_set(struct gm_sched *sched, uint64_t now, uint32_t app,
                 const struct gm_sched_policy *policy, struct gm_sched_decision *decision);

/* Whether `app` waits, is tied, and would be in the set if it were not. It stays ready until
 * somebody of a better rank comes, or takes the room of a turn before it. */
bool gm_sched_is_ready(const struct gm_sched *sched, uint32_t app);

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
    bool has_lead;       /* it came back from a rest: it goes before all levels */
    uint64_t bytes;
    enum gm_why reason; /* why it is in the set, or is not */
    uint32_t ahead;     /* which app it waits for, UINT32_MAX if none in particular */
};

/* What is known of `app` at `now`. Returns false for an unknown app. */
bool gm_sched_account(const struct gm_sched *sched, uint64_t now, uint32_t app,
                      struct gm_sched_account *account);

/*
 * When `app` is expected to use the GPU next. Who is in the set: `now`. Who waits: when its slice
 * will begin if everybody before it on the timeline uses up his. Who is idle: if it wanted the GPU
 * again and again, after as long as usual, even if that is over (it is overdue); when it is overdue
 * for long, after as long again; GM_TIME_NEVER if nothing is known (it is new, or has wanted it
 * once only) or it may not run. This is the order of next use, by which memory is moved; no turn
 * depends on it.
 */
uint64_t gm_sched_expect(const struct gm_sched *sched, uint64_t now, uint32_t app);
/* Whether `a` is expected later than `b` (both below max_apps). Of those of which nothing is known,
 * the one that has not wanted the GPU for longer counts as later; then the lower id. */
bool gm_sched_is_later(const struct gm_sched *sched, uint64_t now, uint32_t a, uint32_t b);

/*
 * The longest that an app which fits the budget, is not paused and has no limit on its share waits
 * from WANT to OPENED, with `n` apps of `users` users runnable or open at some time meanwhile
 * (itself included), whose drain takes no longer than drain_ns and whose memory is moved within
 * load_ns, none that does not drain, and none that is hurried. sched_step.c derives it.
 * GM_TIME_NEVER if that is beyond 64 bits.
 */
uint64_t gm_sched_bound(const struct gm_sched_config *config, uint32_t n, uint32_t users,
                        uint64_t drain_ns, uint64_t load_ns);

#endif
