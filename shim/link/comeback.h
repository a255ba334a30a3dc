/* clang-format off */
/*
 * What becomes of a program whose daemon dies, as a state machine: state x event -> state, actions.
 *
 *   UP      the daemon is there.
 *   LOST    it is not. Nothing of the program changes: what runs goes on, who waits at the gate
 *           waits, what is parked stays parked, whatever was mapped is mapped. Requests wait, up to
 *           the limit; then they are refused.
 *   REJOIN  a daemon is there, and was told who this is and what it has. Its answer is waited for: as
 *           with every daemon, only its socket says that it is gone. WELCOME brings files. At its limit
 *           of open files the program leaves it in the socket, and looks again later.
 *   GONE    nobody has the program's memory any more, or the daemon does not take it over. For good.
 *
 * That somebody has the memory tells the lifeline: a pipe whose writing end the daemon and
 * gpumux-keeper hold. It hangs up when both are gone. So where there is no keeper, LOST ends at once.
 *
 * Pure: no clock, no socket, no lock. Owns struct gm_comeback. The link thread calls it, and does what
 * it says.
 */
/* clang-format on */
#ifndef GM_SHIM_COMEBACK_H
#define GM_SHIM_COMEBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"

#define GM_COMEBACK_GAP_MIN (50 * GM_MS) /* from one attempt to connect to the next, */
#define GM_COMEBACK_GAP_MAX GM_S         /* ... which doubles up to that */

enum gm_link_state { GM_LINK_UP, GM_LINK_LOST, GM_LINK_REJOIN, GM_LINK_GONE };
#define GM_LINK_STATES 4

enum gm_link_event {
    GM_LINK_EV_HANG_UP,   /* the connection ended, or what came makes no sense */
    GM_LINK_EV_ENDED,     /* the daemon ended the session, and said why */
    GM_LINK_EV_CONNECTED, /* REJOIN is on its way */
    GM_LINK_EV_WELCOME,   /* the daemon takes the program over */
    GM_LINK_EV_LATER,     /* ... not now */
    GM_LINK_EV_REFUSED,   /* ... never */
    GM_LINK_EV_NO_FILES,  /* its answer needs files, and this program can have no more */
    GM_LINK_EV_NOBODY,    /* the lifeline hung up */
    GM_LINK_EV_TIME,      /* it is time: gm_comeback_due */
};
#define GM_LINK_EVENTS 9

/* In this order. */
enum gm_link_action {
    GM_LINK_DO_PART = 1,     /* send nothing more; the open CLOSE is void */
    GM_LINK_DO_HANG_UP = 2,  /* close the connection that REJOIN went over */
    GM_LINK_DO_CONNECT = 4,  /* try, and say CONNECTED if it works */
    GM_LINK_DO_TELL = 8,     /* say in the log that it waits for a daemon */
    GM_LINK_DO_REFUSE = 16,  /* refuse requests, those that wait too */
    GM_LINK_DO_GO_ON = 32,   /* use the new connection, and send open requests again */
    GM_LINK_DO_GIVE_UP = 64, /* run on without a daemon, or not */
};

struct gm_comeback {
    enum gm_link_state state;
    uint64_t limit_ns; /* how long requests wait for a daemon */
    uint64_t lost_at;
    uint64_t try_at, gap; /* LOST; REJOIN, is_deaf */
    bool is_refusing, is_told;
    bool is_deaf; /* REJOIN: the answer waits in the socket until try_at */
};

/* Take an event at time `now`. Returns what is to be done, enum gm_link_action. What a state does
 * not know changes nothing. */
unsigned gm_comeback_step(struct gm_comeback *comeback, enum gm_link_event event, uint64_t now);

/* When to say TIME; UINT64_MAX: never. */
uint64_t gm_comeback_due(const struct gm_comeback *comeback);

#endif
