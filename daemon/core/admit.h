/* clang-format off */
/*
 * Admission: which of the requests that wait for memory gets it next, and which is refused. Pure
 * policy over bytes: `room` is what all tiers can still hold. The engine commits what is granted,
 * and asks again until nothing more can be done now.
 *
 * A *holder* is an app that has memory. Only holders can make room, so who waits for room waits for
 * them. Requests are in the order in which they came; the first one is the *head*.
 *
 *   1  The head gets its memory as soon as that fits.
 *   2  Behind a head that has waited for less than `patience_ns`, a holder's request passes if it
 *      fits. An app that has no memory never passes anybody.
 *   3  Behind a head that has waited longer, a holder passes only when no holder is at work: each
 *      of them waits itself, or did nothing for long. Then nobody but the one that passes can go on
 *      to make room.
 *   4  Holders are in a deadlock if none of their requests fits even after all other holders have
 *      ended. After GM_ADMIT_STUCK_NS of it the last of the requests that were in it from the start
 *      is refused: its program fails or goes on with less, and the others get what they wait for.
 *      (One that asks again at once is not refused again and again while the others wait.)
 *   5  A head for which no room is to come (`may_wait` false) is refused at once.
 *
 * So from when the head's patience is over, memory that holders give back is kept for the head. It
 * waits no longer than the holders need to come to an end, each with what it cannot do without.
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
    bool may_wait;  /* for room to come; looked at for the head only */
    bool is_barred; /* it could not be committed in this round, though its bytes fit */
};

/* An app. All zero: there is none. */
struct gm_admit_app {
    uint64_t held;   /* bytes that ending it would add to `room` */
    uint32_t waits;  /* requests of it in the list */
    bool is_at_work; /* it did something lately, so it may soon give memory back */
    bool can_end;    /* the step's own: it ends if those that do not wait give back everything */
};

struct gm_admit_input {
    const struct gm_admit_request *first; /* NULL: nobody waits */
    struct gm_admit_app *apps;
    uint32_t n_apps;
    bool has_deadlocks; /* requests wait without an end, so rule 4 is needed */
    uint64_t room;
    uint64_t now;
    uint64_t patience_ns;
};

/* What is remembered from one step to the next. All zero at the start. */
struct gm_admit {
    uint64_t stuck_since; /* when the deadlock was first seen; 0: there is none */
};

enum gm_admit_action {
    GM_ADMIT_NOTHING, /* all that are left wait */
    GM_ADMIT_GRANT,
    GM_ADMIT_REFUSE, /* no room is to come */
    GM_ADMIT_BREAK,  /* refuse it: it waits for others that wait for it */
};

struct gm_admit_decision {
    enum gm_admit_action action;
    const struct gm_admit_request *request; /* GRANT, REFUSE, BREAK: which */
    uint64_t wake_at; /* NOTHING: ask again then, though nothing happened; UINT64_MAX: never */
};

struct gm_admit_decision gm_admit_step(struct gm_admit *admit, const struct gm_admit_input *input);

#endif
