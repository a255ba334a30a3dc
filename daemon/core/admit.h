/* clang-format off */
/*
 * Admission: decides which request for memory is granted next, and which is refused. Pure; owns
 * struct gm_admit. The engine calls it, commits what is granted, and calls again until nothing more
 * can be done. `room` is what all tiers can still hold.
 *
 * A *holder* is an app that has memory. Only holders can make room. The oldest request is the
 * *head*.
 *
 *   1  The head is granted as soon as it fits.
 *   2  While the head has waited for less than `patience_ns`, a holder bypasses it if its request
 *      fits. An app without memory never bypasses anybody.
 *   3  After that, a holder bypasses the head only when no holder is at work: each waits itself, or
 *      did nothing for long. Then only the one that bypasses can go on and make room.
 *   4  Holders are in a deadlock if none of their requests fits even after all other holders have
 *      ended. After GM_ADMIT_STUCK_NS the last of the requests that were in it from the start is
 *      refused: its program fails or goes on with less, and the others are served. A program that
 *      asks again at once has a new request, which is not refused again.
 *   5  A head that may not wait for room (`may_wait` false) is refused at once.
 *
 * So a head that has waited long gets all memory that holders give back. It waits no longer than
 * they take to end, each with what it cannot do without.
 */
/* clang-format on */
#ifndef GM_CORE_ADMIT_H
#define GM_CORE_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/tunables.h"

struct gm_admit_request {
    struct gm_admit_request *next; /* NULL: the last */
    uint64_t bytes;                /* of `room` */
    uint64_t since;                /* when it came */
    uint32_t app;
    bool may_wait;  /* for room; read for the head only */
    bool is_barred; /* its bytes fit, but it could not be committed in this round */
};

/* An app. All zero: there is none. */
struct gm_admit_app {
    uint64_t held;   /* bytes that ending it would add to `room` */
    uint32_t waits;  /* its requests in the list */
    bool is_at_work; /* it did something lately, so it may soon give memory back */
    uint64_t least;  /* set by the step: its smallest request */
    uint64_t most;   /* for the caller: its largest request */
    bool can_end;    /* set by the step: it ends if those that do not wait give back everything */
};

struct gm_admit_input {
    const struct gm_admit_request *first; /* NULL: nobody waits */
    struct gm_admit_app *apps;
    uint32_t n_apps;
    bool has_deadlocks; /* requests wait without a limit, so rule 4 is needed */
    uint64_t room;
    uint64_t now;
    uint64_t patience_ns;
};

/* What is remembered from one step to the next. All zero at the start. */
struct gm_admit {
    uint64_t stuck_since; /* when the deadlock was first seen; 0: there is none */
};

enum gm_admit_action {
    GM_ADMIT_NOTHING, /* all requests wait */
    GM_ADMIT_GRANT,
    GM_ADMIT_REFUSE, /* rule 5 */
    GM_ADMIT_BREAK,  /* refuse it to break a deadlock */
};

struct gm_admit_decision {
    enum gm_admit_action action;
    const struct gm_admit_request *request; /* GRANT, REFUSE, BREAK: which */
    uint64_t wake_at; /* NOTHING: ask again then, though nothing happened; UINT64_MAX: never */
};

struct gm_admit_decision gm_admit_step(struct gm_admit *admit, const struct gm_admit_input *input);

#endif
