/*
 * Draining. After a CLOSE, find out whether this program is quiet and answer DRAINED once, before
 * the deadline. After a QUERY, with the gate open, answer QUIET when the work submitted so far has
 * ended, however long that takes.
 *
 * The thread "gpumux-drain" does it, because synchronizing a context may never return: a kernel can
 * wait for the host. The link thread keeps the times. When the grace is over, it parks the program
 * if it can (park.h), and the answer is PARKED; when the deadline passes, the answer is BUSY. The
 * drainer goes on then, but sends nothing. The next CLOSE waits for it.
 *
 * While the program marks what it touches, the drainer also looks ten times a second whether the
 * work of a window has ended, to tell the daemon. That never waits.
 *
 * A CLOSE or a newer QUERY stops a QUERY at once. With a driver that cannot record an event for a
 * context (contexts.h) the drainer first returns from the synchronizing call that it is in. The
 * CLOSE would wait for that work too, and its deadline holds.
 *
 * Owns the open CLOSE and QUERY. Callers: the link, the start, pin (synchronize), handlers
 * and memory (watch). Calls the driver, the gate, contexts and captures, and all others through
 * gm_drain_calls.
 */
#ifndef GM_SHIM_GATE_DRAIN_H
#define GM_SHIM_GATE_DRAIN_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"
#include "shim/gate/park.h"

/* Whom the drainer calls, without a lock: all but the answers from its own thread only. */
struct gm_drain_calls {
    /* The answers to CLOSE and to QUERY; also from the link thread. */
    void (*drained)(const struct gm_msg_drained *drained);
    void (*quiet)(const struct gm_msg_quiet *quiet);

    /* Stop all work of the program where it stands, or change nothing; and let it go on. Link
     * thread only. */
    enum gm_park_outcome (*park)(void);
    void (*resume)(void);

    /* The program is quiet: move unevictable memory out of the way, until the time `until`. */
    void (*clear)(uint64_t until);
    /* After the answer. True: call `resumed` when the gate opens. */
    bool (*paused)(void);
    void (*resumed)(void);

    /* Called at the time that it returned last, and after gm_drain_watch: when idle, and while the
     * drainer waits for work that may never end. Returns when to call it again; UINT64_MAX: after
     * gm_drain_watch only. */
    uint64_t (*watch)(uint64_t now);
};

/* Start only: start the thread. 0 or -errno. */
int gm_drain_start(const struct gm_drain_calls *calls);

/*
 * Link thread: CLOSE came at time `now`. It replaces a CLOSE that has no answer yet. Both times
 * count from `now`; a grace of UINT64_MAX: do not park.
 */
void gm_drain_close(uint64_t epoch, uint64_t grace_ns, uint64_t deadline_ns, uint64_t now);

/* Link thread: RESUME came, or the daemon is lost: if the program is parked, let it go on. */
void gm_drain_resume(void);

/* Link thread: park if the grace is over, answer BUSY if the deadline has passed. Returns when to
 * call it again; UINT64_MAX: after the next CLOSE. */
uint64_t gm_drain_expire(uint64_t now);

/* Link thread: QUERY came. It replaces a QUERY that has no answer yet. */
void gm_drain_query(uint64_t query);

/* The newest CLOSE after which the program was quiet or parked; 0: none. */
uint64_t gm_drain_answered(void);

/* Link thread: another daemon has taken the program over, which was quiet or parked and has not run
 * since: as if that had been the answer to its CLOSE of that number. */
void gm_drain_stays(uint64_t epoch);

/* Link thread: the daemon is lost. Forget CLOSE and QUERY. */
void gm_drain_cancel(void);

/* Link thread, or a forked child: the program marks what it touches from now on, in this window
 * first; 0: it does no more. */
void gm_drain_follow(uint32_t window);

/* Any thread: call `watch`. The program is not idle, so the answer to an open QUERY is no. */
void gm_drain_watch(void);

/*
 * From a thread that holds the others (gm_gate_hold): wait until all work of the program has ended.
 * CUDA_ERROR_NOT_READY: not within `patience_ns`. During a CLOSE the drainer does it too: the CLOSE
 * waits for this thread to leave the gate.
 */
CUresult gm_drain_synchronize(uint64_t patience_ns);

#endif
