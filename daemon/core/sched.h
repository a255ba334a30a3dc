/*
 * The scheduler: who may use the GPU now. Pure policy (STYLE 7): no I/O, no clock, no allocation after
 * init; same events, same decisions. The engine feeds it events and makes its decision true.
 *
 * A decision is the *set* of apps whose gates should be open, in priority order, and the time at which
 * the scheduler wants to be asked again. It speaks of committed bytes only; where the bytes are and
 * how they get to the GPU is core/plan's business.
 */
#ifndef GM_CORE_SCHED_H
#define GM_CORE_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_TIME_NEVER UINT64_MAX

enum gm_sched_event_kind {
    GM_SCHED_JOIN,   /* an app appeared: idle, 0 bytes */
    GM_SCHED_LEAVE,  /* it is gone */
    GM_SCHED_WANT,   /* it has GPU work to submit (or submits: its gate is open) */
    GM_SCHED_IDLE,   /* its gate is open and it submits nothing, waits for nothing, runs nothing */
    GM_SCHED_SIZE,   /* its committed bytes are now `bytes` */
    GM_SCHED_OPENED, /* its gate opened: a slice began */
    GM_SCHED_CLOSED, /* its gate is closed and it is drained: its slice ended */
    GM_SCHED_BUSY,   /* its gate could not be closed: it did not drain; it keeps the GPU, ask again */
    GM_SCHED_TIMER,  /* nothing happened, but wake_at came */
    GM_SCHED_ROOM,   /* the budget is now `bytes` (the app field is unused) */
};

struct gm_sched_event {
    enum gm_sched_event_kind kind;
    uint32_t app; /* the engine's app id: 0 .. max_apps-1 */
    uint64_t bytes;
};

/* Why an app is not in the set, or is. Shown by `mux-ctl status`. */
enum gm_sched_reason {
    GM_WHY_NONE = 0,
    GM_WHY_FITS,      /* in the set: everything fits */
    GM_WHY_SLICE,     /* in the set: its turn */
    GM_WHY_IDLE,      /* not in the set: it wants nothing */
    GM_WHY_TURN,      /* not in the set: another app's slice is not over */
    GM_WHY_ROOM,      /* not in the set: does not fit beside the apps before it */
    GM_WHY_NOT_DRAINED, /* in the set against its turn: it did not drain */
};

struct gm_sched_config {
    uint32_t max_apps;
    uint64_t budget;     /* bytes */
    uint64_t quantum_ns; /* > 0 */
    uint64_t retry_ns;   /* after BUSY, ask that app again no sooner */
};

struct gm_sched_decision {
    const uint32_t *set; /* apps whose gates should be open, most important first; the scheduler's */
    uint32_t n_set;      /* memory, valid until the next step */
    const uint32_t *next; /* the coming slices after the set, soonest first: the timeline */
    uint32_t n_next;
    uint64_t wake_at; /* step with GM_SCHED_TIMER then, GM_TIME_NEVER: not needed */
};

struct gm_sched;

/* Bytes that gm_sched_init needs for `config`; 0 if the config is invalid. */
size_t gm_sched_size(const struct gm_sched_config *config);

/* Make a scheduler in `memory` (gm_sched_size bytes, 16-aligned, the caller's). NULL if invalid. */
struct gm_sched *gm_sched_init(void *memory, const struct gm_sched_config *config);

/*
 * One event at time `now` (nanoseconds, never decreasing; an earlier value counts as the latest seen).
 * Fills *decision. Returns 0, or a positive enum gm_sched_fault when the event is not legal (an unknown
 * app, a JOIN of a known one): then nothing changed and *decision repeats the last one.
 */
int gm_sched_step(struct gm_sched *sched, uint64_t now, const struct gm_sched_event *event,
                  struct gm_sched_decision *decision);

enum gm_sched_fault { GM_SCHED_OK = 0, GM_SCHED_BAD_APP = 1, GM_SCHED_BAD_EVENT = 2 };

struct gm_sched_account {
    uint64_t run_ns;     /* gate open */
    uint64_t wait_ns;    /* wanted and not open */
    uint64_t slice_at;   /* when the current slice began, 0 if none */
    uint64_t waiting_at; /* since when it waits, 0 if it does not */
    uint64_t bytes;
    enum gm_sched_reason reason;
    uint32_t ahead; /* which app it waits for, UINT32_MAX if none in particular */
};

/* What is known of `app` at `now`. Returns false for an unknown app. */
bool gm_sched_account(const struct gm_sched *sched, uint64_t now, uint32_t app,
                      struct gm_sched_account *account);

/*
 * When `app` is expected to want the GPU next: `now` if it does, GM_TIME_NEVER if nothing is known
 * (it is new, or has wanted it once only). Who wanted it again and again is expected after as long
 * as usual; who is overdue, after as long again as he is. With the timeline this is the order of
 * next use, by which memory is moved; no turn depends on it.
 */
uint64_t gm_sched_expect(const struct gm_sched *sched, uint64_t now, uint32_t app);
/* Whether `a` is expected later than `b` (both below max_apps). Of those of which nothing is known,
 * the one that has not wanted the GPU for longer counts as later; then the lower id. */
bool gm_sched_is_later(const struct gm_sched *sched, uint64_t now, uint32_t a, uint32_t b);

/* "its turn", "another app's slice is not over", ...: one short phrase. */
const char *gm_sched_reason_text(enum gm_sched_reason reason);

#endif
